//! A phase of a program, training or evaluation, as tasks on streams.

mod checks;
mod products;

use std::{collections::BTreeMap, ops::Range};

use soybean_plan::{
    Access, AxisSet, BUFFER_ALIGNMENT, BufferId, DType, Kernel, Lane, Precision, Schedule, Step,
    Tables, WorkKind,
};

pub(crate) use self::checks::first_non_finite;
use super::{
    collective::{
        CollectiveBuilder, CollectiveOperation, CollectiveTask, CommunicationBackend, joined,
    },
    epilogue::{Epilogue, Fused, FusedStep},
    rank_context::{RankMemorySizes, aux_offset},
    source::KernelCall,
};
use crate::{Error, ErrorKind, KernelCategory, movement::as_bucket};

/// The tasks that each step queues for every rank.
pub(crate) struct Phase {
    pub(crate) tasks: Vec<Task>,
    pub(crate) schedule: Schedule,
    /// Bytes that each rank receives from other ranks.
    pub(crate) received: Vec<u64>,
}

/// A task.
pub(crate) struct Task {
    pub(crate) label: TaskLabel,
    pub(crate) lane: Lane,
    pub(crate) action: Action,
    /// Bytes that each rank reads and writes.
    pub(crate) n_bytes: usize,
}

/// What traces tell of a task.
#[derive(Clone, Debug)]
pub(crate) struct TaskLabel {
    pub(crate) name: &'static str,
    /// Number of the kernel or collective in the model's list.
    pub(crate) kernel: Option<usize>,
    /// Kind of work. None for the tasks at the start and the end of a step.
    pub(crate) work: Option<KernelCategory>,
    /// Buffer of the tensor that the task computes, or rounds for a product.
    pub(crate) buffer: Option<BufferId>,
    /// Floating-point operations of products; 0 for other work.
    pub(crate) n_operations: u64,
}

impl TaskLabel {
    const fn without_work(name: &'static str) -> Self {
        Self { name, kernel: None, work: None, buffer: None, n_operations: 0 }
    }
}

/// Action of a task.
pub(crate) enum Action {
    /// Copies the scalars and the batch to the buffers of the program.
    Feed,
    /// Runs a kernel.
    Kernel(KernelRun),
    /// Exchanges data between ranks.
    Communicate(Vec<CollectiveOperation>),
    /// Copies the scalars of rank 0 to the host, and for each rank what its checks have found.
    Report(Vec<BufferId>),
}

/// A kernel call on buffers, given by their offsets in the arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelRun {
    /// Index of the kernel call.
    pub(crate) call: usize,
    pub(crate) inputs: Vec<usize>,
    pub(crate) results: Vec<usize>,
    /// Bias vector of a product's epilogue.
    pub(crate) bias: Option<usize>,
    /// Auxiliary buffer of a product's epilogue.
    pub(crate) aux: Option<usize>,
    /// The numbers of the next values that a map checks.
    pub(crate) next_values: Vec<usize>,
}

impl Phase {
    /// Returns the axes of all NCCL calls.
    pub(crate) fn nccl_axes(&self) -> impl Iterator<Item = AxisSet> {
        let operations = |task| match task {
            &Task { action: Action::Communicate(ref operations), .. } => &operations[..],
            Task { action: Action::Feed | Action::Kernel(_) | Action::Report(_), .. } => &[],
        };
        self.tasks.iter().flat_map(operations).filter_map(|operation| match operation {
            CollectiveOperation::Nccl(calls) => calls.first().map(|it| it.axes),
            CollectiveOperation::Transfer(_) => None,
        })
    }

    /// Returns true if any task runs in this lane.
    pub(crate) fn uses(&self, lane: Lane) -> bool {
        self.tasks.iter().any(|it| it.lane == lane)
    }
}

/// Tasks with their memory accesses.
struct TaskQueue {
    tasks: Vec<Task>,
    accesses: Vec<Access>,
    received: Vec<u64>,
    /// Next values that must be read again, by their number of elements.
    unchecked: BTreeMap<usize, Vec<BufferId>>,
}

impl TaskQueue {
    fn push(&mut self, label: TaskLabel, access: Access, action: Action) {
        let ranges = access.reads.iter().chain(&access.group_reads).chain(&access.writes);
        let n_bytes = ranges.map(ExactSizeIterator::len).sum();
        self.tasks.push(Task { label, lane: access.lane, action, n_bytes });
        self.accesses.push(access);
    }
}

