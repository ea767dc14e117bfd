//! Consecutive numbers for distinct values.

use std::collections::BTreeMap;

/// Consecutive numbers for distinct values, from 0. Numbers are compared faster than long values.
#[derive(Debug)]
pub struct Interner<T>(BTreeMap<T, usize>);

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord> Interner<T> {
    /// Returns the number of a value. Equal values have the same number.
    pub fn number(&mut self, value: T) -> usize {
        let next = self.0.len();
        *self.0.entry(value).or_insert(next)
    }
}
