//! The ranks of this process on their GPUs, and the queuing of phases.
#![expect(unsafe_code, reason = "kernels work on raw memory")]

use std::{
    thread,
    time::{Duration, Instant},
};

use soybean_plan::{BufferId, Lane, Mesh, Tables};

use super::{
    collective::CollectiveOperation,
    communicators::Communicators,
    kernels::{GpuKernels, KernelOperands},
    memory::PinnedWords,
    module::LaunchConfig,
    phase::{Action, KernelRun, Phase, Task},
    rank_context::RankContext,
    stream::{Event, Stream},
    transfer::{MemoryBlock, MemoryLocation, Transfer},
};
use crate::{Error, model::AnyModel};

/// The ranks of a model that run in this process.
pub(crate) struct DeviceSet {
    pub(crate) model: AnyModel,
    /// Start of a step. All lanes wait for it.
    start: Event,
    /// Run-time scalars of the step.
    pub(crate) scalars: PinnedWords,
    /// Scalars that steps copy to the host, listed by [`scalars_for_host`], and their host memory.
    pub(crate) host_scalars: Vec<(BufferId, PinnedWords)>,
    pub(crate) communicators: Communicators,
    /// Contexts of the ranks, in rank order.
    pub(crate) contexts: Vec<RankContext>,
    pub(crate) kernel_sets: Vec<GpuKernels>,
}

/// Time for which GPUs may go on working after a failure.
const SETTLING_TIME: Duration = Duration::from_secs(2);

/// Events of a phase: for each task that other tasks wait for, and each exchange between ranks, one
/// event per rank.
pub(crate) struct PhaseEvents(Vec<Vec<Event>>);

impl PhaseEvents {
    /// Returns the event at the end of a task on the rank with this index in the process, if the
    /// task has one.
    pub(super) fn end_of(&self, task: usize, index: usize) -> Option<&Event> {
        self.0[task].get(index)
    }
}

/// Events that time the tasks of a traced step.
pub(crate) struct TimingEvents {
    /// Time origin of each rank.
    pub(crate) from: Vec<Event>,
    /// Start and end of each task on each rank.
    pub(crate) tasks: Vec<Vec<[Event; 2]>>,
}

/// Batch slot of a step, and the timing events if the step is traced.
#[derive(Clone, Copy)]
pub(crate) struct StepLaunch<'a> {
    pub(crate) slot: usize,
    pub(crate) timing: Option<&'a TimingEvents>,
}

/// Returns the scalars that a step of an entry copies to the host: the loss, then the norm of the
/// gradients if there is one.
pub(crate) fn scalars_for_host(tables: &Tables, entry: usize, kind: TrainingStep) -> Vec<BufferId> {
    match kind {
        TrainingStep::Updating => {
            let training = tables.entries[entry].training.iter();
            training.flat_map(soybean_plan::TrainingStep::left).collect()
        }
        TrainingStep::Accumulating => tables.accumulate_loss.into_iter().collect(),
    }
}

/// The kind of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrainingStep {
    /// It updates the parameters.
    Updating,
    /// It adds its gradients to those of earlier steps.
    Accumulating,
}

impl DeviceSet {
    /// Assembles the ranks of this process.
    pub(crate) fn new(
        model: AnyModel,
        kernel_sets: Vec<GpuKernels>,
        contexts: Vec<RankContext>,
        communicators: Communicators,
    ) -> Result<Self, Error> {
        let gpu = &contexts[0].gpu;
        let n_scalars = model.get().tables().scalars.len();
        let tables = model.get().tables();
        let updating = (0..tables.entries.len()).map(|it| (it, TrainingStep::Updating));
        let steps = updating.chain([(0, TrainingStep::Accumulating)]);
        let host_scalars = steps.flat_map(|(entry, it)| scalars_for_host(tables, entry, it));
        Ok(Self {
            start: Event::new(gpu)?,
            scalars: PinnedWords::zeroed(gpu, n_scalars)?,
            host_scalars: host_scalars
                .map(|it| Ok((it, PinnedWords::zeroed(gpu, 1)?)))
                .collect::<Result<_, Error>>()?,
            model,
            communicators,
            contexts,
            kernel_sets,
        })
    }

    fn tables(&self) -> &Tables {
        self.model.get().tables()
    }

    fn mesh(&self) -> &Mesh {
        &self.tables().mesh
    }

    /// Returns the index of a rank's context. Ranks of other processes have none: with several
    /// processes all communication goes through NCCL, so no rank reads remote memory or waits for
    /// remote events.
    fn local_index(&self, rank: usize) -> usize {
        rank - self.contexts[0].rank
    }

    /// Returns the stream on which steps begin and end.
    pub(crate) fn origin_stream(&self) -> &Stream {
        self.contexts[0].lane(Lane::Compute)
    }

