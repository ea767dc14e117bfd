//! Resolutions: single axes, or orbits of axes.
//!
//! On a mesh of ten axes a matrix has 3^10 tilings, but few *orbits*. Within a symmetry class of
//! axes, only the number of axes with each placement matters. A representative stands for all
//! tilings of its orbit. A conversion between orbits costs what it costs between their closest
//! members. So every tensor and operator has its best permutation for each of its neighbors. Hence
//! the least cost over orbits is a lower bound of all plans. If the permutations can be chosen
//! consistently, that plan is optimal.

use std::collections::BTreeMap;

use soybean_plan::{AxisSet, Mesh};

use crate::signature::{FactorId, Partitioning};

/// The resolution of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resolution {
    /// The symmetry class of each axis; `None` if every axis is on its own.
    classes: Option<Vec<usize>>,
}

impl Resolution {
    /// Every axis on its own.
    pub(super) const FINE: Self = Self { classes: None };

    /// Returns the resolution by orbits for these symmetry classes.
    pub(super) fn orbits(mesh: &Mesh, classes: &[AxisSet]) -> Self {
        let class_of = |axis: usize| {
            classes.iter().position(|it| it.contains(axis)).expect("every axis is of a class")
        };
        Self { classes: Some((0..mesh.n_axes()).map(class_of).collect()) }
    }

    /// Returns whether labels stand for orbits.
    pub(super) fn is_by_orbits(&self) -> bool {
        self.classes.is_some()
    }

    /// Returns the previous axis of the same class. In a representative, its placement must not
    /// come after that of this axis.
    pub(super) fn before(&self, axis: usize) -> Option<usize> {
        let classes = self.classes.as_ref()?;
        (0..axis).rev().find(|&it| classes[it] == classes[axis])
    }

    /// Returns the symmetry classes.
    pub(super) fn classes(&self) -> Vec<AxisSet> {
        let Some(classes) = &self.classes else { return Vec::new() };
        let n_classes = classes.iter().max().map_or(0, |it| it + 1);
        (0..n_classes)
            .map(|class| (0..classes.len()).filter(|&axis| classes[axis] == class).collect())
            .collect()
    }

    /// Returns the representative of a partitioning's orbit: in each class, its factors in order.
    pub(super) fn sorted(&self, partitioning: &Partitioning) -> Partitioning {
        let mut sorted = partitioning.clone();
        for class in self.classes() {
            let mut factors: Vec<Option<FactorId>> =
                class.iter().map(|axis| partitioning.0[axis]).collect();
            factors.sort_unstable_by_key(|it| (it.is_none(), *it));
            class.iter().zip(factors).for_each(|(axis, factor)| sorted.0[axis] = factor);
        }
        sorted
    }

    /// Returns whether an orbit has a legal member, given the splits of its representative. Each
    /// dim may be split alone, but several may need the same axes.
    pub(super) fn has_member(
        &self,
        splits: &[Option<FactorId>],
        may_split: &dyn Fn(FactorId, AxisSet) -> bool,
    ) -> bool {
        let Some(classes) = &self.classes else { return true };
        let mut left = BTreeMap::new();
        for split in classes.iter().copied().zip(splits.iter().copied()) {
            *left.entry(split).or_default() += 1;
        }
        Placing { classes, may_split, left, sets: BTreeMap::new() }.can_place_from(0)
    }

    /// Returns the marks of sets of axes at this resolution: an orbit has a mark if any of its sets
    /// has one.
    pub(super) fn possible(&self, marks: &[bool]) -> Vec<bool> {
        self.spread(marks, true)
    }

    /// Returns marks of which an orbit has one if all of its sets have one.
    pub(super) fn certain(&self, marks: &[bool]) -> Vec<bool> {
        self.spread(marks, false)
    }

    /// Gives all sets of an orbit the mark `wanted` if one of them has it.
    fn spread(&self, marks: &[bool], wanted: bool) -> Vec<bool> {
        if !self.is_by_orbits() || marks.iter().all(|it| *it) {
            return marks.to_vec();
        }
        let classes = self.classes();
        let counts = |mask: usize| -> usize {
            let mut code = 0;
            for class in &classes {
                let n = (mask & class.0 as usize).count_ones() as usize;
                code = code * (class.0.count_ones() as usize + 1) + n;
            }
            code
        };
        let n_codes = classes.iter().map(|it| it.0.count_ones() as usize + 1).product();
        let mut spread = vec![!wanted; n_codes];
        for (mask, &mark) in marks.iter().enumerate() {
            if mark == wanted {
                spread[counts(mask)] = wanted;
            }
        }
        (0..marks.len()).map(|mask| spread[counts(mask)]).collect()
    }
}

/// The search for a member of an orbit.
struct Placing<'a> {
    classes: &'a [usize],
    may_split: &'a dyn Fn(FactorId, AxisSet) -> bool,
    /// The number of axes of each class that are left for each split.
    left: BTreeMap<(usize, Option<FactorId>), usize>,
    /// The axes that split each dim or factor so far.
    sets: BTreeMap<FactorId, AxisSet>,
}

impl Placing<'_> {
    /// Returns whether the axes from this one on can be given the splits that are left.
    fn can_place_from(&mut self, axis: usize) -> bool {
        let Some(&class) = self.classes.get(axis) else { return true };
        let is_open = |it: &(&(usize, Option<FactorId>), &usize)| it.0.0 == class && *it.1 > 0;
        let open: Vec<Option<FactorId>> =
            self.left.iter().filter(is_open).map(|(&(_, split), _)| split).collect();
        open.into_iter().rev().any(|split| self.can_place(axis, class, split))
    }

    fn can_place(&mut self, axis: usize, class: usize, split: Option<FactorId>) -> bool {
        let before = split.map(|it| self.sets.get(&it).copied().unwrap_or(AxisSet::EMPTY));
        if let (Some(split), Some(before)) = (split, before) {
            // A legal set without its last axis is legal.
            if !(self.may_split)(split, before.with(axis)) {
                return false;
            }
            self.sets.insert(split, before.with(axis));
        }
        *self.left.entry((class, split)).or_default() -= 1;
        let can_place = self.can_place_from(axis + 1);
        *self.left.entry((class, split)).or_default() += 1;
        if let (Some(split), Some(before)) = (split, before) {
            self.sets.insert(split, before);
        }
        can_place
    }
}
