//! NCCL for the devices of one process, driven by one or several threads, or of several processes
//! of this machine.
//!
//! At the end of a group its calls are queued. An operation starts only after all of its ranks have
//! called it, and their streams have reached it.

#![expect(unsafe_code, reason = "C finds functions by name")]

mod background;
mod captured;
mod collective;
mod group;
mod remote;
mod threads;

use std::collections::BTreeSet;
use std::ffi::{CStr, c_int};
use std::process;
use std::sync::{Mutex, PoisonError};

use crate::ffi::{Address, Handle, In, Out, constant};
use crate::handles::Handles;
use crate::memory::MemoryKind;
use crate::state::{lock, report_problem};
use background::CommRank;
use collective::{CollectiveKind, NcclType, Reduction};
use group::{Action, Call};

static COMMUNICATORS: Handles<Communicator> = Handles::new();
static LAST_ERROR: Mutex<&CStr> = Mutex::new(c"");

/// A rank of a communicator, on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Communicator {
    comm_id: u64,
    rank: usize,
    n_ranks: usize,
    device: usize,
    /// True if calls wait for other ranks.
    is_blocking: bool,
}

impl Communicator {
    const fn comm_rank(&self) -> CommRank {
        (self.comm_id, self.rank)
    }
}

/// `ncclResult_t`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Status(u32);

/// Error of a call with its text.
struct NcclError(Status, &'static CStr);

type ApiResult<T = ()> = Result<T, NcclError>;

impl Status {
    const SUCCESS: Self = Self(0);
    const UNHANDLED_CUDA_ERROR: Self = Self(1);
    const SYSTEM_ERROR: Self = Self(2);
    const INVALID_ARGUMENT: Self = Self(4);
    const INVALID_USAGE: Self = Self(5);
    const REMOTE_ERROR: Self = Self(6);
    const IN_PROGRESS: Self = Self(7);

    fn text(self) -> &'static CStr {
        match self {
            Self::SUCCESS => c"no error",
            Self::UNHANDLED_CUDA_ERROR => c"unhandled cuda error",
            Self::SYSTEM_ERROR => c"unhandled system error",
            Self::IN_PROGRESS => c"NCCL operation in progress",
            Self::INVALID_ARGUMENT => c"invalid argument",
            Self::INVALID_USAGE => c"invalid usage",
            Self::REMOTE_ERROR => c"remote process exited or there was a network error",
            _ => c"unknown result code",
        }
    }
}

impl NcclError {
    fn argument(text: &'static CStr) -> Self {
        Self(Status::INVALID_ARGUMENT, text)
    }

    fn usage(text: &'static CStr) -> Self {
        Self(Status::INVALID_USAGE, text)
    }

    /// Returns the result of a call that continues in the background.
    fn in_progress() -> Self {
        Self(Status::IN_PROGRESS, c"")
    }
}

/// `ncclUniqueId`: the number of a communicator.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId {
    comm_id: u64,
    unused: [u64; 15],
}

impl UniqueId {
    /// Returns an id that is unique on this machine.
    fn new() -> Self {
        let comm_id = u64::from(process::id()) << 32 | lock().new_handle();
        Self { comm_id, unused: [0; 15] }
    }
}

/// `ncclConfig_t` of its first version.
#[repr(C)]
#[derive(Clone, Copy)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    is_blocking: c_int,
}

const MAGIC: u32 = 0xcafe_beef;
const VERSION: c_int = 22_809;
const NULL_RESULT: &CStr = c"a result has nowhere to go";
const UNKNOWN_COMMUNICATOR: &CStr = c"no such communicator";

macro_rules! nccl {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> Status {
            lock().count(stringify!($name));
            let body = || -> ApiResult { $body };
            body().map_or_else(record_error, |()| Status::SUCCESS)
        }
    )*};
}

