//! Lowering: from a tiled network to the program that every rank runs.
//!
//! Each operator becomes the conversions of its operands, one kernel over the rank's parts, and the
//! conversion of its result. Every operator converts its operands anew, as the search counts them.
//! Conversions that move nothing are shared, and so are halos.

mod computation;
mod halos;
mod sparse_update;
mod update;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use soybean_plan::{
    Buffer, BufferId, Collective, Constant, Entry, Halo, ImageLayout, Input, Kernel, NextValue,
    Output, Parameter, Program, State, Step, Tables, Tile, Tiling, TrainingStep,
};

use halos::Border;

use crate::{
    batch::Batch,
    graph::Source,
    network::Network,
    operator::Phase,
    operators::elementwise::Elementwise,
    order::{Task, Tasks},
    peak::{Content, Held},
    scalar,
    tiling::{TiledNetwork, divided_axes, number, route},
    unplaced::{Order, Storage, Unplaced},
    value::Value,
};

/// Lowers a tiled network: the tasks of all phases become steps.
pub(crate) fn lower(name: &str, tiled: &TiledNetwork, tasks: &Tasks, order: Order) -> Unplaced {
    let mut lowering = Lowering::new(tiled, order);
    lowering.place_sources();
    let mut train = Vec::new();
    let mut training = Vec::new();
    for (number, tasks) in tasks.train.iter().enumerate() {
        train.push(lowering.steps_of(Phase::Train(number), tasks));
        training.push(lowering.training_step(number));
    }
    let accumulate = lowering.steps_of(Phase::Accumulate, &tasks.accumulate);
    let loss_of_accumulate = tiled
        .network
        .loss_of(Phase::Accumulate)
        .filter(|_| !tasks.accumulate.is_empty())
        .map(|it| lowering.stored[&it]);
    let mut outputs = Vec::new();
    let mut evaluate = Vec::new();
    for (entry, tasks) in tasks.evaluate.iter().enumerate() {
        evaluate.push(lowering.steps_of(Phase::Evaluate(entry), tasks));
        outputs.push(lowering.outputs(entry));
    }
    let contents = lowering.contents();
    let mesh = tiled.mesh;
    let bytes = |steps: &[Step]| -> u64 {
        let moved = |step: &Step| match &lowering.kernels[step.kernel] {
            Kernel::Communicate(bucket) => bucket.bytes(&mesh),
            _ => 0,
        };
        steps.iter().map(moved).sum()
    };
    for (step, steps) in training.iter_mut().zip(&train) {
        step.bytes = bytes(steps);
    }
    let tables = Tables {
        name: Cow::Owned(name.to_owned()),
        mesh,
        precision: tiled.network.precision,
        arena_bytes: 0,
        entries: entries(&tiled.network, &outputs, &evaluate, &training, bytes),
        buffers: lowering.storage.iter().map(without_offset).collect(),
        inputs: Cow::Owned(lowering.inputs),
        parameters: Cow::Owned(lowering.parameters),
        states: Cow::Owned(lowering.states),
        constants: Cow::Owned(lowering.constants),
        scalars: Cow::Owned(tiled.network.scalars.clone()),
        accumulate_loss: loss_of_accumulate,
        accumulate: tiled.network.optimizer.accumulate,
        ema: tiled.network.optimizer.ema,
        non_finite: tiled.network.optimizer.non_finite,
        next_values: Cow::Owned(lowering.next_values.into_iter().collect()),
        accumulate_bytes: bytes(&accumulate),
        outputs: Cow::Owned(outputs.concat()),
    };
    let kernels = Cow::Owned(lowering.kernels);
    let program = Program { tables, kernels, train, accumulate, evaluate };
    Unplaced { program, storage: lowering.storage, contents, overlaps_on: None }
}

/// Returns the entries of a program.
fn entries(
    network: &Network,
    outputs: &[Vec<Output>],
    evaluate: &[Vec<Step>],
    training: &[TrainingStep],
    bytes: impl Fn(&[Step]) -> u64,
) -> Cow<'static, [Entry]> {
    let graph = &network.graph;
    let parameters: Vec<Value> = graph.values().filter(|it| graph.is_parameter(*it)).collect();
    let place = |value: &Value| parameters.binary_search(value).expect("a model's parameter");
    let mut first_output = 0;
    let entry = |number: usize| {
        let (of_network, outputs) = (&network.entries[number], &outputs[number]);
        let steps = &evaluate[number];
        let first = first_output;
        first_output += outputs.len();
        Entry {
            name: Cow::Owned(of_network.name.clone()),
            n_calls: of_network.n_calls,
            inputs: of_network.inputs.clone(),
            outputs: first..first_output,
            has_loss_weight: of_network.loss_weight.is_some(),
            parameters: of_network.parameters.iter().map(place).collect(),
            bytes: bytes(steps),
            training: training.get(number).cloned(),
        }
    };
    (0..network.entries.len()).map(entry).collect()
}

