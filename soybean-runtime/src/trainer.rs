//! The trainer, which runs training steps on all ranks of a model.

pub(crate) mod batch;
mod finish_update;
mod gradients;
mod inspection;
mod parameters;
mod processes;
mod updates;

use std::{
    ops::Range,
    sync::{Arc, Mutex},
    time::Instant,
};

use soybean_plan::{DType, ImageLayout, Mode, Output, Tables, ThreadOwner, Tile};

#[cfg(feature = "cuda")]
use crate::cuda::{self, CudaRanks};
#[cfg(not(feature = "cuda"))]
use crate::devices;
use crate::{
    Array, Config, Device, Error, ErrorKind, Evaluation, MemoryBesidePlan, Model, Process, Profile,
    Trace, View,
    abort::lock,
    config::check_learning_rate,
    counters::{check_counters, n_updates_of},
    cpu::CpuRanks,
    host_io::{is_owner, n_terms, term},
    model::AnyModel,
    prediction::{PredictionRequest, concatenated},
    ranks::{BatchSource, Command, Ranks, Report, StepContext, TrainStep},
    state::{Sums, TensorRange},
    tile_overlap::TileOverlap,
};
use parameters::sorted_parameters;
use updates::History;

/// Trains a model on all ranks of its mesh, on the device of its choice.
pub struct Trainer {
    model: AnyModel,
    config: Config,
    learning_rate: f32,
    history: History,
    ranks: Box<dyn Ranks>,
    owner: ThreadOwner,
    /// For each entry, the rows of a batch that the ranks of this process read.
    rows: Vec<Vec<Range<usize>>>,
    /// The number of the entry whose batch is queued, if one is.
    queued: Option<usize>,
    /// The first error. After it, all calls fail.
    failure: Option<Error>,
}

impl Trainer {
    /// Starts the ranks of a generated model.
    ///
    /// # Errors
    /// If the model is not of mode training, a number of the configuration is out of range, the
    /// device cannot be used, or the model's tables are inconsistent.
    pub fn new(model: &'static dyn Model, config: Config) -> Result<Self, Error> {
        Self::start(AnyModel::Static(model), &config, Mode::Training)
    }

    /// Starts the ranks of a model that is a value, such as a [`soybean_plan::Executable`].
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn new_shared(model: Arc<dyn Model>, config: Config) -> Result<Self, Error> {
        Self::start(AnyModel::Shared(model), &config, Mode::Training)
    }

    /// Starts the ranks of a model of this mode.
    pub(crate) fn start(model: AnyModel, config: &Config, mode: Mode) -> Result<Self, Error> {
        let tables = model.get().tables();
        if tables.mode() != mode {
            let (name, found) = (&tables.name, tables.mode());
            let message =
                format!("expected a model of mode {mode}, found `{name}`, of mode {found}");
            return Err(Error::new(ErrorKind::Program, message));
        }
        config.check()?;
        let ranks = processes::start_ranks(&model, config)?;
        let rows = |entry| {
            processes::rows_needed(tables.inputs_of(entry), &tables.mesh, ranks.local_ranks())
        };
        let rows = (0..tables.entries.len()).map(rows).collect();
        let (config, history) = (config.clone(), History::default());
        let learning_rate = config.learning_rate;
        let (queued, failure, owner) = (None, None, ThreadOwner::this_process());
        let mut trainer =
            Self { model, config, learning_rate, history, ranks, owner, rows, queued, failure };
        // The first command fills the parameters, so that errors occur here.
        trainer.call(Command::ResetProfile)?;
        Ok(trainer)
    }