    /// Returns the first error that the driver reports for any GPU.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let of_gpus = self.contexts.chunk_by(|one, next| one.gpu_index == next.gpu_index);
        let mut first = of_gpus.filter_map(|contexts| contexts.first());
        first.try_for_each(|it| it.lane(Lane::Compute).is_idle().map(|_| ()))
    }

    /// Waits until no GPU works, for a limited time. Gives up GPUs that still work then, and those
    /// that have failed: a call that frees their resources would wait for ever.
    pub(crate) fn settle(&self) {
        let started = Instant::now();
        let lanes = self.contexts.iter().flat_map(|it| Lane::ALL.map(|lane| it.lane(lane)));
        for stream in lanes {
            while stream.is_idle().is_ok_and(|it| !it) && started.elapsed() < SETTLING_TIME {
                thread::sleep(Duration::from_millis(1));
            }
            if !stream.is_idle().unwrap_or(false) {
                self.contexts.iter().for_each(|it| it.gpu.abandon());
            }
        }
    }

    /// Creates the events of a phase.
    pub(crate) fn events(&self, phase: &Phase) -> Result<PhaseEvents, Error> {
        // The events of exchanges tell which of them a step that hangs has not finished.
        let of_task = |(task, is_awaited): (&Task, &bool)| {
            let has_event = *is_awaited || task.lane == Lane::Communication;
            let contexts = self.contexts.iter().filter(|_| has_event);
            contexts.map(|it| Event::new(&it.gpu)).collect()
        };
        let tasks = phase.tasks.iter().zip(&phase.schedule.is_awaited);
        tasks.map(of_task).collect::<Result<_, _>>().map(PhaseEvents)
    }

    /// Creates the timing events of a phase.
    pub(crate) fn timing(&self, phase: &Phase) -> Result<TimingEvents, Error> {
        let event = |context: &RankContext| Event::with_time(&context.gpu);
        let pair = |context: &RankContext| Ok([event(context)?, event(context)?]);
        let of_task = |_| self.contexts.iter().map(pair).collect();
        Ok(TimingEvents {
            from: self.contexts.iter().map(event).collect::<Result<_, _>>()?,
            tasks: phase.tasks.iter().map(of_task).collect::<Result<_, Error>>()?,
        })
    }

    /// Makes the next step wait until the batch of a slot is on all GPUs.
    pub(crate) fn wait_for_batch(&self, slot: usize) -> Result<(), Error> {
        self.contexts
            .iter()
            .try_for_each(|context| self.origin_stream().wait(&context.slots[slot].ready))
    }

    /// Queues a step on all ranks.
    pub(crate) fn queue(
        &self,
        phase: &Phase,
        events: &PhaseEvents,
        launch: StepLaunch<'_>,
    ) -> Result<(), Error> {
        let lanes = || {
            let all =
                self.contexts.iter().flat_map(|context| Lane::ALL.map(|lane| (context, lane)));
            all.filter(|it| phase.uses(it.1))
        };
        let first = self.contexts[0].rank;
        let is_origin = |(context, lane): &(&RankContext, Lane)| {
            context.rank == first && *lane == Lane::Compute
        };
        self.start.record(self.origin_stream())?;
        for (context, lane) in lanes().filter(|it| !is_origin(it)) {
            context.lane(lane).wait(&self.start)?;
        }
        if let Some(timing) = launch.timing {
            for (context, event) in self.contexts.iter().zip(&timing.from) {
                event.record(context.lane(Lane::Compute))?;
                // A step may begin with a collective, which must not precede the origin.
                if phase.uses(Lane::Communication) {
                    context.lane(Lane::Communication).wait(event)?;
                }
            }
        }
        for number in 0..phase.tasks.len() {
            self.queue_task(phase, events, number, launch)?;
        }
        for (context, lane) in lanes().filter(|it| !is_origin(it)) {
            let end = &context.ends[lane as usize];
            end.record(context.lane(lane))?;
            self.origin_stream().wait(end)?;
        }
        Ok(())
    }

    fn queue_task(
        &self,
        phase: &Phase,
        events: &PhaseEvents,
        number: usize,
        launch: StepLaunch<'_>,
    ) -> Result<(), Error> {
        let task = &phase.tasks[number];
        for (at, context) in self.contexts.iter().enumerate() {
            let stream = context.lane(task.lane);
            for wait in &phase.schedule.waits[number] {
                for rank in self.mesh().group(context.rank, wait.axes) {
                    stream.wait(&events.0[wait.task][self.local_index(rank)])?;
                }
            }
            if let Some(timing) = launch.timing {
                timing.tasks[number][at][0].record(stream)?;
            }
        }
        match &task.action {
            Action::Communicate(operations) => {
                operations
                    .iter()
                    .try_for_each(|operation| self.communicate(operation, task.lane))?;
            }
            Action::Feed | Action::Kernel(_) | Action::Report(_) => {
                let contexts = self.contexts.iter();
                contexts
                    .into_iter()
                    .try_for_each(|it| self.queue_local(it, &task.action, launch.slot))?;
            }
        }
        for (at, context) in self.contexts.iter().enumerate() {
            let stream = context.lane(task.lane);
            if let Some(timing) = launch.timing {
                timing.tasks[number][at][1].record(stream)?;
            }
            if let Some(event) = events.end_of(number, at) {
                event.record(stream)?;
            }
        }
        Ok(())
    }

    /// Queues a task that involves one rank only.
    fn queue_local(
        &self,
        context: &RankContext,
        action: &Action,
        slot: usize,
    ) -> Result<(), Error> {
        let stream = context.lane(Lane::Compute);
        match action {
            Action::Feed => {
                let (scalars, n_scalars) =
                    (context.scalars.address(0), self.tables().scalars.len());
                if n_scalars > 0 {
                    // SAFETY: both sides have these words, and the host does not write them before
                    // the step ends.
                    unsafe { self.scalars.copy_to(scalars, 0..n_scalars, stream) }?;
                }
                context.slots[slot].copy_to_arena(context.address(MemoryBlock::Arena, 0), stream)
            }
            Action::Kernel(run) => self.run(context, run),
            Action::Report(scalars) if context.rank == 0 => {
                let reported = self.host_scalars.iter().filter(|it| scalars.contains(&it.0));
                reported.into_iter().try_for_each(|(buffer, word)| {
                    let from =
                        context.address(MemoryBlock::Arena, self.tables().buffers[*buffer].offset);
                    // SAFETY: the scalar has one word, and the host does not read it before the
                    // step ends.
                    unsafe { word.copy_from(from, stream) }
                })
            }
            Action::Report(_) | Action::Communicate(_) => Ok(()),
        }
    }

    fn run(&self, context: &RankContext, run: &KernelRun) -> Result<(), Error> {
        let addresses = |offsets: &[usize]| -> Vec<u64> {
            offsets.iter().map(|it| context.address(MemoryBlock::Arena, *it)).collect()
        };
        let (inputs, results) = (addresses(&run.inputs), addresses(&run.results));
        let operands = KernelOperands {
            inputs: &inputs,
            results: &results,
            scalars: context.scalars.address(0),
            workspace: context.workspace(),
            bias: run.bias.map_or(0, |it| context.address(MemoryBlock::Arena, it)),
            aux: run.aux.map_or(0, |it| context.address(MemoryBlock::Arena, it)),
        };
        // SAFETY: the buffers lie within the arena, whose size was checked and which lives as long
        // as the rank. The schedule orders all accesses.
        unsafe {
            self.kernel_sets[context.gpu_index].run(run.call, context.lane(Lane::Compute), operands)
        }
        .map_err(|error| error.on_rank(context.rank))
    }

    fn communicate(&self, operation: &CollectiveOperation, lane: Lane) -> Result<(), Error> {
        match operation {
            CollectiveOperation::Transfer(transfer) => self.transfer(transfer, lane),
            // SAFETY: the buffers lie within the arena and the staging memory, which live as long
            // as the ranks. The schedule orders all accesses.
            CollectiveOperation::Nccl(calls) => unsafe {
                self.communicators.queue(calls, &self.contexts)
            },
        }
    }

    fn transfer(&self, transfer: &Transfer, lane: Lane) -> Result<(), Error> {
        for context in &self.contexts {
            let Some(launch) = &transfer.launches[context.rank] else { continue };
            let threads = LaunchConfig {
                grid: launch.grid,
                block: soybean_codegen::movement::BLOCK,
                shared_bytes: 0,
            };
            let arguments =
                [launch.parts_address(context.patterns.address(0)), self.address(launch.result)];
            let function = self.kernel_sets[context.gpu_index].transfer(transfer.number);
            // SAFETY: the patterns stay within the buffers from which they were made. The schedule
            // orders all accesses.
            unsafe { function.launch(context.lane(lane), threads, &arguments) }?;
        }
        Ok(())
    }

    fn address(&self, at: MemoryLocation) -> u64 {
        self.contexts[self.local_index(at.rank)].address(at.block, at.offset)
    }

    /// Writes the patterns of all transfers of these phases to the memory of each rank.
    pub(crate) fn write_patterns(&self, phases: &[&Phase], n_words: &[usize]) -> Result<(), Error> {
        for context in &self.contexts {
            let mut words = vec![0; n_words[context.rank]];
            let base = context.patterns.address(0);
            let actions = phases.iter().flat_map(|it| &it.tasks).map(|it| &it.action);
            for action in actions {
                let Action::Communicate(operations) = action else { continue };
                for operation in operations {
                    let CollectiveOperation::Transfer(transfer) = operation else { continue };
                    let launch = transfer.launches[context.rank].iter();
                    launch
                        .into_iter()
                        .for_each(|it| it.write(&mut words, base, |it| self.address(it)));
                }
            }
            context.patterns.write(0, &words)?;
        }
        Ok(())
    }
}
