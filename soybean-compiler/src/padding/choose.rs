//! The choice of a padding: the pass `pad` with the passes `round`, `replicate` and `search` after
//! it, for several paddings.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use soybean_plan::{Mesh, Precision};

use super::{DimClasses, PaddedUnits, Unit, pad};
use crate::{
    diagnostic::ModelDiagnostic,
    network::Network,
    partial_sums::LIGHT_WORK,
    replicate::replicate,
    round::round,
    search::search,
    sparse_updates::with_sparse_updates,
    tiling::{Objective, Padding, SearchEffort, SearchRequest, SearchResult, Strategy},
};

/// A network with the extents that were chosen for its dims, and its plan.
#[derive(Clone)]
pub(crate) struct Chosen {
    /// The network after the pass `pad`.
    pub(crate) padded: Network,
    /// The network after the pass `sparse-updates`.
    pub(crate) sparse: Network,
    /// The network after the pass `round`.
    pub(crate) rounded: Network,
    /// The network after the pass `replicate`, if replicas are wanted.
    pub(crate) replicated: Option<Network>,
    /// The plan.
    pub(crate) plan: SearchResult,
    /// The extents in the place of units.
    units: PaddedUnits,
    /// The bytes that the plan moves.
    bytes: u64,
    /// The facts for the report.
    pub(crate) facts: PaddingFacts,
    /// The best plan without padding, if this one has padding and time counts.
    pub(crate) unpadded: Option<Box<Self>>,
}

/// The facts about a plan that depend on the padding of its dims.
#[derive(Clone, Debug)]
pub(crate) struct PaddingFacts {
    /// The operations of all ranks, divided by those of one device without padding.
    pub(crate) work: f64,
    /// True if dims could be padded in other ways, over which nothing is proved.
    pub(crate) has_further_paddings: bool,
    /// The costs of the padded plan with the fewest bytes, if it has too much work to be chosen.
    pub(crate) heavier: Option<PlanCosts>,
}

/// The costs of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanCosts {
    /// Its work.
    pub(crate) work: f64,
    /// The bytes that it moves.
    pub(crate) bytes: u64,
}

/// The work above the least one known that a plan may have if no plan is within the limit.
const WORK_TOLERANCE: f64 = 0.01;

/// The most work of a plan that the report shows beside the chosen one.
const SHOWN_WORK: f64 = 1.25;

/// The most rough searches, so that all paddings take at most twice the work of a standard search.
const MAX_TRIALS: usize = 32;

/// The most padded extents that a search tries for a unit.
const MAX_EXTENTS: usize = 2;

/// Searches a plan without padding, then pads the promising units of the best plan: all together,
/// then each alone. Padding may make other units promising.
pub(crate) fn choose_padding(
    fused: &Network,
    mesh: Mesh,
    precision: Precision,
    request: &SearchRequest,
) -> Result<Chosen, ModelDiagnostic> {
    let (classes, n_ranks) = (DimClasses::of(fused), mesh.n_ranks());
    let paddable = classes.paddable();
    let operations = fused.operations_of_values();
    let mut search = PaddedSearch {
        fused,
        mesh,
        precision,
        request,
        operations_on_one_device: operations.iter().sum::<f64>().max(1.0),
        operations,
        has_further_paddings: paddable.iter().any(|it| !it.extent.is_multiple_of(n_ranks)),
        classes,
        searched: BTreeSet::new(),
        least_work: f64::INFINITY,
        fewest_bytes: None,
        n_trials_left: MAX_TRIALS,
    };
    if request.padding == Padding::All {
        let extents = paddable.into_iter().map(|it| (it, it.extent.next_multiple_of(n_ranks)));
        let units = extents.filter(|(unit, extent)| unit.extent != *extent).collect();
        return search.with(units, request.effort);
    }
    let mut best = search.with(PaddedUnits::new(), request.effort);
    if request.padding == Padding::Off {
        return best;
    }
    let is_by_time = request.objective == Objective::Time;
    let unpadded = best.as_ref().ok().filter(|_| is_by_time).cloned();
    // The best plan may have other costs that padding avoids than the one before.
    let mut untried: BTreeMap<Unit, Vec<usize>> =
        paddable.into_iter().map(|it| (it, padded_extents(it.extent, n_ranks))).collect();
    untried.retain(|_, extents| !extents.is_empty());
    while !untried.is_empty() {
        let promising = best.as_ref().ok().map(|it| it.promising_units(&untried));
        let is_promising = |it: &Unit| promising.as_ref().is_none_or(|units| units.contains(it));
        let (tried, rest) = untried.into_iter().partition(|(unit, _)| is_promising(unit));
        let before = units_of(&best);
        best = search.improved(best, &tried);
        untried = if units_of(&best) == before { BTreeMap::new() } else { rest };
    }
    let units = units_of(&best);
    if !units.is_empty() && !best.as_ref().is_ok_and(|it| it.plan.is_optimal) {
        let found = search.with(units, request.effort);
        best = search.best_of(best, found);
    }
    let best = search.with_heavier(best?);
    let unpadded = unpadded.filter(|_| best.has_padding());
    Ok(Chosen { unpadded: unpadded.map(Box::new), ..best })
}

