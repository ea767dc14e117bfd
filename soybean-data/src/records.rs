//! Files of records of one size, which are read on demand.

use std::path::Path;

use crate::{
    ColumnSpec, Dataset, Element, Error, Form, ViewMut,
    array::{Header, Layout},
    file::{guarded, named, open, stem},
    npy,
    positioned::PositionedFile,
};

/// Records in one or several files, one row each. They are read on demand, so the files may be
/// larger than memory.
///
/// ```
/// use soybean_data::{Dataset, Element, ElementKind, Field, Form, Records};
///
/// # let path = std::env::temp_dir().join(format!("soybean-records-{}", std::process::id()));
/// // Records as Python's `struct.pack("<h3f", label, x, y, z)` writes them.
/// let record = |label: i16, point: [f32; 3]| {
///     [&label.to_le_bytes()[..], &point.map(f32::to_le_bytes).concat()].concat()
/// };
/// let both = [record(1, [0.5, 1.0, 1.5]), record(0, [2.0, 3.0, 4.0])].concat();
/// std::fs::write(&path, both).unwrap();
/// let field = |name: &str, start, row, kind, form| {
///     Field { name: name.to_owned(), start, row, element: Element::little(kind), form }
/// };
/// let records = Records::open(&[&path], 14, vec![
///     field("point", 2, vec![3], ElementKind::F32, Form::Numbers { scale: 1.0 }),
///     field("label", 0, vec![], ElementKind::I16, Form::Labels { n_classes: 2 }),
/// ])?;
/// assert_eq!(records.n_rows(), 2);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), soybean_data::Error>(())
/// ```
#[derive(Debug)]
pub struct Records {
    files: Vec<RecordFile>,
    n_rows: usize,
    record_bytes: usize,
    fields: Vec<Field>,
    columns: Vec<ColumnSpec>,
}

/// Consecutive numbers in each record, which become a column.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The name of the column.
    pub name: String,
    /// The byte offset of the first number in the record.
    pub start: usize,
    /// The shape of the numbers; empty for a single number.
    pub row: Vec<usize>,
    /// The type of each number in the file.
    pub element: Element,
    /// The conversion of the numbers.
    pub form: Form,
}

/// One of the files.
#[derive(Debug)]
struct RecordFile {
    file: PositionedFile,
    /// The row of the first record.
    first_row: usize,
    /// The byte offset of the first record.
    start: u64,
}

impl Records {
    /// Opens files that contain only records of `record_bytes` bytes.
    ///
    /// # Errors
    /// - If a file cannot be opened, or its size is not a multiple of a record.
    /// - If there is no record or no field.
    /// - If a field is not within a record, or cannot be converted to its form.
    pub fn open(
        paths: &[impl AsRef<Path>],
        record_bytes: usize,
        fields: Vec<Field>,
    ) -> Result<Self, Error> {
        let mut records = Self::new(record_bytes, fields).map_err(Error::data)?;
        for path in paths {
            let file = PositionedFile::open(path.as_ref())?;
            let (size, n_bytes) = (record_bytes as u64, file.n_bytes());
            if n_bytes == 0 || n_bytes % size != 0 {
                let (n, rest) = (n_bytes / size, n_bytes % size);
                let message = format!(
                    "expected records of {size} bytes, found {n} of them and a rest of {rest} bytes"
                );
                return Err(file.error_at(n_bytes - rest, &message));
            }
            records.push(file, 0, usize::try_from(n_bytes / size).unwrap_or(usize::MAX))?;
        }
        if records.files.is_empty() {
            return Err(Error::data("expected at least one file of records, found none"));
        }
        Ok(records)
    }

