//! The public solver against brute force, on random problems of several shapes.

use std::rc::Rc;

use proptest::prelude::*;
use soybean_minsum::{
    Edge, NO_LIMIT, Options, PairwiseProblem, labels_at, labels_within, solve, solve_below,
};

/// The cost of a forbidden label or pair of labels.
const FORBIDDEN: i64 = 1 << 40;

const OPTIONS: Options = Options { work: 1 << 24, gap: 0, decomposition_work: 1 << 24 };

/// Returns the least cost of all assignments.
fn brute_force(problem: &PairwiseProblem) -> i64 {
    let sizes: Vec<usize> = problem.unary.iter().map(Vec::len).collect();
    let mut labels = vec![0; sizes.len()];
    let mut least = i64::MAX;
    loop {
        least = least.min(problem.cost(&labels));
        let Some(at) = (0..sizes.len()).rev().find(|&it| labels[it] + 1 < sizes[it]) else {
            return least;
        };
        labels[at] += 1;
        labels[at + 1..].fill(0);
    }
}

/// A source of costs; every eighth one is forbidden if `may_forbid`.
#[derive(Debug)]
struct Costs {
    state: u64,
    may_forbid: bool,
}

impl Costs {
    /// Returns the next cost. Source of the generator: Knuth's MMIX.
    fn next(&mut self) -> i64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let bits = self.state >> 33;
        if self.may_forbid && bits.is_multiple_of(8) {
            FORBIDDEN
        } else {
            (bits % 100).cast_signed()
        }
    }

    fn table(&mut self, n: usize) -> Rc<[i64]> {
        (0..n).map(|_| self.next()).collect()
    }

    /// Returns a problem with these edges.
    fn problem(&mut self, sizes: &[usize], pairs: &[(usize, usize)]) -> PairwiseProblem {
        let edge = |&(first, second): &(usize, usize)| Edge {
            first,
            second,
            table: self.table(sizes[first] * sizes[second]),
        };
        let edges = pairs.iter().map(edge).collect();
        let unary = sizes.iter().map(|&n| self.table(n).to_vec()).collect();
        PairwiseProblem { unary, edges }
    }
}

fn costs() -> impl Strategy<Value = Costs> {
    (any::<u64>(), any::<bool>()).prop_map(|(state, may_forbid)| Costs { state, may_forbid })
}

fn sizes(n: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1..4_usize, n)
}

