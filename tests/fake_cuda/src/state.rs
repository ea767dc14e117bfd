//! State of the virtual devices, behind one lock.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{Write, stderr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::{fs, process};

use crate::capture::{Capture, Captured};
use crate::driver::kernels::{Function, Program};
use crate::ffi::Handle;
use crate::memory::Memory;
use crate::random::Random;
use crate::schedule::SchedulePolicy;
use crate::settings::Settings;
use crate::status::{ApiResult, DeviceError, Status};
use crate::work::{Communication, Graph, GraphRun, Job, Machine, Work};

/// State of the driver and its devices.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) machine: Machine,
    pub(crate) devices: Vec<Device>,
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) events: BTreeMap<u64, Event>,
    pub(crate) rendezvous: BTreeMap<u64, Rendezvous>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    pub(crate) graphs: BTreeMap<u64, std::sync::Arc<Graph>>,
    pub(crate) executables: BTreeMap<u64, std::sync::Arc<Graph>>,
    /// Communicators that were aborted. Their operations in graphs end without an effect.
    pub(crate) aborted: BTreeSet<u64>,
    pub(crate) programs: BTreeMap<u64, Program>,
    pub(crate) functions: BTreeMap<u64, Function>,
    /// Number of calls of each function.
    pub(crate) counters: BTreeMap<&'static str, u64>,
    /// Time in nanoseconds, which each piece of work advances.
    pub(crate) clock: u64,
    pub(crate) policy: SchedulePolicy,
    n_waits: u64,
    next_handle: u64,
    /// Threads that wait for room in a launch queue, by device.
    pub(crate) waiting_threads: BTreeMap<usize, ThreadId>,
}

#[derive(Debug, Default)]
pub(crate) struct Device {
    /// Reference count of the primary context.
    pub(crate) retained: u32,
    /// Null stream of the device.
    pub(crate) null_stream: u64,
    /// Devices whose memory its kernels may access.
    pub(crate) peers: BTreeSet<usize>,
    /// Error that all calls return after work has failed.
    pub(crate) error: Option<Status>,
}

#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) device: usize,
    pub(crate) queue: VecDeque<Work>,
    /// True if the stream synchronizes with the null stream.
    pub(crate) is_blocking: bool,
    pub(crate) priority: i32,
    pub(crate) capture: Option<u64>,
    /// The graph at the front of the queue, after it has started.
    pub(crate) run: Option<GraphRun>,
    /// True if the work at the front of the queue, or a node of the graph there, never ends.
    pub(crate) hangs: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Event {
    pub(crate) device: usize,
    pub(crate) has_time: bool,
    /// Number of recordings, and the last completed one.
    pub(crate) recorded: u64,
    pub(crate) completed: u64,
    pub(crate) clock: u64,
    pub(crate) captured: Option<Captured>,
    /// The recording after which the event is removed.
    pub(crate) last: Option<u64>,
}

/// Work that starts when several streams have reached it.
pub(crate) struct Rendezvous {
    pub(crate) communication: Communication,
    /// The streams that it is queued on so far, and the number of all.
    pub(crate) streams: Vec<u64>,
    pub(crate) n_streams: usize,
    pub(crate) job: Job,
}

impl std::fmt::Debug for Rendezvous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rendezvous of {:?}", self.streams)
    }
}

/// Context handles: the first, and the distance between handles.
const CONTEXTS: (u64, u64) = (0x1000, 0x10);

static STATE: LazyLock<Mutex<State>> =
    LazyLock::new(|| Mutex::new(State::new(Settings::from_environment())));

