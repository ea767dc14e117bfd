//! The loader: batches of a dataset in the order of an epoch, read ahead by threads.
//!
//! The rows of a batch depend only on the options, the epoch and the number of the batch. So
//! threads can read different batches at the same time. The caller gets them in order.

mod readers;
mod rows;

use std::{
    fmt,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{Batch, Dataset, Error, Pass, RowOrder, batch::Pool, order::EpochOrder};

use self::{readers::Readers, rows::Rows};

/// The size up to which copying a batch takes less time than waking a thread.
const SMALL_BYTES: usize = 64 << 10;

/// The options of a [`DataLoader`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// The number of rows of a batch.
    pub batch_rows: usize,
    /// The order in which an epoch visits the rows.
    pub order: RowOrder,
    /// The seed of the order, and of rows that differ from pass to pass.
    pub seed: u64,
    /// The treatment of rows that do not fill a batch.
    pub last: Last,
    /// The number of threads that read ahead. With none, the caller reads each batch. It also does
    /// so if batches have at most 64 KiB and their data are in memory.
    pub n_threads: usize,
    /// The maximum number of batches that threads read before they are asked for.
    pub n_ahead: usize,
    /// The rows of each batch that this process needs, in rising order; all if `None`. Other rows
    /// are not read, and are zero.
    pub rows: Option<Vec<Range<usize>>>,
}

/// The treatment of rows at the end of an epoch that do not fill a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// They are left out of this epoch.
    Drop,
    /// They become a batch that is padded by repeating the last row.
    Pad,
}

impl LoaderOptions {
    /// Returns options for training: shuffled batches, which one thread reads ahead. Rows that do
    /// not fill a batch are left out.
    #[must_use]
    pub const fn training(batch_rows: usize, seed: u64) -> Self {
        Self {
            batch_rows,
            order: RowOrder::Shuffled,
            seed,
            last: Last::Drop,
            n_threads: 1,
            n_ahead: 4,
            rows: None,
        }
    }

    /// Returns options for evaluations: every row once, in the order of the dataset, read ahead by
    /// one thread. The last batch is padded.
    #[must_use]
    pub fn evaluation(batch_rows: usize) -> Self {
        let training = Self::training(batch_rows, 0);
        Self { order: RowOrder::Sequential, last: Last::Pad, ..training }
    }
}

/// The largest number of threads that read data.
const MAX_THREADS: usize = 1 << 12;

/// An iterator over the batches of an epoch.
pub struct DataLoader {
    source: Arc<Source>,
    pool: Arc<Pool>,
    /// `None` if the caller reads each batch.
    readers: Option<Readers>,
    order: Option<Arc<EpochOrder>>,
    /// The number of the next batch.
    next: usize,
    /// True after an error, which ends the epoch.
    is_failed: bool,
    waited: Duration,
}

/// The source of batches, which all threads share.
struct Source {
    dataset: Arc<dyn Dataset>,
    rows: Rows,
    order: RowOrder,
    seed: u64,
}

impl DataLoader {
    /// Creates a loader of this dataset. Nothing is read until [`start`](Self::start) is called or
    /// the first batch is asked for.
    ///
    /// # Errors
    /// - If the dataset or a batch has no rows, or a batch is larger than the address space.
    /// - If `rows` are not ranges of a batch's rows in rising order.
    /// - If there are more than 4096 threads, or they cannot be started.
    pub fn new(dataset: impl Dataset + 'static, options: LoaderOptions) -> Result<Self, Error> {
        let (batch_rows, found) = (options.batch_rows, dataset.n_rows());
        if batch_rows == 0 || found == 0 {
            return Err(Error::data(format!(
                "expected batches of at least one row, found a batch of {batch_rows} and {found} rows of data"
            )));
        }
        if options.n_threads > 0 && options.n_ahead == 0 {
            return Err(Error::data(
                "expected at least one batch ahead for threads to read, found none",
            ));
        }
        if options.n_threads > MAX_THREADS {
            let found = options.n_threads;
            return Err(Error::data(format!(
                "expected at most {MAX_THREADS} threads that read data, found {found}"
            )));
        }
        // In addition to the batches that are read ahead, a caller holds one, or two while it takes
        // the next.
        let most_held = options.n_ahead.saturating_add(2);
        let pool = Pool::new(dataset.columns(), batch_rows, most_held)?;
        let rows = Rows::new(&options, found)?;
        let LoaderOptions { order, seed, .. } = options;
        let source = Source { dataset: Arc::new(dataset), rows, order, seed };
        let (source, pool) = (Arc::new(source), Arc::new(pool));
        let is_small = pool.batch_bytes() <= SMALL_BYTES && source.dataset.is_in_memory();
        let readers = if options.n_threads == 0 || is_small {
            None
        } else {
            Some(Readers::start(&source, &pool, options.n_threads, options.n_ahead)?)
        };
        Ok(Self {
            source,
            pool,
            readers,
            order: None,
            next: 0,
            is_failed: false,
            waited: Duration::ZERO,
        })
    }

    /// Begins an epoch at one of its batches, and lets threads start to read. The batches are the
    /// same as if all earlier ones had been taken.
    pub fn start(&mut self, epoch: u64, batch: usize) {
        let Source { order, seed, .. } = &*self.source;
        let pass = Pass { epoch, seed: *seed };
        let order = match self.order.take().filter(|it| it.pass() == pass) {
            Some(order) => order,
            None => Arc::new(EpochOrder::new(*order, pass)),
        };
        if let Some(readers) = &self.readers {
            readers.begin(&order, batch);
        }
        (self.order, self.next) = (Some(order), batch);
        (self.is_failed, self.waited) = (false, Duration::ZERO);
    }

    /// Returns the number of batches in an epoch.
    #[must_use]
    pub fn n_batches(&self) -> usize {
        self.source.rows.n_batches()
    }

    /// Returns the time that callers have waited for batches since the epoch began.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// Returns the bytes of memory that the loader holds: the order of the rows, batches that are
    /// read ahead, being read or held by callers, and memory for reuse.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        self.pool.n_bytes() + self.order.as_ref().map_or(0, |it| it.n_bytes())
    }

    /// Returns the dataset.
    #[must_use]
    pub fn dataset(&self) -> &Arc<dyn Dataset> {
        &self.source.dataset
    }
}

/// The remaining batches of the epoch. If no epoch was started, epoch 0 begins. An error ends the
/// epoch; [`start`](DataLoader::start) begins another.
impl Iterator for DataLoader {
    type Item = Result<Batch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.order.is_none() {
            self.start(0, 0);
        }
        let order = Arc::clone(self.order.as_ref()?);
        let number = self.next;
        if self.is_failed || number >= self.n_batches() {
            return None;
        }
        let started = Instant::now();
        let columns = match &self.readers {
            Some(readers) => readers.take(number),
            None => self.source.read(&self.pool, &order, number),
        };
        self.waited += started.elapsed();
        self.next += 1;
        self.is_failed = columns.is_err();
        let n_valid = self.source.rows.n_valid(number);
        let batch = |columns| {
            Batch::new((order.pass().epoch, number), n_valid, columns, Arc::clone(&self.pool))
        };
        Some(columns.map(batch))
    }
}

impl fmt::Debug for DataLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epoch = self.order.as_ref().map(|it| it.pass().epoch);
        f.debug_struct("DataLoader")
            .field("n_rows", &self.source.dataset.n_rows())
            .field("epoch", &epoch)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
