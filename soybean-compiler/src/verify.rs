//! The verifier: what must hold of a network after every pass.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use soybean_plan::{BufferId, Combine, DType, Kernel, Mode, Program, Step, TrainingStep};

use crate::{
    network::Network,
    operator::{Operator, Rounding},
    operators::{attend::Attend, combination::Combination, contract::Contract, map_of},
    partial_sums::keeps_types,
    scalar::{has_right_kinds, is_linear_in_first},
    signature::{Signature, set_of_terms},
    tiling::TiledNetwork,
    unplaced::Storage,
    value::Value,
};

/// Checks that operands have the shapes of their operators' signatures, and that the network's
/// results are consistent.
///
/// # Errors
/// The first violation, in words.
pub fn verify(network: &Network) -> Result<(), String> {
    network.graph.values().try_for_each(|value| verify_value(network, value))?;
    let graph = &network.graph;
    if let Some(loss) = network.losses().find(|it| !graph.shape(*it).is_empty()) {
        return Err(format!("the loss {loss} is not a scalar"));
    }
    if let Some(norm) = network.gradient_norms().find(|it| !graph.shape(*it).is_empty()) {
        return Err(format!("the norm of the gradients {norm} is not a scalar"));
    }
    let mut replaced: BTreeMap<Value, Value> = BTreeMap::new();
    for (source, next) in network.replacements() {
        if let Some(other) = replaced.insert(next, source) {
            return Err(format!("{next} is the next value of both {other} and {source}"));
        }
        if graph.node(source).dtype != graph.node(next).dtype {
            return Err(format!("{next} is not of the type of {source}, whose next value it is"));
        }
        if graph.shape(source) != graph.shape(next) {
            return Err(format!("{next} is not of the shape of {source}, whose next value it is"));
        }
        if !graph.node(source).source.is_kept() {
            return Err(format!("{source} is updated, but no parameter, buffer or state"));
        }
    }
    Ok(())
}

fn verify_value(network: &Network, value: Value) -> Result<(), String> {
    let graph = &network.graph;
    let Some(operator) = graph.operator(value) else { return Ok(()) };
    let shapes = graph.operand_shapes(value);
    if let Some(late) = graph.operands(value).into_iter().find(|&it| it >= value) {
        return Err(format!("{value} reads {late}, which is made later"));
    }
    let signature = operator.signature(&shapes);
    let fits = signature.operands.len() == shapes.len()
        && signature.operands.iter().zip(&shapes).all(|(dims, shape)| {
            dims.len() == shape.len()
                && dims.iter().zip(&shape[..]).all(|(dim, &extent)| dim.extent == extent)
        });
    if !fits {
        return Err(format!("{value}: operands {shapes:?} do not fit {operator} {signature}"));
    }
    if signature.result_shape() != graph.shape(value) {
        return Err(format!(
            "{value} is {}, but {operator} gives {}",
            graph.shape(value),
            signature.result_shape()
        ));
    }
    verify_types(network, value, operator)?;
    if let Some(Combination { map, n_terms }) = operator.downcast_ref()
        && !is_linear_in_first(&map.program, *n_terms)
    {
        return Err(format!("{value}: {operator} is not linear in its {n_terms} terms"));
    }
    if let Some(contract) = operator.downcast_ref::<Contract>()
        && contract.as_matrices(&shapes[0], &shapes[1], &graph.shape(value)).is_none()
    {
        return Err(format!(
            "{value}: {signature} is not a matrix product of the operands as they lie"
        ));
    }
    Ok(())
}

/// Checks the types of operands. Kernels of products read operands of one type; kernels that only
/// move elements preserve the type; scalar programs read integers as integers.
fn verify_types(network: &Network, value: Value, operator: &Operator) -> Result<(), String> {
    let graph = &network.graph;
    let found: Vec<DType> =
        graph.operands(value).into_iter().map(|it| graph.node(it).dtype).collect();
    let dtype = graph.node(value).dtype;
    let is_right = match operator.rounding() {
        // Attention may read positions, which are in no product.
        Rounding::Product => found
            .iter()
            .filter(|it| !operator.is::<Attend>() || **it != DType::I32)
            .all(|it| *it == found[0]),
        Rounding::Alike => found.iter().all(|it| *it == dtype),
        Rounding::Map | Rounding::Rounded | Rounding::Exact => true,
    };
    let program = map_of(operator).map(|it| &it.program);
    let is_integer: Vec<bool> = found.iter().map(|it| *it == DType::I32).collect();
    let is_right = is_right && program.is_none_or(|it| has_right_kinds(it, &is_integer, dtype));
    if is_right { Ok(()) } else { Err(format!("{value}: {operator} of {found:?} gives {dtype}")) }
}