thread_local! {
    static CURRENT: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

/// Locks the state.
pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

static N_PROBLEMS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of problems since the start.
pub(crate) fn n_problems() -> u64 {
    N_PROBLEMS.load(Ordering::Relaxed)
}

/// Reports a problem on standard error, since a driver has no other channel.
pub(crate) fn report_problem(message: &str) {
    N_PROBLEMS.fetch_add(1, Ordering::Relaxed);
    // A failed write cannot be reported.
    let _ = writeln!(stderr(), "fake CUDA: {message}");
}

impl State {
    fn new(settings: Settings) -> Self {
        let mut machine = Machine {
            memory: Memory::new(settings.devices.len(), settings.memory_bytes),
            random: Random::new(settings.seed),
            n_launches: 0,
            failing_launch: settings.fail_launch,
            hanging_launch: settings.hang_launch,
            planted_faults: settings.planted_faults.clone(),
        };
        let mut state = Self {
            policy: SchedulePolicy::new(&mut machine.random),
            machine,
            devices: Vec::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            rendezvous: BTreeMap::new(),
            captures: BTreeMap::new(),
            graphs: BTreeMap::new(),
            executables: BTreeMap::new(),
            aborted: BTreeSet::new(),
            programs: BTreeMap::new(),
            functions: BTreeMap::new(),
            counters: BTreeMap::new(),
            clock: 0,
            n_waits: 0,
            next_handle: 0x10_0000,
            waiting_threads: BTreeMap::new(),
            settings,
        };
        for device in 0..state.settings.devices.len() {
            let null_stream = state.new_handle();
            state.streams.insert(null_stream, Stream { device, ..Stream::default() });
            state.devices.push(Device { null_stream, ..Device::default() });
        }
        state
    }

    /// Starts another schedule, with all counters at zero and no device failed. After a failure or
    /// a hang, pending work on all devices is dropped.
    pub(crate) fn reset(&mut self, seed: u64) {
        let hangs = self.streams.values().any(|stream| stream.hangs);
        if hangs || self.devices.iter().any(|device| device.error.is_some()) {
            (0..self.devices.len()).for_each(|device| self.drop_work(device));
            self.rendezvous.clear();
        }
        self.machine.random = Random::new(seed);
        self.machine.n_launches = 0;
        self.policy = SchedulePolicy::new(&mut self.machine.random);
        self.n_waits = 0;
        self.counters.clear();
        for device in &mut self.devices {
            device.error = None;
        }
    }

    /// Returns a unique handle.
    pub(crate) fn new_handle(&mut self) -> u64 {
        self.next_handle += 0x10;
        self.next_handle
    }

    pub(crate) fn count(&mut self, name: &'static str) {
        *self.counters.entry(name).or_default() += 1;
    }

    /// Writes the numbers of calls to a file of this process, if there is a folder for that.
    pub(crate) fn write_counters(&self) {
        let Some(folder) = &self.settings.calls_folder else { return };
        let lines = self.counters.iter().map(|(name, count)| format!("{name} {count}\n"));
        let written = fs::create_dir_all(folder).and_then(|()| {
            fs::write(folder.join(process::id().to_string()), lines.collect::<String>())
        });
        if let Err(error) = written {
            report_problem(&format!("{}: {error}", folder.display()));
        }
    }

    /// Skips the n-th wait from now.
    pub(crate) fn skip_wait(&mut self, number: Option<u64>) {
        self.n_waits = 0;
        self.settings.skip_wait = number;
    }

    /// Counts a wait, and returns true if it must be skipped.
    pub(crate) fn is_skipped_wait(&mut self) -> bool {
        self.n_waits += 1;
        self.settings.skip_wait == Some(self.n_waits)
    }

    /// Marks a device as failed. Its pending work is dropped, and its events complete. Other
    /// devices wait for ever for its part of NCCL operations.
    pub(crate) fn fail_device(&mut self, device: usize, fault: &DeviceError) {
        report_problem(&format!("device {device}: {}", fault.message));
        self.devices[device].error = Some(fault.status);
        self.drop_work(device);
    }

    fn drop_work(&mut self, device: usize) {
        let on_device = |stream: &&mut Stream| stream.device == device;
        let lost: Vec<Work> = self
            .streams
            .values_mut()
            .filter(on_device)
            .flat_map(|stream| std::mem::take(&mut stream.queue))
            .collect();
        for stream in self.streams.values_mut().filter(on_device) {
            stream.run = None;
            stream.hangs = false;
        }
        for work in lost {
            if let Work::Record { event, record } = work {
                self.complete_event(event, record);
            }
        }
    }

    /// Drops a device's pending work of a communicator. The other devices keep waiting for it.
    pub(crate) fn abandon_communicator(&mut self, comm_id: u64, device: usize) {
        let of_communicator = |work: &Work| matches!(work, Work::Rendezvous(rendezvous) if self.rendezvous.get(rendezvous).is_some_and(|it| it.communication.comm_id == comm_id));
        for stream in self.streams.values_mut().filter(|stream| stream.device == device) {
            stream.queue.retain(|work| !of_communicator(work));
        }
        self.aborted.insert(comm_id);
    }

    /// Returns true if a graph with operations of the communicator has not been destroyed.
    pub(crate) fn has_graph_of(&self, comm_id: u64) -> bool {
        let mut graphs = self.graphs.values().chain(self.executables.values());
        graphs.any(|graph| graph.communications().any(|it| it.comm_id == comm_id))
    }

    pub(crate) fn complete_event(&mut self, event: u64, record: u64) {
        let clock = self.clock;
        let Some(known) = self.events.get_mut(&event) else { return };
        known.completed = known.completed.max(record);
        known.clock = clock;
        if known.last.is_some_and(|last| known.completed >= last) {
            self.events.remove(&event);
        }
    }

    /// Removes an event after a recording completes. Waits for a removed event return at once.
    pub(crate) fn forget_event(&mut self, event: u64, last: u64) {
        if let Some(known) = self.events.get_mut(&event) {
            known.last = Some(last);
            if known.completed >= last {
                self.events.remove(&event);
            }
        }
    }

    /// Returns the error of a failed device.
    pub(crate) fn check_device(&self, device: usize) -> ApiResult {
        self.devices[device].error.map_or(Ok(()), Err)
    }

    /// Returns the stream of a handle: a created stream, or the null stream of the current context.
    pub(crate) fn stream(&self, handle: Handle) -> ApiResult<u64> {
        // 1 and 2 are the legacy and the per-thread null stream.
        if handle.0 <= 2 {
            return Ok(self.devices[self.current_device()?].null_stream);
        }
        self.streams.contains_key(&handle.0).then_some(handle.0).ok_or(Status::INVALID_HANDLE)
    }

    pub(crate) fn device(&self, number: i32) -> ApiResult<usize> {
        usize::try_from(number)
            .ok()
            .filter(|&device| device < self.devices.len())
            .ok_or(Status::INVALID_DEVICE)
    }

    /// Returns the device of this thread's current context, unless it has failed.
    pub(crate) fn current_device(&self) -> ApiResult<usize> {
        let device = self.context_device(current_context())?;
        self.check_device(device).map(|()| device)
    }

    pub(crate) fn context_device(&self, context: Handle) -> ApiResult<usize> {
        let device = (0..self.devices.len()).find(|&device| context_of(device) == context);
        device.filter(|&device| self.devices[device].retained > 0).ok_or(Status::INVALID_CONTEXT)
    }

    /// Retains the primary context of a device and returns its handle.
    pub(crate) fn retain_context(&mut self, device: usize) -> Handle {
        self.devices[device].retained += 1;
        context_of(device)
    }
}

fn context_of(device: usize) -> Handle {
    Handle(CONTEXTS.0 + device as u64 * CONTEXTS.1)
}

/// Returns this thread's current context, or null.
pub(crate) fn current_context() -> Handle {
    CURRENT.with_borrow(|contexts| contexts.last().copied().unwrap_or(Handle(0)))
}

/// Replaces this thread's current context.
pub(crate) fn set_context(context: Handle) {
    let _ = pop_context();
    push_context(context);
}

pub(crate) fn push_context(context: Handle) {
    if context != Handle(0) {
        CURRENT.with_borrow_mut(|contexts| contexts.push(context));
    }
}

pub(crate) fn pop_context() -> Option<Handle> {
    CURRENT.with_borrow_mut(Vec::pop)
}
