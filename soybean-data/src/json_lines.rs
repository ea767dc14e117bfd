//! Datasets and texts from files of JSON Lines, plain or compressed with gzip.

use std::path::Path;

use serde_json::{Map, Value};
use soybean_plan::caught;

use crate::{
    Error, NamedColumn, Table, TextField, TokenWidth, Tokenizer,
    element::Number,
    file::{named, unreadable_by},
    named_column::{ColumnBuilder, missing},
    tokenizer::{each_line, write_tokens},
};

/// The beginnings of what other programs write for numbers that are not finite.
const NOT_JSON: [&str; 3] = ["NaN", "Inf", "inf"];

impl Table {
    /// Reads a file with an object of JSON in each line, which may be compressed with gzip.
    ///
    /// A field is a number, `true` or `false`, which are 1 and 0, or an array of such fields. All
    /// rows have the shape of the first one. Fields that no column names are ignored, and so are
    /// empty lines.
    ///
    /// ```
    /// use soybean_data::{Dataset, Form, NamedColumn, Table};
    ///
    /// # let name = std::env::temp_dir().join(format!("soybean-{}.jsonl", std::process::id()));
    /// let lines = r#"{"image": [[0, 255], [255, 0]], "label": 1, "source": "a"}
    /// {"label": 0, "image": [[0, 0], [255, 255]]}"#;
    /// std::fs::write(&name, lines).unwrap();
    /// let columns = [
    ///     NamedColumn::new("x", "image", Form::Numbers { scale: 1.0 / 255.0 }),
    ///     NamedColumn::new("label", "label", Form::Labels { n_classes: 2 }),
    /// ];
    /// let table = Table::from_json_lines(&name, &columns)?;
    /// assert_eq!((table.n_rows(), &table.columns()[0].row[..]), (2, &[2, 2][..]));
    /// # std::fs::remove_file(&name).unwrap();
    /// # Ok::<(), soybean_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// - If the file cannot be read, is truncated or has no rows.
    /// - If a line is not an object, or lacks a field of the columns.
    /// - If a field has another shape than that of the first line, or is not of numbers.
    /// - If a number is not finite after scaling, or a label is out of range.
    ///
    /// The error names the file, the line and the field.
    pub fn from_json_lines(path: impl AsRef<Path>, columns: &[NamedColumn]) -> Result<Self, Error> {
        let path = path.as_ref();
        let mut builders: Vec<ColumnBuilder<'_>> = columns.iter().map(ColumnBuilder::new).collect();
        let mut n_rows = 0;
        each_object(path, |object| {
            n_rows += 1;
            builders.iter_mut().try_for_each(|it| read(object, it))
        })?;
        if n_rows == 0 {
            return Err(named(path, "expected at least one row, found none"));
        }
        let columns = builders.into_iter().map(ColumnBuilder::into_column).collect();
        Self::new(columns).map_err(|error| named(path, &error.to_string()))
    }
}

/// Writes the tokens of the texts in a field of JSON Lines, as
/// [`tokenize_file`](crate::tokenize_file) does. Returns the number of tokens.
///
/// # Errors
/// - If a file cannot be read or written, or a line is not an object with a text in the field.
/// - If a line has more than 16 MiB, or a part of a text is no token.
/// - If the vocabulary has more tokens than the width has numbers.
pub fn tokenize_json_lines(
    texts: impl AsRef<Path>,
    field: TextField<'_>,
    tokens: impl AsRef<Path>,
    width: TokenWidth,
    tokenizer: &impl Tokenizer,
) -> Result<u64, Error> {
    write_tokens(tokens.as_ref(), width, tokenizer, field.end, |function| {
        each_object(texts.as_ref(), |object| {
            let at = |message| format!("field `{}`: {message}", field.name);
            match field_of(object, field.name)? {
                Value::String(text) => function(text).map_err(at),
                other => Err(at(format!("expected a text, found {}", kind(other)))),
            }
        })
    })
}

