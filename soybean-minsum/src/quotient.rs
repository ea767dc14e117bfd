//! First assignments and messages for problems that repeat: equal labels in equal neighborhoods.
//!
//! Color refinement (Weisfeiler and Leman 1968) runs for a number of rounds. In each, variables
//! stay in one class if equal tables lead from them to variables of equal classes. The quotient
//! problem has one variable per class. It is small however often a layer repeats, and smaller after
//! fewer rounds: each round tells more variables near the ends from those between. Its best labels
//! are a good assignment of the whole problem, but not always an optimal one: nothing forces layers
//! to have equal labels. Kersting et al. 2014 use the same quotient for lifted inference.

use std::collections::BTreeMap;

use super::{
    interner::Interner,
    problem::{Edge, PairwiseProblem, transposed},
    reparametrization::{Reparametrization, add_multiple},
};

/// The fewest variables for which a quotient is made. For smaller problems, it takes more work than
/// it saves.
const MIN_VARIABLES: usize = 1 << 10;

/// A problem in which all variables of a class have the same label.
pub(crate) struct Quotient {
    pub(crate) problem: PairwiseProblem,
    /// The class of each variable of the whole problem.
    class_of: Vec<usize>,
}

/// The classes of a problem's variables after some rounds of color refinement.
pub(crate) struct ColorRefinement {
    class_of: Vec<usize>,
    /// The number of each edge's table: equal tables have the same number.
    table_of: Vec<usize>,
    /// For each edge of a variable, the table, the side and the other variable.
    edges_of: Vec<Vec<(usize, usize, usize)>>,
}

impl ColorRefinement {
    /// Returns the classes of equal unary costs, or `None` if there are few variables.
    pub(crate) fn new(problem: &PairwiseProblem) -> Option<Self> {
        if problem.unary.len() < MIN_VARIABLES {
            return None;
        }
        let mut unary = Interner::default();
        let class_of: Vec<usize> = problem.unary.iter().map(|it| unary.number(&it[..])).collect();
        // Most equal tables share an allocation; the others are compared once.
        let (mut tables, mut known) = (Interner::default(), BTreeMap::new());
        let mut table_of = Vec::with_capacity(problem.edges.len());
        let mut edges_of = vec![Vec::new(); class_of.len()];
        for edge in &problem.edges {
            let number = known.entry(edge.table.as_ptr().addr());
            let table = *number.or_insert_with(|| tables.number(&edge.table[..]));
            table_of.push(table);
            edges_of[edge.first].push((table, 0, edge.second));
            edges_of[edge.second].push((table, 1, edge.first));
        }
        Some(Self { class_of, table_of, edges_of })
    }

    /// Runs a round: variables stay in one class if equal tables lead from them to variables of
    /// equal classes.
    pub(crate) fn refine(&mut self) {
        let mut signatures: Interner<Vec<u128>> = Interner::default();
        let mut class_of = Vec::with_capacity(self.class_of.len());
        for (&class, edges) in self.class_of.iter().zip(&self.edges_of) {
            let mut signature = Vec::with_capacity(1 + edges.len());
            signature.push(class as u128);
            for &(table, side, other) in edges {
                signature.push(packed(table, side, self.class_of[other]));
            }
            signature[1..].sort_unstable();
            class_of.push(signatures.number(signature));
        }
        self.class_of = class_of;
    }
}

/// Returns one number for three below 2^40. In an unoptimized build, numbers are compared much
/// faster than tuples.
fn packed(first: usize, second: usize, third: usize) -> u128 {
    (first as u128) << 80 | (second as u128) << 40 | third as u128
}

impl Quotient {
    /// Returns the quotient by these classes, or `None` if there are more than half as many as
    /// variables.
    pub(crate) fn new(problem: &PairwiseProblem, colors: &ColorRefinement) -> Option<Self> {
        let class_of = colors.class_of.clone();
        let n_classes = class_of.iter().max()? + 1;
        (n_classes <= class_of.len() / 2)
            .then(|| Self { problem: sums(problem, colors, n_classes), class_of })
    }

