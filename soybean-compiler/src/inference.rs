//! Inference: the forward computation of a model's outputs as the whole network.

use soybean_plan::Precision;

use crate::{
    builder::Builder,
    fault::{At, ModelFault},
    graph::{Graph, Source, Value},
    network::Network,
    operator::Operator,
    optimizer::Optimizer,
};

impl Network {
    /// For each tensor, whether ranks may repeat each other's work on it wherever that saves bytes, since there is none, or next to none. In inference that is so for maps and
    /// changes of shape of weights alone, such as the scales of a batch norm: they are small beside what is computed of the batch.
    #[must_use]
    pub fn may_repeat(&self) -> Vec<bool> {
        let graph = &self.graph;
        let mut is_of_weights: Vec<bool> = Vec::with_capacity(graph.n_values());
        let mut may_repeat = Vec::with_capacity(graph.n_values());
        for value in graph.values() {
            let is_source = !matches!(graph.node(value).source, Source::Input { .. });
            let operands = graph.operands(value);
            is_of_weights.push(is_source && operands.iter().all(|it| is_of_weights[it.index()]));
            let is_light = |it: &Operator| {
                let changes_nothing = it.is_alias() || matches!(it, Operator::Permute(_));
                changes_nothing || matches!(it, Operator::Elementwise(_))
            };
            let is_repeatable = |it: &Operator| {
                let is_fixed = self.loss.is_none() && is_of_weights[value.index()];
                it.may_repeat() || is_fixed && is_light(it)
            };
            may_repeat.push(graph.operator(value).is_some_and(is_repeatable));
        }
        may_repeat
    }

    /// The network of a builder of mode inference: what it made, without gradients and updates.
    pub(crate) fn forward_only(
        builder: Builder,
        outputs: &[(String, Value)],
    ) -> Result<Self, Vec<ModelFault>> {
        let sites = builder.sites().into();
        let Builder { graph, scalars, names, .. } = builder;
        let roots: Vec<Value> = outputs.iter().map(|&(_, value)| value).collect();
        let is_needed = graph.ancestors(&roots);
        let sources = |wanted: fn(&Source) -> bool| -> Vec<Value> {
            graph.values().filter(|&it| wanted(&graph.node(it).source)).collect()
        };
        let inputs = sources(|it| matches!(it, Source::Input { .. }));
        let parameters = sources(|it| matches!(it, Source::Parameter(_)));
        let unused = parameters.iter().filter(|it| !is_needed[it.index()]);
        let faults: Vec<ModelFault> = unused.map(|&it| unused_parameter(&graph, it)).collect();
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Self {
            graph,
            inputs,
            parameters,
            loss: None,
            outputs: outputs.to_vec(),
            updates: Vec::new(),
            gradient_norm: None,
            optimizer: Optimizer::default(),
            scalars,
            precision: Precision::F32,
            names: names.into_iter().map(|(name, it)| (name, Some(it))).collect(),
            sites,
        })
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
