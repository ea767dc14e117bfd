//! The tilings that a tensor can have on a mesh, and the cost of every conversion between them.
//!
//! Of the many conversions, most searches ask for few: a cost is found when it is first asked for.

use std::cell::Cell;

use soybean_plan::{AxisSet, Mesh, Placement, Shape, Tiling, may_split};

use super::conversion::{self, changes};

/// Which sets of axes can split which dim, looked up once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Splits {
    mesh: Mesh,
    /// For each dim, a mark for each set of axes.
    is_legal: Vec<Vec<bool>>,
}

impl Splits {
    pub(super) fn new(mesh: &Mesh, shape: &Shape) -> Self {
        let n_sets = 1_u16 << mesh.n_axes();
        let of_dim = |&extent: &usize| {
            (0..n_sets).map(|set| may_split(extent, mesh, AxisSet(set))).collect()
        };
        Self { mesh: *mesh, is_legal: shape.iter().map(of_dim).collect() }
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
        self.is_legal
            .iter()
            .enumerate()
            .all(|(dim, is_legal)| is_legal[tiling.axes_of(dim).0 as usize])
    }

    /// Whether each dim could be split at once along the axes of both tilings that are among `axes`, or split it anyway.
    pub(super) fn are_independent(&self, from: &Tiling, to: &Tiling, axes: AxisSet) -> bool {
        self.is_legal.iter().enumerate().all(|(dim, is_legal)| {
            let set = from.axes_of(dim).0 | (to.axes_of(dim).0 & axes.0);
            is_legal[set as usize]
        })
    }
}

/// All tilings of tensors with the same splits, and what it costs to get from each to each.
#[derive(Debug)]
pub(super) struct Space {
    splits: Splits,
    /// The tilings that a stored tensor can have, then those with partial results.
    tilings: Vec<Tiling>,
    /// The number of the former.
    n_stored: usize,
    /// Position in `tilings` by [`code`]; `u16::MAX` where there is none.
    position_by_code: Vec<u16>,
    /// `costs[from * n_stored + to]`: the elements moved over all ranks for a tensor of as many elements as there are ranks; [`UNKNOWN`] where
    /// nothing has asked yet.
    costs: Vec<Cell<u64>>,
    /// The number of parts into which each stored tiling cuts a tensor.
    n_parts: Vec<u64>,
}

const UNKNOWN: u64 = u64::MAX;

impl Space {
    pub(super) fn new(splits: Splits) -> Self {
        let (tilings, n_stored) = tilings(&splits);
        let n_codes =
            (splits.rank() + 2).pow(u32::try_from(splits.n_axes()).expect("a mesh has few axes"));
        let mut position_by_code = vec![u16::MAX; n_codes];
        for (position, tiling) in tilings.iter().enumerate() {
            let position =
                u16::try_from(position).expect("the search is not asked for more tilings");
            position_by_code[code(tiling, splits.rank())] = position;
        }
        let costs = vec![Cell::new(UNKNOWN); tilings.len() * n_stored];
        let n_parts = tilings.iter().map(|it| count_parts(&splits, it)).collect();
        Self { splits, tilings, n_stored, position_by_code, costs, n_parts }
    }

    fn cost_of(&self, from: Tiling, to: Tiling) -> u64 {
        let n_ranks = self.splits.mesh.n_ranks() as u64;
        let moved = |change: &conversion::Change| {
            let n_local = n_ranks / count_parts(&self.splits, &change.from);
            conversion::moved(
                change.kind,
                n_local,
                self.splits.mesh.group_size(change.axes) as u64,
                n_ranks,
            )
        };
        changes(&self.splits, from, to).iter().map(moved).sum()
    }

    pub(super) fn splits(&self) -> &Splits {
        &self.splits
    }

    /// The tilings that a stored tensor can have.
    pub(super) fn stored(&self) -> &[Tiling] {
        &self.tilings[..self.n_stored]
    }

    pub(super) fn n_parts(&self, tiling: usize) -> u64 {
        self.n_parts[tiling]
    }

    /// The position of a tiling, stored or with partial results.
    pub(super) fn position(&self, tiling: &Tiling) -> usize {
        self.position_by_code[code(tiling, self.splits.rank())] as usize
    }

    /// The cost from one tiling to a stored one, in elements moved over all ranks for a tensor of as many elements as there are ranks.
    pub(super) fn cost(&self, from: usize, to: usize) -> u64 {
        let known = &self.costs[from * self.n_stored + to];
        if known.get() == UNKNOWN {
            known.set(self.cost_of(self.tilings[from], self.tilings[to]));
        }
        known.get()
    }
}

fn count_parts(splits: &Splits, tiling: &Tiling) -> u64 {
    let split = tiling.axes_where(|it| matches!(it, Placement::Split(_)));
    splits.mesh.group_size(split) as u64
}

/// A tiling as a number: one digit for each axis.
fn code(tiling: &Tiling, rank: usize) -> usize {
    let digit = |placement: &Placement| match placement {
        Placement::Replicated => 0,
        Placement::Partial => 1,
        Placement::Split(dim) => 2 + *dim as usize,
    };
    tiling.placements().iter().fold(0, |code, placement| code * (rank + 2) + digit(placement))
}

/// All legal tilings, those without partial results first, and the number of those.
fn tilings(splits: &Splits) -> (Vec<Tiling>, usize) {
    let rank = u8::try_from(splits.rank()).expect("ranks are small");
    let choices: Vec<Placement> = [Placement::Replicated]
        .into_iter()
        .chain((0..rank).map(Placement::Split))
        .chain([Placement::Partial])
        .collect();
    let mut tilings = vec![Tiling::replicated(splits.n_axes())];
    for axis in 0..splits.n_axes() {
        let extend =
            |tiling: &Tiling| choices.iter().map(|&it| tiling.with(axis, it)).collect::<Vec<_>>();
        tilings = tilings.iter().flat_map(extend).filter(|it| splits.are_legal(it)).collect();
    }
    let (stored, partial): (Vec<Tiling>, Vec<Tiling>) =
        tilings.into_iter().partition(|tiling| tiling.partial_axes().is_empty());
    let n_stored = stored.len();
    (stored.into_iter().chain(partial).collect(), n_stored)
}
