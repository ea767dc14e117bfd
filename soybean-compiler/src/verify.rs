//! The verifier: what must hold of a network after every pass.

use crate::{
    graph::{Source, Value},
    network::Network,
    operator::{Operator, Rules},
};

/// Checks that every operator's operands have the shapes of its signature, and that the network's tensors are what they are said to be.
///
/// # Errors
/// The first violation, in words.
pub fn verify(network: &Network) -> Result<(), String> {
    network.graph.values().try_for_each(|value| verify_value(network, value))?;
    let graph = &network.graph;
    if !graph.shape(network.loss).is_empty() {
        return Err(format!("the loss {} is not a scalar", network.loss));
    }
    for &(source, next) in &network.updates {
        if graph.shape(source) != graph.shape(next) {
            return Err(format!("{next} is not of the shape of {source}, whose next value it is"));
        }
        if !matches!(graph.node(source).source, Source::Parameter(_) | Source::State) {
            return Err(format!("{source} is updated, but neither a parameter nor a state"));
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
            dims.len() == shape.len() && dims.iter().zip(&shape[..]).all(|(dim, &extent)| dim.extent == extent)
        });
    if !fits {
        return Err(format!("{value}: operands {shapes:?} do not fit {operator} {signature}"));
    }
    if signature.result_shape() != graph.shape(value) {
        return Err(format!("{value} is {}, but {operator} gives {}", graph.shape(value), signature.result_shape()));
    }
    if let Operator::Contract(contract) = operator
        && contract.as_matrices(&shapes[0], &shapes[1], &graph.shape(value)).is_none()
    {
        return Err(format!("{value}: {signature} is not a matrix product of the operands as they lie"));
    }
    Ok(())
}
