//! How finely a search tells the axes of a mesh apart.
//!
//! A mesh of ten axes gives a matrix 3^10 tilings, but few by *counts*: of the axes of a class (of one size) only the number placed in each way counts. A tiling
//! stands for all that are permutations of it, and a conversion costs what it costs between the two permutations that lie best. Each tensor and operator has
//! its best permutation for each of its neighbours, so no plan costs less than the best in counts; where the permutations can be chosen so that all
//! fit, that is the best plan.

use soybean_plan::{AxisSet, Mesh};

use crate::signature::{FactorId, Form};

/// How finely a search tells axes apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resolution {
    /// For each axis, its class among those whose order does not matter; none where all axes are told apart.
    classes: Option<Vec<usize>>,
}

impl Resolution {
    /// Every axis on its own.
    pub(super) const FINE: Self = Self { classes: None };

    /// OrbitCosts: the axes of each class are not told apart.
    pub(super) fn orbits(mesh: &Mesh, classes: &[AxisSet]) -> Self {
        let class_of = |axis: usize| {
            classes.iter().position(|it| it.contains(axis)).expect("every axis is of a class")
        };
        Self { classes: Some((0..mesh.n_axes()).map(class_of).collect()) }
    }

    /// Whether only counts matter.
    pub(super) fn is_by_orbits(&self) -> bool {
        self.classes.is_some()
    }

    /// The axis before this one in its class, whose choice must not come after this one's.
    pub(super) fn before(&self, axis: usize) -> Option<usize> {
        let classes = self.classes.as_ref()?;
        (0..axis).rev().find(|&it| classes[it] == classes[axis])
    }

    /// The classes of axes whose order does not matter.
    pub(super) fn classes(&self) -> Vec<AxisSet> {
        let Some(classes) = &self.classes else { return Vec::new() };
        let n_classes = classes.iter().max().map_or(0, |it| it + 1);
        (0..n_classes)
            .map(|class| (0..classes.len()).filter(|&axis| classes[axis] == class).collect())
            .collect()
    }

    /// The form that stands for this one: in each class its factors in order.
    pub(super) fn sorted(&self, form: &Form) -> Form {
        let mut sorted = form.clone();
        for class in self.classes() {
            let mut factors: Vec<Option<FactorId>> =
                class.iter().map(|axis| form.0[axis]).collect();
            factors.sort_unstable_by_key(|it| (it.is_none(), *it));
            class.iter().zip(factors).for_each(|(axis, factor)| sorted.0[axis] = factor);
        }
        sorted
    }

    /// Marks of sets of axes as this resolution sees them: in counts, a set has a mark if any permutation of it has one.
    pub(super) fn possible(&self, marks: &[bool]) -> Vec<bool> {
        self.spread(marks, true)
    }

    /// In counts, a set has a mark if every permutation of it has one.
    pub(super) fn certain(&self, marks: &[bool]) -> Vec<bool> {
        self.spread(marks, false)
    }

    /// Gives every set the mark `wanted` if any set with the same counts has it.
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
