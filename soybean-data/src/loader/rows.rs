//! The rows of a batch, and reading them.

use std::{
    iter,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};

use soybean_plan::panic_message;

use crate::{
    Dataset, Error, Last, LoaderOptions, Values, batch::Pool, loader::Source, order::EpochOrder,
};

/// The division of rows into batches.
#[derive(Debug)]
pub(super) struct Rows {
    n_rows: usize,
    batch_rows: usize,
    n_batches: usize,
    needed: Vec<Range<usize>>,
}

impl Rows {
    pub(super) fn new(options: &LoaderOptions, n_rows: usize) -> Result<Self, Error> {
        let batch_rows = options.batch_rows;
        let n_batches = match options.last {
            Last::Drop => n_rows / batch_rows,
            Last::Pad => n_rows.div_ceil(batch_rows),
        };
        let all = || iter::once(0..batch_rows).collect();
        let needed = options.rows.clone().unwrap_or_else(all);
        let mut end = 0;
        for range in &needed {
            if range.start < end || range.end < range.start || range.end > batch_rows {
                return Err(Error::data(format!(
                    "expected ranges of the {batch_rows} rows of a batch in rising order, found {needed:?}"
                )));
            }
            end = range.end;
        }
        Ok(Self { n_rows, batch_rows, n_batches, needed })
    }

    pub(super) const fn n_batches(&self) -> usize {
        self.n_batches
    }

    /// Returns the number of rows of a batch that are not padding.
    pub(super) fn n_valid(&self, batch: usize) -> usize {
        self.batch_rows.min(self.n_rows - batch * self.batch_rows)
    }
}

impl Source {
    /// Reads a batch into memory of the pool.
    ///
    /// # Errors
    /// If the dataset returns an error or panics, or there is too little memory.
    pub(super) fn read(
        &self,
        pool: &Pool,
        order: &EpochOrder,
        batch: usize,
    ) -> Result<Vec<Values>, Error> {
        let mut columns = pool.lend()?;
        // After a panic, the memory may be partly written. It is overwritten before it is read.
        let filled = catch_unwind(AssertUnwindSafe(|| self.fill(&mut columns, order, batch)));
        let filled = filled.unwrap_or_else(|panic| {
            let (epoch, found) = (order.pass().epoch, panic_message(&*panic));
            let place = format!("epoch {epoch}, batch {batch}");
            Err(Error::data(format!("{place}: expected rows, found a panic: {found}")))
        });
        match filled {
            Ok(()) => Ok(columns),
            Err(error) => {
                pool.give_back(columns);
                Err(error)
            }
        }
    }

    fn fill(&self, columns: &mut [Values], order: &EpochOrder, batch: usize) -> Result<(), Error> {
        let Rows { batch_rows, needed, .. } = &self.rows;
        let (first, n_valid) = (batch * batch_rows, self.rows.n_valid(batch));
        for range in needed.iter().filter(|it| !it.is_empty()) {
            // Padding rows repeat the last valid row. Only the first of them is read.
            let n_read = n_valid.clamp(range.start + 1, range.end);
            let position = |row: usize| first + row.min(n_valid - 1);
            let numbers: Vec<usize> =
                (range.start..n_read).map(|row| order.row(position(row), &*self.dataset)).collect();
            let sizes = self.dataset.columns().iter().map(|it| it.row_elements());
            let mut views: Vec<_> = columns.iter_mut().map(Values::view_mut).collect();
            let parts = views.iter_mut().zip(sizes.clone());
            let mut parts: Vec<_> =
                parts.map(|(view, n)| view.part(range.start * n..n_read * n)).collect();
            self.dataset.read_in_pass(order.pass(), &numbers, &mut parts)?;
            for (values, n) in columns.iter_mut().zip(sizes) {
                for row in n_read..range.end {
                    values.repeat((n_read - 1) * n..n_read * n, row * n);
                }
            }
        }
        Ok(())
    }
}
