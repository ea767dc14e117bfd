//! Reverse-mode differentiation of a graph.

mod choices;

use std::collections::BTreeMap;

use soybean_plan::{Combine, Mode, Pattern, ScalarProgram, Shape};

use crate::{
    denominator,
    diagnostic::{ModelDiagnostic, ModelPart},
    graph::{Graph, Source},
    network::Network,
    operator::{GradientBuilder, Operator, OperatorCall},
    operators::{
        elementwise::{add, add_elementwise, all_dims},
        reduce::Reduce,
    },
    optimizer::Optimizer,
    signature::FactorId,
    surface::custom::CustomGradient,
    updates,
    value::Value,
};
use choices::Choices;

/// Adds the gradients of the loss by all parameters that are trained, and by the inputs whose
/// gradients are kept. In inference there is no
/// loss, and the network is returned unchanged.
///
/// # Errors
/// Returns a fault if the loss is not a scalar, one for each parameter or such input that does not
/// reach the loss, and one if nothing is trained but some parameters are frozen; in inference, one
/// for each parameter that reaches no output, and for each state that nothing is assigned to.
pub fn differentiate(
    network: Network,
    optimizer: &Optimizer,
) -> Result<Network, Vec<ModelDiagnostic>> {
    let mut network = network;
    if network.mode() == Mode::Inference {
        check_inference(&network)?;
        network.choices.clear();
        return Ok(network);
    }
    let mut faults = Vec::new();
    for entry in 0..network.entries.len() {
        differentiate_entry(&mut network, entry, optimizer, &mut faults);
    }
    network.custom_gradients.clear();
    network.choices.clear();
    let Network { graph, parameters, gradients, entries, .. } = &mut network;
    parameters.retain(|it| gradients.iter().any(|(source, _)| source == it));
    let nothing = gradients.is_empty() && faults.is_empty();
    if nothing && !optimizer.freeze.is_empty() {
        let message = "`freeze` names all parameters, so that none is trained".to_owned();
        faults.push(ModelDiagnostic { at: ModelPart::Freeze(0), message, help: None });
    }
    let trained: Vec<Vec<Value>> = entries
        .iter()
        .map(|it| gradients[it.gradients.clone()].iter().map(|it| it.0).collect())
        .collect();
    for (number, entry) in entries.iter_mut().enumerate() {
        let shares = |other: &Vec<Value>| other.iter().any(|it| trained[number].contains(it));
        let Some(first) = trained.iter().position(shares) else { continue };
        let differs = |it: &&Value| trained[first].contains(it) != trained[number].contains(it);
        let all = || trained[first].iter().chain(&trained[number]);
        if let Some(own) = all().find(differs) {
            let name = &graph.node(*own).name;
            faults.push(ModelDiagnostic {
                at: ModelPart::Entry(number),
                message: format!(
                    "entries must train the same parameters, or none in common; `{name}` is trained by one of two that share others"
                ),
                help: Some("add it to the entry's `freeze`, or use it in both".to_owned()),
            });
        }
        entry.trains_like = first;
    }
    if faults.is_empty() { Ok(network) } else { Err(faults) }
}

