//! The problem that equal subproblems have in common, with easy variables eliminated.

use std::cmp::Reverse;

use crate::{
    elimination::Elimination,
    elimination_order::{EliminationOrder, Limits},
    problem::{Edge, PairwiseProblem},
    reparametrization,
};

/// The most work for the elimination of one variable before any labels are ruled out.
const FIRST_WORK: u64 = 1 << 17;

/// The common problem of equal subproblems, without its variables of at most two neighbors.
pub(super) struct Template {
    /// The remaining problem. Its first two and last two variables are those of the separators.
    pub(super) problem: PairwiseProblem,
    /// The edges within the left and the right separator.
    pub(super) separators: [usize; 2],
    /// The least cost of the eliminated variables.
    pub(super) constant: i64,
    /// The variable to condition on: the inner variable with the most neighbors. `None` if all are
    /// eliminated.
    pub(super) conditioning_variable: Option<usize>,
    elimination: Elimination,
    /// The numbers of the remaining variables within the subproblem.
    numbers: Vec<usize>,
}

impl Template {
    pub(super) fn new(subproblem: &PairwiseProblem) -> Self {
        let n = subproblem.unary.len();
        let keep: Vec<bool> = (0..n).map(|it| it < 2 || it >= n - 2).collect();
        let mut elimination = Elimination::new(subproblem);
        let limits = Limits { n_neighbors: 2, work_each: FIRST_WORK, ..Limits::NONE };
        elimination.run(&EliminationOrder::keeping(subproblem, limits, &keep));
        let (mut problem, numbers) = elimination.remaining();
        let mut n_neighbors = vec![0; numbers.len()];
        for edge in &problem.edges {
            n_neighbors[edge.first] += 1;
            n_neighbors[edge.second] += 1;
        }
        let conditioning_variable =
            (2..numbers.len() - 2).min_by_key(|&it| Reverse(n_neighbors[it]));
        let separators = [0, numbers.len() - 2].map(|first| {
            let second = first + 1;
            let is_separator = |it: &Edge| (it.first, it.second) == (first, second);
            problem.edges.iter().position(is_separator).unwrap_or_else(|| {
                let n_pairs = problem.unary[first].len() * problem.unary[second].len();
                problem.edges.push(Edge { first, second, table: vec![0; n_pairs].into() });
                problem.edges.len() - 1
            })
        });
        let constant = elimination.constant();
        Self { problem, separators, constant, conditioning_variable, elimination, numbers }
    }

    /// Returns the numbers of labels of the two variables of each separator.
    pub(super) fn n_labels(&self) -> [[usize; 2]; 2] {
        let unary = &self.problem.unary;
        [0, unary.len() - 2].map(|first| [unary[first].len(), unary[first + 1].len()])
    }

    /// Returns the work of a pass, in table entries.
    pub(super) fn pass_work(&self) -> u64 {
        reparametrization::pass_work(&self.problem)
    }

    /// Returns the labels of the subproblem, given those of the remaining variables.
    pub(super) fn complete(&self, remaining: &[usize]) -> Vec<usize> {
        let mut labels = vec![0; self.numbers[self.numbers.len() - 1] + 1];
        for (&number, &label) in self.numbers.iter().zip(remaining) {
            labels[number] = label;
        }
        self.elimination.complete(&mut labels);
        labels
    }
}