/// Checks that operators work on partial sums only where they are linear, and that these are not
/// the results of a step, apart from sums of gradients.
///
/// # Errors
/// Returns the first violation.
pub(crate) fn verify_partial_sums(tiled: &TiledNetwork) -> Result<(), String> {
    let network = &tiled.network;
    let sums: Vec<Value> =
        network.gradient_sums.iter().flat_map(|it| [it.state, it.next]).collect();
    let roots: Vec<Value> = network.roots().into_iter().filter(|it| !sums.contains(it)).collect();
    for value in network.graph.values() {
        let tiling = tiled.tilings[value.index()];
        let Some(form) = &tiled.forms[value.index()] else {
            if tiling.partial_axes().is_empty() || sums.contains(&value) {
                continue;
            }
            return Err(format!("{value} is not computed, but stored as {tiling}"));
        };
        let (signature, _) = tiled.signature(value);
        let terms = form.0.iter().flatten().filter_map(|it| set_of_terms(*it));
        if terms.clone().any(|set| !may_be_terms(network, value, &signature, set)) {
            return Err(format!("{value}: {signature} is not linear in the partial sums it reads"));
        }
        let is_sum = signature.combine == Combine::Sum;
        if !tiling.partial_axes().is_empty() && (roots.contains(&value) || !is_sum) {
            return Err(format!("{value} is no sum, or a result, but stored as {tiling}"));
        }
    }
    Ok(())
}

/// Returns whether the operator of a tensor has this set of linear operands, and their types keep
/// terms as exact as their sum.
fn may_be_terms(network: &Network, value: Value, signature: &Signature, set: usize) -> bool {
    signature.linear.get(set).is_some_and(|set| keeps_types(&network.graph, value, set))
}

/// Checks that steps whose buffers have no offsets read only what is kept from step to step or was
/// written before, and that their collectives form sound buckets.
///
/// # Errors
/// Returns the first violation.
pub(crate) fn verify_steps(
    steps: &[Step],
    kernels: &[Kernel],
    storage: &[Storage],
) -> Result<(), String> {
    let mut is_written: Vec<bool> = storage.iter().map(|it| it.is_persistent).collect();
    for (at, step) in steps.iter().enumerate() {
        if let Some(missing) = step.inputs.iter().find(|&&it| !is_written[it]) {
            return Err(format!("step {at} {step:?} reads buffer {missing} before it is written"));
        }
        verify_bucket(step, &kernels[step.kernel]).map_err(|it| format!("step {at} {it}"))?;
        step.results.iter().for_each(|&it| is_written[it] = true);
    }
    Ok(())
}

/// Checks that the collectives of a step have one kind and the same axes, one input and one result
/// each, and that none writes what another one reads or writes.
fn verify_bucket(step: &Step, kernel: &Kernel) -> Result<(), String> {
    let Kernel::Communicate(bucket) = kernel else { return Ok(()) };
    if !bucket.is_uniform() {
        return Err(format!("{step:?} has collectives of several kinds or axes: {kernel}"));
    }
    let n_collectives = bucket.collectives.len();
    if (step.inputs.len(), step.results.len()) != (n_collectives, n_collectives) {
        return Err(format!("{step:?} has {n_collectives} collectives"));
    }
    let is_lost = |(at, result): (usize, &BufferId)| {
        step.inputs.contains(result) || step.results[..at].contains(result)
    };
    match step.results.iter().enumerate().find(|it| is_lost(*it)) {
        Some((_, lost)) => Err(format!("{step:?} writes buffer {lost}, which it also uses")),
        None => Ok(()),
    }
}

/// Checks that each phase of a program reads only values that were written and not overwritten
/// since, and ends with its results in place.
///
/// # Errors
/// The first violation, in words.
pub fn verify_program(program: &Program) -> Result<(), String> {
    let tables = &program.tables;
    if let Some(outside) = tables
        .buffers
        .iter()
        .position(|it| it.offset + it.n_elements * it.dtype.bytes() > tables.arena_bytes)
    {
        return Err(format!("buffer {outside} does not lie in the arena"));
    }
    let mut kept: Vec<BufferId> = tables.inputs.iter().map(|it| it.buffer).collect();
    kept.extend(tables.parameters.iter().map(|it| it.buffer));
    kept.extend(tables.states.iter().map(|it| it.buffer));
    kept.extend(tables.constants.iter().map(|it| it.buffer));
    for (entry, steps) in tables.entries.iter().zip(&program.train) {
        let left: Vec<BufferId> = entry.training.iter().flat_map(TrainingStep::left).collect();
        verify_phase(program, steps, &kept, &left)?;
    }
    if tables.accumulate > 1 {
        let loss: Vec<BufferId> = tables.accumulate_loss.into_iter().collect();
        verify_phase(program, &program.accumulate, &kept, &loss)?;
    }
    program.evaluate.iter().enumerate().try_for_each(|(entry, steps)| {
        let outputs: Vec<BufferId> = tables.outputs_of(entry).iter().map(|it| it.buffer).collect();
        verify_phase(program, steps, &kept, &outputs)
    })
}

