//! Elimination, bounds and their interplay against brute force on small sums of tables.

use std::rc::Rc;

use proptest::prelude::*;

use super::{
    alike::Folded,
    bound::Bound,
    buckets::bucketed,
    eliminate::{Elimination, minimise},
    order::{Limits, Order},
    pairwise::{Edge, Pairwise},
    solve::{Goal, WORK, solve},
};

fn order(problem: &Pairwise, n_neighbors: usize) -> Order {
    Order::new(problem, Limits { n_neighbors, ..Limits::NONE })
}

fn brute_force(problem: &Pairwise) -> i64 {
    let sizes: Vec<usize> = problem.unary.iter().map(Vec::len).collect();
    let mut states = vec![0; sizes.len()];
    let mut least = i64::MAX;
    loop {
        least = least.min(problem.cost(&states));
        let Some(position) = (0..sizes.len()).rev().find(|&it| states[it] + 1 < sizes[it]) else {
            return least;
        };
        states[position] += 1;
        states[position + 1..].fill(0);
    }
}

fn problems() -> impl Strategy<Value = Pairwise> {
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
            Pairwise { unary, edges }
        },
    )
}

/// Problems that are not eliminated at once: eight variables of four states, every two of which cost something together.
fn dense_problems() -> impl Strategy<Value = Pairwise> {
    prop::collection::vec(0..100_i64, 8 * 4 + 28 * 16).prop_map(|costs| {
        let (unary, tables) = costs.split_at(8 * 4);
        let pairs = (0..8).flat_map(|first| (first + 1..8).map(move |second| (first, second)));
        let edge =
            |((first, second), table): (_, &[i64])| Edge { first, second, table: table.into() };
        Pairwise {
            unary: unary.chunks(4).map(<[i64]>::to_vec).collect(),
            edges: pairs.zip(tables.chunks(16)).map(edge).collect(),
        }
    })
}

/// So many times the same problem, each linked to the next by a pair of their first variables.
fn layers(layer: &Pairwise, n: usize) -> Pairwise {
    let (size, n_states) = (layer.unary.len(), layer.unary[0].len());
    let link: Rc<[i64]> = (0..n_states * n_states).map(|it| (it * 31 % 50) as i64).collect();
    let mut layers = Pairwise::default();
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
        let (states, _) = minimise(&problem, &order(&problem, usize::MAX));
        prop_assert_eq!(problem.cost(&states), brute_force(&problem));
    }

    #[test]
    fn small_neighbourhoods_can_go_first(problem in problems()) {
        let mut elimination = Elimination::new(&problem);
        elimination.run(&order(&problem, 2));
        let (left, numbers) = elimination.left();
        let (inner, _) = minimise(&left, &order(&left, usize::MAX));
        let mut states = vec![0; problem.unary.len()];
        for (&number, &state) in numbers.iter().zip(&inner) {
            states[number] = state;
        }
        elimination.complete(&mut states);
        prop_assert_eq!(problem.cost(&states), left.cost(&inner) + elimination.constant());
        prop_assert_eq!(problem.cost(&states), brute_force(&problem));
    }

    #[test]
    fn the_lower_bound_never_exceeds_the_optimum(problem in problems()) {
        let least = brute_force(&problem);
        let mut bound = Bound::new(problem.clone());
        for _ in 0..5 {
            prop_assert!(bound.value <= least);
            bound.pass(least);
            prop_assert!(bound.value <= least);
            let within = bound.pass(least).within;
            prop_assert_eq!(brute_force(&bound.restricted(&within)), least);
        }
    }

    #[test]
    fn any_states_in_hand_lead_to_the_optimum(problem in problems(), chosen in any::<[usize; 7]>()) {
        let least = brute_force(&problem);
        let in_hand: Vec<usize> =
            problem.unary.iter().zip(chosen).map(|(costs, it)| it % costs.len()).collect();
        for in_hand in [None, Some(&in_hand[..])] {
            let found = solve(&problem, in_hand, Goal::proof(WORK));
            prop_assert_eq!((problem.cost(&found.states), found.bound), (least, least));
        }
    }

    /// However small the buckets are, the optimum lies between what they prove and what they find.
    #[test]
    fn buckets_of_any_size_give_a_bound_and_states(problem in problems(), n_entries in 1..100_u64) {
        let least = brute_force(&problem);
        let found = bucketed(&problem, n_entries);
        prop_assert!(found.bound <= least);
        prop_assert!(problem.cost(&found.states) >= least);
        let found = bucketed(&problem, u64::MAX);
        prop_assert_eq!((problem.cost(&found.states), found.bound), (least, least));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn folded_layers_cost_as_much_as_all_of_them(layer in problems(), chosen in any::<usize>()) {
        let layers = layers(&layer, 2100 / layer.unary.len() + 1);
        let folded = Folded::new(&layers).expect("most layers are alike");
        prop_assert!(folded.problem.unary.len() < 20 * layer.unary.len());
        let states = folded.problem.unary.iter().enumerate();
        let states: Vec<usize> = states.map(|(at, it)| (chosen >> (at % 60)) % it.len()).collect();
        prop_assert_eq!(layers.cost(&folded.unfolded(&states)), folded.problem.cost(&states));
    }

    #[test]
    fn what_is_alike_is_eliminated_as_what_is_not(layer in problems()) {
        let alike = layers(&layer, 12);
        let mut unlike = alike.clone();
        for edge in &mut unlike.edges {
            edge.table = edge.table.to_vec().into();
        }
        let least = |it: &Pairwise| it.cost(&minimise(it, &order(it, usize::MAX)).0);
        prop_assert_eq!(least(&alike), least(&unlike));
    }

    /// However early the work ends, the optimum lies between what is proved and what is found.
    #[test]
    fn dense_problems_take_rounds(problem in dense_problems(), work in 0..200_000_u64) {
        let least = problem.cost(&minimise(&problem, &order(&problem, usize::MAX)).0);
        let found = solve(&problem, None, Goal::proof(WORK));
        prop_assert_eq!((problem.cost(&found.states), found.bound), (least, least));
        let found = solve(&problem, None, Goal::proof(work));
        prop_assert!(found.bound <= least);
        prop_assert!(problem.cost(&found.states) >= least);
    }
}
