//! Operations whose ranks are called by several threads of this process. A rank's part is on its
//! stream when the call returns, and starts when all ranks have reached it.
//!
//! The first operation of a rank returns only after its counterparts were called, because NCCL
//! connects ranks then. So a thread that calls for several ranks one after another may wait for
//! ever. Such calls are rejected whether they would wait or not.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use super::collective::CollectiveCall;
use super::group::{Action, Call, DIFFERENT, Results, submit_task, write_result};
use super::{ApiResult, Communicator, NcclError, Status};
use crate::state::{lock, report_problem};
use crate::status::DeviceError;
use crate::work::{Communication, Job, Machine, Task};

const ONE_AFTER_ANOTHER: &CStr = c"a thread calls for several ranks of a communicator one after another, so that one may wait for ever";
const ABORTED: &CStr = c"the communicator was aborted";
const REFUSED: &CStr = c"the stream refuses the operation";

/// The calls of the ranks of one communicator.
#[derive(Default)]
struct Calls {
    /// Number of collectives that each rank has called.
    n_collectives: BTreeMap<usize, u64>,
    /// Collectives that some ranks have not called, by number.
    open: BTreeMap<u64, OpenCollective>,
    /// Messages by sender and receiver.
    messages: BTreeMap<[usize; 2], Messages>,
    /// Thread and group of the last messages of each rank.
    callers: BTreeMap<usize, Caller>,
}

/// A thread, and the number of its group of calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) thread: ThreadId,
    pub(super) group: u64,
}

struct OpenCollective {
    call: CollectiveCall,
    rendezvous: u64,
    callers: BTreeMap<usize, Caller>,
    /// Send buffers by rank.
    sends: Arc<Mutex<Vec<Option<u64>>>>,
    results: Results,
}

/// The messages from one rank to another, each with its number of bytes.
#[derive(Default)]
struct Messages {
    sent: Vec<usize>,
    received: Vec<usize>,
}

/// Data of messages whose senders and receivers have arrived.
#[derive(Default)]
struct Mailbox {
    data: BTreeMap<u64, Vec<u8>>,
    receivers: BTreeSet<u64>,
}

type Mailboxes = BTreeMap<(u64, [usize; 2]), Mailbox>;

