//! IDX files, the format of MNIST and similar datasets, plain or compressed with gzip.
//!
//! A file begins with four bytes: `0, 0, type, number of dims`. Then follow the extents as
//! big-endian 32-bit numbers, and the elements, row-major and big-endian. Source: LeCun, Cortes &
//! Burges, "The MNIST database of handwritten digits".

use std::{io::Read, path::Path};

use crate::{
    Column, Element, ElementKind, Error, Form, Table,
    array::{Header, Layout},
    file::{guarded, named, open, stem},
};

/// The codes of element types.
const KINDS: [(u8, ElementKind); 6] = [
    (0x08, ElementKind::U8),
    (0x09, ElementKind::I8),
    (0x0b, ElementKind::I16),
    (0x0c, ElementKind::I32),
    (0x0d, ElementKind::F32),
    (0x0e, ElementKind::F64),
];

/// The conversion of images and labels in IDX files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdxSpec {
    /// The factor of all pixels, which are from 0 to 255.
    pub scale: f32,
    /// The number of classes; labels must be in `0..n_classes`.
    pub n_classes: usize,
}

impl Column {
    /// Reads an IDX file, which may be compressed with gzip, with an array `[rows, ..]`. The column
    /// has the file's name.
    ///
    /// # Errors
    /// If the file cannot be read, its length does not match its header, or a number cannot be
    /// converted to `form`. The error names the file and the byte.
    pub fn from_idx(path: impl AsRef<Path>, form: Form) -> Result<Self, Error> {
        let path = path.as_ref();
        guarded(path, || {
            let mut file = open(path)?;
            let column = header(&mut file).and_then(|it| it.column(&mut file, stem(path), form));
            column.map_err(|it| named(path, &it))
        })
    }
}

impl Table {
    /// Reads images `[n, ..]` and their labels `[n]` from two IDX files, which may be compressed
    /// with gzip. Column 0 has the pixels of each image, row-major, column 1 its label.
    ///
    /// # Errors
    /// - If a file cannot be read, its length does not match its header, or it has other dims.
    /// - If the numbers of labels and images differ, or a label is out of range.
    ///
    /// The error names the file and the byte.
    pub fn from_idx(
        images: impl AsRef<Path>,
        labels: impl AsRef<Path>,
        spec: &IdxSpec,
    ) -> Result<Self, Error> {
        let form = Form::Numbers { scale: spec.scale };
        let path = images.as_ref();
        let pixels = Column { name: "images".to_owned(), ..Column::from_idx(path, form)? };
        if pixels.row.is_empty() {
            return Err(named(path, "byte 3: expected 2 dims or more, found 1"));
        }
        let form = Form::Labels { n_classes: spec.n_classes };
        let path = labels.as_ref();
        let classes = Column { name: "label".to_owned(), ..Column::from_idx(path, form)? };
        if !classes.row.is_empty() {
            let found = classes.row.len() + 1;
            return Err(named(path, &format!("byte 3: expected 1 dim, found {found}")));
        }
        let n_images = pixels.values.n_elements() / pixels.row_elements().max(1);
        let n_labels = classes.values.n_elements();
        if n_labels != n_images {
            let message = format!("expected {n_images} labels, found {n_labels}");
            return Err(named(path, &message));
        }
        Self::new(vec![pixels, classes])
    }
}

fn header(file: &mut dyn Read) -> Result<Header, String> {
    let start: [u8; 4] = take(file, 0, "the start of an IDX file")?;
    let [0, 0, code, n_dims] = start else {
        return Err(format!(
            "byte 0: expected an IDX file, which begins with two zeros, found {start:?}"
        ));
    };
    let Some((_, kind)) = KINDS.into_iter().find(|it| it.0 == code) else {
        let codes = KINDS.map(|it| it.0);
        return Err(format!("byte 2: expected a type of {codes:?}, found {code}"));
    };
    let mut shape = Vec::new();
    for dim in 0..usize::from(n_dims) {
        let bytes = take(file, 4 + 4 * dim, "the extent of a dim")?;
        shape.push(u32::from_be_bytes(bytes) as usize);
    }
    let start = 4 + 4 * shape.len();
    let header = Header { element: Element::big(kind), shape, layout: Layout::RowMajor, start };
    header.n_elements().map_err(|message| format!("byte 3: {message}"))?;
    Ok(header)
}

fn take(file: &mut dyn Read, at: usize, what: &str) -> Result<[u8; 4], String> {
    let mut bytes = [0; 4];
    file.read_exact(&mut bytes)
        .map_err(|error| format!("byte {at}: expected {what}, found: {error}"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Values;

    fn parse(mut bytes: &[u8]) -> Result<Column, String> {
        let form = Form::Numbers { scale: 0.5 };
        header(&mut bytes)?.column(&mut bytes, "x".to_owned(), form)
    }

    fn error_of(bytes: &[u8]) -> String {
        parse(bytes).err().unwrap_or_default()
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let whole = [0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9];
        let column = parse(&whole).unwrap();
        assert_eq!((column.row, column.values), (vec![3], Values::F32(vec![3.5, 4.0, 4.5])));
        let cut = |n: usize| error_of(&whole[..n]);
        assert_eq!(
            cut(3),
            "byte 0: expected the start of an IDX file, found: failed to fill whole buffer"
        );
        assert_eq!(
            cut(10),
            "byte 8: expected the extent of a dim, found: failed to fill whole buffer"
        );
        assert_eq!(cut(14), "from byte 12: expected 3 elements, 3 bytes, found 2");
        let longer = [&whole[..], &[1]].concat();
        assert_eq!(error_of(&longer), "from byte 12: expected 3 elements, 3 bytes, found more");
        let other = |at: usize, value: u8| {
            let mut bytes = whole;
            bytes[at] = value;
            error_of(&bytes)
        };
        assert_eq!(other(2, 10), "byte 2: expected a type of [8, 9, 11, 12, 13, 14], found 10");
        assert_eq!(
            other(0, 1),
            "byte 0: expected an IDX file, which begins with two zeros, found [1, 0, 8, 2]"
        );
        assert_eq!(
            other(7, 0),
            "byte 3: expected an array of rows with 1 to 2^40 elements in all, found extents [0, 3]"
        );
    }

    #[test]
    fn all_types_are_read() {
        let file = |code: u8, elements: &[&[u8]]| {
            let n = u8::try_from(elements.len()).unwrap();
            parse(&[&[0, 0, code, 1, 0, 0, 0, n], &elements.concat()[..]].concat())
        };
        let values = |it: Result<Column, String>| it.unwrap().values;
        let expected = Values::F32(vec![-0.5, 1.0]);
        assert_eq!(values(file(9, &[&[255], &[2]])), expected);
        assert_eq!(values(file(11, &[&[255, 255], &[0, 2]])), expected);
        assert_eq!(values(file(12, &[&(-1_i32).to_be_bytes(), &2_i32.to_be_bytes()])), expected);
        assert_eq!(values(file(13, &[&(-1_f32).to_be_bytes(), &2_f32.to_be_bytes()])), expected);
        assert_eq!(values(file(14, &[&(-1_f64).to_be_bytes(), &2_f64.to_be_bytes()])), expected);
        let error = file(14, &[&1_f64.to_be_bytes(), &f64::NAN.to_be_bytes()]).unwrap_err();
        assert_eq!(error, "byte 16: expected a finite number, found NaN");
    }
}
