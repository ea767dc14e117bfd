//! Batches, and the pool from which they take their memory.

use std::{
    fmt, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{ColumnSpec, Error, Values, View};

/// Rows of a dataset: for each column, the elements of the rows, one after the other. When a batch
/// is dropped, its memory returns to the loader.
pub struct Batch {
    /// The epoch of the batch.
    pub epoch: u64,
    /// The number of the batch in the epoch, from 0.
    pub number: usize,
    /// The number of rows that are data. The others are padding, which repeats the last row.
    pub n_valid: usize,
    columns: Vec<Values>,
    pool: Arc<Pool>,
}

impl Batch {
    pub(super) const fn new(
        (epoch, number): (u64, usize),
        n_valid: usize,
        columns: Vec<Values>,
        pool: Arc<Pool>,
    ) -> Self {
        Self { epoch, number, n_valid, columns, pool }
    }

    /// Returns the columns of the dataset.
    #[must_use]
    pub fn columns(&self) -> &[ColumnSpec] {
        &self.pool.columns
    }

    /// Returns the elements of all columns, in the order of [`columns`](Self::columns).
    #[must_use]
    pub fn views(&self) -> Vec<View<'_>> {
        self.columns.iter().map(Values::view).collect()
    }

    /// Returns the elements of a column of `f32`.
    ///
    /// # Panics
    /// If there is no such column, or it has another type.
    #[must_use]
    pub fn f32s(&self, column: usize) -> &[f32] {
        match &self.columns[column] {
            Values::F32(values) => values,
            Values::I32(_) => unreachable!("column {column}: expected f32, found i32"),
        }
    }

    /// Returns the elements of a column of `i32`.
    ///
    /// # Panics
    /// If there is no such column, or it has another type.
    #[must_use]
    pub fn i32s(&self, column: usize) -> &[i32] {
        match &self.columns[column] {
            Values::I32(values) => values,
            Values::F32(_) => unreachable!("column {column}: expected i32, found f32"),
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.pool.give_back(mem::take(&mut self.columns));
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("epoch", &self.epoch)
            .field("number", &self.number)
            .field("n_valid", &self.n_valid)
            .field("columns", &self.columns)
            .finish()
    }
}

/// A pool of memory for batches. Memory that was given back is lent again.
pub(super) struct Pool {
    columns: Vec<ColumnSpec>,
    sizes: Vec<(soybean_plan::DType, usize)>,
    batch_bytes: usize,
    free: Mutex<Vec<Vec<Values>>>,
    n_held: AtomicUsize,
    /// If more batches than these are allocated, memory that is given back is freed.
    most_held: usize,
}

impl Pool {
    /// Creates a pool for batches of `n_rows` rows with these columns.
    ///
    /// # Errors
    /// If a batch is larger than the address space.
    pub(super) fn new(
        columns: &[ColumnSpec],
        n_rows: usize,
        most_held: usize,
    ) -> Result<Self, Error> {
        let size = |column: &ColumnSpec| {
            let sizes = column.row.iter().try_fold(n_rows, |product, it| product.checked_mul(*it));
            let bytes = sizes.and_then(|it| it.checked_mul(size_of::<f32>()));
            bytes.filter(|it| isize::try_from(*it).is_ok()).ok_or_else(|| {
                let (name, row) = (&column.name, &column.row);
                let message = "expected rows that fit into memory, found";
                Error::data(format!("column `{name}`: {message} {n_rows} of {row:?}"))
            })
        };
        let bytes = columns.iter().map(size).collect::<Result<Vec<_>, _>>()?;
        let sizes = columns.iter().zip(&bytes).map(|(it, n)| (it.dtype, n / size_of::<f32>()));
        Ok(Self {
            columns: columns.to_vec(),
            sizes: sizes.collect(),
            batch_bytes: bytes.iter().fold(0, |sum: usize, it| sum.saturating_add(*it)),
            free: Mutex::default(),
            n_held: AtomicUsize::new(0),
            most_held,
        })
    }

    /// Returns the bytes of one batch.
    pub(super) const fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// Lends memory for a batch. Rows that are never written are zero.
    ///
    /// # Errors
    /// If there is too little memory.
    pub(super) fn lend(&self) -> Result<Vec<Values>, Error> {
        if let Some(columns) = lock(&self.free).pop() {
            return Ok(columns);
        }
        let zeros = |(dtype, n_elements): &(_, _)| Values::zeros(*dtype, *n_elements);
        let columns = self.sizes.iter().map(zeros).collect::<Result<_, _>>()?;
        self.n_held.fetch_add(1, Ordering::Relaxed);
        Ok(columns)
    }

    /// Takes back the memory of a batch.
    pub(super) fn give_back(&self, columns: Vec<Values>) {
        let mut free = lock(&self.free);
        if self.n_held.load(Ordering::Relaxed) <= self.most_held {
            free.push(columns);
        } else {
            self.n_held.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the bytes of all batches, lent or not.
    pub(super) fn n_bytes(&self) -> usize {
        self.n_held.load(Ordering::Relaxed) * self.batch_bytes
    }
}

/// Locks a mutex whose data stay valid even if a thread panicked while it held the lock.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