    /// Runs one training step. Returns the loss of this batch before the update.
    ///
    /// # Errors
    /// If the batch does not fit the model, the learning rate or a counter is out of range, the
    /// loss is not finite, or a rank fails. After a rank has failed, all further calls fail. A loss
    /// that is not finite leaves the parameters and the optimizer's state as they were. If the loss
    /// is finite, but the next value of a parameter, a buffer or a state is not, others have
    /// changed: steps, evaluations and saves fail until a checkpoint is restored.
    ///
    /// Models with `non_finite = "skip"` or `"scale"` skip a step whose loss or gradients are not
    /// finite, and return its loss. If several steps share an update, those before the last one
    /// check their loss alone, and a skipped update drops their gradients. After a hundred skipped
    /// steps or updates in a row they fail.
    pub fn step(&mut self, batch: &[View<'_>]) -> Result<f32, Error> {
        self.step_by(0, batch)
    }

    /// Runs one training step of the entry of this number, as [`Self::step`] does.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn step_by(&mut self, entry: usize, batch: &[View<'_>]) -> Result<f32, Error> {
        self.check_batch_of(entry, batch)?;
        self.train(entry, BatchSource::Batch(batch), None)
    }

    /// Queues a batch for [`Self::step_queued`]. Devices with their own memory copy it in the
    /// background. It replaces a batch that was queued before.
    ///
    /// # Errors
    /// If the batch does not fit the model, or a rank fails.
    pub fn queue(&mut self, batch: &[View<'_>]) -> Result<(), Error> {
        self.queue_by(0, batch)
    }

    /// Queues a batch of the entry of this number, as [`Self::queue`] does.
    ///
    /// # Errors
    /// As [`Self::queue`].
    pub fn queue_by(&mut self, entry: usize, batch: &[View<'_>]) -> Result<(), Error> {
        self.check_batch_of(entry, batch)?;
        self.call(Command::Queue { entry, batch })?;
        self.queued = Some(entry);
        Ok(())
    }

    /// Runs a training step on the queued batch, as [`Self::step`] does. During the step, `next` is
    /// queued, which is a batch of the first entry.
    ///
    /// # Errors
    /// If no batch was queued, `next` does not fit the model, the loss is not finite, or a rank
    /// fails.
    pub fn step_queued(&mut self, next: Option<&[View<'_>]>) -> Result<f32, Error> {
        let entry = self.check_queued(next)?;
        self.train(entry, BatchSource::Queued { next }, None)
    }

    /// Does the same as [`Self::step_queued`], and measures the time of each kernel and collective.
    ///
    /// # Errors
    /// As [`Self::step_queued`].
    pub fn trace_queued(&mut self, next: Option<&[View<'_>]>) -> Result<(f32, Trace), Error> {
        let entry = self.check_queued(next)?;
        let loss = self.train(entry, BatchSource::Queued { next }, Some(Instant::now()))?;
        let spans = |report: &Mutex<Report>| std::mem::take(&mut lock(report).spans);
        Ok((loss, Trace::new(self.ranks.reports().iter().map(spans).collect())))
    }

    /// Returns the entry of the queued batch.
    fn check_queued(&mut self, next: Option<&[View<'_>]>) -> Result<usize, Error> {
        let Some(entry) = self.queued else {
            let message = "expected a batch that was queued before, found none";
            return Err(Error::new(ErrorKind::Batch, message));
        };
        if let Some(next) = next {
            self.check_batch(next)?;
        }
        self.queued = next.map(|_| 0);
        Ok(entry)
    }

    fn train(
        &mut self,
        entry: usize,
        batch: BatchSource<'_>,
        trace_from: Option<Instant>,
    ) -> Result<f32, Error> {
        let learning_rate = self.learning_rate;
        check_learning_rate(learning_rate)
            .and_then(|()| check_counters(self.history.counters, self.tables()))
            .map_err(|error| self.report_error(error))?;
        let context = self.context(entry, learning_rate);
        let step = TrainStep { entry, batch, context, trace_from, is_inspected: false };
        let update = self.sums_at_risk()?;
        self.call(Command::Train(step))?;
        self.finish_step(entry, update)
    }

    /// Returns the values that determine the scalars of the next step, if it is of this entry.
    fn context(&self, entry: usize, learning_rate: f32) -> StepContext {
        let counters = self.history.counters;
        let n_updates = n_updates_of(counters, self.tables(), entry);
        let (n_shared, has_batch) = (counters.n_accumulated + 1, true);
        StepContext { counters, n_updates, learning_rate, n_shared, has_batch }
    }

    /// Runs the forward computation. Returns the loss and the model's other outputs.
    ///
    /// # Errors
    /// If the batch does not fit the model, or a rank fails.
    pub fn evaluate(&mut self, batch: &[View<'_>]) -> Result<Evaluation, Error> {
        self.evaluate_by(0, batch)
    }

    /// Runs the forward computation of the entry of this number, as [`Self::evaluate`] does.
    ///
    /// # Errors
    /// As [`Self::evaluate`].
    pub fn evaluate_by(&mut self, entry: usize, batch: &[View<'_>]) -> Result<Evaluation, Error> {
        let mut arrays = self.forward(entry, batch)?.into_iter();
        let mut number = || arrays.next().and_then(|it| it.data.first().copied());
        let loss = number().unwrap_or(f32::NAN);
        let has_weight = self.model.get().tables().entries[entry].has_loss_weight;
        let loss_weight = if has_weight { number() } else { None };
        Ok(Evaluation { loss, loss_weight, outputs: arrays.collect() })
    }

    /// Computes the model's outputs without the loss.
    ///
    /// Inputs on which they do not depend ([`soybean_plan::Input::is_queried`]), such as labels,
    /// are not read and may be empty. If every output has a part for each row, any number of rows
    /// may be given. They are computed batch by batch, and the outputs have as many rows. Then
    /// [`Self::moved_bytes`] refers to the last batch.
    ///
    /// # Errors
    /// If the model has no such outputs, the batch does not fit the model, or a rank fails.
    pub fn predict(&mut self, batch: &[View<'_>]) -> Result<Vec<Array>, Error> {
        self.predict_by(0, batch)
    }

    /// Computes the outputs of the entry of this number, as [`Self::predict`] does.
    ///
    /// # Errors
    /// As [`Self::predict`].
    pub fn predict_by(&mut self, entry: usize, batch: &[View<'_>]) -> Result<Vec<Array>, Error> {
        let model = self.model.clone();
        let tables = model.get().tables();
        let predictions = tables.predictions(entry);
        let request = PredictionRequest::new(tables, entry, batch, &self.rows[entry])
            .map_err(|error| self.report_error(error))?;
        let mut answers = vec![Vec::new(); predictions.len()];
        for part in request.batches() {
            let arrays = self.forward(entry, &part.views())?;
            let arrays = arrays.into_iter().skip(tables.n_of_loss(entry));
            for ((output, answer), array) in predictions.iter().zip(&mut answers).zip(arrays) {
                answer.push(part.cut(array, output.rows));
            }
        }
        let outputs = predictions.iter().zip(answers);
        Ok(outputs.map(|(output, parts)| concatenated(parts, output.rows)).collect())
    }

    /// Returns all outputs of an entry, including the loss if there is one.
    fn forward(&mut self, entry: usize, batch: &[View<'_>]) -> Result<Vec<Array>, Error> {
        self.check_batch_of(entry, batch)?;
        self.call(Command::Evaluate { entry, batch, is_inspected: false })?;
        let outputs = self.model.get().tables().outputs_of(entry);
        let tiles: Vec<(Tile, ImageLayout)> =
            outputs.iter().map(|it| (it.tile, ImageLayout::ChannelsFirst)).collect();
        let arrays = self.assemble(&tiles, Sums::Added, &mut || None).into_iter();
        let typed = |(array, output): (Array, &Output)| match output.dtype {
            DType::I32 => array.of_bits(),
            DType::F32 | DType::Bf16 => array,
        };
        Ok(arrays.zip(outputs.iter()).map(typed).collect())
    }

    /// Returns all parameters by name, in the order in which the model creates them.
    ///
    /// # Errors
    /// If a rank fails.
    pub fn parameters(&mut self) -> Result<Vec<(String, Array)>, Error> {
        self.named(TensorRange::parameters(self.tables()))
    }

    /// Returns the parameters that are trained, by name: neither buffers nor frozen ones.
    ///
    /// # Errors
    /// If a rank fails.
    pub fn trained_parameters(&mut self) -> Result<Vec<(String, Array)>, Error> {
        let is_trained: Vec<bool> =
            self.tables().parameters.iter().map(|it| it.is_trained).collect();
        let all = self.parameters()?.into_iter().zip(is_trained);
        Ok(all.filter(|it| it.1).map(|it| it.0).collect())
    }

    /// Replaces all parameters. The optimizer's state does not change.
    ///
    /// # Errors
    /// If a name is unknown, missing or given twice, if a shape is wrong, or if a rank fails.
    pub fn set_parameters(&mut self, parameters: &[(String, Array)]) -> Result<(), Error> {
        let sorted = sorted_parameters(self.tables(), parameters);
        let sorted = sorted.map_err(|error| self.report_error(error))?;
        self.load(0, &sorted)
    }

    /// Returns all tensors of the optimizer by name, such as `dense.w.momentum`.
    ///
    /// # Errors
    /// If a rank fails.
    pub fn optimizer_state(&mut self) -> Result<Vec<(String, Array)>, Error> {
        self.named(TensorRange::states(self.tables()))
    }

    pub(crate) fn tables(&self) -> &Tables {
        self.model.get().tables()
    }

    /// Sets the learning rate from the next step on. It must be finite and not below 0.
    pub const fn set_learning_rate(&mut self, learning_rate: f32) {
        self.learning_rate = learning_rate;
    }

    /// Returns the bytes that all ranks received from others in the last step or evaluation. They
    /// are counted when they are read.
    #[must_use]
    pub fn moved_bytes(&self) -> u64 {
        let moved = |report: &Mutex<Report>| lock(report).moved_bytes;
        self.ranks.reports().iter().map(moved).sum()
    }

    /// Returns the bytes that the host wrote to all ranks for the batch of the last step or
    /// evaluation: to each rank its parts of the inputs, with padding. They are counted when they
    /// are written.
    #[must_use]
    pub fn fed_bytes(&self) -> u64 {
        let fed = |report: &Mutex<Report>| lock(report).fed_bytes;
        self.ranks.reports().iter().map(fed).sum()
    }

    /// Returns the number of training steps so far.
    #[must_use]
    pub const fn n_steps(&self) -> u64 {
        self.history.counters.n_steps
    }

    /// Returns the times of each rank since the start or the last [`Self::reset_profile`].
    #[must_use]
    pub fn profile(&self) -> Vec<Profile> {
        self.ranks.reports().iter().map(|it| lock(it).profile).collect()
    }

    /// Sets all times to zero.
    ///
    /// # Errors
    /// If the run has failed.
    pub fn reset_profile(&mut self) -> Result<(), Error> {
        self.call(Command::ResetProfile)
    }

    /// Describes the devices of all ranks, in one line.
    #[must_use]
    pub fn device_line(&self) -> String {
        self.ranks.device_line()
    }

    /// Returns the memory that a rank has on its GPU beside the plan, the largest of this process.
    /// It is 0 on the CPU.
    #[must_use]
    pub fn memory_beside_plan(&self) -> MemoryBesidePlan {
        self.ranks.memory_beside_plan()
    }

    /// Makes the trainer unusable in all processes, because its state was replaced in part. Returns
    /// the error.
    pub(crate) fn invalidate(&mut self, error: Error) -> Error {
        self.failure.get_or_insert_with(|| error.clone());
        self.report_error(error)
    }

    /// Reports an error that occurred before a command to the other processes. No trainer can be
    /// used any more. A single process can give another command. Returns the error.
    fn report_error(&mut self, error: Error) -> Error {
        if self.ranks.process() != Process::ONLY {
            self.failure.get_or_insert_with(|| error.clone());
            self.ranks.report_error(&error);
        }
        error
    }

    fn earlier_failure(&self) -> Option<Error> {
        let earlier = self.failure.as_ref()?;
        let message = format!("the trainer has stopped after an earlier failure: {earlier}");
        Some(Error::new(ErrorKind::Rank, message))
    }

    pub(crate) fn call(&mut self, command: Command<'_>) -> Result<(), Error> {
        if let Some(failure) = self.earlier_failure() {
            return Err(failure);
        }
        self.owner.check("the trainer or predictor")?;
        self.check_whole(&command)?;
        self.ranks.call(command).inspect_err(|error| self.failure = Some(error.clone()))
    }

    /// Frees the memory in which the ranks report tensors.
    pub(crate) fn free_parts(&self) {
        self.ranks.reports().iter().for_each(|it| lock(it).parts = Vec::new());
    }

    /// Assembles whole tensors from the parts that the ranks have reported.
    pub(crate) fn assemble(
        &self,
        tiles: &[(Tile, ImageLayout)],
        sums: Sums,
        spare: &mut dyn FnMut() -> Option<Vec<f32>>,
    ) -> Vec<Array> {
        let (mesh, reports) = (&self.tables().mesh, self.ranks.reports());
        let assemble = |(number, &(tile, layout)): (usize, &(Tile, ImageLayout))| {
            let is_sum = !tile.tiling.partial_axes().is_empty();
            let n_terms = if sums == Sums::Apart { n_terms(mesh, &tile) } else { 1 };
            let terms = (n_terms > 1).then_some(n_terms);
            let shape: Vec<usize> = terms.into_iter().chain(tile.shape.to_vec()).collect();
            let is_whole = !is_sum && !tile.is_padded() && tile.local_shape(mesh) == tile.shape;
            if is_whole && layout == ImageLayout::ChannelsFirst {
                let mut other = spare().unwrap_or_default();
                other.clear();
                let part = &mut lock(&reports[0]).parts[number];
                let data = std::mem::replace(part, other);
                return Array { shape, data, ..Array::default() };
            }
            // Fresh memory is zero without writing to it.
            let n_elements = tile.shape.n_elements();
            let mut data = spare().unwrap_or_else(|| vec![0.0; n_terms * n_elements]);
            data.resize(n_terms * n_elements, 0.0);
            let is_added = is_sum && n_terms == 1;
            if is_added {
                data.fill(0.0);
            }
            for (rank, report) in reports.iter().enumerate() {
                if !is_owner(mesh, &tile, rank) {
                    continue;
                }
                let report = lock(report);
                let part = &report.parts[number];
                let first = if is_added { 0 } else { term(mesh, &tile, rank) * n_elements };
                TileOverlap::with_whole(mesh, &tile, layout, rank).for_each(
                    |here, there, length| {
                        let (whole, part) =
                            (&mut data[first + there..][..length], &part[here..][..length]);
                        match is_added {
                            true => whole.iter_mut().zip(part).for_each(|(sum, it)| *sum += it),
                            false => whole.copy_from_slice(part),
                        }
                    },
                );
            }
            Array { shape, data, ..Array::default() }
        };
        tiles.iter().enumerate().map(assemble).collect()
    }
}

#[cfg(feature = "cuda")]
fn start_ranks(model: &AnyModel, config: &Config) -> Result<Box<dyn Ranks>, Error> {
    match config.device {
        Device::Auto => match cuda::devices::usable() {
            Ok(_) => Ok(Box::new(CudaRanks::new(model, config)?)),
            Err(why) => {
                let obstacle = cuda::has_driver().then(|| why.to_string());
                Ok(Box::new(CpuRanks::new(model, config, obstacle)?))
            }
        },
        Device::Cuda => Ok(Box::new(CudaRanks::new(model, config)?)),
        Device::Cpu => Ok(Box::new(CpuRanks::new(model, config, None)?)),
    }
}

#[cfg(not(feature = "cuda"))]
fn start_ranks(model: &AnyModel, config: &Config) -> Result<Box<dyn Ranks>, Error> {
    match config.device {
        Device::Auto | Device::Cpu => Ok(Box::new(CpuRanks::new(model, config, None)?)),
        Device::Cuda => Err(devices::not_built_in()),
    }
}
