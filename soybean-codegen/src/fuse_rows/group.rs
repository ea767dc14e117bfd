//! Groups of steps along the same rows, and their kernel.

use soybean_plan::{
    BufferId, Instruction, Kernel, RowFusion, RowStage, RowStageForm, ScalarProgram, Strides,
    overlaps,
};

use super::row_space::RowSpace;
use crate::memory::Memory;

/// The most operands and stages of a kernel.
const MOST_VALUES: usize = 64;

/// Steps along the same rows, in the order of the phase.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) space: RowSpace,
    pub(super) members: Vec<usize>,
}

/// The kernel of a group, and its place among the steps.
pub(super) struct Fused {
    pub(super) kernel: RowFusion,
    pub(super) inputs: Vec<BufferId>,
    pub(super) results: Vec<BufferId>,
    /// The step before which the kernel runs.
    pub(super) place: usize,
}

/// A tensor that a group reads but does not compute.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Operand {
    buffer: BufferId,
    strides: Strides,
    is_integer: bool,
}

/// A member, with what each input of its program reads.
struct Stage<'a> {
    step: usize,
    form: RowStageForm,
    program: &'a ScalarProgram,
    sources: Vec<Source>,
    is_stored: bool,
}

/// The source of an input of a member's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// An operand of the group.
    Operand(usize),
    /// The value of another member.
    Stage(usize),
}

impl Group {
    pub(super) fn with(&self, step: usize) -> Self {
        let mut members = self.members.clone();
        members.push(step);
        members.sort_unstable();
        Self { space: self.space, members }
    }

    /// Returns true if a step reads what a member computes, computes what a member reads, or reads
    /// the same tensor of many rows.
    pub(super) fn is_connected(
        &self,
        step: usize,
        memory: &Memory<'_>,
        kernels: &[Kernel],
    ) -> bool {
        let reads = |reader: usize, writer: usize| {
            let result = memory.steps[writer].results.first();
            memory.steps[reader]
                .inputs
                .iter()
                .any(|it| Some(it) == result && memory.writer(*it, writer..reader) == Some(writer))
        };
        let large = |step: usize| {
            let map = RowSpace::map(&kernels[memory.steps[step].kernel]);
            let strides = map.map_or(&[][..], |it| &it.inputs[..]).iter();
            let both = memory.steps[step].inputs.iter().zip(strides);
            both.filter(|it| self.space.is_large(it.1)).map(|it| *it.0)
        };
        self.members.iter().any(|&member| {
            reads(step, member)
                || reads(member, step)
                || large(step).any(|one| large(member).any(|other| one == other))
        })
    }

