//! Elimination orders: greedily, the variable whose elimination takes the least work goes first.
//!
//! This is the minimum-weight heuristic: the work is the product of the numbers of labels of the
//! variable and its neighbors (Kjaerulff 1990).

use std::{cmp::Reverse, collections::BinaryHeap};

use super::problem::{Edge, PairwiseProblem};

/// An order in which variables are eliminated.
#[derive(Debug)]
pub(crate) struct EliminationOrder {
    pub(crate) variables: Vec<usize>,
    /// True if all variables that may be eliminated are in the order.
    pub(crate) is_complete: bool,
    /// The number of label combinations that the elimination visits.
    pub(crate) work: u64,
}

/// Limits on what is eliminated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The largest number of neighbors of a variable.
    pub(crate) n_neighbors: usize,
    /// The most work for one variable.
    pub(crate) work_each: u64,
    /// The most work in total.
    pub(crate) work: u64,
}

impl Limits {
    pub(crate) const NONE: Self =
        Self { n_neighbors: usize::MAX, work_each: u64::MAX, work: u64::MAX };
}

impl EliminationOrder {
    /// Returns an order of all variables, as far as the limits allow.
    pub(crate) fn new(problem: &PairwiseProblem, limits: Limits) -> Self {
        Self::keeping(problem, limits, &vec![false; problem.unary.len()])
    }

    /// Returns an order of the variables that are not marked in `keep`.
    pub(crate) fn keeping(problem: &PairwiseProblem, limits: Limits, keep: &[bool]) -> Self {
        let mut adjacency = Adjacency::new(problem);
        // A change of its neighborhood queues a variable again.
        let may_go = |adjacency: &Adjacency, it: usize| {
            !keep[it] && adjacency.neighbors[it].len() <= limits.n_neighbors
        };
        let mut queue: BinaryHeap<Reverse<u128>> = (0..keep.len())
            .filter(|&it| may_go(&adjacency, it))
            .map(|it| Reverse(packed(adjacency.work(it), it)))
            .collect();
        let mut is_done = keep.to_vec();
        let mut order = Self { variables: Vec::new(), is_complete: false, work: 0 };
        while let Some(Reverse(next)) = queue.pop() {
            let (work, variable) = unpacked(next);
            let is_outdated = is_done[variable] || work != adjacency.work(variable);
            if is_outdated || !may_go(&adjacency, variable) {
                continue;
            }
            let sum = order.work.saturating_add(work);
            if work > limits.work_each || sum > limits.work {
                break;
            }
            order.work = sum;
            order.variables.push(variable);
            is_done[variable] = true;
            let neighbors = std::mem::take(&mut adjacency.neighbors[variable]);
            adjacency.connect(variable, &neighbors);
            for &it in neighbors.iter().filter(|it| may_go(&adjacency, **it)) {
                queue.push(Reverse(packed(adjacency.work(it), it)));
            }
        }
        order.is_complete = is_done.iter().all(|it| *it);
        order
    }
}

/// Returns one number for a variable and its work, in the order of the pairs. Numbers are compared
/// much faster than pairs in an unoptimized build.
fn packed(work: u64, variable: usize) -> u128 {
    u128::from(work) << 64 | variable as u128
}

fn unpacked(packed: u128) -> (u64, usize) {
    ((packed >> 64) as u64, packed as usize)
}

/// The interaction graph: which variables share a table.
struct Adjacency {
    sizes: Vec<u64>,
    neighbors: Vec<Vec<usize>>,
}

impl Adjacency {
    fn new(problem: &PairwiseProblem) -> Self {
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

    /// Removes a variable and connects its neighbors with each other.
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
