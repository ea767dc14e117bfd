//! Resolutions: single axes, or orbits of axes.
//!
//! On a mesh of ten axes a matrix has 3^10 tilings, but few *orbits*. Within a symmetry class of
//! axes, only the number of axes with each placement matters. A representative stands for all
//! tilings of its orbit. A conversion between orbits costs what it costs between their closest
//! members. So every tensor and operator has its best permutation for each of its neighbours. Hence
//! the least cost over orbits is a lower bound of all plans. If the permutations can be chosen
//! consistently, that plan is optimal.

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
