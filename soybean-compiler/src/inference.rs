//! Inference: the forward computation of a model's outputs as the whole network.

use crate::{
    builder::Builder,
    fault::{At, ModelFault},
    graph::Graph,
    network::Network,
    value::Value,
};

impl Network {
    /// The network of a builder of mode inference: what it made, without gradients and updates.
    pub(crate) fn forward_only(
        builder: Builder,
        outputs: &[(String, Value)],
    ) -> Result<Self, Vec<ModelFault>> {
        let network = Self::made(builder, None, outputs);
        let is_needed = network.forward();
        let unused = network.parameters.iter().filter(|it| !is_needed[it.index()]);
        let faults: Vec<ModelFault> =
            unused.map(|&it| unused_parameter(&network.graph, it)).collect();
        if faults.is_empty() { Ok(network) } else { Err(faults) }
    }
}

fn unused_parameter(graph: &Graph, parameter: Value) -> ModelFault {
    let name = &graph.node(parameter).name;
    ModelFault {
        at: At::Value(parameter),
        message: format!("no output depends on the parameter `{name}`"),
        help: Some("use it on the way to an output, or remove it".to_owned()),
    }
}
