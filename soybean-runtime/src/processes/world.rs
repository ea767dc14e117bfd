//! All processes of a run, and this one's place among them.
#![expect(unsafe_code, reason = "leaves the other processes when the program exits")]

use std::{
    collections::BTreeMap,
    ffi::c_int,
    fs, hint, mem,
    num::NonZero,
    sync::{Arc, Mutex, OnceLock},
    thread,
    time::{Duration, Instant},
};

use mpi::{Threading, environment::Universe};

use super::{
    Process,
    calls::{Channel, Requests},
    control::Control,
    course::{Act, Course, Deed},
};
use crate::{
    Error, ErrorKind,
    abort::{Abort, lock},
};

/// All processes of a run.
pub(crate) struct World {
    pub(super) process: Process,
    pub(super) control: Control,
    /// The cores that this process has to itself, or as its share of those that several may use.
    pub(super) n_cores: usize,
    /// The number of the first process on this machine.
    pub(super) machine: usize,
    channel: Channel,
    trainers: Mutex<Trainers>,
}

#[derive(Default)]
struct Trainers {
    n_started: u64,
    n_channels: u32,
    /// The channels of trainers that have ended, by number. Later trainers take the first: all processes start and end the same trainers.
    channels: BTreeMap<u32, Channel>,
}

/// What a process that waits must look after.
#[derive(Clone, Copy)]
pub(super) struct Watch<'a> {
    pub(super) abort: &'a Abort,
    pub(super) course: &'a Course,
}

static WORLD: OnceLock<Result<World, Error>> = OnceLock::new();
/// What ends MPI when it is dropped.
static UNIVERSE: Mutex<Option<Universe>> = Mutex::new(None);

/// Joins the other processes, once.
pub(super) fn join() -> Result<&'static World, Error> {
    WORLD.get_or_init(World::start).as_ref().map_err(Clone::clone)
}

/// The processes that were joined.
pub(super) fn joined() -> Option<&'static World> {
    WORLD.get()?.as_ref().ok()
}

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

/// Leaves the other processes and ends MPI; runs when the program exits, however it does.
extern "C" fn leave() {
    if let Some(world) = joined() {
        world.control.leave();
    }
    drop(lock(&UNIVERSE).take());
}

impl World {
    fn start() -> Result<Self, Error> {
        let fault = |message: String| Err(Error::new(ErrorKind::Process, message));
        // Where the program has started MPI by itself, it ends it too.
        let threading = match mpi::initialize_with_threading(Threading::Multiple) {
            Some((universe, threading)) => {
                *lock(&UNIVERSE) = Some(universe);
                // SAFETY: the function may be called at any time.
                unsafe { atexit(leave) };
                threading
            }
            None => mpi::environment::threading_support(),
        };
        if threading < Threading::Multiple {
            return fault(format!(
                "expected an MPI library that several threads may call (MPI_THREAD_MULTIPLE), found {threading:?}"
            ));
        }
        let all = Channel::world();
        let (number, count) = all.place()?;
        let process = Process { number, count };
        let channel = all.duplicate()?;
        let control = Control::new(channel.duplicate()?, process);
        let (machine, n_cores) = share(channel, process)?;
        Ok(Self { process, control, n_cores, machine, channel, trainers: Mutex::default() })
    }

    /// The course of a new trainer, and its channel: of one that has ended, or a new one. Where processes differ in that, they are told by the channel's number.
    pub(super) fn enter(
        &self,
        start: Deed,
        abort: &Abort,
    ) -> Result<(Arc<Course>, Channel), Error> {
        let (course, channel) = {
            let mut trainers = lock(&self.trainers);
            trainers.n_started += 1;
            let (number, channel) = match trainers.channels.pop_first() {
                Some((number, channel)) => (number, Some(channel)),
                None => {
                    trainers.n_channels += 1;
                    (trainers.n_channels, None)
                }
            };
            (Arc::new(Course::new(trainers.n_started, number, start)), channel)
        };
        self.control.courses.add(&course);
        let channel = match channel {
            Some(channel) => channel,
            None => self.new_channel(Watch { abort, course: &course })?,
        };
        Ok((course, channel))
    }

    fn new_channel(&self, watch: Watch<'_>) -> Result<Channel, Error> {
        // It stays where it is for as long as the program runs if this fails.
        let new = Box::leak(Box::new(Channel::none()));
        let mut requests = Requests::default();
        // SAFETY: nobody else knows it, and it stays.
        unsafe { self.channel.begin_duplicate(new, &mut requests) }?;
        self.wait(&mut requests, watch)?;
        new.returning_errors()
    }