    /// Returns the kernel of the group, if there is a place at which it computes the same.
    pub(super) fn fused(&self, memory: &Memory<'_>, kernels: &[Kernel]) -> Option<Fused> {
        let (operands, stages) = self.stages(memory, kernels)?;
        if operands.len() + stages.len() > MOST_VALUES {
            return None;
        }
        let stored: Vec<&Stage<'_>> = stages.iter().filter(|it| it.is_stored).collect();
        let results: Vec<BufferId> =
            stored.iter().map(|it| memory.steps[it.step].results[0]).collect();
        if !self.may_share_memory(&operands, &stored, memory) {
            return None;
        }
        let place = self.place(memory, &operands, &stages)?;
        let stage = |it: &Stage<'_>| RowStage {
            form: it.form,
            program: renumbered(it.program, &it.sources, operands.len()),
            is_stored: it.is_stored,
        };
        let kernel = RowFusion {
            extents: self.space.extents,
            n_row_dims: self.space.n_row_dims,
            inputs: operands.iter().map(|it| it.strides).collect(),
            stages: stages.iter().map(stage).collect(),
        };
        Some(Fused {
            kernel,
            inputs: operands.iter().map(|it| it.buffer).collect(),
            results,
            place,
        })
    }

    /// Returns the operands and the stages, if each value of a member is read where its reader
    /// needs it.
    fn stages<'a>(
        &self,
        memory: &Memory<'_>,
        kernels: &'a [Kernel],
    ) -> Option<(Vec<Operand>, Vec<Stage<'a>>)> {
        let (mut operands, mut stages): (Vec<Operand>, Vec<Stage<'a>>) = (Vec::new(), Vec::new());
        for &at in &self.members {
            let step = &memory.steps[at];
            let form = self.space.form(step, kernels, memory.tables)?;
            let map = RowSpace::map(&kernels[step.kernel])?;
            let mut sources = Vec::new();
            for (number, (&buffer, strides)) in
                step.inputs.iter().zip(map.inputs.iter()).enumerate()
            {
                let strides = self.space.strides(strides, form);
                let is_integer = map.program.reads_integers(number);
                let writer = memory.writer(buffer, self.members[0]..at);
                if writer.is_some_and(|it| !memory.covers(it, buffer)) {
                    return None;
                }
                let stage = stages.iter().position(|it| Some(it.step) == writer);
                if let Some(stage) = stage {
                    let Stage { step, form: of, .. } = stages[stage];
                    let is_same = memory.steps[step].results[0] == buffer;
                    if !is_same || is_integer || strides != self.space.of_values(of) {
                        return None;
                    }
                    sources.push(Source::Stage(stage));
                    continue;
                }
                let operand = Operand { buffer, strides, is_integer };
                let known = operands.iter().position(|it| *it == operand);
                sources.push(Source::Operand(known.unwrap_or(operands.len())));
                if known.is_none() {
                    operands.push(operand);
                }
            }
            let is_stored = memory.is_needed(&self.members, at, step.results[0]);
            stages.push(Stage { step: at, form, program: &map.program, sources, is_stored });
        }
        Some((operands, stages))
    }

    /// Returns true if no result shares memory with another, and with operands only element by
    /// element.
    fn may_share_memory(
        &self,
        operands: &[Operand],
        stored: &[&Stage<'_>],
        memory: &Memory<'_>,
    ) -> bool {
        let tables = memory.tables;
        let dense = self.space.of_values(RowStageForm::Point);
        let result = |stage: &Stage<'_>| memory.steps[stage.step].results[0];
        stored.iter().enumerate().all(|(number, stage)| {
            let range = tables.range(result(stage));
            let is_in_place = |operand: &Operand| {
                tables.buffers[operand.buffer] == tables.buffers[result(stage)]
                    && operand.strides == dense
                    && stage.form == RowStageForm::Point
            };
            let is_apart = |other: BufferId| !overlaps(&range, &tables.range(other));
            stored[..number].iter().all(|other| is_apart(result(other)))
                && operands.iter().all(|it| is_apart(it.buffer) || is_in_place(it))
        })
    }

    /// Returns the first place between the members at which their operands are valid and the bytes
    /// of their results are unused.
    fn place(
        &self,
        memory: &Memory<'_>,
        operands: &[Operand],
        stages: &[Stage<'_>],
    ) -> Option<usize> {
        let tables = memory.tables;
        let (first, last) = (self.members[0], self.members[self.members.len() - 1]);
        let is_free = |place: &usize| {
            stages.iter().all(|stage| {
                // The steps that run before the member, and after it in the new order, or reversed.
                let crossed =
                    if stage.step < *place { stage.step + 1..*place } else { *place..stage.step };
                let read = stage.sources.iter().filter_map(|it| match it {
                    Source::Operand(operand) => Some(tables.range(operands[*operand].buffer)),
                    Source::Stage(_) => None,
                });
                let read: Vec<_> = read.collect();
                let written = tables.range(memory.steps[stage.step].results[0]);
                crossed.filter(|it| !self.members.contains(it)).all(|at| {
                    let is_unused = !stage.is_stored
                        || !memory.reads(at, &written) && !memory.writes(at, &written);
                    is_unused && read.iter().all(|it| !memory.writes(at, it))
                })
            })
        };
        (first..=last).find(is_free)
    }
}

/// Returns a program whose inputs are numbered as those of the kernel.
fn renumbered(program: &ScalarProgram, sources: &[Source], n_operands: usize) -> ScalarProgram {
    let number = |input: u8| {
        let number = match sources[usize::from(input)] {
            Source::Operand(operand) => operand,
            Source::Stage(stage) => n_operands + stage,
        };
        u8::try_from(number).expect("there are few operands and stages")
    };
    let instruction = |it: &Instruction| match *it {
        Instruction::Input(input) => Instruction::Input(number(input)),
        Instruction::Integer(input) => Instruction::Integer(number(input)),
        other @ (Instruction::Scalar(_)
        | Instruction::Constant(_)
        | Instruction::IntegerConstant(_)
        | Instruction::Unary(..)
        | Instruction::Binary(..)
        | Instruction::Select(..)) => other,
    };
    let instructions = program.instructions.iter().map(instruction).collect();
    ScalarProgram { instructions, results: program.results.clone() }
}
