//! Stretches of a sequence that repeat.

use std::ops::Range;

/// The least number of repetitions. Two of them take hardly more space than one.
const MIN_REPETITIONS: usize = 3;

/// A stretch of a sequence that repeats, once after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repetition {
    /// The first item of the first repetition.
    pub(super) start: usize,
    /// The number of items of each repetition.
    pub(super) period: usize,
    pub(super) n_repetitions: usize,
}

impl Repetition {
    /// Returns all of its items.
    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.start + self.period * self.n_repetitions
    }
}

/// A sequence whose repetitions are searched.
pub(super) struct Sequence<'a> {
    /// Equal items have equal numbers.
    pub(super) items: &'a [usize],
    /// What leaving out an item saves.
    pub(super) weights: &'a [usize],
    /// For each item, the cost of cutting the sequence before it. A repetition begins where that is
    /// cheap.
    pub(super) cuts: &'a [usize],
}

impl Sequence<'_> {
    /// Returns repetitions that do not overlap, in order. The one that saves the most comes first,
    /// then those to the left and to the right of it. `is_wanted` excludes some.
    pub(super) fn repetitions(
        &self,
        range: Range<usize>,
        is_wanted: &dyn Fn(&Repetition) -> bool,
    ) -> Vec<Repetition> {
        let Some(best) = self.best(range.clone(), is_wanted) else { return Vec::new() };
        let mut all = self.repetitions(range.start..best.start, is_wanted);
        all.push(best);
        all.extend(self.repetitions(best.range().end..range.end, is_wanted));
        all
    }

    fn best(
        &self,
        range: Range<usize>,
        is_wanted: &dyn Fn(&Repetition) -> bool,
    ) -> Option<Repetition> {
        let mut best: Option<(usize, Repetition)> = None;
        for period in 1..=range.len() / MIN_REPETITIONS {
            for found in self.with_period(range.clone(), period) {
                let left_out = found.start + period..found.range().end;
                let saved = self.weights[left_out].iter().sum();
                if best.is_none_or(|it| it.0 < saved) && saved > 0 && is_wanted(&found) {
                    best = Some((saved, found));
                }
            }
        }
        best.map(|it| it.1)
    }

    /// Returns the longest repetitions with a period.
    fn with_period(&self, range: Range<usize>, period: usize) -> Vec<Repetition> {
        let mut found = Vec::new();
        let mut first = range.start;
        for at in range.start..=range.end - period {
            let is_equal = at + period < range.end && self.items[at] == self.items[at + period];
            if is_equal {
                continue;
            }
            // Items from `first` to `at` are equal to those a period later.
            let n_repetitions = (at - first) / period + 1;
            if n_repetitions >= MIN_REPETITIONS {
                let n_left = (at - first) % period;
                let start = (first..=first + n_left).min_by_key(|&it| self.cuts[it]);
                let start = start.expect("the range is not empty");
                found.push(Repetition { start, period, n_repetitions });
            }
            first = at + 1;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, cuts: &[usize], expected: &[(usize, usize, usize)]) {
        let items: Vec<usize> = text.bytes().map(usize::from).collect();
        let weights = vec![1; items.len()];
        let sequence = Sequence { items: &items, weights: &weights, cuts };
        let found = sequence.repetitions(0..items.len(), &|_| true);
        let found: Vec<_> =
            found.iter().map(|it| (it.start, it.period, it.n_repetitions)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn the_stretch_that_saves_most_comes_first() {
        check("xabababy", &[0; 8], &[(1, 2, 3)]);
        check("xababy", &[0; 6], &[]);
        check("aaaa", &[0; 4], &[(0, 1, 4)]);
        check("qqqoqqqoqqqoz", &[0; 13], &[(0, 4, 3)]);
        check("aaabcbcbcbcddd", &[0; 14], &[(0, 1, 3), (3, 2, 4), (11, 1, 3)]);
        check("", &[], &[]);
    }

    #[test]
    fn a_repetition_begins_at_the_cheapest_cut() {
        check("abababa", &[3, 1, 3, 1, 3, 1, 3], &[(1, 2, 3)]);
        check("abababa", &[1, 1, 1, 1, 1, 1, 1], &[(0, 2, 3)]);
    }
}