/// Adds the gradients of the loss of an entry.
fn differentiate_entry(
    network: &mut Network,
    number: usize,
    optimizer: &Optimizer,
    faults: &mut Vec<ModelDiagnostic>,
) {
    let Network { graph, inputs, entries, .. } = network;
    let has_several = entries.len() > 1;
    let entry = &entries[number];
    let Some(loss) = entry.loss else { return };
    let shape = graph.shape(loss);
    if !shape.is_empty() {
        let help = "end with `.mean(..)`, `.sum(..)`, `.mse(..)` or `.cross_entropy(..)`";
        faults.push(ModelDiagnostic {
            at: ModelPart::Loss,
            message: format!("the loss must be a scalar, found {shape}"),
            help: Some(help.to_owned()),
        });
        return;
    }
    let reaches_loss = graph.ancestors(&[loss]);
    let inputs = inputs[entry.inputs.clone()].iter();
    let kept = inputs.filter(|it| optimizer.keeps_input_gradient(&graph.node(**it).name));
    let mut sources: Vec<Value> = kept.copied().collect();
    for &parameter in &entry.parameters {
        let node = graph.node(parameter);
        if !matches!(node.source, Source::Parameter(_)) || sources.contains(&parameter) {
            continue;
        }
        let is_frozen = entry.freeze.iter().any(|it| Pattern::new(it).is_match(&node.name));
        match optimizer.trains(&node.name) && !is_frozen {
            true => sources.push(parameter),
            false if reaches_loss[parameter.index()] => {}
            false => faults.push(without_gradient(graph, loss, parameter)),
        }
    }
    let is_trained = depends_on(&network.graph, &sources);
    let divisors = denominator::divisors(network, loss, &is_trained);
    let Network { graph, scalars, gradients: by_source, choices, entries, .. } = network;
    let custom = &network.custom_gradients;
    let entry = &mut entries[number];
    entry.loss_weight = divisors.as_ref().ok().and_then(|it| it.as_ref()?.weight(graph));
    if optimizer.accumulate > 1 {
        let divisors = divisors.map_err(|it| faults.push(it)).ok().flatten();
        entry.quotient = divisors.map(|it| it.quotient(graph));
    }
    let before = by_source.len();
    let seed = updates::seed(optimizer, scalars);
    let choices = Choices::new(graph, choices);
    let minimized = entry.quotient.as_ref().map_or(loss, |it| it.numerator);
    let found = gradients(graph, minimized, &sources, &seed, (custom, &choices));
    for (&source, gradient) in sources.iter().zip(found) {
        match gradient {
            Some(gradient) => by_source.push((source, gradient)),
            None => faults.push(without_gradient(graph, loss, source)),
        }
    }
    entry.gradients = before..by_source.len();
    if has_several && sources.is_empty() {
        faults.push(ModelDiagnostic {
            at: ModelPart::Entry(number),
            message: format!("the entry `{}` trains no parameter", entry.name),
            help: None,
        });
    }
}

fn check_inference(network: &Network) -> Result<(), Vec<ModelDiagnostic>> {
    let is_needed = network.forward();
    let fault = |parameter: Value| {
        let name = &network.graph.node(parameter).name;
        ModelDiagnostic {
            at: ModelPart::Value(parameter),
            message: format!("no output depends on the parameter `{name}`"),
            help: Some("use it on the way to an output, or remove it".to_owned()),
        }
    };
    let unused = network.parameters.iter().filter(|it| !is_needed[it.index()]);
    let mut faults: Vec<ModelDiagnostic> = unused.map(|&it| fault(it)).collect();
    let graph = &network.graph;
    let is_left = |it: &Value| {
        let is_state = matches!(graph.node(*it).source, Source::State);
        is_state && !network.updates.iter().any(|(state, _)| state == it)
    };
    faults.extend(graph.values().filter(is_left).map(|state| ModelDiagnostic {
        at: ModelPart::Value(state),
        message: format!("nothing is assigned to the state `{}`", graph.node(state).name),
        help: Some("write `let new = state.assign(value)`, or remove it".to_owned()),
    }));
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn without_gradient(graph: &Graph, loss: Value, source: Value) -> ModelDiagnostic {
    let node = graph.node(source);
    let (name, kind) = match node.source {
        Source::Input { .. } => (&node.name, "input"),
        _ => (&node.name, "parameter"),
    };
    let (message, help) = match graph.ancestors(&[loss])[source.index()] {
        true => (
            format!("no gradient of the loss reaches the {kind} `{name}`"),
            "integers, comparisons, rounding, `sign` and `detach` let none through; `freeze` keeps parameters as they are",
        ),
        false => (
            format!("the loss does not depend on the {kind} `{name}`"),
            "use it on the way to the loss, or remove it",
        ),
    };
    ModelDiagnostic { at: ModelPart::Value(source), message, help: Some(help.to_owned()) }
}

/// The graph during differentiation.
struct Differentiation<'a> {
    /// The graph, to which gradients are added.
    graph: &'a mut Graph,
    /// For each tensor of the forward graph, whether it depends on one whose gradient is wanted.
    depends_on_sources: &'a [bool],
    choices: &'a Choices,
    /// The gradient of the result, if it may be 0 because another tensor was chosen.
    gated: Option<Value>,
}

