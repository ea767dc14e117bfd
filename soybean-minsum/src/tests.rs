//! Each method, and all of them together, against brute force on small problems.

use std::rc::Rc;

use proptest::prelude::*;

use super::{
    elimination::{Elimination, minimize},
    elimination_order::{EliminationOrder, Limits},
    mini_buckets::eliminate_in_mini_buckets,
    problem::{Edge, PairwiseProblem},
    quotient::{ColorRefinement, Quotient},
    reparametrization::Reparametrization,
    solve::{NO_LIMIT, Options, Search, solve},
};

/// The work of a search that is to prove the optimum.
const WORK: u64 = 1 << 27;

fn order(problem: &PairwiseProblem, n_neighbors: usize) -> EliminationOrder {
    EliminationOrder::new(problem, Limits { n_neighbors, ..Limits::NONE })
}

/// Returns numbers that follow no pattern.
pub(crate) fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

/// Returns the least cost of all assignments.
pub(crate) fn brute_force(problem: &PairwiseProblem) -> i64 {
    let sizes: Vec<usize> = problem.unary.iter().map(Vec::len).collect();
    let mut labels = vec![0; sizes.len()];
    let mut least = i64::MAX;
    loop {
        least = least.min(problem.cost(&labels));
        let Some(position) = (0..sizes.len()).rev().find(|&it| labels[it] + 1 < sizes[it]) else {
            return least;
        };
        labels[position] += 1;
        labels[position + 1..].fill(0);
    }
}

fn problems() -> impl Strategy<Value = PairwiseProblem> {
    let sizes = prop::collection::vec(1..4_usize, 1..7);
    (sizes, any::<[u8; 32]>(), prop::collection::vec(0..100_i64, 600)).prop_map(
        |(sizes, chosen, costs)| {
            let mut costs = costs.into_iter().cycle();
            let unary = sizes.iter().map(|&size| costs.by_ref().take(size).collect()).collect();
            let pairs = (0..sizes.len())
                .flat_map(|first| (first + 1..sizes.len()).map(move |second| (first, second)));
            let edge = |(at, (first, second)): (usize, (usize, usize))| {
                let size = sizes[first] * sizes[second];
                (chosen[at % 32] % 2 == 0).then(|| Edge {
                    first,
                    second,
                    table: costs.by_ref().take(size).collect(),
                })
            };
            let edges = pairs.enumerate().filter_map(edge).collect();
            PairwiseProblem { unary, edges }
        },
    )
}

/// Generates complete graphs of eight variables with four labels, which are not eliminated at once.
fn dense_problems() -> impl Strategy<Value = PairwiseProblem> {
    prop::collection::vec(0..100_i64, 8 * 4 + 28 * 16).prop_map(|costs| {
        let (unary, tables) = costs.split_at(8 * 4);
        let pairs = (0..8).flat_map(|first| (first + 1..8).map(move |second| (first, second)));
        let edge =
            |((first, second), table): (_, &[i64])| Edge { first, second, table: table.into() };
        PairwiseProblem {
            unary: unary.chunks(4).map(<[i64]>::to_vec).collect(),
            edges: pairs.zip(tables.chunks(16)).map(edge).collect(),
        }
    })
}

/// Returns `n` copies of a problem; an edge leads from the first variable of each to that of the
/// next.
fn layers(layer: &PairwiseProblem, n: usize) -> PairwiseProblem {
    let (size, n_labels) = (layer.unary.len(), layer.unary[0].len());
    let link: Rc<[i64]> = (0..n_labels * n_labels).map(|it| (it * 31 % 50) as i64).collect();
    let mut layers = PairwiseProblem::default();
    for start in (0..n).map(|it| it * size) {
        layers.unary.extend(layer.unary.iter().cloned());
        let moved = |it: &Edge| Edge {
            first: start + it.first,
            second: start + it.second,
            table: Rc::clone(&it.table),
        };
        layers.edges.extend(layer.edges.iter().map(moved));
        if let Some(last) = start.checked_sub(size) {
            layers.edges.push(Edge { first: last, second: start, table: Rc::clone(&link) });
        }
    }
    layers
}

