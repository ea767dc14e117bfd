//! Dispatch of the trainer's commands to the threads of its ranks.
#![expect(unsafe_code, reason = "threads that outlive the call borrow a batch")]

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::{
    abort::{Abort, lock},
    ranks::{Command, Report},
};

/// State that the trainer shares with its ranks.
#[derive(Clone)]
pub(crate) struct SharedState {
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) abort: Arc<Abort>,
    /// One report for each rank.
    pub(crate) reports: Arc<[Mutex<Report>]>,
}

impl SharedState {
    /// Creates the state for `n_here` of `n_ranks` ranks. The others are in other processes.
    pub(crate) fn new(n_here: usize, n_ranks: usize) -> Self {
        Self {
            dispatcher: Arc::new(Dispatcher::new(n_here)),
            abort: Arc::new(Abort::default()),
            reports: (0..n_ranks).map(|_| Mutex::new(Report::default())).collect(),
        }
    }
}

/// Broadcasts one command at a time. All ranks carry it out before the next.
pub(crate) struct Dispatcher {
    n_ranks: usize,
    state: Mutex<DispatchState>,
    order_given: Condvar,
    all_done: Condvar,
}

struct DispatchState {
    number: u64,
    /// The command, or `None` to stop the ranks.
    command: Option<Command<'static>>,
    n_done: usize,
}

impl Dispatcher {
    /// Creates a dispatcher for this many ranks.
    pub(crate) const fn new(n_ranks: usize) -> Self {
        let state = DispatchState { number: 0, command: None, n_done: 0 };
        Self {
            n_ranks,
            state: Mutex::new(state),
            order_given: Condvar::new(),
            all_done: Condvar::new(),
        }
    }

    /// Returns the number of ranks.
    pub(crate) const fn n_ranks(&self) -> usize {
        self.n_ranks
    }

    /// Tells all ranks to stop.
    pub(crate) fn stop(&self) {
        self.publish(None);
    }

    /// Gives a command to all ranks and waits until all have carried it out.
    pub(crate) fn dispatch(&self, command: Command<'_>) {
        // SAFETY: ranks use the command only until they report completion. This function waits for
        // all of them and cannot unwind before that.
        let command = unsafe { std::mem::transmute::<Command<'_>, Command<'static>>(command) };
        self.publish(Some(command));
    }

    fn publish(&self, command: Option<Command<'static>>) {
        let mut state = lock(&self.state);
        state.number += 1;
        state.command = command;
        state.n_done = 0;
        self.order_given.notify_all();
        while state.n_done < self.n_ranks {
            state = self.all_done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // The command borrows from the caller.
        state.command = None;
    }

    /// Waits for the command after `number`, runs `work`, and reports completion even if `work`
    /// panics.
    pub(crate) fn serve_next(&self, number: u64, work: impl FnOnce(Option<Command<'_>>)) {
        let mut state = lock(&self.state);
        while state.number == number {
            state = self.order_given.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let command = state.command;
        drop(state);
        let _guard = CompletionGuard(self);
        work(command);
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