/// Returns the padding of a plan; none if there is no plan.
fn units_of(best: &Result<Chosen, ModelDiagnostic>) -> PaddedUnits {
    best.as_ref().map(|it| it.units.clone()).unwrap_or_default()
}

/// A search over paddings.
struct PaddedSearch<'a> {
    fused: &'a Network,
    mesh: Mesh,
    precision: Precision,
    request: &'a SearchRequest,
    classes: DimClasses,
    /// The operations for each tensor on one device.
    operations: Vec<f64>,
    /// Their sum.
    operations_on_one_device: f64,
    /// True if there are dims that the ranks do not divide.
    has_further_paddings: bool,
    /// The paddings that were searched.
    searched: BTreeSet<PaddedUnits>,
    /// The least work of all plans so far.
    least_work: f64,
    /// The costs of the padded plan with the fewest bytes so far, up to [`SHOWN_WORK`].
    fewest_bytes: Option<PlanCosts>,
    /// The number of rough searches that may follow.
    n_trials_left: usize,
}

impl PaddedSearch<'_> {
    /// Returns the best plan with this padding.
    fn with(
        &mut self,
        units: PaddedUnits,
        effort: SearchEffort,
    ) -> Result<Chosen, ModelDiagnostic> {
        self.searched.insert(units.clone());
        let padded = match units.is_empty() {
            true => self.fused.clone(),
            false => pad(self.fused, &self.classes, &units, self.request.poison),
        };
        let padded = Network { light_work: self.light_work(&units), ..padded };
        let sparse = with_sparse_updates(padded.clone());
        let rounded = round(sparse.clone(), self.precision);
        let replicated = self.request.shares.then(|| replicate(&rounded));
        let request = SearchRequest { effort, ..self.request.clone() };
        let plan = search(&rounded, replicated.as_ref(), self.mesh, &request)?;
        let work = plan.tiled.operations() / self.operations_on_one_device;
        self.least_work = self.least_work.min(work);
        let bytes = plan.tiled.bytes();
        let is_shown = !units.is_empty() && work <= SHOWN_WORK;
        if is_shown && self.fewest_bytes.is_none_or(|known| bytes < known.bytes) {
            self.fewest_bytes = Some(PlanCosts { work, bytes });
        }
        let has_further_paddings = self.has_further_paddings;
        let facts = PaddingFacts { work, has_further_paddings, heavier: None };
        let unpadded = None;
        Ok(Chosen { padded, sparse, rounded, replicated, plan, units, bytes, facts, unpadded })
    }

    /// Returns the work of light products that ranks may repeat: what a padding leaves of the limit
    /// on work, without what other operators may repeat. If time counts, it is not limited.
    fn light_work(&self, units: &PaddedUnits) -> f64 {
        let left = match self.request.objective {
            Objective::Bytes => self.request.max_work - WORK_TOLERANCE - self.work_of(units),
            Objective::Time => LIGHT_WORK,
        };
        left.clamp(0.0, LIGHT_WORK)
    }

    /// Adds the plan that more work would allow.
    fn with_heavier(&self, mut chosen: Chosen) -> Chosen {
        let is_by_bytes = chosen.plan.times.is_none() && self.request.strategy != Strategy::Data;
        let is_much = |it: &PlanCosts| it.work > self.limit() && it.bytes < chosen.bytes / 10 * 9;
        chosen.facts.heavier = self.fewest_bytes.filter(|it| is_by_bytes && is_much(it));
        chosen
    }

    /// Returns the better one of a plan and one that a rough search finds with this padding.
    fn better(
        &mut self,
        known: Result<Chosen, ModelDiagnostic>,
        units: PaddedUnits,
    ) -> Result<Chosen, ModelDiagnostic> {
        let is_known = self.searched.contains(&units) || self.is_too_heavy(&known, &units);
        if is_known || self.n_trials_left == 0 {
            return known;
        }
        self.n_trials_left -= 1;
        let found = self.with(units, SearchEffort::Rough);
        self.best_of(found, known)
    }

    /// Returns the better one of two plans, the known one if they are equal.
    fn best_of(
        &self,
        found: Result<Chosen, ModelDiagnostic>,
        known: Result<Chosen, ModelDiagnostic>,
    ) -> Result<Chosen, ModelDiagnostic> {
        match (found, known) {
            (Ok(found), Ok(known)) if self.is_better(&found, &known) => Ok(found),
            (Ok(found), Err(_)) => Ok(found),
            (_, known) => known,
        }
    }

    /// Adds padded units to a padding: each with its first extent that fits into the limit of work
    /// alone, without those that add the most work if they do not fit together. If none fits, all
    /// are added.
    fn with_units(&self, known: &PaddedUnits, extents: &BTreeMap<Unit, Vec<usize>>) -> PaddedUnits {
        let mut all = known.clone();
        all.extend(extents.iter().map(|(unit, extents)| (*unit, extents[0])));
        if self.request.objective == Objective::Time {
            return all;
        }
        // Operators with little work may be repeated, which takes a little more.
        let limit = f64::max(self.request.max_work - WORK_TOLERANCE, 1.0);
        let fits = |units: &PaddedUnits| self.work_of(units) <= limit;
        let fitting = |(unit, extents): (&Unit, &Vec<usize>)| {
            let alone = |extent: &&usize| fits(&PaddedUnits::from([(*unit, **extent)]));
            Some((*unit, *extents.iter().find(alone)?))
        };
        let mut kept = known.clone();
        kept.extend(extents.iter().filter_map(fitting));
        while !fits(&kept) {
            // Without a padded batch nearly everything may be repeated, so it stays longest.
            let work_without = |unit: &Unit| {
                let mut fewer = kept.clone();
                fewer.remove(unit);
                (unit.is_of_batch, self.work_of(&fewer))
            };
            let order = |one: &&Unit, other: &&Unit| {
                let (one, other) = (work_without(one), work_without(other));
                one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
            };
            let Some(dropped) = kept.keys().min_by(order).copied() else { break };
            kept.remove(&dropped);
        }
        if kept.is_empty() { all } else { kept }
    }

    /// Returns the work of a padding if no operator is repeated, by the factors of operators.
    fn work_of(&self, units: &PaddedUnits) -> f64 {
        let times_padded = |(at, operations): (usize, &f64)| {
            let of_factors = self.classes.of_factors[at].iter().map(|it| self.classes.units[*it]);
            let growth = |unit: Unit| {
                units.get(&unit).map_or(1.0, |padded| *padded as f64 / unit.extent as f64)
            };
            operations * of_factors.map(growth).product::<f64>()
        };
        let padded: f64 = self.operations.iter().enumerate().map(times_padded).sum();
        padded / self.operations_on_one_device
    }

    /// Returns whether a padding is not worth a search: all its plans have more work than the limit
    /// allows. The first padding of the batch is searched nevertheless if it takes little more,
    /// since the report shows what it would save.
    fn is_too_heavy(&self, known: &Result<Chosen, ModelDiagnostic>, units: &PaddedUnits) -> bool {
        let Ok(known) = known else { return false };
        let is_light =
            self.request.objective == Objective::Bytes && known.facts.work <= self.limit();
        if self.request.strategy == Strategy::Data || !is_light {
            return false;
        }
        let pads_batch = |units: &PaddedUnits| units.keys().any(|it| it.is_of_batch);
        let is_shown = pads_batch(units) && !pads_batch(&known.units);
        let limit = if is_shown { self.limit().max(SHOWN_WORK) } else { self.limit() };
        self.work_of(units) > limit
    }

    /// Returns the most work for which the objective alone counts.
    fn limit(&self) -> f64 {
        self.request.max_work.max(self.least_work + WORK_TOLERANCE)
    }

    /// Improves a plan by other paddings: of all these units, then of one after the other, until no
    /// other extent of a single unit is better.
    fn improved(
        &mut self,
        known: Result<Chosen, ModelDiagnostic>,
        extents: &BTreeMap<Unit, Vec<usize>>,
    ) -> Result<Chosen, ModelDiagnostic> {
        let all = self.with_units(&units_of(&known), extents);
        let mut best = self.better(known, all);
        loop {
            let before = units_of(&best);
            for (unit, extents) in extents {
                for extent in [None].into_iter().chain(extents.iter().copied().map(Some)) {
                    let mut units = units_of(&best);
                    match extent {
                        Some(extent) => units.insert(*unit, extent),
                        None => units.remove(unit),
                    };
                    best = self.better(best, units);
                }
            }
            if units_of(&best) == before {
                return best;
            }
        }
    }

    /// Returns whether a plan is better: first by the work above the limit, then by the objective.
    /// Under data parallelism, it is better first if the batch is split over more ranks.
    fn is_better(&self, found: &Chosen, known: &Chosen) -> bool {
        let limit = self.limit();
        let key = |it: &Chosen| match it.plan.times {
            Some(times) => (0.0, times.plan),
            None => ((it.facts.work - limit).max(0.0), it.bytes as f64),
        };
        let parts = |it: &Chosen| match self.request.strategy {
            Strategy::Data => it.plan.tiled.parts_of_batch(),
            Strategy::Auto | Strategy::Recursive | Strategy::Model => 0,
        };
        match parts(found).cmp(&parts(known)) {
            Ordering::Greater => true,
            Ordering::Less => false,
            Ordering::Equal => key(found) < key(known),
        }
    }
}

