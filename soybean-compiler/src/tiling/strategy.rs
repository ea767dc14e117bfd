//! Strategies: how states are chosen for the variables of a [`Problem`].

use std::str::FromStr;

use soybean_plan::Mesh;

use super::{
    forced,
    optimum::{Found, Searcher},
    problem::{BYTE, Plan, Problem},
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

/// What is asked of a search.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// How the tiling is searched.
    pub strategy: Strategy,
    /// The bytes of memory that each rank has, if that is to limit the plan.
    pub memory: Option<u64>,
}

impl From<Strategy> for Request {
    fn from(strategy: Strategy) -> Self {
        Self { strategy, ..Self::default() }
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

/// Searches a tiling of the network for this mesh.
#[must_use]
pub fn search(network: &Network, mesh: Mesh, request: &Request) -> Search {
    let problem = Problem::new(network, mesh);
    let recursive = recursive(&problem);
    let searcher = Searcher::new(&problem);
    let data = searcher.best_of(&forced::data(searcher.counts()));
    let model = searcher.best_of(&forced::model(searcher.counts()));
    let bytes = |plan: &Plan| whole_bytes(problem.cost(plan));
    let baselines =
        Baselines { data: bytes(&data), model: bytes(&model), recursive: bytes(&recursive) };
    let chosen = match request.strategy {
        Strategy::Auto => searcher.best(&[&recursive, &data, &model]),
        Strategy::Recursive => Found::unproved(recursive),
        Strategy::Data => Found::unproved(data),
        Strategy::Model => Found::unproved(model),
    };
    Search {
        is_optimal: chosen.is_optimal(),
        lower_bound_bytes: whole_bytes(chosen.bound),
        largest_table: chosen.largest_table,
        tiled: problem.tiled(&chosen.plan),
        baselines,
    }
}

/// The bytes of a cost, without the share of memory.
pub(super) fn whole_bytes(cost: i64) -> u64 {
    u64::try_from(cost / BYTE).expect("costs are not negative")
}
