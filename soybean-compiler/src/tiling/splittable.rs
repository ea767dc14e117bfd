//! The legal partitionings of operators on a mesh.

use std::{collections::BTreeMap, sync::Arc};

use soybean_plan::{AxisSet, Mesh, carried_axes, splitting_sets};

use super::resolution::Resolution;
use crate::signature::{FactorId, Partitioning, Signature, factor_id};

/// The conditions under which several ranks may compute the same elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Redundancy {
    /// Only if no factor can be split along an axis.
    Unavoidable,
    /// Wherever that saves bytes: the work is negligible.
    Free,
}

/// The sets of axes that can split an extent, computed once for each extent.
#[derive(Debug)]
pub(super) struct SplittingSets {
    mesh: Mesh,
    known: BTreeMap<usize, Arc<[bool]>>,
}

impl SplittingSets {
    pub(super) fn new(mesh: &Mesh) -> Self {
        Self { mesh: *mesh, known: BTreeMap::new() }
    }

    /// Returns a mark for each set of axes, indexed by its bit mask.
    pub(super) fn of(&mut self, extent: usize) -> Arc<[bool]> {
        let mesh = &self.mesh;
        Arc::clone(self.known.entry(extent).or_insert_with(|| splitting_sets(extent, mesh).into()))
    }
}

/// For each factor of an operator, the sets of axes that can split it in all dims that carry it.
#[derive(Clone, Debug)]
pub(super) struct SplittableFactors(Vec<Vec<bool>>);

impl SplittableFactors {
    pub(super) fn new(signature: &Signature, sets: &mut SplittingSets) -> Self {
        let mut of_factor = |factor: usize| -> Vec<bool> {
            let extent = signature.factors[factor];
            let all = (0..sets.mesh.n_axes()).collect::<AxisSet>().0;
            let dims = signature.operands.iter().chain([&signature.result]).flatten();
            let carried = dims
                .filter(|dim| dim.factor == Some(factor_id(factor)) && dim.extent != extent)
                .fold(all, |axes, dim| axes & carried_axes(extent, dim.extent, &sets.mesh).0);
            let sets = sets.of(extent);
            (0..sets.len()).map(|mask| sets[mask] && mask & !(carried as usize) == 0).collect()
        };
        Self((0..signature.factors.len()).map(&mut of_factor).collect())
    }

    /// Returns the same without splits of needless factors.
    pub(super) fn without(mut self, is_needless: &[bool]) -> Self {
        for (marks, _) in self.0.iter_mut().zip(is_needless).filter(|(_, needless)| **needless) {
            marks[1..].fill(false);
        }
        self
    }

    /// Returns whether this factor can be split along these axes.
    pub(super) fn may_split(&self, factor: FactorId, axes: AxisSet) -> bool {
        self.0[factor as usize][axes.0 as usize]
    }

    fn at_resolution(&self, see: impl Fn(&[bool]) -> Vec<bool>) -> Self {
        Self(self.0.iter().map(|marks| see(marks)).collect())
    }
}

/// Returns the legal partitionings at a resolution, one for each orbit with a legal member.
pub(super) fn enumerate_partitionings(
    splittable: &SplittableFactors,
    resolution: &Resolution,
    mesh: &Mesh,
    redundancy: Redundancy,
) -> Vec<Partitioning> {
    let possible = splittable.at_resolution(|marks| resolution.possible(marks));
    let certain = splittable.at_resolution(|marks| resolution.certain(marks));
    let n_factors = splittable.0.len();
    let mut partitionings = vec![Partitioning(vec![None; mesh.n_axes()])];
    for axis in 0..mesh.n_axes() {
        let before = resolution.before(axis);
        let extend = |partitioning: &Partitioning| {
            // Within a class, splits are in order: factors first, then none.
            let first = before.map_or(0, |it| partitioning.0[it].map_or(n_factors, usize::from));
            let factors = (first..n_factors).map(factor_id);
            let is_legal =
                |&it: &FactorId| possible.may_split(it, partitioning.axes_of(it).with(axis));
            let with = |choice| {
                let mut partitioning = partitioning.clone();
                partitioning.0[axis] = choice;
                partitioning
            };
            factors.filter(is_legal).map(Some).chain([None]).map(with).collect::<Vec<_>>()
        };
        partitionings = partitionings.iter().flat_map(extend).collect();
    }
    partitionings.retain(|it| {
        resolution.has_member(&it.0, &|factor, axes| splittable.may_split(factor, axes))
    });
    if redundancy == Redundancy::Unavoidable {
        let could_split = |partitioning: &Partitioning, axis: usize| {
            let may_split =
                |it: FactorId| certain.may_split(it, partitioning.axes_of(it).with(axis));
            partitioning.0[axis].is_none() && (0..n_factors).map(factor_id).any(may_split)
        };
        partitionings
            .retain(|partitioning| !(0..mesh.n_axes()).any(|axis| could_split(partitioning, axis)));
    }
    partitionings
}

/// Splits a factor along every axis that splits none, where that is possible.
pub(super) fn completed(
    splittable: &SplittableFactors,
    partitioning: &Partitioning,
) -> Partitioning {
    let mut partitioning = partitioning.clone();
    for axis in 0..partitioning.0.len() {
        let mut factors = (0..splittable.0.len()).map(factor_id);
        if partitioning.0[axis].is_none() {
            partitioning.0[axis] =
                factors.find(|&it| splittable.may_split(it, partitioning.axes_of(it).with(axis)));
        }
    }
    partitioning
}
