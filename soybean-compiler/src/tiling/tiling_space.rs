//! The tilings that a tensor can have on a mesh, and the cost of every conversion between them.
//!
//! Of the many conversions, most searches ask for few: a cost is found when it is first asked for.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
};

use soybean_plan::{AxisSet, Mesh, Placement, Shape, Tiling};

use super::{
    conversion::{ConversionStep, conversion_steps},
    cost_model::{ConversionCost, CostModel},
    orbits::OrbitCosts,
    resolution::Resolution,
    splittable::SplittingSets,
};
use crate::signature::factor_id;

/// Which sets of axes can split which dim, looked up once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LegalSplits {
    mesh: Mesh,
    /// For each dim, a mark for each set of axes.
    is_legal: Vec<Arc<[bool]>>,
    /// How a stored tensor lies along an axis that splits none of its dims.
    idle: Placement,
}

impl LegalSplits {
    pub(super) fn new(mesh: &Mesh, shape: &Shape) -> Self {
        Self::looked_up(&mut SplittingSets::new(mesh), mesh, shape)
    }

    pub(super) fn looked_up(sets: &mut SplittingSets, mesh: &Mesh, shape: &Shape) -> Self {
        let is_legal = shape.iter().map(|&extent| sets.of(extent)).collect();
        Self { mesh: *mesh, is_legal, idle: Placement::Replicated }
    }

    /// Those of a tensor with this many dims that any axes can split.
    pub(super) fn unlimited(mesh: &Mesh, rank: usize) -> Self {
        let all: Arc<[bool]> = vec![true; 1 << mesh.n_axes()].into();
        Self { mesh: *mesh, is_legal: vec![all; rank], idle: Placement::Replicated }
    }

    /// The same without the dims that are not worth splitting.
    pub(super) fn without(mut self, is_needless: &[bool]) -> Self {
        for (marks, _) in self.is_legal.iter_mut().zip(is_needless).filter(|it| *it.1) {
            *marks = (0..marks.len()).map(|mask| mask == 0).collect();
        }
        self
    }

    /// Those of a tensor that is stored as partial sums.
    pub(super) fn of_partial_sums(self) -> Self {
        Self { idle: Placement::Partial, ..self }
    }

    /// How a stored tensor can lie along an axis.
    pub(super) fn placements(&self) -> impl Iterator<Item = Placement> {
        let splits = (0..self.rank()).map(|dim| Placement::Split(factor_id(dim)));
        [self.idle].into_iter().chain(splits)
    }

    pub(super) fn n_axes(&self) -> usize {
        self.mesh.n_axes()
    }

    pub(super) fn rank(&self) -> usize {
        self.is_legal.len()
    }

    /// Whether a dim can be split along these axes.
    pub(super) fn may_split(&self, dim: usize, axes: AxisSet) -> bool {
        self.is_legal[dim][axes.0 as usize]
    }

    /// Whether each dim can be split along all axes that split it.
    pub(super) fn are_legal(&self, tiling: &Tiling) -> bool {
        (0..self.rank()).all(|dim| self.may_split(dim, tiling.axes_of(dim)))
    }

    /// Whether each dim could be split at once along the axes of both tilings that are among `axes`, or split it anyway.
    pub(super) fn are_independent(&self, from: &Tiling, to: &Tiling, axes: AxisSet) -> bool {
        (0..self.rank()).all(|dim| {
            let set = from.axes_of(dim).0 | (to.axes_of(dim).0 & axes.0);
            self.may_split(dim, AxisSet(set))
        })
    }

    /// The number of parts into which a tiling cuts a tensor.
    pub(super) fn n_parts(&self, tiling: &Tiling) -> u64 {
        let split = tiling.axes_where(|it| matches!(it, Placement::Split(_)));
        self.mesh.group_size(split) as u64
    }

    /// What a change moves over all ranks, in elements, for a tensor of as many elements as there are ranks.
    pub(super) fn moved(&self, change: &ConversionStep) -> u64 {
        let n_ranks = self.mesh.n_ranks() as u64;
        let n_local = n_ranks / self.n_parts(&change.from);
        change.kind.moved(n_local, self.mesh.group_size(change.axes) as u64, n_ranks)
    }

    /// What it costs to get from one tiling to another.
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

/// All tilings of tensors with the same splits as far as a resolution tells them apart, and what it costs to get from each to each.
#[derive(Debug)]
pub(super) struct TilingSpace {
    splits: LegalSplits,
    /// The tilings that a stored tensor can have, then those in which operators can give or need it besides.
    tilings: Vec<Tiling>,
    /// The number of the former.
    n_stored: usize,
    /// Codes of tilings with their positions in `tilings`, in order.
    positions: Vec<(u64, u32)>,
    known: CostCache,
    cost_model: Arc<CostModel>,
    /// Where only counts matter, what they cost.
    orbits: Option<Rc<OrbitCosts>>,
}

impl TilingSpace {
    pub(super) fn new(
        splits: &LegalSplits,
        resolution: &Resolution,
        orbits: Option<&Rc<OrbitCosts>>,
        cost_model: &Arc<CostModel>,
    ) -> Self {
        let splits = splits.at_resolution(resolution);
        let (tilings, n_stored) = tilings(&splits, resolution);
        let code = |(tiling, position)| (code(&tiling, splits.rank()), position);
        let mut positions: Vec<(u64, u32)> = tilings.iter().copied().zip(0..).map(code).collect();
        positions.sort_unstable();
        let known = CostCache::new(tilings.len() * n_stored);
        let (orbits, cost_model) = (orbits.cloned(), Arc::clone(cost_model));
        Self { splits, tilings, n_stored, positions, known, cost_model, orbits }
    }

