//! Datasets from CSV files, plain or compressed with gzip.

mod fields;

use std::{io::Read, path::Path};

use csv::{ReaderBuilder, StringRecord};

use crate::{
    Column, Error, Form, Table, Values,
    element::check_scale,
    file::{guarded, open},
    limited_reader::LimitedReader,
};

pub use fields::CsvFields;

/// The limit for the bytes of a line. A quoted field that has no end would otherwise take all
/// memory.
const MAX_RECORD_BYTES: u64 = 1 << 24;

/// The meaning of the fields of a CSV file.
#[derive(Clone, Debug, PartialEq)]
pub struct CsvSpec {
    /// True if the first line names the fields.
    pub has_header: bool,
    /// The columns of the dataset, in the order of the model's inputs.
    pub columns: Vec<CsvColumn>,
}

impl CsvSpec {
    /// Describes a file with a header, of which the features and the target are chosen by name:
    /// column 0, `features`, has rows `[n]`, and column 1, `target`, has one value for each row.
    ///
    /// The target of a regression has the form `Form::Numbers`, that of a classification
    /// `Form::Labels`.
    #[must_use]
    pub fn named<const N: usize>(features: [&str; N], target: &str, form: Form) -> Self {
        let columns = vec![
            CsvColumn::new("features", features, Form::Numbers { scale: 1.0 }),
            CsvColumn::new("target", target, form),
        ];
        Self { has_header: true, columns }
    }
}

/// A column that is read from one or more fields of each line.
///
/// ```
/// use soybean_data::{CsvColumn, CsvSpec, Form};
///
/// let houses = CsvSpec {
///     has_header: true,
///     columns: vec![
///         CsvColumn::new("x", ["area", "rooms", "year"], Form::Numbers { scale: 1.0 }),
///         CsvColumn::new("price", "price", Form::Numbers { scale: 1e-3 }),
///     ],
/// };
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct CsvColumn {
    /// The name of the column, which is used in messages.
    pub name: String,
    /// The fields. One field gives a row without dims, several give rows `[n]`.
    pub fields: CsvFields,
    /// The conversion of the fields' numbers.
    pub form: Form,
}

impl CsvColumn {
    /// Returns a column of these fields: a name, an array of names, a number from 0, or a range of
    /// numbers.
    pub fn new(name: &str, fields: impl Into<CsvFields>, form: Form) -> Self {
        Self { name: name.to_owned(), fields: fields.into(), form }
    }
}

impl Table {
    /// Reads a CSV file, which may be compressed with gzip.
    ///
    /// # Errors
    /// - If the file cannot be read, is truncated or has no rows.
    /// - If it has no field of a name or number that the columns have.
    /// - If a line has not as many fields as the first one, a field is not a number, a number is
    ///   not finite after scaling, or a label is out of range.
    ///
    /// The error names the file and the line, and the number and the name of the field.
    pub fn from_csv(path: impl AsRef<Path>, spec: &CsvSpec) -> Result<Self, Error> {
        let path = path.as_ref();
        let to_error = |message: String| Error::data(format!("{}: {message}", path.display()));
        guarded(path, || read(open(path)?, spec).map_err(to_error))
    }
}

fn read(reader: Box<dyn Read>, spec: &CsvSpec) -> Result<Table, String> {
    let (reader, budget) = LimitedReader::new(reader, MAX_RECORD_BYTES);
    let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(reader);
    let mut record = StringRecord::new();
    let mut columns: Option<Vec<ColumnReader>> = None;
    let (mut n_fields, mut n_rows) = (0, 0);
    while reader
        .read_record(&mut record)
        .map_err(|error| unreadable(&error, reader_line(&record)))?
    {
        budget.set(MAX_RECORD_BYTES);
        let line = reader_line(&record);
        let at = |message: String| format!("line {line}: {message}");
        let columns = match &mut columns {
            Some(columns) => columns,
            None => {
                n_fields = record.len();
                let header = spec.has_header.then_some(&record);
                let made = spec.columns.iter().map(|it| ColumnReader::new(it, header, n_fields));
                let made = made.collect::<Result<_, _>>().map_err(at)?;
                let columns = columns.insert(made);
                if spec.has_header {
                    continue;
                }
                columns
            }
        };
        if record.len() != n_fields {
            return Err(at(format!("expected {n_fields} fields, found {}", record.len())));
        }
        columns.iter_mut().try_for_each(|it| it.read(&record)).map_err(at)?;
        n_rows += 1;
    }
    if n_rows == 0 {
        return Err("expected at least one row, found none".to_owned());
    }
    let columns = columns.into_iter().flatten().map(ColumnReader::into_column).collect();
    Table::new(columns).map_err(|error| error.to_string())
}

