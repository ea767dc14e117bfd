//! The places of elements in the order of their sizes.

use std::{cmp::Ordering, fmt};

use super::KernelDescriptor;
use crate::{KernelCategory, WorkKind, descriptor::descriptor};

descriptor! {
    /// The place of each element among those of its line, counted from 0.
    ///
    /// Reads `[outer, length, inner]` and writes places of the same shape as `i32`. Of equal
    /// elements, the one with the lowest index comes first. NaN is greater than all numbers, and
    /// equal to itself, as in PyTorch.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Ranking {
        /// The order.
        pub form: RankingForm,
        /// The number of planes of lines: the extents of the dims before that of the lines.
        pub outer: usize,
        /// The elements of a line.
        pub length: usize,
        /// The number of lines side by side: the extents of the dims after that of the lines.
        pub inner: usize,
    }
}

descriptor! {
    /// The order of a [`Ranking`].
    pub enum RankingForm {
        /// The smallest element comes first.
        Ascending = "rank-ascending",
        /// The greatest element comes first.
        Descending = "rank-descending",
    }
}

impl RankingForm {
    /// Compares two elements of a line; [`Ordering::Less`] if the first one comes first.
    #[must_use]
    pub fn compare(self, x: f64, y: f64) -> Ordering {
        let ascending = x.partial_cmp(&y).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()));
        match self {
            Self::Ascending => ascending,
            Self::Descending => ascending.reverse(),
        }
    }
}

impl KernelDescriptor for Ranking {
    fn name(&self) -> &'static str {
        "ranking"
    }

    fn form(&self) -> &'static str {
        self.form.name()
    }

    fn category(&self) -> KernelCategory {
        KernelCategory::Indexing
    }

    fn work_kind(&self) -> WorkKind {
        WorkKind::Other
    }

    // Comparisons of a sort.
    fn n_operations(&self) -> u64 {
        let Self { outer, length, inner, .. } = *self;
        (outer * length * inner) as u64 * u64::from(length.max(1).ilog2())
    }

    fn evaluate(&self, inputs: &[&[f64]], _scalars: &[f64]) -> Vec<Vec<f64>> {
        let Self { form, outer, length, inner } = *self;
        let mut places = vec![0.0; outer * length * inner];
        for line in 0..outer * inner {
            let at = |row: usize| (line / inner * length + row) * inner + line % inner;
            for row in 0..length {
                let is_before = |other: &usize| {
                    let order = form.compare(inputs[0][at(*other)], inputs[0][at(row)]);
                    order.then(other.cmp(&row)) == Ordering::Less
                };
                places[at(row)] = (0..length).filter(is_before).count() as f64;
            }
        }
        vec![places]
    }
}

impl fmt::Display for Ranking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { form, outer, length, inner } = self;
        write!(f, "{} {outer}x{length}x{inner}", form.name())
    }
}
