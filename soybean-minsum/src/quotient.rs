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
    reparametrization::{Reparametrization, add, add_multiple},
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

/// The signature of a variable: its class so far, and for each edge the table, the side and the
/// class of the other variable.
type Signature = (usize, Vec<(usize, usize, usize)>);

impl Quotient {
    /// Returns the quotient after this many rounds of color refinement, or `None` if there are few
    /// variables, or more than half as many classes as variables.
    pub(crate) fn new(problem: &PairwiseProblem, n_rounds: usize) -> Option<Self> {
        if problem.unary.len() < MIN_VARIABLES {
            return None;
        }
        let class_of = refine_colors(problem, n_rounds);
        let n_classes = class_of.iter().max()? + 1;
        (n_classes <= class_of.len() / 2)
            .then(|| Self { problem: sums(problem, &class_of, n_classes), class_of })
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

/// Returns the class of each variable.
fn refine_colors(problem: &PairwiseProblem, n_rounds: usize) -> Vec<usize> {
    let mut unary = Interner::default();
    let mut class_of: Vec<usize> = problem.unary.iter().map(|it| unary.number(&it[..])).collect();
    // Most equal tables share an allocation; the others are compared once.
    let (mut tables, mut known) = (Interner::default(), BTreeMap::new());
    let mut edges_of: Vec<Vec<(usize, usize, usize)>> = vec![Vec::new(); class_of.len()];
    for edge in &problem.edges {
        let number = known.entry(edge.table.as_ptr());
        let table = *number.or_insert_with(|| tables.number(&edge.table[..]));
        edges_of[edge.first].push((table, 0, edge.second));
        edges_of[edge.second].push((table, 1, edge.first));
    }
    for _ in 0..n_rounds {
        let mut signatures: Interner<Signature> = Interner::default();
        let class = |(class, edges): (&usize, &Vec<(usize, usize, usize)>)| {
            let of_edge = |&(table, side, other): &(_, _, usize)| (table, side, class_of[other]);
            let mut around: Vec<_> = edges.iter().map(of_edge).collect();
            around.sort_unstable();
            signatures.number((*class, around))
        };
        class_of = class_of.iter().zip(&edges_of).map(class).collect();
    }
    class_of
}

/// Returns the problem with one variable per class. An assignment costs as much as its lift.
fn sums(problem: &PairwiseProblem, class_of: &[usize], n_classes: usize) -> PairwiseProblem {
    let mut unary: Vec<Vec<i64>> = vec![Vec::new(); n_classes];
    for (costs, &class) in problem.unary.iter().zip(class_of) {
        unary[class].resize(costs.len(), 0);
        add(&mut unary[class], costs);
    }
    // The edges between two classes mostly share a table, which is added once. The order of
    // addition does not matter.
    let mut n_edges: BTreeMap<([usize; 2], *const i64), (&Edge, i64)> = BTreeMap::new();
    for edge in &problem.edges {
        let classes = [edge.first, edge.second].map(|it| class_of[it]);
        n_edges.entry((classes, edge.table.as_ptr())).or_insert((edge, 0)).1 += 1;
    }
    let mut tables: BTreeMap<[usize; 2], Vec<i64>> = BTreeMap::new();
    for (([first, second], _), (Edge { table, .. }, n)) in n_edges {
        let n_second = unary[second].len();
        if first == second {
            let diagonal: Vec<i64> = table.iter().copied().step_by(n_second + 1).collect();
            add_multiple(&mut unary[first], &diagonal, n);
            continue;
        }
        let sum = tables.entry([first.min(second), first.max(second)]).or_default();
        sum.resize(table.len(), 0);
        if first < second {
            add_multiple(sum, table, n);
        } else {
            add_multiple(sum, &transposed(table, n_second), n);
        }
    }
    let edge = |([first, second], table): ([usize; 2], Vec<i64>)| Edge {
        first,
        second,
        table: table.into(),
    };
    PairwiseProblem { unary, edges: tables.into_iter().map(edge).collect() }
}