impl Chosen {
    /// Returns true if a dim is longer than in the model.
    pub(crate) fn has_padding(&self) -> bool {
        !self.units.is_empty()
    }

    /// Returns those of some units whose padding may make the plan better: operators with dims of
    /// them move more than a hundredth of all bytes, or repeat more than a hundredth of all
    /// operations.
    fn promising_units(&self, untried: &BTreeMap<Unit, Vec<usize>>) -> BTreeSet<Unit> {
        const SHARE: f64 = 0.01;
        let tiled = &self.plan.tiled;
        let classes = DimClasses::of(&tiled.network);
        let weights = tiled.network.weights();
        let mut of_units: BTreeMap<Unit, (f64, f64)> = BTreeMap::new();
        for value in tiled.network.graph.values() {
            let units: Vec<Unit> =
                classes.units_of(value).into_iter().filter(|it| untried.contains_key(it)).collect();
            let weight = weights.of_value(value);
            let is_made = weight > 0 && tiled.forms[value.index()].is_some();
            if units.is_empty() || !is_made {
                continue;
            }
            let conversions = tiled.weighted_conversions(value, &weights);
            let bytes = conversions.iter().map(|it| it.bytes as f64).sum::<f64>();
            let is_repeated = tiled.n_copies(value) > 1;
            let operations = weight as f64 * tiled.operations_of(value);
            let repeated = if is_repeated { operations } else { 0.0 };
            for unit in units {
                let sums = of_units.entry(unit).or_default();
                *sums = (sums.0 + bytes, sums.1 + repeated);
            }
        }
        let (all_bytes, all_operations) = (self.bytes as f64, tiled.operations());
        let is_promising = |(_, (bytes, repeated)): &(Unit, (f64, f64))| {
            *bytes > SHARE * all_bytes || *repeated > SHARE * all_operations
        };
        of_units.into_iter().filter(is_promising).map(|(unit, _)| unit).collect()
    }
}

/// Returns the extents to which a unit may be padded, the one with the most divisors in common with
/// the number of ranks first. None is more than twice as long.
fn padded_extents(unit: usize, n_ranks: usize) -> Vec<usize> {
    if unit.is_multiple_of(n_ranks) {
        return Vec::new();
    }
    let mut extents: Vec<usize> = Vec::new();
    for divisor in (2..=n_ranks).rev().filter(|it| n_ranks.is_multiple_of(*it)) {
        let extent = unit.next_multiple_of(divisor);
        if extent != unit && extent <= 2 * unit && !extents.contains(&extent) {
            extents.push(extent);
        }
    }
    extents.truncate(MAX_EXTENTS);
    extents
}
