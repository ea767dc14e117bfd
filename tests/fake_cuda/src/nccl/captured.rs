//! Captured calls of the ranks of a communicator within this process. A thread captures the calls
//! of all ranks in one group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use super::collective::{CollectiveKind, NcclType};
use super::group::{Action, Call, DIFFERENT, Results, check_reduction, submit, write_result};
use super::{ApiResult, NcclError};
use crate::status::DeviceError;
use crate::work::{Communication, Job, Machine};

/// A point-to-point message between two ranks.
#[derive(Clone, Copy, Debug)]
struct Message {
    ranks: [(u64, usize); 2],
    streams: [u64; 2],
    devices: [usize; 2],
    data: [u64; 2],
    n_bytes: usize,
}

const NO_COUNTERPART: &std::ffi::CStr =
    c"the other ranks of the communicator make no such call in this group";

/// Captures the first calls of all ranks, then the second, and so on.
pub(super) fn capture_collectives(ranks: BTreeMap<usize, Vec<Call>>) -> ApiResult {
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
                capture_collective(&calls, kind, dtype, count)?;
            }
            Action::Join | Action::Send { .. } | Action::Receive { .. } => {}
        }
    }
}

fn capture_collective(
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

/// Captures messages. Only ranks that exchange messages, directly or through others, wait for each
/// other.
pub(super) fn capture_messages(calls: &[Call]) -> ApiResult {
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
