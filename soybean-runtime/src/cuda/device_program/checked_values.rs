//! Checks of next values: maps that compute parameters, buffers and states also set a mark if one
//! of them is not finite, and keep the elements before. The text of such maps is in
//! `soybean_codegen`.

use std::borrow::Cow;

use soybean_plan::{
    BUFFER_ALIGNMENT, Buffer, BufferId, DType, Kernel, Map, NextValue, Program, ScalarProgram,
    Step, Tables,
};

/// Lets training steps check next values. Returns the buffer of the mark, if there are any.
pub(super) fn check_values(program: &mut Program) -> Option<BufferId> {
    if program.tables.next_values.is_empty() {
        return None;
    }
    let mark = add_mark(&mut program.tables);
    let (tables, mut kernels) = (&program.tables, program.kernels.to_vec());
    for steps in program.train.iter_mut().chain([&mut program.accumulate]) {
        let mut checked = Vec::with_capacity(steps.len());
        for mut step in std::mem::take(steps) {
            let (is_map, is_communication) = match &kernels[step.kernel] {
                Kernel::Map(_) => (true, false),
                kernel => (false, matches!(kernel, Kernel::Communicate(_))),
            };
            let found = step.results.iter().map(|it| (*it, next_values_in(tables, *it)));
            let found: Vec<_> = found.filter(|it| !it.1.is_empty()).collect();
            let has_gaps = found.iter().any(|(result, parts)| {
                let n_elements = |it: &BufferId| tables.buffers[*it].n_elements;
                parts.iter().map(n_elements).sum::<usize>() < n_elements(result)
            });
            if is_map && !found.is_empty() && !has_gaps {
                check(&mut step, tables, mark);
                checked.push(step);
                continue;
            }
            checked.push(step);
            if !is_communication {
                let parts = found.iter().flat_map(|it| &it.1);
                checked.extend(parts.map(|it| check_alone(*it, tables, &mut kernels, mark)));
            }
        }
        *steps = checked;
    }
    program.kernels = Cow::Owned(kernels);
    Some(mark)
}

/// Adds the buffer of the mark behind the arena.
fn add_mark(tables: &mut Tables) -> BufferId {
    let offset = tables.arena_bytes.next_multiple_of(BUFFER_ALIGNMENT);
    let buffers = tables.buffers.to_mut();
    buffers.push(Buffer { offset, n_elements: 1, dtype: DType::I32 });
    tables.arena_bytes = offset + DType::I32.bytes();
    buffers.len() - 1
}

/// Returns the next values in a buffer: one, or those of joined updates. Between the latter may be
/// gaps, in which anything is.
fn next_values_in(tables: &Tables, buffer: BufferId) -> Vec<BufferId> {
    let buffers = || tables.next_values.iter().map(|it| it.buffer);
    if buffers().any(|it| it == buffer) {
        return vec![buffer];
    }
    let whole = tables.range(buffer);
    let is_within = |it: &&NextValue| {
        let part = tables.range(it.buffer);
        it.buffer == it.tensor && whole.start <= part.start && part.end <= whole.end
    };
    let mut parts: Vec<BufferId> =
        tables.next_values.iter().filter(is_within).map(|it| it.buffer).collect();
    parts.dedup();
    parts
}

/// Lets a map check its results, which have these elements before.
fn check(step: &mut Step, tables: &Tables, mark: BufferId) {
    let before = |result: &BufferId| {
        let next = tables.next_values.iter().find(|it| it.buffer == *result);
        let length = |it: BufferId| (tables.buffers[it].n_elements, tables.buffers[it].dtype);
        let before = next.and_then(|it| it.before);
        before.filter(|it| length(*it) == length(*result)).unwrap_or(*result)
    };
    let before: Vec<BufferId> = step.results.iter().map(before).collect();
    step.inputs.extend(before);
    step.results.push(mark);
}

/// Returns a step that checks a next value that no map computes.
fn check_alone(
    value: BufferId,
    tables: &Tables,
    kernels: &mut Vec<Kernel>,
    mark: BufferId,
) -> Step {
    let extents = soybean_plan::Shape::new(&[tables.buffers[value].n_elements]);
    let inputs = vec![extents.dense_strides()].into();
    let map = Map { extents, inputs, program: ScalarProgram::identity() };
    let kernel = Kernel::from(map).number_in(kernels);
    let mut step = Step { kernel, inputs: vec![value], results: vec![value] };
    check(&mut step, tables, mark);
    step
}
