//! The limits of sizes, in one place: within them no count of elements, bytes or costs overflows.

use soybean_plan::Mesh;

use crate::{
    builder::Builder,
    diagnostic::{ModelDiagnostic, ModelPart},
    network::Network,
    value::Value,
};

/// The most elements along a dim: indices are `i32`.
pub(crate) const MAX_EXTENT: usize = i32::MAX as usize;
/// The most elements of a tensor.
const MAX_ELEMENTS: usize = 1 << 44;
/// The most bytes that the conversions of a plan could move: the search counts them in 64 bits.
const MAX_MOVED_BYTES: f64 = (1_u64 << 60) as f64;

/// Checks the extents of a tensor.
///
/// # Errors
/// What a tensor has at most, and what was found.
pub fn check_extents(extents: &[usize]) -> Result<(), String> {
    if let Some(extent) = extents.iter().find(|it| **it > MAX_EXTENT) {
        return Err(format!("a dim has at most {MAX_EXTENT} elements, found {extent}"));
    }
    let n_elements = extents.iter().fold(1, |n: usize, extent| n.saturating_mul(*extent));
    if n_elements > MAX_ELEMENTS {
        return Err(format!("a tensor has at most {MAX_ELEMENTS} elements, found {extents:?}"));
    }
    Ok(())
}

/// Returns the largest input or parameter of a model.
pub(crate) fn largest_source(builder: &Builder) -> Option<Value> {
    let graph = builder.graph();
    let sources = graph.values().filter(|it| graph.operator(*it).is_none());
    sources.max_by_key(|it| graph.shape(*it).n_elements())
}

/// Checks that the bytes that plans of a network move can be counted. No conversion of a tensor
/// moves as much as two copies of it to every rank, and replicas at most double the conversions.
pub(crate) fn check_network(
    network: &Network,
    mesh: &Mesh,
    largest: Option<Value>,
) -> Result<(), ModelDiagnostic> {
    let graph = &network.graph;
    let bytes = |value: Value| {
        let node = graph.node(value);
        node.shape.n_elements() as f64 * node.dtype.bytes() as f64
    };
    let accessed = |value: Value| -> f64 {
        let operands = graph.operands(value).into_iter().map(bytes).sum::<f64>();
        bytes(value) + operands
    };
    let weights = network.weights();
    let weighted = |it: Value| weights.of_value(it).max(1) as f64 * accessed(it);
    let moved = 4.0 * mesh.n_ranks() as f64 * graph.values().map(weighted).sum::<f64>();
    if moved <= MAX_MOVED_BYTES {
        return Ok(());
    }
    let n_ranks = mesh.n_ranks();
    let unit = match network.optimizer.accumulate {
        0 | 1 => "a step".to_owned(),
        n => format!("an update of {n} steps"),
    };
    let message = format!(
        "the tensors of this model are too large for {n_ranks} GPUs: {unit} may move at most 2^60 bytes between them, but could move {moved:.1e}"
    );
    let at = largest.map_or(ModelPart::Loss, ModelPart::Value);
    Err(ModelDiagnostic { at, message, help: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dims_and_tensors_have_limits() {
        let check = |extents: &[usize], expected: &str| {
            assert_eq!(check_extents(extents).err().unwrap_or_default(), expected);
        };
        check(&[1 << 20, 1 << 24], "");
        check(&[1 << 31], "a dim has at most 2147483647 elements, found 2147483648");
        check(
            &[1 << 20, 1 << 25],
            "a tensor has at most 17592186044416 elements, found [1048576, 33554432]",
        );
        check(&[1 << 60; 8], "a dim has at most 2147483647 elements, found 1152921504606846976");
    }
}
