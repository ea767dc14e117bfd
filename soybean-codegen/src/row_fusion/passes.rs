//! The passes over a row: a stage runs once the combined values that it reads are complete.

use std::collections::BTreeSet;

use soybean_plan::{Instruction, RowFusion, RowStageForm, ScalarProgram};

use super::{layout::Residence, online::OnlineSum};

/// The stages of each pass.
pub(super) struct Passes {
    /// The number of passes. The last one stores results at points.
    pub(super) n: usize,
    /// The pass of each stage. One for whole rows runs before the loop of its pass.
    pub(super) of_stage: Vec<usize>,
    /// Sums that are combined in the pass of the maximum that they read.
    pub(super) online: Vec<OnlineSum>,
}

/// The work of a pass at each point.
pub(super) struct Work {
    /// The inputs that are read.
    pub(super) loads: Vec<usize>,
    /// The stages at points.
    pub(super) points: Vec<usize>,
    /// The stages that are combined, without sums that are computed with their maximum.
    pub(super) combined: Vec<usize>,
}

impl Passes {
    pub(super) fn new(fusion: &RowFusion, online: Vec<OnlineSum>) -> Self {
        let mut of_stage: Vec<usize> = Vec::new();
        for (number, stage) in fusion.stages.iter().enumerate() {
            let after = |operand: usize| {
                let is_combined = fusion.stages[operand].form.combine().is_some();
                of_stage[operand] + usize::from(is_combined)
            };
            let with_maximum = online.iter().find(|it| it.sum == number);
            of_stage.push(match with_maximum {
                Some(online) => of_stage[online.max],
                None => operands(fusion, &stage.program).1.map(after).max().unwrap_or(0),
            });
        }
        let counts = |it: &usize| match fusion.stages[*it].form {
            RowStageForm::Point => fusion.stages[*it].is_stored,
            RowStageForm::Row => false,
            RowStageForm::Sum | RowStageForm::Max => true,
        };
        let last = (0..of_stage.len()).filter(counts).map(|it| of_stage[it]).max();
        Self { n: last.map_or(0, |it| it + 1), of_stage, online }
    }

    /// Returns the stages that are combined in a pass.
    pub(super) fn combined<'a>(
        &'a self,
        fusion: &'a RowFusion,
        pass: usize,
    ) -> impl Iterator<Item = usize> + 'a {
        let of_pass = (0..self.of_stage.len()).filter(move |it| self.of_stage[*it] == pass);
        of_pass.filter(|it| fusion.stages[*it].form.combine().is_some())
    }

    /// Returns the work of a pass. Where a row is in registers, what earlier passes loaded and
    /// computed is still there.
    pub(super) fn work(&self, fusion: &RowFusion, pass: usize, residence: Residence) -> Work {
        let is_online = |it: &usize| self.online.iter().any(|online| online.sum == *it);
        let combined: Vec<usize> =
            self.combined(fusion, pass).filter(|it| !is_online(it)).collect();
        let known = match residence {
            Residence::Registers { .. } => (0..pass).map(|it| self.needed(fusion, it)).collect(),
            Residence::Memory { .. } => Vec::new(),
        };
        let (mut loads, mut points) = self.needed(fusion, pass);
        for (loaded, computed) in known {
            loads.retain(|it| !loaded.contains(it));
            points.retain(|it| !computed.contains(it));
        }
        Work { loads: loads.into_iter().collect(), points: points.into_iter().collect(), combined }
    }

    /// Returns the inputs and the stages at points that a pass needs.
    fn needed(&self, fusion: &RowFusion, pass: usize) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let is_online = |it: &usize| self.online.iter().any(|online| online.sum == *it);
        let mut open: Vec<usize> =
            self.combined(fusion, pass).filter(|it| !is_online(it)).collect();
        let (mut loads, mut points) = (BTreeSet::new(), BTreeSet::new());
        if pass + 1 == self.n {
            let is_point = |it: &usize| fusion.stages[*it].form == RowStageForm::Point;
            let stored: Vec<usize> = fusion.stored().filter(is_point).collect();
            points.extend(&stored);
            open.extend(stored);
        }
        while let Some(stage) = open.pop() {
            let (inputs, stages) = operands(fusion, &fusion.stages[stage].program);
            loads.extend(inputs);
            for operand in stages {
                let is_point = fusion.stages[operand].form == RowStageForm::Point;
                if is_point && points.insert(operand) {
                    open.push(operand);
                }
            }
        }
        (loads, points)
    }
}

/// Returns the inputs and the stages that a program reads.
fn operands<'a>(
    fusion: &'a RowFusion,
    program: &'a ScalarProgram,
) -> (impl Iterator<Item = usize> + 'a, impl Iterator<Item = usize> + 'a) {
    let n_inputs = fusion.inputs.len();
    let numbers = || {
        program.instructions.iter().filter_map(|it| match *it {
            Instruction::Input(number) | Instruction::Integer(number) => Some(usize::from(number)),
            Instruction::Scalar(_)
            | Instruction::Constant(_)
            | Instruction::IntegerConstant(_)
            | Instruction::Unary(..)
            | Instruction::Binary(..)
            | Instruction::Select(..) => None,
        })
    };
    let inputs = numbers().filter(move |it| *it < n_inputs);
    (inputs, numbers().filter_map(move |it| it.checked_sub(n_inputs)))
}