fn without_offset(storage: &Storage) -> Buffer {
    Buffer { offset: 0, n_elements: storage.n_elements, dtype: storage.dtype }
}

/// The tensor that a buffer holds a part of.
#[derive(Clone, Copy, Debug)]
struct Owner {
    value: Value,
    /// True if the buffer's tiling is not the one in which the tensor is stored.
    is_converted: bool,
}

struct Lowering<'a> {
    tiled: &'a TiledNetwork,
    batch: Batch,
    order: Order,
    storage: Vec<Storage>,
    /// Whose part each buffer is.
    owners: Vec<Owner>,
    /// The kernels so far; equal ones have one number.
    kernels: Vec<Kernel>,
    inputs: Vec<Input>,
    parameters: Vec<Parameter>,
    states: Vec<State>,
    constants: Vec<Constant>,
    next_values: BTreeSet<NextValue>,
    /// The buffer of each tensor in its stored tiling.
    stored: BTreeMap<Value, BufferId>,
    /// The buffers of tensors in further tilings that cost nothing to reach.
    converted: BTreeMap<(Value, Tiling), BufferId>,
    /// The gradients of attention that the kernel of another one has computed.
    joined: BTreeMap<Value, BufferId>,
    /// The sides of halos that later operators of the phase use.
    borders: BTreeMap<Border, BufferId>,
    /// The operators of the phase.
    computed: BTreeSet<Value>,
    phase: Phase,
    steps: Vec<Step>,
}

impl<'a> Lowering<'a> {
    fn new(tiled: &'a TiledNetwork, order: Order) -> Self {
        Self {
            tiled,
            batch: Batch::of(&tiled.network),
            order,
            storage: Vec::new(),
            owners: Vec::new(),
            kernels: Vec::new(),
            inputs: Vec::new(),
            parameters: Vec::new(),
            states: Vec::new(),
            constants: Vec::new(),
            next_values: BTreeSet::new(),
            stored: BTreeMap::new(),
            converted: BTreeMap::new(),
            joined: BTreeMap::new(),
            borders: BTreeMap::new(),
            computed: BTreeSet::new(),
            phase: Phase::Train(0),
            steps: Vec::new(),
        }
    }

    fn tile(&self, value: Value, tiling: Tiling) -> Tile {
        let node = self.tiled.network.graph.node(value);
        Tile { shape: node.unpadded, padded: node.shape, tiling }
    }

    fn stored_tile(&self, value: Value) -> Tile {
        self.tile(value, self.tiled.tilings[value.index()])
    }

    /// Adds a buffer for a rank's part of a tensor in some tiling.
    fn buffer(&mut self, value: Value, tiling: Tiling, is_persistent: bool) -> BufferId {
        let buffer = self.buffer_with_halo(value, tiling, Halo::NONE);
        self.storage[buffer].is_persistent = is_persistent;
        buffer
    }

    /// Adds a buffer for a rank's part of a tensor with a halo, which is not kept.
    fn buffer_with_halo(&mut self, value: Value, tiling: Tiling, halo: Halo) -> BufferId {
        let tile = Tile::new(self.tiled.network.graph.shape(value), tiling);
        let n_elements = halo.local_shape(&tile, &self.tiled.mesh).n_elements();
        let is_converted = tiling != self.tiled.tilings[value.index()] || !halo.is_none();
        self.buffer_of(Owner { value, is_converted }, n_elements)
    }

    /// Adds a buffer of this size, which is not kept.
    fn buffer_of(&mut self, owner: Owner, n_elements: usize) -> BufferId {
        let dtype = self.tiled.network.graph.node(owner.value).dtype;
        self.owners.push(owner);
        self.storage.push(Storage { n_elements, dtype, is_persistent: false });
        self.storage.len() - 1
    }

