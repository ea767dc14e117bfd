//! All ranks on the CPU: each is one thread or a few, which live as long as the trainer.

use std::{
    num::NonZero,
    ops::Range,
    sync::Mutex,
    thread::{self, Builder, JoinHandle},
};

use rayon::{ThreadPool, ThreadPoolBuilder};
use soybean_plan::ThreadOwner;

use super::Cpu;
use crate::{
    Config, Error, ErrorKind, View,
    arena::Arenas,
    check::check_tables,
    data::Values,
    dispatch::SharedState,
    model::AnyModel,
    ranks::{BatchSource, Command, Ranks, Report, TrainStep},
    shared_memory::SharedMemoryGroup,
    transport::Transport,
    worker::Worker,
};

/// The largest number of threads of a process, unless it has more ranks. Systems limit threads and
/// the blocks of memory that each of them needs.
const MAX_THREADS: usize = 1 << 12;

/// The ranks of a model that this process runs.
pub(crate) struct Part<'a> {
    /// Their numbers.
    pub(crate) ranks: Range<usize>,
    /// The cores that they may use.
    pub(crate) n_cores: usize,
    /// The transport of a rank to the ranks of other processes, if there are any.
    pub(crate) transport: &'a dyn Fn(usize) -> Option<Box<dyn Transport>>,
}

impl Part<'static> {
    /// Returns all ranks.
    fn whole(n_ranks: usize) -> Self {
        let n_cores = thread::available_parallelism().map_or(1, NonZero::get);
        Self { ranks: 0..n_ranks, n_cores, transport: &|_| None }
    }
}

/// The ranks of a model, as threads.
pub(crate) struct CpuRanks {
    n_threads: usize,
    shared: SharedState,
    threads: Vec<JoinHandle<()>>,
    owner: ThreadOwner,
    /// The batch that is kept until its step.
    queued: Vec<Values>,
    /// The reason why the ranks are not on GPUs, if it should be reported.
    obstacle: Option<String>,
}

impl CpuRanks {
    /// Starts the ranks. `obstacle` is the reason why they are not on GPUs, if it should be
    /// reported.
    pub(crate) fn new(
        model: &AnyModel,
        config: &Config,
        obstacle: Option<String>,
    ) -> Result<Self, Error> {
        let n_ranks = model.get().tables().mesh.n_ranks();
        let shared = SharedState::new(n_ranks, n_ranks);
        Self::start(model, config, obstacle, &Part::whole(n_ranks), shared)
    }

    /// Starts some of the ranks.
    pub(crate) fn start(
        model: &AnyModel,
        config: &Config,
        obstacle: Option<String>,
        part: &Part<'_>,
        shared: SharedState,
    ) -> Result<Self, Error> {
        let n_ranks = shared.reports.len();
        let n_each = match config.threads {
            Some(n_threads) => n_threads / n_ranks,
            None => part.n_cores / part.ranks.len(),
        };
        let n_each = n_each.max(1);
        if n_each > (MAX_THREADS / part.ranks.len()).max(1) {
            let found = config.threads.unwrap_or(part.n_cores);
            return Err(Error::new(
                ErrorKind::Choice,
                format!("threads: expected at most {MAX_THREADS} in a process, found {found}"),
            ));
        }
        let workers = workers(model, config.seed, n_each, part, &shared)?;
        let fault = |error: std::io::Error| {
            Error::new(ErrorKind::Device, format!("a thread for each rank: {error}"))
        };
        let (n_threads, threads, queued) = (n_each * n_ranks, Vec::new(), Vec::new());
        let owner = ThreadOwner::this_process();
        let mut ranks = Self { n_threads, shared, threads, owner, queued, obstacle };
        for (worker, pool) in workers {
            let name = format!("rank {}", worker.rank);
            let thread = Builder::new().name(name).spawn(move || pool.run(worker));
            ranks.threads.push(thread.map_err(fault)?);
        }
        Ok(ranks)
    }
}

impl Ranks for CpuRanks {
    fn call(&mut self, command: Command<'_>) -> Result<(), Error> {
        match command {
            Command::Queue { batch, .. } => keep(batch, &mut self.queued),
            Command::Train(step @ TrainStep { batch: BatchSource::Queued { next }, .. }) => {
                let batch: Vec<View<'_>> = self.queued.iter().map(Values::view).collect();
                let batch = BatchSource::Batch(&batch);
                self.shared.dispatcher.dispatch(Command::Train(TrainStep { batch, ..step }));
                if let Some(next) = next {
                    keep(next, &mut self.queued);
                }
            }
            command @ (Command::Train(_)
            | Command::Evaluate { .. }
            | Command::Fetch(_)
            | Command::Save(_)
            | Command::Load { .. }
            | Command::ResetProfile) => self.shared.dispatcher.dispatch(command),
        }
        self.shared.abort.first().map_or(Ok(()), Err)
    }

