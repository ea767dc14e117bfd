//! The ranks of a model on GPUs, as the trainer sees them.
#![expect(unsafe_code, reason = "the device writes pinned host memory, and programs are raw")]

mod reports;

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use soybean_plan::{Executable, Kernel, Tables};

use super::{
    communicators::Communicators,
    device_program::DeviceProgram,
    device_set::{DeviceSet, TrainingStep, scalars_for_host},
    fused_program::FusedProgram,
    gpu::Gpu,
    interconnect::{choose_backend, supports_graphs},
    kernels::GpuKernels,
    launcher::Launcher,
    libraries::installation,
    local_ranks::LocalRanks,
    phase::{Phase, PhaseBuilder},
    phase_runner::PhaseRunner,
    product_support::ProductSupport,
    rank_context::RankContext,
    source::KernelRequests,
};
use crate::{
    Config, Error, MemoryBesidePlan, Model, Profile, View,
    abort::lock,
    counters::is_update,
    host_io::HostIo,
    model::AnyModel,
    ranks::{BatchSource, Command, Ranks, Report, TrainStep},
    trace::microseconds,
};

/// Why there is a phase for accumulating steps.
const HAS_ACCUMULATING_STEPS: &str = "steps share updates, so all but the last accumulate";

/// The ranks of a model, or those of this process, on GPUs.
pub(crate) struct CudaRanks {
    seed: u64,
    uses_graphs: bool,
    train: Vec<PhaseRunner>,
    /// Steps without an update, if several steps share one.
    accumulate: Option<PhaseRunner>,
    /// One for each entry.
    evaluate: Vec<PhaseRunner>,
    host_io: Vec<HostIo>,
    /// Slot of the queued batch.
    queued: usize,
    local: LocalRanks,
    device_line: String,
    /// The arena of the plan.
    planned_bytes: usize,
    has_failed: bool,
    launcher: Launcher,
    device_program: DeviceProgram,
}

/// Returns the maximum workspace in bytes of a library call: half of what the arena leaves free on
/// the fullest GPU, rounded down to a power of two. So equal GPUs choose equal algorithms, even if
/// other programs hold a little memory of some.
fn max_workspace_bytes(
    gpus: &[Arc<Gpu>],
    local: &LocalRanks,
    tables: &Tables,
) -> Result<usize, Error> {
    let of_rank = free_bytes_of_rank(gpus, local.ranks.len())?;
    let left = (of_rank.saturating_sub(tables.arena_bytes) / 2) as u64;
    let of_all = local.peers.all_gather(&left.to_le_bytes())?;
    let least = of_all.as_chunks().0.iter().map(|it| u64::from_le_bytes(*it)).min();
    Ok(least.unwrap_or(0).checked_ilog2().map_or(0, |bits| 1 << bits))
}

/// Returns the bytes that are free for each of some ranks on the fullest GPU.
fn free_bytes_of_rank(gpus: &[Arc<Gpu>], n_ranks: usize) -> Result<usize, Error> {
    let free = gpus.iter().map(|it| it.free_bytes()).collect::<Result<Vec<_>, _>>()?;
    let n_ranks_of_gpu = n_ranks.div_ceil(gpus.len().max(1)).max(1);
    Ok(free.into_iter().min().unwrap_or(0) / n_ranks_of_gpu)
}

impl CudaRanks {
    /// Starts all ranks on GPUs and initializes their parameters.
    pub(crate) fn new(model: &AnyModel, config: &Config) -> Result<Self, Error> {
        Self::start(model, config, LocalRanks::all(model.get().tables().mesh.n_ranks()))
    }

