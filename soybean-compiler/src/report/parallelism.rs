//! Which parallelism came out, layer by layer.

use std::collections::{BTreeMap, BTreeSet};

use soybean_plan::{Mesh, Placement};

use super::{
    layers::layers,
    role::{Role, Roles, is_product, passes_on},
};
use crate::{
    graph::{Graph, Source},
    network::Network,
    tiling::TiledNetwork,
    value::Value,
};

/// The parallelism of a layer's work and its weights; each is empty if nothing is split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parallelism {
    /// Of the forward computation: `data 2 x column 4`; several where its products differ.
    pub forward: String,
    /// Of the gradients.
    pub backward: String,
    /// The storage of the largest parameter: `split` as its readers take it, `sharded` in another
    /// way, replicated with `sharded state` of the optimizer, or `replicated` entirely.
    pub weights: String,
}

/// Returns the parallelism of each layer, in the order of the model. The model's own function has
/// an empty name.
pub(super) fn parallelism(tiled: &TiledNetwork) -> Vec<(String, Parallelism)> {
    let network = &tiled.network;
    let (roles, layers) = (Roles::new(tiled), layers(network));
    let is_of_updates = network.of_updates();
    let (mut names, mut known) = (Vec::new(), BTreeSet::new());
    let mut members: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for value in network.graph.values() {
        let name = layers[value.index()].as_str();
        let is_computed = network.graph.operator(value).is_some();
        if is_computed && roles.is_forward(value) && known.insert(name) {
            names.push(name);
        }
        if !is_of_updates[value.index()] {
            members.entry(name).or_default().push(value);
        }
    }
    let states = states(network);
    let of_layer = |name: &str| {
        let members = members.get(name).map_or(&[][..], Vec::as_slice);
        let largest = largest_parameter(&network.graph, members);
        let weights =
            |it: Value| of_weight(tiled, &roles, it, states.get(&it).map_or(&[], Vec::as_slice));
        let (forward, backward): (Vec<_>, Vec<_>) =
            members.iter().partition(|&&it| roles.is_forward(it));
        Parallelism {
            weights: largest.map_or_else(String::new, weights),
            forward: of_work(tiled, &roles, &forward),
            backward: of_work(tiled, &roles, &backward),
        }
    };
    let all = names.into_iter().map(|it| (it.to_owned(), of_layer(it)));
    all.filter(|(_, it)| *it != Parallelism::default()).collect()
}

/// Returns the optimizer's states of each parameter.
fn states(network: &Network) -> BTreeMap<Value, Vec<Value>> {
    let of_group = |group: Vec<(Value, Value)>| {
        let mut sources = group.into_iter().map(|(source, _)| source);
        Some((sources.next()?, sources.collect()))
    };
    network.update_groups().into_iter().filter_map(of_group).collect()
}

fn largest_parameter(graph: &Graph, values: &[Value]) -> Option<Value> {
    let is_parameter = |it: &Value| matches!(graph.node(*it).source, Source::Parameter(_));
    let parameters = values.iter().copied().filter(is_parameter);
    parameters.max_by_key(|&it| graph.shape(it).n_elements())
}

/// Returns the parallelism of the products among these tensors; of all operators if there are no
/// products.
fn of_work(tiled: &TiledNetwork, roles: &Roles<'_>, values: &[Value]) -> String {
    let graph = &tiled.network.graph;
    let has_products = values.iter().any(|&it| is_product(graph, it));
    let mut texts: Vec<(u64, String)> = Vec::new();
    for &value in values {
        let (Some(operator), Some(form)) = (graph.operator(value), &tiled.forms[value.index()])
        else {
            continue;
        };
        let is_wanted = if has_products { is_product(graph, value) } else { !passes_on(operator) };
        if !is_wanted {
            continue;
        }
        let work = operator.signature(&graph.operand_shapes(value)).n_points();
        let text = mixture(&tiled.mesh, &roles.of_form(value, form));
        match texts.iter_mut().find(|it| it.1 == text) {
            Some(known) => known.0 += work,
            None => texts.push((work, text)),
        }
    }
    // The partitioning with the most work comes first; negligible ones are omitted.
    texts.sort_by_key(|it| std::cmp::Reverse(it.0));
    let all: u64 = texts.iter().map(|it| it.0).sum();
    texts.retain(|it| it.0 * 100 >= all);
    texts.into_iter().map(|it| it.1).collect::<Vec<_>>().join(", ")
}