impl GradientBuilder for Differentiation<'_> {
    fn shape(&self, value: Value) -> Shape {
        self.graph.shape(value)
    }

    fn needs_gradient(&self, value: Value) -> bool {
        self.depends_on_sources[value.index()]
    }

    fn add(&mut self, operator: Operator, operands: &[Value]) -> Value {
        self.graph.add(operator, operands)
    }

    fn add_elementwise(
        &mut self,
        extents: Shape,
        operands: &[Vec<FactorId>],
        program: ScalarProgram,
        values: &[Value],
    ) -> Value {
        let program = match self.gated {
            Some(gradient) => self.choices.gated(program, values, gradient),
            None => program,
        };
        add_elementwise(self.graph, extents, operands, &program, values)
    }

    fn sum_to(&mut self, value: Value, kept: &[FactorId]) -> Value {
        let shape = self.graph.shape(value);
        if kept == all_dims(&shape) {
            return value;
        }
        self.graph.add(Reduce::new(shape, Combine::Sum, kept.to_vec()).into(), &[value])
    }
}

/// Adds the gradients of a scalar loss with respect to some sources, times the number that `seed`
/// computes. A source without influence on the loss gets `None`. The functions of users compute the
/// gradients of their operators.
fn gradients(
    graph: &mut Graph,
    loss: Value,
    sources: &[Value],
    seed: &ScalarProgram,
    (custom, choices): (&[CustomGradient], &Choices),
) -> Vec<Option<Value>> {
    let depends_on_sources = depends_on(graph, sources);
    let mut gradients: BTreeMap<Value, Value> = BTreeMap::new();
    let seed = add_elementwise(graph, Shape::new(&[]), &[], seed, &[]);
    gradients.insert(loss, seed);
    let forward: Vec<Value> = graph.values().filter(|&it| it <= loss).collect();
    for value in forward.into_iter().rev() {
        let Some(&gradient) = gradients.get(&value) else { continue };
        let Some(operator) = graph.operator(value).cloned() else { continue };
        graph.set_origin(graph.node(value).origin);
        let operands = graph.operands(value);
        let call = OperatorCall { operands: &operands, result: value, gradient };
        let gated = choices.may_pass_over(value).then_some(gradient);
        let depends_on_sources = &depends_on_sources;
        let mut builder = Differentiation { graph, depends_on_sources, choices, gated };
        let terms = match custom.iter().find(|it| it.result == value) {
            Some(custom) => custom_gradients(custom, gradient, &mut builder),
            None => operator.gradient(&call, &mut builder),
        };
        for (&operand, term) in operands.iter().zip(terms) {
            let Some(term) = term else { continue };
            let sum = match gradients.get(&operand) {
                None => term,
                Some(&sum) => add(graph, sum, term),
            };
            gradients.insert(operand, sum);
        }
    }
    sources.iter().map(|it| gradients.get(it).copied()).collect()
}

/// Adds the gradients of the operands of a user's operator, given that of its result. The user's
/// function has computed them from a future gradient, so what depends on that is added again.
fn custom_gradients(
    custom: &CustomGradient,
    gradient: Value,
    builder: &mut Differentiation<'_>,
) -> Vec<Option<Value>> {
    let CustomGradient { result, future, gradients } = custom;
    let mut replaced = BTreeMap::from([(*future, gradient)]);
    let last = gradients.iter().max().copied().unwrap_or(*future);
    let later: Vec<Value> =
        builder.graph.values().filter(|it| (*future..=last).contains(it)).collect();
    for value in later {
        let operands = builder.graph.operands(value);
        let Some(operator) = builder.graph.operator(value).cloned() else { continue };
        if value == *future || !operands.iter().any(|it| replaced.contains_key(it)) {
            continue;
        }
        let operands: Vec<Value> =
            operands.iter().map(|it| replaced.get(it).copied().unwrap_or(*it)).collect();
        let node = builder.graph.node(value).clone();
        replaced.insert(value, builder.graph.add_like(&node, operator, &operands));
    }
    let operands = builder.graph.operands(*result);
    let of_operand = |(operand, gradient): (&Value, &Value)| {
        let gradient = replaced.get(gradient).copied().unwrap_or(*gradient);
        builder.needs_gradient(*operand).then_some(gradient)
    };
    operands.iter().zip(gradients).map(of_operand).collect()
}

/// Returns for each tensor of a graph whether it depends on one of some sources.
fn depends_on(graph: &Graph, sources: &[Value]) -> Vec<bool> {
    let mut depends = vec![false; graph.n_values()];
    for source in sources {
        depends[source.index()] = true;
    }
    for value in graph.values() {
        depends[value.index()] |= graph.operands(value).iter().any(|it| depends[it.index()]);
    }
    depends
}