/// Checks the optimum, bounds at any work, and searches below a limit.
fn check(problem: &PairwiseProblem, work: u64) -> Result<(), TestCaseError> {
    let least = brute_force(problem);
    let solution = solve(problem, None, OPTIONS);
    prop_assert_eq!(problem.cost(&solution.labels), solution.cost);
    prop_assert_eq!((solution.cost, solution.lower_bound), (least, least));

    let solution = solve(problem, None, Options { work, ..OPTIONS });
    prop_assert_eq!(problem.cost(&solution.labels), solution.cost);
    prop_assert!(solution.lower_bound <= least && least <= solution.cost);

    let found = solve_below(problem, least, OPTIONS);
    prop_assert_eq!((found.labels, found.lower_bound), (None, least));
    for limit in [least + 1, NO_LIMIT] {
        let found = solve_below(problem, limit, OPTIONS);
        prop_assert_eq!(found.labels.map(|it| problem.cost(&it)), Some(least));
        prop_assert_eq!(found.lower_bound, least);
    }

    let kept = labels_within(problem, least, 4);
    let labels = solve(problem, None, OPTIONS).labels;
    let positions = labels.iter().zip(&kept).map(|(label, kept)| kept.binary_search(label));
    let positions: Vec<usize> = positions.collect::<Result<_, _>>().expect("the optimum is kept");
    prop_assert_eq!(labels_at(&kept, &positions), labels);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn trees(mut costs in costs(), sizes in sizes(1..9), parents in any::<[usize; 9]>(), work in 0..5_000_u64) {
        let pairs: Vec<_> = (1..sizes.len()).map(|it| (parents[it] % it, it)).collect();
        check(&costs.problem(&sizes, &pairs), work)?;
    }

    #[test]
    fn cycles(mut costs in costs(), sizes in sizes(3..9), work in 0..5_000_u64) {
        let n = sizes.len();
        let mut pairs: Vec<_> = (1..n).map(|it| (it - 1, it)).collect();
        pairs.push((0, n - 1));
        check(&costs.problem(&sizes, &pairs), work)?;
    }

    #[test]
    fn grids(mut costs in costs(), sizes in sizes(9), work in 0..20_000_u64) {
        let right = (0..9).filter(|it| it % 3 < 2).map(|it| (it, it + 1));
        let down = (0..6).map(|it| (it, it + 3));
        let pairs: Vec<_> = right.chain(down).collect();
        check(&costs.problem(&sizes, &pairs), work)?;
    }

    #[test]
    fn complete_graphs(mut costs in costs(), sizes in sizes(2..8), work in 0..50_000_u64) {
        let n = sizes.len();
        let pairs: Vec<_> = (0..n).flat_map(|first| (first + 1..n).map(move |it| (first, it))).collect();
        check(&costs.problem(&sizes, &pairs), work)?;
    }

    #[test]
    fn chains_with_shared_tables(mut costs in costs(), n in 2..10_usize, n_labels in 2..4_usize, work in 0..5_000_u64) {
        let (near, far) = (costs.table(n_labels * n_labels), costs.table(n_labels * n_labels));
        let unary = costs.table(n_labels).to_vec();
        let edge = |(step, table): (usize, &Rc<[i64]>)| {
            let pairs = (step..n).map(move |it| (it - step, it));
            let table = Rc::clone(table);
            pairs.map(move |(first, second)| Edge { first, second, table: Rc::clone(&table) })
        };
        let edges = [(1, &near), (2, &far)].into_iter().flat_map(edge).collect();
        check(&PairwiseProblem { unary: vec![unary; n], edges }, work)?;
    }

    #[test]
    fn shared_tables_change_nothing_but_the_time(mut costs in costs(), n in 2..200_usize) {
        let (near, far) = (costs.table(9), costs.table(9));
        let edge = |(step, table): (usize, &Rc<[i64]>)| {
            let pairs = (step..n).map(move |it| (it - step, it));
            let table = Rc::clone(table);
            pairs.map(move |(first, second)| Edge { first, second, table: Rc::clone(&table) })
        };
        let edges = [(1, &near), (2, &far)].into_iter().flat_map(edge).collect();
        let shared = PairwiseProblem { unary: vec![vec![0; 3]; n], edges };
        let mut own = shared.clone();
        own.edges.iter_mut().for_each(|it| it.table = it.table.to_vec().into());
        let [shared, own] = [shared, own].map(|it| solve(&it, None, OPTIONS));
        prop_assert_eq!((shared.labels, shared.lower_bound), (own.labels, own.lower_bound));
    }
}

#[test]
fn infeasible_problems_cost_as_much_as_what_they_violate() {
    let unequal: Rc<[i64]> = [FORBIDDEN, 0, 0, FORBIDDEN].into();
    let edge = |(first, second)| Edge { first, second, table: Rc::clone(&unequal) };
    // An odd cycle has no coloring with two colors.
    let edges = [(0, 1), (1, 2), (0, 2)].map(edge).to_vec();
    let problem = PairwiseProblem { unary: vec![vec![0, 1]; 3], edges };
    let solution = solve(&problem, None, OPTIONS);
    assert_eq!((solution.cost, solution.lower_bound), (FORBIDDEN + 1, FORBIDDEN + 1));
    let found = solve_below(&problem, FORBIDDEN, OPTIONS);
    assert_eq!((found.labels, found.lower_bound), (None, FORBIDDEN));
}

#[test]
fn problems_without_variables_cost_nothing() {
    let solution = solve(&PairwiseProblem::default(), None, OPTIONS);
    assert_eq!((solution.labels, solution.cost, solution.lower_bound), (vec![], 0, 0));
}

#[test]
#[should_panic(expected = "the table of (0, 1) has all pairs")]
fn tables_of_the_wrong_length_are_refused() {
    let edges = vec![Edge { first: 0, second: 1, table: vec![0; 3].into() }];
    let problem = PairwiseProblem { unary: vec![vec![0; 2]; 2], edges };
    let _ = solve(&problem, None, OPTIONS);
}
