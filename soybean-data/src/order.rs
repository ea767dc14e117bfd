//! The order of the rows in an epoch.

use std::sync::OnceLock;

use soybean_plan::random::mixed;

/// In which order an epoch goes through the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// That of their numbers.
    Sequential,
    /// One that depends on the seed and the epoch alone.
    Shuffled {
        /// The seed of all epochs.
        seed: u64,
    },
}

/// One epoch's order.
#[derive(Debug)]
pub(super) struct EpochOrder {
    order: RowOrder,
    epoch: u64,
    n_rows: usize,
    /// Made by who needs it first: shuffling many rows takes a while.
    shuffled: OnceLock<Vec<usize>>,
}

impl EpochOrder {
    pub(super) const fn new(order: RowOrder, epoch: u64, n_rows: usize) -> Self {
        Self { order, epoch, n_rows, shuffled: OnceLock::new() }
    }

    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The number of the row that stands at this place.
    pub(super) fn row(&self, place: usize) -> usize {
        let RowOrder::Shuffled { seed } = self.order else { return place };
        let shuffled = || {
            let mut rows = (0..self.n_rows).collect::<Vec<_>>();
            shuffle(&mut rows, mixed(mixed(seed).wrapping_add(self.epoch)));
            rows
        };
        self.shuffled.get_or_init(shuffled)[place]
    }

    /// The bytes that it holds.
    pub(super) fn n_bytes(&self) -> usize {
        self.shuffled.get().map_or(0, |it| size_of_val(it.as_slice()))
    }
}

/// Shuffles by the method of Fisher and Yates, with numbers that depend on `key` alone.
pub(super) fn shuffle(rows: &mut [usize], key: u64) {
    for last in (1..rows.len()).rev() {
        let word = mixed(key ^ mixed(last as u64));
        // The high half of the product is below `last + 1`.
        #[expect(clippy::cast_possible_truncation, reason = "below a `usize`")]
        let other = ((u128::from(word) * (last as u128 + 1)) >> 64) as usize;
        rows.swap(last, other);
    }
}
