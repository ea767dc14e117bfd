//! Strategies: how states are chosen for the variables of a [`Problem`].

use std::str::FromStr;

use soybean_plan::Mesh;

use super::{
    forced,
    problem::{BYTE, Problem},
    recursive::recursive,
    solve::{WORK, solve, solve_with},
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

/// What is asked of a search.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// How the tiling is searched.
    pub strategy: Strategy,
}

impl From<Strategy> for Request {
    fn from(strategy: Strategy) -> Self {
        Self { strategy }
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
    /// The bytes of the plan without pins, where users pinned tensors.
    pub unpinned_bytes: Option<u64>,
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

/// The most entries of all tables together for which all axes are searched at once: 128 MB.
const MAX_ENTRIES: usize = 1 << 24;

/// Searches a tiling of the network for this mesh.
#[must_use]
pub fn search(network: &Network, mesh: Mesh, request: &Request) -> Search {
    let found = searched(network, mesh, request);
    if network.pins().is_empty() {
        return found;
    }
    let unpinned = searched(&network.clone().unpinned(), mesh, request);
    Search { unpinned_bytes: Some(unpinned.tiled.bytes()), ..found }
}

fn searched(network: &Network, mesh: Mesh, request: &Request) -> Search {
    let problem = Problem::new(network, mesh);
    let recursive = recursive(&problem);
    let kept = problem.states_worth_it();
    let data = best_of(&problem, &forced::data(&problem, &kept));
    let model = best_of(&problem, &forced::model(&problem, &kept));
    let bytes = |states: &[usize]| whole_bytes(problem.cost(states));
    let baselines =
        Baselines { data: bytes(&data), model: bytes(&model), recursive: bytes(&recursive) };
    let chosen = match request.strategy {
        Strategy::Auto => exact(&problem, &kept, &[&recursive, &data, &model]),
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
        unpinned_bytes: None,
    }
}

/// The bytes of a cost, without the share of memory.
fn whole_bytes(cost: i64) -> u64 {
    u64::try_from(cost / BYTE).expect("costs are not negative")
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

/// The best plan among the given states of each variable.
fn best_of(problem: &Problem<'_>, allowed: &[Vec<usize>]) -> Vec<usize> {
    let found = solve(&problem.restricted(allowed), None, WORK / 64);
    let mut states = chosen(allowed, &found.states);
    if !found.is_optimal {
        improve_each_axis(problem, allowed, &mut states);
    }
    states
}

/// The plan of least cost, from the best of the plans in hand; where that is not good enough to rule out the others soon, it is improved first.
fn exact(problem: &Problem<'_>, kept: &[Vec<usize>], in_hand: &[&[usize]]) -> Found {
    let cost = |states: &&[usize]| problem.cost(states);
    let mut best =
        in_hand.iter().copied().min_by_key(cost).expect("there are plans in hand").to_vec();
    if problem.n_entries(kept) > MAX_ENTRIES {
        improve(problem, kept, &mut best);
        return Found::unproved(best);
    }
    let start = positions(kept, &best);
    let n_axes = problem.mesh.n_axes();
    let (mut axes, mut n_in_vain) = ((0..n_axes).cycle(), 0);
    let mut improve = |better: Option<&[usize]>| {
        if let Some(better) = better {
            best = chosen(kept, better);
        }
        let axis = axes.next().filter(|_| n_in_vain < n_axes)?;
        let before = problem.cost(&best);
        improve_axis(problem, kept, axis, &mut best);
        let is_better = whole_bytes(problem.cost(&best)) < whole_bytes(before);
        n_in_vain = if is_better { 0 } else { n_in_vain + 1 };
        Some(positions(kept, &best))
    };
    let found = solve_with(&problem.restricted(kept), Some(&start), &mut improve, WORK);
    Found {
        is_optimal: found.is_optimal,
        lower_bound_bytes: whole_bytes(found.bound),
        largest_table: found.largest_table,
        states: chosen(kept, &found.states),
    }
}

/// Where states stand among the kept ones.
fn positions(kept: &[Vec<usize>], states: &[usize]) -> Vec<usize> {
    let position = |(kept, state): (&Vec<usize>, &usize)| {
        kept.binary_search(state).expect("plans split nothing needlessly")
    };
    kept.iter().zip(states).map(position).collect()
}

/// The states at these positions among the kept ones.
fn chosen(kept: &[Vec<usize>], positions: &[usize]) -> Vec<usize> {
    kept.iter().zip(positions).map(|(kept, &position)| kept[position]).collect()
}

/// Improves a plan until nothing changes by as much as a byte.
fn improve(problem: &Problem<'_>, allowed: &[Vec<usize>], states: &mut Vec<usize>) {
    loop {
        let before = problem.cost(states);
        improve_each_axis(problem, allowed, states);
        if whole_bytes(problem.cost(states)) == whole_bytes(before) {
            return;
        }
    }
}

/// Improves a plan: the best placement along one axis with those along the others fixed, axis after axis.
fn improve_each_axis(problem: &Problem<'_>, allowed: &[Vec<usize>], states: &mut Vec<usize>) {
    (0..problem.mesh.n_axes()).for_each(|axis| improve_axis(problem, allowed, axis, states));
}

/// Improves a plan: the best placement along an axis with those along the others fixed.
fn improve_axis(
    problem: &Problem<'_>,
    allowed: &[Vec<usize>],
    axis: usize,
    states: &mut Vec<usize>,
) {
    let free = |it: usize| {
        let is_free =
            |&other: &usize| other == states[it] || problem.agree_off(it, states[it], other, axis);
        allowed[it].iter().copied().filter(is_free).collect()
    };
    let kept: Vec<Vec<usize>> = (0..states.len()).map(free).collect();
    let found = solve(&problem.restricted(&kept), Some(&positions(&kept, states)), WORK);
    *states = chosen(&kept, &found.states);
}
