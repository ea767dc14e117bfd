//! What communicators that do not block leave for later: joining, and the first calls of each, for which the library must find a way to the other ranks first. It is done when the state of a
//! communicator was asked for often enough; whoever goes on before finds nothing in the streams.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::group::{Call, give_calls};
use super::remote::Remote;
use super::{Refusal, Status};
use crate::state::lock;

/// Something that goes on in the background.
struct Pending {
    cliques: BTreeSet<u64>,
    /// How often it is to be asked for.
    n_polls: u64,
    /// The clique whose ranks are to join.
    joining: Option<Arc<Remote>>,
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

/// Begins something for these cliques.
pub(super) fn begin(cliques: BTreeSet<u64>, joining: Option<Arc<Remote>>, calls: Vec<Call>) {
    let n_polls = lock().machine.random.below(4);
    all().pending.push(Pending { cliques, n_polls, joining, calls });
}

/// Leaves calls for later if they are the first of a communicator that does not block.
pub(super) fn defer(calls: Vec<Call>) -> Result<(), Vec<Call>> {
    let cliques: BTreeSet<u64> = calls.iter().map(|call| call.communicator.clique).collect();
    let mut background = all();
    let n_before = background.connected.len();
    background.connected.extend(&cliques);
    let is_first = background.connected.len() > n_before;
    drop(background);
    if !is_first || calls.iter().any(|call| call.communicator.is_blocking) {
        return Err(calls);
    }
    begin(cliques, None, calls);
    Ok(())
}

/// Whether something goes on for a clique.
pub(super) fn is_busy(clique: u64) -> bool {
    all().pending.iter().any(|it| it.cliques.contains(&clique))
}

/// Goes on with what there is for a clique, and tells how far it is.
pub(super) fn look(clique: u64) -> Status {
    let mut background = all();
    if let Some((_, status)) = background.failed.iter().find(|it| it.0 == clique) {
        return *status;
    }
    let Some(at) = background.pending.iter().position(|it| it.cliques.contains(&clique)) else {
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
        Err(Refusal(status, _)) => return status,
    };
    drop(background);
    match give_calls(&calls) {
        Ok(()) => Status::SUCCESS,
        Err(Refusal(status, _)) => {
            all().failed.push((clique, status));
            status
        }
    }
}

/// Gives up what goes on for a clique.
pub(super) fn abandon(clique: u64) {
    all().pending.retain(|it| !it.cliques.contains(&clique));
}
