//! The trainer: all ranks of a model, from batches to losses.

use std::{
    num::NonZero,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
};

use soybean_plan::{Input, Tables, Tile};

use crate::{
    Array, Config, Device, Error, ErrorKind, Evaluation, Model, Profile, View,
    abort::lock,
    cpu::start_ranks,
    overlap::Overlap,
    post::{Links, Order, Report},
    worker::{AnyModel, is_owner},
};

/// Trains a model on all ranks of its mesh. The ranks are threads that live as long as the trainer.
pub struct Trainer {
    model: AnyModel,
    learning_rate: f32,
    n_steps: u64,
    n_threads: usize,
    links: Links,
    threads: Vec<JoinHandle<()>>,
}

impl Trainer {
    /// Starts the ranks of a generated model.
    ///
    /// # Errors
    /// If the device cannot be used, or the model's tables contradict themselves.
    pub fn new(model: &'static dyn Model, config: Config) -> Result<Self, Error> {
        Self::start(AnyModel::Static(model), &config)
    }

    /// Starts the ranks of a model that is a value, such as a [`soybean_plan::Program`].
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn new_shared(model: Arc<dyn Model>, config: Config) -> Result<Self, Error> {
        Self::start(AnyModel::Shared(model), &config)
    }

    fn start(model: AnyModel, config: &Config) -> Result<Self, Error> {
        if config.device == Device::Cuda {
            let message = "expected a device that is built in (cpu), found cuda";
            return Err(Error::new(ErrorKind::Device, message));
        }
        let n_ranks = model.get().tables().mesh.n_ranks();
        let n_cores = thread::available_parallelism().map_or(1, NonZero::get);
        let n_threads = config.threads.unwrap_or(n_cores).max(1);
        let mut trainer = Self {
            learning_rate: config.learning_rate,
            n_steps: 0,
            n_threads: (n_threads / n_ranks).max(1) * n_ranks,
            links: Links::new(n_ranks),
            threads: Vec::new(),
            model,
        };
        trainer.threads = start_ranks(
            &trainer.model,
            config.seed,
            trainer.n_threads / n_ranks,
            n_ranks > n_cores,
            &trainer.links,
        )?;
        // Fills the parameters, so that failures show here.
        trainer.call(Order::ResetProfile)?;
        Ok(trainer)
    }

    /// One training step; gives the loss of this batch before the update.
    ///
    /// # Errors
    /// If the batch does not fit the model, the loss is not finite, or a rank fails; after the latter, all further calls fail.
    pub fn step(&mut self, batch: &[View<'_>]) -> Result<f32, Error> {
        check_batch(&self.model.get().tables().inputs, batch)?;
        let step = self.n_steps + 1;
        self.call(Order::Train { batch, step, learning_rate: self.learning_rate })?;
        self.n_steps = step;
        let loss = lock(&self.links.reports[0]).loss;
        if loss.is_finite() {
            return Ok(loss);
        }
        let (found, rate) = (name_of(loss), self.learning_rate);
        Err(Error::new(
            ErrorKind::Loss,
            format!(
                "expected a finite loss, found that the loss is {found} after step {step} (learning rate {rate})"
            ),
        ))
    }

    /// The forward computation alone: the loss, and the model's further outputs.
    ///
    /// # Errors
    /// If the batch does not fit the model, or a rank fails.
    pub fn evaluate(&mut self, batch: &[View<'_>]) -> Result<Evaluation, Error> {
        check_batch(&self.model.get().tables().inputs, batch)?;
        self.call(Order::Evaluate { batch })?;
        let outputs = &self.model.get().tables().outputs;
        let tiles: Vec<Tile> = outputs.iter().map(|it| it.tile).collect();
        let mut arrays = self.assemble(&tiles).into_iter();
        let loss = arrays.next().and_then(|loss| loss.data.first().copied()).unwrap_or(f32::NAN);
        Ok(Evaluation { loss, outputs: arrays.collect() })
    }

    /// All parameters by name, in the order in which the model makes them.
    ///
    /// # Errors
    /// If a rank fails.
    pub fn parameters(&mut self) -> Result<Vec<(String, Array)>, Error> {
        self.call(Order::Fetch)?;
        let parameters = &self.model.get().tables().parameters;
        let tiles: Vec<Tile> = parameters.iter().map(|it| it.tile).collect();
        let arrays = self.assemble(&tiles);
        Ok(parameters.iter().map(|it| it.name.clone().into_owned()).zip(arrays).collect())
    }

    /// Replaces all parameters; the optimiser's state stays as it is.
    ///
    /// # Errors
    /// If a name is unknown, missing or given twice, if a shape is wrong, or if a rank fails.
    pub fn set_parameters(&mut self, parameters: &[(String, Array)]) -> Result<(), Error> {
        let sorted = sorted_parameters(self.model.get().tables(), parameters)?;
        self.call(Order::Load { parameters: &sorted })
    }

    /// The learning rate from the next step on.
    pub const fn set_learning_rate(&mut self, learning_rate: f32) {
        self.learning_rate = learning_rate;
    }

    /// The bytes that all ranks together received from others in the last step or evaluation, as counted while they were read.
    #[must_use]
    pub fn moved_bytes(&self) -> u64 {
        let moved = |report: &Mutex<Report>| lock(report).moved_bytes.clone().unwrap_or(0);
        self.links.reports.iter().map(moved).sum()
    }

    /// The number of training steps so far.
    #[must_use]
    pub const fn n_steps(&self) -> u64 {
        self.n_steps
    }

    /// The time that each rank spent since the start or the last [`Self::reset_profile`].
    #[must_use]
    pub fn profile(&self) -> Vec<Profile> {
        self.links.reports.iter().map(|it| lock(it).profile).collect()
    }

    /// Sets all times to zero.
    ///
    /// # Errors
    /// If the run has failed.
    pub fn reset_profile(&mut self) -> Result<(), Error> {
        self.call(Order::ResetProfile)
    }

    /// What runs where, in one line.
    #[must_use]
    pub fn device_line(&self) -> String {
        let (n_ranks, n_threads) = (self.links.reports.len(), self.n_threads);
        let plural = |n| if n == 1 { "" } else { "s" };
        let devices =
            if n_ranks == 1 { "1 device".to_owned() } else { format!("{n_ranks} virtual devices") };
        format!("{devices} on the CPU, {n_threads} thread{}", plural(n_threads))
    }

    fn call(&self, order: Order<'_>) -> Result<(), Error> {
        if let Some(earlier) = self.links.abort.first() {
            let message = format!("the trainer has stopped after an earlier failure: {earlier}");
            return Err(Error::new(ErrorKind::Rank, message));
        }
        self.links.post.call(order);
        self.links.abort.first().map_or(Ok(()), Err)
    }

    /// Whole tensors, from the parts that the ranks have reported.
    fn assemble(&self, tiles: &[Tile]) -> Vec<Array> {
        let mesh = &self.model.get().tables().mesh;
        let assemble = |(number, tile): (usize, &Tile)| {
            let mut data = vec![0.0; tile.shape.n_elements()];
            for (rank, report) in self.links.reports.iter().enumerate() {
                if !is_owner(mesh, tile, rank) {
                    continue;
                }
                let report = lock(report);
                let part = &report.parts[number];
                Overlap::with_whole(mesh, tile, rank).for_each(|here, there, length| {
                    data[there..there + length].copy_from_slice(&part[here..here + length]);
                });
            }
            Array { shape: tile.shape.to_vec(), data }
        };
        tiles.iter().enumerate().map(assemble).collect()
    }
}

impl Drop for Trainer {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.links.post.call(Order::Stop);
        }
        for thread in self.threads.drain(..) {
            // A rank's panic has been reported where it happened.
            let _reported = thread.join();
        }
    }
}

