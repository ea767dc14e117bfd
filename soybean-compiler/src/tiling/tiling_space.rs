//! The legal tilings of a tensor on a mesh, and the costs of conversions between them.
//!
//! Most searches ask for few of the many conversions, so costs are computed on demand.

use std::{cell::Cell, rc::Rc, sync::Arc};

use soybean_plan::{AxisSet, Mesh, Placement, Shape, Tiling};

use super::{
    conversion::{ConversionStep, Splits, conversion_steps},
    cost_model::{ConversionCost, CostModel},
    orbits::{OrbitCosts, PlacementCounts},
    problem::Label,
    resolution::Resolution,
    splittable::SplittingSets,
};
use crate::{
    partial_sums::Idle,
    signature::{FactorId, TERMS, factor_id},
};

/// The sets of axes that can split each dim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LegalSplits {
    mesh: Mesh,
    /// For each dim, a mark for each set of axes.
    is_legal: Vec<Arc<[bool]>>,
    /// How a tensor is stored along an axis that splits none of its dims.
    idle: Idle,
}

impl LegalSplits {
    pub(super) fn new(sets: &mut SplittingSets, mesh: &Mesh, shape: &Shape) -> Self {
        let is_legal = shape.iter().map(|&extent| sets.of(extent)).collect();
        Self { mesh: *mesh, is_legal, idle: Idle::Replicated }
    }

    /// Returns the splits of a tensor whose dims any axes can split.
    pub(super) fn unlimited(mesh: &Mesh, rank: usize) -> Self {
        let all: Arc<[bool]> = vec![true; 1 << mesh.n_axes()].into();
        Self { mesh: *mesh, is_legal: vec![all; rank], idle: Idle::Replicated }
    }

    /// Returns the same without splits of needless dims.
    pub(super) fn without(mut self, is_needless: &[bool]) -> Self {
        for (marks, _) in self.is_legal.iter_mut().zip(is_needless).filter(|it| *it.1) {
            *marks = (0..marks.len()).map(|mask| mask == 0).collect();
        }
        self
    }

    /// Returns the splits of a tensor that is stored so along other axes.
    pub(super) fn idle(self, idle: Idle) -> Self {
        Self { idle, ..self }
    }

    /// Returns the placements of a stored tensor along an axis.
    pub(super) fn placements(&self) -> impl Iterator<Item = Placement> {
        let splits = (0..self.rank()).map(|dim| Placement::Split(factor_id(dim)));
        let idle: &[Placement] = match self.idle {
            Idle::Replicated => &[Placement::Replicated],
            Idle::Partial => &[Placement::Partial],
            Idle::Either => &[Placement::Replicated, Placement::Partial],
        };
        idle.iter().copied().chain(splits)
    }

    /// Returns the number of parts of a tensor in a tiling.
    pub(super) fn n_parts(&self, tiling: &Tiling) -> u64 {
        let split = tiling.axes_where(|it| matches!(it, Placement::Split(_)));
        self.mesh.group_size(split) as u64
    }

    /// Returns the elements that a step moves over all ranks, for a tensor of as many elements as
    /// there are ranks.
    pub(super) fn moved(&self, change: &ConversionStep) -> u64 {
        let n_ranks = self.mesh.n_ranks() as u64;
        let n_local = n_ranks / self.n_parts(&change.from);
        change.kind.moved(n_local, self.mesh.group_size(change.axes) as u64, n_ranks)
    }

    /// Returns the cost of the conversion from one tiling to another.
    pub(super) fn conversion_cost(
        &self,
        cost_model: &CostModel,
        from: Tiling,
        to: Tiling,
    ) -> ConversionCost {
        cost_model.conversion(self, &conversion_steps(self, from, to))
    }

    fn at_resolution(&self, resolution: &Resolution) -> Self {
        let is_legal = self.is_legal.iter().map(|it| resolution.possible(it).into()).collect();
        Self { is_legal, ..self.clone() }
    }
}

impl Splits for LegalSplits {
    fn n_axes(&self) -> usize {
        self.mesh.n_axes()
    }

    fn rank(&self) -> usize {
        self.is_legal.len()
    }

    fn may_split(&self, dim: usize, axes: AxisSet) -> bool {
        self.is_legal[dim][axes.0 as usize]
    }
}

/// The tilings of tensors with the same splits at a resolution, and the costs of conversions
/// between them.
#[derive(Debug)]
pub(super) struct TilingSpace {
    splits: LegalSplits,
    /// The tilings of stored tensors, then the other ones that operators need or give.
    tilings: Vec<Tiling>,
    /// The number of tilings of stored tensors.
    n_stored: usize,
    /// The number of parts of a tensor in each tiling.
    n_parts: Vec<u64>,
    /// The codes of tilings with their positions in `tilings`, sorted.
    positions: Vec<(u64, u32)>,
    known: CostCache,
    cost_model: Arc<CostModel>,
    /// The costs between orbits, if the resolution has orbits.
    orbits: Option<Rc<OrbitCosts>>,
    /// The orbit of each tiling, if the resolution has orbits.
    counts: Vec<PlacementCounts>,
}