static CALLS: Mutex<BTreeMap<u64, Calls>> = Mutex::new(BTreeMap::new());
/// Locked by running work, so nobody locks the state while he holds it.
static MAILBOXES: Mutex<Mailboxes> = Mutex::new(BTreeMap::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Calls {
    /// Rejects calls of a thread that may still wait for another rank of its own.
    fn check(&self, rank: usize, caller: Caller) -> ApiResult {
        let is_open = |rank: &usize| {
            self.messages.iter().any(|([from, to], it)| {
                let (n_sent, n_received) = (it.sent.len(), it.received.len());
                from == rank && n_sent > n_received || to == rank && n_received > n_sent
            })
        };
        let waiting = self.callers.iter().filter(|it| is_open(it.0));
        let mut waiting = waiting.chain(self.open.values().flat_map(|it| &it.callers));
        let conflicts = |(other, known): (&usize, &Caller)| {
            *other != rank && known.thread == caller.thread && known.group != caller.group
        };
        if waiting.any(conflicts) {
            report_problem("a thread calls for several ranks of a communicator one after another");
            return Err(NcclError::usage(ONE_AFTER_ANOTHER));
        }
        Ok(())
    }
}

/// Submits a rank's part of a collective.
pub(super) fn submit_collective(
    call: &Call,
    collective: CollectiveCall,
    [send, receive]: [u64; 2],
    caller: Caller,
) -> ApiResult {
    let (communicator, kind) = (call.communicator, collective.kind);
    let (rank, n_ranks) = (communicator.rank, communicator.n_ranks);
    let (rendezvous, results) = {
        let mut all = locked(&CALLS);
        let calls = all.entry(communicator.comm_id).or_default();
        calls.check(rank, caller)?;
        let number = calls.n_collectives.entry(rank).or_default();
        *number += 1;
        let open = calls.open.entry(*number);
        let open = open.or_insert_with(|| OpenCollective::new(call, collective));
        if open.call != collective {
            report_problem("ranks of a communicator make different calls");
            return Err(NcclError::usage(DIFFERENT));
        }
        open.callers.insert(rank, caller);
        let is_sender = kind.sender().is_none_or(|root| root == rank);
        locked(&open.sends)[rank] = is_sender.then_some(send);
        let found = (open.rendezvous, Arc::clone(&open.results));
        if open.callers.len() == n_ranks {
            calls.open.remove(&calls.n_collectives[&rank]);
        }
        found
    };
    let joined = lock().join_rendezvous(rendezvous, call.stream);
    joined.map_err(|_| NcclError(Status::UNHANDLED_CUDA_ERROR, REFUSED))?;
    if kind.receiver().is_none_or(|root| root == rank) {
        submit_task(call.stream, write_result(communicator.device, results, rank, receive))?;
    }
    Ok(())
}

impl OpenCollective {
    fn new(call: &Call, collective: CollectiveCall) -> Self {
        let CollectiveCall { kind, dtype, count } = collective;
        let n_ranks = call.communicator.n_ranks;
        let n_bytes = kind.counts(count, n_ranks).0 * dtype.n_bytes();
        let (sends, results) = (Arc::new(Mutex::new(vec![None; n_ranks])), Results::default());
        let (senders, all) = (Arc::clone(&sends), Arc::clone(&results));
        let job: Job = Arc::new(move |machine: &mut Machine| {
            let senders = locked(&senders);
            let read = |it: &Option<u64>| {
                it.map_or(Ok(Vec::new()), |send| machine.memory.read(send, n_bytes))
            };
            let inputs: Vec<Vec<u8>> = senders.iter().map(read).collect::<Result<_, _>>()?;
            *locked(&all) = kind.results(dtype, &inputs);
            Ok(())
        });
        let communication = Communication::local(call.communicator.comm_id);
        let rendezvous = lock().open_rendezvous(communication, n_ranks, job);
        Self { call: collective, rendezvous, callers: BTreeMap::new(), sends, results }
    }
}

/// Submits the messages of a rank in a group. They end when their counterparts have started.
pub(super) fn submit_messages(messages: &[Call], caller: Caller) -> ApiResult {
    let Some(first) = messages.first() else { return Ok(()) };
    let communicator = first.communicator;
    let (comm_id, device) = (communicator.comm_id, communicator.device);
    let numbers = numbered(messages, caller)?;
    let arrived = numbers.clone();
    let arrive = Task::new(device, move |machine| {
        let mut mailboxes = locked(&MAILBOXES);
        for &(pair, number, action) in &arrived {
            let mailbox = mailboxes.entry((comm_id, pair)).or_default();
            match action {
                Action::Send { data, n_bytes, .. } => {
                    mailbox.data.insert(number, machine.memory.read(data, n_bytes)?);
                }
                _ => _ = mailbox.receivers.insert(number),
            }
        }
        Ok::<(), DeviceError>(())
    });
    submit_task(first.stream, arrive)?;
    let awaited = numbers.clone();
    let is_ready = move || {
        let mailboxes = locked(&MAILBOXES);
        awaited.iter().all(|&(pair, number, action)| {
            mailboxes.get(&(comm_id, pair)).is_some_and(|mailbox| match action {
                Action::Send { .. } => mailbox.receivers.contains(&number),
                _ => mailbox.data.contains_key(&number),
            })
        })
    };
    let communication = Communication::among_threads(comm_id, Arc::new(is_ready));
    let job: Job = Arc::new(|_: &mut Machine| Ok(()));
    {
        let mut state = lock();
        let rendezvous = state.open_rendezvous(communication, 1, job);
        let joined = state.join_rendezvous(rendezvous, first.stream);
        joined.map_err(|_| NcclError(Status::UNHANDLED_CUDA_ERROR, REFUSED))?;
    }
    for (pair, number, action) in numbers {
        let Action::Receive { data, .. } = action else { continue };
        let write = Task::new(device, move |machine| {
            let mut mailboxes = locked(&MAILBOXES);
            let mailbox = mailboxes.get_mut(&(comm_id, pair));
            // Nothing was sent if the communicator was aborted.
            let sent = mailbox.and_then(|it| it.data.get(&number)).cloned().unwrap_or_default();
            machine.memory.write(data, &sent)
        });
        submit_task(first.stream, write)?;
    }
    Ok(())
}

/// Returns the messages with sender and receiver, and their numbers among the messages of these.
fn numbered(messages: &[Call], caller: Caller) -> ApiResult<Vec<([usize; 2], u64, Action)>> {
    let communicator = messages[0].communicator;
    let rank = communicator.rank;
    let mut all = locked(&CALLS);
    let calls = all.entry(communicator.comm_id).or_default();
    calls.check(rank, caller)?;
    calls.callers.insert(rank, caller);
    let mut numbers = Vec::new();
    for call in messages {
        let (pair, n_bytes) = match call.action {
            Action::Send { to, n_bytes, .. } => ([rank, to], n_bytes),
            Action::Receive { from, n_bytes, .. } => ([from, rank], n_bytes),
            Action::Join | Action::Collective { .. } => continue,
        };
        let known = calls.messages.entry(pair).or_default();
        let (own, others) = match call.action {
            Action::Send { .. } => (&mut known.sent, &known.received),
            _ => (&mut known.received, &known.sent),
        };
        let number = own.len();
        own.push(n_bytes);
        if others.get(number).is_some_and(|it| *it != n_bytes) {
            report_problem("ranks of a communicator make different calls");
            return Err(NcclError::usage(DIFFERENT));
        }
        numbers.push((pair, number as u64, call.action));
    }
    Ok(numbers)
}

/// Waits until the first operation of a rank has been called by all ranks that it connects.
pub(super) fn connect(communicator: Communicator) -> ApiResult {
    let Communicator { comm_id, rank, n_ranks, .. } = communicator;
    let is_connected = |calls: &Calls| {
        let has_called = calls.n_collectives.contains_key(&rank);
        let mut messages = calls.messages.iter();
        (!has_called || calls.n_collectives.len() == n_ranks)
            && messages.all(|([from, to], it)| {
                let [has_sent, has_received] = [!it.sent.is_empty(), !it.received.is_empty()];
                (*from != rank || !has_sent || has_received)
                    && (*to != rank || !has_received || has_sent)
            })
    };
    while locked(&CALLS).get(&comm_id).is_some_and(|it| !is_connected(it)) {
        if lock().aborted.contains(&comm_id) {
            return Err(NcclError(Status::REMOTE_ERROR, ABORTED));
        }
        thread::sleep(Duration::from_micros(20));
    }
    Ok(())
}
