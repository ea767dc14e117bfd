//! The order in which tensors are computed.

use std::collections::BTreeMap;

use soybean_plan::Mode;

use crate::{
    graph::{Graph, Source},
    network::{GradientSum, Network},
    operator::Phase,
    value::Value,
};

/// One piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Compute this tensor.
    Compute(Value),
    /// Replace kept tensors by their next values, all at once.
    Update(Update),
}

/// An update of a parameter with its optimizer's states, of a buffer, of a sum of gradients, or of
/// a model's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    /// Pairs of source and next value; none of a count, which only becomes zero.
    pub(crate) next: Vec<(Value, Value)>,
    /// The sum of gradients that becomes zero.
    pub(crate) cleared: Option<Value>,
}

/// The tasks of all phases.
#[derive(Clone, Debug)]
pub(crate) struct Tasks {
    /// Those of a training step of each entry; there are none in inference.
    pub(crate) train: Vec<Vec<Task>>,
    /// Those of an accumulating step; there are none if every step updates.
    pub(crate) accumulate: Vec<Task>,
    /// Those of an evaluation by each entry.
    pub(crate) evaluate: Vec<Vec<Task>>,
}

/// Orders the tasks of a training step, of an accumulating step and of evaluations.
pub(crate) fn order(network: &Network) -> Tasks {
    let entries = 0..network.entries.len();
    Tasks {
        train: (0..network.training().count()).map(|it| train(network, it)).collect(),
        accumulate: accumulate(network),
        evaluate: entries.map(|it| evaluate(network, it)).collect(),
    }
}

/// Returns the tasks of training steps, or in inference of predictions, by all entries, one after
/// another.
pub(crate) fn measured(network: &Network) -> Vec<Task> {
    let of_entry = match network.mode() {
        Mode::Training => train,
        Mode::Inference => evaluate,
    };
    (0..network.entries.len()).flat_map(|it| of_entry(network, it)).collect()
}

/// Returns the tasks of a training step of an entry: the loss, the gradients, and each update as
/// soon as nothing reads the old value and the numbers that guard it exist.
fn train(network: &Network, entry: usize) -> Vec<Task> {
    let update = |next: Vec<(Value, Value)>| {
        let origin = |it: Value| network.graph.node(it).origin;
        let is_of = |it: &GradientSum| it.parameter.map(origin) == Some(origin(next[0].0));
        let of_parameter = |it: &&GradientSum| is_of(it);
        let cleared = network.gradient_sums.iter().find(of_parameter).map(|it| it.state);
        Update { next, cleared }
    };
    let counts = network.gradient_sums.iter().filter(|it| it.parameter.is_none());
    let clearing = |it: &GradientSum| Update { next: Vec::new(), cleared: Some(it.state) };
    let groups = network.update_groups_of(entry).into_iter().map(update);
    let updates = groups.chain(counts.map(clearing)).collect();
    tasks(network, Phase::Train(entry), updates)
}

/// Returns the tasks of an accumulating step: the loss, the gradients, and each sum of gradients as
/// soon as nothing reads the old value.
fn accumulate(network: &Network) -> Vec<Task> {
    if !network.accumulates() {
        return Vec::new();
    }
    let update = |pair| Update { next: vec![pair], cleared: None };
    let updates = network.kept_when_accumulating().into_iter().map(update).collect();
    tasks(network, Phase::Accumulate, updates)
}

/// Returns the tasks of a phase that ends with these updates.
fn tasks(network: &Network, phase: Phase, updates: Vec<Update>) -> Vec<Task> {
    let roots = network.left_by(phase);
    let is_next = network.next_values();
    let order = computed(&network.graph, phase, &roots, |it| !is_next.contains(&it));
    // Any update may read a count, so counts are cleared at the end.
    let (updates, clearings): (Vec<Update>, Vec<Update>) =
        updates.into_iter().partition(|it| !it.next.is_empty());
    // For each update, the last tensor that reads what it replaces or that it reads.
    let mut due: BTreeMap<Option<Value>, Vec<Task>> = BTreeMap::new();
    for update in updates {
        let replaced = update.next.iter().map(|it| it.0).chain(update.cleared);
        let readers = replaced.flat_map(|it| readers(&network.graph, it));
        let operands = update.next.iter().flat_map(|&(_, next)| network.graph.operands(next));
        let guards = update.next.iter().flat_map(|it| network.guards(phase, it.0));
        let guards_of_clearing = update.cleared.iter().flat_map(|_| network.guards_of_clearing());
        let guards = guards.chain(guards_of_clearing);
        let last = readers
            .chain(operands)
            .chain(guards)
            .filter(|it| order.binary_search(it).is_ok())
            .max();
        due.entry(last).or_default().push(Task::Update(update));
    }
    let mut tasks = due.remove(&None).unwrap_or_default();
    for value in order {
        tasks.push(Task::Compute(value));
        tasks.extend(due.remove(&Some(value)).unwrap_or_default());
    }
    tasks.extend(clearings.into_iter().map(Task::Update));
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

/// Returns the tasks of an evaluation by an entry: the loss if there is one, and the outputs; in
/// inference also the updates of states.
fn evaluate(network: &Network, entry: usize) -> Vec<Task> {
    let phase = Phase::Evaluate(entry);
    match network.mode() {
        Mode::Training => {
            let order = computed(&network.graph, phase, &network.left_by(phase), |_| true);
            order.into_iter().map(Task::Compute).collect()
        }
        Mode::Inference => {
            let update = |pair: &(Value, Value)| Update { next: vec![*pair], cleared: None };
            let updates = &network.updates[network.entries[entry].updates.clone()];
            tasks(network, phase, updates.iter().map(update).collect())
        }
    }
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
