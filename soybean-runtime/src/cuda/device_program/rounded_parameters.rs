//! Rounded copies of parameters, kept from step to step.
//!
//! A program that computes in `bf16` rounds each parameter before products read it, in every step.
//! Here the update of a parameter writes the rounded copy as well, in the same kernel, and the maps
//! that rounded it are gone. Biases that products add in `bf16` get copies, too.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use soybean_plan::{
    BUFFER_ALIGNMENT, Buffer, BufferId, DType, ImageLayout, Kernel, Map, Program, ScalarProgram,
    Step, Tables,
};

use super::super::epilogue::{Rounded, bias_of};

/// Lets updates write rounded copies. Returns the buffers of parameters with the buffers of their
/// copies.
pub(super) fn keep_rounded(program: &mut Program) -> Rounded {
    let source_of = rounded_buffers(program);
    let mut copies = Rounded::new();
    let mut replaced: BTreeMap<BufferId, BufferId> = BTreeMap::new();
    for (&copy, &parameter) in &source_of {
        replaced.insert(copy, *copies.entry(parameter).or_insert(copy));
    }
    for parameter in rounded_biases(program) {
        copies.entry(parameter).or_insert_with(|| add_copy(&mut program.tables, parameter));
    }
    place(&mut program.tables, &copies);
    let mut kernels = program.kernels.to_vec();
    let phases = program.train.iter_mut().chain([&mut program.accumulate]);
    for steps in phases.chain(&mut program.evaluate) {
        steps.retain(|step| !step.results.iter().any(|it| replaced.contains_key(it)));
        for step in steps {
            for input in &mut step.inputs {
                *input = replaced.get(input).copied().unwrap_or(*input);
            }
            write_copies(step, &mut kernels, &copies);
        }
    }
    program.kernels = Cow::Owned(kernels);
    copies
}

/// Returns all phases of a program.
fn phases(program: &Program) -> impl Iterator<Item = &Vec<Step>> {
    program.train.iter().chain([&program.accumulate]).chain(&program.evaluate)
}

/// Returns the buffers that kept copies can replace, each with its parameter.
fn rounded_buffers(program: &Program) -> BTreeMap<BufferId, BufferId> {
    let parameters = parameters(program);
    let roundings = phases(program).flatten().filter(|it| is_rounding(program, it));
    let of_parameters = roundings.filter(|it| parameters.contains(&it.inputs[0]));
    let mut source_of: BTreeMap<BufferId, BufferId> =
        of_parameters.map(|it| (it.results[0], it.inputs[0])).collect();
    source_of.retain(|&copy, parameter| {
        has_updates_by_maps(program, *parameter)
            && phases(program).all(|steps| is_current(program, steps, copy, *parameter))
    });
    source_of
}

/// Returns the parameters of `f32` that are added to products of `bf16`.
fn rounded_biases(program: &Program) -> BTreeSet<BufferId> {
    let parameters = parameters(program);
    let mut biases = BTreeSet::new();
    for steps in phases(program) {
        let is_product = |it: &&Step| match &program.kernels[it.kernel] {
            Kernel::Contract(_) => true,
            Kernel::Convolve(it) => it.layout == ImageLayout::ChannelsLast,
            _ => false,
        };
        let products: BTreeSet<BufferId> =
            steps.iter().filter(is_product).flat_map(|it| it.results.iter().copied()).collect();
        for step in steps {
            let Kernel::Map(map) = &program.kernels[step.kernel] else { continue };
            let Some(product) = step.inputs.iter().position(|it| products.contains(it)) else {
                continue;
            };
            let is_rounded = program.tables.buffers[step.results[0]].dtype == DType::Bf16;
            if let Some(bias) = bias_of(map, product).filter(|_| is_rounded) {
                biases.insert(step.inputs[bias]);
            }
        }
    }
    let is_wide = |it: &BufferId| program.tables.buffers[*it].dtype == DType::F32;
    biases.retain(|it| is_wide(it) && parameters.contains(it) && has_updates_by_maps(program, *it));
    biases
}

fn parameters(program: &Program) -> BTreeSet<BufferId> {
    program.tables.parameters.iter().map(|it| it.buffer).collect()
}

/// Returns whether the step rounds a whole buffer to `bf16`.
fn is_rounding(program: &Program, step: &Step) -> bool {
    let Kernel::Map(map) = &program.kernels[step.kernel] else { return false };
    let (&[input], &[result]) = (&step.inputs[..], &step.results[..]) else { return false };
    let [input, result] = [input, result].map(|it| program.tables.buffers[it]);
    map.program == ScalarProgram::identity()
        && map.inputs[0] == map.extents.dense_strides()
        && (input.dtype, result.dtype) == (DType::F32, DType::Bf16)
        && input.n_elements == map.extents.n_elements()
}

/// Returns whether maps over all elements are all that writes a buffer.
fn has_updates_by_maps(program: &Program, parameter: BufferId) -> bool {
    let n_elements = program.tables.buffers[parameter].n_elements;
    let mut updates = phases(program).flatten().filter(|it| it.results.contains(&parameter));
    updates.all(|step| {
        let Kernel::Map(map) = &program.kernels[step.kernel] else { return false };
        map.extents.n_elements() == n_elements
    })
}

/// Returns whether a phase finds in a buffer nothing but what the parameter is, rounded.
fn is_current(program: &Program, steps: &[Step], copy: BufferId, parameter: BufferId) -> bool {
    let is_own = |step: &Step| {
        is_rounding(program, step) && (step.inputs[0], step.results[0]) == (parameter, copy)
    };
    // What was rounded before an update is not what the copy is after it.
    let mut has_content = false;
    steps.iter().all(|step| {
        let is_right = has_content || !step.inputs.contains(&copy);
        has_content = is_own(step) || has_content && !step.results.contains(&parameter);
        is_right && (is_own(step) || !step.results.contains(&copy))
    })
}

/// Adds the buffer of a copy.
fn add_copy(tables: &mut Tables, parameter: BufferId) -> BufferId {
    let buffers = tables.buffers.to_mut();
    buffers.push(Buffer { dtype: DType::Bf16, ..buffers[parameter] });
    buffers.len() - 1
}

/// Gives each copy a place behind the arena.
fn place(tables: &mut Tables, copies: &Rounded) {
    for &copy in copies.values() {
        let buffer = &mut tables.buffers.to_mut()[copy];
        buffer.offset = tables.arena_bytes.next_multiple_of(BUFFER_ALIGNMENT);
        tables.arena_bytes = buffer.offset + buffer.n_elements * DType::Bf16.bytes();
    }
}

/// Lets an update write the copies of its parameters.
fn write_copies(step: &mut Step, kernels: &mut Vec<Kernel>, copies: &Rounded) {
    let updated = step.results.iter().enumerate();
    let written: Vec<(usize, BufferId)> =
        updated.filter_map(|(at, it)| Some((at, *copies.get(it)?))).collect();
    let Kernel::Map(map) = &kernels[step.kernel] else { return };
    if written.is_empty() {
        return;
    }
    let mut map: Map = map.clone();
    let results = written.iter().map(|&(at, _)| map.program.results[at]);
    map.program.results = map.program.results.iter().copied().chain(results).collect();
    step.results.extend(written.iter().map(|it| it.1));
    step.kernel = Kernel::Map(map).number_in(kernels);
}
