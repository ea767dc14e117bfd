//! Dual decomposition against elimination, on problems of many layers that are narrow enough for
//! it.

use std::rc::Rc;

use proptest::prelude::*;

use super::{DualDecomposition, DualSolution, separators::Separators, split::Split};
use crate::{
    elimination::minimize,
    elimination_order::{EliminationOrder, Limits},
    problem::{Edge, PairwiseProblem},
};

const N_LABELS: usize = 3;
/// The number of variables in a row of a layer.
const N_COLUMNS: usize = 20;
const N_ROWS: usize = 3;

/// Returns equal layers of three rows. Each variable has an edge to the next one and to the one in
/// the next row; the middle row ends with each layer.
fn layers(n: usize, tables: &[i64]) -> PairwiseProblem {
    let tables: Vec<Rc<[i64]>> = tables.chunks(N_LABELS * N_LABELS).map(Rc::from).collect();
    let number =
        |layer: usize, column: usize, row: usize| (layer * N_COLUMNS + column) * N_ROWS + row;
    let mut problem = PairwiseProblem::default();
    for layer in 0..n {
        for column in 0..N_COLUMNS {
            for row in 0..N_ROWS {
                problem.unary.push((0..N_LABELS).map(|it| tables[column][it]).collect());
                let first = number(layer, column, row);
                let mut link = |second: usize, table: usize| {
                    let table = Rc::clone(&tables[table % tables.len()]);
                    problem.edges.push(Edge { first, second, table });
                };
                let is_last = column + 1 == N_COLUMNS;
                if !is_last {
                    link(number(layer, column + 1, row), 7 * column + row);
                } else if layer + 1 < n && row != 1 {
                    link(number(layer + 1, 0, row), row);
                }
                if row + 1 < N_ROWS {
                    link(number(layer, column, row + 1), 5 * column + row);
                }
            }
        }
    }
    problem
}

fn optimum(problem: &PairwiseProblem) -> i64 {
    let (labels, _) = minimize(problem, &EliminationOrder::new(problem, Limits::NONE));
    problem.cost(&labels)
}

fn tables() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(0..1_000_i64, 23 * N_LABELS * N_LABELS)
}

#[test]
fn separators_split_a_problem_into_equal_subproblems() {
    let costs: Vec<i64> = (0..23 * 9).map(|it| it * 31 % 97).collect();
    let problem = layers(6, &costs);
    let separators = Separators::new(&problem).expect("two rows lead from layer to layer");
    for pair in &separators.pairs {
        let is_one_column = pair[0].abs_diff(pair[1]) == 2;
        assert!(is_one_column, "{pair:?} are not the outer rows of one column");
    }
    let Split { subproblems, templates } = Split::new(&problem).expect("there are separators");
    assert!(subproblems.len() >= 5, "{} subproblems", subproblems.len());
    assert!(templates.len() <= 4, "{} templates of {}", templates.len(), subproblems.len());
    let mut seen = vec![0; problem.unary.len()];
    for subproblem in &subproblems {
        subproblem.variables.iter().flatten().for_each(|it| seen[*it] += 1);
    }
    let n_shared = seen.iter().filter(|it| **it == 2).count();
    assert!(seen.iter().all(|it| *it >= 1), "every variable is in a subproblem");
    assert_eq!(n_shared, 2 * (subproblems.len() - 1), "only separators are in two subproblems");
    let n_edges: usize = subproblems.iter().map(|it| templates[it.template].edges.len()).sum();
    assert_eq!(n_edges, problem.edges.len());
}

#[test]
fn problems_without_separators_are_not_decomposed() {
    let edge = |(first, second)| Edge { first, second, table: vec![0; 4].into() };
    let all = (0..60).flat_map(|first| (first + 1..60).map(move |second| (first, second)));
    let dense = PairwiseProblem { unary: vec![vec![0; 2]; 60], edges: all.map(edge).collect() };
    assert!(DualDecomposition::new(&dense, 1 << 20).is_none());
    assert!(DualDecomposition::new(&PairwiseProblem::default(), 1 << 20).is_none());
}

#[test]
fn decomposition_finds_and_proves_the_optimum() {
    for factor in [31, 37, 41, 43] {
        let costs: Vec<i64> = (0..23 * 9).map(|it| it * factor % 97).collect();
        let problem = layers(5, &costs);
        let least = optimum(&problem);
        let solved = |limit: i64| {
            let decomposition = DualDecomposition::new(&problem, 1 << 28);
            decomposition.expect("layers form a chain").solve_below(limit)
        };
        for limit in [least + 1, least + least / 50, least + least / 8] {
            let DualSolution { labels, lower_bound, .. } = solved(limit);
            let labels = labels.expect("some assignment costs less than the limit");
            assert_eq!((problem.cost(&labels), lower_bound), (least, least));
        }
        let DualSolution { labels, lower_bound, .. } = solved(least);
        assert_eq!((labels, lower_bound), (None, least));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn bounds_of_decomposition_hold_with_any_work(
        tables in tables(),
        n in 3..7_usize,
        work in 0..1_u64 << 22,
        over in 0..100_i64,
    ) {
        let problem = layers(n, &tables);
        let least = optimum(&problem);
        let limit = least + least * over / 100;
        let decomposition = DualDecomposition::new(&problem, work).expect("layers form a chain");
        let solution = decomposition.solve_below(limit);
        prop_assert!(solution.lower_bound <= least);
        if let Some(labels) = solution.labels {
            prop_assert_eq!((problem.cost(&labels), solution.lower_bound), (least, least));
        }
    }
}