fn verify_phase(
    program: &Program,
    steps: &[Step],
    kept: &[BufferId],
    results: &[BufferId],
) -> Result<(), String> {
    let mut arena = Arena::new(program, kept);
    let mut is_kept = vec![false; program.tables.buffers.len()];
    kept.iter().for_each(|&it| is_kept[it] = true);
    if program.tables.mode() == Mode::Inference {
        // A model's state may be read before and after it is assigned to.
        program.tables.states.iter().for_each(|it| is_kept[it.buffer] = false);
    }
    let mut is_replaced = vec![false; is_kept.len()];
    for (at, step) in steps.iter().enumerate() {
        if let Some(missing) = step.inputs.iter().find(|&&it| !arena.is_valid[it]) {
            return Err(format!(
                "step {at} {step:?} reads buffer {missing}, which does not hold its value"
            ));
        }
        if let Some(replaced) = step.inputs.iter().find(|&&it| is_replaced[it]) {
            return Err(format!(
                "step {at} {step:?} reads buffer {replaced}, which holds its next value already"
            ));
        }
        let kernel = &program.kernels[step.kernel];
        verify_bucket(step, kernel).map_err(|it| format!("step {at} {it}"))?;
        let is_map = matches!(kernel, Kernel::Map(_) | Kernel::FuseRows(_));
        for &result in &step.results {
            let is_lost = |&&input: &&BufferId| {
                let may_share = is_map && arena.range(input) == arena.range(result);
                input != result && !may_share && arena.overlaps(input, result)
            };
            if let Some(lost) = step.inputs.iter().find(is_lost) {
                return Err(format!(
                    "step {at} {step:?} overwrites buffer {lost} while it reads it"
                ));
            }
            arena.overwrite(result);
        }
        if let Some(twice) = first_overlap(&arena, &step.results) {
            return Err(format!("step {at} {step:?} writes buffer {twice} over another result"));
        }
        for &result in &step.results {
            arena.insert(result);
            is_replaced[result] = is_kept[result];
        }
    }
    let is_valid = arena.is_valid;
    match kept.iter().chain(results).find(|&&it| !is_valid[it]) {
        Some(lost) => Err(format!("buffer {lost} does not hold its value at the end")),
        None => Ok(()),
    }
}

/// Returns the first result that lies in the memory of an earlier one.
fn first_overlap(arena: &Arena<'_>, results: &[BufferId]) -> Option<BufferId> {
    let overlaps = |at: &usize| results[..*at].iter().any(|it| arena.overlaps(*it, results[*at]));
    (1..results.len()).find(overlaps).map(|it| results[it])
}

/// The buffers that hold their values, which do not overlap. They are ordered by their offsets, so
/// that a write looks only at its own neighborhood.
struct Arena<'a> {
    program: &'a Program,
    is_valid: Vec<bool>,
    by_offset: BTreeSet<(usize, BufferId)>,
}

impl<'a> Arena<'a> {
    fn new(program: &'a Program, kept: &[BufferId]) -> Self {
        let is_valid = vec![false; program.tables.buffers.len()];
        let mut arena = Self { program, is_valid, by_offset: BTreeSet::new() };
        kept.iter().for_each(|&it| arena.insert(it));
        arena
    }

    /// Returns the bytes of a buffer.
    fn range(&self, buffer: BufferId) -> Range<usize> {
        let it = &self.program.tables.buffers[buffer];
        it.offset..it.offset + it.n_elements * it.dtype.bytes()
    }

    fn overlaps(&self, first: BufferId, second: BufferId) -> bool {
        let (first, second) = (self.range(first), self.range(second));
        first.start < second.end && second.start < first.end
    }

    /// Marks the value of a buffer as held.
    fn insert(&mut self, buffer: BufferId) {
        self.is_valid[buffer] = true;
        self.by_offset.insert((self.range(buffer).start, buffer));
    }

    /// Marks the values of all other buffers in the memory of a result as lost.
    fn overwrite(&mut self, result: BufferId) {
        let end = self.range(result).end;
        let before = self.by_offset.range(..(end, 0)).rev();
        let lost: Vec<_> = before
            .take_while(|it| it.1 == result || self.overlaps(it.1, result))
            .filter(|it| it.1 != result)
            .copied()
            .collect();
        for place in lost {
            self.by_offset.remove(&place);
            self.is_valid[place.1] = false;
        }
    }
}

#[cfg(test)]
mod tests;
