//! Datasets and texts from Parquet files.
//!
//! A file consists of row groups, which are decoded as a whole. Few of them are in memory at a time
//! if they are the shards of a dataset.

mod field;
mod schema;

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use ::parquet::{
    errors::ParquetError,
    file::{
        reader::{FileReader, RowGroupReader},
        serialized_reader::SerializedFileReader,
    },
    schema::types::ColumnDescPtr,
};
use soybean_plan::open_file;

use crate::{
    Error, NamedColumn, Shards, Table, TextField, TokenWidth, Tokenizer,
    file::{guarded, named, unreadable},
    named_column::{ColumnBuilder, missing},
    tokenizer::write_tokens,
};

use field::{FieldReader, TextReader};
use schema::check_depth;

/// The number of rows that are decoded at a time.
const N_DECODED: usize = 1024;

impl Table {
    /// Reads a Parquet file.
    ///
    /// A field is a column of numbers or of `bool`, or one of lists of numbers, which may be
    /// nested. All rows have the shape of the first one. `a.b` is the member `b` of the struct `a`.
    ///
    /// ```no_run
    /// use soybean_data::{Form, NamedColumn, Table};
    ///
    /// let columns = [
    ///     NamedColumn::new("x", ["area", "rooms", "year"], Form::Numbers { scale: 1.0 }),
    ///     NamedColumn::new("price", "price", Form::Numbers { scale: 1e-3 }),
    /// ];
    /// let table = Table::from_parquet("houses.parquet", &columns)?;
    /// # Ok::<(), soybean_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// - If the file cannot be read, is damaged or has no rows.
    /// - If it lacks a field of the columns, or a field is not of numbers.
    /// - If a row is null, has another shape than the first one, or has a number that is not finite
    ///   after scaling or a label that is out of range.
    ///
    /// The error names the file, the row from 0, and the field.
    pub fn from_parquet(path: impl AsRef<Path>, columns: &[NamedColumn]) -> Result<Self, Error> {
        let file = ParquetFile::open(path.as_ref())?;
        guarded(&file.path, || file.table(columns, 0..file.n_groups()))
    }
}

impl Shards {
    /// Takes the row groups of Parquet files as shards, which are
    /// [decoded](Table::from_parquet) when their rows are needed.
    ///
    /// # Errors
    /// - If there is no file, `n_buffered` is 0, or a file lacks a field of the columns.
    /// - If the first row group cannot be read.
    pub fn open_parquet(
        files: &[PathBuf],
        n_buffered: usize,
        columns: Vec<NamedColumn>,
    ) -> Result<Self, Error> {
        let mut groups = Vec::new();
        for path in files {
            let file = ParquetFile::open(path)?;
            for name in columns.iter().flat_map(|it| it.fields.as_slice()) {
                file.field(name)?;
            }
            for group in 0..file.n_groups() {
                groups.push((path.clone(), group, file.n_rows(group)));
            }
        }
        groups.retain(|it| it.2 > 0);
        Self::of_parts(groups, n_buffered, move |path, group| {
            let file = ParquetFile::open(path)?;
            guarded(path, || file.table(&columns, group..group + 1))
        })
    }
}

/// Writes the tokens of the texts in a column of a Parquet file, as
/// [`tokenize_file`](crate::tokenize_file) does. Returns the number of tokens.
///
/// # Errors
/// - If a file cannot be read or written, or has no column of texts with this name.
/// - If a text is null or not UTF-8, or a part of it is no token.
/// - If the vocabulary has more tokens than the width has numbers.
pub fn tokenize_parquet(
    texts: impl AsRef<Path>,
    field: TextField<'_>,
    tokens: impl AsRef<Path>,
    width: TokenWidth,
    tokenizer: &impl Tokenizer,
) -> Result<u64, Error> {
    let file = ParquetFile::open(texts.as_ref())?;
    let (place, about) = file.field(field.name)?;
    write_tokens(tokens.as_ref(), width, tokenizer, field.end, |function| {
        for number in 0..file.n_groups() {
            let to_error = |(row, message): (usize, String)| {
                file.error_at(file.first_row(number) + row, field.name, &message)
            };
            let mut reader = guarded(&file.path, || {
                let group = file.group(number)?;
                let reader = group.get_column_reader(place);
                let reader = TextReader::new(reader.map_err(|it| file.damaged(&it))?, &about);
                reader.map_err(|error| file.error_of(field.name, &error))
            })?;
            while reader.each_text(N_DECODED, function).map_err(to_error)? > 0 {}
        }
        Ok(())
    })
}

/// A file whose footer was read.
struct ParquetFile {
    path: PathBuf,
    reader: SerializedFileReader<File>,
}

impl ParquetFile {
    fn open(path: &Path) -> Result<Self, Error> {
        let file = open_file(path).map_err(|error| unreadable(path, &error))?;
        check_depth(&file).map_err(|message| named(path, &message))?;
        let reader = guarded(path, || {
            SerializedFileReader::new(file).map_err(|error| damaged(path, &error))
        })?;
        Ok(Self { path: path.to_owned(), reader })
    }

