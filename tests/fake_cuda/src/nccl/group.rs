//! Groups of calls. At the end of a group, the calls of all ranks are matched and submitted to
//! their streams.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{mem, thread};

use super::collective::{CollectiveCall, CollectiveKind, NcclType};
use super::remote::{self, RemoteGroup};
use super::{ApiResult, Communicator, NcclError, Status, background, check_devices};
use crate::state::lock;
use crate::status::DeviceError;
use crate::work::{Communication, Job, Machine, Task};

/// A call for one rank.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) communicator: Communicator,
    pub(super) stream: u64,
    pub(super) action: Action,
}

#[derive(Clone, Debug)]
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

/// A point-to-point message between two ranks.
#[derive(Clone, Copy, Debug)]
struct Message {
    ranks: [(u64, usize); 2],
    streams: [u64; 2],
    devices: [usize; 2],
    data: [u64; 2],
    n_bytes: usize,
}

thread_local! {
    /// Number of open groups, and their calls.
    static OPEN: RefCell<(usize, Vec<Call>)> = const { RefCell::new((0, Vec::new())) };
}

const NO_COUNTERPART: &std::ffi::CStr = c"the other ranks of the communicator make no such call in this group, so that this one would wait for ever";
const MIXED: &std::ffi::CStr = c"blocking and non-blocking communicators are in one group";
const DIFFERENT: &std::ffi::CStr = c"ranks of a communicator make different calls";

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
        background::begin(BTreeSet::from([first.comm_id]), remote, Vec::new());
        return Ok(true);
    }
    while let Some(remote) = &remote
        && !remote.is_joined()?
    {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

/// Submits all calls of a group.
pub(super) fn submit_calls(calls: &[Call]) -> ApiResult {
    let mut messages = Vec::new();
    for (comm_id, calls) in by_communicator(calls) {
        let (sent, collectives): (Vec<Call>, Vec<Call>) =
            calls.into_iter().partition(|call| call.action.is_point_to_point());
        let mut ranks: BTreeMap<usize, Vec<Call>> = BTreeMap::new();
        for call in collectives {
            ranks.entry(call.communicator.rank).or_default().push(call);
        }
        match remote::find(comm_id) {
            Some(remote) => submit_remote(&remote, ranks, &sent)?,
            None => {
                submit_collectives(ranks)?;
                messages.extend(sent);
            }
        }
    }
    submit_messages(&messages)
}

/// Submits the calls of a communicator with ranks in other processes. Each rank progresses
/// independently, but one thread must make the calls of all local ranks.
fn submit_remote(
    remote: &Arc<RemoteGroup>,
    ranks: BTreeMap<usize, Vec<Call>>,
    sent: &[Call],
) -> ApiResult {
    if !ranks.is_empty() && ranks.len() < remote.n_here() {
        return Err(NcclError::usage(NO_COUNTERPART));
    }
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
    let mut ranks: BTreeMap<usize, Vec<&Call>> = BTreeMap::new();
    for call in sent {
        ranks.entry(call.communicator.rank).or_default().push(call);
    }
    ranks.values().try_for_each(|calls| remote.submit_messages(calls))
}

fn check_reduction(kind: CollectiveKind, dtype: NcclType) -> ApiResult {
    if kind.reduces() && !dtype.is_reducible() {
        return Err(NcclError::argument(c"such numbers cannot be reduced here"));
    }
    Ok(())
}

/// Submits the first calls of all ranks, then the second, and so on.
fn submit_collectives(ranks: BTreeMap<usize, Vec<Call>>) -> ApiResult {
    let mut ranks: Vec<_> = ranks.into_values().map(Vec::into_iter).collect();
    loop {
        let calls: Vec<Call> = ranks.iter_mut().filter_map(Iterator::next).collect();
        let Some(first) = calls.first() else { return Ok(()) };
        if calls.len() != first.communicator.n_ranks {
            return Err(NcclError::usage(NO_COUNTERPART));
        }
        if !calls.iter().all(|call| call.action.is_counterpart(&first.action)) {
            return Err(NcclError::usage(DIFFERENT));
        }
        match first.action {
            Action::Collective { kind, dtype, count, .. } => {
                submit_collective(&calls, kind, dtype, count)?;
            }
            Action::Join | Action::Send { .. } | Action::Receive { .. } => {}
        }
    }
}

/// The results of all ranks, between the operation and the last write.
pub(super) type Results = Arc<Mutex<Vec<Vec<u8>>>>;

fn submit_collective(
    calls: &[Call],
    kind: CollectiveKind,
    dtype: NcclType,
    count: usize,
) -> ApiResult {
    check_reduction(kind, dtype)?;
    let n_bytes = kind.counts(count, calls.len()).0 * dtype.n_bytes();
    let results = Results::default();
    let mut sends = Vec::new();
    let mut after = Vec::new();
    for (rank, call) in calls.iter().enumerate() {
        let Action::Collective { send, receive, .. } = call.action else { continue };
        sends.push(if kind.sender().is_none_or(|root| root == rank) { Some(send) } else { None });
        if kind.receiver().is_none_or(|root| root == rank) {
            after.push((
                call.stream,
                write_result(call.communicator.device, Arc::clone(&results), rank, receive),
            ));
        }
    }
    let job: Job = Arc::new(move |machine: &mut Machine| {
        let inputs = sends
            .iter()
            .map(|send| send.map_or(Ok(Vec::new()), |send| machine.memory.read(send, n_bytes)));
        let inputs: Vec<Vec<u8>> = inputs.collect::<Result<_, DeviceError>>()?;
        *results.lock().unwrap_or_else(PoisonError::into_inner) = kind.results(dtype, &inputs);
        Ok(())
    });
    let streams: Vec<u64> = calls.iter().map(|call| call.stream).collect();
    submit(Communication::local(calls[0].communicator.comm_id), &streams, job, after)
}

/// Writes a result to its destination, or nothing if the operation was aborted. Each stream does so
/// on its own, since ranks complete an operation at different times.
pub(super) fn write_result(device: usize, results: Results, number: usize, to: u64) -> Task {
    Task::new(device, move |machine| {
        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
        let result = results.get_mut(number).map(mem::take).unwrap_or_default();
        machine.memory.write(to, &result)
    })
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

/// Submits messages. Only ranks that exchange messages, directly or through others, wait for each
/// other.
fn submit_messages(calls: &[Call]) -> ApiResult {
    let mut messages = messages(calls)?;
    while let Some(first) = messages.pop() {
        let comm_id = first.ranks[0].0;
        let mut together = vec![first];
        loop {
            let ranks: BTreeSet<_> = together.iter().flat_map(|message| message.ranks).collect();
            let is_near =
                |message: &mut Message| message.ranks.iter().any(|rank| ranks.contains(rank));
            let near: Vec<Message> = messages.extract_if(.., is_near).collect();
            if near.is_empty() {
                break;
            }
            together.extend(near);
        }
        let streams: BTreeSet<u64> = together.iter().flat_map(|message| message.streams).collect();
        let results = Results::default();
        let after = together.iter().enumerate().map(|(number, message)| {
            (
                message.streams[1],
                write_result(message.devices[1], Arc::clone(&results), number, message.data[1]),
            )
        });
        let after = after.collect();
        let job: Job = Arc::new(move |machine: &mut Machine| {
            let sent = together
                .iter()
                .map(|message| machine.memory.read(message.data[0], message.n_bytes));
            *results.lock().unwrap_or_else(PoisonError::into_inner) =
                sent.collect::<Result<_, DeviceError>>()?;
            Ok(())
        });
        let streams: Vec<u64> = streams.into_iter().collect();
        submit(Communication::local(comm_id), &streams, job, after)?;
    }
    Ok(())
}

/// Matches senders and receivers: the n-th send of a pair of ranks with its n-th receive.
fn messages(calls: &[Call]) -> ApiResult<Vec<Message>> {
    let mut senders: BTreeMap<[(u64, usize); 2], Vec<&Call>> = BTreeMap::new();
    let mut receivers = senders.clone();
    for call in calls {
        let own = (call.communicator.comm_id, call.communicator.rank);
        match call.action {
            Action::Send { to, .. } => senders.entry([own, (own.0, to)]).or_default().push(call),
            Action::Receive { from, .. } => {
                receivers.entry([(own.0, from), own]).or_default().push(call);
            }
            Action::Join | Action::Collective { .. } => {}
        }
    }
    if senders.len() != receivers.len() {
        return Err(NcclError::usage(NO_COUNTERPART));
    }
    let mut messages = Vec::new();
    for (ranks, sends) in senders {
        let receives = receivers
            .get(&ranks)
            .filter(|receives| receives.len() == sends.len())
            .ok_or(NcclError::usage(NO_COUNTERPART))?;
        for (send, receive) in sends.into_iter().zip(receives) {
            messages.push(Message::new(ranks, send, receive)?);
        }
    }
    Ok(messages)
}

impl Message {
    fn new(ranks: [(u64, usize); 2], sender: &Call, receiver: &Call) -> ApiResult<Self> {
        let (
            Action::Send { data: from, n_bytes, .. },
            Action::Receive { data: to, n_bytes: expected, .. },
        ) = (&sender.action, &receiver.action)
        else {
            return Err(NcclError::usage(DIFFERENT));
        };
        if n_bytes != expected {
            return Err(NcclError::usage(DIFFERENT));
        }
        let devices = [sender.communicator.device, receiver.communicator.device];
        Ok(Self {
            ranks,
            streams: [sender.stream, receiver.stream],
            devices,
            data: [*from, *to],
            n_bytes: *n_bytes,
        })
    }
}

impl Action {
    fn is_point_to_point(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Receive { .. })
    }

    /// Returns true if another rank's call belongs to the same operation.
    fn is_counterpart(&self, other: &Self) -> bool {
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
