//! Axis assignments of a label's orbit by blocks of axes, and neighborhoods of labels.

use std::collections::BTreeMap;

use soybean_plan::{AxisSet, Placement, Tiling};

use super::{
    conversion::Splits,
    problem::{Label, OperatorKind, TilingProblem, Variable},
    splittable::Redundancy,
};
use crate::signature::{Partitioning, TERMS};

/// The dim or factor that is split along an axis, or [`TERMS`], if there is one.
type AxisSplit = Option<u8>;

/// The most assignments of one label that are considered.
const MAX_ASSIGNMENTS: usize = 100;

impl TilingProblem<'_> {
    /// Returns the labels in the orbit of `like` in which all axes of a block split the same dim or
    /// factor; at most a hundred of them.
    pub(super) fn axis_assignments(
        &self,
        variable: usize,
        like: &Label,
        classes: &[AxisSet],
        blocks: &[AxisSet],
    ) -> Vec<Label> {
        let splits = like.splits();
        let mut assignments = vec![vec![None; splits.len()]];
        for class in classes {
            let mut left: BTreeMap<AxisSplit, usize> = BTreeMap::new();
            class.iter().for_each(|axis| *left.entry(splits[axis]).or_default() += 1);
            let of_class: Vec<AxisSet> =
                blocks.iter().copied().filter(|it| it.0 & class.0 != 0).collect();
            let mut all = Vec::new();
            for assignment in assignments {
                assign(&of_class, &mut left.clone(), assignment, &mut all);
            }
            assignments = all;
        }
        let labels = assignments.iter().map(|it| like.placed(it));
        labels.filter(|it| self.is_legal(variable, it)).take(MAX_ASSIGNMENTS).collect()
    }

    /// Returns this label and those that differ from it in the split of one block.
    pub(super) fn neighborhood(
        &self,
        variable: usize,
        label: &Label,
        blocks: &[AxisSet],
    ) -> Vec<Label> {
        let options: Vec<AxisSplit> = match self.variables[variable] {
            Variable::Tensor { tensor_kind, .. } => {
                self.tensor_kinds[tensor_kind].placements().map(split).collect()
            }
            Variable::Operator { operator_kind, .. } => {
                let OperatorKind { splittable, redundancy, .. } =
                    &self.operator_kinds[operator_kind];
                let may_idle = *redundancy == Redundancy::Free;
                splittable.choices().map(Some).chain(may_idle.then_some(None)).collect()
            }
        };
        let splits = label.splits();
        let mut neighbors = vec![label.clone()];
        for block in blocks {
            for &option in &options {
                let mut splits = splits.clone();
                block.iter().for_each(|axis| splits[axis] = option);
                neighbors.push(label.placed(&splits));
            }
        }
        neighbors.retain(|it| it == label || self.is_legal(variable, it));
        neighbors
    }

    /// Returns whether each dim or factor can be split along the axes that split it.
    fn is_legal(&self, variable: usize, label: &Label) -> bool {
        match (self.variables[variable], label) {
            (Variable::Tensor { tensor_kind, .. }, Label::Tensor(tiling)) => {
                self.tensor_kinds[tensor_kind].are_legal(tiling)
            }
            (Variable::Operator { operator_kind, .. }, Label::Operator(partitioning)) => {
                self.operator_kinds[operator_kind].splittable.are_legal(partitioning)
            }
            _ => unreachable!("a label is of the kind of its variable"),
        }
    }
}

/// Appends all ways to assign splits to the blocks; `left` is the number of axes left for each
/// split.
fn assign(
    blocks: &[AxisSet],
    left: &mut BTreeMap<AxisSplit, usize>,
    assignment: Vec<AxisSplit>,
    all: &mut Vec<Vec<AxisSplit>>,
) {
    let Some((block, others)) = blocks.split_first() else {
        all.push(assignment);
        return;
    };
    let size = block.0.count_ones() as usize;
    let open: Vec<AxisSplit> = left.iter().filter(|it| *it.1 >= size).map(|it| *it.0).collect();
    for option in open {
        let mut assignment = assignment.clone();
        block.iter().for_each(|axis| assignment[axis] = option);
        *left.entry(option).or_default() -= size;
        assign(others, left, assignment, all);
        *left.entry(option).or_default() += size;
    }
}

fn split(placement: Placement) -> AxisSplit {
    match placement {
        Placement::Split(dim) => Some(dim),
        Placement::Partial => Some(TERMS),
        Placement::Replicated => None,
    }
}

impl Label {
    /// Returns the split of each axis.
    pub(super) fn splits(&self) -> Vec<AxisSplit> {
        match self {
            Self::Tensor(tiling) => tiling.placements().iter().copied().map(split).collect(),
            Self::Operator(partitioning) => partitioning.0.clone(),
        }
    }

    /// Returns a label of the same kind with these splits.
    fn placed(&self, splits: &[AxisSplit]) -> Self {
        match self {
            Self::Tensor(tiling) => {
                let placement = |split: AxisSplit| match split {
                    None => Placement::Replicated,
                    Some(TERMS) => Placement::Partial,
                    Some(dim) => Placement::Split(dim),
                };
                let all = splits.iter().enumerate();
                Self::Tensor(all.fold(*tiling, |tiling: Tiling, (axis, &split)| {
                    tiling.with(axis, placement(split))
                }))
            }
            Self::Operator(_) => Self::Operator(Partitioning(splits.to_vec())),
        }
    }
}
