//! Updates in the graph: the norm of all gradients where it is needed, and the next values of parameters, states and buffers.

use soybean_plan::{Combine, DType, NonFinite, RunScalar, ScalarProgram, Shape, Unary};

use crate::{
    graph::{Graph, Source},
    network::Network,
    operators::elementwise::add_elementwise,
    operators::{elementwise::all_dims, reduce::Reduce, total::Total},
    optimizer::{
        Optimizer,
        program::{self, Input, Updates},
    },
    scalar::{self, ScalarBuilder},
    signature::FactorId,
    value::Value,
};

/// The most numbers that one kernel adds up.
const MOST_TERMS: usize = 32;

/// What gradients are multiples of: 1, or the scale of the loss.
pub(crate) fn seed(optimizer: &Optimizer, scalars: &mut Vec<RunScalar>) -> ScalarProgram {
    let mut it = ScalarBuilder::default();
    let seed = match optimizer.non_finite {
        NonFinite::Scale => it.scalar(scalar::number(scalars, RunScalar::LossScale)),
        NonFinite::Stop | NonFinite::Skip => it.constant(1.0),
    };
    it.finish(seed)
}

/// Adds the next values of all parameters and of the optimiser's states, from the gradients. In
/// inference there are none.
pub fn add_updates(network: Network, optimizer: &Optimizer) -> Network {
    let mut network = network;
    let Some(loss) = network.loss else { return network };
    let gradients = std::mem::take(&mut network.gradients);
    let Network { graph, updates, scalars, names, .. } = &mut network;
    let programs = Updates::new(optimizer, scalars);
    let mut writer = Writer { graph, updates, names };
    let gradient_norm = writer.add(&programs, optimizer, loss, &gradients);
    Network { gradient_norm, optimizer: optimizer.clone(), ..network }
}

/// Adds updates to a graph.
struct Writer<'a> {
    graph: &'a mut Graph,
    /// Buffers with their next values; parameters and states are added.
    updates: &'a mut Vec<(Value, Value)>,
    /// What tensors are called.
    names: &'a mut Vec<(String, Option<Value>)>,
}

/// What the updates of all parameters read.
#[derive(Clone, Copy)]
struct Common {
    norm: Option<Value>,
    is_finite: Option<Value>,
}

/// A parameter with all that its update reads of it.
struct Trained {
    parameter: Value,
    gradient: Value,
    /// The states, by their names.
    states: Vec<(&'static str, Value)>,
}

impl Writer<'_> {
    /// Adds the updates of parameters with these gradients; gives the norm of the gradients, if it is needed.
    fn add(
        &mut self,
        updates: &Updates<'_>,
        optimizer: &Optimizer,
        loss: Value,
        gradients: &[(Value, Value)],
    ) -> Option<Value> {
        if !optimizer.needs_norm() {
            for &gradient in gradients {
                let trained = self.trained(updates, gradient);
                self.add_updates(updates, &trained, Common { norm: None, is_finite: None });
            }
            return None;
        }
        let trained: Vec<Trained> = gradients.iter().map(|it| self.trained(updates, *it)).collect();
        let norm = self.norm(updates, &trained);
        let finite =
            || add_elementwise_of_scalars(self.graph, &program::is_finite(), &[loss, norm]);
        let is_finite = optimizer.non_finite.skips().then(finite);
        if let Some(is_finite) = is_finite {
            self.guard_buffers(is_finite);
        }
        for it in &trained {
            self.add_updates(updates, it, Common { norm: Some(norm), is_finite });
        }
        Some(norm)
    }

    /// Adds the states of a parameter.
    fn trained(&mut self, updates: &Updates<'_>, (parameter, gradient): (Value, Value)) -> Trained {
        let node = self.graph.node(parameter);
        let (name, shape, origin) = (node.name.clone(), node.shape, node.origin);
        self.names.push((format!("{name}.grad"), Some(gradient)));
        self.graph.set_origin(origin);
        let states = updates.inputs().iter().filter_map(|it| match it {
            Input::State(state) => {
                let full = format!("{name}.{state}");
                Some((*state, self.graph.add_source(&full, DType::F32, shape, Source::State)))
            }
            Input::Parameter | Input::Gradient | Input::Norm | Input::IsFinite => None,
        });
        Trained { parameter, gradient, states: states.collect() }
    }

