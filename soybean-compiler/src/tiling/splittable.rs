//! The legal partitionings of operators on a mesh.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use soybean_plan::{AxisSet, Mesh, carried_axes, splits_into_blocks, splitting_sets};

use super::resolution::Resolution;
use crate::signature::{FactorId, Partitioning, Signature, factor_id, set_of_terms};

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
    /// The sets that split an extent into blocks.
    of_blocks: BTreeMap<usize, Arc<[bool]>>,
}

impl SplittingSets {
    pub(super) fn new(mesh: &Mesh) -> Self {
        Self { mesh: *mesh, known: BTreeMap::new(), of_blocks: BTreeMap::new() }
    }

    /// Returns a mark for each set of axes, indexed by its bit mask.
    pub(super) fn of(&mut self, extent: usize) -> Arc<[bool]> {
        let mesh = &self.mesh;
        Arc::clone(self.known.entry(extent).or_insert_with(|| splitting_sets(extent, mesh).into()))
    }

    /// Returns a mark for each set of axes that splits this extent into blocks.
    #[expect(clippy::cast_possible_truncation, reason = "a mesh has at most 16 axes")]
    fn of_blocks(&mut self, extent: usize) -> Arc<[bool]> {
        let mesh = &self.mesh;
        let marks = || {
            let mut marks = vec![true; 1 << mesh.n_axes()];
            for mask in 1..marks.len() {
                // The set without its last axis must split into blocks, too.
                marks[mask] = marks[mask & !(1 << mask.ilog2())]
                    && splits_into_blocks(extent, mesh, AxisSet(mask as u16));
            }
            marks.into()
        };
        Arc::clone(self.of_blocks.entry(extent).or_insert_with(marks))
    }
}

/// For each factor of an operator, the sets of axes that can split it in all dims that carry it.
#[derive(Clone, Debug)]
pub(super) struct SplittableFactors {
    of_factors: Vec<Vec<bool>>,
    /// The terms on which the operator may work, along any axes, in increasing order.
    terms: Vec<FactorId>,
}

impl SplittableFactors {
    pub(super) fn new(signature: &Signature, sets: &mut SplittingSets) -> Self {
        let mut of_factor = |factor: usize| -> Vec<bool> {
            let extent = signature.factors[factor];
            let all = (0..sets.mesh.n_axes()).collect::<AxisSet>().0;
            let dims = || signature.dims_of(factor_id(factor));
            let carried = dims().filter(|dim| dim.extent != extent).fold(all, |axes, dim| {
                axes & carried_axes(extent, dim.extent, dim.place, &sets.mesh).0
            });
            let with_halo: BTreeSet<usize> =
                dims().filter(|dim| dim.has_halo()).map(|dim| dim.extent).collect();
            let blocks: Vec<_> = with_halo.into_iter().map(|it| sets.of_blocks(it)).collect();
            let sets = sets.of(extent);
            let is_legal = |mask: usize| {
                sets[mask] && mask & !(carried as usize) == 0 && blocks.iter().all(|it| it[mask])
            };
            (0..sets.len()).map(is_legal).collect()
        };
        let of_factors = (0..signature.factors.len()).map(&mut of_factor).collect();
        Self { of_factors, terms: Vec::new() }
    }

    /// Returns the same without splits of needless factors.
    pub(super) fn without(mut self, is_needless: &[bool]) -> Self {
        let of_factors = self.of_factors.iter_mut().zip(is_needless);
        for (marks, _) in of_factors.filter(|(_, needless)| **needless) {
            marks[1..].fill(false);
        }
        self
    }

    /// Returns the same for an operator that may work on these terms, in increasing order.
    pub(super) fn with_terms(self, terms: &[FactorId]) -> Self {
        Self { terms: terms.to_vec(), ..self }
    }

    pub(super) fn terms(&self) -> &[FactorId] {
        &self.terms
    }

    /// Returns all factors.
    pub(super) fn factors(&self) -> impl Iterator<Item = FactorId> + use<> {
        (0..self.of_factors.len()).map(factor_id)
    }

    /// Returns all factors, and the terms on which the operator may work.
    pub(super) fn choices(&self) -> impl Iterator<Item = FactorId> + use<'_> {
        self.factors().chain(self.terms.iter().copied())
    }

    /// Returns whether this factor can be split along these axes.
    pub(super) fn may_split(&self, factor: FactorId, axes: AxisSet) -> bool {
        match set_of_terms(factor) {
            Some(_) => self.terms.contains(&factor),
            None => self.of_factors[factor as usize][axes.0 as usize],
        }
    }

    /// Returns whether each factor can be split along all axes that split it.
    pub(super) fn are_legal(&self, partitioning: &Partitioning) -> bool {
        self.factors().all(|it| self.may_split(it, partitioning.axes_of(it)))
    }

    fn at_resolution(&self, see: impl Fn(&[bool]) -> Vec<bool>) -> Self {
        let of_factors = self.of_factors.iter().map(|marks| see(marks)).collect();
        Self { of_factors, terms: self.terms.clone() }
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
    let mut partitionings = vec![Partitioning(vec![None; mesh.n_axes()])];
    for axis in 0..mesh.n_axes() {
        let before = resolution.before(axis);
        let extend = |partitioning: &Partitioning| {
            // Within a class, splits are in order: factors first, then terms, then none.
            let is_in_order = |&it: &FactorId| {
                before.is_none_or(|at| partitioning.0[at].is_some_and(|of| of <= it))
            };
            let is_legal =
                |&it: &FactorId| possible.may_split(it, partitioning.axes_of(it).with(axis));
            let with = |choice| {
                let mut partitioning = partitioning.clone();
                partitioning.0[axis] = choice;
                partitioning
            };
            let choices = splittable.choices().filter(is_in_order).filter(is_legal);
            choices.map(Some).chain([None]).map(with).collect::<Vec<_>>()
        };
        partitionings = partitionings.iter().flat_map(extend).collect();
    }
    if redundancy == Redundancy::Unavoidable {
        let could_split = |partitioning: &Partitioning, axis: usize| {
            let may_split =
                |it: FactorId| certain.may_split(it, partitioning.axes_of(it).with(axis));
            partitioning.0[axis].is_none() && splittable.factors().any(may_split)
        };
        partitionings
            .retain(|partitioning| !(0..mesh.n_axes()).any(|axis| could_split(partitioning, axis)));
    }
    // This takes the longest, so it comes last.
    partitionings.retain(|it| {
        splittable.are_legal(it)
            || resolution.has_member(&it.0, &|factor, axes| splittable.may_split(factor, axes))
    });
    partitionings
}

/// Splits a factor along every axis that splits none, where that is possible.
pub(super) fn completed(
    splittable: &SplittableFactors,
    partitioning: &Partitioning,
) -> Partitioning {
    let mut partitioning = partitioning.clone();
    for axis in 0..partitioning.0.len() {
        let mut factors = splittable.factors();
        if partitioning.0[axis].is_none() {
            partitioning.0[axis] =
                factors.find(|&it| splittable.may_split(it, partitioning.axes_of(it).with(axis)));
        }
    }
    partitioning
}
