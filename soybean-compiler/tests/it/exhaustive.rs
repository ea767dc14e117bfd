//! The search against brute force, on thousands of small networks.

use soybean_compiler::{
    Network, Optimizer, Strategy, Value, build_network, optimizer, replicate, round,
    signature::Partitioning,
    tiling::{min_sum_problem, search, search_alone},
};
use soybean_minsum::Options;
use soybean_plan::{Mesh, NonFinite, Placement, Precision, Tiling};
use soybean_zoo::{Model, mlp};

use crate::support::{
    brute_force::{least_bytes, least_bytes_of_greedy_cuts},
    random_networks::{
        Sizes, branching_model, combining_model, combining_predictor, image_model, random_model,
        random_predictor,
    },
};

/// The most entries of a table of brute force. Networks that need more are skipped.
const LIMIT: usize = 20_000;

/// The networks that were compared.
#[derive(Debug, Default)]
struct Compared {
    n_networks: usize,
    /// The networks of which every plan moves data.
    n_that_move: usize,
    /// The networks whose plan adds up partial sums.
    n_with_terms: usize,
}

/// The best plan of a network.
struct Best {
    bytes: u64,
    /// True if an operator reads and gives partial sums.
    has_terms: bool,
    /// True if an operator reads a halo.
    has_halo: bool,
}

impl Compared {
    fn count(&mut self, best: &Best) {
        self.n_networks += 1;
        self.n_that_move += usize::from(best.bytes > 0);
        self.n_with_terms += usize::from(best.has_terms);
    }
}

/// Compares the search with brute force on networks of one to five operators, with and without
/// training, `n_seeds` of each.
fn compared(n_ranks: usize, extents: &'static [usize], n_seeds: u64) -> Compared {
    let mut compared = Compared::default();
    for (n_operators, is_trained) in (1..=5).flat_map(|it| [(it, false), (it, true)]) {
        let sizes = Sizes { n_operators, extents, is_trained };
        let all = (0..n_seeds).filter_map(|seed| best_if_small(n_ranks, &sizes, seed));
        all.for_each(|it| compared.count(&it));
    }
    compared
}

fn best_if_small(n_ranks: usize, sizes: &Sizes, seed: u64) -> Option<Best> {
    let (builder, loss) = random_model(seed, sizes);
    let updates = optimizer(if seed % 3 == 2 { "adam" } else { "sgd" }, &[]).unwrap();
    let updates = match seed % 5 {
        4 => with_everything(updates, 2 + seed / 5 % 3),
        3 => Optimizer { accumulate: 1 + seed / 5 % 3, ..updates },
        _ => updates,
    };
    let network = build_network(builder, loss, &[], &updates).unwrap();
    best_of(network, n_ranks, sizes, seed)
}

/// Returns the best plan of a network, or `None` if it is too large for brute force. Panics if the
/// search finds or proves anything else.
fn best_of(network: Network, n_ranks: usize, sizes: &Sizes, seed: u64) -> Option<Best> {
    let precision = if seed / 3 % 2 == 1 { Precision::Bf16 } else { Precision::F32 };
    let network = round(network, precision);
    let mesh = Mesh::new(n_ranks);
    let network = varied(network, &mesh, seed);
    let found = search_alone(&network, mesh, &Strategy::Auto.into());
    let least = least_bytes(&network, &found.tiled.mesh, LIMIT)?;
    let case = || format!("seed {seed}, {sizes:?}, {n_ranks} ranks:\n{}", found.tiled);
    assert_eq!(found.tiled.bytes(), least, "{}", case());
    assert!(found.is_optimal, "{}", case());
    assert_eq!(found.lower_bound_bytes, least, "{}", case());
    let others = found.baselines;
    assert!(others.data.min(others.model).min(others.recursive) >= least, "{}", case());
    let has_terms = found.tiled.forms.iter().flatten().any(Partitioning::has_terms);
    let graph = &network.graph;
    let computed = graph.values().filter(|it| graph.operator(*it).is_some());
    let mut conversions = computed.flat_map(|it| found.tiled.conversions(it));
    let has_halo = conversions.any(|it| !it.halo.is_none());
    Some(Best { bytes: least, has_terms, has_halo })
}

/// Returns the optimizer with everything that reads the norm of the gradients, and with all further
/// states. So many steps share an update.
fn with_everything(optimizer: Optimizer, accumulate: u64) -> Optimizer {
    let (clip_norm, ema) = (Some(1.0), Some(0.9));
    Optimizer { clip_norm, accumulate, ema, non_finite: NonFinite::Scale, ..optimizer }
}

/// Returns the network with a pinned tensor, with replicas, with both or with neither.
fn varied(network: Network, mesh: &Mesh, seed: u64) -> Network {
    let pinned = if seed / 2 % 2 == 1 { with_pin(network, mesh, seed) } else { network };
    if seed % 2 == 1 { replicate(&pinned) } else { pinned }
}