    /// The tilings that a stored tensor can have.
    pub(super) fn stored(&self) -> &[Tiling] {
        &self.tilings[..self.n_stored]
    }

    pub(super) fn n_parts(&self, tiling: usize) -> u64 {
        self.splits.n_parts(&self.tilings[tiling])
    }

    /// The position of a tiling, stored or not, or of the one that stands for it; none if this resolution has none.
    pub(super) fn position(&self, tiling: &Tiling) -> Option<usize> {
        let tiling = match &self.orbits {
            Some(orbits) => orbits.sorted(tiling),
            None => *tiling,
        };
        let code = code(&tiling, self.splits.rank());
        let at = self.positions.binary_search_by_key(&code, |&(code, _)| code).ok()?;
        Some(self.positions[at].1 as usize)
    }

    /// The cost from one tiling to a stored one or to partial sums: [`LegalSplits::price`].
    pub(super) fn cost(&self, from: usize, to: usize) -> ConversionCost {
        // Ranks make what they have parts of a sum without the others.
        if !self.tilings[to].partial_axes().is_empty() {
            return ConversionCost::NONE;
        }
        let at = from * self.n_stored + to;
        if let Some(price) = self.known.get(at) {
            return price;
        }
        let (from, to) = (self.tilings[from], self.tilings[to]);
        let price = match &self.orbits {
            Some(orbits) => orbits.least_conversion(from, to),
            None => self.splits.conversion_cost(&self.cost_model, from, to),
        };
        self.known.set(at, price);
        price
    }
}

/// What has been asked so far: all prices in a table, unless they are too many.
#[derive(Debug)]
enum CostCache {
    All(Vec<Cell<ConversionCost>>),
    Some(RefCell<BTreeMap<usize, ConversionCost>>),
}

impl CostCache {
    /// The most prices of a table.
    const MOST: usize = 1 << 20;

    fn new(n_prices: usize) -> Self {
        if n_prices > Self::MOST {
            return Self::Some(RefCell::default());
        }
        Self::All(vec![Cell::new(ConversionCost::UNKNOWN); n_prices])
    }

    fn get(&self, at: usize) -> Option<ConversionCost> {
        match self {
            Self::All(prices) => Some(prices[at].get()).filter(|it| *it != ConversionCost::UNKNOWN),
            Self::Some(prices) => prices.borrow().get(&at).copied(),
        }
    }

    fn set(&self, at: usize, price: ConversionCost) {
        match self {
            Self::All(prices) => prices[at].set(price),
            Self::Some(prices) => {
                prices.borrow_mut().insert(at, price);
            }
        }
    }
}

/// A tiling as a number: one digit for each axis.
fn code(tiling: &Tiling, rank: usize) -> u64 {
    let digit = |placement: &Placement| match placement {
        Placement::Replicated => 0,
        Placement::Partial => 1,
        Placement::Split(dim) => 2 + u64::from(*dim),
    };
    let base = rank as u64 + 2;
    tiling.placements().iter().fold(0, |code, placement| code * base + digit(placement))
}

/// All legal tilings, those of stored tensors first, and the number of those.
fn tilings(splits: &LegalSplits, resolution: &Resolution) -> (Vec<Tiling>, usize) {
    let rank = u8::try_from(splits.rank()).expect("ranks are small");
    let choices: Vec<Placement> = [Placement::Replicated]
        .into_iter()
        .chain((0..rank).map(Placement::Split))
        .chain([Placement::Partial])
        .collect();
    let stored: Vec<Placement> = splits.placements().collect();
    let mut tilings = vec![Tiling::replicated(splits.n_axes())];
    for axis in 0..splits.n_axes() {
        let before = resolution.before(axis);
        let extend = |tiling: &Tiling| {
            // In a class choices do not decrease.
            let is_in_order = |it: &&Placement| before.is_none_or(|axis| tiling.on(axis) <= **it);
            let with = |&it: &Placement| tiling.with(axis, it);
            choices.iter().filter(is_in_order).map(with).collect::<Vec<_>>()
        };
        tilings = tilings.iter().flat_map(extend).filter(|it| splits.are_legal(it)).collect();
    }
    let (stored, others): (Vec<Tiling>, Vec<Tiling>) =
        tilings.into_iter().partition(|it| it.placements().iter().all(|it| stored.contains(it)));
    let n_stored = stored.len();
    (stored.into_iter().chain(others).collect(), n_stored)
}
