//! What communicators that do not block leave for later: joining, and the first calls of each, for which the library must find a way to the other ranks first. It is done when the state of a
//! communicator was asked for often enough; whoever goes on before finds nothing in the streams.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::group::{Call, submit_calls};
use super::remote::RemoteGroup;
use super::{NcclError, Status};
use crate::state::lock;

/// Something that goes on in the background.
struct Pending {
    comm_ids: BTreeSet<u64>,
    /// How often it is to be asked for.
    n_polls: u64,
    /// The comm_id whose ranks are to join.
    joining: Option<Arc<RemoteGroup>>,
    calls: Vec<Call>,
}

#[derive(Default)]
struct Background {
    pending: Vec<Pending>,
    /// Cliques whose ranks have a way to each other.
    connected: BTreeSet<u64>,
    /// Cliques for which something has failed.
    failed: Vec<(u64, Status)>,
}

static ALL: Mutex<Background> =
    Mutex::new(Background { pending: Vec::new(), connected: BTreeSet::new(), failed: Vec::new() });

fn all() -> MutexGuard<'static, Background> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins something for these comm_ids.
pub(super) fn begin(comm_ids: BTreeSet<u64>, joining: Option<Arc<RemoteGroup>>, calls: Vec<Call>) {
    let n_polls = lock().machine.random.below(4);
    all().pending.push(Pending { comm_ids, n_polls, joining, calls });
}

/// Leaves calls for later if they are the first of a communicator that does not block.
pub(super) fn defer(calls: Vec<Call>) -> Result<(), Vec<Call>> {
    let comm_ids: BTreeSet<u64> = calls.iter().map(|call| call.communicator.comm_id).collect();
    let mut background = all();
    let n_before = background.connected.len();
    background.connected.extend(&comm_ids);
    let is_first = background.connected.len() > n_before;
    drop(background);
    if !is_first || calls.iter().any(|call| call.communicator.is_blocking) {
        return Err(calls);
    }
    begin(comm_ids, None, calls);
    Ok(())
}

/// Whether something goes on for a comm_id.
pub(super) fn is_busy(comm_id: u64) -> bool {
    all().pending.iter().any(|it| it.comm_ids.contains(&comm_id))
}

/// Goes on with what there is for a comm_id, and tells how far it is.
pub(super) fn poll(comm_id: u64) -> Status {
    let mut background = all();
    if let Some((_, status)) = background.failed.iter().find(|it| it.0 == comm_id) {
        return *status;
    }
    let Some(at) = background.pending.iter().position(|it| it.comm_ids.contains(&comm_id)) else {
        return Status::SUCCESS;
    };
    let pending = &mut background.pending[at];
    if pending.n_polls > 0 {
        pending.n_polls -= 1;
        return Status::IN_PROGRESS;
    }
    let is_joined = pending.joining.as_ref().map_or(Ok(true), |it| it.is_joined());
    let Pending { calls, .. } = match is_joined {
        Ok(true) => background.pending.remove(at),
        Ok(false) => return Status::IN_PROGRESS,
        Err(NcclError(status, _)) => return status,
    };
    drop(background);
    match submit_calls(&calls) {
        Ok(()) => Status::SUCCESS,
        Err(NcclError(status, _)) => {
            all().failed.push((comm_id, status));
            status
        }
    }
}

/// Gives up what goes on for a comm_id.
pub(super) fn abandon(comm_id: u64) {
    all().pending.retain(|it| !it.comm_ids.contains(&comm_id));
}
