//! Chains against elimination, on problems of many layers that are narrow enough for it.

use std::rc::Rc;

use proptest::prelude::*;

use super::{Chain, Proved, pieces::Pieces, separators::Separators};
use crate::tiling::{
    eliminate::minimise,
    order::{Limits, Order},
    pairwise::{Edge, Pairwise},
};

const N_STATES: usize = 3;
/// Variables in a row of a layer.
const N_STEPS: usize = 20;
const N_ROWS: usize = 3;

/// Layers of three rows, in which each variable costs something with the next and with that beside it; the middle row ends with each layer. All layers cost the same.
fn layers(n: usize, tables: &[i64]) -> Pairwise {
    let tables: Vec<Rc<[i64]>> = tables.chunks(N_STATES * N_STATES).map(Rc::from).collect();
    let number = |layer: usize, step: usize, row: usize| (layer * N_STEPS + step) * N_ROWS + row;
    let mut problem = Pairwise::default();
    for layer in 0..n {
        for step in 0..N_STEPS {
            for row in 0..N_ROWS {
                problem.unary.push((0..N_STATES).map(|it| tables[step][it]).collect());
                let first = number(layer, step, row);
                let mut link = |second: usize, table: usize| {
                    let table = Rc::clone(&tables[table % tables.len()]);
                    problem.edges.push(Edge { first, second, table });
                };
                let is_last = step + 1 == N_STEPS;
                if !is_last {
                    link(number(layer, step + 1, row), 7 * step + row);
                } else if layer + 1 < n && row != 1 {
                    link(number(layer + 1, 0, row), row);
                }
                if row + 1 < N_ROWS {
                    link(number(layer, step, row + 1), 5 * step + row);
                }
            }
        }
    }
    problem
}

fn optimum(problem: &Pairwise) -> i64 {
    let (states, _) = minimise(problem, &Order::new(problem, Limits::NONE));
    problem.cost(&states)
}

fn tables() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(0..1_000_i64, 23 * N_STATES * N_STATES)
}

#[test]
fn joints_part_a_problem_into_pieces_that_are_alike() {
    let costs: Vec<i64> = (0..23 * 9).map(|it| it * 31 % 97).collect();
    let problem = layers(6, &costs);
    let separators = Separators::new(&problem).expect("two rows lead from layer to layer");
    for pair in &separators.pairs {
        let is_beside = pair[0].abs_diff(pair[1]) == 2;
        assert!(is_beside, "{pair:?} are not the outer rows of one step");
    }
    let Pieces { pieces, kinds } = Pieces::new(&problem).expect("there are joints");
    assert!(pieces.len() >= 5, "{} pieces", pieces.len());
    assert!(kinds.len() <= 4, "{} kinds of {} pieces", kinds.len(), pieces.len());
    let mut seen = vec![0; problem.unary.len()];
    for piece in &pieces {
        piece.variables.iter().flatten().for_each(|it| seen[*it] += 1);
    }
    let n_shared = seen.iter().filter(|it| **it == 2).count();
    assert!(seen.iter().all(|it| *it >= 1), "every variable is in a piece");
    assert_eq!(n_shared, 2 * (pieces.len() - 1), "joints are in two pieces, all else in one");
    let n_edges: usize = pieces.iter().map(|it| kinds[it.kind].edges.len()).sum();
    assert_eq!(n_edges, problem.edges.len());
}

#[test]
fn what_has_no_pairs_that_part_it_is_no_chain() {
    let edge = |(first, second)| Edge { first, second, table: vec![0; 4].into() };
    let all = (0..60).flat_map(|first| (first + 1..60).map(move |second| (first, second)));
    let dense = Pairwise { unary: vec![vec![0; 2]; 60], edges: all.map(edge).collect() };
    assert!(Chain::new(&dense, 1 << 20).is_none());
    assert!(Chain::new(&Pairwise::default(), 1 << 20).is_none());
}

#[test]
fn chains_find_the_optimum_and_prove_it() {
    for factor in [31, 37, 41, 43] {
        let costs: Vec<i64> = (0..23 * 9).map(|it| it * factor % 97).collect();
        let problem = layers(5, &costs);
        let least = optimum(&problem);
        let proved = |limit: i64| {
            let chain = Chain::new(&problem, 1 << 28).expect("layers are a chain");
            chain.proved(limit)
        };
        for limit in [least + 1, least + least / 50, least + least / 8] {
            let Proved { better, bound } = proved(limit);
            let states = better.expect("some states cost less than the limit");
            assert_eq!((problem.cost(&states), bound), (least, least));
        }
        let Proved { better, bound } = proved(least);
        assert_eq!((better, bound), (None, least));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_chains_prove_holds_with_any_work(
        tables in tables(),
        n in 3..7_usize,
        work in 0..1_u64 << 22,
        over in 0..100_i64,
    ) {
        let problem = layers(n, &tables);
        let least = optimum(&problem);
        let limit = least + least * over / 100;
        let proved = Chain::new(&problem, work).expect("layers are a chain").proved(limit);
        prop_assert!(proved.bound <= least);
        if let Some(states) = proved.better {
            prop_assert_eq!((problem.cost(&states), proved.bound), (least, least));
        }
    }
}
