//! The choice of a padding: the pass `pad` with the passes `round`, `replicate` and `search` after
//! it, for several paddings.

use std::{cmp::Ordering, collections::BTreeMap};

use soybean_plan::{Mesh, Precision};

use super::{DimClasses, PaddedUnits, Unit, pad};
use crate::{
    diagnostic::ModelDiagnostic,
    network::Network,
    replicate::replicate,
    round::round,
    search::search,
    tiling::{Padding, SearchRequest, SearchResult, Strategy, TiledNetwork},
    value::Value,
};

/// A network with the extents that were chosen for its dims, and its plan.
pub(crate) struct Chosen {
    /// The network after the pass `pad`.
    pub(crate) padded: Network,
    /// The network after the pass `round`.
    pub(crate) rounded: Network,
    /// The network after the pass `replicate`, if replicas are wanted.
    pub(crate) replicated: Option<Network>,
    /// The plan.
    pub(crate) plan: SearchResult,
    /// True if dims could be padded in other ways.
    pub(crate) has_further_paddings: bool,
    /// The extents in the place of units.
    units: PaddedUnits,
    /// The work of the plan, see [`TiledNetwork::operations`].
    pub(crate) work: f64,
}

/// The most work of a plan, in operations of all ranks over those of one device, for which the
/// objective alone counts.
const MAX_WORK: f64 = 1.05;

/// The most padded extents that a search tries for a unit.
const MAX_EXTENTS: usize = 2;

/// Searches the best plan over the paddings of a network that were tried: none, one of all dims
/// that the ranks do not divide, and from the better of both further ones, unit by unit.
pub(crate) fn choose_padding(
    fused: &Network,
    mesh: Mesh,
    precision: Precision,
    request: &SearchRequest,
) -> Result<Chosen, ModelDiagnostic> {
    let (classes, n_ranks) = (DimClasses::of(fused), mesh.n_ranks());
    let paddable = classes.paddable();
    let search = PaddedSearch {
        fused,
        mesh,
        precision,
        request,
        operations: fused.operations(),
        has_further_paddings: paddable.iter().any(|it| !it.extent.is_multiple_of(n_ranks)),
        classes,
    };
    if request.padding == Padding::All {
        let extents = paddable.into_iter().map(|it| (it, it.extent.next_multiple_of(n_ranks)));
        return search.with(extents.filter(|(unit, extent)| unit.extent != *extent).collect());
    }
    let unpadded = search.with(PaddedUnits::new());
    if request.padding == Padding::Off || !search.has_further_paddings {
        return unpadded;
    }
    let promising = unpadded.as_ref().map_or(paddable, |it| promising_units(&it.plan.tiled));
    let with_extents =
        promising.into_iter().map(|unit| (unit, padded_extents(unit.extent, n_ranks)));
    let extents = with_extents.filter(|(_, extents)| !extents.is_empty()).collect();
    search.improved(unpadded, &extents)
}

/// A search over paddings.
struct PaddedSearch<'a> {
    fused: &'a Network,
    mesh: Mesh,
    precision: Precision,
    request: &'a SearchRequest,
    classes: DimClasses,
    /// The operations of the network on one device.
    operations: f64,
    /// True if there are dims that the ranks do not divide.
    has_further_paddings: bool,
}