proptest! {
    #[test]
    fn elimination_finds_the_optimum_of_brute_force(problem in problems()) {
        let (labels, _) = minimize(&problem, &order(&problem, usize::MAX));
        prop_assert_eq!(problem.cost(&labels), brute_force(&problem));
    }

    #[test]
    fn variables_with_few_neighbors_can_be_eliminated_first(problem in problems()) {
        let mut elimination = Elimination::new(&problem);
        elimination.run(&order(&problem, 2));
        let (core, numbers) = elimination.remaining();
        let (inner, _) = minimize(&core, &order(&core, usize::MAX));
        let mut labels = vec![0; problem.unary.len()];
        for (&number, &label) in numbers.iter().zip(&inner) {
            labels[number] = label;
        }
        elimination.complete(&mut labels);
        prop_assert_eq!(problem.cost(&labels), core.cost(&inner) + elimination.constant());
        prop_assert_eq!(problem.cost(&labels), brute_force(&problem));
    }

    #[test]
    fn the_lower_bound_never_exceeds_the_optimum(problem in problems()) {
        let least = brute_force(&problem);
        let mut bound = Reparametrization::new(problem.clone());
        for _ in 0..5 {
            prop_assert!(bound.lower_bound <= least);
            bound.pass(least);
            prop_assert!(bound.lower_bound <= least);
            let within = bound.pass(least).within;
            prop_assert_eq!(brute_force(&bound.restricted(&within)), least);
        }
    }

    #[test]
    fn any_start_leads_to_the_optimum(problem in problems(), chosen in any::<[usize; 7]>()) {
        let least = brute_force(&problem);
        let start: Vec<usize> =
            problem.unary.iter().zip(chosen).map(|(costs, it)| it % costs.len()).collect();
        for start in [None, Some(&start[..])] {
            let found = solve(&problem, start, Options::with_work(WORK));
            prop_assert_eq!((problem.cost(&found.labels), found.lower_bound), (least, least));
        }
    }

    /// The optimum is between the bound and the cost of the labels, for buckets of any size.
    #[test]
    fn mini_buckets_of_any_size_give_a_bound_and_labels(
        problem in problems(),
        n_entries in 1..100_u64,
        work in 0..1000_u64,
    ) {
        let least = brute_force(&problem);
        let found = eliminate_in_mini_buckets(&problem, n_entries, work);
        prop_assert!(found.lower_bound <= least);
        prop_assert!(problem.cost(&found.labels) >= least);
        let found = eliminate_in_mini_buckets(&problem, u64::MAX, u64::MAX);
        prop_assert_eq!((problem.cost(&found.labels), found.lower_bound), (least, least));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn labels_of_the_quotient_cost_as_much_as_their_lift(
        layer in problems(),
        chosen in any::<usize>(),
        n_rounds in 0..7_usize,
    ) {
        let layers = layers(&layer, 2100 / layer.unary.len() + 1);
        let mut colors = ColorRefinement::new(&layers).expect("there are many layers");
        (0..n_rounds).for_each(|_| colors.refine());
        let quotient = Quotient::new(&layers, &colors).expect("most layers are equal");
        prop_assert!(quotient.problem.unary.len() < 20 * layer.unary.len());
        let labels = quotient.problem.unary.iter().enumerate();
        let labels: Vec<usize> = labels.map(|(at, it)| (chosen >> (at % 60)) % it.len()).collect();
        prop_assert_eq!(layers.cost(&quotient.lift(&labels)), quotient.problem.cost(&labels));
    }

    #[test]
    fn shared_tables_do_not_change_the_optimum(layer in problems()) {
        let shared = layers(&layer, 12);
        let mut unshared = shared.clone();
        for edge in &mut unshared.edges {
            edge.table = edge.table.to_vec().into();
        }
        let least = |it: &PairwiseProblem| it.cost(&minimize(it, &order(it, usize::MAX)).0);
        prop_assert_eq!(least(&shared), least(&unshared));
    }

    /// More work never gives a worse assignment or bound, and leads to the optimum.
    #[test]
    fn a_search_goes_on_where_it_stopped(
        problem in dense_problems(),
        parts in prop::collection::vec(0..50_000_u64, 1..6),
    ) {
        let least = problem.cost(&minimize(&problem, &order(&problem, usize::MAX)).0);
        let mut search = Search::new(&problem, NO_LIMIT, Options::with_work(0));
        let (mut cost, mut lower_bound) = (NO_LIMIT, i64::MIN);
        for work in parts.into_iter().chain([WORK]) {
            search.add_work(work);
            let found = search.run();
            let cost_of_found = problem.cost(&found.labels.expect("all are below no limit"));
            prop_assert!(cost_of_found <= cost && found.lower_bound >= lower_bound);
            prop_assert!(found.lower_bound <= least && cost_of_found >= least);
            (cost, lower_bound) = (cost_of_found, found.lower_bound);
        }
        prop_assert_eq!((cost, lower_bound), (least, least));
    }

    /// Below a lower limit, a search finds the optimum if there is one.
    #[test]
    fn a_limit_may_be_lowered(
        problem in dense_problems(),
        work in 0..100_000_u64,
        above_optimum in 0..100_i64,
    ) {
        let least = problem.cost(&minimize(&problem, &order(&problem, usize::MAX)).0);
        let mut search = Search::new(&problem, NO_LIMIT, Options::with_work(work));
        let before = search.run().labels.map(|it| problem.cost(&it));
        search.lower_limit(least + above_optimum);
        search.add_work(WORK);
        let found = search.run();
        let is_wanted = above_optimum > 0 || before == Some(least);
        let cost = found.labels.map(|it| problem.cost(&it));
        prop_assert_eq!((cost, found.lower_bound), (is_wanted.then_some(least), least));
    }

    /// The optimum is between the bound and the cost of the labels, for any amount of work.
    #[test]
    fn dense_problems_are_solved_in_rounds(problem in dense_problems(), work in 0..200_000_u64) {
        let least = problem.cost(&minimize(&problem, &order(&problem, usize::MAX)).0);
        let found = solve(&problem, None, Options::with_work(WORK));
        prop_assert_eq!((problem.cost(&found.labels), found.lower_bound), (least, least));
        let found = solve(&problem, None, Options::with_work(work));
        prop_assert!(found.lower_bound <= least);
        prop_assert!(problem.cost(&found.labels) >= least);
    }
}
