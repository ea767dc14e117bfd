//! Conversions between tilings: sequences of collectives, and the bytes that they move.
//!
//! The steps are, with all axes of a step together: slice (`r -> P`, free), reduce-scatter (`red ->
//! P`), all-to-all (`P_i -> P_j`), all-gather (`P -> r`). A sum that ends replicated is an
//! all-reduce. Around an all-to-all it is divided into reduce-scatter and all-gather, because the
//! all-to-all then moves less.
//!
//! A tensor that becomes a partial sum is replicated along these axes, and then divided among the
//! ranks, which moves nothing.

use soybean_plan::{
    AxisSet, Collective, CollectiveKind, Combine, DType, Halo, Mesh, Placement, Shape, Tile,
    Tiling, may_split,
};

/// The sets of axes that can split each dim of a tensor.
pub(super) trait Splits {
    /// Returns the number of axes of the mesh.
    fn n_axes(&self) -> usize;

    /// Returns the number of dims of the tensor.
    fn rank(&self) -> usize;

    /// Returns whether a dim can be split along these axes.
    fn may_split(&self, dim: usize, axes: AxisSet) -> bool;

    /// Returns whether each dim can be split along all axes that split it.
    fn are_legal(&self, tiling: &Tiling) -> bool {
        (0..self.rank()).all(|dim| self.may_split(dim, tiling.axes_of(dim)))
    }

    /// Returns whether each dim can be split at once along its axes in `from` and its axes in `to`.
    /// Of the latter, only those among `axes` count.
    fn are_independent(&self, from: &Tiling, to: &Tiling, axes: AxisSet) -> bool {
        (0..self.rank()).all(|dim| {
            let set = from.axes_of(dim).0 | (to.axes_of(dim).0 & axes.0);
            self.may_split(dim, AxisSet(set))
        })
    }
}

/// The splits of one tensor. A conversion asks for few of the many sets of axes.
struct TensorSplits<'a> {
    mesh: &'a Mesh,
    shape: Shape,
}

impl Splits for TensorSplits<'_> {
    fn n_axes(&self) -> usize {
        self.mesh.n_axes()
    }

    fn rank(&self) -> usize {
        self.shape.len()
    }

    fn may_split(&self, dim: usize, axes: AxisSet) -> bool {
        may_split(self.shape[dim], self.mesh, axes)
    }
}

/// A step of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConversionStep {
    pub(super) kind: CollectiveKind,
    pub(super) axes: AxisSet,
    pub(super) from: Tiling,
    pub(super) to: Tiling,
}

/// Returns the collectives that convert a tensor from one tiling to another, up to the division
/// along [`divided_axes`].
#[must_use]
pub fn route(
    mesh: &Mesh,
    shape: Shape,
    dtype: DType,
    combine: Combine,
    from: Tiling,
    to: Tiling,
) -> Vec<Collective> {
    if from == to {
        return Vec::new();
    }
    let splits = TensorSplits { mesh, shape };
    let collective = |it: ConversionStep| Collective {
        kind: it.kind,
        dtype,
        combine,
        axes: it.axes,
        shape,
        from: it.from,
        to: it.to,
        halo: Halo::NONE,
    };
    conversion_steps(&splits, from, to).into_iter().map(collective).collect()
}

/// Returns the exchange after which each rank has its part of a tensor with a halo; `None` if the
/// halo is empty. Outside the tensor, the halo holds the identity of `outside`.
#[must_use]
pub fn halo_exchange(
    shape: Shape,
    dtype: DType,
    outside: Combine,
    tiling: Tiling,
    halo: Halo,
) -> Option<Collective> {
    let axes = halo.axes(&Tile::new(shape, tiling));
    let kind = CollectiveKind::HaloExchange;
    let (from, to, combine) = (tiling, tiling, outside);
    (!halo.is_none()).then_some(Collective { kind, dtype, combine, axes, shape, from, to, halo })
}

/// Returns the axes along which a tensor becomes a partial sum. It is replicated along them, and
/// then divided among the ranks.
pub(crate) fn divided_axes(from: Tiling, to: Tiling) -> AxisSet {
    to.partial_axes().iter().filter(|&axis| from.on(axis) != Placement::Partial).collect()
}

/// Returns the steps from one tiling to another, up to the division along [`divided_axes`].
pub(super) fn conversion_steps(
    splits: &dyn Splits,
    from: Tiling,
    to: Tiling,
) -> Vec<ConversionStep> {
    let replicated = |to: Tiling, axis| to.with(axis, Placement::Replicated);
    let to = divided_axes(from, to).iter().fold(to, replicated);
    if from == to {
        return Vec::new();
    }
    direct(splits, from, to).unwrap_or_else(|| through_replication(splits, from, to))
}

/// A conversion under construction.
struct RouteBuilder<'a> {
    splits: &'a dyn Splits,
    here: Tiling,
    changes: Vec<ConversionStep>,
}

