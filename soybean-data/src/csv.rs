//! Datasets from CSV files, plain or compressed with gzip.

use std::{fmt::Display, io::Read, ops::Range, path::Path, str::FromStr};

use csv::{ReaderBuilder, StringRecord};

use crate::{Column, Error, Table, Values, file::open};

/// The meaning of the fields of a CSV file.
#[derive(Clone, Debug, PartialEq)]
pub struct CsvSpec {
    /// True if the first line names the fields.
    pub has_header: bool,
    /// The number of fields of each line.
    pub n_fields: usize,
    /// The fields that are features, numbered from 0. They become column 0, `features`.
    pub features: Range<usize>,
    /// The factor of all features.
    pub scale: f32,
    /// The field that is the class label, numbered from 0. It becomes column 1, `label`.
    pub label: usize,
    /// The number of classes; labels must be in `0..n_classes`.
    pub n_classes: usize,
}

impl Table {
    /// Reads a CSV file, which may be compressed with gzip. Column 0 has the features of each row,
    /// column 1 its label.
    ///
    /// # Errors
    /// - If the file cannot be read, is truncated or has no rows.
    /// - If a line has the wrong number of fields, a field is not a number, or a label is out of
    ///   range.
    ///
    /// The error names the file and the line.
    pub fn from_csv(path: impl AsRef<Path>, spec: &CsvSpec) -> Result<Self, Error> {
        let path = path.as_ref();
        let to_error = |message: String| Error::data(format!("{}: {message}", path.display()));
        read(open(path)?, spec).map_err(to_error)
    }
}

fn read(reader: Box<dyn Read>, spec: &CsvSpec) -> Result<Table, String> {
    let mut reader =
        ReaderBuilder::new().has_headers(spec.has_header).flexible(true).from_reader(reader);
    let (mut features, mut labels) = (Vec::new(), Vec::new());
    let mut record = StringRecord::new();
    while reader
        .read_record(&mut record)
        .map_err(|error| unreadable(&error, reader_line(&record)))?
    {
        let line = reader_line(&record);
        let at = |message: String| format!("line {line}: {message}");
        if record.len() != spec.n_fields {
            return Err(at(format!("expected {} fields, found {}", spec.n_fields, record.len())));
        }
        for field in spec.features.clone() {
            let value: f32 = number(&record, field).map_err(at)?;
            if !value.is_finite() {
                return Err(at(format!(
                    "field {}: expected a finite number, found {value}",
                    field + 1
                )));
            }
            features.push(value * spec.scale);
        }
        let label: i32 = number(&record, spec.label).map_err(at)?;
        if usize::try_from(label).map_or(true, |label| label >= spec.n_classes) {
            let (field, n_classes) = (spec.label + 1, spec.n_classes);
            return Err(at(format!(
                "field {field}: expected a label in 0..{n_classes}, found {label}"
            )));
        }
        labels.push(label);
    }
    if labels.is_empty() {
        return Err("expected at least one row, found none".to_owned());
    }
    let row = vec![spec.features.len()];
    let features = Column { name: "features".to_owned(), row, values: Values::F32(features) };
    let labels = Column { name: "label".to_owned(), row: Vec::new(), values: Values::I32(labels) };
    Table::new(vec![features, labels]).map_err(|error| error.to_string())
}

fn reader_line(record: &StringRecord) -> u64 {
    record.position().map_or(1, csv::Position::line)
}

fn unreadable(error: &csv::Error, last_line: u64) -> String {
    let line = error.position().map_or(last_line, csv::Position::line);
    match error.kind() {
        csv::ErrorKind::Io(error) => {
            format!("after line {line}: expected more data or the end, found: {error}")
        }
        csv::ErrorKind::Utf8 { err, .. } => {
            format!("line {line}: expected UTF-8 text, found: {err}")
        }
        _ => format!("line {line}: {error}"),
    }
}

fn number<T: FromStr<Err: Display>>(record: &StringRecord, field: usize) -> Result<T, String> {
    let place = field + 1;
    let text = record.get(field).ok_or_else(|| format!("expected field {place}, found none"))?;
    text.trim().parse().map_err(|_| format!("field {place}: expected a number, found `{text}`"))
}
