//! Updates in the graph: the norm of all gradients if it is needed, and the next values of
//! parameters, states and buffers.

mod buffers;
mod norm;
mod shared_loss;

use std::collections::BTreeMap;

use soybean_plan::{
    Combine, DType, GRADIENT_SUM, Mode, NonFinite, RunScalar, ScalarProgram, Shape,
};

use crate::{
    entry::SharedLoss,
    graph::{Graph, Source},
    network::{GradientSum, Network},
    operators::{
        accumulate::Accumulate,
        elementwise::{Elementwise, add_elementwise, all_dims},
        reduce::Reduce,
    },
    optimizer::{
        GRADIENT, Layout, Optimizer,
        program::{self, Input, MeanOver, ParameterUpdate, Updates},
    },
    scalar::{self, ScalarBuilder},
    signature::{FactorId, factor_id},
    value::Value,
};

/// Returns the program of the gradient of the loss by itself: 1, or the scale of the loss.
pub(crate) fn seed(optimizer: &Optimizer, scalars: &mut Vec<RunScalar>) -> ScalarProgram {
    let mut it = ScalarBuilder::default();
    let seed = match optimizer.non_finite {
        NonFinite::Scale => it.scalar(scalar::number(scalars, RunScalar::LossScale)),
        NonFinite::Stop | NonFinite::Skip => it.constant(1.0),
    };
    it.finish(seed)
}

/// Adds the next values of all parameters and of the optimizer's states, and the states that keep
/// gradients of inputs, from the gradients. In
/// inference there are none.
pub fn add_updates(network: Network, optimizer: &Optimizer) -> Network {
    let mut network = network;
    if network.mode() == Mode::Inference {
        return network;
    }
    let gradients = std::mem::take(&mut network.gradients);
    let of_buffers = std::mem::take(&mut network.updates);
    let has_several = network.entries.len() > 1;
    let Network { graph, updates, gradient_sums, scalars, names, entries, .. } = &mut network;
    let is_quotient = entries.iter().any(|it| it.quotient.is_some());
    let mean = if is_quotient { MeanOver::Count } else { MeanOver::Steps };
    let programs = Updates::new(optimizer, mean, scalars);
    let states = BTreeMap::new();
    let entry = String::new();
    let (first, count, has_batch) = (0, None, programs.has_batch());
    let mut writer = UpdateWriter {
        graph,
        updates,
        first,
        gradient_sums,
        names,
        states,
        entry,
        count,
        has_batch,
    };
    for entry in entries {
        let Some(loss) = entry.loss else { continue };
        writer.first = writer.updates.len();
        writer.updates.extend_from_slice(&of_buffers[entry.updates.clone()]);
        let mut loss = SharedLoss { accumulating: loss, updating: loss };
        if programs.accumulates() {
            let quotient = entry.quotient.take();
            writer.keep_buffers_without_batch();
            writer.count = quotient.as_ref().map(|it| writer.total_count(it));
            loss = writer.shared_loss(loss.updating, quotient.as_ref());
            entry.shared_loss = Some(loss);
        }
        if has_several {
            writer.entry = format!("{}.", entry.name);
        }
        let of_entry = &gradients[entry.gradients.clone()];
        entry.gradient_norm = writer.add(&programs, optimizer, loss, of_entry);
        entry.updates = writer.first..writer.updates.len();
        entry.gradients = 0..0;
    }
    Network { optimizer: optimizer.clone(), ..network }
}

/// A graph to which updates are added.
struct UpdateWriter<'a> {
    graph: &'a mut Graph,
    /// The updates of the entries so far: of buffers, then of parameters and states, which are
    /// added.
    updates: &'a mut Vec<(Value, Value)>,
    /// The number of the entry's first update.
    first: usize,
    gradient_sums: &'a mut Vec<GradientSum>,
    /// The users' names of tensors.
    names: &'a mut Vec<(String, Option<Value>)>,
    /// The states so far, by name. Entries that train the same parameter share them.
    states: BTreeMap<String, Value>,
    /// The beginning of names in the entry: its own name, if there are several.
    entry: String,
    /// The divisor of the sums of gradients, if it depends on the batches.
    count: Option<Value>,
    /// The number of [`RunScalar::HasBatch`]; not read unless steps share an update.
    has_batch: u8,
}

/// The tensors that the updates of all parameters read.
#[derive(Clone, Copy)]
struct Shared {
    count: Option<Value>,
    norm: Option<Value>,
    is_finite: Option<Value>,
}

/// A parameter with the tensors that its update reads.
struct Trained<'a> {
    parameter: Value,
    /// The gradient, or the total of the gradients since the last update.
    gradient: Value,
    update: ParameterUpdate<'a>,
    /// The states and statistics, by name.
    tensors: Vec<(Input, Value)>,
}

