//! Groups of calls: at the end of a group the calls of all ranks find each other, and go to their streams.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{mem, thread};

use super::collective::{Kind, Number};
use super::remote::{self, Remote};
use super::{Answer, Communicator, Refusal, Status, background, check_devices};
use crate::state::lock;
use crate::status::Fault;
use crate::work::{Job, Machine, Ready, Task};

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
    if calls.is_empty() {
        return Ok(());
    }
    let (joining, calls): (Vec<Call>, Vec<Call>) =
        calls.into_iter().partition(|call| matches!(call.action, Action::Join));
    let mut goes_on = false;
    for (_, calls) in by_clique(&joining) {
        goes_on |= join(&calls)?;
    }
    match background::defer(calls) {
        Ok(()) => goes_on = true,
        Err(calls) => give_calls(&calls)?,
    }
    if goes_on { Err(Refusal::in_progress()) } else { Ok(()) }
}

fn by_clique(calls: &[Call]) -> BTreeMap<u64, Vec<Call>> {
    let mut cliques: BTreeMap<u64, Vec<Call>> = BTreeMap::new();
    for call in calls {
        cliques.entry(call.communicator.clique).or_default().push(call.clone());
    }
    cliques
}

/// Makes ranks members of their clique; whether that goes on in the background.
fn join(calls: &[Call]) -> Answer<bool> {
    let first = calls[0].communicator;
    check_devices(&calls.iter().map(|call| call.communicator).collect::<Vec<_>>())?;
    let mut remote = None;
    if calls.len() < first.n_ranks {
        let folder = lock().settings.nccl_folder.clone().ok_or(Refusal::usage(ALONE))?;
        remote = Some(remote::join(&folder, calls)?);
    }
    if !first.is_blocking {
        background::begin(BTreeSet::from([first.clique]), remote, Vec::new());
        return Ok(true);
    }
    while let Some(remote) = &remote
        && !remote.is_joined()?
    {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

/// Gives all calls of a group to their streams.
pub(super) fn give_calls(calls: &[Call]) -> Answer {
    let mut parcels = Vec::new();
    for (clique, calls) in by_clique(calls) {
        let (sent, collectives): (Vec<Call>, Vec<Call>) =
            calls.into_iter().partition(|call| call.action.is_parcel());
        let mut ranks: BTreeMap<usize, Vec<Call>> = BTreeMap::new();
        for call in collectives {
            ranks.entry(call.communicator.rank).or_default().push(call);
        }
        match remote::find(clique) {
            Some(remote) => give_remote(&remote, ranks, &sent)?,
            None => {
                give_collectives(ranks)?;
                parcels.extend(sent);
            }
        }
    }
    give_parcels(&parcels)
}

/// Gives the calls of a clique with ranks in other processes: here each rank goes by itself, but one thread has to make the calls of all.
fn give_remote(remote: &Arc<Remote>, ranks: BTreeMap<usize, Vec<Call>>, sent: &[Call]) -> Answer {
    if !ranks.is_empty() && ranks.len() < remote.n_here() {
        return Err(Refusal::usage(ALONE));
    }
    for call in ranks.values().flatten() {
        if let Action::Collective { kind, number, count, send, receive } = call.action {
            refuse_reduction(kind, number)?;
            remote.give_collective(call, (kind, number, count), [send, receive])?;
        }
    }
    let mut ranks: BTreeMap<usize, Vec<&Call>> = BTreeMap::new();
    for call in sent {
        ranks.entry(call.communicator.rank).or_default().push(call);
    }
    ranks.values().try_for_each(|calls| remote.give_parcels(calls))
}

fn refuse_reduction(kind: Kind, number: Number) -> Answer {
    if kind.reduces() && !number.is_reducible() {
        return Err(Refusal::argument(c"such numbers cannot be reduced here"));
    }
    Ok(())
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
            Action::Join | Action::Send { .. } | Action::Receive { .. } => {}
        }
    }
}

/// What each rank receives, from when all have sent until it has received.
pub(super) type Results = Arc<Mutex<Vec<Vec<u8>>>>;

fn give_collective(calls: &[Call], kind: Kind, number: Number, count: usize) -> Answer {
    refuse_reduction(kind, number)?;
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
    give(calls[0].communicator.clique, &streams, (job, None), follow)
}

/// Writes one result to where it goes, or nothing where the operation was given up. Each stream does so in its own time, as ranks end an operation at
/// different times.
pub(super) fn deliver(device: usize, results: Results, number: usize, to: u64) -> Task {
    Task::new(device, move |machine| {
        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
        let result = results.get_mut(number).map(mem::take).unwrap_or_default();
        machine.memory.write(to, &result)
    })
}

/// Gives streams what they do together, and what follows.
pub(super) fn give(
    clique: u64,
    streams: &[u64],
    work: (Job, Option<Ready>),
    follow: Vec<(u64, Task)>,
) -> Answer {
    lock()
        .give_together(clique, streams, work, follow)
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
        give(clique, &streams.into_iter().collect::<Vec<_>>(), (job, None), follow)?;
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