    /// Opens an uncompressed `.npy` file with an array `[rows, ..]` in C order. The column has the
    /// file's name. [`Column::from_npy`](crate::Column::from_npy) reads other `.npy` files.
    ///
    /// # Errors
    /// - If the file cannot be opened, or its length does not match its header.
    /// - If it is compressed or in Fortran order.
    /// - If its elements cannot be converted to `form`.
    pub fn open_npy(path: impl AsRef<Path>, form: Form) -> Result<Self, Error> {
        let path = path.as_ref();
        let to_error = |message: String| named(path, &message);
        let Header { element, shape, layout, start } =
            guarded(path, || npy::header(&mut open(path)?).map_err(to_error))?;
        let file = PositionedFile::open(path)?;
        let mut magic = [0; 2];
        file.read(&mut magic, 0)?;
        if magic == [0x1f, 0x8b] || layout == Layout::ColumnMajor {
            let found = if layout == Layout::ColumnMajor { "Fortran order" } else { "gzip" };
            return Err(to_error(format!(
                "expected an uncompressed array in C order, of which rows can be read, found {found}"
            )));
        }
        let header = Header { element, shape, layout, start };
        let n_elements = header.n_elements().map_err(to_error)? as u64;
        let (expected, found) =
            (n_elements * element.kind.n_bytes() as u64, file.n_bytes() - start as u64);
        if found != expected {
            return Err(to_error(format!(
                "from byte {start}: expected {n_elements} elements, {expected} bytes, found {found}"
            )));
        }
        let row = header.row().to_vec();
        let record_bytes = row.iter().product::<usize>() * element.kind.n_bytes();
        let field = Field { name: stem(path), start: 0, row, element, form };
        let mut records = Self::new(record_bytes, vec![field]).map_err(to_error)?;
        records.push(file, start as u64, header.shape[0])?;
        Ok(records)
    }

    fn new(record_bytes: usize, fields: Vec<Field>) -> Result<Self, String> {
        if fields.is_empty() || record_bytes == 0 {
            let n = fields.len();
            return Err(format!(
                "expected records with at least one field, found {n} fields in {record_bytes} bytes"
            ));
        }
        for field in &fields {
            let Field { name, start, row, element, form } = field;
            element.check(*form).map_err(|it| format!("field `{name}`: {it}"))?;
            let size = element.kind.n_bytes();
            let bytes = row.iter().try_fold(size, |product, it| product.checked_mul(*it));
            let end = bytes.filter(|it| *it > 0).and_then(|it| it.checked_add(*start));
            if end.is_none_or(|end| end > record_bytes) {
                return Err(format!(
                    "field `{name}`: expected numbers within the {record_bytes} bytes of a record, found {row:?} of {size} bytes from byte {start}"
                ));
            }
        }
        let column = |it: &Field| ColumnSpec {
            name: it.name.clone(),
            row: it.row.clone(),
            dtype: it.form.dtype(),
        };
        let columns = fields.iter().map(column).collect();
        Ok(Self { files: Vec::new(), n_rows: 0, record_bytes, fields, columns })
    }

    fn push(&mut self, file: PositionedFile, start: u64, n_records: usize) -> Result<(), Error> {
        let first_row = self.n_rows;
        self.n_rows = first_row.checked_add(n_records).ok_or_else(|| {
            named(file.path(), "expected fewer records than a program can count, found more")
        })?;
        self.files.push(RecordFile { file, first_row, start });
        Ok(())
    }
}

impl Dataset for Records {
    fn n_rows(&self) -> usize {
        self.n_rows
    }

    fn columns(&self) -> &[ColumnSpec] {
        &self.columns
    }

    fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error> {
        let mut record = vec![0; self.record_bytes];
        for (number, row) in rows.iter().enumerate() {
            let number_of_file = self.files.partition_point(|it| it.first_row <= *row) - 1;
            let RecordFile { file, first_row, start } = &self.files[number_of_file];
            let at = start + (row - first_row) as u64 * self.record_bytes as u64;
            file.read(&mut record, at)?;
            for ((field, column), to) in self.fields.iter().zip(&self.columns).zip(&mut *into) {
                let (n, size) = (column.row_elements(), field.element.kind.n_bytes());
                let bytes = &record[field.start..field.start + n * size];
                let mut to = to.part(number * n..(number + 1) * n);
                field.element.convert(bytes, field.form, &mut to).map_err(|error| {
                    let at = at + (field.start + error.place * size) as u64;
                    file.error_at(at, &format!("`{}`: {}", field.name, error.message))
                })?;
            }
        }
        Ok(())
    }
}
