//! All ranks of a model on GPUs, or those of this process, as the trainer sees them.
#![expect(unsafe_code, reason = "the device writes the host's memory by itself")]

use std::{
    hint,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use soybean_plan::{BufferId, Kernel, Step, Tables, Tile};

use super::{
    cliques::Cliques,
    collective::Transport,
    connection::transport,
    epilogue::{Fused, fuse},
    gpu::Gpu,
    here::Here,
    kit::Kit,
    libraries::find,
    machine::{Events, Machine, Marks, Queuing, left_by_steps},
    memory::PinnedWords,
    phase::{Phase, Planner},
    place::Place,
    product::{Lt, Product},
    stream::{Event, Graph},
    tape::record,
    text::Wanted,
};
use crate::{
    Config, Error, Profile, View,
    abort::lock,
    check::check_tables,
    ends::Ends,
    model::AnyModel,
    ranks::{Feed, Order, Ranks, Report, Training},
    trace::{Span, microseconds},
};

/// How long the host looks for the end of a step without letting go of its core.
const SPINNING: Duration = Duration::from_micros(500);

/// The ranks of a model on GPUs.
pub(crate) struct CudaRanks {
    seed: u64,
    uses_graphs: bool,
    train: Steps,
    evaluate: Steps,
    /// When the last step has ended.
    done: Event,
    ends: Vec<Ends>,
    /// The slot of the batch that is queued.
    queued: usize,
    here: Here,
    line: String,
    has_failed: bool,
    machine: Machine,
}

/// A phase, and what is kept for its steps.
struct Steps {
    phase: Phase,
    events: Events,
    has_run: bool,
    /// For each slot the whole step, once it is captured.
    graphs: [Option<Graph>; 2],
}

impl CudaRanks {
    /// Puts the ranks on GPUs, with first values.
    pub(crate) fn new(model: &AnyModel, config: &Config) -> Result<Self, Error> {
        Self::start(model, config, Here::whole(model.get().tables().mesh.n_ranks()))
    }

    /// Puts some of the ranks on GPUs, with first values.
    pub(crate) fn start(model: &AnyModel, config: &Config, here: Here) -> Result<Self, Error> {
        let (tables, kernels) = (model.get().tables(), model.get().kernels());
        check_tables(tables)?;
        let gpus = find().gpus(here.gpus.clone())?;
        let transport = transport(&gpus, here.ranks.len(), here.others.as_ref())?;
        let mut planner = Planner::new(tables, kernels, transport);
        let mut fuser = Fuser::new(&gpus[0], kernels, tables)?;
        let steps = record(model.get(), |model, rank| model.train(rank))?;
        let train = planner.phase(&fuser.fuse(&steps), &left_by_steps(tables))?;
        let steps = record(model.get(), |model, rank| model.evaluate(rank))?;
        let evaluate = planner.phase(&fuser.fuse(&steps), &[])?;
        let wanted = Wanted {
            kernels: &planner.kernels,
            precision: tables.precision,
            calls: &planner.calls,
            transfers: &planner.transfers,
        };
        let kits = gpus.iter().map(|gpu| Kit::new(gpu, &wanted)).collect::<Result<Vec<_>, _>>()?;
        let place = |rank: usize| {
            let kit = (rank - here.ranks.start) * gpus.len() / here.ranks.len();
            let sizes = planner.sizes(rank, kits[kit].workspace_bytes());
            Place::new(rank, (kit, &gpus[kit]), model, sizes)
        };
        let places = here.ranks.clone().map(place).collect::<Result<Vec<_>, _>>()?;
        let axes = train.joint_axes().chain(evaluate.joint_axes());
        let cliques = Cliques::new(&tables.mesh, axes, &here.ranks, &gpus, &here.others)?;
        let mut machine = Machine::new(model.clone(), kits, places, cliques)?;
        machine.write_patterns(&[&train, &evaluate], planner.n_words())?;
        let ends: Vec<Ends> = here.ranks.clone().map(|rank| Ends::new(tables, rank)).collect();
        for (place, ends) in machine.places.iter_mut().zip(&ends) {
            ends.fill(tables, place, config.seed)?;
        }
        gpus.iter().try_for_each(|gpu| gpu.synchronize())?;
        Ok(Self {
            seed: config.seed,
            // NCCL's documentation warns that graphs of several GPUs of one process may wait for each other for ever.
            uses_graphs: config.uses_graphs && transport != Transport::Nccl,
            train: Steps::new(&machine, train)?,
            evaluate: Steps::new(&machine, evaluate)?,
            done: Event::new(&gpus[0])?,
            ends,
            queued: 0,
            line: here.line(&gpus, transport),
            here,
            has_failed: false,
            machine,
        })
    }

    fn serve(&mut self, order: Order<'_>) -> Result<(), Error> {
        match order {
            Order::Train(training) => self.train(training),
            Order::Queue { batch } => self.fill(self.queued, batch),
            Order::Evaluate { batch } => {
                // The batch that is queued stays where it is.
                let slot = 1 - self.queued;
                self.fill(slot, batch)?;
                self.evaluate.run(&self.machine, slot, self.uses_graphs, &self.done)?;
                self.wait()?;
                self.report_bytes(|this| &this.evaluate);
                let model = self.machine.model.clone();
                let outputs = model.get().tables().outputs.iter();
                self.report_parts(&outputs.map(|it| (it.tile, it.buffer)).collect::<Vec<_>>())
            }
            Order::Fetch(stretch) | Order::Save(stretch) => {
                let model = self.machine.model.clone();
                self.report_parts(&stretch.buffers(model.get().tables()))
            }
            Order::Load { first, tensors } => {
                let model = self.machine.model.clone();
                let mut places = self.machine.places.iter_mut().zip(&self.ends);
                places.try_for_each(|(place, ends)| {
                    ends.load(model.get().tables(), place, first, tensors)?;
                    place.gpu.synchronize()
                })
            }
            Order::ResetProfile => {
                self.here.own().iter().for_each(|it| lock(it).profile = Profile::default());
                Ok(())
            }
        }
    }

    fn train(&mut self, training: Training<'_>) -> Result<(), Error> {
        let started = Instant::now();
        let Training { feed, moment, trace_from } = training;
        let (slot, next) = match feed {
            Feed::Batch(batch) => {
                let slot = 1 - self.queued;
                self.fill(slot, batch)?;
                (slot, None)
            }
            Feed::Queued { next } => (self.queued, next),
        };
        let model = self.machine.model.clone();
        let scalars = self.ends[0].scalars(model.get().tables(), self.seed, moment);
        // SAFETY: no step is running, so that no device reads the words.
        let words = unsafe { self.machine.scalars.words_mut() };
        words.iter_mut().zip(scalars).for_each(|(word, it)| *word = it.to_bits());
        let handing_over = Instant::now();
        match trace_from {
            None => self.train.run(&self.machine, slot, self.uses_graphs, &self.done)?,
            Some(from) => {
                let marks = self.machine.marks(&self.train.phase)?;
                let queued = microseconds(from, Instant::now());
                self.train.queue(&self.machine, Queuing { slot, marks: Some(&marks) })?;
                self.done.record(self.machine.origin())?;
                self.wait()?;
                self.report_spans(&marks, queued)?;
            }
        }
        let handing_over = handing_over.elapsed();
        if let Some(next) = next {
            self.queued = 1 - slot;
            self.fill(self.queued, next)?;
        }
        self.wait()?;
        self.report_numbers();
        self.report_bytes(|this| &this.train);
        for report in self.here.own() {
            let profile = &mut lock(report).profile;
            profile.n_steps += 1;
            profile.total += started.elapsed();
            profile.handing_over += handing_over;
        }
        Ok(())
    }

    fn report_numbers(&self) {
        let number = |(_, word): &(BufferId, PinnedWords)| {
            // SAFETY: the step has ended, so that no device writes the word.
            let word = unsafe { word.words() }.first().copied();
            word.map_or(f32::NAN, f32::from_bits)
        };
        let mut numbers = self.machine.left.iter().map(number);
        // Rank 0 has them, in whatever process it is.
        let Some(report) = self.here.ranks.contains(&0).then(|| &self.here.reports[0]) else {
            return;
        };
        let mut report = lock(report);
        report.loss = numbers.next().unwrap_or(f32::NAN);
        report.gradient_norm = numbers.next();
    }

    fn fill(&mut self, slot: usize, batch: &[View<'_>]) -> Result<(), Error> {
        let model = self.machine.model.clone();
        let mut places = self.machine.places.iter_mut().zip(&self.ends);
        places
            .try_for_each(|(place, ends)| place.slots[slot].fill(ends, model.get().tables(), batch))
    }

    /// Waits for the end of the step.
    fn wait(&self) -> Result<(), Error> {
        let started = Instant::now();
        while !self.done.has_happened()? {
            if started.elapsed() < SPINNING {
                hint::spin_loop();
            } else {
                // Where another rank is gone, this wait is for ever, but the driver, NCCL and other processes say so when asked.
                self.machine.check()?;
                let others = &self.here.others;
                self.machine.cliques.check().map_err(|error| others.reason(error))?;
                others.check(started)?;
                thread::yield_now();
            }
        }
        // The end of a step on one GPU says nothing of failures on others.
        self.machine.check()
    }

    /// Why nothing goes on: what a GPU says, rather than what followed from it.
    fn fail(&mut self, error: Error) -> Error {
        self.has_failed = true;
        let Err(failure) = self.machine.check() else { return error };
        self.machine.places.iter().for_each(|it| it.gpu.give_up());
        failure
    }

    fn report_bytes(&self, steps: fn(&Self) -> &Steps) {
        for rank in self.here.ranks.clone() {
            lock(&self.here.reports[rank]).moved_bytes = steps(self).phase.received[rank];
        }
    }

    fn report_parts(&mut self, tensors: &[(Tile, BufferId)]) -> Result<(), Error> {
        let model = self.machine.model.clone();
        let tables = model.get().tables();
        let places = self.machine.places.iter_mut();
        for ((place, ends), report) in places.zip(&self.ends).zip(self.here.own()) {
            ends.parts(tables, place, tensors, &mut lock(report).parts)?;
        }
        Ok(())
    }

    fn report_spans(&self, marks: &Marks, queued: f64) -> Result<(), Error> {
        for (at, report) in self.here.own().iter().enumerate() {
            let mut spans = Vec::new();
            for (task, marks_of) in self.train.phase.tasks.iter().zip(&marks.tasks) {
                let [first, last] = &marks_of[at];
                let start = first.milliseconds_since(&marks.from[at])?;
                let duration = last.milliseconds_since(first)?;
                spans.push(Span {
                    name: task.name.clone(),
                    work: task.work,
                    stream: task.lane.name(),
                    start: queued + f64::from(start) * 1e3,
                    duration: f64::from(duration) * 1e3,
                });
            }
            lock(report).spans = spans;
        }
        Ok(())
    }
}

impl Ranks for CudaRanks {
    fn call(&mut self, order: Order<'_>) -> Result<(), Error> {
        // Others may have made another context current on this thread.
        self.machine.places[0].gpu.make_current()?;
        self.serve(order).map_err(|error| self.fail(error))
    }

    fn reports(&self) -> &[Mutex<Report>] {
        &self.here.reports
    }

    fn device_line(&self) -> String {
        self.line.clone()
    }
}

impl Drop for CudaRanks {
    fn drop(&mut self) {
        if self.has_failed || self.here.others.check(Instant::now()).is_err() {
            self.machine.cliques.abort();
        } else {
            self.machine.cliques.leave();
        }
        // What is still queued uses memory that goes now, the host's too. GPUs that were given up refuse at once, and keep their memory.
        for place in &self.machine.places {
            let _refused = place.gpu.synchronize();
        }
    }
}

impl Steps {
    fn new(machine: &Machine, phase: Phase) -> Result<Self, Error> {
        let events = machine.events(&phase)?;
        Ok(Self { phase, events, has_run: false, graphs: [None, None] })
    }

    /// Queues a step, kernel by kernel.
    fn queue(&self, machine: &Machine, queuing: Queuing<'_>) -> Result<(), Error> {
        machine.await_batch(queuing.slot)?;
        machine.queue(&self.phase, &self.events, queuing)
    }

    /// Starts a step on the batch of a slot; `done` becomes its end.
    ///
    /// The first step is queued kernel by kernel, since libraries load theirs when they are first used, which no capture allows.
    fn run(
        &mut self,
        machine: &Machine,
        slot: usize,
        uses_graphs: bool,
        done: &Event,
    ) -> Result<(), Error> {
        let queuing = Queuing { slot, marks: None };
        if !uses_graphs || !self.has_run {
            self.queue(machine, queuing)?;
            self.has_run = true;
            return done.record(machine.origin());
        }
        machine.await_batch(slot)?;
        if self.graphs[slot].is_none() {
            machine.origin().begin_capture()?;
            let queued = machine.queue(&self.phase, &self.events, queuing);
            // The capture ends in any case.
            let graph = machine.origin().end_capture();
            queued?;
            self.graphs[slot] = Some(graph?);
        }
        if let Some(graph) = &self.graphs[slot] {
            graph.launch(machine.origin())?;
        }
        done.record(machine.origin())
    }
}

/// Joins products and what follows them, where cuBLASLt has both as one.
struct Fuser<'a> {
    lt: Lt,
    kernels: &'a [Kernel],
    tables: &'a Tables,
}

impl<'a> Fuser<'a> {
    fn new(gpu: &Arc<Gpu>, kernels: &'a [Kernel], tables: &'a Tables) -> Result<Self, Error> {
        Ok(Self { lt: Lt::new(gpu)?, kernels, tables })
    }

    fn fuse(&mut self, steps: &[Step]) -> Fused {
        let Self { lt, kernels, tables } = self;
        fuse(steps, kernels, tables, &mut |kernel, types, epilogue| {
            let Some(Kernel::Contract(contraction)) = kernels.get(kernel) else { return false };
            let product = Product::new(lt, contraction, types, tables.precision, epilogue);
            product.is_ok_and(|it| it.is_some())
        })
    }
}
