//! All processes of a run, and this process among them.
#![expect(unsafe_code, reason = "registers a function with `atexit`")]

use std::{
    collections::BTreeMap,
    ffi::c_int,
    fs, mem,
    num::NonZero,
    sync::{Arc, Mutex, Once, OnceLock},
    thread,
};

use mpi::{Threading, environment::Universe};
use soybean_plan::fingerprint;

use super::{
    Process,
    control::Control,
    mpi_communicator::{MpiCommunicator, Requests},
    progress::{Operation, OperationKind, Progress},
};
use crate::{
    Error, ErrorKind,
    abort::{Abort, lock},
    backoff::Backoff,
};

/// All processes of a run.
pub(crate) struct World {
    pub(super) process: Process,
    pub(super) control: Control,
    /// Number of cores for this process. Cores that several processes may use are divided among
    /// them.
    pub(super) n_cores: usize,
    /// Number of the first process on this machine.
    pub(super) machine: usize,
    communicator: MpiCommunicator,
    trainers: Mutex<Trainers>,
}

#[derive(Default)]
struct Trainers {
    n_started: u64,
    n_channels: u32,
    /// Communicators of closed trainers by number. New trainers take the lowest, which is the same
    /// in all processes if they open and close the same trainers.
    communicators: BTreeMap<u32, MpiCommunicator>,
}

/// Run and trainer of a process that waits.
#[derive(Clone, Copy)]
pub(super) struct WaitContext<'a> {
    pub(super) abort: &'a Abort,
    pub(super) progress: &'a Progress,
}

static WORLD: OnceLock<Result<World, Error>> = OnceLock::new();
/// The universe, which finalizes MPI when it is dropped.
static UNIVERSE: Mutex<Option<Universe>> = Mutex::new(None);

/// Joins the other processes, once.
pub(super) fn join() -> Result<&'static World, Error> {
    static SIGNS_OF_LIFE: Once = Once::new();
    let world = WORLD.get_or_init(World::start).as_ref().map_err(Clone::clone)?;
    // A program that initializes MPI itself finalizes it at any time, when nothing may be sent.
    if lock(&UNIVERSE).is_some() {
        SIGNS_OF_LIFE.call_once(|| {
            let thread = thread::Builder::new().name("signs of life".to_owned());
            // Without the thread, the others do not notice if this process is stopped.
            let _none = thread.spawn(move || world.control.send_signs_of_life());
        });
    }
    Ok(world)
}

/// Returns the processes that were joined.
pub(super) fn joined() -> Option<&'static World> {
    WORLD.get()?.as_ref().ok()
}

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

/// Leaves the run and finalizes MPI when the program exits.
extern "C" fn leave() {
    if let Some(world) = joined() {
        world.control.leave();
    }
    drop(lock(&UNIVERSE).take());
}

impl World {
    fn start() -> Result<Self, Error> {
        let error = |message: String| Err(Error::new(ErrorKind::Process, message));
        // If the program has initialized MPI itself, it also finalizes it.
        let threading = match mpi::initialize_with_threading(Threading::Multiple) {
            Some((universe, threading)) => {
                *lock(&UNIVERSE) = Some(universe);
                // SAFETY: `atexit` may be called at any time.
                unsafe { atexit(leave) };
                threading
            }
            None => mpi::environment::threading_support(),
        };
        if threading < Threading::Multiple {
            return error(format!(
                "expected an MPI library that several threads may call (MPI_THREAD_MULTIPLE), found {threading:?}"
            ));
        }
        let all = MpiCommunicator::world();
        let (number, count) = all.rank_and_size()?;
        let process = Process { number, count };
        let communicator = all.duplicate()?;
        let control = Control::new(communicator.duplicate()?, process);
        let (machine, n_cores) = machine_and_cores(communicator, process)?;
        Ok(Self { process, control, n_cores, machine, communicator, trainers: Mutex::default() })
    }

    /// Opens a trainer. Returns its progress and its communicator, which is new or that of a closed
    /// trainer. A mismatch between processes shows in the communicator's number.
    pub(super) fn open_trainer(
        &self,
        start: Operation,
        abort: &Abort,
    ) -> Result<(Arc<Progress>, MpiCommunicator), Error> {
        let (progress, communicator) = {
            let mut trainers = lock(&self.trainers);
            trainers.n_started += 1;
            let (number, communicator) = match trainers.communicators.pop_first() {
                Some((number, communicator)) => (number, Some(communicator)),
                None => {
                    trainers.n_channels += 1;
                    (trainers.n_channels, None)
                }
            };
            (Arc::new(Progress::new(trainers.n_started, number, start)), communicator)
        };
        self.control.trainers.add(&progress);
        let communicator = match communicator {
            Some(communicator) => communicator,
            None => self.new_channel(WaitContext { abort, progress: &progress })?,
        };
        Ok((progress, communicator))
    }

