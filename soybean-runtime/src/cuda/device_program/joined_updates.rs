//! Updates of small parameters as one kernel.
//!
//! A network has many small parameters, such as biases and the scales of norms. Each has an update
//! that takes less time than its launch. Here the buffers of equal updates are moved side by side,
//! behind the arena: the parameters, their states and their gradients, each kind in the same order.
//! One map over all of them then is all their updates. It runs where the last of them did.
//!
//! An update that equals no other is moved, too. Its gradient then shares its place with nothing,
//! so a product can compute it.

use std::{borrow::Cow, collections::BTreeSet};

use soybean_plan::{
    BUFFER_ALIGNMENT, Buffer, BufferId, DType, Kernel, Map, NextValue, Program, ScalarProgram,
    Shape, Step, Strides, Tables, overlaps,
};

/// The most elements of a small parameter. Larger ones keep a GPU busy for longer than a launch.
const MAX_ELEMENTS: usize = 1 << 16;

/// Elements start at multiples of this number, which keeps buffers of any type aligned.
const ALIGNMENT: usize = BUFFER_ALIGNMENT / DType::Bf16.bytes();

/// Joins the updates of small parameters in each training step, then moves those that are left.
pub(crate) fn join_updates(program: &mut Program) {
    let mut moved = BTreeSet::new();
    for fewest in [2, 1] {
        for entry in 0..program.train.len() {
            while let Some(mut group) = joinable(program, &program.train[entry], &moved, fewest) {
                moved.extend(group.members.iter().flat_map(|it| it.buffers.iter().copied()));
                join(program, entry, &mut group);
            }
        }
    }
}

/// An operand of an update.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Operand {
    /// A buffer of the parameter's size: the number of its first use among the operands.
    Own { class: usize, dtype: DType },
    /// A number that all updates read.
    Number(BufferId),
}

/// Updates with the same program and the same kinds of operands.
struct Group {
    program: ScalarProgram,
    inputs: Vec<Operand>,
    results: Vec<Operand>,
    members: Vec<Member>,
}

/// An update of a small parameter.
struct Member {
    step: usize,
    parameter: BufferId,
    n_elements: usize,
    /// The buffers of the parameter's size, in the order of their first use.
    buffers: Vec<BufferId>,
}

/// Returns a group of at least so many updates that one map can compute.
fn joinable(
    program: &Program,
    steps: &[Step],
    moved: &BTreeSet<BufferId>,
    fewest: usize,
) -> Option<Group> {
    let groups = groups(program, steps).into_iter();
    let mut groups = groups.map(|it| without_conflicts(program, steps, it, moved));
    groups.find(|it| it.members.len() >= fewest)
}

/// Returns the small updates of a training step by what they compute.
fn groups(program: &Program, steps: &[Step]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let Some(alone) = update(program, at, step) else { continue };
        let is_alike = |it: &&mut Group| {
            (&it.program, &it.inputs, &it.results)
                == (&alone.program, &alone.inputs, &alone.results)
        };
        match groups.iter_mut().find(is_alike) {
            Some(group) => group.members.extend(alone.members),
            None => groups.push(alone),
        }
    }
    groups
}

/// Returns the step as a group of its own, if it is a small update.
fn update(program: &Program, at: usize, step: &Step) -> Option<Group> {
    let Kernel::Map(map) = &program.kernels[step.kernel] else { return None };
    let n_elements = map.extents.n_elements();
    let is_kept = |it: BufferId| {
        let mut parameters = program.tables.parameters.iter();
        parameters.any(|parameter| parameter.buffer == it && parameter.is_trained)
    };
    let parameter = *step.results.iter().find(|it| is_kept(**it))?;
    if n_elements > MAX_ELEMENTS {
        return None;
    }
    let mut buffers = Vec::new();
    let mut own = |buffer: BufferId| {
        let found = program.tables.buffers[buffer];
        let class = buffers.iter().position(|it| *it == buffer).unwrap_or_else(|| {
            buffers.push(buffer);
            buffers.len() - 1
        });
        (found.n_elements == n_elements).then_some(Operand::Own { class, dtype: found.dtype })
    };
    let dense = map.extents.dense_strides();
    let input = |(&buffer, strides): (&BufferId, &Strides)| match *strides {
        strides if strides == dense => own(buffer),
        strides if strides.0[..map.extents.len()].iter().all(|it| *it == 0) => {
            Some(Operand::Number(buffer))
        }
        _ => None,
    };
    let inputs = step.inputs.iter().zip(&*map.inputs).map(input).collect::<Option<Vec<_>>>()?;
    let results = step.results.iter().map(|it| own(*it)).collect::<Option<Vec<_>>>()?;
    let members = vec![Member { step: at, parameter, n_elements, buffers }];
    Some(Group { program: map.program.clone(), inputs, results, members })
}