impl RouteBuilder<'_> {
    /// Changes the placement on these axes; `None` if the result is no legal tiling.
    fn change(
        &mut self,
        kind: CollectiveKind,
        axes: AxisSet,
        place: impl Fn(usize) -> Placement,
    ) -> Option<()> {
        if axes.is_empty() {
            return Some(());
        }
        let to = axes.iter().fold(self.here, |tiling, axis| tiling.with(axis, place(axis)));
        if !self.splits.are_legal(&to) {
            return None;
        }
        self.changes.push(ConversionStep { kind, axes, from: self.here, to });
        self.here = to;
        Some(())
    }
}

/// Returns the cheapest steps, or `None` if an extent has too few factors for a tiling on the way.
fn direct(splits: &dyn Splits, from: Tiling, to: Tiling) -> Option<Vec<ConversionStep>> {
    use Placement::{Partial, Replicated, Split};
    let [mut sliced, mut scattered, mut summed, mut exchanged, mut gathered] = [AxisSet::EMPTY; 5];
    for axis in 0..splits.n_axes() {
        let set = match (from.on(axis), to.on(axis)) {
            (Replicated, Split(_)) => &mut sliced,
            (Partial, Split(_)) => &mut scattered,
            (Partial, Replicated) => &mut summed,
            (Split(i), Split(j)) if i != j => &mut exchanged,
            (Split(_), Replicated) => &mut gathered,
            (Replicated | Split(_) | Partial, _) => continue,
        };
        *set = set.with(axis);
    }
    let mut route = RouteBuilder { splits, here: from, changes: Vec::new() };
    let target = |axis| to.on(axis);
    route.change(CollectiveKind::Slice, sliced, target)?;
    // Around an all-to-all, sums stay scattered, so that it moves less.
    let halfway = if exchanged.is_empty() || summed.is_empty() {
        None
    } else {
        scatter_dims(splits, &route.here, &to, summed, scattered, exchanged)
    };
    let Some(halfway) = halfway else {
        route.change(CollectiveKind::ReduceScatter, scattered, target)?;
        route.change(CollectiveKind::AllReduce, summed, target)?;
        exchange(&mut route, exchanged, to)?;
        route.change(CollectiveKind::AllGather, gathered, target)?;
        return Some(route.changes);
    };
    let both: AxisSet = AxisSet(scattered.0 | summed.0);
    route.change(CollectiveKind::ReduceScatter, both, |axis| halfway.on(axis))?;
    exchange(&mut route, exchanged, to)?;
    route.change(CollectiveKind::AllGather, AxisSet(gathered.0 | summed.0), target)?;
    Some(route.changes)
}

/// Adds an all-to-all; `None` if the splits before and after overlap, because ranks would have to
/// exchange unequal parts.
fn exchange(route: &mut RouteBuilder<'_>, axes: AxisSet, to: Tiling) -> Option<()> {
    if !route.splits.are_independent(&route.here, &to, axes) {
        return None;
    }
    route.change(CollectiveKind::AllToAll, axes, |axis| to.on(axis))
}

/// Returns a legal tiling during an all-to-all in which some dim is split along the axes of sums
/// that end replicated.
fn scatter_dims(
    splits: &dyn Splits,
    here: &Tiling,
    to: &Tiling,
    summed: AxisSet,
    scattered: AxisSet,
    exchanged: AxisSet,
) -> Option<Tiling> {
    let halfway = scattered.iter().fold(*here, |tiling, axis| tiling.with(axis, to.on(axis)));
    (0..splits.rank()).find_map(|dim| {
        let dim = u8::try_from(dim).expect("ranks are small");
        let tiling =
            summed.iter().fold(halfway, |tiling, axis| tiling.with(axis, Placement::Split(dim)));
        let after = exchanged.iter().fold(tiling, |tiling, axis| tiling.with(axis, to.on(axis)));
        let is_possible = splits.are_legal(&tiling)
            && splits.are_legal(&after)
            && splits.are_independent(&tiling, &after, exchanged);
        is_possible.then_some(tiling)
    })
}

/// Returns the steps that always work: everything that changes is replicated first, then sliced.
fn through_replication(splits: &dyn Splits, from: Tiling, to: Tiling) -> Vec<ConversionStep> {
    let axes = |condition: &dyn Fn(Placement, Placement) -> bool| -> AxisSet {
        (0..splits.n_axes())
            .filter(|&axis| from.on(axis) != to.on(axis) && condition(from.on(axis), to.on(axis)))
            .collect()
    };
    let mut route = RouteBuilder { splits, here: from, changes: Vec::new() };
    let replicated = |_| Placement::Replicated;
    let partial = axes(&|from, _| from == Placement::Partial);
    let split = axes(&|from, _| matches!(from, Placement::Split(_)));
    let sliced = axes(&|_, to| matches!(to, Placement::Split(_)));
    let steps = [(CollectiveKind::AllReduce, partial), (CollectiveKind::AllGather, split)];
    for (kind, axes) in steps {
        route.change(kind, axes, replicated).expect("fewer splits of a legal tiling are legal");
    }
    route.change(CollectiveKind::Slice, sliced, |axis| to.on(axis)).expect("the target is legal");
    route.changes
}
