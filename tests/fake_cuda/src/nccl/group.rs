//! Groups of calls. At the end of a group, the calls of all ranks are matched and submitted to
//! their streams.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{mem, thread};

use super::captured::{capture_collectives, capture_messages};
use super::collective::{CollectiveCall, CollectiveKind, NcclType};
use super::remote::{self, RemoteGroup};
use super::threads::{self, Caller};
use super::{ApiResult, Communicator, NcclError, Status, background, check_devices};
use crate::state::lock;
use crate::work::{Communication, Job, Task};

/// A call for one rank.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) communicator: Communicator,
    pub(super) stream: u64,
    pub(super) action: Action,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// The rank joins its communicator.
    Join,
    Collective {
        kind: CollectiveKind,
        dtype: NcclType,
        count: usize,
        send: u64,
        receive: u64,
    },
    Send {
        to: usize,
        data: u64,
        n_bytes: usize,
    },
    Receive {
        from: usize,
        data: u64,
        n_bytes: usize,
    },
}

thread_local! {
    /// Number of open groups, and their calls.
    static OPEN: RefCell<(usize, Vec<Call>)> = const { RefCell::new((0, Vec::new())) };
}

/// Number of the last group of calls.
static N_GROUPS: AtomicU64 = AtomicU64::new(0);

const NO_COUNTERPART: &std::ffi::CStr =
    c"the other ranks of the communicator make no such call in this group";
const MIXED: &std::ffi::CStr = c"blocking and non-blocking communicators are in one group";
pub(super) const DIFFERENT: &std::ffi::CStr = c"ranks of a communicator make different calls";

pub(super) fn start() {
    OPEN.with_borrow_mut(|(depth, _)| *depth += 1);
}

/// Adds a call to the open group, or makes it a group of its own.
pub(super) fn add(call: Call) -> ApiResult {
    start();
    OPEN.with_borrow_mut(|(_, calls)| calls.push(call));
    end()
}

/// Ends a group. The outermost submits all calls.
pub(super) fn end() -> ApiResult {
    let calls = OPEN.with_borrow_mut(|(depth, calls)| {
        *depth = depth.checked_sub(1).ok_or(NcclError::usage(c"no group is open"))?;
        Ok(if *depth == 0 { mem::take(calls) } else { Vec::new() })
    })?;
    if calls.is_empty() {
        return Ok(());
    }
    let (joining, calls): (Vec<Call>, Vec<Call>) =
        calls.into_iter().partition(|call| matches!(call.action, Action::Join));
    let mut is_in_progress = false;
    for (_, calls) in by_communicator(&joining) {
        is_in_progress |= join(&calls)?;
    }
    let is_blocking = |call: &Call| call.communicator.is_blocking;
    if calls.iter().all(is_blocking) {
        submit_calls(&calls)?;
    } else if calls.iter().any(is_blocking) {
        return Err(NcclError::argument(MIXED));
    } else {
        background::defer(calls);
        is_in_progress = true;
    }
    if is_in_progress { Err(NcclError::in_progress()) } else { Ok(()) }
}

fn by_communicator(calls: &[Call]) -> BTreeMap<u64, Vec<Call>> {
    let mut comm_ids: BTreeMap<u64, Vec<Call>> = BTreeMap::new();
    for call in calls {
        comm_ids.entry(call.communicator.comm_id).or_default().push(call.clone());
    }
    comm_ids
}