/// Returns the network with the first tensor pinned that can be split as the seed says.
fn with_pin(network: Network, mesh: &Mesh, seed: u64) -> Network {
    let placement = |axis: usize| match (usize::try_from(seed).unwrap() / 4 + axis) % 3 {
        0 => Placement::Replicated,
        1 => Placement::Split(0),
        _ => Placement::Split(1),
    };
    let tiling = Tiling::new(&(0..mesh.n_axes()).map(placement).collect::<Vec<_>>());
    let pinned = |it: Value| network.clone().pinned(it, tiling, mesh).ok();
    network.graph.values().find_map(pinned).unwrap_or_else(|| network.clone())
}

/// Checks that most networks were compared, that few of them are solved by moving nothing, and that
/// partial sums are added up in some.
fn check(
    n_ranks: usize,
    extents: &'static [usize],
    n_seeds: u64,
    [least_compared, least_with_terms]: [usize; 2],
) {
    let compared = compared(n_ranks, extents, n_seeds);
    assert!(compared.n_networks >= least_compared, "{compared:?}");
    assert!(4 * compared.n_that_move >= 3 * compared.n_networks, "{compared:?}");
    assert!(compared.n_with_terms >= least_with_terms, "{compared:?}");
}

// Some extents are divisible by the number of ranks, some only by one axis of the mesh, some by
// none.

#[test]
fn two_ranks() {
    check(2, &[1, 2, 3, 4, 5, 6, 8], 80, [780, 3]);
}

#[test]
fn three_ranks() {
    check(3, &[1, 2, 3, 4, 6, 9, 12], 80, [780, 3]);
}

#[test]
fn four_ranks() {
    check(4, &[2, 3, 4, 6, 8, 12], 60, [470, 100]);
}

#[test]
fn six_ranks() {
    check(6, &[2, 3, 4, 6, 9, 12], 60, [500, 0]);
}

#[test]
fn eight_ranks() {
    check(8, &[2, 3, 4, 8, 12, 16], 30, [150, 20]);
}