    fn new_channel(&self, context: WaitContext<'_>) -> Result<MpiCommunicator, Error> {
        // Leaked: if the request fails, MPI may write to it as long as the program runs.
        let new = Box::leak(Box::new(MpiCommunicator::none()));
        let mut requests = Requests::default();
        // SAFETY: nothing else knows the memory, and it is never freed.
        unsafe { self.communicator.begin_duplicate(new, &mut requests) }?;
        self.wait(&mut requests, context)?;
        new.with_returned_errors()
    }

    /// Returns the communicator of a closed trainer, and tells the other processes.
    pub(super) fn close_trainer(&self, progress: &Progress, communicator: MpiCommunicator) {
        lock(&self.trainers).communicators.insert(progress.communicator, communicator);
        self.control.announce_close(progress);
    }

    /// Waits for all requests, unless this process or another fails.
    pub(super) fn wait(
        &self,
        requests: &mut Requests,
        context: WaitContext<'_>,
    ) -> Result<(), Error> {
        let mut backoff = Backoff::default();
        while !requests.is_done()? {
            if context.abort.is_failed() {
                return Err(Error::new(ErrorKind::Rank, "another rank failed"));
            }
            if backoff.pause() {
                self.poll(context, backoff.is_long())?;
            }
        }
        Ok(())
    }

    /// Polls for control messages while this process waits. After a long wait it announces that it
    /// waits.
    pub(super) fn poll(&self, context: WaitContext<'_>, is_long: bool) -> Result<(), Error> {
        if let Some(error) = self.control.poll(Some(context.progress)) {
            context.abort.fail(error.clone());
            return Err(error);
        }
        if is_long {
            self.control.announce_wait(context.progress);
        }
        Ok(())
    }

    /// Gathers equally many bytes from all processes.
    pub(super) fn all_gather(
        &self,
        communicator: MpiCommunicator,
        own: &[u8],
        context: WaitContext<'_>,
    ) -> Result<Vec<u8>, Error> {
        let own = own.to_vec();
        let mut all = vec![0; own.len() * self.process.count];
        let mut requests = Requests::default();
        // SAFETY: both buffers stay valid until the request is complete; after a failure they are
        // leaked.
        unsafe { communicator.begin_all_gather(&own, &mut all, &mut requests) }?;
        match self.wait(&mut requests, context) {
            Ok(()) => Ok(all),
            Err(error) => {
                mem::forget((own, all));
                Err(error)
            }
        }
    }
}

/// Returns the number of the first process on this machine, and the number of cores for this
/// process. Cores are divided among the processes with the same affinity.
fn machine_and_cores(
    communicator: MpiCommunicator,
    process: Process,
) -> Result<(usize, usize), Error> {
    let n_usable = thread::available_parallelism().map_or(1, NonZero::get);
    let machine = communicator.split_by_machine()?;
    let (_, n_processes) = machine.rank_and_size()?;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|it| it.starts_with("Cpus_allowed_list:"));
    let cores = fingerprint(line.unwrap_or_default().bytes()).to_le_bytes();
    let own = [(process.number as u64).to_le_bytes(), cores].concat();
    let mut all = vec![0; own.len() * n_processes];
    let mut requests = Requests::default();
    // SAFETY: both buffers stay valid until the request completes below.
    unsafe { machine.begin_all_gather(&own, &mut all, &mut requests) }?;
    let mut backoff = Backoff::default();
    while !requests.is_done()? {
        backoff.pause();
    }
    let of_all = || all.as_chunks::<8>().0.chunks_exact(2);
    let n_sharing = of_all().filter(|it| it[1] == cores).count();
    let first = of_all().map(|it| u64::from_le_bytes(it[0])).min().unwrap_or(0);
    let first = usize::try_from(first).unwrap_or(usize::MAX);
    Ok((first, (n_usable / n_sharing.max(1)).max(1)))
}

/// Returns the operation that starts a trainer with this description.
pub(super) fn start_operation(description: &str) -> Operation {
    Operation { id: fingerprint(description.bytes()), ..Operation::of(OperationKind::Start) }
}
