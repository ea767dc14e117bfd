//! Which parallelism came out, layer by layer.

use soybean_plan::{Mesh, Placement};

use super::{
    layers::layers,
    role::{Role, Roles, is_product, passes_on, weight},
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
    /// Of the largest parameter with its optimiser's states.
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
    let is_next: Vec<Value> = tiled.network.updates.iter().map(|&(_, next)| next).collect();
    let of_layer = |name: &str| {
        let all: Vec<Value> = graph
            .values()
            .filter(|it| layers[it.index()] == name && !is_next.contains(it))
            .collect();
        let (forward, backward): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|&it| roles.is_forward(it));
        let weights = forward.iter().filter_map(|&it| used_weight(graph, it));
        Parallelism {
            weights: weights
                .max_by_key(|it| graph.shape(it.0).n_elements())
                .map_or_else(String::new, |(parameter, reader, position)| {
                    of_weight(tiled, parameter, reader, position)
                }),
            forward: of_work(tiled, &roles, &forward),
            backward: of_work(tiled, &roles, &backward),
        }
    };
    names.iter().map(|it| ((*it).to_owned(), of_layer(it))).collect()
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
    // What most of the work is stands first.
    texts.sort_by_key(|it| std::cmp::Reverse(it.0));
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

/// The parameter that a product reads, with the product and the position at which it stands there.
fn used_weight(graph: &Graph, reader: Value) -> Option<(Value, Value, usize)> {
    let operator = graph.operator(reader)?;
    let operands = graph.operands(reader);
    let of_operand = |at: usize| Some((weight(graph, operands[at])?, reader, at));
    if passes_on(operator) { None } else { (0..operands.len()).find_map(of_operand) }
}

/// How a parameter lies, beside how its reader takes it: split as it is used, replicated, or split though it is used as a whole.
fn of_weight(tiled: &Tiled, parameter: Value, reader: Value, position: usize) -> String {
    let (signature, form) = tiled.signature(reader);
    let used = signature.operand_tiling(position, form);
    let stored = &tiled.tilings[parameter.index()];
    let kind = |axis: usize| match (stored.on(axis), used.on(axis)) {
        (Placement::Split(_), Placement::Split(_)) => "split",
        (Placement::Split(_), _) => "sharded state",
        (Placement::Replicated | Placement::Partial, _) => "replicated",
    };
    let size = |wanted: &str| {
        let axes = (0..tiled.mesh.n_axes()).filter(|&axis| kind(axis) == wanted).collect();
        tiled.mesh.group_size(axes)
    };
    let kinds = ["split", "sharded state", "replicated"].map(|kind| (kind, size(kind)));
    let texts = kinds.iter().filter(|it| it.1 > 1).map(|(kind, size)| format!("{kind} {size}"));
    texts.collect::<Vec<_>>().join(" x ")
}
