//! How the trainer calls its ranks and hears from them.
#![expect(unsafe_code, reason = "a batch is lent to threads that outlive the call")]

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::{
    Error, Profile, View,
    abort::{Abort, lock},
};

/// What all ranks are told to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order<'a> {
    /// One training step over this batch.
    Train {
        /// The tensors of the batch.
        batch: &'a [View<'a>],
        /// The number of the step, from 1.
        step: u64,
        /// Its learning rate.
        learning_rate: f32,
    },
    /// The forward computation over this batch.
    Evaluate {
        /// The tensors of the batch.
        batch: &'a [View<'a>],
    },
    /// Hand out the parameters.
    Fetch,
    /// Take these parameters.
    Load {
        /// All parameters, in their order.
        parameters: &'a [View<'a>],
    },
    /// Forget the profile.
    ResetProfile,
    /// End the thread.
    Stop,
}

/// What the trainer and its ranks share.
#[derive(Clone)]
pub(crate) struct Links {
    pub(crate) post: Arc<Post>,
    pub(crate) abort: Arc<Abort>,
    /// One for each rank.
    pub(crate) reports: Arc<[Mutex<Report>]>,
}

impl Links {
    /// The links among a trainer and this many ranks.
    pub(crate) fn new(n_ranks: usize) -> Self {
        Self {
            post: Arc::new(Post::new(n_ranks)),
            abort: Arc::new(Abort::default()),
            reports: (0..n_ranks).map(|_| Mutex::new(Report::default())).collect(),
        }
    }
}

/// A board with one order at a time, which all ranks carry out before the next.
pub(crate) struct Post {
    n_ranks: usize,
    board: Mutex<Board>,
    called: Condvar,
    all_done: Condvar,
}

struct Board {
    number: u64,
    order: Order<'static>,
    n_done: usize,
}

impl Post {
    /// A board for this many ranks.
    pub(crate) const fn new(n_ranks: usize) -> Self {
        let board = Board { number: 0, order: Order::Fetch, n_done: 0 };
        Self { n_ranks, board: Mutex::new(board), called: Condvar::new(), all_done: Condvar::new() }
    }

    /// Gives an order and waits until all ranks have carried it out.
    pub(crate) fn call(&self, order: Order<'_>) {
        // SAFETY: ranks see the order only until they report it done, and this function returns only after all of them have; it cannot
        // unwind before.
        let order = unsafe { std::mem::transmute::<Order<'_>, Order<'static>>(order) };
        let mut board = lock(&self.board);
        board.number += 1;
        board.order = order;
        board.n_done = 0;
        self.called.notify_all();
        while board.n_done < self.n_ranks {
            board = self.all_done.wait(board).unwrap_or_else(PoisonError::into_inner);
        }
        // Nothing that was lent stays on the board.
        board.order = Order::Fetch;
    }

    /// Carries out the next order after `number`, and reports it done whatever happens in `work`.
    pub(crate) fn serve(&self, number: u64, work: impl FnOnce(Order<'_>)) {
        let mut board = lock(&self.board);
        while board.number == number {
            board = self.called.wait(board).unwrap_or_else(PoisonError::into_inner);
        }
        let order = board.order;
        drop(board);
        let _done = Done(self);
        work(order);
    }
}

struct Done<'a>(&'a Post);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        let mut board = lock(&self.0.board);
        board.n_done += 1;
        if board.n_done == self.0.n_ranks {
            self.0.all_done.notify_one();
        }
    }
}

/// What one rank leaves for the trainer.
pub(crate) struct Report {
    /// The bytes that it received from other ranks, or that the run has failed.
    pub(crate) moved_bytes: Result<u64, Error>,
    /// The loss; of rank 0 alone.
    pub(crate) loss: f32,
    /// Its parts of outputs or parameters; empty where another rank hands out the same elements.
    pub(crate) parts: Vec<Vec<f32>>,
    /// Its time.
    pub(crate) profile: Profile,
}

impl Default for Report {
    fn default() -> Self {
        Self { moved_bytes: Ok(0), loss: f32::NAN, parts: Vec::new(), profile: Profile::default() }
    }
}
