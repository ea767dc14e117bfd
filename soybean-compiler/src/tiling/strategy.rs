//! Strategies: how states are chosen for the variables of a [`Problem`].

use std::str::FromStr;

use soybean_plan::Mesh;

use super::{
    bound::Bound,
    eliminate::{Elimination, minimise},
    forced,
    pairwise::Pairwise,
    problem::{BYTE, Problem},
    recursive::recursive,
    tiled::Tiled,
};
use crate::network::Network;

/// How the tiling is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Strategy {
    /// The plan that moves the fewest bytes, proved: all cuts at once.
    #[default]
    Auto,
    /// The `SoyBean` paper's: the best single cut, then the best cut of the halves, and so on (Algorithm 1).
    Recursive,
    /// Data parallelism: the batch is split, parameters are replicated.
    Data,
    /// Model parallelism: parameters are split along their last dim, the batch is not.
    Model,
}

impl Strategy {
    /// All strategies with their names.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("auto", Self::Auto),
        ("recursive", Self::Recursive),
        ("data", Self::Data),
        ("model", Self::Model),
    ];

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Recursive => "recursive",
            Self::Data => "data",
            Self::Model => "model",
        }
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::NAMES.map(|(name, _)| name).join(", ");
        let row = Self::NAMES.iter().find(|(it, _)| *it == name);
        row.map(|&(_, strategy)| strategy)
            .ok_or(format!("unknown strategy `{name}`; the strategies are {known}"))
    }
}

/// What the search found.
#[derive(Clone, Debug)]
pub struct Search {
    /// The plan.
    pub tiled: Tiled,
    /// Whether no plan moves fewer bytes; only `auto` proves that.
    pub is_optimal: bool,
    /// A number of bytes below which no plan can come.
    pub lower_bound_bytes: u64,
    /// The entries of the largest table that the proof needed.
    pub largest_table: usize,
    /// The bytes of the plans of the other strategies.
    pub baselines: Baselines,
}

/// The bytes of the plans that are not searched for the optimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Baselines {
    /// Of `data`.
    pub data: u64,
    /// Of `model`.
    pub model: u64,
    /// Of `recursive`.
    pub recursive: u64,
}

/// The most entries of a table in exact elimination: some 30 MB.
const MAX_ENTRIES: usize = 1 << 22;
/// The most tilings of a tensor for which the exact search is tried: those of a tensor of four dims on 8 or 16 ranks are 5^3 and 5^4.
const MAX_STATES: usize = 128;

/// Searches a tiling of the network for this mesh.
#[must_use]
pub fn search(network: &Network, mesh: Mesh, strategy: Strategy) -> Search {
    let problem = Problem::new(network, mesh);
    let recursive = recursive(&problem);
    let data = best_of(&problem, &forced::data(&problem));
    let model = best_of(&problem, &forced::model(&problem));
    let bytes = |states: &[usize]| problem.costs.cost(states) / BYTE;
    let baselines =
        Baselines { data: bytes(&data), model: bytes(&model), recursive: bytes(&recursive) };
    let chosen = match strategy {
        Strategy::Auto => exact(&problem, &[&recursive, &data, &model]),
        Strategy::Recursive => Found::unproved(recursive),
        Strategy::Data => Found::unproved(data),
        Strategy::Model => Found::unproved(model),
    };
    Search {
        tiled: problem.tiled(&chosen.states),
        is_optimal: chosen.is_optimal,
        lower_bound_bytes: chosen.lower_bound_bytes,
        largest_table: chosen.largest_table,
        baselines,
    }
}

struct Found {
    states: Vec<usize>,
    is_optimal: bool,
    lower_bound_bytes: u64,
    largest_table: usize,
}

impl Found {
    fn unproved(states: Vec<usize>) -> Self {
        Self { states, is_optimal: false, lower_bound_bytes: 0, largest_table: 0 }
    }
}

/// All states of every variable.
fn all_states(costs: &Pairwise) -> Vec<Vec<usize>> {
    costs.unary.iter().map(|it| (0..it.len()).collect()).collect()
}