impl TilingSpace {
    pub(super) fn new(
        splits: &LegalSplits,
        resolution: &Resolution,
        orbits: Option<&Rc<OrbitCosts>>,
        cost_model: &Arc<CostModel>,
    ) -> Self {
        let (tilings, n_stored) = tilings(splits, resolution);
        let splits = splits.at_resolution(resolution);
        let code = |(tiling, position)| (code(&tiling, splits.rank()), position);
        let mut positions: Vec<(u64, u32)> = tilings.iter().copied().zip(0..).map(code).collect();
        positions.sort_unstable();
        let known = CostCache::new(tilings.len() * tilings.len());
        let n_parts = tilings.iter().map(|it| splits.n_parts(it)).collect();
        let counts = orbits
            .map_or_else(Vec::new, |orbits| tilings.iter().map(|it| orbits.counts(it)).collect());
        let (orbits, cost_model) = (orbits.cloned(), Arc::clone(cost_model));
        Self { splits, tilings, n_stored, n_parts, positions, known, cost_model, orbits, counts }
    }

    /// Returns the tilings that a stored tensor can have.
    pub(super) fn stored(&self) -> &[Tiling] {
        &self.tilings[..self.n_stored]
    }

    pub(super) fn n_parts(&self, tiling: usize) -> u64 {
        self.n_parts[tiling]
    }

    /// Returns the position of a tiling, or of the representative of its orbit; `None` if this
    /// resolution lacks it.
    pub(super) fn position(&self, tiling: &Tiling) -> Option<usize> {
        let tiling = match &self.orbits {
            Some(orbits) => orbits.sorted(tiling),
            None => *tiling,
        };
        let code = code(&tiling, self.splits.rank());
        let at = self.positions.binary_search_by_key(&code, |&(code, _)| code).ok()?;
        Some(self.positions[at].1 as usize)
    }

    /// Returns the cost from one tiling to another: [`LegalSplits::conversion_cost`].
    pub(super) fn cost(&self, from: usize, to: usize) -> ConversionCost {
        let at = from * self.tilings.len() + to;
        if let Some(price) = self.known.get(at) {
            return price;
        }
        let price = match &self.orbits {
            Some(orbits) => orbits.least_conversion(&self.counts[from], &self.counts[to]),
            None => {
                let (from, to) = (self.tilings[from], self.tilings[to]);
                self.splits.conversion_cost(&self.cost_model, from, to)
            }
        };
        self.known.set(at, price);
        price
    }
}

/// The costs found so far. No costs are kept where their table would be too large.
#[derive(Debug)]
struct CostCache(Vec<Cell<ConversionCost>>);

impl CostCache {
    /// The most entries of the table.
    const MOST: usize = 1 << 18;

    fn new(n_prices: usize) -> Self {
        let n_kept = if n_prices > Self::MOST { 0 } else { n_prices };
        Self(vec![Cell::new(ConversionCost::UNKNOWN); n_kept])
    }

    fn get(&self, at: usize) -> Option<ConversionCost> {
        self.0.get(at).map(Cell::get).filter(|it| *it != ConversionCost::UNKNOWN)
    }

    fn set(&self, at: usize, price: ConversionCost) {
        if let Some(known) = self.0.get(at) {
            known.set(price);
        }
    }
}

/// Returns a tiling as a number, with one digit per axis.
fn code(tiling: &Tiling, rank: usize) -> u64 {
    let digit = |placement: &Placement| match placement {
        Placement::Replicated => 0,
        Placement::Partial => 1,
        Placement::Split(dim) => 2 + u64::from(*dim),
    };
    let base = rank as u64 + 2;
    tiling.placements().iter().fold(0, |code, placement| code * base + digit(placement))
}

/// Returns all legal tilings, those of stored tensors first, and the number of these. At a
/// resolution by orbits, these are the orbits with a legal member.
fn tilings(splits: &LegalSplits, resolution: &Resolution) -> (Vec<Tiling>, usize) {
    let rank = u8::try_from(splits.rank()).expect("ranks are small");
    let candidates: Vec<Placement> = [Placement::Replicated]
        .into_iter()
        .chain((0..rank).map(Placement::Split))
        .chain([Placement::Partial])
        .collect();
    let stored: Vec<Placement> = splits.placements().collect();
    let possible = splits.at_resolution(resolution);
    let mut tilings = vec![Tiling::replicated(splits.n_axes())];
    for axis in 0..splits.n_axes() {
        let before = resolution.before(axis);
        let extend = |tiling: &Tiling| {
            // Within a class, placements are in order.
            let is_in_order = |it: &&Placement| before.is_none_or(|axis| tiling.on(axis) <= **it);
            let with = |&it: &Placement| tiling.with(axis, it);
            candidates.iter().filter(is_in_order).map(with).collect::<Vec<_>>()
        };
        tilings = tilings.iter().flat_map(extend).filter(|it| possible.are_legal(it)).collect();
    }
    let may_split = |dim: FactorId, axes| dim == TERMS || splits.may_split(dim.into(), axes);
    tilings.retain(|it| {
        splits.are_legal(it) || resolution.has_member(&Label::Tensor(*it).splits(), &may_split)
    });
    let (stored, others): (Vec<Tiling>, Vec<Tiling>) =
        tilings.into_iter().partition(|it| it.placements().iter().all(|it| stored.contains(it)));
    let n_stored = stored.len();
    (stored.into_iter().chain(others).collect(), n_stored)
}
