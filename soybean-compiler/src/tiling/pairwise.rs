//! Sums of costs of variables and of pairs of variables: the form of the search problem.

use std::{collections::BTreeMap, rc::Rc};

/// Variables with costs of their own and costs of pairs of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairwise {
    /// For each variable the cost of each of its states.
    pub(super) unary: Vec<Vec<i64>>,
    /// At most one for each pair of variables.
    pub(super) edges: Vec<Edge>,
}

/// The costs of the states of two variables together.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    /// The first variable, with the smaller number.
    pub(super) first: usize,
    /// The second variable.
    pub(super) second: usize,
    /// `table[state of first * number of states of second + state of second]`
    pub(super) table: Rc<[i64]>,
}

impl Pairwise {
    /// The cost of one state for each variable.
    pub(super) fn cost(&self, states: &[usize]) -> i64 {
        let unary: i64 = self.unary.iter().zip(states).map(|(costs, &state)| costs[state]).sum();
        let pair = |edge: &Edge| {
            edge.table[states[edge.first] * self.unary[edge.second].len() + states[edge.second]]
        };
        unary + self.edges.iter().map(pair).sum::<i64>()
    }
}

/// The entries of a table with its variables exchanged, where the second has this many states.
pub(super) fn transposed(table: &[i64], n_second: usize) -> impl Iterator<Item = i64> {
    (0..n_second).flat_map(move |it| table[it..].iter().copied().step_by(n_second))
}

/// Things by number, where many are alike: numbers are compared faster than lists.
#[derive(Debug)]
pub(super) struct Numbers<T>(BTreeMap<T, usize>);

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord> Numbers<T> {
    /// The number of a thing; equal ones share it.
    pub(super) fn of(&mut self, thing: T) -> usize {
        let next = self.0.len();
        *self.0.entry(thing).or_insert(next)
    }
}