/// The best plan among the given states of each variable; improved axis by axis where the exact search would be too wide.
fn best_of(problem: &Problem<'_>, allowed: &[Vec<usize>]) -> Vec<usize> {
    let restricted = problem.costs.restricted(allowed);
    match minimise(&restricted, MAX_ENTRIES).0 {
        Some(found) => found.iter().zip(allowed).map(|(&state, allowed)| allowed[state]).collect(),
        None => {
            let mut states = allowed.iter().map(|it| it[0]).collect();
            improve(problem, allowed, &mut states);
            states
        }
    }
}

/// The plan of least cost, from the best of the plans in hand: improved one axis at a time, then proved by a lower bound that rules out most
/// states, and exact elimination of the rest.
fn exact(problem: &Problem<'_>, in_hand: &[&[usize]]) -> Found {
    let cost = |states: &&[usize]| problem.costs.cost(states);
    let mut best =
        in_hand.iter().copied().min_by_key(cost).expect("there are plans in hand").to_vec();
    improve(problem, &all_states(&problem.costs), &mut best);
    if problem.costs.unary.iter().any(|it| it.len() > MAX_STATES) {
        return Found::unproved(best);
    }
    let mut elimination = Elimination::new(&problem.costs);
    elimination.run(2, MAX_STATES * MAX_STATES + 1);
    let (core, numbers) = elimination.left();
    let limit = (problem.costs.cost(&best) - elimination.constant() + BYTE) as f64;
    let (kept, bound) = prune(&core, limit);
    let lower_bound_bytes = (bound + elimination.constant() as f64) / BYTE as f64;
    let (found, largest) = minimise(&core.restricted(&kept), MAX_ENTRIES);
    let largest_table = largest.max(elimination.largest_table);
    let Some(found) = found else {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "bounds are not negative"
        )]
        return Found {
            states: best,
            is_optimal: false,
            lower_bound_bytes: lower_bound_bytes as u64,
            largest_table,
        };
    };
    let mut states = vec![0; problem.costs.unary.len()];
    for ((number, state), kept) in numbers.into_iter().zip(found).zip(&kept) {
        states[number] = kept[state];
    }
    elimination.complete(&mut states);
    let lower_bound_bytes = problem.costs.cost(&states) / BYTE;
    Found { states, is_optimal: true, lower_bound_bytes, largest_table }
}

/// The states that a plan within the limit can have, and the bound that rules out the others.
fn prune(core: &Pairwise, limit: f64) -> (Vec<Vec<usize>>, f64) {
    const MAX_PASSES: usize = 40;
    const PASSES_BETWEEN_CUTS: usize = 4;
    let mut kept = all_states(core);
    let mut left = core.clone();
    let mut value = 0.0;
    for _ in 0..MAX_PASSES / PASSES_BETWEEN_CUTS {
        let mut bound = Bound::new(&left);
        (0..PASSES_BETWEEN_CUTS).for_each(|_| bound.improve());
        let states = bound.states_within(limit);
        let before = value;
        value = bound.value().max(before);
        let n_before: usize = kept.iter().map(Vec::len).sum();
        kept = kept
            .iter()
            .zip(&states)
            .map(|(kept, states)| states.iter().map(|&it| kept[it]).collect())
            .collect();
        let n_after: usize = kept.iter().map(Vec::len).sum();
        left = core.restricted(&kept);
        if n_after == kept.len() || (n_after == n_before && value - before < BYTE as f64) {
            break;
        }
    }
    (kept, value)
}

/// Improves a plan: the best placement along one axis with those along the others fixed, axis after axis, until nothing changes.
fn improve(problem: &Problem<'_>, allowed: &[Vec<usize>], states: &mut Vec<usize>) {
    loop {
        let before = problem.costs.cost(states);
        for axis in 0..problem.mesh.n_axes() {
            let kept: Vec<Vec<usize>> = (0..states.len())
                .map(|it| {
                    let is_free = |&other: &usize| {
                        other == states[it] || problem.agree_off(it, states[it], other, axis)
                    };
                    allowed[it].iter().copied().filter(is_free).collect()
                })
                .collect();
            let Some(found) = minimise(&problem.costs.restricted(&kept), MAX_ENTRIES).0 else {
                continue;
            };
            let candidate: Vec<usize> =
                found.iter().zip(&kept).map(|(&state, kept)| kept[state]).collect();
            if problem.costs.cost(&candidate) < problem.costs.cost(states) {
                *states = candidate;
            }
        }
        if problem.costs.cost(states) == before {
            return;
        }
    }
}
