//! The queuing of one step, shared by the threads of all GPUs.
#![expect(unsafe_code, reason = "kernels work on raw memory")]

use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

use soybean_plan::{BufferId, Lane, Tables};

use super::{
    collective::CollectiveOperation,
    device_set::{DeviceSet, PhaseEvents, TimingEvents},
    kernels::KernelOperands,
    module::LaunchConfig,
    phase::{Action, KernelRun, Phase},
    queue_progress::QueueProgress,
    rank_context::RankContext,
    stream::Graph,
    transfer::{MemoryBlock, Transfer},
};
use crate::{Error, abort::lock};

/// The tasks of a phase and their events.
pub(super) struct PhaseTasks {
    pub(super) phase: Phase,
    pub(super) events: PhaseEvents,
}

/// How the tasks of a step are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaunchMode {
    /// The thread of each GPU queues the tasks of its ranks.
    Queue,
    /// The thread of the first GPU captures the tasks of all ranks as a graph: a capture needs an
    /// event before each wait for it, which one thread ensures.
    Capture,
}

/// A step that is being queued.
pub(super) struct StepLaunch {
    pub(super) devices: Arc<DeviceSet>,
    pub(super) tasks: Arc<PhaseTasks>,
    pub(super) progress: Arc<QueueProgress>,
    pub(super) mode: LaunchMode,
    /// Slot of the batch.
    pub(super) slot: usize,
    /// Events of a traced step.
    pub(super) timing: Option<Arc<TimingEvents>>,
    /// The captured graph.
    pub(super) captured: Arc<Mutex<Option<Graph>>>,
}

/// A rank of one thread, with its index in the process.
type OwnRank<'a> = (usize, &'a RankContext);

impl StepLaunch {
    /// Returns the number of threads that take part: those of the first GPUs.
    pub(super) fn n_threads(&self) -> usize {
        match self.mode {
            LaunchMode::Queue => self.devices.n_gpus(),
            LaunchMode::Capture => 1,
        }
    }

    /// Returns true if all threads have done their parts.
    pub(super) fn is_done(&self) -> bool {
        (0..self.n_threads()).all(|it| self.progress.n_queued(it) > self.n_tasks())
    }

    /// Does the part of the thread of a GPU. An error ends the launch on all threads.
    pub(super) fn run(&self, gpu_index: usize) {
        let done = match self.mode {
            LaunchMode::Queue => self.queue_on(gpu_index),
            LaunchMode::Capture => self.capture(),
        };
        if let Err(error) = done {
            self.progress.fail(error);
        }
    }

    /// Queues the tasks of the ranks of one GPU. The thread of the first GPU also queues the end of
    /// the step.
    fn queue_on(&self, gpu_index: usize) -> Result<(), Error> {
        self.queue(gpu_index..gpu_index + 1)?;
        self.progress.set(gpu_index, self.n_tasks() + 1);
        if gpu_index > 0 {
            return Ok(());
        }
        (1..self.n_threads()).try_for_each(|it| self.progress.wait_for(it, self.n_tasks()))?;
        self.join()?;
        self.devices.end.record(self.devices.origin_stream())
    }

    fn capture(&self) -> Result<(), Error> {
        let origin = self.devices.origin_stream();
        let graph = origin.capture(|| {
            self.devices.start.record(origin)?;
            self.queue(0..self.devices.n_gpus())?;
            self.join()
        })?;
        *lock(&self.captured) = Some(graph);
        self.progress.set(0, self.n_tasks() + 1);
        Ok(())
    }

    /// Returns the number of tasks of each rank.
    fn n_tasks(&self) -> usize {
        self.tasks.phase.tasks.len()
    }

    fn tables(&self) -> &Tables {
        self.devices.tables()
    }

    /// Returns true for the lane in which the step begins and ends.
    fn is_origin(&self, (index, lane): (usize, Lane)) -> bool {
        index == 0 && lane == Lane::Compute
    }

