//! Column generation: the search for the cheapest plan that fits.

use std::collections::BTreeMap;

use soybean_plan::{Mesh, Topology};

use super::{
    program_points::ProgramPoints,
    restricted_master::{Column, dual_prices},
};
use crate::{
    network::Network,
    peak::Peak,
    program::smallest_within,
    tiling::{
        Depth, Lagrangian, MemoryMultipliers, PlanTimes, SearchEffort, SearchResult, TiledNetwork,
        WIDE_GAP,
    },
};

/// The number of searches among all plans.
const N_SEARCHES: usize = 10;
/// The number of searches for a first plan that fits.
const N_LEAN_SEARCHES: usize = 6;
/// The number of searches among mixtures of the plans found.
const N_MIXED_SEARCHES: usize = 12;
/// The price of a byte held where memory dominates, in bytes moved per rank. It exceeds the number
/// of operators that gather a tensor.
const HIGH_PRICE: f64 = 16.0;
/// The same where costs are times, as a multiple of the cheapest plan's time for each byte that it
/// holds.
const HIGH_PRICE_FACTOR: f64 = 64.0;
/// The relative perturbation of the prices of tensors. It makes some of several equal layers be
/// stored in more parts than the others.
const PERTURBATION: f64 = 0.2;
/// The relative gap that is not pursued.
const NEGLIGIBLE: f64 = 1e-3;

/// Returns the plan if its program takes at most `limit` bytes on each rank, and otherwise its
/// peak.
pub(crate) fn checked(found: SearchResult, limit: u64) -> Result<SearchResult, Peak> {
    let peak = smallest_within("", &found.tiled, found.topology.as_ref(), limit).holdings.peak();
    if peak.bytes() <= limit { Ok(found) } else { Err(peak) }
}

/// Returns the cheapest plan found whose program takes at most `limit` bytes on each rank, given
/// the cheapest plan without a limit. If none fits, it returns the peak of the leanest plan.
pub(crate) fn fitting(
    network: &Network,
    found: SearchResult,
    limit: u64,
    effort: SearchEffort,
) -> Result<SearchResult, Peak> {
    let timed = found.topology.as_ref().filter(|_| found.times.is_some());
    let mut generation = ColumnGeneration {
        topology: found.topology.clone(),
        ..ColumnGeneration::new(network, found.tiled.mesh, timed, limit, effort)
    };
    let cheapest = generation.add(found.tiled.clone());
    if generation.fits(cheapest) {
        return Ok(found);
    }
    if timed.is_some() {
        let CandidatePlan { cost, peak, .. } = &generation.candidates[cheapest];
        generation.high_price = HIGH_PRICE_FACTOR * cost / peak.bytes() as f64;
    }
    let Some(feasible) = generation.first_that_fits() else { return Err(generation.leanest()) };
    generation.raise_lower_bound(feasible);
    generation.search_mixtures(feasible);
    generation.narrow_gap(feasible);
    Ok(generation.best(found))
}

/// Returns the peak of the leanest plan found for a mesh.
pub(super) fn leanest(network: &Network, mesh: Mesh, limit: u64) -> Peak {
    let effort = SearchEffort::Standard;
    let mut generation = ColumnGeneration::new(network, mesh, None, limit, effort);
    generation.first_that_fits();
    generation.leanest()
}

/// A plan found by one of the searches.
struct CandidatePlan {
    tiled: TiledNetwork,
    /// The cost that the search minimizes: bytes moved, or ticks.
    cost: f64,
    /// A lower bound on the memory of a rank at each program point.
    held: Vec<u64>,
    /// The memory of a rank as lowered.
    peak: Peak,
}

impl CandidatePlan {
    fn most_held(&self) -> u64 {
        self.held.iter().copied().max().unwrap_or(0)
    }
}

/// The state of the column generation.
struct ColumnGeneration<'a> {
    points: ProgramPoints<'a>,
    /// The machine for which programs are ordered, if it is known.
    topology: Option<Topology>,
    lagrangian: Lagrangian<'a>,
    /// The price of a byte where memory dominates.
    high_price: f64,
    limit: u64,
    effort: SearchEffort,
    candidates: Vec<CandidatePlan>,
    /// No plan that fits costs less.
    lower_bound: f64,
}