    /// Adds a program over what an update reads: one element for each of the parameter's.
    fn map(
        &mut self,
        updates: &Updates<'_>,
        trained: &Trained,
        common: Common,
        program: &ScalarProgram,
    ) -> Value {
        let shape = self.graph.shape(trained.parameter);
        let (space, nowhere): (Vec<FactorId>, Vec<FactorId>) = (all_dims(&shape), Vec::new());
        let (read, program) = scalar::compact(program);
        let state = |name| trained.states.iter().find(|it| it.0 == name).map(|it| it.1);
        let operand = |input: &u8| {
            let (value, ids) = match updates.inputs()[usize::from(*input)] {
                Input::Parameter => (Some(trained.parameter), &space),
                Input::Gradient => (Some(trained.gradient), &space),
                Input::State(name) => (state(name), &space),
                Input::Norm => (common.norm, &nowhere),
                Input::IsFinite => (common.is_finite, &nowhere),
            };
            (value.expect("programs read what has been added"), ids.clone())
        };
        let (values, operands): (Vec<Value>, Vec<Vec<FactorId>>) = read.iter().map(operand).unzip();
        add_elementwise(self.graph, shape, &operands, &program, &values)
    }

    /// The 2-norm of all gradients together.
    fn norm(&mut self, updates: &Updates<'_>, trained: &[Trained]) -> Value {
        let square = updates.square();
        let sums = trained.iter().map(|it| self.square_sum(updates, it, &square)).collect();
        self.graph.set_origin(None);
        let norm = match add_total(self.graph, sums) {
            Some(sum) => {
                self.names.push(("gradient_square_sum".to_owned(), Some(sum)));
                add_elementwise_of_scalars(self.graph, &scalar::unary(Unary::Sqrt), &[sum])
            }
            // Nothing is trained.
            None => add_elementwise_of_scalars(self.graph, &zero(), &[]),
        };
        self.names.push(("gradient_norm".to_owned(), Some(norm)));
        norm
    }

    /// The sum of the squares of one gradient, which this program gives.
    fn square_sum(
        &mut self,
        updates: &Updates<'_>,
        trained: &Trained,
        square: &ScalarProgram,
    ) -> Value {
        let node = self.graph.node(trained.parameter);
        let (name, shape, origin) = (node.name.clone(), node.shape, node.origin);
        self.graph.set_origin(origin);
        let common = Common { norm: None, is_finite: None };
        let squares = self.map(updates, trained, common, square);
        let sum = match shape.is_empty() {
            true => squares,
            false => {
                self.graph.add(Reduce::new(shape, Combine::Sum, Vec::new()).into(), &[squares])
            }
        };
        self.names.push((format!("{name}.grad.square_sum"), Some(sum)));
        sum
    }

    /// Lets buffers stay as they are in steps that are skipped.
    fn guard_buffers(&mut self, is_finite: Value) {
        for (buffer, next) in self.updates.iter_mut() {
            let shape = self.graph.shape(*buffer);
            self.graph.set_origin(self.graph.node(*next).origin);
            let operands = [Vec::new(), all_dims(&shape), all_dims(&shape)];
            let values = [is_finite, *next, *buffer];
            *next = add_elementwise(self.graph, shape, &operands, &program::choice(), &values);
        }
    }

    /// Adds the next values of a parameter and its states.
    fn add_updates(&mut self, updates: &Updates<'_>, trained: &Trained, common: Common) {
        let node = self.graph.node(trained.parameter);
        let (name, origin) = (node.name.clone(), node.origin);
        self.graph.set_origin(origin);
        let states = trained.states.iter().map(|it| it.1);
        let sources = [trained.parameter].into_iter().chain(states);
        for (source, program) in sources.zip(updates.programs(&name)) {
            let next = self.map(updates, trained, common, &program);
            self.updates.push((source, next));
        }
    }
}

/// Adds the sum of these numbers; none if there are none.
fn add_total(graph: &mut Graph, numbers: Vec<Value>) -> Option<Value> {
    let mut numbers = numbers;
    while numbers.len() > 1 {
        let total = |terms: &[Value]| match terms {
            [one] => *one,
            several => graph.add(Total { n_terms: several.len() }.into(), several),
        };
        numbers = numbers.chunks(MOST_TERMS).map(total).collect();
    }
    numbers.pop()
}

fn zero() -> ScalarProgram {
    let mut it = ScalarBuilder::default();
    let zero = it.constant(0.0);
    it.finish(zero)
}

fn add_elementwise_of_scalars(
    graph: &mut Graph,
    program: &ScalarProgram,
    values: &[Value],
) -> Value {
    let operands = vec![Vec::new(); values.len()];
    add_elementwise(graph, Shape::new(&[]), &operands, program, values)
}
