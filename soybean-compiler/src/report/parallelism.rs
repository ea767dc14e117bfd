//! Which parallelism came out, layer by layer.

use std::collections::BTreeSet;

use soybean_plan::{Mesh, Placement};

use super::{
    layers::layers,
    role::{Role, Roles, is_product, passes_on},
};
use crate::{
    graph::{Graph, Value},
    operator::Rules,
    tiling::Tiled,
};

/// How a layer's work and its weights are split; each is empty where there is nothing to split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parallelism {
    /// Of the forward computation: `data 2 x column 4`; several where its products differ.
    pub forward: String,
    /// Of the gradients.
    pub backward: String,
    /// Of the largest parameter: `split` as its readers take it, `sharded` otherwise than that, replicated with `sharded state` of the optimiser, or
    /// `replicated` with all of it.
    pub weights: String,
}

/// The parallelism of each layer, in the order of the model. The model's own function has an empty name.
pub(super) fn parallelism(tiled: &Tiled) -> Vec<(String, Parallelism)> {
    let graph = &tiled.network.graph;
    let (roles, layers) = (Roles::new(tiled), layers(&tiled.network));
    let mut names: Vec<&str> = Vec::new();
    for value in graph.values().filter(|&it| graph.operator(it).is_some()) {
        let name = layers[value.index()].as_str();
        if !names.contains(&name) && roles.is_forward(value) {
            names.push(name);
        }
    }
    let is_next: BTreeSet<Value> = tiled.network.updates.iter().map(|&(_, next)| next).collect();
    let of_layer = |name: &str| {
        let in_layer = |it: &Value| layers[it.index()] == name && !is_next.contains(it);
        let (forward, backward): (Vec<_>, Vec<_>) =
            graph.values().filter(in_layer).partition(|&it| roles.is_forward(it));
        let parameters = tiled.network.parameters.iter().copied().filter(in_layer);
        let largest = parameters.max_by_key(|&it| graph.shape(it).n_elements());
        Parallelism {
            weights: largest.map_or_else(String::new, |it| of_weight(tiled, &roles, it)),
            forward: of_work(tiled, &roles, &forward),
            backward: of_work(tiled, &roles, &backward),
        }
    };
    let all = names.iter().map(|it| ((*it).to_owned(), of_layer(it)));
    all.filter(|(_, it)| *it != Parallelism::default()).collect()
}

/// How the products among these tensors are split, or where there are none, all that is computed.
fn of_work(tiled: &Tiled, roles: &Roles<'_>, values: &[Value]) -> String {
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
    // What most of the work is stands first; what is next to nothing of it is left out.
    texts.sort_by_key(|it| std::cmp::Reverse(it.0));
    let all: u64 = texts.iter().map(|it| it.0).sum();
    texts.retain(|it| it.0 * 100 >= all);
    texts.into_iter().map(|it| it.1).collect::<Vec<_>>().join(", ")
}

/// A mixture of parallelisms by the roles of the axes: `data 2 x column 4`.
fn mixture(mesh: &Mesh, roles: &[Option<Role>]) -> String {
    let mut sizes: Vec<(Option<Role>, usize)> = Vec::new();
    for (axis, &role) in roles.iter().enumerate() {
        match sizes.iter_mut().find(|it| it.0 == role) {
            Some(known) => known.1 *= mesh.size(axis),
            None => sizes.push((role, mesh.size(axis))),
        }
    }
    // What ranks repeat stands last.
    sizes.sort_by_key(|it| (it.0.is_none(), it.0));
    let text = |&(role, size): &(Option<Role>, usize)| match role {
        Some(role) => format!("{role} {size}"),
        None => format!("repeated {size}"),
    };
    sizes.iter().map(text).collect::<Vec<_>>().join(" x ")
}

/// The first forward operator that computes something of a parameter, with the position at which it reads it, and whether it reads the parameter itself.
fn reader(graph: &Graph, roles: &Roles<'_>, value: Value) -> Option<(Value, usize, bool)> {
    graph.users(value).into_iter().filter(|&it| roles.is_forward(it)).find_map(|user| {
        if graph.operator(user).is_some_and(passes_on) {
            return reader(graph, roles, user).map(|(reader, at, _)| (reader, at, false));
        }
        let position = graph.operands(user).iter().position(|&it| it == value)?;
        Some((user, position, true))
    })
}

/// How a parameter and its optimiser's states lie, beside how the forward computation takes it.
fn of_weight(tiled: &Tiled, roles: &Roles<'_>, parameter: Value) -> String {
    let network = &tiled.network;
    let Some((reader, position, is_direct)) = reader(&network.graph, roles, parameter) else {
        return String::new();
    };
    let (signature, form) = tiled.signature(reader);
    let used = signature.operand_tiling(position, form);
    let stored = &tiled.tilings[parameter.index()];
    let groups = network.update_groups();
    let group = groups.iter().find(|it| it[0].0 == parameter);
    let states: Vec<Value> = group.iter().flat_map(|it| &it[1..]).map(|it| it.0).collect();
    let is_split = |placement| matches!(placement, Placement::Split(_));
    let kind = |axis: usize| {
        let has_split_states = states.iter().any(|it| is_split(tiled.tilings[it.index()].on(axis)));
        match (is_split(stored.on(axis)), is_split(used.on(axis))) {
            // In another order or shape, dims have other numbers.
            (true, true) if !is_direct || stored.on(axis) == used.on(axis) => "split",
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