impl PaddedSearch<'_> {
    /// Returns the best plan with this padding.
    fn with(&self, units: PaddedUnits) -> Result<Chosen, ModelDiagnostic> {
        let padded = match units.is_empty() {
            true => self.fused.clone(),
            false => pad(self.fused, &self.classes, &units, self.request.poisons_padding),
        };
        let rounded = round(padded.clone(), self.precision);
        let replicated = self.request.shares.then(|| replicate(&rounded));
        let plan = search(&rounded, replicated.as_ref(), self.mesh, self.request)?;
        let work = plan.tiled.operations() / self.operations.max(1.0);
        let has_further_paddings = self.has_further_paddings;
        Ok(Chosen { padded, rounded, replicated, plan, has_further_paddings, units, work })
    }

    /// Returns the better one of a plan and one with this padding.
    fn better(
        &self,
        known: Result<Chosen, ModelDiagnostic>,
        units: PaddedUnits,
    ) -> Result<Chosen, ModelDiagnostic> {
        match (self.with(units), known) {
            (Ok(found), Ok(known)) if found.is_better(&known, self.request.strategy) => Ok(found),
            (Ok(found), Err(_)) => Ok(found),
            (_, known) => known,
        }
    }

    /// Improves a plan by other paddings: of all these units, then of one after the other.
    fn improved(
        &self,
        unpadded: Result<Chosen, ModelDiagnostic>,
        extents: &BTreeMap<Unit, Vec<usize>>,
    ) -> Result<Chosen, ModelDiagnostic> {
        if extents.is_empty() {
            return unpadded;
        }
        let all = extents.iter().map(|(unit, extents)| (*unit, extents[0])).collect();
        let mut best = self.better(unpadded, all);
        for (unit, extents) in extents {
            for extent in [None].into_iter().chain(extents.iter().copied().map(Some)) {
                let mut units = best.as_ref().map(|it| it.units.clone()).unwrap_or_default();
                if units.get(unit).copied() == extent {
                    continue;
                }
                match extent {
                    Some(extent) => units.insert(*unit, extent),
                    None => units.remove(unit),
                };
                if !units.is_empty() {
                    best = self.better(best, units);
                }
            }
        }
        best
    }
}

impl Chosen {
    /// Returns whether the plan is better: first by work above the limit, then by the objective.
    /// Under data parallelism, it is better first if the batch is split over more ranks.
    fn is_better(&self, other: &Self, strategy: Strategy) -> bool {
        let key = |it: &Self| match it.plan.times {
            Some(times) => (0.0, times.plan),
            None => ((it.work - MAX_WORK).max(0.0), it.plan.tiled.bytes() as f64),
        };
        let parts = |it: &Self| match strategy {
            Strategy::Data => parts_of_batch(&it.plan.tiled),
            Strategy::Auto | Strategy::Recursive | Strategy::Model => 0,
        };
        match parts(self).cmp(&parts(other)) {
            Ordering::Greater => true,
            Ordering::Less => false,
            Ordering::Equal => key(self) < key(other),
        }
    }
}

/// Returns the number of parts into which dim 0 of an input is split.
fn parts_of_batch(tiled: &TiledNetwork) -> usize {
    let parts = |it: &Value| tiled.mesh.group_size(tiled.tilings[it.index()].axes_of(0));
    tiled.network.inputs.iter().map(parts).max().unwrap_or(1)
}

/// Returns the units whose padding may make a plan better: operators with dims of them move more
/// than a hundredth of all bytes, or repeat more than a hundredth of all operations.
fn promising_units(tiled: &TiledNetwork) -> Vec<Unit> {
    const SHARE: f64 = 0.01;
    let classes = DimClasses::of(&tiled.network);
    let is_measured = tiled.network.measured();
    let mut of_units: BTreeMap<Unit, (f64, f64)> = BTreeMap::new();
    let (mut all_bytes, mut all_operations) = (0.0, 0.0);
    for value in tiled.network.graph.values() {
        if !is_measured[value.index()] || tiled.forms[value.index()].is_none() {
            continue;
        }
        let conversions = tiled.conversions_of_step(value, &is_measured);
        let bytes = conversions.iter().map(|it| it.bytes as f64).sum::<f64>();
        let operations = tiled.operations_of(value);
        let repeated = if tiled.n_copies(value) > 1 { operations } else { 0.0 };
        all_bytes += bytes;
        all_operations += operations;
        for unit in classes.units_of(value) {
            let sums = of_units.entry(unit).or_default();
            *sums = (sums.0 + bytes, sums.1 + repeated);
        }
    }
    let is_promising = |(_, (bytes, repeated)): &(Unit, (f64, f64))| {
        *bytes > SHARE * all_bytes || *repeated > SHARE * all_operations
    };
    of_units.into_iter().filter(is_promising).map(|(unit, _)| unit).collect()
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