    /// Starts the ranks of this process on GPUs and initializes their parameters.
    pub(crate) fn start(
        model: &AnyModel,
        config: &Config,
        local: LocalRanks,
    ) -> Result<Self, Error> {
        let gpus = installation().gpus(local.gpus.clone())?;
        let fused = fused_program(model.get(), &gpus, local.ranks.len())?;
        let planned_bytes = model.get().tables().arena_bytes;
        let program = fused.device_program.program.clone();
        // SAFETY: the passes for GPUs keep what the model's own program had.
        let program = unsafe { Executable::new(program) };
        let model = &AnyModel::Shared(Arc::new(program));
        let tables = model.get().tables();
        let backend = choose_backend(&gpus, local.ranks.len(), local.peers.as_ref())?;
        let mut builder = PhaseBuilder::new(tables, &fused.kernels, backend);
        let train = training_phases(&fused, &mut builder)?;
        let accumulate = accumulating_phase(&fused, &mut builder)?;
        let evaluate = evaluation_phases(&fused, &mut builder)?;
        let device_program = fused.device_program;
        let requests = KernelRequests {
            kernels: &builder.kernels,
            precision: tables.precision,
            calls: &builder.calls,
            transfers: &builder.transfers,
            max_workspace_bytes: max_workspace_bytes(&gpus, &local, tables)?,
        };
        let kernel_sets = GpuKernels::of_all(&gpus, &requests, config.autotunes, &local.peers)?;
        let context = |rank: usize| {
            let gpu_index = (rank - local.ranks.start) * gpus.len() / local.ranks.len();
            let sizes = builder.sizes(rank, kernel_sets[gpu_index].workspace_bytes());
            RankContext::new(rank, (gpu_index, &gpus[gpu_index]), model, sizes)
        };
        let contexts = local.ranks.clone().map(context).collect::<Result<Vec<_>, _>>()?;
        let phases: Vec<&Phase> = train.iter().chain(&accumulate).chain(&evaluate).collect();
        let axes = phases.iter().flat_map(|it| it.nccl_axes());
        let others = (&local.peers, config.step_timeout);
        let communicators = Communicators::new(&tables.mesh, axes, &local.ranks, &gpus, others)?;
        let mut devices = DeviceSet::new(model.clone(), kernel_sets, contexts, communicators)?;
        devices.write_patterns(&phases, builder.n_words())?;
        let host_io: Vec<HostIo> =
            local.ranks.clone().map(|rank| HostIo::new(tables, rank)).collect();
        for (context, host_io) in devices.contexts.iter_mut().zip(&host_io) {
            host_io.fill(tables, context, config.seed)?;
            device_program.refresh(context, 0..tables.parameters.len())?;
        }
        Ok(Self {
            seed: config.seed,
            uses_graphs: config.uses_graphs && supports_graphs(backend, local.ranks.len()),
            train: train
                .into_iter()
                .map(|it| PhaseRunner::new(&devices, it))
                .collect::<Result<_, _>>()?,
            accumulate: accumulate.map(|it| PhaseRunner::new(&devices, it)).transpose()?,
            evaluate: evaluate
                .into_iter()
                .map(|it| PhaseRunner::new(&devices, it))
                .collect::<Result<_, _>>()?,
            host_io,
            queued: 0,
            device_line: local.device_line(&gpus, backend),
            planned_bytes,
            launcher: Launcher::new(devices, &gpus, (&local.peers, config.step_timeout))?,
            local,
            has_failed: false,
            device_program,
        })
    }

    fn serve(&mut self, command: Command<'_>) -> Result<(), Error> {
        match command {
            Command::Train(training) => self.train(training),
            Command::Queue { entry, batch } => self.fill(self.queued, entry, batch),
            Command::Evaluate { entry, batch, .. } => {
                // The queued batch stays in its slot.
                let slot = 1 - self.queued;
                self.fill(slot, entry, batch)?;
                self.evaluate[entry].run(&mut self.launcher, slot, self.uses_graphs)?;
                self.launcher.wait(&self.evaluate[entry])?;
                self.report_bytes(&self.evaluate[entry], slot);
                let model = self.launcher.devices.model.clone();
                let outputs = model.get().tables().outputs_of(entry).iter();
                self.report_parts(&outputs.map(|it| (it.tile, it.buffer)).collect::<Vec<_>>())
            }
            Command::Fetch(range) | Command::Save(range) => {
                let model = self.launcher.devices.model.clone();
                self.report_parts(&range.buffers(model.get().tables()))
            }
            Command::Load { first, tensors } => {
                let model = self.launcher.devices.model.clone();
                let contexts = &mut self.launcher.devices_mut()?.contexts;
                let mut contexts = contexts.iter_mut().zip(&self.host_io);
                contexts.try_for_each(|(context, host_io)| {
                    host_io.load(model.get().tables(), context, first, tensors)?;
                    self.device_program.refresh(context, first..first + tensors.len())
                })
            }
            Command::ResetProfile => {
                self.local
                    .reports_here()
                    .iter()
                    .for_each(|it| lock(it).profile = Profile::default());
                Ok(())
            }
        }
    }

    fn train(&mut self, training: TrainStep<'_>) -> Result<(), Error> {
        let started = Instant::now();
        let TrainStep { entry, batch, context, trace_from, is_inspected: _ } = training;
        let (slot, next) = match batch {
            BatchSource::Batch(batch) => {
                let slot = 1 - self.queued;
                self.fill(slot, entry, batch)?;
                (slot, None)
            }
            BatchSource::Queued { next } => (self.queued, next),
        };
        let model = self.launcher.devices.model.clone();
        let scalars = self.host_io[0].scalars(model.get().tables(), self.seed, context);
        // SAFETY: no step is running, so no device reads the words.
        let words = unsafe { self.launcher.devices_mut()?.scalars.words_mut() };
        words.iter_mut().zip(scalars).for_each(|(word, it)| *word = it.to_bits());
        let handing_over = Instant::now();
        let kind = match is_update(context.counters, model.get().tables()) {
            true => TrainingStep::Updating,
            false => TrainingStep::Accumulating,
        };
        let runner = match kind {
            TrainingStep::Updating => &mut self.train[entry],
            TrainingStep::Accumulating => self.accumulate.as_mut().expect(HAS_ACCUMULATING_STEPS),
        };
        match trace_from {
            None => runner.run(&mut self.launcher, slot, self.uses_graphs)?,
            Some(from) => {
                let timing = Arc::new(self.launcher.devices.timing(runner.phase())?);
                let queued = microseconds(from, Instant::now());
                runner.queue(&mut self.launcher, slot, Some(&timing))?;
                let runner = self.runner(entry, kind);
                self.launcher.wait(runner)?;
                self.report_spans(runner.phase(), &timing, queued)?;
            }
        }
        let handing_over = handing_over.elapsed();
        if let Some(next) = next {
            self.queued = 1 - slot;
            self.fill(self.queued, 0, next)?;
        }
        self.launcher.wait(self.runner(entry, kind))?;
        self.report_numbers(entry, kind);
        self.report_non_finite()?;
        self.report_bytes(self.runner(entry, kind), slot);
        for report in self.local.reports_here() {
            let profile = &mut lock(report).profile;
            profile.n_steps += 1;
            profile.total += started.elapsed();
            profile.handing_over += handing_over;
        }
        Ok(())
    }