    fn reports(&self) -> &[Mutex<Report>] {
        &self.shared.reports
    }

    fn can_inspect(&self) -> bool {
        true
    }

    fn device_line(&self) -> String {
        let (n_ranks, n_threads) = (self.shared.reports.len(), self.n_threads);
        let plural = |n| if n == 1 { "" } else { "s" };
        let devices =
            if n_ranks == 1 { "1 device".to_owned() } else { format!("{n_ranks} virtual devices") };
        let obstacle = self.obstacle.iter().map(|why| format!("; GPUs are not used: {why}"));
        let obstacle: String = obstacle.collect();
        format!("{devices} on the CPU, {n_threads} thread{}{obstacle}", plural(n_threads))
    }
}

impl Drop for CpuRanks {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            std::mem::forget(std::mem::take(&mut self.threads));
            return;
        }
        // If some threads could not be started, the others wait for ever: only all of them together
        // can be told to stop.
        if self.threads.len() == self.shared.dispatcher.n_ranks() {
            self.shared.dispatcher.stop();
            for thread in self.threads.drain(..) {
                // The panic of a rank has been reported already.
                let _reported = thread.join();
            }
        }
    }
}

/// Copies a batch into the memory of the previous one.
fn keep(batch: &[View<'_>], kept: &mut Vec<Values>) {
    kept.resize(batch.len(), Values::F32(Vec::new()));
    for (view, values) in batch.iter().zip(kept) {
        match (view, values) {
            (View::F32(from), Values::F32(to)) => replace(from, to),
            (View::I32(from), Values::I32(to)) => replace(from, to),
            (_, other) => *other = Values::from(*view),
        }
    }
}

fn replace<T: Copy>(from: &[T], to: &mut Vec<T>) {
    to.clear();
    to.extend_from_slice(from);
}

fn workers(
    model: &AnyModel,
    seed: u64,
    n_threads: usize,
    part: &Part<'_>,
    shared: &SharedState,
) -> Result<Vec<(Worker, Pool)>, Error> {
    let tables = model.get().tables();
    check_tables(tables)?;
    let arenas = Arenas::new(part.ranks.clone(), tables.arena_bytes)?;
    let is_crowded = part.ranks.len() > part.n_cores;
    let shared_memory = SharedMemoryGroup::new(model, &arenas, &shared.abort, is_crowded);
    let worker = |rank| {
        let worker = Worker {
            rank,
            model: model.clone(),
            cpu: Cpu::new(&arenas, rank, model, n_threads),
            communicator: shared_memory.communicator(rank, (part.transport)(rank))?,
            shared: shared.clone(),
            seed,
        };
        Ok((worker, Pool::new(rank, n_threads)?))
    };
    part.ranks.clone().map(worker).collect()
}

/// The threads of one rank; a rank with one thread needs no pool.
struct Pool {
    pool: Option<ThreadPool>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    fn new(rank: usize, n_threads: usize) -> Result<Self, Error> {
        if n_threads == 1 {
            return Ok(Self { pool: None, threads: Vec::new() });
        }
        let mut threads = Vec::new();
        let pool = ThreadPoolBuilder::new()
            .num_threads(n_threads)
            .spawn_handler(|thread| {
                let name = format!("rank {rank} thread {}", thread.index());
                threads.push(Builder::new().name(name).spawn(|| thread.run())?);
                Ok(())
            })
            .build()
            .map_err(|error| {
                Error::new(
                    ErrorKind::Device,
                    format!("{n_threads} threads for rank {rank}: {error}"),
                )
            })?;
        // Threads allocate when they start, which may be late on a busy machine. Steps must not.
        pool.broadcast(|_| ());
        Ok(Self { pool: Some(pool), threads })
    }

    /// Runs the worker on the first free thread of the pool, so that its kernels share work without
    /// a queue in between.
    fn run(self, worker: Worker) {
        match self.pool {
            Some(pool) => pool.install(|| worker.run()),
            None => worker.run(),
        }
        for thread in self.threads {
            // A panic has been reported already.
            let _reported = thread.join();
        }
    }
}
