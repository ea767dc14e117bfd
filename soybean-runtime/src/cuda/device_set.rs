//! The ranks of this process on their GPUs.

use std::{
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use soybean_plan::{BufferId, Lane, Tables};

use super::{
    collective::CollectiveOperation,
    communicators::Communicators,
    kernels::GpuKernels,
    memory::PinnedWords,
    phase::{Action, Phase, Task},
    rank_context::RankContext,
    stream::{Event, Stream},
    transfer::MemoryLocation,
};
use crate::{Error, model::AnyModel};

/// The ranks of a model that run in this process.
pub(crate) struct DeviceSet {
    pub(crate) model: AnyModel,
    /// Start of a step. All lanes wait for it.
    pub(super) start: Event,
    /// End of the last step.
    pub(super) end: Event,
    /// Run-time scalars of the step.
    pub(crate) scalars: PinnedWords,
    /// Scalars that steps copy to the host, listed by [`scalars_for_host`], and their host memory.
    pub(crate) host_scalars: Vec<(BufferId, PinnedWords)>,
    pub(crate) communicators: Communicators,
    /// Contexts of the ranks, in rank order.
    pub(crate) contexts: Vec<RankContext>,
    /// Kernels of each GPU. Handles of libraries are used by one thread at a time.
    pub(crate) kernel_sets: Vec<Mutex<GpuKernels>>,
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
            end: Event::new(gpu)?,
            scalars: PinnedWords::zeroed(gpu, n_scalars)?,
            host_scalars: host_scalars
                .map(|it| Ok((it, PinnedWords::zeroed(gpu, 1)?)))
                .collect::<Result<_, Error>>()?,
            model,
            communicators,
            contexts,
            kernel_sets: kernel_sets.into_iter().map(Mutex::new).collect(),
        })
    }

    pub(super) fn tables(&self) -> &Tables {
        self.model.get().tables()
    }

    /// Returns the number of GPUs in this process.
    pub(super) fn n_gpus(&self) -> usize {
        self.kernel_sets.len()
    }

    /// Returns the index of a rank's context. Ranks of other processes have none: with several
    /// processes all communication goes through NCCL, so no rank reads remote memory or waits for
    /// remote events.
    pub(super) fn local_index(&self, rank: usize) -> usize {
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
                self.abandon();
            }
        }
    }

    /// Gives up all GPUs.
    pub(crate) fn abandon(&self) {
        self.contexts.iter().for_each(|it| it.gpu.abandon());
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
    pub(super) fn wait_for_batch(&self, slot: usize) -> Result<(), Error> {
        self.contexts
            .iter()
            .try_for_each(|context| self.origin_stream().wait(&context.slots[slot].ready))
    }

    /// Returns the address of a location in the memory of a rank of this process.
    pub(super) fn address(&self, at: MemoryLocation) -> u64 {
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