    /// Queues all tasks on the ranks of these GPUs, and the event at the end of each lane.
    fn queue(&self, gpus: Range<usize>) -> Result<(), Error> {
        let all = self.devices.contexts.iter().enumerate();
        let ranks: Vec<OwnRank<'_>> = all.filter(|it| gpus.contains(&it.1.gpu_index)).collect();
        for &(index, context) in &ranks {
            let lanes = Lane::ALL.into_iter().filter(|it| self.tasks.phase.uses(*it));
            for lane in lanes.filter(|it| !self.is_origin((index, *it))) {
                context.lane(lane).wait(&self.devices.start)?;
            }
            if let Some(timing) = &self.timing {
                timing.from[index].record(context.lane(Lane::Compute))?;
                // A step may begin with a collective, which must not precede the origin.
                if self.tasks.phase.uses(Lane::Communication) {
                    context.lane(Lane::Communication).wait(&timing.from[index])?;
                }
            }
        }
        for number in 0..self.n_tasks() {
            self.progress.check()?;
            self.queue_task(number, &gpus, &ranks)?;
            gpus.clone().for_each(|it| self.progress.set(it, number + 1));
        }
        for (index, context) in ranks {
            let lanes = Lane::ALL.into_iter().filter(|it| self.tasks.phase.uses(*it));
            for lane in lanes.filter(|it| !self.is_origin((index, *it))) {
                context.ends[lane as usize].record(context.lane(lane))?;
            }
        }
        Ok(())
    }

    /// Makes the origin stream wait for the end of all lanes.
    fn join(&self) -> Result<(), Error> {
        for (index, context) in self.devices.contexts.iter().enumerate() {
            let lanes = Lane::ALL.into_iter().filter(|it| self.tasks.phase.uses(*it));
            for lane in lanes.filter(|it| !self.is_origin((index, *it))) {
                self.devices.origin_stream().wait(&context.ends[lane as usize])?;
            }
        }
        Ok(())
    }

