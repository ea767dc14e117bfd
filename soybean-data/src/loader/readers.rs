//! The threads that read batches ahead.

use std::{
    collections::BTreeMap,
    io, mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use soybean_plan::ThreadOwner;

use crate::{Error, Values, batch::Pool, batch::lock, loader::Source, order::EpochOrder};

/// Threads that read the batches of an epoch ahead. They end when this is dropped.
pub(super) struct Readers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    owner: ThreadOwner,
}

/// The data that the threads and the loader share.
struct Shared {
    source: Arc<Source>,
    pool: Arc<Pool>,
    n_ahead: usize,
    state: Mutex<State>,
    /// Signals that there may be a batch to read, or that the loader closes.
    work: Condvar,
    /// Signals that the batch that the caller waits for may be ready.
    outcome: Condvar,
}

#[derive(Default)]
struct State {
    order: Option<Arc<EpochOrder>>,
    /// The number of epochs that were begun. It identifies batches that were read for an earlier
    /// one.
    n_begun: u64,
    /// The next batch that a thread reads. After an error it is `usize::MAX`.
    next_read: usize,
    /// The next batch that the caller takes.
    next_taken: usize,
    ready: BTreeMap<usize, Outcome>,
    /// The number of threads that wait for work.
    n_idle: usize,
    is_closing: bool,
}

type Outcome = Result<Vec<Values>, Error>;

impl Readers {
    /// Starts the threads, which wait until an epoch begins.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(super) fn start(
        source: &Arc<Source>,
        pool: &Arc<Pool>,
        n_threads: usize,
        n_ahead: usize,
    ) -> Result<Self, Error> {
        let shared = Shared {
            source: Arc::clone(source),
            pool: Arc::clone(pool),
            n_ahead,
            state: Mutex::default(),
            work: Condvar::new(),
            outcome: Condvar::new(),
        };
        // If a thread cannot be started, the earlier ones end when this is dropped.
        let (threads, owner) = (Vec::new(), ThreadOwner::this_process());
        let mut readers = Self { shared: Arc::new(shared), threads, owner };
        for number in 0..n_threads {
            let shared = Arc::clone(&readers.shared);
            let thread = thread::Builder::new().name(format!("data {number}"));
            let to_error = |error: io::Error| {
                Error::data(format!("expected {n_threads} threads that read data, found: {error}"))
            };
            readers.threads.push(thread.spawn(move || shared.run()).map_err(to_error)?);
        }
        Ok(readers)
    }

    /// Begins at a batch of an epoch. The memory of batches that were read ahead is given back.
    pub(super) fn begin(&self, order: &Arc<EpochOrder>, batch: usize) {
        if !self.owner.is_here() {
            // The next batch is an error.
            return;
        }
        let Shared { pool, state, work, .. } = &*self.shared;
        let mut state = lock(state);
        for columns in mem::take(&mut state.ready).into_values().flatten() {
            pool.give_back(columns);
        }
        state.order = Some(Arc::clone(order));
        state.n_begun += 1;
        (state.next_read, state.next_taken) = (batch, batch);
        drop(state);
        work.notify_all();
    }

    /// Takes the next batch. If no thread has begun to read it, the caller reads it, which takes
    /// less time than waking a thread.
    pub(super) fn take(&self, batch: usize) -> Outcome {
        self.owner.check("the loader")?;
        let Shared { source, pool, n_ahead, state, work, outcome } = &*self.shared;
        let mut state = lock(state);
        let (found, mut state) = loop {
            if let Some(found) = state.ready.remove(&batch) {
                break (found, state);
            }
            let unread = state.order.clone().filter(|_| state.next_read == batch);
            if let Some(order) = unread {
                state.next_read += 1;
                drop(state);
                break (source.read(pool, &order, batch), lock(&self.shared.state));
            }
            state = wait(outcome, state);
        };
        state.next_taken = batch + 1;
        if found.is_err() {
            state.next_read = usize::MAX;
        }
        // A thread is woken only when there are several batches to read, because waking it costs
        // more than reading a small batch.
        let is_low = state.next_read.saturating_sub(state.next_taken) <= n_ahead / 2;
        let is_worth_waking = is_low && state.n_idle > 0 && self.shared.has_work(&state);
        drop(state);
        if is_worth_waking {
            work.notify_one();
        }
        found
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            mem::forget(mem::take(&mut self.threads));
            return;
        }
        lock(&self.shared.state).is_closing = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // Errors and panics of the dataset were returned as outcomes.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Reads batches until the loader closes. Each thread runs this function.
    fn run(&self) {
        let mut state = lock(&self.state);
        while !state.is_closing {
            let order = state.order.clone().filter(|_| self.has_work(&state));
            let Some(order) = order else {
                state.n_idle += 1;
                state = wait(&self.work, state);
                state.n_idle -= 1;
                continue;
            };
            let (batch, n_begun) = (state.next_read, state.n_begun);
            state.next_read += 1;
            if state.n_idle > 0 && self.has_work(&state) {
                self.work.notify_one();
            }
            drop(state);
            let outcome = self.source.read(&self.pool, &order, batch);
            state = lock(&self.state);
            if state.n_begun == n_begun {
                if outcome.is_err() {
                    state.next_read = usize::MAX;
                }
                state.ready.insert(batch, outcome);
                if batch == state.next_taken {
                    self.outcome.notify_one();
                }
            } else if let Ok(columns) = outcome {
                self.pool.give_back(columns);
            }
        }
    }

    /// Returns true if there is a batch that may be read.
    fn has_work(&self, state: &State) -> bool {
        let limit = state.next_taken.saturating_add(self.n_ahead);
        state.next_read < limit.min(self.source.rows.n_batches())
    }
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition.wait(state).unwrap_or_else(PoisonError::into_inner)
}