/// Builder of phases, which also collects the kernels and memory that they need.
pub(crate) struct PhaseBuilder<'a> {
    tables: &'a Tables,
    /// Kernels of the model, followed by those that fusion adds.
    pub(crate) kernels: Vec<Kernel>,
    backend: CommunicationBackend,
    aux_bytes: usize,
    /// Kernel calls, each with the element types of its buffers.
    pub(crate) calls: Vec<KernelCall>,
    /// Names of the functions of transfers.
    pub(crate) transfers: Vec<String>,
    n_words: Vec<usize>,
    staging_bytes: usize,
}

impl<'a> PhaseBuilder<'a> {
    /// Creates a builder without phases.
    pub(crate) fn new(
        tables: &'a Tables,
        kernels: &[Kernel],
        backend: CommunicationBackend,
    ) -> Self {
        Self {
            tables,
            kernels: kernels.to_vec(),
            backend,
            aux_bytes: 0,
            calls: Vec::new(),
            transfers: Vec::new(),
            n_words: vec![0; tables.mesh.n_ranks()],
            staging_bytes: 0,
        }
    }

    /// Returns the precision of products.
    pub(crate) fn precision(&self) -> Precision {
        self.tables.precision
    }

    /// Builds the phase of these steps, which copies `host_scalars` to the host at its end.
    pub(crate) fn phase(
        &mut self,
        fused: &Fused,
        host_scalars: &[BufferId],
    ) -> Result<Phase, Error> {
        let mut queue = TaskQueue {
            tasks: Vec::new(),
            accesses: Vec::new(),
            received: vec![0; self.n_words.len()],
            unchecked: BTreeMap::new(),
        };
        let slots = self.slots(&fused.slots);
        let inputs: Result<_, _> =
            self.tables.inputs.iter().map(|it| self.range(it.buffer)).collect();
        let feed = TaskLabel::without_work("feed");
        queue.push(feed, compute(Vec::new(), inputs?), Action::Feed);
        for step in &fused.steps {
            match step {
                FusedStep::Plain(step) => self.queue(step, &mut queue)?,
                FusedStep::Product(product) => self.queue_product(product, &slots, &mut queue)?,
                FusedStep::Joined(joined) => self.queue_joined(joined, &mut queue)?,
                FusedStep::Round { input, slot } => {
                    self.queue_rounding(*input, &slots[*slot], &mut queue)?;
                }
            }
        }
        self.queue_checks(&mut queue)?;
        if !host_scalars.is_empty() {
            let access = compute(self.ranges(host_scalars)?, Vec::new());
            queue.push(
                TaskLabel::without_work("report"),
                access,
                Action::Report(host_scalars.to_vec()),
            );
        }
        let TaskQueue { tasks, accesses, received, .. } = queue;
        Ok(Phase { tasks, schedule: Schedule::new(&accesses), received })
    }

    /// Assigns memory to the slots of a phase. Phases do not run at the same time, so they share
    /// the memory.
    fn slots(&mut self, sizes: &[usize]) -> Vec<Range<usize>> {
        let start = aux_offset(self.tables);
        let mut end = start;
        let mut slots = Vec::new();
        for size in sizes {
            slots.push(end..end + size);
            end = (end + size).next_multiple_of(BUFFER_ALIGNMENT);
        }
        self.aux_bytes = self.aux_bytes.max(end - start);
        slots
    }

    fn queue(&mut self, step: &Step, queue: &mut TaskQueue) -> Result<(), Error> {
        let label = self.label(step.kernel, step.results.first().copied())?;
        if as_bucket(&self.kernels[step.kernel]).is_some() {
            for task in self.bucket_tasks(step)? {
                queue.received.iter_mut().zip(&task.received).for_each(|(sum, it)| *sum += it);
                let access = task.access.clone();
                queue.push(label.clone(), access, Action::Communicate(task.into_operations()));
            }
            return Ok(());
        }
        let (reads, writes) = (self.ranges(&step.inputs)?, self.ranges(&step.results)?);
        let has_checks =
            matches!(self.kernels[step.kernel], Kernel::Map(_) | Kernel::UpdateEmbedding(_));
        let checks = if has_checks { self.checks(step) } else { Vec::new() };
        let (next_values, checked) = checks.into_iter().unzip();
        let call = KernelCall {
            kernel: step.kernel,
            inputs: self.types(&step.inputs),
            results: self.types(&step.results),
            epilogue: Epilogue::default(),
            checked,
        };
        let run = KernelRun { next_values, ..self.run(call, &reads, &writes) };
        queue.push(label, compute(reads, writes), Action::Kernel(run));
        if has_checks { Ok(()) } else { self.check_later(&step.results, queue) }
    }

