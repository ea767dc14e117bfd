//! Data sets from IDX files, the format of MNIST and its family, plain or compressed by gzip.
//!
//! A file is `0, 0, type, number of dims`, the extents as big-endian 32-bit numbers, and the elements, row by row. Source: LeCun, Cortes & Burges, "The MNIST
//! database of handwritten digits".

use std::{io::Read, path::Path};

use crate::{
    Error,
    data::{Column, Table, Values, file::open},
};

/// The type of unsigned bytes, the only one that images and labels have.
const UNSIGNED_BYTE: u8 = 0x08;

/// The most elements that a file is believed to have.
const MAX_ELEMENTS: usize = 1 << 32;

/// What the numbers of IDX files become.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdxSpec {
    /// What each pixel, from 0 to 255, is multiplied by.
    pub scale: f32,
    /// The number of classes; labels must be in `0..n_classes`.
    pub n_classes: usize,
}

impl Table {
    /// Reads images and their labels from two IDX files, which may be compressed by gzip: column 0 has the pixels of each image, row by row, column 1 its label.
    ///
    /// # Errors
    /// If a file cannot be read, is not whole or longer than it says, is not of unsigned bytes, or has other dims than images `[n, ..]` and labels `[n]` do; if
    /// there are not as many labels as images, or a label is not in its range. The error names the file and the place in it.
    pub fn from_idx(
        images: impl AsRef<Path>,
        labels: impl AsRef<Path>,
        spec: &IdxSpec,
    ) -> Result<Self, Error> {
        let pixels = read(images.as_ref(), 2)?;
        let classes = read(labels.as_ref(), 1)?;
        let fault =
            |message: String| Error::data(format!("{}: {message}", labels.as_ref().display()));
        let (n_images, n_labels) = (pixels.extents[0], classes.extents[0]);
        if n_labels != n_images {
            return Err(fault(format!("expected {n_images} labels, found {n_labels}")));
        }
        let n_classes = spec.n_classes;
        if let Some(at) = classes.bytes.iter().position(|&it| usize::from(it) >= n_classes) {
            let found = classes.bytes[at];
            let message = format!("label {at}: expected one in 0..{n_classes}, found {found}");
            return Err(fault(message));
        }
        let scaled = pixels.bytes.iter().map(|&it| f32::from(it) * spec.scale).collect();
        let numbers = classes.bytes.iter().map(|&it| i32::from(it)).collect();
        let row = pixels.extents[1..].to_vec();
        let images = Column { name: "images".to_owned(), row, values: Values::F32(scaled) };
        let labels =
            Column { name: "label".to_owned(), row: Vec::new(), values: Values::I32(numbers) };
        Self::new(vec![images, labels])
    }
}

/// What an IDX file holds.
struct Contents {
    extents: Vec<usize>,
    bytes: Vec<u8>,
}

/// Reads a file that has at least `least_dims` dims, and exactly one if that is 1.
fn read(path: &Path, least_dims: usize) -> Result<Contents, Error> {
    let fault = |message: String| Error::data(format!("{}: {message}", path.display()));
    parse(&mut open(path)?, least_dims).map_err(fault)
}

fn parse(file: &mut dyn Read, least_dims: usize) -> Result<Contents, String> {
    let start: [u8; 4] = take(file, 0, "the start of an IDX file")?;
    let [0, 0, kind, n_dims] = start else {
        return Err(format!("expected an IDX file, which begins with two zeros, found {start:?}"));
    };
    if kind != UNSIGNED_BYTE {
        return Err(format!("byte 2: expected unsigned bytes (type 8), found type {kind}"));
    }
    let n_dims = usize::from(n_dims);
    if n_dims < least_dims || (least_dims == 1 && n_dims > 1) {
        let expected = if least_dims == 1 { "1 dim" } else { "2 dims or more" };
        return Err(format!("byte 3: expected {expected}, found {n_dims}"));
    }
    let mut extents = Vec::new();
    for dim in 0..n_dims {
        let bytes = take(file, 4 + 4 * dim, "the extent of a dim")?;
        extents.push(u32::from_be_bytes(bytes) as usize);
    }
    let product = extents.iter().try_fold(1_usize, |product, it| product.checked_mul(*it));
    let n_elements = product.filter(|it| (1..=MAX_ELEMENTS).contains(it)).ok_or_else(|| {
        format!("byte 4: expected from 1 to {MAX_ELEMENTS} elements, found extents {extents:?}")
    })?;
    let start = 4 + 4 * n_dims;
    let mut bytes = Vec::new();
    // One more than there should be, so that too long a file is noticed.
    file.take(n_elements as u64 + 1).read_to_end(&mut bytes).map_err(|error| {
        format!("after byte {}: expected more data, found: {error}", start + bytes.len())
    })?;
    if bytes.len() != n_elements {
        let found =
            if bytes.len() > n_elements { "more".to_owned() } else { bytes.len().to_string() };
        return Err(format!("from byte {start}: expected {n_elements} elements, found {found}"));
    }
    Ok(Contents { extents, bytes })
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

    fn fault(bytes: &[u8], least_dims: usize) -> String {
        parse(&mut &bytes[..], least_dims).err().unwrap_or_default()
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let whole = [0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9];
        let contents = parse(&mut &whole[..], 2).map(|it| (it.extents, it.bytes));
        assert_eq!(contents, Ok((vec![1, 3], vec![7, 8, 9])));
        let cut = |n: usize| fault(&whole[..n], 2);
        assert_eq!(
            cut(3),
            "byte 0: expected the start of an IDX file, found: failed to fill whole buffer"
        );
        assert_eq!(
            cut(10),
            "byte 8: expected the extent of a dim, found: failed to fill whole buffer"
        );
        assert_eq!(cut(14), "from byte 12: expected 3 elements, found 2");
        let longer = [&whole[..], &[1]].concat();
        assert_eq!(fault(&longer, 2), "from byte 12: expected 3 elements, found more");
        assert_eq!(fault(&whole, 1), "byte 3: expected 1 dim, found 2");
        let other = |at: usize, value: u8| {
            let mut bytes = whole;
            bytes[at] = value;
            fault(&bytes, 2)
        };
        assert_eq!(other(2, 13), "byte 2: expected unsigned bytes (type 8), found type 13");
        assert_eq!(
            other(0, 1),
            "expected an IDX file, which begins with two zeros, found [1, 0, 8, 2]"
        );
        assert_eq!(other(3, 1), "byte 3: expected 2 dims or more, found 1");
        assert_eq!(
            other(7, 0),
            "byte 4: expected from 1 to 4294967296 elements, found extents [0, 3]"
        );
    }
}
