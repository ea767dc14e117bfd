//! What a piece costs at least, case by case: in each case the state of one of its variables is given.
//!
//! Passes prove little where states are alike, as tilings are along axes of one size: what is averaged over them passes for a solution, though nothing real
//! costs as little. With one variable's state given little is alike any more, and what passes prove of a piece is mostly what the best of its states cost.

use std::{cmp::Reverse, rc::Rc};

use crate::tiling::{
    bound::{self, Bound, least},
    eliminate::Elimination,
    order::{Limits, Order},
    pairwise::{Edge, Pairwise},
    solve::NO_LIMIT,
};

/// The most work for the elimination of one variable before any states are ruled out.
const WORK_FIRST: u64 = 1 << 17;

/// What pieces that are alike have in common: their problem without the variables that have few neighbours.
pub(super) struct Kind {
    /// It has an edge for each joint.
    pub(super) problem: Pairwise,
    /// The edges of the joints before and behind.
    pub(super) joints: [usize; 2],
    /// What is eliminated costs at least.
    pub(super) constant: i64,
    /// The variable that cases are told apart by: the first of those between the joints with the most neighbours. None if all are eliminated.
    given: Option<usize>,
    elimination: Elimination,
    /// The variables that are left, by their numbers in the piece.
    numbers: Vec<usize>,
}

impl Kind {
    pub(super) fn new(piece: &Pairwise) -> Self {
        let n = piece.unary.len();
        let stays: Vec<bool> = (0..n).map(|it| it < 2 || it >= n - 2).collect();
        let mut elimination = Elimination::new(piece);
        let limits = Limits { n_neighbors: 2, work_each: WORK_FIRST, ..Limits::NONE };
        elimination.run(&Order::without(piece, limits, &stays));
        let (mut problem, numbers) = elimination.left();
        let mut n_neighbors = vec![0; numbers.len()];
        for edge in &problem.edges {
            n_neighbors[edge.first] += 1;
            n_neighbors[edge.second] += 1;
        }
        let given = (2..numbers.len() - 2).min_by_key(|&it| Reverse(n_neighbors[it]));
        let joints = [0, numbers.len() - 2].map(|first| {
            let second = first + 1;
            let is_joint = |it: &Edge| (it.first, it.second) == (first, second);
            problem.edges.iter().position(is_joint).unwrap_or_else(|| {
                let n_states = problem.unary[first].len() * problem.unary[second].len();
                problem.edges.push(Edge { first, second, table: vec![0; n_states].into() });
                problem.edges.len() - 1
            })
        });
        let constant = elimination.constant();
        Self { problem, joints, constant, given, elimination, numbers }
    }

    /// For each joint the numbers of states of its variables.
    pub(super) fn n_states(&self) -> [[usize; 2]; 2] {
        let unary = &self.problem.unary;
        [0, unary.len() - 2].map(|first| [unary[first].len(), unary[first + 1].len()])
    }

    /// The entries of a pass.
    pub(super) fn work(&self) -> u64 {
        bound::work(&self.problem)
    }

    /// The states of the piece with these states of what is left.
    pub(super) fn complete(&self, left: &[usize]) -> Vec<usize> {
        let mut states = vec![0; self.numbers[self.numbers.len() - 1] + 1];
        for (&number, &state) in self.numbers.iter().zip(left) {
            states[number] = state;
        }
        self.elimination.complete(&mut states);
        states
    }
}

/// The pieces of a kind, or those in which a variable has one state.
pub(super) struct Case {
    given: Option<usize>,
    pub(super) bound: Bound,
    /// The case costs no less, at the present potentials.
    pub(super) value: i64,
    pub(super) marginals: Marginals,
}

/// What is at least to be paid, at the present potentials, with each two states of the joint before and of the joint behind.
pub(super) type Marginals = [Vec<i64>; 2];

impl Case {
    /// The case in which nothing is given.
    pub(super) fn whole(kind: &Kind) -> Self {
        let marginals = kind.n_states().map(|it| vec![-NO_LIMIT; it.iter().product()]);
        let bound = Bound::new(kind.problem.clone());
        Self { given: None, bound, value: -NO_LIMIT, marginals }
    }

    /// This case for each state of the variable that is given.
    pub(super) fn split(self, kind: &Kind) -> Vec<Self> {
        let Some(variable) = kind.given else { return vec![self] };
        let case = |state: usize| Self {
            given: Some(state),
            bound: self.bound.given(variable, state),
            value: self.value,
            marginals: self.marginals.clone(),
        };
        (0..kind.problem.unary[variable].len()).map(case).collect()
    }

    /// Raises the bound with these tables of the joints.
    pub(super) fn visit(&mut self, kind: &Kind, tables: &[Rc<[i64]>; 2]) {
        let bound = &mut self.bound;
        for (&edge, table) in kind.joints.iter().zip(tables) {
            bound.replace(edge, Rc::clone(table));
        }
        // Passes go backward first: the joint before is the last that they come to.
        self.marginals = kind.joints.map(|joint| {
            bound.pass(NO_LIMIT);
            bound.joint(joint)
        });
        self.value = bound.value;
    }

    /// What is still known after a change of the potentials: the other joint may cost as much less as any of its states does.
    pub(super) fn shift(&mut self, [before, behind]: [&Change; 2]) {
        let [of_before, of_behind] = &mut self.marginals;
        let mut at = 0;
        while at < of_before.len() {
            of_before[at] += before.costs[at] - behind.most;
            at += 1;
        }
        at = 0;
        while at < of_behind.len() {
            of_behind[at] += before.least - behind.costs[at];
            at += 1;
        }
        self.value = least(of_before).max(least(of_behind));
    }

    /// The states of the kind's problem with these of the case.
    pub(super) fn states(&self, kind: &Kind, mut states: Vec<usize>) -> Vec<usize> {
        if let (Some(variable), Some(state)) = (kind.given, self.given) {
            states[variable] = state;
        }
        states
    }
}

/// How the potential of a joint changes.
pub(super) struct Change {
    pub(super) costs: Vec<i64>,
    least: i64,
    most: i64,
}

impl Change {
    pub(super) fn new(costs: Vec<i64>) -> Self {
        let most = costs.iter().copied().max().expect("joints have states");
        Self { least: least(&costs), most, costs }
    }
}