    fn label(&self, kernel: usize, buffer: Option<BufferId>) -> Result<TaskLabel, Error> {
        let found = self.kernels.get(kernel).ok_or_else(|| {
            let n_kernels = self.kernels.len();
            let message = format!("expected one of {n_kernels} kernels, found {kernel}");
            Error::new(ErrorKind::Program, message)
        })?;
        let work = found.category();
        let n_operations = match found.work_kind() {
            WorkKind::Product => found.n_operations(),
            WorkKind::Other => 0,
        };
        let (name, kernel, work) = (work.name(), Some(kernel), Some(work));
        Ok(TaskLabel { name, kernel, work, buffer, n_operations })
    }

    fn types(&self, buffers: &[BufferId]) -> Vec<DType> {
        buffers.iter().map(|it| self.tables.buffers[*it].dtype).collect()
    }

    fn run(
        &mut self,
        call: KernelCall,
        inputs: &[Range<usize>],
        results: &[Range<usize>],
    ) -> KernelRun {
        let offsets = |ranges: &[Range<usize>]| ranges.iter().map(|it| it.start).collect();
        let call = self.calls.iter().position(|it| *it == call).unwrap_or_else(|| {
            self.calls.push(call);
            self.calls.len() - 1
        });
        let (inputs, results) = (offsets(inputs), offsets(results));
        KernelRun { call, inputs, results, bias: None, aux: None, next_values: Vec::new() }
    }

    /// Returns the memory that a rank needs for all phases. `workspace` is that of its kernels.
    pub(crate) fn sizes(&self, rank: usize, workspace: usize) -> RankMemorySizes {
        let (n_pattern_words, staging) = (self.n_words[rank], self.staging_bytes);
        RankMemorySizes { aux: self.aux_bytes, workspace, staging, n_pattern_words }
    }

    /// Returns the pattern words of each rank's transfers.
    pub(crate) fn n_words(&self) -> &[usize] {
        &self.n_words
    }

    fn range(&self, buffer: BufferId) -> Result<Range<usize>, Error> {
        let found = self.tables.buffers.get(buffer).ok_or_else(|| {
            let n_buffers = self.tables.buffers.len();
            let message = format!("expected one of {n_buffers} buffers, found number {buffer}");
            Error::new(ErrorKind::Program, message)
        })?;
        Ok(found.offset..found.offset + found.n_elements * found.dtype.bytes())
    }

    fn ranges(&self, buffers: &[BufferId]) -> Result<Vec<Range<usize>>, Error> {
        buffers.iter().map(|it| self.range(*it)).collect()
    }

    fn bucket_tasks(&mut self, step: &Step) -> Result<Vec<CollectiveTask>, Error> {
        let collectives =
            as_bucket(&self.kernels[step.kernel]).map_or(&[][..], |it| &it.collectives);
        let n_collectives = collectives.len();
        if (step.inputs.len(), step.results.len()) != (n_collectives, n_collectives) {
            let message = format!(
                "collective {}: expected {n_collectives} inputs and as many results",
                step.kernel
            );
            return Err(Error::new(ErrorKind::Program, message));
        }
        let mut staging_end = 0;
        let mut tasks = Vec::new();
        for ((collective, &input), &result) in
            collectives.iter().zip(&step.inputs).zip(&step.results)
        {
            let mut collective_builder = CollectiveBuilder {
                mesh: &self.tables.mesh,
                collective,
                input: self.range(input)?,
                result: self.range(result)?,
                n_words: &mut self.n_words,
                staging_end: &mut staging_end,
            };
            tasks.push(collective_builder.tasks(self.backend)?);
        }
        self.staging_bytes = self.staging_bytes.max(staging_end);
        let mut tasks = joined(tasks.into_iter());
        for transfer in tasks.iter_mut().flat_map(CollectiveTask::transfers_mut) {
            transfer.number = number(&mut self.transfers, &transfer.function);
        }
        Ok(tasks)
    }
}

fn compute(reads: Vec<Range<usize>>, writes: Vec<Range<usize>>) -> Access {
    let (group_reads, axes) = (Vec::new(), AxisSet::default());
    Access { lane: Lane::Compute, reads, group_reads, axes, writes }
}

/// Returns the index of a name in a list, and appends it if it is new.
fn number(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|it| it == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}
