//! Roles: which kind of parallelism it is to split a factor of an operator.
//!
//! The role of a factor follows from its dims: a dim of the batch keeps its role through all
//! operators, and a dim of a weight is classified by the layer's product. Gradients of a layer have
//! the roles of its forward product: a split of a weight's columns has one role in all three
//! products.

use std::fmt;

use soybean_plan::{DType, ImageLayout};

use crate::{
    graph::{Graph, Source},
    network::Network,
    operator::Operator,
    operators::{
        attend::Attend, contract::Contract, convolve::Convolve, elementwise::Elementwise,
        embed::Embed, embed_update::EmbedUpdate, permute::Permute, pool::Pool,
    },
    signature::{FactorId, Partitioning, Signature, set_of_terms},
    tiling::TiledNetwork,
    value::Value,
};

/// The kind of parallelism that comes of splitting a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// Samples of the batch.
    Data,
    /// Places in a sequence.
    Sequence,
    /// Rows and columns of images.
    Spatial,
    /// Heads of attention.
    Head,
    /// Output features of a layer.
    Column,
    /// Input features of a layer; its products are summed over them.
    Row,
    /// Words: rows of an embedding's table, columns of logits.
    Vocabulary,
    /// Features of what has no weights.
    Feature,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "data",
            Self::Sequence => "sequence",
            Self::Spatial => "spatial",
            Self::Head => "head",
            Self::Column => "column",
            Self::Row => "row",
            Self::Vocabulary => "vocabulary",
            Self::Feature => "feature",
        })
    }
}

/// The properties of a network's factors.
pub(super) struct Roles<'a> {
    tiled: &'a TiledNetwork,
    /// For each tensor and dim, the role of what comes from the batch.
    dims: Vec<Vec<Option<Role>>>,
    /// For each tensor, whether it serves the loss or an output.
    is_forward: Vec<bool>,
    /// The numbers of words of the embeddings.
    vocabularies: Vec<usize>,
    /// For each of the builder's calls, whether its forward product has a weight.
    has_weight: Vec<bool>,
}

impl<'a> Roles<'a> {
    pub(super) fn new(tiled: &'a TiledNetwork) -> Self {
        let network = &tiled.network;
        let graph = &network.graph;
        let is_forward = network.forward();
        let vocabulary = |value| graph.operator_as::<Embed>(value).map(|it| it.vocabulary);
        let mut has_weight = vec![false; network.sites.len()];
        for value in graph.values().filter(|it| is_forward[it.index()]) {
            let has = is_product(graph, value)
                && graph.operands(value).iter().any(|&it| weight(graph, it).is_some());
            if let Some(slot) = graph.node(value).origin.and_then(|it| has_weight.get_mut(it)) {
                *slot |= has;
            }
        }
        Self {
            tiled,
            dims: dims(network),
            vocabularies: graph.values().filter_map(vocabulary).collect(),
            is_forward,
            has_weight,
        }
    }

    pub(super) fn is_forward(&self, value: Value) -> bool {
        self.is_forward[value.index()]
    }

    /// Returns the role of each axis in the partitioning of the operator that computes this tensor;
    /// `None` if its ranks repeat each other's work or add up their own terms of sums.
    pub(super) fn of_form(&self, value: Value, form: &Partitioning) -> Vec<Option<Role>> {
        let (signature, _) = self.tiled.signature(value);
        let role = |factor: FactorId| self.of_factor(value, &signature, factor);
        let split = form.0.iter().map(|it| it.filter(|it| set_of_terms(*it).is_none()));
        split.map(|factor| factor.map(role)).collect()
    }

    fn of_factor(&self, value: Value, signature: &Signature, factor: FactorId) -> Role {
        let graph = &self.tiled.network.graph;
        let operands = graph.operands(value);
        if let Some(role) = role_of_operands(&self.dims, &operands, signature, factor) {
            return role;
        }
        let carries = |at: usize| signature.operands[at].iter().any(|it| it.factor == Some(factor));
        let role = match graph.operator(value) {
            Some(it) if it.is::<Contract>() || it.is::<Convolve>() => {
                let weight = (0..operands.len()).find(|&it| weight(graph, operands[it]).is_some());
                self.of_product(value, signature.is_reduced(factor), weight, &carries)
            }
            // The queries are the last factor.
            Some(it) if it.is::<Attend>() => match signature.factors.len() - 1 {
                last if last == usize::from(factor) => Role::Sequence,
                _ => Role::Head,
            },
            Some(it) if is_of_table(it) && carries(2) => Role::Vocabulary,
            Some(it) if is_of_table(it) => Role::Column,
            Some(_) | None => Role::Feature,
        };
        let extent = signature.factors[factor as usize];
        let is_of_words = matches!(role, Role::Column | Role::Row | Role::Feature);
        if is_of_words && self.vocabularies.contains(&extent) { Role::Vocabulary } else { role }
    }

