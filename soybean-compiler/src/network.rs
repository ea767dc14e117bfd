//! A model as a whole: the forward graph, with gradients and updates once their passes have run.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use soybean_plan::{Mesh, Mode, NonFinite, Precision, RunScalar, Tiling};

use crate::{
    builder::{Builder, Site},
    check,
    diagnostic::ModelDiagnostic,
    entry::{self, Entry},
    graph::{Graph, Source},
    kept_halos::{self, KeptHalos},
    model::Model,
    operator::{Operator, Phase},
    operators::{combines_terms, elementwise::Elementwise, permute::Permute},
    optimizer::Optimizer,
    partial_sums::LIGHT_WORK,
    pin,
    surface::custom::CustomGradient,
    value::Value,
};

/// A training step as a graph; in inference the forward computation alone.
#[derive(Clone, Debug)]
pub struct Network {
    /// All tensors.
    pub graph: Graph,
    /// The tensors of the batch, in the order of the model's arguments, entry by entry.
    pub inputs: Vec<Value>,
    /// The parameters that are trained; before differentiation and in inference, all of them.
    pub parameters: Vec<Value>,
    /// The model's further outputs, by name, entry by entry.
    pub outputs: Vec<(String, Value)>,
    /// The functions that run by themselves, at least one.
    pub entries: Vec<Entry>,
    /// The gradients of users' operators, until the network is differentiated.
    pub custom_gradients: Vec<CustomGradient>,
    /// Tensors whose elements the user chooses from others, until the network is differentiated.
    pub choices: Vec<Value>,
    /// Inputs and parameters with their gradients, entry by entry, until the updates are added.
    pub gradients: Vec<(Value, Value)>,
    /// For each entry, buffers, the gradients of inputs that are kept, then parameters and
    /// optimizer states, each with its next value in the same tiling; in inference the model's
    /// states.
    pub updates: Vec<(Value, Value)>,
    /// The sums of gradients, if steps share updates.
    pub gradient_sums: Vec<GradientSum>,
    /// The optimizer that made the updates.
    pub optimizer: Optimizer,
    /// The scalars that programs read.
    pub scalars: Vec<RunScalar>,
    /// With which numbers it computes.
    pub precision: Precision,
    /// The user's names of tensors; `None` for a tensor that is no longer computed by itself.
    pub names: Vec<(String, Option<Value>)>,
    /// The positions of the builder's calls, to which the origins of tensors refer.
    pub sites: Arc<[Site]>,
    /// The reads that may use the halo of an earlier read, if halos are kept.
    pub kept_halos: KeptHalos,
    /// True if no convolution or pooling may be split along rows and columns.
    pub keeps_images_whole: bool,
    /// The most work of small products that ranks may repeat on terms of sums, over that of a step
    /// on one device.
    pub light_work: f64,
}

/// A state that sums the gradients of a parameter, or what a loss counts, in the steps that share
/// an update. A training step sets it to zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GradientSum {
    /// The parameter; none if it is a count.
    pub parameter: Option<Value>,
    /// The state, which is also zero at the start.
    pub state: Value,
    /// Its value after an accumulating step, in the same tiling.
    pub next: Value,
}

impl Network {
    /// Returns the forward computation of a model.
    ///
    /// # Errors
    /// Returns a fault if the model lacks the loss or the outputs that its mode requires.
    pub fn from_model(model: Model<'_>) -> Result<Self, Vec<ModelDiagnostic>> {
        let Model { builder, loss, outputs } = model;
        check::results(&builder, loss, outputs)?;
        let sites = builder.sites().into();
        let Builder {
            graph,
            updates,
            scalars,
            names,
            entries,
            calls,
            custom_gradients,
            choices,
            ..
        } = builder;
        let network = Self {
            inputs: graph.inputs().collect(),
            parameters: graph.parameters().collect(),
            graph,
            outputs: outputs.to_vec(),
            entries: Vec::new(),
            custom_gradients,
            choices,
            gradients: Vec::new(),
            updates,
            gradient_sums: Vec::new(),
            optimizer: Optimizer::default(),
            scalars,
            precision: Precision::F32,
            names: names.into_iter().map(|(name, it)| (name, Some(it))).collect(),
            sites,
            kept_halos: KeptHalos::new(),
            keeps_images_whole: false,
            light_work: LIGHT_WORK,
        };
        let network = Self { entries: entry::entries(&entries, loss, &calls, &network), ..network };
        entry::with_shared_tensors(network, &entries)
    }

