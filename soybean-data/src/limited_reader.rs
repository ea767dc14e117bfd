//! A reader that fails when its consumer reads too much without progress.

use std::{
    cell::Cell,
    io::{self, Read},
    rc::Rc,
};

/// A reader with a budget of bytes, which its consumer renews.
pub(super) struct LimitedReader<R> {
    inner: R,
    budget: Rc<Cell<u64>>,
    limit: u64,
}

impl<R: Read> LimitedReader<R> {
    /// Limits a reader. Returns the bytes that are left, too.
    pub(super) fn new(inner: R, limit: u64) -> (Self, Rc<Cell<u64>>) {
        let budget = Rc::new(Cell::new(limit));
        (Self { inner, budget: Rc::clone(&budget), limit }, budget)
    }
}

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n_read = self.inner.read(into)?;
        let left = self.budget.get().checked_sub(n_read as u64);
        let Some(left) = left else {
            let limit = self.limit;
            return Err(io::Error::other(format!(
                "more than {limit} bytes without the end of a line; a quoted field may have no end"
            )));
        };
        self.budget.set(left);
        Ok(n_read)
    }
}