    /// Gives inputs, parameters, states and constants their places, which they keep.
    fn place_sources(&mut self) {
        let graph = &self.tiled.network.graph;
        for value in graph.values() {
            let (node, stored) = (graph.node(value), self.stored_tile(value));
            let name: Cow<'static, str> = Cow::Owned(node.name.clone());
            if graph.operator(value).is_some_and(|it| !it.is_constant()) {
                continue;
            }
            let buffer = self.buffer(value, stored.tiling, true);
            self.stored.insert(value, buffer);
            let (tile, layout) = (in_model_order(stored, node.layout), node.layout);
            match &node.source {
                &Source::Input { n_classes, ignored_label } => {
                    let (dtype, is_queried) = (node.dtype, self.batch.is_queried(value));
                    self.inputs.push(Input {
                        name,
                        dtype,
                        tile,
                        buffer,
                        n_classes,
                        ignored_label,
                        is_queried,
                    });
                }
                &(Source::Parameter(init) | Source::Buffer(init)) => {
                    let is_trained = self.tiled.network.parameters.contains(&value);
                    self.parameters.push(Parameter {
                        name,
                        tile,
                        layout,
                        buffer,
                        init,
                        is_trained,
                        use_hash: 0,
                    });
                }
                Source::State => self.states.push(State { name, tile, layout, buffer }),
                Source::Operator(_) => self.constants.push(Constant { tile, buffer }),
            }
        }
    }

    /// Lowers tasks to steps, from the state in which only sources are stored.
    fn steps_of(&mut self, phase: Phase, tasks: &[Task]) -> Vec<Step> {
        self.phase = phase;
        self.converted.clear();
        self.joined.clear();
        self.borders.clear();
        let computed = |task: &Task| match task {
            Task::Compute(value) => Some(*value),
            Task::Update(_) => None,
        };
        self.computed = tasks.iter().filter_map(computed).collect();
        for task in tasks {
            if self.order == Order::Lean {
                // A copy that is kept takes memory.
                self.converted.clear();
            }
            match task {
                Task::Compute(value) => self.compute(*value),
                Task::Update(update) => self.update(update),
            }
        }
        std::mem::take(&mut self.steps)
    }

    /// Computes a tensor and leaves it in its stored tiling.
    fn compute(&mut self, value: Value) {
        let result = self.run(value);
        let stored = self.convert_result(value, result, None);
        self.stored.insert(value, stored);
    }

    /// Adds a step.
    fn step(&mut self, kernel: Kernel, inputs: Vec<BufferId>, results: Vec<BufferId>) {
        let kernel = number(&mut self.kernels, kernel);
        self.steps.push(Step { kernel, inputs, results });
    }

    /// Returns the buffer of a tensor in this tiling, after a conversion if needed.
    fn in_tiling(&mut self, value: Value, tiling: Tiling) -> BufferId {
        let from = self.tiled.tilings[value.index()];
        if from == tiling {
            return self.stored[&value];
        }
        if let Some(&buffer) = self.converted.get(&(value, tiling)) {
            return buffer;
        }
        let collectives = self.route(value, from, tiling, soybean_plan::Combine::Sum);
        let is_free = collectives.iter().all(|it| it.bytes(&self.tiled.mesh) == 0);
        let is_constant =
            self.tiled.network.graph.operator(value).is_some_and(|it| it.is_constant());
        if is_constant && is_free {
            let tile = self.tile(value, tiling);
            let known = self.constants.iter().find(|it| it.tile == tile).map(|it| it.buffer);
            return known.unwrap_or_else(|| {
                let buffer = self.buffer(value, tiling, true);
                self.constants.push(Constant { tile, buffer });
                buffer
            });
        }
        let whole = self.communicate(value, &collectives, self.stored[&value], None);
        let buffer = self.divided(value, whole, from, tiling);
        if is_free {
            self.converted.insert((value, tiling), buffer);
        }
        buffer
    }

    fn route(
        &self,
        value: Value,
        from: Tiling,
        to: Tiling,
        combine: soybean_plan::Combine,
    ) -> Vec<Collective> {
        let node = self.tiled.network.graph.node(value);
        route(&self.tiled.mesh, node.shape, node.dtype, combine, from, to)
    }

    /// Converts a fresh result to the stored tiling, into `target` if there is one.
    fn convert_result(
        &mut self,
        value: Value,
        result: BufferId,
        target: Option<BufferId>,
    ) -> BufferId {
        let (signature, form) = self.tiled.signature(value);
        let (from, to) = (signature.result_tiling(form), self.tiled.tilings[value.index()]);
        let collectives = self.route(value, from, to, signature.combine);
        let result = self.communicate(value, &collectives, result, target);
        // What is divided is not in its target.
        self.divided(value, result, from, to)
    }

