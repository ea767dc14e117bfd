//! The verifier: what must hold of a network after every pass.

use soybean_plan::{BufferId, DType, Kernel, Program, Step};

use crate::{
    graph::Source,
    network::Network,
    operator::{Operator, Rounding},
    operators::contract::Contract,
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
    if let Some(loss) = network.loss.filter(|it| !graph.shape(*it).is_empty()) {
        return Err(format!("the loss {loss} is not a scalar"));
    }
    if let Some(norm) = network.gradient_norm.filter(|it| !graph.shape(*it).is_empty()) {
        return Err(format!("the norm of the gradients {norm} is not a scalar"));
    }
    for &(source, next) in &network.updates {
        if graph.node(source).dtype != graph.node(next).dtype {
            return Err(format!("{next} is not of the type of {source}, whose next value it is"));
        }
        if graph.shape(source) != graph.shape(next) {
            return Err(format!("{next} is not of the shape of {source}, whose next value it is"));
        }
        if !matches!(
            graph.node(source).source,
            Source::Parameter(_) | Source::Buffer(_) | Source::State
        ) {
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
/// move elements preserve the type.
fn verify_types(network: &Network, value: Value, operator: &Operator) -> Result<(), String> {
    let graph = &network.graph;
    let found: Vec<DType> =
        graph.operands(value).into_iter().map(|it| graph.node(it).dtype).collect();
    let dtype = graph.node(value).dtype;
    let is_right = match operator.rounding() {
        Rounding::Product => found.iter().all(|it| *it == found[0]),
        Rounding::Alike => found.iter().all(|it| *it == dtype),
        Rounding::Map | Rounding::Rounded | Rounding::Exact => true,
    };
    if is_right { Ok(()) } else { Err(format!("{value}: {operator} of {found:?} gives {dtype}")) }
}

/// Checks that steps whose buffers have no offsets read only what is kept from step to step or was
/// written before.
///
/// # Errors
/// Returns the first violation.
pub(crate) fn verify_steps(steps: &[Step], storage: &[Storage]) -> Result<(), String> {
    let mut is_written: Vec<bool> = storage.iter().map(|it| it.is_persistent).collect();
    for (at, step) in steps.iter().enumerate() {
        if let Some(missing) = step.inputs.iter().find(|&&it| !is_written[it]) {
            return Err(format!("step {at} {step:?} reads buffer {missing} before it is written"));
        }
        step.results.iter().for_each(|&it| is_written[it] = true);
    }
    Ok(())
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
    let outputs: Vec<BufferId> = tables.outputs.iter().map(|it| it.buffer).collect();
    let left: Vec<BufferId> = tables.loss.into_iter().chain(tables.gradient_norm).collect();
    verify_phase(program, &program.train, &kept, &left)?;
    verify_phase(program, &program.evaluate, &kept, &outputs)
}

fn verify_phase(
    program: &Program,
    steps: &[Step],
    kept: &[BufferId],
    results: &[BufferId],
) -> Result<(), String> {
    let buffers = &program.tables.buffers;
    let range = |it: BufferId| {
        (
            buffers[it].offset,
            buffers[it].offset + buffers[it].n_elements * buffers[it].dtype.bytes(),
        )
    };
    let mut is_valid = vec![false; buffers.len()];
    kept.iter().for_each(|&it| is_valid[it] = true);
    let mut is_replaced = vec![false; buffers.len()];
    for (at, step) in steps.iter().enumerate() {
        if let Some(missing) = step.inputs.iter().copied().find(|&it| !is_valid[it]) {
            return Err(format!(
                "step {at} {step:?} reads buffer {missing}, which does not hold its value"
            ));
        }
        if let Some(replaced) = step.inputs.iter().copied().find(|it| is_replaced[*it]) {
            return Err(format!(
                "step {at} {step:?} reads buffer {replaced}, which holds its next value already"
            ));
        }
        let is_map = matches!(program.kernels[step.kernel], Kernel::Map(_));
        for result in step.results.iter().copied() {
            let (from, to) = range(result);
            for (other, is_valid) in is_valid.iter_mut().enumerate() {
                let (start, end) = range(other);
                if start < to && from < end && other != result {
                    let is_same_memory = (start, end) == (from, to);
                    if step.inputs.contains(&other) && !(is_map && is_same_memory) {
                        return Err(format!(
                            "step {at} {step:?} overwrites buffer {other} while it reads it"
                        ));
                    }
                    *is_valid = false;
                }
            }
        }
        for result in step.results.iter().copied() {
            is_valid[result] = true;
            is_replaced[result] = kept.contains(&result);
        }
    }
    match kept.iter().chain(results).find(|&&it| !is_valid[it]) {
        Some(lost) => Err(format!("buffer {lost} does not hold its value at the end")),
        None => Ok(()),
    }
}