impl<'a> ColumnGeneration<'a> {
    fn new(
        network: &'a Network,
        mesh: Mesh,
        timed: Option<&Topology>,
        limit: u64,
        effort: SearchEffort,
    ) -> Self {
        Self {
            points: ProgramPoints::new(network),
            topology: None,
            lagrangian: Lagrangian::new(network, mesh, timed, effort),
            high_price: HIGH_PRICE * mesh.n_ranks() as f64,
            limit,
            effort,
            candidates: Vec::new(),
            lower_bound: 0.0,
        }
    }

    /// Returns the number of a plan, and adds the plan if it is new.
    fn add(&mut self, tiled: TiledNetwork) -> usize {
        let is_same =
            |it: &CandidatePlan| it.tiled.tilings == tiled.tilings && it.tiled.forms == tiled.forms;
        if let Some(known) = self.candidates.iter().position(is_same) {
            return known;
        }
        let peak = smallest_within("", &tiled, self.topology.as_ref(), self.limit).holdings.peak();
        let (cost, held) = (self.lagrangian.cost(&tiled), self.points.bytes(&tiled));
        self.candidates.push(CandidatePlan { tiled, cost, held, peak });
        self.candidates.len() - 1
    }

    fn fits(&self, candidate: usize) -> bool {
        self.candidates[candidate].peak.bytes() <= self.limit
    }

    fn cheapest_that_fits(&self) -> &CandidatePlan {
        let that_fit = self.candidates.iter().filter(|it| it.peak.bytes() <= self.limit);
        let cheapest = that_fit.min_by(|one, other| one.cost.total_cmp(&other.cost));
        cheapest.expect("a plan that fits was found")
    }

    fn leanest(&self) -> Peak {
        let least = self.candidates.iter().min_by_key(|it| it.peak.bytes());
        least.expect("a plan was searched").peak.clone()
    }

    /// Searches a plan that fits, with high prices at the worst program points of the plans so far.
    fn first_that_fits(&mut self) -> Option<usize> {
        let mut worst: BTreeMap<usize, f64> = BTreeMap::new();
        for _ in 0..N_LEAN_SEARCHES {
            let last = self.candidates.last();
            let point = last.map_or(self.points.len() / 2, |it| worst_point(&it.held));
            *worst.entry(point).or_default() += 1.0;
            let total: f64 = worst.values().sum();
            let prices =
                worst.iter().map(|(&it, times)| (it, self.high_price * times / total)).collect();
            let n_before = self.candidates.len();
            let added = self.search(&prices, Depth::Proof);
            if self.fits(added) {
                return Some(added);
            }
            // The same price at the same point would give the same plan.
            if self.candidates.len() == n_before && worst.len() == 1 {
                return None;
            }
        }
        None
    }

    /// Searches all plans with these prices. Returns the number of the plan found.
    fn search(&mut self, prices: &BTreeMap<usize, f64>, depth: Depth) -> usize {
        let multipliers = self.points.multipliers(prices);
        let in_hand: Vec<&TiledNetwork> = self.candidates.iter().map(|it| &it.tiled).collect();
        let found = self.lagrangian.best(multipliers, &in_hand, depth);
        let of_limit = prices.values().sum::<f64>() * self.limit as f64;
        self.lower_bound = self.lower_bound.max(found.lower_bound - of_limit);
        self.add(found.tiled)
    }

    /// Returns the dual prices of the restricted master problem if a rank may hold at most `most`
    /// bytes at each point, and its value.
    fn prices(&self, feasible: usize, most: u64) -> (BTreeMap<usize, f64>, f64) {
        let most = most.max(self.candidates[feasible].most_held()) as f64;
        let column = |it: &CandidatePlan| Column {
            cost: it.cost,
            excess: it.held.iter().map(|&held| held as f64 - most).collect(),
        };
        let first = [&self.candidates[feasible]].into_iter();
        let columns: Vec<Column> = first.chain(&self.candidates).map(column).collect();
        let found = dual_prices(&columns);
        let of_points = found.of_points.into_iter().enumerate().filter(|it| it.1 > 0.0);
        (of_points.collect(), found.value)
    }