nccl! {
    fn ncclGetVersion(version: Out<c_int>) { version.put(VERSION).ok_or(NcclError::argument(NULL_RESULT)) }
    fn ncclGetUniqueId(id: Out<UniqueId>) {
        id.put(UniqueId::new()).ok_or(NcclError::argument(NULL_RESULT))
    }
    fn ncclCommInitAll(communicators: Out<Handle>, count: c_int, devices: In<c_int>) {
        let count = usize::try_from(count).ok().filter(|&count| count > 0).ok_or(NcclError::argument(c"a communicator has at least one rank"))?;
        let devices = if devices.is_null() { (0..).take(count).collect() } else { devices.list(count).unwrap_or_default() };
        let comm_id = lock().new_handle();
        let mut made = Vec::new();
        for (rank, &device) in devices.iter().enumerate() {
            let device = lock().device(device).map_err(|_| NcclError::argument(c"no such device"))?;
            made.push(Communicator { comm_id, rank, n_ranks: count, device, is_blocking: true });
        }
        check_devices(&made)?;
        let handles: Vec<Handle> = made.into_iter().map(|communicator| COMMUNICATORS.add(communicator)).collect();
        communicators.put_list(&handles).ok_or(NcclError::argument(NULL_RESULT))
    }
    fn ncclCommInitRank(communicator: Out<Handle>, n_ranks: c_int, id: UniqueId, rank: c_int) {
        join(communicator, [n_ranks, rank], id, true)
    }
    fn ncclCommInitRankConfig(communicator: Out<Handle>, n_ranks: c_int, id: UniqueId, rank: c_int, config: In<Config>) {
        let config = config.get().filter(|it| it.magic == MAGIC && it.size >= size_of::<Config>() && it.version >= 21_400);
        let config = config.ok_or(NcclError::argument(c"the configuration was not initialized"))?;
        join(communicator, [n_ranks, rank], id, config.is_blocking != 0)
    }
    fn ncclCommFinalize(communicator: Handle) {
        let known = find(communicator)?;
        refuse_with_graphs(known.comm_id)?;
        if known.is_blocking {
            return Ok(());
        }
        background::begin(BTreeSet::from([known.comm_rank()]), None, Vec::new());
        Err(NcclError::in_progress())
    }
    fn ncclCommDestroy(communicator: Handle) {
        refuse_with_graphs(find(communicator)?.comm_id)?;
        COMMUNICATORS.remove(communicator).map(|_| ()).ok_or(NcclError::argument(UNKNOWN_COMMUNICATOR))
    }
    fn ncclCommAbort(communicator: Handle) {
        refuse_with_graphs(find(communicator)?.comm_id)?;
        let known = COMMUNICATORS.remove(communicator).ok_or(NcclError::argument(UNKNOWN_COMMUNICATOR))?;
        background::abandon(known.comm_id);
        lock().abandon_communicator(known.comm_id, known.device);
        Ok(())
    }
    fn ncclCommGetAsyncError(communicator: Handle, status: Out<Status>) {
        let known = find(communicator)?;
        let (fails, is_whole) = {
            let state = lock();
            (state.settings.fail_communicators, state.check_device(known.device))
        };
        let found = match (fails, is_whole) {
            (true, _) => Status::REMOTE_ERROR,
            (false, Err(_)) => Status::UNHANDLED_CUDA_ERROR,
            (false, Ok(())) => background::poll(known.comm_rank()),
        };
        status.put(found).ok_or(NcclError::argument(NULL_RESULT))
    }
    fn ncclCommCount(communicator: Handle, count: Out<c_int>) { put_count(find(communicator)?.n_ranks, count) }
    fn ncclCommUserRank(communicator: Handle, rank: Out<c_int>) { put_count(find(communicator)?.rank, rank) }
    fn ncclCommCuDevice(communicator: Handle, device: Out<c_int>) { put_count(find(communicator)?.device, device) }
    fn ncclGroupStart() {
        group::start();
        Ok(())
    }
    fn ncclGroupEnd() { group::end() }
    fn ncclAllReduce(send: u64, receive: u64, count: usize, number: u32, reduction: u32, communicator: Handle, stream: Handle) {
        collective(CollectiveKind::AllReduce(Reduction::new(reduction)?), [send, receive], count, number, communicator, stream)
    }
    fn ncclReduce(send: u64, receive: u64, count: usize, number: u32, reduction: u32, root: c_int, communicator: Handle, stream: Handle) {
        let root = peer(communicator, root)?;
        collective(CollectiveKind::Reduce(Reduction::new(reduction)?, root), [send, receive], count, number, communicator, stream)
    }
    fn ncclReduceScatter(send: u64, receive: u64, count: usize, number: u32, reduction: u32, communicator: Handle, stream: Handle) {
        collective(CollectiveKind::ReduceScatter(Reduction::new(reduction)?), [send, receive], count, number, communicator, stream)
    }
    fn ncclAllGather(send: u64, receive: u64, count: usize, number: u32, communicator: Handle, stream: Handle) {
        collective(CollectiveKind::AllGather, [send, receive], count, number, communicator, stream)
    }
    fn ncclBroadcast(send: u64, receive: u64, count: usize, number: u32, root: c_int, communicator: Handle, stream: Handle) {
        let root = peer(communicator, root)?;
        collective(CollectiveKind::Broadcast(root), [send, receive], count, number, communicator, stream)
    }
    fn ncclSend(send: u64, count: usize, number: u32, to: c_int, communicator: Handle, stream: Handle) {
        let n_bytes = count * NcclType::new(number)?.n_bytes();
        let action = Action::Send { to: peer(communicator, to)?, data: send, n_bytes };
        add(communicator, stream, action, &[(send, n_bytes)])
    }
    fn ncclRecv(receive: u64, count: usize, number: u32, from: c_int, communicator: Handle, stream: Handle) {
        let n_bytes = count * NcclType::new(number)?.n_bytes();
        let action = Action::Receive { from: peer(communicator, from)?, data: receive, n_bytes };
        add(communicator, stream, action, &[(receive, n_bytes)])
    }
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(status: Status) -> Address {
    constant(status.text())
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_communicator: Handle) -> Address {
    constant(*LAST_ERROR.lock().unwrap_or_else(PoisonError::into_inner))
}

fn record_error(NcclError(status, text): NcclError) -> Status {
    *LAST_ERROR.lock().unwrap_or_else(PoisonError::into_inner) = text;
    status
}

/// Reports an end of a communicator before that of graphs with its operations. Since 2.26 NCCL
/// would wait for them for ever, also when it aborts.
fn refuse_with_graphs(comm_id: u64) -> ApiResult {
    if lock().has_graph_of(comm_id) {
        report_problem("a communicator ends before the graphs with its operations");
        return Err(NcclError::usage(c"graphs have operations of the communicator"));
    }
    Ok(())
}

fn find(communicator: Handle) -> ApiResult<Communicator> {
    COMMUNICATORS.get(communicator).ok_or(NcclError::argument(UNKNOWN_COMMUNICATOR))
}

/// Creates a rank of a communicator on the current device.
fn join(
    communicator: Out<Handle>,
    [n_ranks, rank]: [c_int; 2],
    id: UniqueId,
    is_blocking: bool,
) -> ApiResult {
    let n_ranks = usize::try_from(n_ranks).ok();
    let rank = usize::try_from(rank).ok();
    let rank = rank.filter(|&rank| n_ranks.is_some_and(|n_ranks| rank < n_ranks));
    let (Some(n_ranks), Some(rank)) = (n_ranks, rank) else {
        return Err(NcclError::argument(c"the rank is not one of the ranks"));
    };
    let device = lock()
        .current_device()
        .map_err(|_| NcclError(Status::UNHANDLED_CUDA_ERROR, c"no current device"))?;
    let made = Communicator { comm_id: id.comm_id, rank, n_ranks, device, is_blocking };
    communicator.put(COMMUNICATORS.add(made)).ok_or(NcclError::argument(NULL_RESULT))?;
    group::add(Call { communicator: made, stream: 0, action: Action::Join })
}

fn put_count(count: usize, to: Out<c_int>) -> ApiResult {
    c_int::try_from(count)
        .ok()
        .and_then(|count| to.put(count))
        .ok_or(NcclError::argument(NULL_RESULT))
}

/// Returns a rank of the communicator.
fn peer(communicator: Handle, rank: c_int) -> ApiResult<usize> {
    let n_ranks = find(communicator)?.n_ranks;
    usize::try_from(rank)
        .ok()
        .filter(|&rank| rank < n_ranks)
        .ok_or(NcclError::argument(c"no such rank"))
}

/// Rejects communicators with two ranks on one device, which would wait for each other.
fn check_devices(communicators: &[Communicator]) -> ApiResult {
    let is_twice = |(number, one): (usize, &Communicator)| {
        communicators[..number].iter().any(|other| other.device == one.device)
    };
    if communicators.iter().enumerate().any(is_twice) {
        Err(NcclError::usage(c"a device takes part twice"))
    } else {
        Ok(())
    }
}

fn collective(
    kind: CollectiveKind,
    [send, receive]: [u64; 2],
    count: usize,
    number: u32,
    communicator: Handle,
    stream: Handle,
) -> ApiResult {
    let dtype = NcclType::new(number)?;
    let known = find(communicator)?;
    let (sent, received) = kind.counts(count, known.n_ranks);
    let mut ranges = Vec::new();
    // With a root, only the root's buffer is checked.
    if kind.sender().is_none_or(|root| root == known.rank) {
        ranges.push((send, sent * dtype.n_bytes()));
    }
    if kind.receiver().is_none_or(|root| root == known.rank) {
        ranges.push((receive, received * dtype.n_bytes()));
    }
    add(communicator, stream, Action::Collective { kind, dtype, count, send, receive }, &ranges)
}

/// Adds a call to the group, after checks of its stream and memory.
fn add(communicator: Handle, stream: Handle, action: Action, ranges: &[(u64, usize)]) -> ApiResult {
    let communicator = find(communicator)?;
    if background::is_busy(communicator.comm_rank()) {
        return Err(NcclError::usage(c"the communicator works on something in the background"));
    }
    let stream = {
        let state = lock();
        let stream = state.stream(stream).map_err(|_| NcclError::argument(c"no such stream"))?;
        if state.streams[&stream].device != communicator.device {
            return Err(NcclError::argument(c"the stream is another device's"));
        }
        let is_there = |&(data, n_bytes): &(u64, usize)| {
            n_bytes == 0
                || state.machine.memory.kind(data, n_bytes)
                    == Some(MemoryKind::Device(communicator.device))
        };
        if !ranges.iter().all(is_there) {
            return Err(NcclError::argument(c"data are not in the device's memory"));
        }
        stream
    };
    group::add(Call { communicator, stream, action })
}