/// Products of one activation have gradients that are partial sums where the products' columns are
/// split. Ranks add them up before one reduction.
#[test]
fn gradients_of_several_products() {
    let mut compared = Compared::default();
    let meshes: [(usize, &'static [usize]); 4] =
        [(2, &[1, 2, 3, 4, 6]), (3, &[2, 3, 6, 9]), (4, &[2, 4, 6, 8]), (6, &[3, 6, 12])];
    for (n_ranks, extents) in meshes {
        let sizes = Sizes { n_operators: 3, extents, is_trained: true };
        for seed in 0..140 {
            let (builder, loss) = branching_model(seed, &sizes);
            let accumulate = [1, 1, 2, 5][usize::try_from(seed % 4).unwrap()];
            let updates = Optimizer { accumulate, ..optimizer("sgd", &[]).unwrap() };
            let network = build_network(builder, loss, &[], &updates).unwrap();
            let best = best_of(network, n_ranks, &sizes, seed);
            best.iter().for_each(|it| compared.count(it));
        }
    }
    assert!(compared.n_networks >= 180, "{compared:?}");
    assert!(compared.n_with_terms >= 90, "{compared:?}");
}

/// Sums that are scaled, added, subtracted, joined, cut, summed up and multiplied are made of the
/// ranks' own terms, wherever that moves less.
#[test]
fn linear_operators_on_sums() {
    let mut compared = Compared::default();
    let meshes: [(usize, &'static [usize]); 4] =
        [(2, &[1, 3, 4, 5]), (3, &[1, 2, 3, 5]), (4, &[2, 3, 5, 6]), (6, &[3, 4, 5])];
    for (n_ranks, extents) in meshes {
        for seed in 0..120 {
            let is_trained = seed % 3 == 0;
            let sizes = Sizes { n_operators: 3, extents, is_trained: true };
            let network = match is_trained {
                true => {
                    let (builder, loss) = combining_model(seed, &sizes);
                    build_network(builder, loss, &[], &optimizer("sgd", &[]).unwrap())
                }
                false => {
                    let (builder, outputs) = combining_predictor(seed, &sizes);
                    build_network(builder, None, &outputs, &Optimizer::default())
                }
            };
            let best = best_of(network.unwrap(), n_ranks, &sizes, seed);
            best.iter().for_each(|it| compared.count(it));
        }
    }
    assert!(compared.n_networks >= 300, "{compared:?}");
    assert!(compared.n_with_terms >= 80, "{compared:?}");
}

/// Images that are too few for all ranks are split along rows and columns, too.
#[test]
fn few_images() {
    let mut compared = Compared::default();
    let mut n_with_halo = 0;
    for (n_ranks, batch) in [(2, 1), (3, 1), (4, 1), (4, 2), (6, 1), (6, 2), (8, 1)] {
        let sizes = Sizes { n_operators: 0, extents: &[], is_trained: true };
        for seed in 0..60 {
            let (builder, loss) = image_model(seed, batch);
            let updates = optimizer("sgd", &[]).unwrap();
            let network = build_network(builder, loss, &[], &updates).unwrap();
            let Some(best) = best_of(network, n_ranks, &sizes, seed) else { continue };
            compared.count(&best);
            n_with_halo += usize::from(best.has_halo);
        }
    }
    assert!(compared.n_networks >= 150, "{compared:?}");
    assert!(n_with_halo >= 30, "{n_with_halo} of {compared:?}");
}

#[test]
fn inference() {
    let mut compared = Compared::default();
    let meshes: [(usize, &'static [usize]); 4] = [
        (2, &[1, 2, 3, 5, 6]),
        (4, &[2, 3, 4, 6, 10]),
        (6, &[2, 3, 4, 6, 9]),
        (8, &[2, 3, 4, 6, 8]),
    ];
    for (n_ranks, extents) in meshes {
        for n_operators in 2..=5 {
            let sizes = Sizes { n_operators, extents, is_trained: true };
            for seed in 0..20 {
                let (builder, outputs) = random_predictor(seed, &sizes);
                let network =
                    build_network(builder, None, &outputs, &Optimizer::default()).unwrap();
                let best = best_of(network, n_ranks, &sizes, seed);
                best.iter().for_each(|it| compared.count(it));
            }
        }
    }
    // If every rank can have rows of its own, nothing moves.
    assert!(compared.n_networks >= 280, "{compared:?}");
    assert!(2 * compared.n_that_move >= compared.n_networks, "{compared:?}");
}

/// Returns the sizes of perceptrons of two layers, batch first, that are multiples of 4 and add up
/// to this sum.
fn perceptrons(sum: usize) -> Vec<[usize; 4]> {
    let mut all = Vec::new();
    for batch in (4..sum).step_by(4) {
        for inputs in (4..sum).step_by(4) {
            for hidden in (4..sum).step_by(4) {
                let outputs = sum.saturating_sub(batch + inputs + hidden);
                all.extend((outputs > 0).then_some([batch, inputs, hidden, outputs]));
            }
        }
    }
    all
}

/// The paper's algorithm cuts in two, then cuts the halves in two. The best first cut can be part
/// of no best plan, even if every rank can have a part of every dim. This is the smallest such
/// perceptron of two layers.
// Guards: the problem for other solvers is the one that the search solves.
#[test]
fn the_min_sum_problem_has_the_cost_of_the_best_plan() {
    let sizes = Sizes { n_operators: 4, extents: &[4, 8], is_trained: true };
    for seed in 0..20 {
        let (builder, loss) = random_model(seed, &sizes);
        let network = build_network(builder, loss, &[], &Optimizer::default()).unwrap();
        let (mesh, request) = (Mesh::new(4), Strategy::Auto.into());
        let found = search_alone(&network, mesh, &request);
        let (problem, cost_of_byte) = min_sum_problem(&network, mesh, &request);
        let solved = soybean_minsum::solve(&problem, None, Options::with_work(1 << 24));
        assert!(found.is_optimal && solved.cost == solved.lower_bound, "seed {seed}");
        let bytes = u64::try_from(solved.cost / cost_of_byte).unwrap();
        assert_eq!(bytes, found.tiled.bytes(), "seed {seed}");
    }
}

#[test]
fn the_best_first_cut_may_be_part_of_no_best_plan() {
    let mesh = Mesh::new(4);
    let updates = optimizer("sgd", &[]).unwrap();
    let mut n_recursive = 0;
    for sum in (16..=36).step_by(4) {
        for [batch, widths @ ..] in perceptrons(sum) {
            let Model { builder, loss, .. } = mlp(batch, &widths);
            let network = build_network(builder, loss, &[], &updates).unwrap();
            let found = search(&network, mesh, &Strategy::Auto.into());
            let least = found.tiled.bytes();
            assert!(found.is_optimal && found.baselines.recursive >= least);
            if found.baselines.recursive == least {
                continue;
            }
            n_recursive += 1;
            let greedy = least_bytes_of_greedy_cuts(&network, &mesh);
            assert_eq!(Some(least), least_bytes(&network, &mesh, usize::MAX));
            // Elsewhere some of the best first cuts leads to the best plan.
            let is_example = (batch, widths) == (20, [8, 4, 4]);
            let expected = if is_example { (888, 984) } else { (least, least) };
            assert_eq!((least, greedy), expected, "batch {batch}, widths {widths:?}");
        }
    }
    assert!(n_recursive >= 5, "{n_recursive}");
}
