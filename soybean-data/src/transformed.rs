//! Datasets whose rows are transformed as they are read.

use std::{fmt, sync::Arc};

use soybean_plan::random::{mixed, next_state};

use crate::{ColumnSpec, Dataset, Error, ViewMut};

/// A function of the columns of one row, which it changes in place.
type RowTransform = dyn Fn(&mut [ViewMut<'_>], &mut RowRandom) + Send + Sync;

/// A dataset whose rows are transformed as they are read, as [`Dataset::transform`] makes it.
#[derive(Clone)]
pub struct Transformed {
    dataset: Arc<dyn Dataset>,
    seed: u64,
    transform: Arc<RowTransform>,
}

impl Transformed {
    pub(super) fn new(
        dataset: Arc<dyn Dataset>,
        seed: u64,
        transform: impl Fn(&mut [ViewMut<'_>], &mut RowRandom) + Send + Sync + 'static,
    ) -> Self {
        Self { dataset, seed, transform: Arc::new(transform) }
    }
}

impl Dataset for Transformed {
    fn n_rows(&self) -> usize {
        self.dataset.n_rows()
    }

    fn columns(&self) -> &[ColumnSpec] {
        self.dataset.columns()
    }

    fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error> {
        self.read_in_epoch(0, rows, into)
    }

    fn read_in_epoch(
        &self,
        epoch: u64,
        rows: &[usize],
        into: &mut [ViewMut<'_>],
    ) -> Result<(), Error> {
        self.dataset.read_in_epoch(epoch, rows, into)?;
        let sizes: Vec<usize> = self.columns().iter().map(ColumnSpec::row_elements).collect();
        for (position, row) in rows.iter().enumerate() {
            let columns = into.iter_mut().zip(&sizes);
            let mut columns: Vec<ViewMut<'_>> =
                columns.map(|(view, n)| view.part(position * n..(position + 1) * n)).collect();
            (self.transform)(&mut columns, &mut RowRandom::new(self.seed, epoch, *row));
        }
        Ok(())
    }
}

impl fmt::Debug for Transformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transformed")
            .field("columns", &self.columns())
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// Random numbers for one row in one epoch. They depend only on the seed, the epoch and the number
/// of the row.
#[derive(Clone, Debug)]
pub struct RowRandom {
    state: u64,
}

impl RowRandom {
    fn new(seed: u64, epoch: u64, row: usize) -> Self {
        Self { state: mixed(mixed(mixed(seed).wrapping_add(epoch)).wrapping_add(row as u64)) }
    }

    /// Returns 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        let bits = mixed(self.state);
        self.state = next_state(self.state);
        bits
    }

    /// Returns a whole number in `0..bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // The high half of the product is below the bound. Source: Lemire 2019.
        #[expect(clippy::cast_possible_truncation, reason = "below a `usize`")]
        let number = ((u128::from(self.bits()) * bound as u128) >> 64) as usize;
        number
    }

    /// Returns a number from 0 up to, but not including, 1.
    pub fn uniform(&mut self) -> f32 {
        // The 24 high bits are exact in single precision.
        (self.bits() >> 40) as f32 / (1 << 24) as f32
    }

    /// Returns a number of the standard normal distribution, by the method of Box and Muller.
    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f32::consts::TAU * self.uniform()).cos()
    }

    /// Returns true with this probability.
    pub fn chance(&mut self, probability: f32) -> bool {
        self.uniform() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_depend_on_seed_epoch_and_row() {
        let first = |seed, epoch, row| RowRandom::new(seed, epoch, row).bits();
        let all = [first(0, 0, 0), first(1, 0, 0), first(0, 1, 0), first(0, 0, 1), first(0, 1, 1)];
        for (position, one) in all.iter().enumerate() {
            assert!(!all[..position].contains(one));
        }
        assert_eq!(first(3, 2, 1), first(3, 2, 1));
    }

    #[test]
    fn numbers_have_their_distributions() {
        let mut random = RowRandom::new(7, 0, 0);
        let (mut uniform, mut square, mut n_below) = (0.0, 0.0, [0; 3]);
        for _ in 0..30_000 {
            uniform += f64::from(random.uniform());
            square += f64::from(random.normal()).powi(2);
            n_below[random.below(3)] += 1;
        }
        // The deviations of the means are 0.0017 and 0.008, that of the counts is 82.
        assert!((uniform / 30_000.0 - 0.5).abs() < 0.01);
        assert!((square / 30_000.0 - 1.0).abs() < 0.05);
        assert!(n_below.iter().all(|it| (9_500..10_500).contains(it)), "{n_below:?}");
        assert_eq!(random.below(0), 0);
    }
}
