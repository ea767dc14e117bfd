//! A phase of a program, training or evaluation, as tasks on streams.

use std::ops::Range;

use soybean_plan::{AxisSet, BufferId, DType, Kernel, Step, Tables};

use super::{
    collective::{Builder, Exchange, Stage, Transport},
    epilogue::Epilogue,
    kit::Call,
    place::Sizes,
    schedule::{Access, Lane, Schedule},
};
use crate::{Error, ErrorKind, Work, movement::as_collective};

/// What is queued for every rank in each step.
pub(crate) struct Phase {
    pub(crate) tasks: Vec<Task>,
    pub(crate) schedule: Schedule,
    /// The bytes that each rank receives from others.
    pub(crate) received: Vec<u64>,
}

/// One task.
pub(crate) struct Task {
    /// For traces.
    pub(crate) name: String,
    pub(crate) lane: Lane,
    pub(crate) action: Action,
}

/// What a task does.
pub(crate) enum Action {
    /// Puts the scalars and the batch where the program expects them.
    Feed,
    /// Runs a kernel.
    Run(Run),
    /// Passes data between ranks.
    Exchange(Vec<Stage>),
    /// Hands the loss of rank 0 to the host.
    Loss,
}

/// A kernel on buffers, by their offsets in the arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The number of the call.
    pub(crate) call: usize,
    pub(crate) inputs: Vec<usize>,
    pub(crate) results: Vec<usize>,
}

impl Phase {
    /// The axes of all calls of NCCL.
    pub(crate) fn joint_axes(&self) -> impl Iterator<Item = AxisSet> {
        let stages = |task| match task {
            &Task { action: Action::Exchange(ref stages), .. } => &stages[..],
            Task { action: Action::Feed | Action::Run(_) | Action::Loss, .. } => &[],
        };
        self.tasks.iter().flat_map(stages).filter_map(|stage| match stage {
            Stage::Joint(joint) => Some(joint.axes),
            Stage::Transfer(_) => None,
        })
    }

    /// Whether anything runs in this lane.
    pub(crate) fn uses(&self, lane: Lane) -> bool {
        self.tasks.iter().any(|it| it.lane == lane)
    }
}

/// Makes phases of steps, and notes what they need.
pub(crate) struct Planner<'a> {
    tables: &'a Tables,
    kernels: &'a [Kernel],
    transport: Transport,
    /// The kernels, each with the types of its buffers.
    pub(crate) calls: Vec<Call>,
    /// The functions of the transfers.
    pub(crate) transfers: Vec<String>,
    n_words: Vec<usize>,
    staging_bytes: usize,
}

impl<'a> Planner<'a> {
    /// Without any phase yet.
    pub(crate) fn new(tables: &'a Tables, kernels: &'a [Kernel], transport: Transport) -> Self {
        let (calls, transfers) = (Vec::new(), Vec::new());
        let n_words = vec![0; tables.mesh.n_ranks()];
        Self { tables, kernels, transport, calls, transfers, n_words, staging_bytes: 0 }
    }

    /// The phase of these steps; with the loss at its end, if it is wanted.
    pub(crate) fn phase(&mut self, steps: &[Step], loss: Option<BufferId>) -> Result<Phase, Error> {
        let mut accesses = Vec::new();
        let mut phase = Phase {
            tasks: Vec::new(),
            schedule: Schedule::default(),
            received: vec![0; self.n_words.len()],
        };
        let inputs: Result<_, _> =
            self.tables.inputs.iter().map(|it| self.range(it.buffer)).collect();
        let feed = Task { name: "feed".to_owned(), lane: Lane::Compute, action: Action::Feed };
        phase.tasks.push(feed);
        accesses.push(compute(Vec::new(), inputs?));
        for step in steps {
            let Some(kernel) = self.kernels.get(step.kernel) else {
                let (n_kernels, found) = (self.kernels.len(), step.kernel);
                let message = format!("expected one of {n_kernels} kernels, found {found}");
                return Err(Error::new(ErrorKind::Program, message));
            };
            let name = format!("{} {}", Work::of(kernel).name(), step.kernel);
            match as_collective(kernel) {
                Some(_) => {
                    for Exchange { stages, access, received } in self.exchanges(step)? {
                        phase.received.iter_mut().zip(received).for_each(|(sum, it)| *sum += it);
                        let action = Action::Exchange(stages);
                        phase.tasks.push(Task { name: name.clone(), lane: access.lane, action });
                        accesses.push(access);
                    }
                }
                None => {
                    accesses.push(compute(self.ranges(&step.inputs)?, self.ranges(&step.results)?));
                    let action = Action::Run(self.run(step)?);
                    phase.tasks.push(Task { name, lane: Lane::Compute, action });
                }
            }
        }
        if let Some(loss) = loss {
            let task = Task { name: "loss".to_owned(), lane: Lane::Compute, action: Action::Loss };
            phase.tasks.push(task);
            accesses.push(compute(vec![self.range(loss)?], Vec::new()));
        }
        phase.schedule = Schedule::new(&accesses);
        Ok(phase)
    }

    /// What ranks need for the phases so far; `workspace` is what their kernels need.
    pub(crate) fn sizes(&self, rank: usize, workspace: usize) -> Sizes {
        let (n_pattern_words, staging) = (self.n_words[rank], self.staging_bytes);
        Sizes { kept: 0, workspace, staging, n_pattern_words }
    }

    /// For each rank the words of its transfers' patterns.
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

    fn run(&mut self, step: &Step) -> Result<Run, Error> {
        let types = |buffers: &[BufferId]| -> Vec<DType> {
            buffers.iter().map(|it| self.tables.buffers[*it].dtype).collect()
        };
        let offsets = |ranges: Vec<Range<usize>>| ranges.into_iter().map(|it| it.start).collect();
        let (inputs, results) = (self.ranges(&step.inputs)?, self.ranges(&step.results)?);
        let call = Call {
            kernel: step.kernel,
            inputs: types(&step.inputs),
            results: types(&step.results),
            epilogue: Epilogue::default(),
        };
        let call = self.calls.iter().position(|it| *it == call).unwrap_or_else(|| {
            self.calls.push(call);
            self.calls.len() - 1
        });
        Ok(Run { call, inputs: offsets(inputs), results: offsets(results) })
    }

    fn exchanges(&mut self, step: &Step) -> Result<Vec<Exchange>, Error> {
        let (Some(collective), &[input], &[result]) =
            (as_collective(&self.kernels[step.kernel]), &step.inputs[..], &step.results[..])
        else {
            let message = format!("collective {}: expected one input and one result", step.kernel);
            return Err(Error::new(ErrorKind::Program, message));
        };
        let mut builder = Builder {
            mesh: &self.tables.mesh,
            collective,
            input: self.range(input)?,
            result: self.range(result)?,
            n_words: &mut self.n_words,
            staging_bytes: &mut self.staging_bytes,
        };
        let mut exchanges = builder.exchanges(self.transport)?;
        for stage in exchanges.iter_mut().flat_map(|it| &mut it.stages) {
            if let Stage::Transfer(transfer) = stage {
                transfer.number = number(&mut self.transfers, &transfer.function);
            }
        }
        Ok(exchanges)
    }
}

fn compute(reads: Vec<Range<usize>>, writes: Vec<Range<usize>>) -> Access {
    let (group_reads, axes) = (Vec::new(), AxisSet::default());
    Access { lane: Lane::Compute, reads, group_reads, axes, writes }
}

/// The number of a name in a list, to which it is added if it is new.
fn number(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|it| it == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}
