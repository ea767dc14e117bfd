//! In which order variables are eliminated: the least work first.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::pairwise::{Edge, Pairwise};

/// An order of elimination, and what it takes.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) variables: Vec<usize>,
    /// Whether all variables are in the order.
    pub(super) is_complete: bool,
    /// The states that are looked at, over all combinations of states of the neighbours.
    pub(super) work: u64,
}

/// What may be eliminated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The most neighbours of a variable.
    pub(super) n_neighbors: usize,
    /// The most work for one variable.
    pub(super) work_each: u64,
    /// The most work for all.
    pub(super) work: u64,
}

impl Limits {
    pub(super) const NONE: Self =
        Self { n_neighbors: usize::MAX, work_each: u64::MAX, work: u64::MAX };
}

impl Order {
    pub(super) fn new(problem: &Pairwise, limits: Limits) -> Self {
        Self::without(problem, limits, &vec![false; problem.unary.len()])
    }

    /// An order of variables that do not stay.
    pub(super) fn without(problem: &Pairwise, limits: Limits, stays: &[bool]) -> Self {
        let mut adjacency = Adjacency::new(problem);
        let mut queue: BinaryHeap<Reverse<(u64, usize)>> = (0..stays.len())
            .filter(|&it| !stays[it])
            .map(|it| Reverse((adjacency.work(it), it)))
            .collect();
        let mut is_gone = stays.to_vec();
        let mut order = Self { variables: Vec::new(), is_complete: false, work: 0 };
        while let Some(Reverse((work, variable))) = queue.pop() {
            let is_outdated = is_gone[variable] || work != adjacency.work(variable);
            if is_outdated || adjacency.neighbors[variable].len() > limits.n_neighbors {
                // Comes back, or came, when its neighbourhood has changed.
                continue;
            }
            let sum = order.work.saturating_add(work);
            if work > limits.work_each || sum > limits.work {
                break;
            }
            order.work = sum;
            order.variables.push(variable);
            is_gone[variable] = true;
            let neighbors = std::mem::take(&mut adjacency.neighbors[variable]);
            adjacency.connect(variable, &neighbors);
            for &it in &neighbors {
                queue.push(Reverse((adjacency.work(it), it)));
            }
        }
        order.is_complete = is_gone.iter().all(|it| *it);
        order
    }
}

/// Which variables share a table.
struct Adjacency {
    sizes: Vec<u64>,
    neighbors: Vec<Vec<usize>>,
}

impl Adjacency {
    fn new(problem: &Pairwise) -> Self {
        let sizes: Vec<u64> = problem.unary.iter().map(|it| it.len() as u64).collect();
        let is_free = |it: &&Edge| sizes[it.first] > 1 && sizes[it.second] > 1;
        let mut n_neighbors = vec![0; sizes.len()];
        for edge in problem.edges.iter().filter(is_free) {
            n_neighbors[edge.first] += 1;
            n_neighbors[edge.second] += 1;
        }
        let mut neighbors: Vec<Vec<usize>> =
            n_neighbors.into_iter().map(Vec::with_capacity).collect();
        for edge in problem.edges.iter().filter(is_free) {
            neighbors[edge.first].push(edge.second);
            neighbors[edge.second].push(edge.first);
        }
        Self { sizes, neighbors }
    }

    fn work(&self, variable: usize) -> u64 {
        let mut work = self.sizes[variable];
        for &neighbor in &self.neighbors[variable] {
            work = work.saturating_mul(self.sizes[neighbor]);
        }
        work
    }

    /// Takes a variable away and makes its neighbours each other's.
    fn connect(&mut self, variable: usize, neighbors: &[usize]) {
        for &neighbor in neighbors {
            let others = &mut self.neighbors[neighbor];
            others.retain(|&it| it != variable);
            for &it in neighbors {
                if it != neighbor && !others.contains(&it) {
                    others.push(it);
                }
            }
        }
    }
}