/// Returns the group without updates that cannot wait for the last one, and without those whose
/// buffers have been moved or are those of another member.
fn without_conflicts(
    program: &Program,
    steps: &[Step],
    group: Group,
    moved: &BTreeSet<BufferId>,
) -> Group {
    let range = |buffer: &BufferId| program.tables.range(*buffer);
    let Group { program: scalar, inputs, results, members } = group;
    let numbers = || {
        inputs.iter().filter_map(|it| match it {
            Operand::Number(buffer) => Some(*buffer),
            Operand::Own { .. } => None,
        })
    };
    let last = members.last().map_or(0, |it| it.step);
    let is_member: BTreeSet<usize> = members.iter().map(|it| it.step).collect();
    let waits = |member: &Member| {
        let crossed = (member.step + 1..last).filter(|it| !is_member.contains(it));
        crossed.map(|it| &steps[it]).all(|step| {
            let touches = |it: &BufferId| member.buffers.contains(it);
            let overwrites = |it: &BufferId| {
                let written = range(it);
                numbers().any(|number| overlaps(&written, &range(&number)))
            };
            !step.inputs.iter().any(touches)
                && !step.results.iter().any(|it| touches(it) || overwrites(it))
        })
    };
    let mut taken = moved.clone();
    let mut is_free = |member: &Member| {
        let is_free = member.buffers.iter().all(|it| !taken.contains(it));
        taken.extend(&member.buffers);
        is_free
    };
    let members = members.into_iter().filter(|it| waits(it) && is_free(it)).collect();
    Group { program: scalar, inputs, results, members }
}

/// Replaces the updates of a group by one. Its parameters get the order that they have in the
/// plan, so that those of equal layers lie at equal distances.
fn join(program: &mut Program, entry: usize, group: &mut Group) {
    let Some(last) = group.members.iter().map(|it| it.step).max() else { return };
    group.members.sort_by_key(|it| it.parameter);
    let mut starts = Vec::new();
    let mut n_elements: usize = 0;
    for member in &group.members {
        starts.push(n_elements);
        n_elements = (n_elements + member.n_elements).next_multiple_of(ALIGNMENT);
    }
    let spans = move_side_by_side(&mut program.tables, group, &starts, n_elements);
    let extents = Shape::new(&[n_elements]);
    let operand = |it: &Operand| match *it {
        Operand::Own { class, .. } => (spans[class], extents.dense_strides()),
        Operand::Number(buffer) => (buffer, Strides::new(&[0])),
    };
    let (inputs, strides): (Vec<BufferId>, Vec<Strides>) = group.inputs.iter().map(operand).unzip();
    let results = group.results.iter().map(|it| operand(it).0).collect();
    add_next_values(&mut program.tables, group, &spans);
    let map = Map { extents, inputs: Cow::Owned(strides), program: group.program.clone() };
    let kernels = program.kernels.to_mut();
    kernels.push(map.into());
    let joined = Step { kernel: kernels.len() - 1, inputs, results };
    let steps = &mut program.train[entry];
    steps[last] = joined;
    let replaced = group.members.iter().map(|it| it.step).filter(|it| *it != last);
    let replaced: BTreeSet<usize> = replaced.collect();
    let mut at = 0..;
    steps.retain(|_| at.next().is_none_or(|it| !replaced.contains(&it)));
}

/// Adds the next values over all members of a group.
fn add_next_values(tables: &mut Tables, group: &Group, spans: &[BufferId]) {
    let of_first = &group.members[0].buffers;
    let span_of = |buffer: BufferId| {
        let class = of_first.iter().position(|it| *it == buffer)?;
        Some(spans[class])
    };
    let of_span = |it: &NextValue| {
        let (buffer, before) = (span_of(it.buffer)?, it.before.and_then(span_of));
        Some(NextValue { buffer, before, tensor: buffer })
    };
    let of_spans: Vec<NextValue> = tables.next_values.iter().filter_map(of_span).collect();
    tables.next_values.to_mut().extend(of_spans);
}

/// Moves the buffers of a group behind the arena, and returns a buffer over each kind of them.
fn move_side_by_side(
    tables: &mut Tables,
    group: &Group,
    starts: &[usize],
    n_elements: usize,
) -> Vec<BufferId> {
    let buffers = tables.buffers.to_mut();
    let mut spans = Vec::new();
    for class in 0..group.members[0].buffers.len() {
        let dtype = buffers[group.members[0].buffers[class]].dtype;
        let offset = tables.arena_bytes.next_multiple_of(BUFFER_ALIGNMENT);
        for (member, start) in group.members.iter().zip(starts) {
            buffers[member.buffers[class]].offset = offset + start * dtype.bytes();
        }
        spans.push(buffers.len());
        buffers.push(Buffer { offset, n_elements, dtype });
        tables.arena_bytes = offset + n_elements * dtype.bytes();
    }
    spans
}