impl Trained<'_> {
    /// Returns the tensor that programs read as this input.
    fn tensor(&self, input: Input, shared: Shared) -> Value {
        let value = match input {
            Input::Parameter => Some(self.parameter),
            Input::Gradient => Some(self.gradient),
            Input::State(_) | Input::Statistic(_) => {
                self.tensors.iter().find(|it| it.0 == input).map(|it| it.1)
            }
            Input::Count => shared.count,
            Input::Norm => shared.norm,
            Input::IsFinite => shared.is_finite,
        };
        value.expect("programs read tensors that have been added")
    }
}

impl UpdateWriter<'_> {
    /// Adds the updates of parameters with these gradients. Returns the norm of the gradients, if
    /// it is needed.
    pub(crate) fn add(
        &mut self,
        updates: &Updates<'_>,
        optimizer: &Optimizer,
        loss: SharedLoss,
        gradients: &[(Value, Value)],
    ) -> Option<Value> {
        let is_of_input = |it: &&(Value, Value)| !self.graph.is_parameter(it.0);
        let (of_inputs, gradients): (Vec<_>, Vec<_>) = gradients.iter().partition(is_of_input);
        let of_inputs: Vec<_> = of_inputs.into_iter().map(|it| self.kept(it)).collect();
        if !optimizer.needs_norm() {
            for &kept in &of_inputs {
                self.keep(updates, kept, None);
            }
            for &gradient in &gradients {
                let trained = self.trained(updates, gradient);
                self.add_updates(trained, self.shared());
            }
            return None;
        }
        let trained: Vec<Trained<'_>> =
            gradients.iter().map(|it| self.trained(updates, *it)).collect();
        let norm = self.norm(&trained);
        let finite = || {
            add_elementwise_of_scalars(
                self.graph,
                &program::is_each_finite(2),
                &[loss.updating, norm],
            )
        };
        let is_finite = optimizer.non_finite.skips().then(finite);
        match is_finite {
            // Buffers follow each step, so what guards them must be known without the norm.
            Some(_) if optimizer.accumulate > 1 => {
                let program = program::is_each_finite(1);
                let loss = loss.accumulating;
                let is_loss_finite = add_elementwise_of_scalars(self.graph, &program, &[loss]);
                self.guard_buffers(is_loss_finite);
            }
            Some(is_finite) => self.guard_buffers(is_finite),
            None => {}
        }
        for &kept in &of_inputs {
            self.keep(updates, kept, is_finite);
        }
        for it in trained {
            self.add_updates(it, Shared { norm: Some(norm), is_finite, ..self.shared() });
        }
        Some(norm)
    }

    /// Returns what updates read before the norm is known.
    fn shared(&self) -> Shared {
        Shared { count: self.count, norm: None, is_finite: None }
    }

    /// Adds the state that keeps the gradient of an input; returns it with the gradient.
    fn kept(&mut self, (input, gradient): (Value, Value)) -> (Value, Value) {
        let node = self.graph.node(input);
        let (name, shape, origin) = (node.name.clone(), node.shape, node.origin);
        self.names.push((format!("{name}.grad"), Some(gradient)));
        self.graph.set_origin(origin);
        let state = format!("{name}.{GRADIENT}");
        (self.graph.add_source(&state, DType::F32, shape, Source::State), gradient)
    }

    /// Adds the next value of such a state.
    fn keep(
        &mut self,
        updates: &Updates<'_>,
        (state, gradient): (Value, Value),
        is_finite: Option<Value>,
    ) {
        let node = self.graph.node(state);
        let (shape, origin) = (node.shape, node.origin);
        self.graph.set_origin(origin);
        let (mut values, mut operands) = (vec![gradient], vec![all_dims(&shape)]);
        if let Some(is_finite) = is_finite {
            values.extend([state, is_finite]);
            operands.extend([all_dims(&shape), Vec::new()]);
        }
        let program = updates.kept_gradient();
        let next = add_elementwise(self.graph, shape, &operands, &program, &values);
        self.updates.push((state, next));
    }

    /// Adds the states of a parameter.
    fn trained<'a>(
        &mut self,
        updates: &'a Updates<'_>,
        (parameter, gradient): (Value, Value),
    ) -> Trained<'a> {
        let node = self.graph.node(parameter);
        let (name, shape, origin) = (node.name.clone(), node.shape, node.origin);
        self.names.push((format!("{}{name}.grad", self.entry), Some(gradient)));
        self.graph.set_origin(origin);
        let update = updates.of(&name, shape);
        let mut tensors = Vec::new();
        for state in update.states() {
            let (full, shape) = (format!("{name}.{}", state.name), sub_shape(shape, state.layout));
            let new = || self.graph.add_source(&full, DType::F32, shape, Source::State);
            let value = *self.states.entry(full.clone()).or_insert_with(new);
            tensors.push((Input::State(state.name), value));
        }
        let gradient = match updates.accumulates() {
            true => self.total(parameter, gradient),
            false => gradient,
        };
        Trained { parameter, gradient, update, tensors }
    }

    /// Adds the state that sums the gradients of a parameter. Returns their total in a training
    /// step.
    fn total(&mut self, parameter: Value, gradient: Value) -> Value {
        let name = self.graph.node(parameter).name.clone();
        let total = self.summed(&format!("{name}{GRADIENT_SUM}"), Some(parameter), gradient);
        self.names.push((format!("{name}.grad_total"), Some(total)));
        total
    }

    /// Adds a state that sums a term of the steps that share an update. Returns the total in a
    /// training step. An accumulating step stores the same sum by itself: the state may be partial
    /// sums, which the readers of the total are not.
    fn summed(&mut self, name: &str, parameter: Option<Value>, term: Value) -> Value {
        let shape = self.graph.shape(term);
        let state = self.graph.add_source(name, DType::F32, shape, Source::State);
        let next = self.graph.add(Accumulate::Kept.into(), &[state, term]);
        self.gradient_sums.push(GradientSum { parameter, state, next });
        let total = Accumulate::Total { has_batch: self.has_batch };
        self.graph.add(total.into(), &[state, term])
    }

    /// Adds a map of a program over the dims of a layout of a parameter.
    fn map(
        &mut self,
        trained: &Trained<'_>,
        shared: Shared,
        over: Layout,
        program: &ScalarProgram,
    ) -> Value {
        let shape = self.graph.shape(trained.parameter);
        let terms = self.terms(trained, shared, over, program);
        add_elementwise(
            self.graph,
            sub_shape(shape, over),
            &terms.operands,
            &terms.program,
            &terms.values,
        )
    }

    /// Returns a program over the dims of a layout of a parameter, with the tensors that it reads.
    fn terms(
        &self,
        trained: &Trained<'_>,
        shared: Shared,
        over: Layout,
        program: &ScalarProgram,
    ) -> Terms {
        let n_dims = self.graph.shape(trained.parameter).len();
        let space = over.dims(n_dims);
        let (read, program) = scalar::compact(program);
        let inputs = trained.update.inputs();
        let operand = |input: &u8| {
            let (input, layout) = inputs[usize::from(*input)];
            let place = |dim: &FactorId| space.iter().position(|it| it == dim).map(factor_id);
            let dims = layout.dims(n_dims);
            let ids: Vec<FactorId> = dims.iter().filter_map(place).collect();
            debug_assert_eq!(ids.len(), dims.len(), "{input:?} has dims that {over:?} has not");
            (trained.tensor(input, shared), ids)
        };
        let (values, operands) = read.iter().map(operand).unzip();
        Terms { program, values, operands }
    }

    /// Adds the statistics of a parameter, and the next values of the parameter and its states.
    fn add_updates(&mut self, mut trained: Trained<'_>, shared: Shared) {
        let node = self.graph.node(trained.parameter);
        let (name, shape, origin) = (node.name.clone(), node.shape, node.origin);
        self.graph.set_origin(origin);
        let sources: Vec<Value> =
            [trained.parameter].into_iter().chain(trained.tensors.iter().map(|it| it.1)).collect();
        for (statistic, program) in trained.update.statistics() {
            let Terms { program, values, operands } =
                self.terms(&trained, shared, statistic.over, &program);
            let extents = sub_shape(shape, statistic.over);
            let map = Elementwise { extents, operands, program, dtype: DType::F32 };
            let dims = statistic.over.dims(shape.len());
            let kept = statistic.kept.dims(shape.len());
            let kept = (0..dims.len()).filter(|it| kept.contains(&dims[*it])).map(factor_id);
            let kept: Vec<FactorId> = kept.collect();
            let operator = match kept.len() == dims.len() {
                true => map.into(),
                false => Reduce { map, combine: Combine::Sum, kept }.into(),
            };
            let sum = self.graph.add(operator, &values);
            self.names.push((format!("{}{name}.{}", self.entry, statistic.name), Some(sum)));
            trained.tensors.push((Input::Statistic(statistic.name), sum));
        }
        for (source, (layout, program)) in sources.into_iter().zip(trained.update.programs()) {
            if source == trained.parameter && trained.update.keeps_parameter() {
                continue;
            }
            let next = self.map(&trained, shared, layout, &program);
            self.updates.push((source, next));
        }
    }
}

/// A scalar program with the tensors that it reads, and the dims of each in the index space.
struct Terms {
    program: ScalarProgram,
    values: Vec<Value>,
    operands: Vec<Vec<FactorId>>,
}

/// Returns the extents of the dims of a layout.
fn sub_shape(shape: Shape, layout: Layout) -> Shape {
    let dims = layout.dims(shape.len());
    Shape::new(&dims.iter().map(|it| shape[usize::from(*it)]).collect::<Vec<_>>())
}

fn add_elementwise_of_scalars(
    graph: &mut Graph,
    program: &ScalarProgram,
    values: &[Value],
) -> Value {
    let operands = vec![Vec::new(); values.len()];
    add_elementwise(graph, Shape::new(&[]), &operands, program, values)
}