    fn n_groups(&self) -> usize {
        self.reader.metadata().num_row_groups()
    }

    fn n_rows(&self, group: usize) -> usize {
        usize::try_from(self.reader.metadata().row_group(group).num_rows()).unwrap_or(0)
    }

    fn first_row(&self, group: usize) -> usize {
        (0..group).map(|it| self.n_rows(it)).sum()
    }

    fn group(&self, number: usize) -> Result<Box<dyn RowGroupReader + '_>, Error> {
        self.reader.get_row_group(number).map_err(|error| self.damaged(&error))
    }

    /// Returns the number and the description of the column of a field: of the column itself, or
    /// of the numbers in its lists.
    fn field(&self, name: &str) -> Result<(usize, ColumnDescPtr), Error> {
        let columns = self.reader.metadata().file_metadata().schema_descr().columns();
        let is_field = |it: &&ColumnDescPtr| it.path().parts().first().is_some_and(|it| it == name);
        let path = |it: &ColumnDescPtr| {
            let mut parts = it.path().parts().to_vec();
            // The names that Parquet prescribes for the levels of lists.
            parts.retain(|it| !["list", "element", "item", "bag", "array"].contains(&it.as_str()));
            parts.join(".")
        };
        let named_so = |it: &ColumnDescPtr| path(it) == name || it.path().string() == name;
        let fault = |message: String| Err(named(&self.path, &message));
        match columns.iter().position(named_so) {
            Some(place) => Ok((place, Arc::clone(&columns[place]))),
            None => match columns.iter().filter(is_field).collect::<Vec<_>>().as_slice() {
                [] => {
                    let names: Vec<String> = columns.iter().map(path).collect();
                    fault(missing(name, &names))
                }
                members => {
                    let members: Vec<String> =
                        members.iter().map(|it| format!("`{}`", path(it))).collect();
                    let members = members.join(", ");
                    fault(format!("expected a field `{name}` of numbers or texts, found {members}"))
                }
            },
        }
    }

    /// Decodes the columns of some row groups.
    fn table(
        &self,
        columns: &[NamedColumn],
        groups: std::ops::Range<usize>,
    ) -> Result<Table, Error> {
        let mut builders: Vec<ColumnBuilder<'_>> = columns.iter().map(ColumnBuilder::new).collect();
        let mut n_rows = 0;
        for number in groups {
            let group = self.group(number)?;
            for builder in &mut builders {
                self.read(group.as_ref(), number, builder)?;
            }
            n_rows += self.n_rows(number);
        }
        if n_rows == 0 {
            return Err(named(&self.path, "expected at least one row, found none"));
        }
        let columns = builders.into_iter().map(ColumnBuilder::into_column).collect();
        Table::new(columns).map_err(|error| named(&self.path, &error.to_string()))
    }

    /// Appends the rows of a group to a column.
    fn read(
        &self,
        group: &dyn RowGroupReader,
        number: usize,
        builder: &mut ColumnBuilder<'_>,
    ) -> Result<(), Error> {
        let names = builder.fields();
        let reader = |name: &String| {
            let (place, about) = self.field(name)?;
            let reader = group.get_column_reader(place).map_err(|error| self.damaged(&error))?;
            FieldReader::new(reader, &about).map_err(|error| self.error_of(name, &error))
        };
        let mut readers = names.iter().map(reader).collect::<Result<Vec<_>, Error>>()?;
        let (first_row, n_rows) = (self.first_row(number), self.n_rows(number));
        for start in (0..n_rows).step_by(N_DECODED) {
            let n = N_DECODED.min(n_rows - start);
            let mut fields = Vec::new();
            for (reader, name) in readers.iter_mut().zip(names) {
                let shape = |first: &dyn Fn() -> Vec<usize>| builder.shape(first);
                let to_error = |(row, message): (usize, String)| {
                    self.error_at(first_row + start + row, name, &message)
                };
                fields.push(reader.read(n, shape).map_err(to_error)?);
            }
            for row in 0..n {
                for (numbers, name) in fields.iter().zip(names) {
                    let n_elements = numbers.len() / n;
                    let own = &numbers[row * n_elements..(row + 1) * n_elements];
                    let pushed = own.iter().try_for_each(|it| builder.push(*it));
                    let at = first_row + start + row;
                    pushed.map_err(|message| self.error_at(at, name, &message))?;
                }
            }
        }
        Ok(())
    }

    fn error_of(&self, field: &str, message: &str) -> Error {
        named(&self.path, &format!("field `{field}`: {message}"))
    }

    fn error_at(&self, row: usize, field: &str, message: &str) -> Error {
        named(&self.path, &format!("row {row}: field `{field}`: {message}"))
    }

    fn damaged(&self, error: &ParquetError) -> Error {
        damaged(&self.path, error)
    }
}

fn damaged(path: &Path, error: &ParquetError) -> Error {
    named(path, &unexpected(error))
}

/// Describes what the decoder did not expect.
fn unexpected(error: &ParquetError) -> String {
    format!("expected a Parquet file, found: {error}")
}
