//! The partitionings of an operator, from their definition.

use std::collections::BTreeSet;

use soybean_compiler::{
    Network, Value,
    signature::{FactorId, Partitioning, Signature, terms},
};
use soybean_plan::{Combine, DType, Mesh};

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
    let all_terms = all_terms(network, mesh, value);
    let mut forms = vec![Partitioning(vec![None; mesh.n_axes()])];
    for axis in 0..mesh.n_axes() {
        let split: Vec<Partitioning> = forms.iter().flat_map(|it| extended(it, axis)).collect();
        let of_terms = |it: &Partitioning| {
            let with = |terms: &FactorId| {
                let mut form = it.clone();
                form.0[axis] = Some(*terms);
                form
            };
            all_terms.iter().map(with).collect::<Vec<_>>()
        };
        let of_terms: Vec<Partitioning> = forms.iter().flat_map(of_terms).collect();
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

/// Returns whether a tensor may be stored as partial sums where that is cheaper: it is a sum of
/// which an operator may read terms, it is not kept or returned, and users did not pin it. Of kept
/// tensors, only sums of gradients may be.
pub(crate) fn may_be_stored_so(network: &Network, mesh: &Mesh, value: Value) -> bool {
    let graph = &network.graph;
    let reads_terms = |reader: &Value| {
        let operands = graph.operands(*reader);
        let sets = sets_of_terms(network, mesh, *reader);
        sets.iter().any(|(_, set)| set.iter().any(|at| operands[*at] == value))
    };
    is_sum(network, mesh, value)
        && !is_bound(network, value)
        && graph.users(value).iter().any(reads_terms)
}

fn is_bound(network: &Network, value: Value) -> bool {
    network.roots().contains(&value) || network.graph.node(value).pinned.is_some()
}

fn signature(network: &Network, value: Value) -> Option<Signature> {
    let graph = &network.graph;
    Some(graph.operator(value)?.signature(&graph.operand_shapes(value)))
}

/// Returns whether an operator adds up what may be partial sums.
fn adds_terms(network: &Network, value: Value) -> bool {
    let kind = network.graph.operator(value).unwrap().kind();
    ["add", "accumulate", "accumulated", "combine"].contains(&kind.as_str())
}

/// Returns whether an operator can give a tensor as partial sums: it adds up over some factor, or
/// is linear in such tensors. The sum of gradients is one if the gradients are.
fn is_sum(network: &Network, mesh: &Mesh, value: Value) -> bool {
    let Some(signature) = signature(network, value) else {
        let sum = network.gradient_sums.iter().find(|it| it.state == value);
        let added = sum.map_or(Vec::new(), |it| network.graph.operands(it.next));
        return added.iter().any(|it| *it != value && is_sum(network, mesh, *it));
    };
    let is_reduced = |it: &usize| {
        signature.factors[*it] > 1 && signature.is_reduced(FactorId::try_from(*it).unwrap())
    };
    let adds_up = (0..signature.factors.len()).any(|it| is_reduced(&it));
    signature.combine == Combine::Sum && adds_up
        || signature.linear.iter().any(|it| is_linear_in_sums(network, mesh, value, it))
}

/// Returns whether these operands of an operator can be sums whose terms it may read: all of them
/// but smaller ones, or some if it adds them up. They are not more exact than the result, and a
/// product is light.
fn is_linear_in_sums(network: &Network, mesh: &Mesh, value: Value, set: &[usize]) -> bool {
    let graph = &network.graph;
    let operands = graph.operands(value);
    let is_light = !is_product(network, value) || is_light(network, mesh, value);
    let (sums, others): (Vec<usize>, Vec<usize>) =
        set.iter().partition(|at| is_sum(network, mesh, operands[**at]));
    let size = |it: Value| graph.shape(it).iter().product::<usize>();
    let are_small = others.iter().all(|at| size(operands[*at]) < size(value));
    let may_be_others = adds_terms(network, value) || are_small;
    is_exact(network, value, set) && is_light && !sums.is_empty() && may_be_others
}

/// Returns whether a result is at least as exact as these operands.
fn is_exact(network: &Network, value: Value, set: &[usize]) -> bool {
    let graph = &network.graph;
    let dtype = graph.node(value).dtype;
    set.iter().all(|at| {
        let of_operand = graph.node(graph.operands(value)[*at]).dtype;
        of_operand == dtype && dtype != DType::I32
            || (of_operand, dtype) == (DType::Bf16, DType::F32)
    })
}

fn is_product(network: &Network, value: Value) -> bool {
    network.graph.operator(value).is_some_and(|it| it.kind() == "contract")
}

/// Returns whether a product has little work: if every rank does all the work of this one and of
/// all that have no more and might read terms, they repeat no more than the network allows. Such a
/// product alone reads a result of another operator.
fn is_light(network: &Network, mesh: &Mesh, value: Value) -> bool {
    let (graph, weights) = (&network.graph, network.weights());
    let work = |it: Value| graph.flops(it) * weights.of_value(it).max(1);
    let reads_its_own = |product: Value, at: &usize| {
        let read = graph.operands(product)[*at];
        graph.operator(read).is_some() && graph.users(read) == [product] && !is_bound(network, read)
    };
    let might_read_terms = |it: &Value| {
        let is_open = |set: &Vec<usize>| {
            is_exact(network, *it, set) && set.iter().all(|at| reads_its_own(*it, at))
        };
        is_product(network, *it) && signature(network, *it).unwrap().linear.iter().any(is_open)
    };
    let cheapest = graph.values().filter(might_read_terms).map(work);
    let cheapest: u64 = cheapest.filter(|it| *it <= work(value)).sum();
    let of_step: u64 = graph.values().map(|it| graph.flops(it) * weights.of_value(it)).sum();
    let n_others = mesh.n_ranks() as u64 - 1;
    might_read_terms(&value) && (cheapest * n_others) as f64 <= network.light_work * of_step as f64
}

/// Returns the terms on which an operator may work, each with its operands. An operator that adds
/// nothing up alone reads what it reads so, or beside others that each have one index of a dim. Its
/// result is smaller, and no operand is a number, or it may be stored as partial sums itself.
fn sets_of_terms(network: &Network, mesh: &Mesh, value: Value) -> Vec<(FactorId, Vec<usize>)> {
    let graph = &network.graph;
    let Some(signature) = signature(network, value) else { return Vec::new() };
    let operands = graph.operands(value);
    let bytes = |it: Value| graph.shape(it).n_elements() * graph.node(it).dtype.bytes();
    let may_read_terms = |reader: Value, of: Value| {
        let operands = graph.operands(reader);
        let linear = self::signature(network, reader).map_or(Vec::new(), |it| it.linear);
        let mut sets = linear.iter().filter(|it| is_linear_in_sums(network, mesh, reader, it));
        sets.any(|set| set.iter().any(|at| operands[*at] == of))
    };
    let is_useful = |set: &[usize]| {
        let sums = set.iter().map(|at| operands[*at]).filter(|it| is_sum(network, mesh, *it));
        let read: BTreeSet<Value> = sums.collect();
        let is_free = |it: &Value| {
            let readers = graph.users(*it);
            let has_one_index = |reader: Value| {
                let [part, whole] = [reader, *it].map(|it| graph.shape(it).to_vec());
                let cut: Vec<usize> =
                    (0..whole.len()).filter(|at| part.get(*at) != Some(&whole[*at])).collect();
                part.len() == whole.len() && !cut.is_empty() && cut.iter().all(|at| part[*at] == 1)
            };
            let are_parts =
                readers.iter().all(|reader| has_one_index(*reader) && may_read_terms(*reader, *it));
            !is_bound(network, *it) && (readers == [value] || are_parts)
        };
        let is_smaller = bytes(value) < read.iter().map(|it| bytes(*it)).sum()
            && read.iter().any(|it| !graph.shape(*it).is_empty());
        read.iter().all(is_free) && (is_smaller || may_be_stored_so(network, mesh, value))
    };
    let is_open = |set: &[usize]| {
        let is_addition = adds_terms(network, value);
        is_linear_in_sums(network, mesh, value, set) && (is_addition || is_useful(set))
    };
    let sets = signature.linear.iter().enumerate().filter(|it| is_open(it.1));
    sets.map(|(at, set)| (terms(at), set.clone())).collect()
}

fn all_terms(network: &Network, mesh: &Mesh, value: Value) -> Vec<FactorId> {
    sets_of_terms(network, mesh, value).into_iter().map(|it| it.0).collect()
}

/// Returns whether ranks may repeat each other's work on a tensor. These are casts to `bf16` and
/// replicas, and in predictions elementwise operators and changes of shape on tensors without a
/// batch.
fn may_repeat(network: &Network, value: Value) -> bool {
    let graph = &network.graph;
    let text = graph.operator(value).unwrap().to_string();
    let is_light =
        ["map", "add", "combine", "permute", "reshape"].contains(&text.split(' ').next().unwrap());
    let is_ancestor = graph.ancestors(&[value]);
    let reads_batch = network.inputs.iter().any(|it| is_ancestor[it.index()]);
    text == "map {x0} to bf16"
        || text == "share"
        || text.starts_with("embed-update ")
        || network.loss().is_none() && !reads_batch && is_light
}