/// A field of each line.
struct FieldPlace {
    number: usize,
    /// The name in the header, if there is one.
    name: Option<String>,
}

impl FieldPlace {
    /// Adds the number and the name of the field to an error.
    fn describe(&self, message: &str) -> String {
        let place = self.number + 1;
        match &self.name {
            Some(name) => format!("field {place}, `{name}`: {message}"),
            None => format!("field {place}: {message}"),
        }
    }
}

/// A column with the rows that were read.
struct ColumnReader {
    name: String,
    fields: Vec<FieldPlace>,
    row: Vec<usize>,
    form: Form,
    values: Values,
}

impl ColumnReader {
    /// Finds the fields of a column, by the names of the header if there is one.
    fn new(
        column: &CsvColumn,
        header: Option<&StringRecord>,
        n_fields: usize,
    ) -> Result<Self, String> {
        let CsvColumn { name, fields, form } = column;
        let numbers = fields.numbers(header)?;
        if let Some(missing) = numbers.iter().find(|it| **it >= n_fields) {
            let place = missing + 1;
            return Err(format!(
                "column `{name}`: expected field {place}, found {n_fields} fields"
            ));
        }
        let row = if fields.is_one() { Vec::new() } else { vec![numbers.len()] };
        let values = match form {
            Form::Numbers { .. } => Values::F32(Vec::new()),
            Form::Integers | Form::Labels { .. } => Values::I32(Vec::new()),
        };
        let header_name = |number| header.and_then(|it| it.get(number));
        let place = |number| FieldPlace {
            number,
            name: header_name(number).map(|it| it.trim().to_owned()),
        };
        let fields = numbers.into_iter().map(place).collect();
        Ok(Self { name: name.clone(), fields, row, form: *form, values })
    }

    /// Appends the fields of a line.
    fn read(&mut self, record: &StringRecord) -> Result<(), String> {
        for field in &self.fields {
            let at = |message: String| field.describe(&message);
            let text = record.get(field.number).unwrap_or_default().trim();
            match (&mut self.values, self.form) {
                (Values::F32(values), Form::Numbers { scale }) => {
                    values.push(scaled(number(text).map_err(at)?, scale).map_err(at)?);
                }
                (Values::I32(values), Form::Integers) => {
                    values.push(integer(text).map_err(at)?);
                }
                (Values::I32(values), Form::Labels { n_classes }) => {
                    let label = integer(text).map_err(at)?;
                    if usize::try_from(label).map_or(true, |label| label >= n_classes) {
                        let message = format!("expected a label in 0..{n_classes}, found {label}");
                        return Err(at(message));
                    }
                    values.push(label);
                }
                (Values::F32(_), Form::Integers | Form::Labels { .. })
                | (Values::I32(_), Form::Numbers { .. }) => {
                    unreachable!("the column has the type of its form")
                }
            }
        }
        Ok(())
    }

    fn into_column(self) -> Column {
        Column { name: self.name, row: self.row, values: self.values }
    }
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

fn number(text: &str) -> Result<f32, String> {
    text.parse().map_err(|_| format!("expected a number, found `{text}`"))
}

/// Parses a label or another integer of 32 bits.
fn integer(text: &str) -> Result<i32, String> {
    let kind = |it: f64| match it.fract() == 0.0 && !text.contains(['.', 'e', 'E']) {
        true => "an integer of 32 bits",
        false => "a whole number without a point",
    };
    text.parse().map_err(|_| {
        let expected = text.parse().map_or("a number", kind);
        format!("expected {expected}, found `{text}`")
    })
}

fn scaled(value: f32, scale: f32) -> Result<f32, String> {
    let scaled = value * scale;
    if scaled.is_finite() && scale != 0.0 {
        return Ok(scaled);
    }
    check_scale(scale)?;
    let times = if value.is_finite() { format!(" times {scale:?}") } else { String::new() };
    Err(format!("expected a finite number, found {value:?}{times}"))
}
