//! Datasets in memory.

use std::ops::Range;

use soybean_plan::DType;

use crate::{ColumnSpec, Dataset, Error, View, ViewMut};

/// Rows of data in memory, stored column by column.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    specs: Vec<ColumnSpec>,
    values: Vec<Values>,
    n_rows: usize,
}

/// A column of a table: one tensor for each row.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The name, which is used in messages.
    pub name: String,
    /// The shape of one row's tensor; empty for a scalar.
    pub row: Vec<usize>,
    /// The elements of all rows, one row after the other.
    pub values: Values,
}

/// Elements of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Single precision numbers.
    F32(Vec<f32>),
    /// Integers, such as class labels.
    I32(Vec<i32>),
}

impl Table {
    /// Creates a dataset with these columns.
    ///
    /// # Errors
    /// If there is no column, or the numbers of rows differ.
    pub fn new(columns: Vec<Column>) -> Result<Self, Error> {
        let Some(first) = columns.first() else {
            return Err(Error::data("expected at least one column, found none"));
        };
        let n_rows = first.values.n_elements() / first.row_elements().max(1);
        for column in &columns {
            let (name, found) = (&column.name, column.values.n_elements());
            let expected = n_rows * column.row_elements();
            if found != expected {
                return Err(Error::data(format!(
                    "column `{name}`: expected {expected} elements for {n_rows} rows, found {found}"
                )));
            }
        }
        let (specs, values) = columns.into_iter().map(Column::into_parts).unzip();
        Ok(Self { specs, values, n_rows })
    }

    /// Returns all elements of a column.
    ///
    /// # Panics
    /// If there is no such column.
    #[must_use]
    pub fn values(&self, column: usize) -> &Values {
        &self.values[column]
    }
}

impl Dataset for Table {
    fn n_rows(&self) -> usize {
        self.n_rows
    }

    fn columns(&self) -> &[ColumnSpec] {
        &self.specs
    }

    fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error> {
        for ((to, from), spec) in into.iter_mut().zip(&self.values).zip(&self.specs) {
            let row = spec.row_elements();
            match from {
                Values::F32(from) => gather(to.f32s(), from, rows, row),
                Values::I32(from) => gather(to.i32s(), from, rows, row),
            }
        }
        Ok(())
    }

    fn is_in_memory(&self) -> bool {
        true
    }
}

fn gather<T: Copy>(to: &mut [T], from: &[T], rows: &[usize], row: usize) {
    for (to, number) in to.chunks_mut(row.max(1)).zip(rows) {
        to.copy_from_slice(&from[number * row..(number + 1) * row]);
    }
}

impl Column {
    /// Returns the number of elements of one row.
    #[must_use]
    pub fn row_elements(&self) -> usize {
        self.row.iter().product()
    }

    fn into_parts(self) -> (ColumnSpec, Values) {
        let Self { name, row, values } = self;
        (ColumnSpec { name, row, dtype: values.dtype() }, values)
    }
}

impl Values {
    /// Allocates this many zeros.
    ///
    /// # Errors
    /// If there is not enough memory, or the type is neither `f32` nor `i32`.
    pub(super) fn zeros(dtype: DType, n_elements: usize) -> Result<Self, Error> {
        fn zeros<T: Clone + Default>(n_elements: usize) -> Result<Vec<T>, Error> {
            let mut elements = Vec::new();
            elements.try_reserve_exact(n_elements).map_err(|_| {
                Error::data(format!("expected memory for {n_elements} elements, found too little"))
            })?;
            elements.resize(n_elements, T::default());
            Ok(elements)
        }
        match dtype {
            DType::F32 => Ok(Self::F32(zeros(n_elements)?)),
            DType::I32 => Ok(Self::I32(zeros(n_elements)?)),
            DType::Bf16 => Err(Error::data("expected columns of f32 or i32, found bf16")),
        }
    }

    /// Returns the number of elements.
    #[must_use]
    pub const fn n_elements(&self) -> usize {
        self.view().n_elements()
    }

    /// Returns the type of the elements.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.view().dtype()
    }

    /// Borrows the elements.
    #[must_use]
    pub const fn view(&self) -> View<'_> {
        match self {
            Self::F32(values) => View::F32(values.as_slice()),
            Self::I32(values) => View::I32(values.as_slice()),
        }
    }

    /// Borrows the elements for writing.
    pub(super) const fn view_mut(&mut self) -> ViewMut<'_> {
        match self {
            Self::F32(values) => ViewMut::F32(values.as_mut_slice()),
            Self::I32(values) => ViewMut::I32(values.as_mut_slice()),
        }
    }

    /// Copies a range of elements to another position.
    pub(super) fn repeat(&mut self, range: Range<usize>, to: usize) {
        match self {
            Self::F32(values) => values.copy_within(range, to),
            Self::I32(values) => values.copy_within(range, to),
        }
    }
}

impl From<View<'_>> for Values {
    fn from(view: View<'_>) -> Self {
        match view {
            View::F32(elements) => Self::F32(elements.to_vec()),
            View::I32(elements) => Self::I32(elements.to_vec()),
        }
    }
}