    /// Takes back the channel of a trainer that has ended, and tells the others so.
    pub(super) fn close(&self, course: &Course, channel: Channel) {
        lock(&self.trainers).channels.insert(course.channel, channel);
        self.control.tell_closed(course);
    }

    /// Waits until all is done, unless this process or another fails.
    pub(super) fn wait(&self, requests: &mut Requests, watch: Watch<'_>) -> Result<(), Error> {
        let mut patience = Patience::default();
        while !requests.is_done()? {
            if watch.abort.is_failed() {
                return Err(Error::new(ErrorKind::Rank, "another rank failed"));
            }
            if patience.pause() {
                self.look(watch, patience.is_very_long())?;
            }
        }
        Ok(())
    }

    /// Looks at what the other processes say, while this one waits for them: why it need not. After a long time it tells them so.
    pub(super) fn look(&self, watch: Watch<'_>, is_long: bool) -> Result<(), Error> {
        if let Some(error) = self.control.look(Some(watch.course)) {
            watch.abort.fail(error.clone());
            return Err(error);
        }
        if is_long {
            self.control.tell_waiting(watch.course);
        }
        Ok(())
    }

    /// Gives what all processes have, one after another; each has as many bytes.
    pub(super) fn hand_round(
        &self,
        channel: Channel,
        own: &[u8],
        watch: Watch<'_>,
    ) -> Result<Vec<u8>, Error> {
        let own = own.to_vec();
        let mut all = vec![0; own.len() * self.process.count];
        let mut requests = Requests::default();
        // SAFETY: both stay until all is done; if that fails, for ever.
        unsafe { channel.begin_gather(&own, &mut all, &mut requests) }?;
        match self.wait(&mut requests, watch) {
            Ok(()) => Ok(all),
            Err(error) => {
                mem::forget((own, all));
                Err(error)
            }
        }
    }
}

/// How a process waits: it looks all the time first, then lets others run, and sleeps in the end.
#[derive(Default)]
struct Patience {
    n_looks: u32,
    started: Option<Instant>,
}

/// Looks at messages in a row.
const N_SPINS: u32 = 100;
/// Until then it is likely that the others are about to come.
const SHORT: Duration = Duration::from_millis(2);
/// From then on nobody is in a hurry.
pub(super) const LONG: Duration = Duration::from_secs(1);

impl Patience {
    /// Pauses. Gives whether it is time to look after other things too.
    fn pause(&mut self) -> bool {
        self.n_looks += 1;
        if self.n_looks < N_SPINS {
            hint::spin_loop();
            return false;
        }
        match self.started.get_or_insert_with(Instant::now).elapsed() {
            waited if waited < SHORT => thread::yield_now(),
            waited if waited < LONG => thread::sleep(Duration::from_micros(50)),
            _ => thread::sleep(Duration::from_millis(1)),
        }
        true
    }

    fn is_very_long(&self) -> bool {
        self.started.is_some_and(|it| it.elapsed() > LONG)
    }
}

/// The number of the first process of this machine, and the cores of this one: those that it may use, shared with all processes of the machine that may use the same.
fn share(channel: Channel, process: Process) -> Result<(usize, usize), Error> {
    let n_usable = thread::available_parallelism().map_or(1, NonZero::get);
    let machine = channel.on_this_machine()?;
    let (_, n_processes) = machine.place()?;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|it| it.starts_with("Cpus_allowed_list:"));
    let cores = fingerprint(line.unwrap_or_default().as_bytes()).to_le_bytes();
    let own = [(process.number as u64).to_le_bytes(), cores].concat();
    let mut all = vec![0; own.len() * n_processes];
    let mut requests = Requests::default();
    // SAFETY: both stay until all is done below.
    unsafe { machine.begin_gather(&own, &mut all, &mut requests) }?;
    while !requests.is_done()? {
        thread::yield_now();
    }
    let of_all = || all.as_chunks::<8>().0.chunks_exact(2);
    let n_sharing = of_all().filter(|it| it[1] == cores).count();
    let first = of_all().map(|it| u64::from_le_bytes(it[0])).min().unwrap_or(0);
    let first = usize::try_from(first).unwrap_or(usize::MAX);
    Ok((first, (n_usable / n_sharing.max(1)).max(1)))
}

/// A number for these bytes, the same in all processes. Source: Fowler, Noll and Vo's hash 1a of 64 bits.
pub(super) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The start of a trainer; processes must agree on what is described.
pub(super) fn start_of(description: &str) -> Deed {
    Deed { word: fingerprint(description.as_bytes()), ..Deed::of(Act::Start) }
}