    /// Divides what is replicated along the axes that become partial sums among their ranks.
    fn divided(&mut self, value: Value, input: BufferId, from: Tiling, to: Tiling) -> BufferId {
        let mesh = &self.tiled.mesh;
        let axes = divided_axes(from, to);
        if axes.is_empty() {
            return input;
        }
        let shape = self.tile(value, to).local_shape(mesh);
        let share = scalar::multiple(1.0 / mesh.group_size(axes) as f64);
        let kernel = Elementwise::same(shape, 1, share).local(&[shape], shape);
        let result = self.buffer(value, to, false);
        self.step(kernel.into(), vec![input], vec![result]);
        result
    }

    /// Runs collectives one after the other, the last into `target` if there is one.
    fn communicate(
        &mut self,
        value: Value,
        collectives: &[Collective],
        input: BufferId,
        target: Option<BufferId>,
    ) -> BufferId {
        let mut input = input;
        for (position, collective) in collectives.iter().enumerate() {
            let is_last = position + 1 == collectives.len();
            let fresh =
                |this: &mut Self| this.buffer_with_halo(value, collective.to, collective.halo);
            let result = target.filter(|_| is_last).unwrap_or_else(|| fresh(self));
            self.step((*collective).into(), vec![input], vec![result]);
            input = result;
        }
        input
    }

    /// Returns where the training step of an entry, which was the last that was lowered, leaves its
    /// numbers. Its bytes are not counted yet.
    fn training_step(&self, entry: usize) -> TrainingStep {
        let loss = self.tiled.network.loss_of(Phase::Train(entry));
        let loss = self.stored[&loss.expect("entries that are trained have losses")];
        let entry = &self.tiled.network.entries[entry];
        let gradient_norm = entry.gradient_norm.map(|it| self.stored[&it]);
        TrainingStep {
            gradient_norm,
            trains_like: entry.trains_like,
            ..TrainingStep::only(loss, 0)
        }
    }

    /// Returns what each buffer holds, and its purpose.
    fn contents(&self) -> Vec<Held> {
        let network = &self.tiled.network;
        let is_forward = network.forward();
        let held = |(owner, storage): (&Owner, &Storage)| {
            let &Owner { value, is_converted } = owner;
            let content = match &network.graph.node(value).source {
                _ if is_converted => Content::Collectives,
                Source::Parameter(_) => Content::Parameters,
                Source::Buffer(_) | Source::State => Content::States,
                Source::Input { .. } => Content::Inputs,
                Source::Operator(operator) if operator.is_constant() => Content::Inputs,
                Source::Operator(_) if is_forward[value.index()] => Content::Activations,
                Source::Operator(_) => Content::Gradients,
            };
            Held { value: Some(value), content, bytes: storage.bytes() as u64 }
        };
        self.owners.iter().zip(&self.storage).map(held).collect()
    }

    /// Returns the outputs of an entry with the buffers that the evaluation writes: the loss and
    /// its weight if there are any, then the model's further outputs.
    fn outputs(&self, entry: usize) -> Vec<Output> {
        let network = &self.tiled.network;
        let of_entry = &network.entries[entry];
        let loss = of_entry.loss.map(|it| ("loss".to_owned(), it));
        let weight = of_entry.loss_weight.map(|it| ("weight of the loss".to_owned(), it));
        let further = &network.outputs[of_entry.outputs.clone()];
        let all = loss.into_iter().chain(weight).chain(further.iter().cloned());
        all.map(|(name, value)| Output {
            name: Cow::Owned(name),
            dtype: network.graph.node(value).dtype,
            tile: self.stored_tile(value),
            buffer: self.stored[&value],
            rows: self.batch.rows(&network.graph, entry, value),
        })
        .collect()
    }
}

/// Returns the tile of a tensor with its dims in the model's order.
fn in_model_order(stored: Tile, layout: ImageLayout) -> Tile {
    let order = layout.order(stored.shape.len());
    let mut tile = Tile { tiling: stored.tiling.with_dims(|dim| order[dim]), ..stored };
    for (place, &dim) in order.iter().enumerate() {
        tile.shape = tile.shape.with(dim, stored.shape[place]);
        tile.padded = tile.padded.with(dim, stored.padded[place]);
    }
    tile
}