    /// Returns messages of the whole problem, given those of the quotient: each of several equal
    /// edges gets an equal share. They are as good as those of the quotient where all variables of
    /// a class have equal neighborhoods (lifted message passing, Kersting et al. 2009).
    pub(crate) fn lift_messages(
        &self,
        problem: &PairwiseProblem,
        found: &Reparametrization,
    ) -> Vec<[Vec<i64>; 2]> {
        let between = |edge: &Edge| [edge.first, edge.second].map(|it| self.class_of[it]);
        let ordered = |[first, second]: [usize; 2]| [first.min(second), first.max(second)];
        let mut n_edges: BTreeMap<[usize; 2], i64> = BTreeMap::new();
        for edge in &problem.edges {
            *n_edges.entry(ordered(between(edge))).or_default() += 1;
        }
        let shares = (0..).zip(&self.problem.edges).map(|(number, edge)| {
            let classes = [edge.first, edge.second];
            let n = n_edges[&classes];
            let share = |costs: &Vec<i64>| costs.iter().map(|it| it / n).collect::<Vec<i64>>();
            (classes, found.messages(number).each_ref().map(share))
        });
        let shares: BTreeMap<[usize; 2], [Vec<i64>; 2]> = shares.collect();
        let of_edge = |edge: &Edge| {
            let classes @ [first, second] = between(edge);
            if first == second {
                return [edge.first, edge.second].map(|it| vec![0; problem.unary[it].len()]);
            }
            let [low, high] = shares[&ordered(classes)].clone();
            if first < second { [low, high] } else { [high, low] }
        };
        problem.edges.iter().map(of_edge).collect()
    }

    /// Returns the assignment of the whole problem for labels of the classes.
    pub(crate) fn lift(&self, labels: &[usize]) -> Vec<usize> {
        self.class_of.iter().map(|&it| labels[it]).collect()
    }
}

/// Returns the problem with one variable per class. An assignment costs as much as its lift.
fn sums(problem: &PairwiseProblem, colors: &ColorRefinement, n_classes: usize) -> PairwiseProblem {
    let class_of = &colors.class_of[..];
    let mut unary: Vec<Vec<i64>> = vec![Vec::new(); n_classes];
    for (costs, &class) in problem.unary.iter().zip(class_of) {
        add_to(&mut unary[class], costs, 1);
    }
    // The edges between two classes mostly share a table, which is added once. The order of
    // addition does not matter.
    let mut n_edges: BTreeMap<u128, (&Edge, i64)> = BTreeMap::new();
    for (edge, &table) in problem.edges.iter().zip(&colors.table_of) {
        let key = packed(class_of[edge.first], class_of[edge.second], table);
        n_edges.entry(key).or_insert((edge, 0)).1 += 1;
    }
    let mut tables: BTreeMap<[usize; 2], Vec<i64>> = BTreeMap::new();
    for (edge, n) in n_edges.into_values() {
        let [first, second] = [edge.first, edge.second].map(|it| class_of[it]);
        let n_second = unary[second].len();
        if first == second {
            let diagonal: Vec<i64> = edge.table.iter().copied().step_by(n_second + 1).collect();
            add_to(&mut unary[first], &diagonal, n);
            continue;
        }
        let sum = tables.entry([first.min(second), first.max(second)]).or_default();
        match first < second {
            true => add_to(sum, &edge.table, n),
            false => add_to(sum, &transposed(&edge.table, n_second), n),
        }
    }
    let edge = |([first, second], table): ([usize; 2], Vec<i64>)| Edge {
        first,
        second,
        table: table.into(),
    };
    PairwiseProblem { unary, edges: tables.into_iter().map(edge).collect() }
}

/// Adds a multiple of each cost to a sum, which is empty before the first ones.
fn add_to(sum: &mut Vec<i64>, costs: &[i64], factor: i64) {
    if sum.is_empty() {
        *sum = vec![0; costs.len()];
    }
    add_multiple(sum, costs, factor);
}
