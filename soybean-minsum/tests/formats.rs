//! The formats WCSP and UAI.

use std::rc::Rc;

use proptest::prelude::*;
use soybean_minsum::{Edge, Options, PairwiseProblem, solve};

fn problem() -> impl Strategy<Value = PairwiseProblem> {
    let sizes = prop::collection::vec(1..5_usize, 1..6);
    let costs = |n| prop::collection::vec(prop_oneof![Just(0), -9..100_i64], n);
    sizes.prop_flat_map(move |sizes| {
        let unary: Vec<_> = sizes.iter().map(|it| costs(*it)).collect();
        let n = sizes.len();
        let pairs = (0..n).flat_map(move |second| (0..second).map(move |first| (first, second)));
        let edge = |(first, second): (usize, usize)| {
            prop::option::of(costs(sizes[first] * sizes[second])).prop_map(move |table| {
                table.map(|table| Edge { first, second, table: Rc::from(table) })
            })
        };
        let edges: Vec<_> = pairs.map(edge).collect();
        (unary, edges).prop_map(|(unary, edges)| {
            let edges = edges.into_iter().flatten().collect();
            PairwiseProblem { unary, edges }
        })
    })
}

/// Returns the costs of all assignments.
fn all_costs(problem: &PairwiseProblem) -> Vec<i64> {
    let mut all = vec![Vec::new()];
    for costs in &problem.unary {
        let longer =
            |labels: Vec<usize>| (0..costs.len()).map(move |it| [&labels[..], &[it]].concat());
        all = all.into_iter().flat_map(longer).collect();
    }
    all.iter().map(|it| problem.cost(it)).collect()
}

proptest! {
    #[test]
    fn problems_come_back_from_wcsp(problem in problem()) {
        let (text, missing) = problem.to_wcsp("it");
        let read = PairwiseProblem::from_wcsp(&text).unwrap();
        let costs: Vec<i64> = all_costs(&read).iter().map(|it| it + missing).collect();
        prop_assert_eq!(costs, all_costs(&problem));
        // The upper bound of the file is above any cost.
        let bound: i64 = text.split_whitespace().nth(4).unwrap().parse().unwrap();
        prop_assert!(all_costs(&read).into_iter().all(|it| (0..bound).contains(&it)));
    }

    #[test]
    fn problems_come_back_from_uai(problem in problem()) {
        let read = PairwiseProblem::from_uai(&problem.to_uai(50.0), 50.0).unwrap();
        let (found, expected) = (all_costs(&read), all_costs(&problem));
        // What the file lacks is the same for all.
        let missing = expected[0] - found[0];
        let found: Vec<i64> = found.iter().map(|it| it + missing).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn damaged_texts_are_errors(problem in problem(), at in 0..4096_usize, new in "[0-9 x.-]{0,3}") {
        for text in [problem.to_wcsp("it").0, problem.to_uai(9.0)] {
            let at = at % text.len();
            let damaged = format!("{}{new}{}", &text[..at], &text[at + 1..]);
            let read = [
                PairwiseProblem::from_wcsp(&damaged),
                PairwiseProblem::from_uai(&damaged, 9.0),
            ];
            for problem in read.into_iter().flatten() {
                // What was read is a whole problem.
                let solution = solve(&problem, None, Options::with_work(1 << 10));
                prop_assert_eq!(problem.cost(&solution.labels), solution.cost);
            }
        }
    }
}

#[test]
fn functions_may_come_in_any_order_and_number() {
    // The same pair twice, the second time reversed, and a constant.
    let text = "it 3 3 4 100
        2 3 1
        2 0 1 0 1 1 2 7
        0 4 0
        2 1 0 1 2  2 0 3  0 1 5
        1 2 6 0";
    let problem = PairwiseProblem::from_wcsp(text).unwrap();
    assert_eq!(problem.unary, [vec![4, 4], vec![0, 0, 0], vec![6]]);
    assert_eq!(*problem.edges[0].table, [1, 1, 3, 5, 1, 8]);
    let solution = solve(&problem, None, Options::with_work(1 << 20));
    assert_eq!((solution.cost, solution.lower_bound), (11, 11));
}

#[test]
fn what_is_wrong_with_a_text_is_named() {
    let wcsp = |text: &str| PairwiseProblem::from_wcsp(text).unwrap_err().to_string();
    let uai = |text: &str| PairwiseProblem::from_uai(text, 1.0).unwrap_err().to_string();
    assert_eq!(wcsp("it 1 2 1 9 2 1 0"), "the text ends where cost should be");
    assert_eq!(wcsp("it 1 2 1 9 two"), "word 6: two is no number of labels");
    assert_eq!(wcsp("it 1 2 1 9 2 3"), "functions of at most 2 variables are read, found 3");
    assert_eq!(wcsp("it 1 2 1 9 2 1 1 0 0"), "a function of the variables [1] of 1");
    assert_eq!(wcsp("it 1 2 1 9 2 1 0 0 1 2 5"), "label 2 of variable 0, which has 2");
    assert_eq!(wcsp("it 1 2 0 9 2 5"), "words follow the last one, 6");
    assert_eq!(wcsp("it 0 0 0 9"), "a problem has at least one variable");
    assert_eq!(wcsp("it 1 0 0 9 0"), "a variable has 1 to 65536 labels, found 0");
    // A table of 32 GiB is refused before memory is taken.
    let large = wcsp("it 2 65536 1 9 65536 65536 2 0 1 0 0");
    assert_eq!(large, "a table has more than 268435456 entries");
    let dear = wcsp("it 1 1 2 9 1  1 0 9000000000000000000 0  1 0 9000000000000000000 0");
    assert_eq!(dear, "costs add up to more than 64 bits");
    let dear = wcsp("it 1 1 1 9 1  1 0 4000000000000000000 0");
    assert_eq!(dear, "the greatest costs add up to 4000000000000000000, which is 2^61 or more");
    assert_eq!(uai("MARKOV 1 2 1 1 0 3 1 1 1"), "a factor of [0] has 2 entries, found 3");
    assert_eq!(uai("MARKOV 1 2 1 1 0 2 1 -1"), "a factor is finite and from 0, found -1");
    assert_eq!(uai("GRAPH"), "a file in the format UAI begins with MARKOV");
}