    fn runner(&self, entry: usize, kind: TrainingStep) -> &PhaseRunner {
        match kind {
            TrainingStep::Updating => &self.train[entry],
            TrainingStep::Accumulating => self.accumulate.as_ref().expect(HAS_ACCUMULATING_STEPS),
        }
    }

    fn fill(&mut self, slot: usize, entry: usize, batch: &[View<'_>]) -> Result<(), Error> {
        let model = self.launcher.devices.model.clone();
        let contexts = &mut self.launcher.devices_mut()?.contexts;
        contexts.iter_mut().zip(&self.host_io).try_for_each(|(context, host_io)| {
            context.slots[slot].fill(host_io, model.get().tables(), (entry, batch))
        })
    }
}

impl Ranks for CudaRanks {
    fn call(&mut self, command: Command<'_>) -> Result<(), Error> {
        // Other code may have made another context current on this thread.
        self.launcher.devices.contexts[0].gpu.make_current()?;
        self.serve(command).map_err(|error| {
            self.has_failed = true;
            self.launcher.fail(error)
        })
    }

    fn reports(&self) -> &[Mutex<Report>] {
        &self.local.reports
    }

    fn device_line(&self) -> String {
        self.device_line.clone()
    }

    fn memory_beside_plan(&self) -> MemoryBesidePlan {
        let contexts = self.launcher.devices.contexts.iter();
        let all = contexts.map(|it| it.memory_beside_plan(self.planned_bytes));
        all.max_by_key(MemoryBesidePlan::total).unwrap_or_default()
    }
}

impl Drop for CudaRanks {
    fn drop(&mut self) {
        // NCCL ends a communicator only after the graphs with its operations are gone.
        let runners = self.train.iter_mut().chain(&mut self.accumulate).chain(&mut self.evaluate);
        runners.for_each(PhaseRunner::drop_graphs);
        if self.has_failed || self.local.peers.check(Instant::now()).is_err() {
            self.launcher.abort();
        } else {
            self.launcher.close();
        }
    }
}

/// Fuses the steps of a model, as far as the libraries and the memory of these GPUs allow.
fn fused_program(
    model: &dyn Model,
    gpus: &[Arc<Gpu>],
    n_ranks: usize,
) -> Result<FusedProgram, Error> {
    let max_arena_bytes = free_bytes_of_rank(gpus, n_ranks)?;
    let device_program = DeviceProgram::fitting(model, max_arena_bytes)?;
    let support = ProductSupport::new(&gpus[0], model.tables().precision)?;
    let can = |kernel: &Kernel, types, epilogue| support.includes(kernel, types, epilogue);
    // Joined products may take half of what is free; the rest is for workspaces.
    let arena_bytes = device_program.program.tables.arena_bytes;
    let max_arena_bytes = arena_bytes.midpoint(max_arena_bytes.max(arena_bytes));
    Ok(FusedProgram::new(device_program, max_arena_bytes, &can))
}

/// Builds the phases of training steps, one for each entry of a model that is trained.
fn training_phases(
    fused: &FusedProgram,
    builder: &mut PhaseBuilder<'_>,
) -> Result<Vec<Phase>, Error> {
    let tables = &fused.device_program.program.tables;
    let mut phase = |entry: usize| {
        let scalars = scalars_for_host(tables, entry, TrainingStep::Updating);
        builder.phase(&fused.train[entry], &scalars)
    };
    let entries = tables.entries.iter().enumerate().filter(|it| it.1.training.is_some());
    entries.map(|it| phase(it.0)).collect()
}

/// Builds the phase of accumulating steps, if several steps share an update.
fn accumulating_phase(
    fused: &FusedProgram,
    builder: &mut PhaseBuilder<'_>,
) -> Result<Option<Phase>, Error> {
    let tables = &fused.device_program.program.tables;
    if tables.accumulate_loss.is_none() {
        return Ok(None);
    }
    let scalars = scalars_for_host(tables, 0, TrainingStep::Accumulating);
    builder.phase(&fused.accumulate, &scalars).map(Some)
}

/// Builds the phases of evaluations, one for each entry.
fn evaluation_phases(
    fused: &FusedProgram,
    builder: &mut PhaseBuilder<'_>,
) -> Result<Vec<Phase>, Error> {
    fused.evaluate.iter().map(|it| builder.phase(it, &[])).collect()
}