    fn queue_task(
        &self,
        number: usize,
        gpus: &Range<usize>,
        ranks: &[OwnRank<'_>],
    ) -> Result<(), Error> {
        let PhaseTasks { phase, events } = &*self.tasks;
        let task = &phase.tasks[number];
        for &(index, context) in ranks {
            self.wait_for_tasks_before(number, gpus, context)?;
            if let Some(timing) = &self.timing {
                timing.tasks[number][index][0].record(context.lane(task.lane))?;
            }
        }
        match &task.action {
            Action::Communicate(operations) => {
                for operation in operations {
                    ranks.iter().try_for_each(|it| self.communicate(operation, task.lane, *it))?;
                }
            }
            Action::Feed | Action::Kernel(_) | Action::Report(_) => {
                ranks.iter().try_for_each(|it| self.queue_local(it.1, &task.action))?;
            }
        }
        for &(index, context) in ranks {
            let stream = context.lane(task.lane);
            if let Some(timing) = &self.timing {
                timing.tasks[number][index][1].record(stream)?;
            }
            if let Some(event) = events.end_of(number, index) {
                event.record(stream)?;
            }
        }
        Ok(())
    }

    /// Makes a rank's task wait for the tasks before it. A wait for an event that was not recorded
    /// yet would return at once, so this thread first waits for the thread that records it.
    fn wait_for_tasks_before(
        &self,
        number: usize,
        gpus: &Range<usize>,
        context: &RankContext,
    ) -> Result<(), Error> {
        let PhaseTasks { phase, events } = &*self.tasks;
        let stream = context.lane(phase.tasks[number].lane);
        for wait in &phase.schedule.waits[number] {
            for rank in self.tables().mesh.group(context.rank, wait.axes) {
                let index = self.devices.local_index(rank);
                let gpu_index = self.devices.contexts[index].gpu_index;
                if !gpus.contains(&gpu_index) {
                    self.progress.wait_for(gpu_index, wait.task)?;
                }
                let end = events.end_of(wait.task, index);
                stream.wait(end.expect("a task that others wait for has an event"))?;
            }
        }
        Ok(())
    }

    /// Queues a task that involves one rank only.
    fn queue_local(&self, context: &RankContext, action: &Action) -> Result<(), Error> {
        let stream = context.lane(Lane::Compute);
        match action {
            Action::Feed => {
                let (scalars, n_scalars) =
                    (context.scalars.address(0), self.tables().scalars.len());
                if n_scalars > 0 {
                    // SAFETY: both sides have these words, and the host does not write them before
                    // the step ends.
                    unsafe { self.devices.scalars.copy_to(scalars, 0..n_scalars, stream) }?;
                }
                let arena = context.address(MemoryBlock::Arena, 0);
                context.slots[self.slot].copy_to_arena(arena, stream)
            }
            Action::Kernel(run) => self.run_kernel(context, run),
            Action::Report(scalars) => {
                if context.rank == 0 {
                    self.report_scalars(context, scalars)?;
                }
                if self.tables().next_values.is_empty() {
                    return Ok(());
                }
                let from = context.first_non_finite.address(0);
                // SAFETY: both sides have these words, and the host does not read them before the
                // step ends.
                unsafe { context.host_first_non_finite.copy_from(from, stream) }
            }
            Action::Communicate(_) => Ok(()),
        }
    }

    /// Queues the copies of scalars to the host.
    fn report_scalars(&self, context: &RankContext, scalars: &[BufferId]) -> Result<(), Error> {
        let host_scalars = self.devices.host_scalars.iter();
        let mut reported = host_scalars.filter(|it| scalars.contains(&it.0));
        reported.try_for_each(|(buffer, word)| {
            let offset = self.tables().buffers[*buffer].offset;
            let from = context.address(MemoryBlock::Arena, offset);
            // SAFETY: the scalar has one word, and the host does not read it before the step ends.
            unsafe { word.copy_from(from, context.lane(Lane::Compute)) }
        })
    }

    fn run_kernel(&self, context: &RankContext, run: &KernelRun) -> Result<(), Error> {
        let addresses = |offsets: &[usize]| -> Vec<u64> {
            offsets.iter().map(|it| context.address(MemoryBlock::Arena, *it)).collect()
        };
        let (inputs, results) = (addresses(&run.inputs), addresses(&run.results));
        let words = run.next_values.iter().map(|it| context.first_non_finite.address(4 * it));
        let first_non_finite: Vec<u64> = words.collect();
        let operands = KernelOperands {
            inputs: &inputs,
            results: &results,
            scalars: context.scalars.address(0),
            workspace: context.workspace(),
            bias: run.bias.map_or(0, |it| context.address(MemoryBlock::Arena, it)),
            aux: run.aux.map_or(0, |it| context.address(MemoryBlock::Arena, it)),
            first_non_finite: &first_non_finite,
        };
        let kernels = lock(&self.devices.kernel_sets[context.gpu_index]);
        // SAFETY: the buffers lie within the arena, whose size was checked and which lives as long
        // as the rank. The schedule orders all accesses.
        unsafe { kernels.run(run.call, context.lane(Lane::Compute), operands) }
            .map_err(|error| error.on_rank(context.rank))
    }

    fn communicate(
        &self,
        operation: &CollectiveOperation,
        lane: Lane,
        (index, context): OwnRank<'_>,
    ) -> Result<(), Error> {
        match operation {
            CollectiveOperation::Transfer(transfer) => self.transfer(transfer, lane, context),
            CollectiveOperation::Nccl(calls) => {
                let keeps_waiting = || self.progress.check();
                let communicators = &self.devices.communicators;
                // SAFETY: the buffers lie within the arena and the staging memory, which live as
                // long as the ranks. The schedule orders all accesses.
                unsafe { communicators.queue(calls, (index, context), &keeps_waiting) }
            }
        }
    }

    fn transfer(
        &self,
        transfer: &Transfer,
        lane: Lane,
        context: &RankContext,
    ) -> Result<(), Error> {
        let Some(launch) = &transfer.launches[context.rank] else { return Ok(()) };
        let threads = LaunchConfig {
            grid: launch.grid,
            block: soybean_codegen::movement::BLOCK,
            shared_bytes: 0,
        };
        let arguments = [
            launch.parts_address(context.patterns.address(0)),
            self.devices.address(launch.result),
        ];
        let function = lock(&self.devices.kernel_sets[context.gpu_index]).transfer(transfer.number);
        // SAFETY: the patterns stay within the buffers from which they were made. The schedule
        // orders all accesses.
        unsafe { function.launch(context.lane(lane), threads, &arguments) }
    }
}
