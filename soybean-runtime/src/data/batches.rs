//! Batches: rows of a data set, gathered into memory that is used again for the next batch.

use soybean_plan::random::mixed;

use crate::{
    Error, ErrorKind, View,
    data::{Dataset, Values, shuffle},
};

/// Walks through a data set batch by batch; each epoch may have its own order.
#[derive(Debug)]
pub struct Batches<'d> {
    dataset: &'d Dataset,
    n_rows: usize,
    order: Vec<usize>,
    next: usize,
    columns: Vec<Values>,
}

/// One batch: for each column of the data set, the rows' elements one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'b> {
    columns: &'b [Values],
    /// The number of rows that are data; the others repeat the last of them.
    pub n_valid: usize,
}

impl<'d> Batches<'d> {
    pub(crate) fn new(dataset: &'d Dataset, n_rows: usize) -> Result<Self, Error> {
        if n_rows == 0 || dataset.n_rows == 0 {
            let found = dataset.n_rows;
            let message = format!(
                "expected batches of at least one row, found a batch of {n_rows} and {found} rows of data"
            );
            return Err(Error::new(ErrorKind::Data, message));
        }
        let space = |column: &crate::data::Column| {
            let n_elements = n_rows * column.row_elements();
            match column.values {
                Values::F32(_) => Values::F32(vec![0.0; n_elements]),
                Values::I32(_) => Values::I32(vec![0; n_elements]),
            }
        };
        Ok(Self {
            columns: dataset.columns.iter().map(space).collect(),
            order: (0..dataset.n_rows).collect(),
            next: 0,
            dataset,
            n_rows,
        })
    }

    /// Starts again, in an order that depends on the seed and the epoch alone.
    pub fn shuffle(&mut self, seed: u64, epoch: u64) {
        self.order.sort_unstable();
        shuffle(&mut self.order, mixed(mixed(seed).wrapping_add(epoch)));
        self.next = 0;
    }

    /// Starts again, in the same order.
    pub const fn restart(&mut self) {
        self.next = 0;
    }

    /// The number of whole batches in an epoch.
    #[must_use]
    pub const fn n_whole(&self) -> usize {
        self.dataset.n_rows / self.n_rows
    }

    /// The number of batches in an epoch, the last of which may be padded.
    #[must_use]
    pub const fn n_padded(&self) -> usize {
        self.dataset.n_rows.div_ceil(self.n_rows)
    }

    /// The next batch, for training; rows that do not fill a batch are left out until the next epoch.
    pub fn next_whole(&mut self) -> Option<Batch<'_>> {
        if self.dataset.n_rows - self.next < self.n_rows { None } else { self.next_padded() }
    }

    /// The next batch, for evaluation; the last may have fewer valid rows.
    pub fn next_padded(&mut self) -> Option<Batch<'_>> {
        let n_valid = self.n_rows.min(self.dataset.n_rows - self.next);
        let last = (self.next + n_valid).checked_sub(1).filter(|_| n_valid > 0)?;
        for (to, column) in self.columns.iter_mut().zip(&self.dataset.columns) {
            let rows = (0..self.n_rows).map(|row| self.order[(self.next + row).min(last)]);
            let row = column.row_elements();
            match (to, &column.values) {
                (Values::F32(to), Values::F32(from)) => gather(to, from, rows, row),
                (Values::I32(to), Values::I32(from)) => gather(to, from, rows, row),
                (Values::F32(_), Values::I32(_)) | (Values::I32(_), Values::F32(_)) => {
                    unreachable!("made of the same type in `new`")
                }
            }
        }
        self.next += n_valid;
        Some(Batch { columns: &self.columns, n_valid })
    }
}

fn gather<T: Copy>(to: &mut [T], from: &[T], rows: impl Iterator<Item = usize>, row: usize) {
    for (to, number) in to.chunks_mut(row.max(1)).zip(rows) {
        to.copy_from_slice(&from[number * row..(number + 1) * row]);
    }
}

impl<'b> Batch<'b> {
    /// The number of columns.
    #[must_use]
    pub const fn n_columns(&self) -> usize {
        self.columns.len()
    }

    /// The elements of a column, of either type.
    ///
    /// # Panics
    /// If there is no such column.
    #[must_use]
    pub fn view(&self, column: usize) -> View<'b> {
        self.columns[column].view()
    }

    /// The elements of a column of `f32`.
    ///
    /// # Panics
    /// If there is no such column, or its type is another.
    #[must_use]
    pub fn f32s(&self, column: usize) -> &'b [f32] {
        match &self.columns[column] {
            Values::F32(values) => values,
            Values::I32(_) => unreachable!("column {column}: expected f32, found i32"),
        }
    }

    /// The elements of a column of `i32`.
    ///
    /// # Panics
    /// If there is no such column, or its type is another.
    #[must_use]
    pub fn i32s(&self, column: usize) -> &'b [i32] {
        match &self.columns[column] {
            Values::I32(values) => values,
            Values::F32(_) => unreachable!("column {column}: expected i32, found f32"),
        }
    }
}
