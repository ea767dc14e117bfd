//! The values of one column of a row group, as numbers or as texts.

use ::parquet::{
    basic::{ConvertedType, LogicalType},
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::{ByteArrayType, DataType},
    schema::types::ColumnDescPtr,
};
use soybean_plan::{caught, f16};

use super::unexpected;
use crate::{element::Number, file::unreadable_by, tokenizer::TextFunction};

/// A number of a row, and what is wrong with it.
type RowFault = (usize, String);

/// Reads the rows of a column as numbers.
pub(super) struct FieldReader {
    reader: ColumnReader,
    is_unsigned: bool,
    /// The level of a value that is there: neither it nor a list around it is null.
    present: i16,
    n_dims: i16,
}

/// The values of some rows, and the levels of Parquet at which each of them repeats.
struct Rows<T> {
    values: Vec<T>,
    repeated: Vec<i16>,
}

impl FieldReader {
    pub(super) fn new(reader: ColumnReader, about: &ColumnDescPtr) -> Result<Self, String> {
        let converted = about.converted_type();
        let is_unsigned = matches!(
            converted,
            ConvertedType::UINT_8
                | ConvertedType::UINT_16
                | ConvertedType::UINT_32
                | ConvertedType::UINT_64
        );
        let is_signed = matches!(
            converted,
            ConvertedType::INT_8
                | ConvertedType::INT_16
                | ConvertedType::INT_32
                | ConvertedType::INT_64
        );
        let logical = about.logical_type_ref();
        let is_half = matches!(logical, Some(LogicalType::Float16));
        let is_number = match &reader {
            ColumnReader::BoolColumnReader(_)
            | ColumnReader::FloatColumnReader(_)
            | ColumnReader::DoubleColumnReader(_) => true,
            ColumnReader::Int32ColumnReader(_) | ColumnReader::Int64ColumnReader(_) => {
                is_signed || is_unsigned || (converted == ConvertedType::NONE && logical.is_none())
            }
            ColumnReader::FixedLenByteArrayColumnReader(_) => is_half,
            ColumnReader::Int96ColumnReader(_) | ColumnReader::ByteArrayColumnReader(_) => false,
        };
        if !is_number {
            return Err(format!("expected numbers, found {}", kind(about)));
        }
        let (present, n_dims) = (about.max_def_level(), about.max_rep_level());
        Ok(Self { reader, is_unsigned, present, n_dims })
    }

    /// Reads the next `n` rows, of this shape if the first one has it.
    pub(super) fn read(
        &mut self,
        n: usize,
        shape: impl FnOnce(&dyn Fn() -> Vec<usize>) -> Vec<usize>,
    ) -> Result<Vec<Number>, RowFault> {
        let (present, is_unsigned) = (self.present, self.is_unsigned);
        let Rows { values, repeated } = match &mut self.reader {
            ColumnReader::BoolColumnReader(reader) => {
                read(reader, n, present)?.map(|it: bool| Number::Whole(it.into()))
            }
            ColumnReader::Int32ColumnReader(reader) => read(reader, n, present)?.map(|it| {
                Number::Whole(if is_unsigned { it.cast_unsigned().into() } else { it.into() })
            }),
            ColumnReader::Int64ColumnReader(reader) => read(reader, n, present)?.map(|it: i64| {
                if is_unsigned { Number::Natural(it.cast_unsigned()) } else { Number::Whole(it) }
            }),
            ColumnReader::FloatColumnReader(reader) => {
                read(reader, n, present)?.map(|it: f32| Number::Real(it.into()))
            }
            ColumnReader::DoubleColumnReader(reader) => read(reader, n, present)?.map(Number::Real),
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                read(reader, n, present)?.map(|it| {
                    let bytes = it.data().try_into().unwrap_or_default();
                    Number::Real(f16::to_f32(u16::from_le_bytes(bytes)).into())
                })
            }
            ColumnReader::Int96ColumnReader(_) | ColumnReader::ByteArrayColumnReader(_) => {
                unreachable!("the column has numbers")
            }
        };
        if self.n_dims > 0 {
            let rows = starts(&repeated);
            let first = || shape_of(&repeated[rows[0]..rows[1]], self.n_dims);
            let shape = shape(&first);
            let expected = repetition(&shape);
            for (row, bounds) in rows.windows(2).enumerate() {
                let found = &repeated[bounds[0]..bounds[1]];
                if found != expected {
                    let found = shape_of(found, self.n_dims);
                    let unequal = if found == shape { ", but unequal ones" } else { "" };
                    let message = format!("expected lists of shape {shape:?}, found {found:?}");
                    return Err((row, message + unequal));
                }
            }
        } else if let shape = shape(&Vec::new)
            && !shape.is_empty()
        {
            return Err((0, format!("expected lists of shape {shape:?}, found a number")));
        }
        Ok(values)
    }
}

