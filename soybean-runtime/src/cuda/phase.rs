//! A phase of a program, training or evaluation, as tasks on streams.

use std::ops::Range;

use soybean_plan::{
    Access, AxisSet, BufferId, DType, Instruction, Kernel, Lane, Map, ScalarProgram, Schedule,
    Shape, Step, Tables,
};

use super::{
    collective::{Builder, Exchange, Stage, Transport},
    epilogue::{Epilogue, Fused, FusedProduct, FusedStep, Location},
    place::{Sizes, kept_from},
    text::Call,
};
use crate::{Error, ErrorKind, KernelCategory, movement::as_collective};

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
    /// What kind of work it is; none for what begins and ends a step.
    pub(crate) work: Option<KernelCategory>,
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
    /// Hands the scalars that a step leaves, those of rank 0, to the host.
    Report,
}

/// A kernel on buffers, by their offsets in the arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The number of the call.
    pub(crate) call: usize,
    pub(crate) inputs: Vec<usize>,
    pub(crate) results: Vec<usize>,
    /// The vector of a product's epilogue.
    pub(crate) bias: Option<usize>,
    /// What a product's epilogue keeps, or finds.
    pub(crate) kept: Option<usize>,
}

impl Phase {
    /// The axes of all calls of NCCL.
    pub(crate) fn joint_axes(&self) -> impl Iterator<Item = AxisSet> {
        let stages = |task| match task {
            &Task { action: Action::Exchange(ref stages), .. } => &stages[..],
            Task { action: Action::Feed | Action::Run(_) | Action::Report, .. } => &[],
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

/// Tasks with what they do to memory.
struct Queue {
    tasks: Vec<Task>,
    accesses: Vec<Access>,
    received: Vec<u64>,
}

impl Queue {
    fn push(
        &mut self,
        (name, work): (String, Option<KernelCategory>),
        access: Access,
        action: Action,
    ) {
        self.tasks.push(Task { name, work, lane: access.lane, action });
        self.accesses.push(access);
    }
}

/// Makes phases of steps, and notes what they need.
pub(crate) struct Planner<'a> {
    tables: &'a Tables,
    /// The model's, and what fusion adds.
    pub(crate) kernels: Vec<Kernel>,
    transport: Transport,
    kept_bytes: usize,
    /// The kernels, each with the types of its buffers.
    pub(crate) calls: Vec<Call>,
    /// The functions of the transfers.
    pub(crate) transfers: Vec<String>,
    n_words: Vec<usize>,
    staging_bytes: usize,
}

impl<'a> Planner<'a> {
    /// Without any phase yet.
    pub(crate) fn new(tables: &'a Tables, kernels: &[Kernel], transport: Transport) -> Self {
        Self {
            tables,
            kernels: kernels.to_vec(),
            transport,
            kept_bytes: 0,
            calls: Vec::new(),
            transfers: Vec::new(),
            n_words: vec![0; tables.mesh.n_ranks()],
            staging_bytes: 0,
        }
    }

    /// The phase of these steps; these scalars go to the host at its end.
    pub(crate) fn phase(&mut self, fused: &Fused, left: &[BufferId]) -> Result<Phase, Error> {
        let mut queue = Queue {
            tasks: Vec::new(),
            accesses: Vec::new(),
            received: vec![0; self.n_words.len()],
        };
        let slots = self.slots(&fused.slots);
        let inputs: Result<_, _> =
            self.tables.inputs.iter().map(|it| self.range(it.buffer)).collect();
        queue.push(("feed".to_owned(), None), compute(Vec::new(), inputs?), Action::Feed);
        for step in &fused.steps {
            match step {
                FusedStep::Plain(step) => self.queue(step, &mut queue)?,
                FusedStep::Product(product) => self.queue_product(product, &slots, &mut queue)?,
                FusedStep::Round { input, slot } => {
                    self.queue_rounding(*input, &slots[*slot], &mut queue)?;
                }
            }
        }
        if !left.is_empty() {
            let access = compute(self.ranges(left)?, Vec::new());
            queue.push(("report".to_owned(), None), access, Action::Report);
        }
        let Queue { tasks, accesses, received } = queue;
        Ok(Phase { tasks, schedule: Schedule::new(&accesses), received })
    }

    /// Where the slots of a phase lie; phases take turns, so that each begins anew.
    fn slots(&mut self, sizes: &[usize]) -> Vec<Range<usize>> {
        let start = kept_from(self.tables);
        let mut end = start;
        let mut slots = Vec::new();
        for size in sizes {
            slots.push(end..end + size);
            end = (end + size).next_multiple_of(256);
        }
        self.kept_bytes = self.kept_bytes.max(end - start);
        slots
    }

    fn queue(&mut self, step: &Step, queue: &mut Queue) -> Result<(), Error> {
        let name = self.name(step.kernel)?;
        if as_collective(&self.kernels[step.kernel]).is_some() {
            for Exchange { stages, access, received } in self.exchanges(step)? {
                queue.received.iter_mut().zip(received).for_each(|(sum, it)| *sum += it);
                queue.push(name.clone(), access, Action::Exchange(stages));
            }
            return Ok(());
        }
        let (reads, writes) = (self.ranges(&step.inputs)?, self.ranges(&step.results)?);
        let call = Call {
            kernel: step.kernel,
            inputs: self.types(&step.inputs),
            results: self.types(&step.results),
            epilogue: Epilogue::default(),
        };
        let run = self.run(call, &reads, &writes);
        queue.push(name, compute(reads, writes), Action::Run(run));
        Ok(())
    }

    fn queue_product(
        &mut self,
        product: &FusedProduct,
        slots: &[Range<usize>],
        queue: &mut Queue,
    ) -> Result<(), Error> {
        let find = |location: Option<Location>| {
            location
                .map(|location| match location {
                    Location::Slot(slot) => Ok(slots[slot].clone()),
                    Location::Buffer(buffer) => self.range(buffer),
                })
                .transpose()
        };
        let (bias, kept) = (find(product.bias)?, find(product.kept)?);
        let (inputs, results) = (self.ranges(&product.inputs)?, vec![self.range(product.result)?]);
        let call = Call {
            kernel: product.kernel,
            inputs: self.types(&product.inputs),
            results: self.types(&[product.result]),
            epilogue: product.epilogue,
        };
        let mut run = self.run(call, &inputs, &results);
        run.bias = bias.as_ref().map(|it| it.start);
        run.kept = kept.as_ref().map(|it| it.start);
        // Of what an epilogue has besides, it reads some and writes some; both count as both.
        let besides = || bias.iter().chain(&kept).cloned();
        let reads = inputs.into_iter().chain(besides()).collect();
        let writes = results.into_iter().chain(besides()).collect();
        queue.push(self.name(product.kernel)?, compute(reads, writes), Action::Run(run));
        Ok(())
    }

    /// A vector of `f32` rounded into a slot.
    fn queue_rounding(
        &mut self,
        input: BufferId,
        slot: &Range<usize>,
        queue: &mut Queue,
    ) -> Result<(), Error> {
        let extents = Shape::new(&[self.tables.buffers[input].n_elements]);
        let program = ScalarProgram {
            instructions: vec![Instruction::Input(0)].into(),
            results: vec![0].into(),
        };
        let map = Map { extents, inputs: vec![extents.dense_strides()].into(), program };
        let kernel = self.kernels.iter().position(|it| *it == Kernel::Map(map.clone()));
        let kernel = kernel.unwrap_or_else(|| {
            self.kernels.push(map.into());
            self.kernels.len() - 1
        });
        let (reads, writes) = (vec![self.range(input)?], vec![slot.clone()]);
        let (inputs, results, epilogue) =
            (vec![DType::F32], vec![DType::Bf16], Epilogue::default());
        let run = self.run(Call { kernel, inputs, results, epilogue }, &reads, &writes);
        queue.push(self.name(kernel)?, compute(reads, writes), Action::Run(run));
        Ok(())
    }

    fn name(&self, kernel: usize) -> Result<(String, Option<KernelCategory>), Error> {
        let found = self.kernels.get(kernel).ok_or_else(|| {
            let n_kernels = self.kernels.len();
            let message = format!("expected one of {n_kernels} kernels, found {kernel}");
            Error::new(ErrorKind::Program, message)
        })?;
        let work = found.category();
        Ok((format!("{} {kernel}", work.name()), Some(work)))
    }

    fn types(&self, buffers: &[BufferId]) -> Vec<DType> {
        buffers.iter().map(|it| self.tables.buffers[*it].dtype).collect()
    }

    fn run(&mut self, call: Call, inputs: &[Range<usize>], results: &[Range<usize>]) -> Run {
        let offsets = |ranges: &[Range<usize>]| ranges.iter().map(|it| it.start).collect();
        let call = self.calls.iter().position(|it| *it == call).unwrap_or_else(|| {
            self.calls.push(call);
            self.calls.len() - 1
        });
        let (inputs, results) = (offsets(inputs), offsets(results));
        Run { call, inputs, results, bias: None, kept: None }
    }

    /// What ranks need for the phases so far; `workspace` is what their kernels need.
    pub(crate) fn sizes(&self, rank: usize, workspace: usize) -> Sizes {
        let (n_pattern_words, staging) = (self.n_words[rank], self.staging_bytes);
        Sizes { kept: self.kept_bytes, workspace, staging, n_pattern_words }
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
