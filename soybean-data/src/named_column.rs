//! Columns that are read from fields by their names, from rows that may have nested arrays.

use soybean_plan::{DType, nearest_names};

use crate::{Column, Form, Values, element::Number};

/// A column that is read from one or more fields of each row, by their names.
///
/// ```
/// use soybean_data::{Form, NamedColumn};
///
/// let houses = [
///     NamedColumn::new("x", ["area", "rooms", "year"], Form::Numbers { scale: 1.0 }),
///     NamedColumn::new("price", "price", Form::Numbers { scale: 1e-3 }),
/// ];
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct NamedColumn {
    /// The name of the column, which is used in messages.
    pub name: String,
    /// The fields, all of the same shape.
    pub fields: FieldNames,
    /// The conversion of the fields' numbers.
    pub form: Form,
}

/// The names of the fields of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldNames {
    /// One field, whose shape is that of a row: a number gives a scalar, arrays give tensors.
    One(String),
    /// Several fields, one after the other: `n` numbers give rows `[n]`.
    Several(Vec<String>),
}

impl From<&str> for FieldNames {
    fn from(name: &str) -> Self {
        Self::One(name.to_owned())
    }
}

impl<const N: usize> From<[&str; N]> for FieldNames {
    fn from(names: [&str; N]) -> Self {
        Self::Several(names.map(str::to_owned).into())
    }
}

impl FieldNames {
    /// Lists the names.
    pub(super) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

impl NamedColumn {
    /// Returns a column of these fields: a name, or an array of names.
    pub fn new(name: &str, fields: impl Into<FieldNames>, form: Form) -> Self {
        Self { name: name.to_owned(), fields: fields.into(), form }
    }
}

/// A column with the rows that were read.
#[derive(Debug)]
pub(super) struct ColumnBuilder<'a> {
    column: &'a NamedColumn,
    /// The shape of each field, once the first row is known.
    shape: Option<Vec<usize>>,
    values: Values,
}

impl<'a> ColumnBuilder<'a> {
    pub(super) fn new(column: &'a NamedColumn) -> Self {
        let values = match column.form.dtype() {
            DType::F32 | DType::Bf16 => Values::F32(Vec::new()),
            DType::I32 => Values::I32(Vec::new()),
        };
        Self { column, shape: None, values }
    }

    pub(super) fn fields(&self) -> &'a [String] {
        self.column.fields.as_slice()
    }

    /// Returns the shape of each field, which is that of the first one.
    pub(super) fn shape(&mut self, of_first: impl FnOnce() -> Vec<usize>) -> Vec<usize> {
        self.shape.get_or_insert_with(of_first).clone()
    }

    /// Appends the next number.
    pub(super) fn push(&mut self, number: Number) -> Result<(), String> {
        self.column.form.push(number, &mut self.values)
    }

    pub(super) fn into_column(self) -> Column {
        let fields = match &self.column.fields {
            FieldNames::One(_) => None,
            FieldNames::Several(names) => Some(names.len()),
        };
        let row = fields.into_iter().chain(self.shape.into_iter().flatten()).collect();
        Column { name: self.column.name.clone(), row, values: self.values }
    }
}

/// Says which of these fields is nearest to the one that is missing.
pub(super) fn missing(name: &str, found: &[impl AsRef<str>]) -> String {
    let nearest = nearest_names(name, found.iter().map(AsRef::as_ref));
    let nearest =
        nearest.first().map_or(String::new(), |it| format!("; the nearest is `{}`", it.name));
    format!("expected a field `{name}`, found none{nearest}")
}
