//! How the trainer calls its ranks and hears from them.
#![expect(unsafe_code, reason = "a batch is lent to threads that outlive the call")]

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::{
    abort::{Abort, lock},
    ranks::{Order, Report},
};

/// What the trainer and its ranks share.
#[derive(Clone)]
pub(crate) struct Links {
    pub(crate) post: Arc<Post>,
    pub(crate) abort: Arc<Abort>,
    /// One for each rank.
    pub(crate) reports: Arc<[Mutex<Report>]>,
}

impl Links {
    /// The links among a trainer and `n_here` of `n_ranks` ranks; the others are in other processes.
    pub(crate) fn new(n_here: usize, n_ranks: usize) -> Self {
        Self {
            post: Arc::new(Post::new(n_here)),
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
    /// The order, or none when there are to be no more.
    order: Option<Order<'static>>,
    n_done: usize,
}

impl Post {
    /// A board for this many ranks.
    pub(crate) const fn new(n_ranks: usize) -> Self {
        let board = Board { number: 0, order: None, n_done: 0 };
        Self { n_ranks, board: Mutex::new(board), called: Condvar::new(), all_done: Condvar::new() }
    }

    /// The number of ranks that carry out orders.
    pub(crate) const fn n_ranks(&self) -> usize {
        self.n_ranks
    }

    /// Tells all ranks that there are no more orders.
    pub(crate) fn stop(&self) {
        self.put_up(None);
    }

    /// Gives an order and waits until all ranks have carried it out.
    pub(crate) fn call(&self, order: Order<'_>) {
        // SAFETY: ranks see the order only until they report it done, and this function returns only after all of them have; it cannot
        // unwind before.
        let order = unsafe { std::mem::transmute::<Order<'_>, Order<'static>>(order) };
        self.put_up(Some(order));
    }

    fn put_up(&self, order: Option<Order<'static>>) {
        let mut board = lock(&self.board);
        board.number += 1;
        board.order = order;
        board.n_done = 0;
        self.called.notify_all();
        while board.n_done < self.n_ranks {
            board = self.all_done.wait(board).unwrap_or_else(PoisonError::into_inner);
        }
        // Nothing that was lent stays on the board.
        board.order = None;
    }

    /// Carries out the next order after `number`, and reports it done whatever happens in `work`.
    pub(crate) fn serve(&self, number: u64, work: impl FnOnce(Option<Order<'_>>)) {
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
