//! The threads that read ahead.

use std::{
    collections::BTreeMap,
    io, mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use crate::{Error, Values, batch::Pool, batch::lock, loader::Source, order::EpochOrder};

/// Threads that read the batches of an epoch ahead; they end when this is dropped.
pub(super) struct Readers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads and the loader share.
struct Shared {
    source: Arc<Source>,
    pool: Arc<Pool>,
    n_ahead: usize,
    state: Mutex<State>,
    /// There may be something to read, or nothing for ever.
    work: Condvar,
    /// The batch that is waited for may be there.
    outcome: Condvar,
}

#[derive(Default)]
struct State {
    order: Option<Arc<EpochOrder>>,
    /// The number of times that an epoch was begun; it tells what was read for an earlier one.
    n_begun: u64,
    /// The next batch that a thread reads. It rests at the end of the epoch, or when a batch could not be read.
    next_read: usize,
    /// The next batch that is asked for.
    next_taken: usize,
    ready: BTreeMap<usize, Outcome>,
    /// The threads that wait for work.
    n_idle: usize,
    is_closing: bool,
}

type Outcome = Result<Vec<Values>, Error>;

impl Readers {
    /// Starts threads, which wait until an epoch begins.
    ///
    /// # Errors
    /// If the system gives no more threads.
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
        // If a thread cannot be started, those before it end when this is dropped.
        let mut readers = Self { shared: Arc::new(shared), threads: Vec::new() };
        for number in 0..n_threads {
            let shared = Arc::clone(&readers.shared);
            let thread = thread::Builder::new().name(format!("data {number}"));
            let fault = |error: io::Error| {
                Error::data(format!("expected {n_threads} threads that read data, found: {error}"))
            };
            readers.threads.push(thread.spawn(move || shared.run()).map_err(fault)?);
        }
        Ok(readers)
    }

    /// Begins at a batch of an epoch. What was read ahead is given back.
    pub(super) fn begin(&self, order: &Arc<EpochOrder>, batch: usize) {
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

    /// Gives a batch, the next that was not taken. If no thread has begun to read it, the caller does: that takes less time than to wake another.
    pub(super) fn take(&self, batch: usize) -> Outcome {
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
        // A thread that is woken finds several batches to read: waking it costs more than reading a small one.
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
        lock(&self.shared.state).is_closing = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // What a data set does wrong is an outcome; there is nobody to tell more.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// What one thread does.
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

    /// Whether there is a batch that may be read.
    fn has_work(&self, state: &State) -> bool {
        let limit = state.next_taken.saturating_add(self.n_ahead);
        state.next_read < limit.min(self.source.rows.n_batches())
    }
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition.wait(state).unwrap_or_else(PoisonError::into_inner)
}
