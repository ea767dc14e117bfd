//! The loader: batches of a data set in the order of an epoch, read ahead by threads.
//!
//! Which rows a batch has follows from the options, the epoch and its number alone. Threads take the numbers one after the other and read different batches at the same time; whoever asks gets them in
//! their order.

mod readers;
mod rows;

use std::{
    fmt,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{Batch, Dataset, Error, RowOrder, batch::Pool, order::EpochOrder};

use self::{readers::Readers, rows::Rows};

/// Batches up to this size are copied in some microseconds, less than it takes to wake a thread.
const SMALL_BYTES: usize = 64 << 10;

/// How a [`DataLoader`] makes batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// The number of rows of a batch.
    pub batch_rows: usize,
    /// In which order an epoch goes through the rows.
    pub order: RowOrder,
    /// What becomes of rows that do not fill a batch.
    pub last: Last,
    /// The number of threads that read ahead. With none, batches are read when they are asked for, and so are those of up to 64 KiB whose data are in memory.
    pub n_threads: usize,
    /// How many batches may be read, or be in the making, before they are asked for.
    pub n_ahead: usize,
    /// The rows of each batch that are needed here, in rising order; all if `None`. The others are not read, and are zero.
    pub rows: Option<Vec<Range<usize>>>,
}

/// What becomes of the rows at the end of an epoch that do not fill a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// They are left out until the next epoch.
    Drop,
    /// They become a batch whose other rows repeat the last of them.
    Pad,
}

impl LoaderOptions {
    /// For training: shuffled batches, and one thread that reads them ahead. Rows that do not fill a batch are left out.
    #[must_use]
    pub const fn training(batch_rows: usize, seed: u64) -> Self {
        Self {
            batch_rows,
            order: RowOrder::Shuffled { seed },
            last: Last::Drop,
            n_threads: 1,
            n_ahead: 4,
            rows: None,
        }
    }

    /// For evaluations: every row once, in the order of the data, read ahead by one thread. The last batch is padded.
    #[must_use]
    pub fn evaluation(batch_rows: usize) -> Self {
        let training = Self::training(batch_rows, 0);
        Self { order: RowOrder::Sequential, last: Last::Pad, ..training }
    }
}

/// Gives the batches of one epoch after the other.
pub struct DataLoader {
    source: Arc<Source>,
    pool: Arc<Pool>,
    /// `None` where batches are read when they are asked for.
    readers: Option<Readers>,
    order: Option<Arc<EpochOrder>>,
    /// The number of the next batch.
    next: usize,
    /// An error ends the epoch.
    is_failed: bool,
    waited: Duration,
}

/// What batches are read from; shared by all threads.
struct Source {
    dataset: Arc<dyn Dataset>,
    rows: Rows,
    order: RowOrder,
}

impl DataLoader {
    /// A loader of this data set. Nothing is read before [`start`](Self::start) or the first batch is asked for.
    ///
    /// # Errors
    /// If the data set or a batch has no rows, a batch cannot fit into memory, `rows` are not ranges of a batch's rows in rising order, or threads cannot be started.
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
        // Beside those that are read ahead, callers have one at hand, or two while they take the next.
        let most_held = options.n_ahead.saturating_add(2);
        let pool = Pool::new(dataset.columns(), batch_rows, most_held)?;
        let rows = Rows::new(&options, found)?;
        let source = Source { dataset: Arc::new(dataset), rows, order: options.order };
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

    /// Begins an epoch at one of its batches, whatever came before; threads start to read. What follows is the same as if all batches before had been taken.
    pub fn start(&mut self, epoch: u64, batch: usize) {
        let n_rows = self.source.dataset.n_rows();
        let order = match self.order.take().filter(|it| it.epoch() == epoch) {
            Some(order) => order,
            None => Arc::new(EpochOrder::new(self.source.order, epoch, n_rows)),
        };
        if let Some(readers) = &self.readers {
            readers.begin(&order, batch);
        }
        (self.order, self.next) = (Some(order), batch);
        (self.is_failed, self.waited) = (false, Duration::ZERO);
    }

    /// The number of batches in an epoch.
    #[must_use]
    pub fn n_batches(&self) -> usize {
        self.source.rows.n_batches()
    }

    /// How long callers have waited for batches since the epoch was started.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// The bytes that batches and the order of rows hold: those of batches that are read ahead, in the making or in the hands of callers, and of memory that waits to be used again.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        self.pool.n_bytes() + self.order.as_ref().map_or(0, |it| it.n_bytes())
    }

    /// The data set.
    #[must_use]
    pub fn dataset(&self) -> &Arc<dyn Dataset> {
        &self.source.dataset
    }
}

/// The batches that are left of the epoch, the first one if none was started. The first error ends it; [`start`](DataLoader::start) begins anew.
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
        let batch =
            |columns| Batch::new((order.epoch(), number), n_valid, columns, Arc::clone(&self.pool));
        Some(columns.map(batch))
    }
}

impl fmt::Debug for DataLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epoch = self.order.as_ref().map(|it| it.epoch());
        f.debug_struct("DataLoader")
            .field("n_rows", &self.source.dataset.n_rows())
            .field("epoch", &epoch)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
