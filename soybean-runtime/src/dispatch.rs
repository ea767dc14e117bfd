//! How the trainer calls its ranks and hears from them.
#![expect(unsafe_code, reason = "a batch is lent to threads that outlive the dispatch")]

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::{
    abort::{Abort, lock},
    ranks::{Order, Report},
};

/// What the trainer and its ranks share.
#[derive(Clone)]
pub(crate) struct SharedState {
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) abort: Arc<Abort>,
    /// One for each rank.
    pub(crate) reports: Arc<[Mutex<Report>]>,
}

impl SharedState {
    /// The links among a trainer and `n_here` of `n_ranks` ranks; the others are in other processes.
    pub(crate) fn new(n_here: usize, n_ranks: usize) -> Self {
        Self {
            dispatcher: Arc::new(Dispatcher::new(n_here)),
            abort: Arc::new(Abort::default()),
            reports: (0..n_ranks).map(|_| Mutex::new(Report::default())).collect(),
        }
    }
}

/// A state with one order at a time, which all ranks carry out before the next.
pub(crate) struct Dispatcher {
    n_ranks: usize,
    state: Mutex<DispatchState>,
    order_given: Condvar,
    all_done: Condvar,
}

struct DispatchState {
    number: u64,
    /// The order, or none when there are to be no more.
    order: Option<Order<'static>>,
    n_done: usize,
}

impl Dispatcher {
    /// A state for this many ranks.
    pub(crate) const fn new(n_ranks: usize) -> Self {
        let state = DispatchState { number: 0, order: None, n_done: 0 };
        Self {
            n_ranks,
            state: Mutex::new(state),
            order_given: Condvar::new(),
            all_done: Condvar::new(),
        }
    }

    /// The number of ranks that carry out orders.
    pub(crate) const fn n_ranks(&self) -> usize {
        self.n_ranks
    }

    /// Tells all ranks that there are no more orders.
    pub(crate) fn stop(&self) {
        self.publish(None);
    }

    /// Gives an order and waits until all ranks have carried it out.
    pub(crate) fn dispatch(&self, order: Order<'_>) {
        // SAFETY: ranks see the order only until they report it done, and this function returns only after all of them have; it cannot
        // unwind before.
        let order = unsafe { std::mem::transmute::<Order<'_>, Order<'static>>(order) };
        self.publish(Some(order));
    }

    fn publish(&self, order: Option<Order<'static>>) {
        let mut state = lock(&self.state);
        state.number += 1;
        state.order = order;
        state.n_done = 0;
        self.order_given.notify_all();
        while state.n_done < self.n_ranks {
            state = self.all_done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // Nothing that was lent stays on the state.
        state.order = None;
    }

    /// Carries out the next order after `number`, and reports it done whatever happens in `work`.
    pub(crate) fn serve_next(&self, number: u64, work: impl FnOnce(Option<Order<'_>>)) {
        let mut state = lock(&self.state);
        while state.number == number {
            state = self.order_given.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let order = state.order;
        drop(state);
        let _guard = CompletionGuard(self);
        work(order);
    }
}

struct CompletionGuard<'a>(&'a Dispatcher);

impl Drop for CompletionGuard<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.n_done += 1;
        if state.n_done == self.0.n_ranks {
            self.0.all_done.notify_one();
        }
    }
}