fn name_of(loss: f32) -> &'static str {
    match loss {
        loss if loss.is_nan() => "NaN",
        loss if loss > 0.0 => "infinite",
        _ => "minus infinity",
    }
}

fn check_batch(inputs: &[Input], batch: &[View<'_>]) -> Result<(), Error> {
    let fault = |message: String| Err(Error::new(ErrorKind::Batch, message));
    if inputs.len() != batch.len() {
        let names: Vec<_> = inputs.iter().map(|it| it.name.as_ref()).collect();
        let (expected, names, found) = (inputs.len(), names.join(", "), batch.len());
        return fault(format!("expected a batch of {expected} tensors ({names}), found {found}"));
    }
    for (input, view) in inputs.iter().zip(batch) {
        let (name, shape) = (&input.name, input.tile.shape);
        let (dtype, n_elements) = (input.dtype, shape.n_elements());
        if view.dtype() != dtype {
            return fault(format!("input `{name}`: expected {dtype}, found {}", view.dtype()));
        }
        if view.n_elements() != n_elements {
            let found = view.n_elements();
            return fault(format!(
                "input `{name}`: expected {n_elements} elements for shape {shape}, found {found}"
            ));
        }
        check_labels(input, *view)?;
    }
    Ok(())
}

fn check_labels(input: &Input, view: View<'_>) -> Result<(), Error> {
    let (Some(n_classes), View::I32(labels)) = (input.n_classes, view) else { return Ok(()) };
    let is_bad = |label: &i32| usize::try_from(*label).map_or(true, |label| label >= n_classes);
    let Some(row) = labels.iter().position(is_bad) else { return Ok(()) };
    let (name, label) = (&input.name, labels[row]);
    let message =
        format!("input `{name}`, row {row}: expected a label in 0..{n_classes}, found {label}");
    Err(Error::new(ErrorKind::Batch, message))
}

fn sorted_parameters<'a>(
    tables: &Tables,
    given: &'a [(String, Array)],
) -> Result<Vec<View<'a>>, Error> {
    let fault = |message: String| Err(Error::new(ErrorKind::Parameters, message));
    for (number, (name, _)) in given.iter().enumerate() {
        if given[..number].iter().any(|it| it.0 == *name) {
            return fault(format!("parameter `{name}`: expected once, found twice"));
        }
        if !tables.parameters.iter().any(|it| it.name == name.as_str()) {
            let known: Vec<_> = tables.parameters.iter().map(|it| it.name.as_ref()).collect();
            return fault(format!("expected parameters {}, found `{name}`", known.join(", ")));
        }
    }
    let mut views = Vec::new();
    for parameter in tables.parameters.iter() {
        let (name, shape) = (&parameter.name, parameter.tile.shape);
        let Some((_, array)) = given.iter().find(|it| it.0 == name.as_ref()) else {
            return fault(format!("parameter `{name}`: expected shape {shape}, found none"));
        };
        let n_elements = array.data.len();
        if array.shape != shape[..] || n_elements != shape.n_elements() {
            let found = &array.shape;
            return fault(format!(
                "parameter `{name}`: expected shape {shape}, found {found:?} with {n_elements} elements"
            ));
        }
        views.push(View::F32(&array.data));
    }
    Ok(views)
}