/// Joins ranks to their communicator. Returns true if that continues in the background.
fn join(calls: &[Call]) -> ApiResult<bool> {
    let first = calls[0].communicator;
    check_devices(&calls.iter().map(|call| call.communicator).collect::<Vec<_>>())?;
    let mut remote = None;
    if calls.len() < first.n_ranks {
        let folder = lock().settings.nccl_folder.clone().ok_or(NcclError::usage(NO_COUNTERPART))?;
        remote = Some(remote::join(&folder, calls)?);
    }
    if !first.is_blocking {
        let ranks = calls.iter().map(|call| call.communicator.comm_rank()).collect();
        background::begin(ranks, remote, Vec::new());
        return Ok(true);
    }
    while let Some(remote) = &remote
        && !remote.is_joined()?
    {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

/// Submits all calls of a group, and waits until the ranks are connected.
pub(super) fn submit_calls(calls: &[Call]) -> ApiResult {
    let group = N_GROUPS.fetch_add(1, Ordering::Relaxed);
    let caller = Caller { thread: thread::current().id(), group };
    let is_captured = |call: &Call| lock().streams[&call.stream].capture.is_some();
    let mut messages = Vec::new();
    for (comm_id, calls) in by_communicator(calls) {
        let is_captured = calls.iter().any(is_captured);
        let (sent, collectives): (Vec<Call>, Vec<Call>) =
            calls.into_iter().partition(|call| call.action.is_point_to_point());
        let (ranks, senders) = (by_rank(collectives), by_rank(sent));
        match remote::find(comm_id) {
            Some(remote) => submit_remote(&remote, &ranks, &senders)?,
            None if is_captured => {
                capture_collectives(ranks)?;
                messages.extend(senders.into_values().flatten());
            }
            None => submit_to_threads(&ranks, &senders, caller)?,
        }
    }
    capture_messages(&messages)?;
    calls.iter().try_for_each(|it| threads::connect(it.communicator))
}

fn by_rank(calls: Vec<Call>) -> BTreeMap<usize, Vec<Call>> {
    let mut ranks: BTreeMap<usize, Vec<Call>> = BTreeMap::new();
    for call in calls {
        ranks.entry(call.communicator.rank).or_default().push(call);
    }
    ranks
}

/// Submits calls of a communicator within this process. Other threads may call for other ranks.
fn submit_to_threads(
    ranks: &BTreeMap<usize, Vec<Call>>,
    senders: &BTreeMap<usize, Vec<Call>>,
    caller: Caller,
) -> ApiResult {
    for call in ranks.values().flatten() {
        let Action::Collective { kind, dtype, count, send, receive } = call.action else {
            continue;
        };
        check_reduction(kind, dtype)?;
        let collective = CollectiveCall { kind, dtype, count };
        threads::submit_collective(call, collective, [send, receive], caller)?;
    }
    senders.values().try_for_each(|it| threads::submit_messages(it, caller))
}

/// Submits the calls of a communicator with ranks in other processes. Each rank progresses
/// independently.
fn submit_remote(
    remote: &Arc<RemoteGroup>,
    ranks: &BTreeMap<usize, Vec<Call>>,
    senders: &BTreeMap<usize, Vec<Call>>,
) -> ApiResult {
    for call in ranks.values().flatten() {
        if let Action::Collective { kind, dtype, count, send, receive } = call.action {
            check_reduction(kind, dtype)?;
            remote.submit_collective(
                call,
                CollectiveCall { kind, dtype, count },
                [send, receive],
            )?;
        }
    }
    senders.values().try_for_each(|calls| remote.submit_messages(calls))
}

pub(super) fn check_reduction(kind: CollectiveKind, dtype: NcclType) -> ApiResult {
    if kind.reduces() && !dtype.is_reducible() {
        return Err(NcclError::argument(c"such numbers cannot be reduced here"));
    }
    Ok(())
}

/// The results of all ranks, between the operation and the last write.
pub(super) type Results = Arc<Mutex<Vec<Vec<u8>>>>;

/// Writes a result to its destination, or nothing if the operation was aborted. Each stream does so
/// on its own, since ranks complete an operation at different times.
pub(super) fn write_result(device: usize, results: Results, number: usize, to: u64) -> Task {
    Task::new(device, move |machine| {
        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
        let result = results.get_mut(number).map(mem::take).unwrap_or_default();
        machine.memory.write(to, &result)
    })
}

/// Submits a task of one rank.
pub(super) fn submit_task(stream: u64, task: Task) -> ApiResult {
    let refused = |_| NcclError(Status::UNHANDLED_CUDA_ERROR, c"the stream refuses the operation");
    lock().submit(stream, task).map_err(refused)
}

/// Submits work that several streams share, and the tasks after it.
pub(super) fn submit(
    communication: Communication,
    streams: &[u64],
    job: Job,
    after: Vec<(u64, Task)>,
) -> ApiResult {
    lock()
        .submit_rendezvous(communication, streams, job, after)
        .map_err(|_| NcclError(Status::UNHANDLED_CUDA_ERROR, c"the streams refuse the operation"))
}

impl Action {
    pub(super) fn is_point_to_point(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Receive { .. })
    }

    /// Returns true if another rank's call belongs to the same operation.
    pub(super) fn is_counterpart(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Join, Self::Join) => true,
            (
                Self::Collective { kind, dtype, count, .. },
                Self::Collective { kind: its_kind, dtype: its_dtype, count: its_count, .. },
            ) => (kind, dtype, count) == (its_kind, its_dtype, its_count),
            _ => false,
        }
    }
}