    /// Returns the mode: training if there is a loss, inference otherwise.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self.loss() {
            Some(_) => Mode::Training,
            None => Mode::Inference,
        }
    }

    /// Returns the loss of the first entry; none in inference.
    #[must_use]
    pub fn loss(&self) -> Option<Value> {
        self.entries.first()?.loss
    }

    /// Returns the loss that a phase leaves; none in inference.
    #[must_use]
    pub fn loss_of(&self, phase: Phase) -> Option<Value> {
        let (Phase::Train(entry) | Phase::Evaluate(entry)) = phase else {
            let entry = self.entries.first()?;
            return entry.shared_loss.map(|it| it.accumulating).or(entry.loss);
        };
        let Entry { shared_loss, loss, .. } = &self.entries[entry];
        match phase {
            Phase::Train(_) => shared_loss.map(|it| it.updating).or(*loss),
            Phase::Evaluate(_) | Phase::Accumulate => *loss,
        }
    }

    /// Returns the losses of all entries; none in inference.
    pub fn losses(&self) -> impl Iterator<Item = Value> + '_ {
        self.entries.iter().filter_map(|it| it.loss)
    }

    /// Returns the norms of the gradients of all entries, if updates need them.
    pub fn gradient_norms(&self) -> impl Iterator<Item = Value> + '_ {
        self.entries.iter().filter_map(|it| it.gradient_norm)
    }

    /// Returns whether several steps share an update, all but the last of which accumulate
    /// gradients.
    #[must_use]
    pub fn accumulates(&self) -> bool {
        self.mode() == Mode::Training && self.optimizer.accumulate > 1
    }

    /// Pins a tensor to a tiling. A parameter, buffer or state is pinned together with its next
    /// value.
    ///
    /// # Errors
    /// If the tensor cannot be stored in this tiling on this mesh.
    pub fn pinned(mut self, value: Value, tiling: Tiling, mesh: &Mesh) -> Result<Self, String> {
        let shape = self.graph.shape(value);
        if !pin::is_legal(mesh, &shape, tiling) {
            return Err(format!("{value}, {shape}, cannot be stored as {tiling} on {mesh}"));
        }
        let source = self.updates.iter().find(|(_, next)| *next == value).map(|it| it.0);
        self.graph.node_mut(source.unwrap_or(value)).pinned = Some(tiling.into());
        Ok(self)
    }

    /// Removes all pins.
    #[must_use]
    pub fn unpinned(mut self) -> Self {
        for value in self.graph.values() {
            self.graph.node_mut(value).pinned = None;
        }
        self
    }

    /// Returns the tiling to which a tensor is pinned, if it fits the mesh.
    #[must_use]
    pub fn pin(&self, value: Value, mesh: &Mesh) -> Option<Tiling> {
        let node = self.graph.node(value);
        let tiling = node.pinned?.on(mesh)?;
        pin::is_legal(mesh, &node.shape, tiling).then_some(tiling)
    }

    /// Returns the tensors that users pinned.
    #[must_use]
    pub fn pins(&self) -> Vec<Value> {
        self.graph.values().filter(|&it| self.graph.node(it).pinned.is_some()).collect()
    }

    /// Returns the tensors that must be computed: the loss, the outputs and the results of a step.
    #[must_use]
    pub fn roots(&self) -> Vec<Value> {
        let mut roots: Vec<Value> = self.evaluations().flat_map(|it| self.left_by(it)).collect();
        roots.extend(self.training().flat_map(|it| self.left_by(it)));
        roots.extend(self.gradient_sums.iter().map(|it| it.next));
        roots.extend(self.loss_of(Phase::Accumulate).filter(|_| self.accumulates()));
        roots
    }

    /// Returns the phases of training steps: one for each entry, or none in inference.
    pub(crate) fn training(&self) -> impl Iterator<Item = Phase> + use<> {
        let n_entries = self.losses().count();
        (0..n_entries).map(Phase::Train)
    }

    /// Returns the phases of evaluations: one for each entry.
    pub(crate) fn evaluations(&self) -> impl Iterator<Item = Phase> + use<> {
        (0..self.entries.len()).map(Phase::Evaluate)
    }

    /// Returns the results of a phase. A training step leaves the loss, the gradients or next
    /// values, and the gradients' norm; an accumulating step the loss, the sums of gradients and
    /// the next values of buffers; an evaluation what is fetched from its entry. In inference, the
    /// first two leave nothing, and the third leaves the next values of states, too.
    pub(crate) fn left_by(&self, phase: Phase) -> Vec<Value> {
        let next = |updates: &[(Value, Value)]| -> Vec<Value> {
            updates.iter().map(|&(_, next)| next).collect()
        };
        match phase {
            Phase::Train(entry) => {
                let entry = &self.entries[entry];
                let gradients = self.gradients[entry.gradients.clone()].iter().map(|it| it.1);
                let next = next(&self.updates[entry.updates.clone()]);
                let loss = self.loss_of(phase).into_iter();
                loss.chain(gradients).chain(next).chain(entry.gradient_norm).collect()
            }
            Phase::Accumulate if !self.accumulates() => Vec::new(),
            Phase::Accumulate => {
                let loss = self.loss_of(phase).into_iter();
                loss.chain(self.kept_when_accumulating().into_iter().map(|it| it.1)).collect()
            }
            Phase::Evaluate(entry) => {
                let entry = &self.entries[entry];
                let outputs = self.outputs[entry.outputs.clone()].iter().map(|&(_, it)| it);
                let next = match self.mode() {
                    Mode::Training => Vec::new(),
                    Mode::Inference => next(&self.updates[entry.updates.clone()]),
                };
                let loss = entry.loss.into_iter().chain(entry.loss_weight);
                loss.chain(outputs).chain(next).collect()
            }
        }
    }

    /// Returns what an accumulating step replaces, with the next values: buffers, and sums of
    /// gradients.
    pub(crate) fn kept_when_accumulating(&self) -> Vec<(Value, Value)> {
        let is_buffer = |it: Value| matches!(self.graph.node(it).source, Source::Buffer(_));
        let buffers = self.updates.iter().filter(|it| is_buffer(it.0)).copied();
        let sums = self.gradient_sums.iter().map(|it| (it.state, it.next));
        buffers.chain(sums).collect()
    }

    /// Returns all pairs of a kept tensor and a next value, which has the same tiling.
    pub(crate) fn replacements(&self) -> impl Iterator<Item = (Value, Value)> + '_ {
        let sums = self.gradient_sums.iter().map(|it| (it.state, it.next));
        self.updates.iter().copied().chain(sums)
    }

    /// Returns the numbers of a step that must be finite: otherwise the step leaves parameters,
    /// states and buffers as they are. There are none with `"skip"` and `"scale"`, where the
    /// updates themselves read whether loss and gradients are finite. Sums of gradients are added
    /// up in accumulating steps only if the loss is finite, whatever happens to other steps.
    pub(crate) fn guards(&self, phase: Phase, source: Value) -> Vec<Value> {
        let is_sum = self.gradient_sums.iter().any(|it| it.state == source);
        match (phase, self.optimizer.non_finite) {
            (Phase::Accumulate, NonFinite::Stop) => self.loss_of(phase).into_iter().collect(),
            (Phase::Accumulate, _) if is_sum => self.loss_of(phase).into_iter().collect(),
            (Phase::Train(entry), NonFinite::Stop) => {
                let norm = self.entries[entry].gradient_norm;
                self.loss_of(phase).into_iter().chain(norm).collect()
            }
            (_, NonFinite::Stop | NonFinite::Skip | NonFinite::Scale) => Vec::new(),
        }
    }

    /// Returns the numbers that must be finite for a training step to set sums of gradients to
    /// zero. A step whose loss is not finite leaves them as they are; a total that is not finite is
    /// dropped.
    pub(crate) fn guards_of_clearing(&self) -> Vec<Value> {
        self.loss_of(Phase::Train(0)).into_iter().collect()
    }

    /// Returns the next values of buffers, parameters and states.
    #[must_use]
    pub fn next_values(&self) -> BTreeSet<Value> {
        self.replacements().map(|(_, next)| next).collect()
    }

    /// Returns the position of the user's call for which a tensor was made, if it is known.
    #[must_use]
    pub fn site(&self, value: Value) -> Option<&Site> {
        self.sites.get(self.graph.node(value).origin?)
    }

    /// Returns the results of all evaluations: the losses if there are any, their weights, and the
    /// outputs.
    #[must_use]
    pub fn fetched(&self) -> Vec<Value> {
        let weights = self.entries.iter().filter_map(|it| it.loss_weight);
        let outputs = self.outputs.iter().map(|&(_, value)| value);
        self.losses().chain(weights).chain(outputs).collect()
    }

    /// Marks the tensors that the loss or an output depends on.
    #[must_use]
    pub fn forward(&self) -> Vec<bool> {
        self.graph.ancestors(&self.fetched())
    }

    /// Marks the tensors whose work ranks may repeat wherever that saves bytes, because it is
    /// negligible. In inference, these include maps and changes of shape of weights alone, such as
    /// the scales of a batch norm.
    #[must_use]
    pub fn may_repeat(&self) -> Vec<bool> {
        let graph = &self.graph;
        let mut is_of_weights: Vec<bool> = Vec::with_capacity(graph.n_values());
        for value in graph.values() {
            let is_input = matches!(graph.node(value).source, Source::Input { .. });
            let operands = graph.operands(value);
            is_of_weights.push(!is_input && operands.iter().all(|it| is_of_weights[it.index()]));
        }
        let is_light = |it: &Operator| {
            let changes_nothing = it.is_alias() || it.is::<Permute>();
            changes_nothing || it.is::<Elementwise>() || combines_terms(it)
        };
        let may_repeat = |value: Value| {
            let is_fixed = self.mode() == Mode::Inference && is_of_weights[value.index()];
            let is_repeatable = |it: &Operator| it.may_repeat() || is_fixed && is_light(it);
            graph.operator(value).is_some_and(is_repeatable)
        };
        graph.values().map(may_repeat).collect()
    }

    /// Marks the tensors whose collectives can run beside the forward and backward pass: those that
    /// are kept from step to step, and those that only updates read.
    pub(crate) fn kept_aside(&self) -> Vec<bool> {
        let of_updates = self.of_updates();
        let is_aside = |value: Value| match self.graph.node(value).source {
            Source::Parameter(_) | Source::Buffer(_) | Source::State => true,
            Source::Input { .. } => false,
            Source::Operator(_) => {
                let users = self.graph.users(value);
                of_updates[value.index()]
                    || !users.is_empty() && users.iter().all(|it| of_updates[it.index()])
            }
        };
        self.graph.values().map(is_aside).collect()
    }

    /// Marks the tensors that serve updates alone: the next values, the totals of accumulated
    /// gradients, the norm of all gradients with its terms, and what depends on it.
    pub(crate) fn of_updates(&self) -> Vec<bool> {
        let graph = &self.graph;
        // Other operators may read the next value of a model's state.
        let mut is_next = self.next_values();
        is_next.retain(|it| graph.users(*it).is_empty());
        let mut marks: Vec<bool> = graph.values().map(|it| is_next.contains(&it)).collect();
        for sum in &self.gradient_sums {
            graph.users(sum.state).iter().for_each(|it| marks[it.index()] = true);
        }
        let norms: Vec<Value> = self.gradient_norms().collect();
        if norms.is_empty() {
            return marks;
        }
        // Gradients serve next values and the norm; their squares and sums serve the norm alone.
        let mut serves_others = self.forward();
        is_next.iter().for_each(|it| serves_others[it.index()] = true);
        for value in graph.values().rev().filter(|it| !norms.contains(it)) {
            if serves_others[value.index()] {
                graph.operands(value).iter().for_each(|it| serves_others[it.index()] = true);
            }
        }
        let mut follows = vec![false; graph.n_values()];
        for value in graph.values() {
            let reads_norm = graph.operands(value).iter().any(|it| follows[it.index()]);
            follows[value.index()] = norms.contains(&value) || reads_norm;
            let serves_norm = graph.operator(value).is_some() && !serves_others[value.index()];
            marks[value.index()] |= follows[value.index()] || serves_norm;
        }
        marks
    }

    /// Returns the updates of each buffer, of each input's gradient, of each parameter together
    /// with its states, and in inference of each state.
    #[must_use]
    pub fn update_groups(&self) -> Vec<Vec<(Value, Value)>> {
        (0..self.entries.len()).flat_map(|it| self.update_groups_of(it)).collect()
    }

    /// Returns those of an entry.
    pub(crate) fn update_groups_of(&self, entry: usize) -> Vec<Vec<(Value, Value)>> {
        let mut groups: Vec<Vec<(Value, Value)>> = Vec::new();
        let origin = |it: Value| self.graph.node(it).origin;
        let is_state = |it: Value| matches!(self.graph.node(it).source, Source::State);
        for &(source, next) in &self.updates[self.entries[entry].updates.clone()] {
            // A state was made for the call that made its parameter.
            let of_parameter = groups.last_mut().filter(|it| {
                let is_alike = origin(it[0].0) == origin(source);
                self.mode() == Mode::Training && is_state(source) && is_alike
            });
            match of_parameter {
                Some(group) => group.push((source, next)),
                None => groups.push(vec![(source, next)]),
            }
        }
        groups
    }

    /// Returns the network on another graph, given the replacement of each tensor.
    ///
    /// # Panics
    /// If a tensor that the network names has no place in the other graph.
    #[must_use]
    pub(crate) fn remapped(&self, graph: Graph, of: &BTreeMap<Value, Value>) -> Self {
        let all = |values: &[Value]| values.iter().map(|it| of[it]).collect();
        let moved = |value: Option<Value>| of.get(&value?).copied();
        Self {
            graph,
            inputs: all(&self.inputs),
            parameters: all(&self.parameters),
            outputs: self.outputs.iter().map(|(name, value)| (name.clone(), of[value])).collect(),
            entries: self.entries.iter().map(|it| it.remapped(of)).collect(),
            custom_gradients: self.custom_gradients.iter().map(|it| it.remapped(of)).collect(),
            choices: all(&self.choices),
            gradients: self.gradients.iter().map(|(one, its)| (of[one], of[its])).collect(),
            updates: self.updates.iter().map(|(source, next)| (of[source], of[next])).collect(),
            gradient_sums: self
                .gradient_sums
                .iter()
                .map(|&GradientSum { parameter, state, next }| GradientSum {
                    parameter: parameter.map(|it| of[&it]),
                    state: of[&state],
                    next: of[&next],
                })
                .collect(),
            optimizer: self.optimizer.clone(),
            scalars: self.scalars.clone(),
            precision: self.precision,
            names: self.names.iter().map(|(name, it)| (name.clone(), moved(*it))).collect(),
            sites: Arc::clone(&self.sites),
            kept_halos: kept_halos::remapped(&self.kept_halos, of),
            keeps_images_whole: self.keeps_images_whole,
            light_work: self.light_work,
        }
    }
}

impl fmt::Display for Network {
    /// Writes the text form: the graph, then the tensors that are its results.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.graph)?;
        for (name, value) in &self.outputs {
            writeln!(f, "output {name:?} {value}")?;
        }
        for (parameter, gradient) in &self.gradients {
            writeln!(f, "gradient of {parameter}: {gradient}")?;
        }
        for (source, next) in &self.updates {
            writeln!(f, "update {source} = {next}")?;
        }
        for GradientSum { state, next, .. } in &self.gradient_sums {
            writeln!(f, "accumulate {state} = {next}")?;
        }
        for norm in self.gradient_norms() {
            writeln!(f, "gradient norm {norm}")?;
        }
        self.losses().try_for_each(|loss| writeln!(f, "loss {loss}"))
    }
}
