//! The order in which tensors are computed.

use std::collections::BTreeMap;

use soybean_plan::Mode;

use crate::{
    graph::{Graph, Source},
    network::Network,
    operator::Phase,
    value::Value,
};

/// One piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Compute this tensor.
    Compute(Value),
    /// Replace a parameter and its optimizer's states by their next values: pairs of source and
    /// next value.
    Update(Vec<(Value, Value)>),
}

/// The tasks of both phases.
#[derive(Clone, Debug)]
pub(crate) struct Tasks {
    pub(crate) train: Vec<Task>,
    pub(crate) evaluate: Vec<Task>,
}

/// Orders the tasks of a training step and of an evaluation.
pub(crate) fn order(network: &Network) -> Tasks {
    Tasks { train: train(network), evaluate: evaluate(network) }
}

/// Returns the tasks of the computation that plans are measured by.
pub(crate) fn measured(network: &Network) -> Vec<Task> {
    match network.mode() {
        Mode::Training => train(network),
        Mode::Inference => evaluate(network),
    }
}

/// Returns the tasks of a training step: the loss, the gradients, and each update as soon as
/// nothing reads the old value and the numbers that guard it exist. In inference there are none.
fn train(network: &Network) -> Vec<Task> {
    let roots = network.left_by_steps();
    let is_next = network.next_values();
    let order = computed(&network.graph, Phase::Train, &roots, |it| !is_next.contains(&it));
    let guards = network.guards();
    // For each update, the last tensor that reads what it replaces or that it reads.
    let mut due: BTreeMap<Option<Value>, Vec<Task>> = BTreeMap::new();
    for group in network.update_groups() {
        let readers = group.iter().flat_map(|&(source, _)| readers(&network.graph, source));
        let operands = group.iter().flat_map(|&(_, next)| network.graph.operands(next));
        let guards = guards.iter().copied();
        let last = readers
            .chain(operands)
            .chain(guards)
            .filter(|it| order.binary_search(it).is_ok())
            .max();
        due.entry(last).or_default().push(Task::Update(group));
    }
    let mut tasks = due.remove(&None).unwrap_or_default();
    for value in order {
        tasks.push(Task::Compute(value));
        tasks.extend(due.remove(&Some(value)).unwrap_or_default());
    }
    tasks
}

/// Returns the readers of a tensor's memory: its users, and the readers of its aliases.
fn readers(graph: &Graph, value: Value) -> Vec<Value> {
    let mut readers = graph.users(value);
    let mut at = 0;
    while at < readers.len() {
        if graph.operator(readers[at]).is_some_and(|it| it.is_alias()) {
            readers.extend(graph.users(readers[at]));
        }
        at += 1;
    }
    readers
}

/// Returns the tasks of an evaluation: the loss if there is one, and the outputs.
fn evaluate(network: &Network) -> Vec<Task> {
    let order = computed(&network.graph, Phase::Evaluate, &network.fetched(), |_| true);
    order.into_iter().map(Task::Compute).collect()
}

/// Returns the computed tensors among the roots' ancestors of a phase, in order.
fn computed(
    graph: &Graph,
    phase: Phase,
    roots: &[Value],
    is_wanted: impl Fn(Value) -> bool,
) -> Vec<Value> {
    let is_ancestor = graph.ancestors_in(phase, roots);
    let is_computed = |value: &Value| match &graph.node(*value).source {
        Source::Operator(operator) => !operator.is_constant(),
        Source::Input { .. } | Source::Parameter(_) | Source::Buffer(_) | Source::State => false,
    };
    graph
        .values()
        .filter(|it| is_ancestor[it.index()] && is_computed(it) && is_wanted(*it))
        .collect()
}
