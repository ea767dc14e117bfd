//! The partitionings of an operator, from their definition.

use soybean_compiler::{
    Network, Value,
    signature::{FactorId, Partitioning, TERMS},
};
use soybean_plan::{DType, Mesh};

/// Returns all partitionings of an operator: along each axis a factor that may be split there,
/// terms of sums, or none. None is for work that ranks may repeat, and for axes along which nothing
/// can be split.
pub(crate) fn all_forms(network: &Network, value: Value, mesh: &Mesh) -> Vec<Partitioning> {
    let graph = &network.graph;
    let operator = graph.operator(value).unwrap();
    let signature = operator.signature(&graph.operand_shapes(value));
    let factors = 0..FactorId::try_from(signature.factors.len()).unwrap();
    let extended = |form: &Partitioning, axis: usize| -> Vec<Partitioning> {
        let may_split = |&it: &FactorId| signature.may_split(it, mesh, form.axes_of(it).with(axis));
        let with = |factor: FactorId| {
            let mut form = form.clone();
            form.0[axis] = Some(factor);
            form
        };
        factors.clone().filter(may_split).map(with).collect()
    };
    let may_be_terms = may_be_terms(network, value);
    let mut forms = vec![Partitioning(vec![None; mesh.n_axes()])];
    for axis in 0..mesh.n_axes() {
        let split: Vec<Partitioning> = forms.iter().flat_map(|it| extended(it, axis)).collect();
        let of_terms = |it: &Partitioning| {
            let mut form = it.clone();
            form.0[axis] = Some(TERMS);
            form
        };
        let of_terms: Vec<Partitioning> = match may_be_terms {
            true => forms.iter().map(of_terms).collect(),
            false => Vec::new(),
        };
        forms.extend(split);
        forms.extend(of_terms);
    }
    let is_idle_in_vain = |form: &Partitioning| {
        (0..mesh.n_axes()).any(|axis| form.0[axis].is_none() && !extended(form, axis).is_empty())
    };
    if !may_repeat(network, value) {
        forms.retain(|it| !is_idle_in_vain(it));
    }
    forms
}

/// Returns whether a tensor may be stored as partial sums where that is cheaper: additions read it,
/// at once or in other shapes, it is not kept or returned, and users did not pin it. Of kept
/// tensors, only sums of gradients may be.
pub(crate) fn may_be_stored_so(network: &Network, value: Value) -> bool {
    let graph = &network.graph;
    let is_bound = network.roots().contains(&value) || graph.node(value).pinned.is_some();
    let reads_terms = |it: &Value| may_be_terms(network, *it);
    let is_sum = network.gradient_sums.iter().any(|it| it.state == value);
    (graph.operator(value).is_some() || is_sum)
        && !is_bound
        && graph.users(value).iter().any(reads_terms)
}

/// Returns whether an operator may work on partial sums: an addition, the sum of gradients, or a
/// change of shape of what an addition reads, of tensors that have the type of the result.
fn may_be_terms(network: &Network, value: Value) -> bool {
    let graph = &network.graph;
    let Some(operator) = graph.operator(value) else { return false };
    let dtype = graph.node(value).dtype;
    let has_one_type = graph.operands(value).iter().all(|it| graph.node(*it).dtype == dtype);
    let is_of_kind = match operator.kind().as_str() {
        "add" | "accumulate" => true,
        "permute" | "reshape" => may_be_stored_so(network, value),
        _ => false,
    };
    is_of_kind && has_one_type && dtype != DType::I32
}

/// Returns whether ranks may repeat each other's work on a tensor. These are casts to `bf16` and
/// replicas, and in predictions elementwise operators and changes of shape on tensors without a
/// batch.
fn may_repeat(network: &Network, value: Value) -> bool {
    let graph = &network.graph;
    let text = graph.operator(value).unwrap().to_string();
    let is_light = ["map", "add", "permute", "reshape"].contains(&text.split(' ').next().unwrap());
    let is_ancestor = graph.ancestors(&[value]);
    let reads_batch = network.inputs.iter().any(|it| is_ancestor[it.index()]);
    text == "map {x0} to bf16"
        || text == "share"
        || network.loss.is_none() && !reads_batch && is_light
}
