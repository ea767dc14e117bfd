//! Good states for networks of many layers that are alike: in each of them the same.
//!
//! Variables are alike if what is near them is: as many steps from each lie tables that are equal, to variables that are alike again. A problem with
//! one variable for each class of them is small, however many layers there are. Its best states are good ones for the whole, though not
//! always the best, as nothing forces layers to be tiled alike.

use std::{collections::BTreeMap, rc::Rc};

use super::pairwise::{Edge, Numbers, Pairwise, transposed};

/// The fewest variables worth it: with fewer, the search finds good states by itself.
const N_VARIABLES: usize = 1 << 11;
/// How many steps away variables that are alike may differ.
const N_STEPS: usize = 6;

/// A problem in which variables that are alike have the same state.
pub(super) struct Folded {
    pub(super) problem: Pairwise,
    /// For each variable of the whole, the one that stands for it.
    class_of: Vec<usize>,
}

/// What tells a variable from others: its class so far; and of each of its edges the table, the side and the class of the other variable.
type Surroundings = (usize, Vec<(usize, usize, usize)>);

impl Folded {
    /// None if there are few variables, or few are alike.
    pub(super) fn new(problem: &Pairwise) -> Option<Self> {
        if problem.unary.len() < N_VARIABLES {
            return None;
        }
        let class_of = classes(problem);
        let n_classes = class_of.iter().max()? + 1;
        (n_classes <= class_of.len() / 2)
            .then(|| Self { problem: sums(problem, &class_of, n_classes), class_of })
    }

    /// The states of the whole that these stand for.
    pub(super) fn unfolded(&self, states: &[usize]) -> Vec<usize> {
        self.class_of.iter().map(|&it| states[it]).collect()
    }
}

/// The class of each variable.
fn classes(problem: &Pairwise) -> Vec<usize> {
    let mut unary = Numbers::default();
    let mut class_of: Vec<usize> = problem.unary.iter().map(|it| unary.of(&it[..])).collect();
    // Most equal tables are one.
    let (mut tables, mut known) = (Numbers::default(), BTreeMap::new());
    let mut edges_of: Vec<Vec<(usize, usize, usize)>> = vec![Vec::new(); class_of.len()];
    for edge in &problem.edges {
        let number = known.entry(edge.table.as_ptr());
        let table = *number.or_insert_with(|| tables.of(&edge.table[..]));
        edges_of[edge.first].push((table, 0, edge.second));
        edges_of[edge.second].push((table, 1, edge.first));
    }
    for _ in 0..N_STEPS {
        let mut numbers: Numbers<Surroundings> = Numbers::default();
        let class = |(class, edges): (&usize, &Vec<(usize, usize, usize)>)| {
            let of_edge = |&(table, side, other): &(_, _, usize)| (table, side, class_of[other]);
            let mut around: Vec<_> = edges.iter().map(of_edge).collect();
            around.sort_unstable();
            numbers.of((*class, around))
        };
        class_of = class_of.iter().zip(&edges_of).map(class).collect();
    }
    class_of
}

/// The problem of one variable for each class, which costs as much as all of them together.
fn sums(problem: &Pairwise, class_of: &[usize], n_classes: usize) -> Pairwise {
    let mut unary: Vec<Vec<i64>> = vec![Vec::new(); n_classes];
    for (costs, &class) in problem.unary.iter().zip(class_of) {
        unary[class].resize(costs.len(), 0);
        add(&mut unary[class], costs.iter().copied());
    }
    let mut tables: BTreeMap<(usize, usize), Vec<i64>> = BTreeMap::new();
    for Edge { first, second, table } in &problem.edges {
        let [first, second] = [first, second].map(|it| class_of[*it]);
        let n_second = unary[second].len();
        if first == second {
            add(&mut unary[first], table.iter().copied().step_by(n_second + 1));
            continue;
        }
        let sum = tables.entry((first.min(second), first.max(second))).or_default();
        sum.resize(table.len(), 0);
        if first < second {
            add(sum, table.iter().copied());
        } else {
            add(sum, transposed(table, n_second));
        }
    }
    let edge = |((first, second), table)| Edge { first, second, table: Rc::from(table) };
    Pairwise { unary, edges: tables.into_iter().map(edge).collect() }
}

fn add(sums: &mut [i64], others: impl Iterator<Item = i64>) {
    sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other);
}
