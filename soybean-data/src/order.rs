//! The order of the rows in an epoch.

use std::sync::OnceLock;

use soybean_plan::random::mixed;

use crate::{Dataset, Pass};

/// The order in which an epoch visits the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// The order of the row numbers.
    Sequential,
    /// A random order that depends only on the seed and the epoch.
    Shuffled,
}

/// The order of the rows in one epoch.
#[derive(Debug)]
pub(super) struct EpochOrder {
    order: RowOrder,
    pass: Pass,
    /// Computed by the first thread that needs it, since shuffling many rows takes time.
    shuffled: OnceLock<Vec<usize>>,
}

impl EpochOrder {
    pub(super) const fn new(order: RowOrder, pass: Pass) -> Self {
        Self { order, pass, shuffled: OnceLock::new() }
    }

    pub(super) const fn pass(&self) -> Pass {
        self.pass
    }

    /// Returns the number of the row at this position of the epoch.
    pub(super) fn row(&self, position: usize, dataset: &dyn Dataset) -> usize {
        let shuffled = || {
            dataset.shuffled(self.pass).unwrap_or_else(|| {
                let mut rows = (0..dataset.n_rows()).collect::<Vec<_>>();
                shuffle(&mut rows, mixed(mixed(self.pass.seed).wrapping_add(self.pass.epoch)));
                rows
            })
        };
        match self.order {
            RowOrder::Sequential => position,
            RowOrder::Shuffled => self.shuffled.get_or_init(shuffled)[position],
        }
    }

    /// Returns the bytes of memory that the order takes.
    pub(super) fn n_bytes(&self) -> usize {
        self.shuffled.get().map_or(0, |it| size_of_val(it.as_slice()))
    }
}

/// Shuffles by the Fisher-Yates method, with random numbers that depend only on `key`.
pub(super) fn shuffle(rows: &mut [usize], key: u64) {
    for last in (1..rows.len()).rev() {
        let word = mixed(key ^ mixed(last as u64));
        // The high half of the product is at most `last`. Source: Lemire 2019.
        #[expect(clippy::cast_possible_truncation, reason = "below a `usize`")]
        let other = ((u128::from(word) * (last as u128 + 1)) >> 64) as usize;
        rows.swap(last, other);
    }
}