impl<T> Rows<T> {
    fn map(self, number: impl Fn(T) -> Number) -> Rows<Number> {
        let values = self.values.into_iter().map(number).collect();
        Rows { values, repeated: self.repeated }
    }
}

/// Reads the next `n` rows, which are all there.
fn read<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    n: usize,
    present: i16,
) -> Result<Rows<T::T>, RowFault> {
    let rows = read_at_most(reader, n, present)?;
    let found = match rows.repeated.is_empty() {
        true => rows.values.len(),
        false => starts(&rows.repeated).len() - 1,
    };
    if found < n {
        return Err((found, "expected a further row, found the end of the row group".to_owned()));
    }
    Ok(rows)
}

/// Reads the next `n` rows, or those that are left.
fn read_at_most<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    n: usize,
    present: i16,
) -> Result<Rows<T::T>, RowFault> {
    let (mut defined, mut repeated, mut values) = (Vec::new(), Vec::new(), Vec::new());
    // The texts of rows go to a tokenizer of the user, whose panics are not caught.
    caught(|| reader.read_records(n, Some(&mut defined), Some(&mut repeated), &mut values))
        .map_err(|panic| (0, unreadable_by(&panic)))?
        .map_err(|error| (0, unexpected(&error)))?;
    if let Some(absent) = defined.iter().position(|it| *it < present) {
        let row = match repeated.get(..=absent) {
            Some(levels) => levels.iter().filter(|it| **it == 0).count().saturating_sub(1),
            None => absent,
        };
        return Err((row, "expected a value, found null or an empty list".to_owned()));
    }
    Ok(Rows { values, repeated })
}

/// Returns the places at which rows start, and the end.
fn starts(repeated: &[i16]) -> Vec<usize> {
    let is_start = |it: &usize| repeated[*it] == 0;
    (0..repeated.len()).filter(is_start).chain([repeated.len()]).collect()
}

/// Returns the shape of a row: its extents if all lists of a level have the same number of
/// elements.
fn shape_of(repeated: &[i16], n_dims: i16) -> Vec<usize> {
    // A list of level `l` starts or goes on at each value that repeats at `l` or further out.
    let n_up_to = |level: i16| repeated.iter().filter(|it| **it <= level).count();
    (1..=n_dims).map(|level| n_up_to(level).div_ceil(n_up_to(level - 1).max(1))).collect()
}

/// Returns the levels at which the values of a row of this shape repeat.
fn repetition(shape: &[usize]) -> Vec<i16> {
    let mut levels = vec![0];
    for (extent, level) in shape.iter().zip(1..) {
        let element = |it: &i16| (0..*extent).map(|at| if at == 0 { *it } else { level }).collect();
        levels = levels.iter().flat_map(|it| -> Vec<i16> { element(it) }).collect();
    }
    levels
}

/// Reads the rows of a column as texts.
pub(super) struct TextReader {
    reader: ColumnReaderImpl<ByteArrayType>,
    present: i16,
    n_read: usize,
}

impl TextReader {
    pub(super) fn new(reader: ColumnReader, about: &ColumnDescPtr) -> Result<Self, String> {
        match reader {
            ColumnReader::ByteArrayColumnReader(reader) if about.max_rep_level() == 0 => {
                Ok(Self { reader, present: about.max_def_level(), n_read: 0 })
            }
            _ => Err(format!("expected texts, found {}", kind(about))),
        }
    }

    /// Calls a function with the next `n` texts, and returns their number.
    pub(super) fn each_text(
        &mut self,
        n: usize,
        function: TextFunction<'_>,
    ) -> Result<usize, RowFault> {
        let first = self.n_read;
        let rows = read_at_most(&mut self.reader, n, self.present);
        let texts = rows.map_err(|(row, message)| (first + row, message))?.values;
        for (row, value) in texts.iter().enumerate() {
            let text = std::str::from_utf8(value.data())
                .map_err(|error| format!("expected UTF-8 text, found: {error}"));
            text.and_then(&mut *function).map_err(|message| (first + row, message))?;
        }
        self.n_read += texts.len();
        Ok(texts.len())
    }
}

/// Describes a column in messages.
fn kind(about: &ColumnDescPtr) -> String {
    let logical = about.logical_type_ref().map_or(String::new(), |it| format!(", {it:?}"));
    let lists = if about.max_rep_level() > 0 { "lists of " } else { "" };
    format!("{lists}{}{logical}", about.physical_type())
}