    /// Raises the bound with dual prices until it reaches the value of the restricted master
    /// problem.
    fn raise_lower_bound(&mut self, feasible: usize) {
        for _ in 0..N_SEARCHES {
            let (prices, master_value) = self.prices(feasible, self.limit);
            if prices.is_empty() || master_value - self.lower_bound <= NEGLIGIBLE * master_value {
                return;
            }
            let n_before = self.candidates.len();
            self.search(&prices, Depth::Proof);
            if self.candidates.len() == n_before {
                return;
            }
        }
    }

    /// Searches better plans among mixtures of the plans found, with perturbed prices.
    fn search_mixtures(&mut self, feasible: usize) {
        let (mut low, mut high) = (0.75, 1.25);
        for _ in 0..N_MIXED_SEARCHES {
            let (prices, _) = self.prices(feasible, self.limit - self.overhead());
            let gap = self.cheapest_that_fits().cost - self.lower_bound;
            if prices.is_empty() || gap <= NEGLIGIBLE * self.lower_bound {
                return;
            }
            let scale = f64::midpoint(low, high);
            let mut multipliers = self.points.multipliers(&prices);
            perturb(&mut multipliers, scale);
            let plans: Vec<&TiledNetwork> = self.candidates.iter().map(|it| &it.tiled).collect();
            let tiled = self.lagrangian.best_mixed(multipliers, &plans);
            let added = self.add(tiled);
            if self.fits(added) { high = scale } else { low = scale }
        }
    }

    /// Searches once more with dual prices, and with more work, if the gap is still wide and the
    /// bound can rise.
    fn narrow_gap(&mut self, feasible: usize) {
        let gap = self.cheapest_that_fits().cost - self.lower_bound;
        let (prices, master_value) = self.prices(feasible, self.limit);
        let may_rise = master_value - self.lower_bound > NEGLIGIBLE * master_value;
        let is_wide = gap > self.lower_bound / WIDE_GAP as f64;
        if self.effort.may_grow() && is_wide && may_rise {
            self.search(&prices, Depth::MoreWork);
        }
    }

    /// Returns the least memory that a program found needs beyond the bound of its program points.
    fn overhead(&self) -> u64 {
        let more = |it: &CandidatePlan| it.peak.bytes().saturating_sub(it.most_held());
        self.candidates.iter().map(more).min().unwrap_or(0).min(self.limit)
    }

    /// Returns the best plan that fits, in place of the one that does not.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "costs of plans are whole numbers of 43 bits"
    )]
    fn best(&self, instead_of: SearchResult) -> SearchResult {
        let CandidatePlan { tiled, cost, .. } = self.cheapest_that_fits();
        // Prices are rounded, by less than a whole unit.
        let proved = (self.lower_bound - 1.0).ceil().max(0.0);
        let seconds = |ticks: f64| self.lagrangian.seconds(ticks);
        let times = instead_of.times.and_then(|times| {
            let lower_bound = seconds(proved)?.max(times.lower_bound);
            let plan = seconds(*cost)?;
            Some(PlanTimes { plan, lower_bound: lower_bound.min(plan), ..times })
        });
        let lower_bound_bytes = match times {
            None => instead_of.lower_bound_bytes.max(proved as u64).min(*cost as u64),
            Some(_) => 0,
        };
        let is_optimal = match &times {
            None => lower_bound_bytes == *cost as u64,
            Some(times) => times.lower_bound >= times.plan,
        };
        SearchResult { tiled: tiled.clone(), is_optimal, lower_bound_bytes, times, ..instead_of }
    }
}

/// Returns the program point at which a plan holds the most.
fn worst_point(held: &[u64]) -> usize {
    let most = held.iter().enumerate().max_by_key(|it| it.1);
    most.map_or(0, |it| it.0)
}

/// Perturbs the prices of stored tensors and scales all prices.
fn perturb(multipliers: &mut MemoryMultipliers, scale: f64) {
    let n_values = multipliers.stored.len() as f64;
    for (at, price) in multipliers.stored.iter_mut().enumerate() {
        *price *= scale * (1.0 + PERTURBATION * (at as f64 / n_values - 0.5));
    }
    multipliers.kernels.values_mut().for_each(|it| it.price *= scale);
}
