//! Data sets in memory, and their batches.
//!
//! ```
//! use soybean_runtime::data::{Column, Dataset, Values};
//!
//! let x = Column { name: "x".to_owned(), row: vec![2], values: Values::F32((0..20).map(|it| it as f32).collect()) };
//! let y = Column { name: "y".to_owned(), row: vec![], values: Values::I32((0..10).collect()) };
//! let (train, held_out) = Dataset::new(vec![x, y])?.split(0.2, 7);
//! assert_eq!((train.n_rows(), held_out.n_rows()), (8, 2));
//! let mut batches = train.batches(4)?;
//! for epoch in 0..2 {
//!     batches.shuffle(7, epoch);
//!     while let Some(batch) = batches.next_whole() {
//!         assert_eq!(batch.f32s(0).len(), 8);
//!         assert_eq!(batch.i32s(1).len(), 4);
//!     }
//! }
//! # Ok::<(), soybean_runtime::Error>(())
//! ```

mod batches;
mod csv;
mod file;
mod idx;

use soybean_plan::random::mixed;

use crate::{Error, ErrorKind, View};

pub use batches::{Batch, Batches};
pub use csv::CsvSpec;
pub use file::read_file;
pub use idx::IdxSpec;

/// Rows of data, stored column by column.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    columns: Vec<Column>,
    n_rows: usize,
}

/// One tensor for each row.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The name, for messages.
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

impl Values {
    /// The number of elements.
    #[must_use]
    pub const fn n_elements(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::I32(values) => values.len(),
        }
    }

    /// The elements, borrowed.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        match self {
            Self::F32(values) => View::F32(values),
            Self::I32(values) => View::I32(values),
        }
    }

    /// The rows with these numbers, of `row` elements each.
    fn picked(&self, rows: &[usize], row: usize) -> Self {
        fn picked<T: Copy>(values: &[T], rows: &[usize], row: usize) -> Vec<T> {
            rows.iter().flat_map(|it| &values[it * row..(it + 1) * row]).copied().collect()
        }
        match self {
            Self::F32(values) => Self::F32(picked(values, rows, row)),
            Self::I32(values) => Self::I32(picked(values, rows, row)),
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

impl Column {
    /// The number of elements of one row.
    #[must_use]
    pub fn row_elements(&self) -> usize {
        self.row.iter().product()
    }
}

impl Dataset {
    /// A data set with these columns.
    ///
    /// # Errors
    /// If there is no column, or they differ in their number of rows.
    pub fn new(columns: Vec<Column>) -> Result<Self, Error> {
        let fault = |message: String| Err(Error::new(ErrorKind::Data, message));
        let Some(first) = columns.first() else {
            return fault("expected at least one column, found none".to_owned());
        };
        let n_rows = first.values.n_elements() / first.row_elements().max(1);
        for column in &columns {
            let (name, found) = (&column.name, column.values.n_elements());
            let expected = n_rows * column.row_elements();
            if found != expected {
                return fault(format!(
                    "column `{name}`: expected {expected} elements for {n_rows} rows, found {found}"
                ));
            }
        }
        Ok(Self { columns, n_rows })
    }

    /// The columns.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The number of rows.
    #[must_use]
    pub const fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Splits the rows at random: those to train with, and this fraction (0 to 1) held out.
    #[must_use]
    pub fn split(&self, fraction: f64, seed: u64) -> (Self, Self) {
        let mut rows: Vec<usize> = (0..self.n_rows).collect();
        shuffle(&mut rows, mixed(seed));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a number of rows"
        )]
        let n_held_out = (self.n_rows as f64 * fraction.clamp(0.0, 1.0)).round() as usize;
        let (held_out, train) = rows.split_at(n_held_out);
        (self.picked(train), self.picked(held_out))
    }

    /// Batches of `n_rows` rows each, in the order of the data until they are shuffled.
    ///
    /// # Errors
    /// If the data set has no rows, or `n_rows` is 0.
    pub fn batches(&self, n_rows: usize) -> Result<Batches<'_>, Error> {
        Batches::new(self, n_rows)
    }

    fn picked(&self, rows: &[usize]) -> Self {
        let picked = |column: &Column| Column {
            name: column.name.clone(),
            row: column.row.clone(),
            values: column.values.picked(rows, column.row_elements()),
        };
        Self { columns: self.columns.iter().map(picked).collect(), n_rows: rows.len() }
    }
}

/// Shuffles by the method of Fisher and Yates, with numbers that depend on `key` alone.
fn shuffle(rows: &mut [usize], key: u64) {
    for last in (1..rows.len()).rev() {
        let word = mixed(key ^ mixed(last as u64));
        // The high half of the product is below `last + 1`.
        #[expect(clippy::cast_possible_truncation, reason = "below a `usize`")]
        let other = ((u128::from(word) * (last as u128 + 1)) >> 64) as usize;
        rows.swap(last, other);
    }
}