    /// Returns the role in a product of a factor that the batch lacks. `carries` says whether an
    /// operand has the factor.
    fn of_product(
        &self,
        value: Value,
        is_reduced: bool,
        weight: Option<usize>,
        carries: &dyn Fn(usize) -> bool,
    ) -> Role {
        let graph = &self.tiled.network.graph;
        let is_forward = self.is_forward(value);
        let origin = graph.node(value).origin;
        let is_layer = origin.is_some_and(|it| self.has_weight.get(it) == Some(&true));
        match weight {
            Some(weight) if carries(weight) => match is_reduced == is_forward {
                // y = x w adds up over the inputs, dx = dy w' over the outputs.
                true => Role::Row,
                false => Role::Column,
            },
            Some(_) => Role::Data,
            // dw = x' dy adds up over the batch.
            None if is_layer && is_reduced => Role::Data,
            None if is_layer => {
                let gradient = graph.operands(value).iter().position(|&it| !self.is_forward(it));
                if gradient.is_some_and(carries) { Role::Column } else { Role::Row }
            }
            None if carries(0) && carries(1) && !is_reduced => Role::Head,
            None if is_reduced => Role::Row,
            None => Role::Column,
        }
    }
}

/// Returns whether an operator looks up rows of a table, or computes its gradient or next value.
/// The third operand numbers the rows.
fn is_of_table(operator: &Operator) -> bool {
    operator.is::<Embed>() || operator.is::<EmbedUpdate>()
}

/// Returns whether a tensor is computed by a product, which is most of a layer's work.
pub(super) fn is_product(graph: &Graph, value: Value) -> bool {
    graph.operator(value).is_some_and(|it| {
        it.is::<Contract>() || it.is::<Convolve>() || it.is::<Attend>() || it.is::<Embed>()
    })
}

/// Returns whether an operator returns its operand in another shape, order or type.
pub(super) fn passes_on(operator: &Operator) -> bool {
    let is_copy = operator.downcast_ref::<Elementwise>().is_some_and(Elementwise::is_copy);
    operator.is_alias() || operator.is_cast() || operator.is::<Permute>() || is_copy
}

/// Returns the parameter that a tensor is in another shape, order or type, if any.
pub(super) fn weight(graph: &Graph, value: Value) -> Option<Value> {
    match &graph.node(value).source {
        Source::Parameter(_) => Some(value),
        Source::Operator(operator) if passes_on(operator) => {
            weight(graph, graph.operands(value)[0])
        }
        Source::Operator(_) | Source::Input { .. } | Source::Buffer(_) | Source::State => None,
    }
}

/// Returns, for each tensor and dim, the role of the batch's dims in it.
fn dims(network: &Network) -> Vec<Vec<Option<Role>>> {
    let graph = &network.graph;
    let is_image = images(graph);
    let mut dims: Vec<Vec<Option<Role>>> = Vec::new();
    for value in graph.values() {
        let node = graph.node(value);
        let mut of_value = vec![None; node.shape.len()];
        match &node.source {
            Source::Input { .. } => {
                let has_places = match node.dtype {
                    DType::I32 => node.shape.len() == 2,
                    DType::F32 | DType::Bf16 => node.shape.len() == 3,
                };
                let second = has_places.then_some(Role::Sequence);
                let of_pixels = is_image[value.index()].then_some(Role::Spatial);
                let roles = [Some(Role::Data), second, of_pixels, of_pixels];
                of_value.iter_mut().zip(roles).for_each(|(dim, role)| *dim = role);
            }
            Source::Operator(operator) => {
                let signature = operator.signature(&graph.operand_shapes(value));
                let operands = graph.operands(value);
                for (dim, of_result) in of_value.iter_mut().zip(&signature.result) {
                    let role = |it| role_of_operands(&dims, &operands, &signature, it);
                    *dim = of_result.factor.and_then(role);
                }
            }
            Source::Parameter(_) | Source::Buffer(_) | Source::State => {}
        }
        dims.push(of_value);
    }
    dims
}

/// Marks the tensors that convolutions or poolings read as images.
fn images(graph: &Graph) -> Vec<bool> {
    let mut is_image = vec![false; graph.n_values()];
    for value in graph.values() {
        let Some(operator) = graph.operator(value) else { continue };
        if !operator.is::<Convolve>() && !operator.is::<Pool>() {
            continue;
        }
        let signature = operator.signature(&graph.operand_shapes(value));
        for (operand, dims) in graph.operands(value).into_iter().zip(&signature.operands) {
            is_image[operand.index()] |= dims.iter().any(|dim| dim.halo.is_some());
        }
    }
    // So are the tensors of which they read copies with their channels last.
    for value in graph.values().rev() {
        if is_image[value.index()] && graph.operator(value).is_some_and(moves_channels) {
            is_image[graph.operands(value)[0].index()] = true;
        }
    }
    is_image
}

/// Returns whether an operator copies images with their channels last.
fn moves_channels(operator: &Operator) -> bool {
    let is_last = |it: &Permute| it.order == ImageLayout::ChannelsLast.order(4);
    operator.downcast_ref::<Elementwise>().is_some_and(Elementwise::is_copy)
        || operator.downcast_ref::<Permute>().is_some_and(is_last)
}

/// Returns the role that an operand's dim gives a factor.
fn role_of_operands(
    dims: &[Vec<Option<Role>>],
    operands: &[Value],
    signature: &Signature,
    factor: FactorId,
) -> Option<Role> {
    let of_operand = |(operand, of_signature): (&Value, &Vec<_>)| {
        let dims = dims.get(operand.index())?;
        let carries = |it: &crate::signature::Dim| it.factor == Some(factor);
        of_signature.iter().zip(dims).find_map(|(dim, role)| role.filter(|_| carries(dim)))
    };
    operands.iter().zip(&signature.operands).find_map(of_operand)
}