/// Calls a function with the object in each line that is not empty.
fn each_object(
    path: &Path,
    mut function: impl FnMut(&Map<String, Value>) -> Result<(), String>,
) -> Result<(), Error> {
    each_line(path, &mut |line| {
        if line.trim().is_empty() {
            return Ok(());
        }
        let parsed = caught(|| serde_json::from_str(line)).map_err(|it| unreadable_by(&it))?;
        match parsed {
            Ok(Value::Object(object)) => function(&object),
            Ok(other) => Err(format!("expected an object of JSON, found {}", kind(&other))),
            Err(error) => {
                // Its number of the line is that within this line.
                let (column, text) = (error.column(), error.to_string());
                let text = match line.get(column.saturating_sub(1)..) {
                    Some(rest) if NOT_JSON.iter().any(|it| rest.starts_with(it)) => {
                        "a number that is not finite, which JSON has not"
                    }
                    Some(_) | None => text.split(" at line ").next().unwrap_or_default(),
                };
                Err(format!("byte {column}: expected an object of JSON, found: {text}"))
            }
        }
    })
}

fn field_of<'a>(object: &'a Map<String, Value>, name: &str) -> Result<&'a Value, String> {
    object.get(name).ok_or_else(|| missing(name, &object.keys().collect::<Vec<_>>()))
}

/// Appends the fields of a row to a column.
fn read(object: &Map<String, Value>, column: &mut ColumnBuilder<'_>) -> Result<(), String> {
    for name in column.fields() {
        let field = field_of(object, name)?;
        let shape = column.shape(|| shape(field));
        push(field, &shape, &mut vec![], column).map_err(|(place, message)| {
            let place: String = place.iter().map(|it| format!("[{it}]")).collect();
            format!("field `{name}{place}`: {message}")
        })?;
    }
    Ok(())
}

/// Returns the shape of nested arrays, by the first element of each.
fn shape(mut value: &Value) -> Vec<usize> {
    let mut shape = Vec::new();
    while let Value::Array(values) = value
        && let Some(first) = values.first()
    {
        shape.push(values.len());
        value = first;
    }
    shape
}

/// Appends all numbers of a value of this shape. An error has its place in the nested arrays.
fn push(
    value: &Value,
    shape: &[usize],
    place: &mut Vec<usize>,
    column: &mut ColumnBuilder<'_>,
) -> Result<(), (Vec<usize>, String)> {
    let fault = |place: &[usize], message: String| Err((place.to_vec(), message));
    let Some((n, rest)) = shape.split_first() else {
        return match number(value) {
            Some(number) => column.push(number).or_else(|message| fault(place, message)),
            None => fault(place, format!("expected a number, found {}", kind(value))),
        };
    };
    let expected = match rest {
        [] => format!("{n} numbers"),
        _ => format!("an array of {n} arrays"),
    };
    match value {
        Value::Array(values) if values.len() == *n => {
            for (number, value) in values.iter().enumerate() {
                place.push(number);
                push(value, rest, place, column)?;
                place.pop();
            }
            Ok(())
        }
        Value::Array(values) => {
            fault(place, format!("expected {expected}, found {} elements", values.len()))
        }
        other => fault(place, format!("expected {expected}, found {}", kind(other))),
    }
}

fn number(value: &Value) -> Option<Number> {
    match value {
        Value::Bool(value) => Some(Number::Whole((*value).into())),
        Value::Number(number) => {
            let whole = number.as_i64().map(Number::Whole);
            let natural = || number.as_u64().map(Number::Natural);
            whole.or_else(natural).or_else(|| number.as_f64().map(Number::Real))
        }
        Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Describes a value in messages.
fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("{:?}", text.chars().take(20).collect::<String>()),
        Value::Array(values) => format!("an array of {} elements", values.len()),
        Value::Object(_) => "an object".to_owned(),
    }
}
