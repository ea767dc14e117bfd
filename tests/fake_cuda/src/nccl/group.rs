//! Groups of calls: at the end of a group the calls of all ranks find each other, and go to their streams.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use super::collective::{Kind, Number};
use super::{Answer, Communicator, Refusal, Status, check_devices};
use crate::state::lock;
use crate::status::Fault;
use crate::work::{Job, Machine, Task};

/// A call for one rank.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) communicator: Communicator,
    pub(super) stream: u64,
    pub(super) action: Action,
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    /// The rank becomes one of its clique.
    Join,
    Collective {
        kind: Kind,
        number: Number,
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

/// Data on their way from one rank to another.
#[derive(Clone, Copy, Debug)]
struct Parcel {
    ranks: [(u64, usize); 2],
    streams: [u64; 2],
    devices: [usize; 2],
    data: [u64; 2],
    n_bytes: usize,
}

thread_local! {
    /// How many groups are open, and the calls within.
    static OPEN: RefCell<(usize, Vec<Call>)> = const { RefCell::new((0, Vec::new())) };
}

const ALONE: &std::ffi::CStr = c"the other ranks of the clique make no such call in this group, so that this one would wait for ever";
const DIFFERENT: &std::ffi::CStr = c"ranks of a clique make different calls";

pub(super) fn start() {
    OPEN.with_borrow_mut(|(depth, _)| *depth += 1);
}

/// Adds a call to the open group, or makes a group of it.
pub(super) fn add(call: Call) -> Answer {
    start();
    OPEN.with_borrow_mut(|(_, calls)| calls.push(call));
    end()
}

/// Ends a group; the outermost gives all calls to their streams.
pub(super) fn end() -> Answer {
    let calls = OPEN.with_borrow_mut(|(depth, calls)| {
        *depth = depth.checked_sub(1).ok_or(Refusal::usage(c"no group is open"))?;
        Ok(if *depth == 0 { mem::take(calls) } else { Vec::new() })
    })?;
    let cliques: BTreeSet<u64> = calls.iter().map(|call| call.communicator.clique).collect();
    for clique in cliques {
        let mut ranks: BTreeMap<usize, Vec<Call>> = BTreeMap::new();
        for call in calls
            .iter()
            .filter(|call| call.communicator.clique == clique && !call.action.is_parcel())
        {
            ranks.entry(call.communicator.rank).or_default().push(call.clone());
        }
        give_collectives(ranks)?;
    }
    give_parcels(&calls)
}

/// Gives the first calls of all ranks, then the second, and so on.
fn give_collectives(ranks: BTreeMap<usize, Vec<Call>>) -> Answer {
    let mut ranks: Vec<_> = ranks.into_values().map(Vec::into_iter).collect();
    loop {
        let calls: Vec<Call> = ranks.iter_mut().filter_map(Iterator::next).collect();
        let Some(first) = calls.first() else { return Ok(()) };
        if calls.len() != first.communicator.n_ranks {
            return Err(Refusal::usage(ALONE));
        }
        if !calls.iter().all(|call| call.action.is_counterpart(&first.action)) {
            return Err(Refusal::usage(DIFFERENT));
        }
        match first.action {
            Action::Collective { kind, number, count, .. } => {
                give_collective(&calls, kind, number, count)?;
            }
            Action::Join => {
                check_devices(&calls.iter().map(|call| call.communicator).collect::<Vec<_>>())?;
            }
            Action::Send { .. } | Action::Receive { .. } => {}
        }
    }
}

/// What each rank receives, from when all have sent until it has received.
type Results = Arc<Mutex<Vec<Vec<u8>>>>;

fn give_collective(calls: &[Call], kind: Kind, number: Number, count: usize) -> Answer {
    if kind.reduces() && !number.is_reducible() {
        return Err(Refusal::argument(c"such numbers cannot be reduced here"));
    }
    let n_bytes = kind.counts(count, calls.len()).0 * number.n_bytes();
    let results = Results::default();
    let mut sends = Vec::new();
    let mut follow = Vec::new();
    for (rank, call) in calls.iter().enumerate() {
        let Action::Collective { send, receive, .. } = call.action else { continue };
        sends.push(if kind.sender().is_none_or(|root| root == rank) { Some(send) } else { None });
        if kind.receiver().is_none_or(|root| root == rank) {
            follow.push((
                call.stream,
                deliver(call.communicator.device, Arc::clone(&results), rank, receive),
            ));
        }
    }
    let job: Job = Arc::new(move |machine: &mut Machine| {
        let inputs = sends
            .iter()
            .map(|send| send.map_or(Ok(Vec::new()), |send| machine.memory.read(send, n_bytes)));
        let inputs: Vec<Vec<u8>> = inputs.collect::<Result<_, Fault>>()?;
        *results.lock().unwrap_or_else(PoisonError::into_inner) = kind.results(number, &inputs);
        Ok(())
    });
    let streams: Vec<u64> = calls.iter().map(|call| call.stream).collect();
    give(calls[0].communicator.clique, &streams, job, follow)
}

/// Writes one result to where it goes, or nothing where the operation was given up. Each stream does so in its own time, as ranks end an operation at
/// different times.
fn deliver(device: usize, results: Results, number: usize, to: u64) -> Task {
    Task::new(device, move |machine| {
        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
        let result = results.get_mut(number).map(mem::take).unwrap_or_default();
        machine.memory.write(to, &result)
    })
}

fn give(clique: u64, streams: &[u64], job: Job, follow: Vec<(u64, Task)>) -> Answer {
    lock()
        .give_together(clique, streams, job, follow)
        .map_err(|_| Refusal(Status::UNHANDLED_CUDA_ERROR, c"the streams refuse the operation"))
}

/// Gives what is sent and received. Ranks between which nothing goes, not even by way of others, do not wait for each other.
fn give_parcels(calls: &[Call]) -> Answer {
    let mut parcels = parcels(calls)?;
    while let Some(first) = parcels.pop() {
        let clique = first.ranks[0].0;
        let mut together = vec![first];
        loop {
            let ranks: BTreeSet<_> = together.iter().flat_map(|parcel| parcel.ranks).collect();
            let is_near =
                |parcel: &mut Parcel| parcel.ranks.iter().any(|rank| ranks.contains(rank));
            let near: Vec<Parcel> = parcels.extract_if(.., is_near).collect();
            if near.is_empty() {
                break;
            }
            together.extend(near);
        }
        let streams: BTreeSet<u64> = together.iter().flat_map(|parcel| parcel.streams).collect();
        let results = Results::default();
        let follow = together.iter().enumerate().map(|(number, parcel)| {
            (
                parcel.streams[1],
                deliver(parcel.devices[1], Arc::clone(&results), number, parcel.data[1]),
            )
        });
        let follow = follow.collect();
        let job: Job = Arc::new(move |machine: &mut Machine| {
            let sent =
                together.iter().map(|parcel| machine.memory.read(parcel.data[0], parcel.n_bytes));
            *results.lock().unwrap_or_else(PoisonError::into_inner) =
                sent.collect::<Result<_, Fault>>()?;
            Ok(())
        });
        give(clique, &streams.into_iter().collect::<Vec<_>>(), job, follow)?;
    }
    Ok(())
}

/// Finds the receiver of each sender: the n-th call for a pair of ranks on one side is that of the n-th on the other.
fn parcels(calls: &[Call]) -> Answer<Vec<Parcel>> {
    let mut senders: BTreeMap<[(u64, usize); 2], Vec<&Call>> = BTreeMap::new();
    let mut receivers = senders.clone();
    for call in calls {
        let own = (call.communicator.clique, call.communicator.rank);
        match call.action {
            Action::Send { to, .. } => senders.entry([own, (own.0, to)]).or_default().push(call),
            Action::Receive { from, .. } => {
                receivers.entry([(own.0, from), own]).or_default().push(call);
            }
            Action::Join | Action::Collective { .. } => {}
        }
    }
    if senders.len() != receivers.len() {
        return Err(Refusal::usage(ALONE));
    }
    let mut parcels = Vec::new();
    for (ranks, sends) in senders {
        let receives = receivers
            .get(&ranks)
            .filter(|receives| receives.len() == sends.len())
            .ok_or(Refusal::usage(ALONE))?;
        for (send, receive) in sends.into_iter().zip(receives) {
            parcels.push(Parcel::new(ranks, send, receive)?);
        }
    }
    Ok(parcels)
}

impl Parcel {
    fn new(ranks: [(u64, usize); 2], sender: &Call, receiver: &Call) -> Answer<Self> {
        let (
            Action::Send { data: from, n_bytes, .. },
            Action::Receive { data: to, n_bytes: expected, .. },
        ) = (&sender.action, &receiver.action)
        else {
            return Err(Refusal::usage(DIFFERENT));
        };
        if n_bytes != expected {
            return Err(Refusal::usage(DIFFERENT));
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
    fn is_parcel(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Receive { .. })
    }

    /// Whether another rank's call is part of the same operation.
    fn is_counterpart(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Join, Self::Join) => true,
            (
                Self::Collective { kind, number, count, .. },
                Self::Collective { kind: its_kind, number: its_number, count: its_count, .. },
            ) => (kind, number, count) == (its_kind, its_number, its_count),
            _ => false,
        }
    }
}
