//! Sums of costs of variables and of pairs of variables: the form of the search problem.

use std::collections::{BTreeMap, btree_map::Entry};

/// Variables with costs of their own and costs of pairs of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairwise {
    /// For each variable the cost of each of its states.
    pub(super) unary: Vec<Vec<u64>>,
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
    pub(super) table: Vec<u64>,
}

impl Pairwise {
    /// The cost of one state for each variable.
    pub(super) fn cost(&self, states: &[usize]) -> u64 {
        let unary: u64 = self.unary.iter().zip(states).map(|(costs, &state)| costs[state]).sum();
        let pair = |edge: &Edge| {
            edge.table[states[edge.first] * self.unary[edge.second].len() + states[edge.second]]
        };
        unary + self.edges.iter().map(pair).sum::<u64>()
    }

    /// Adds up the edges between the same two variables.
    pub(super) fn merge_parallel_edges(&mut self) {
        let mut merged: BTreeMap<(usize, usize), Vec<u64>> = BTreeMap::new();
        for edge in self.edges.drain(..) {
            match merged.entry((edge.first, edge.second)) {
                Entry::Vacant(entry) => {
                    entry.insert(edge.table);
                }
                Entry::Occupied(entry) => {
                    entry
                        .into_mut()
                        .iter_mut()
                        .zip(edge.table)
                        .for_each(|(sum, cost)| *sum += cost);
                }
            }
        }
        self.edges = merged
            .into_iter()
            .map(|((first, second), table)| Edge { first, second, table })
            .collect();
    }

    /// The same costs over some of each variable's states.
    pub(super) fn restricted(&self, kept: &[Vec<usize>]) -> Self {
        let unary = self
            .unary
            .iter()
            .zip(kept)
            .map(|(costs, kept)| kept.iter().map(|&it| costs[it]).collect())
            .collect();
        let edge = |edge: &Edge| {
            let n_second = self.unary[edge.second].len();
            let (of_first, of_second) = (&kept[edge.first], &kept[edge.second]);
            let mut table = Vec::with_capacity(of_first.len() * of_second.len());
            for &first in of_first {
                let row = &edge.table[first * n_second..(first + 1) * n_second];
                for &second in of_second {
                    table.push(row[second]);
                }
            }
            Edge { first: edge.first, second: edge.second, table }
        };
        Self { unary, edges: self.edges.iter().map(edge).collect() }
    }
}