/// Returns a mixture of parallelisms by the roles of the axes: `data 2 x column 4`.
fn mixture(mesh: &Mesh, roles: &[Option<Role>]) -> String {
    let mut sizes: Vec<(Option<Role>, usize)> = Vec::new();
    for (axis, &role) in roles.iter().enumerate() {
        match sizes.iter_mut().find(|it| it.0 == role) {
            Some(known) => known.1 *= mesh.size(axis),
            None => sizes.push((role, mesh.size(axis))),
        }
    }
    // Repeated work comes last.
    sizes.sort_by_key(|it| (it.0.is_none(), it.0));
    let text = |&(role, size): &(Option<Role>, usize)| match role {
        Some(role) => format!("{role} {size}"),
        None => format!("repeated {size}"),
    };
    sizes.iter().map(text).collect::<Vec<_>>().join(" x ")
}

/// A forward operator that computes something from a parameter.
struct Reader {
    /// The result of the operator.
    value: Value,
    /// The position of the operand that is the parameter, or an alias or a cast of it.
    position: usize,
    /// Returns whether the operand has the dims of the parameter: it is the parameter itself, a
    /// replica or a cast.
    has_same_dims: bool,
}

/// Returns the first forward operator that computes something from a parameter.
fn reader(graph: &Graph, roles: &Roles<'_>, value: Value) -> Option<Reader> {
    graph.users(value).into_iter().filter(|&it| roles.is_forward(it)).find_map(|user| {
        if let Some(operator) = graph.operator(user).filter(|it| passes_on(it)) {
            let keeps_dims = operator.is_replica() || operator.is_cast();
            let reader = reader(graph, roles, user)?;
            return Some(Reader { has_same_dims: reader.has_same_dims && keeps_dims, ..reader });
        }
        let position = graph.operands(user).iter().position(|&it| it == value)?;
        Some(Reader { value: user, position, has_same_dims: true })
    })
}

/// Returns the storage of a parameter and its optimizer's states, compared with the tiling that the
/// forward computation reads.
fn of_weight(
    tiled: &TiledNetwork,
    roles: &Roles<'_>,
    parameter: Value,
    states: &[Value],
) -> String {
    let found = reader(&tiled.network.graph, roles, parameter);
    let Some(Reader { value, position, has_same_dims }) = found else { return String::new() };
    let (signature, form) = tiled.signature(value);
    let used = signature.operand_tiling(position, form);
    let stored = &tiled.tilings[parameter.index()];
    let is_split = |placement| matches!(placement, Placement::Split(_));
    let kind = |axis: usize| {
        let has_split_states = states.iter().any(|it| is_split(tiled.tilings[it.index()].on(axis)));
        match (is_split(stored.on(axis)), is_split(used.on(axis))) {
            // In another order or shape, dims have other numbers.
            (true, true) if !has_same_dims || stored.on(axis) == used.on(axis) => "split",
            (true, _) => "sharded",
            (false, _) if has_split_states => "sharded state",
            (false, _) => "replicated",
        }
    };
    let size = |wanted: &str| {
        let axes = (0..tiled.mesh.n_axes()).filter(|&axis| kind(axis) == wanted).collect();
        tiled.mesh.group_size(axes)
    };
    let kinds = ["split", "sharded", "sharded state", "replicated"].map(|kind| (kind, size(kind)));
    let texts = kinds.iter().filter(|it| it.1 > 1).map(|(kind, size)| format!("{kind} {size}"));
    texts.collect::<Vec<_>>().join(" x ")
}
