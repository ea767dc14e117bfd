//! Background work of non-blocking communicators: initialization, and every group of calls. It
//! completes after the state was polled often enough. Work queued too early runs before it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::group::{Call, submit_calls};
use super::remote::RemoteGroup;
use super::{NcclError, Status};
use crate::state::lock;

/// A communicator and one of its ranks.
pub(super) type CommRank = (u64, usize);

/// An operation in the background.
struct Pending {
    ranks: BTreeSet<CommRank>,
    /// Number of polls until it may complete.
    n_polls: u64,
    /// The ranks that are joining.
    joining: Option<Arc<RemoteGroup>>,
    calls: Vec<Call>,
}

#[derive(Default)]
struct Background {
    pending: Vec<Pending>,
    /// Ranks with an error.
    failed: Vec<(CommRank, Status)>,
}

static ALL: Mutex<Background> = Mutex::new(Background { pending: Vec::new(), failed: Vec::new() });

fn all() -> MutexGuard<'static, Background> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts an operation for these ranks.
pub(super) fn begin(
    ranks: BTreeSet<CommRank>,
    joining: Option<Arc<RemoteGroup>>,
    calls: Vec<Call>,
) {
    let n_polls = lock().machine.random.below(4);
    all().pending.push(Pending { ranks, n_polls, joining, calls });
}

/// Defers the calls of a group. NCCL does so for each group of non-blocking communicators.
pub(super) fn defer(calls: Vec<Call>) {
    let ranks = calls.iter().map(|call| call.communicator.comm_rank()).collect();
    begin(ranks, None, calls);
}

/// Returns true if an operation of a rank is in progress.
pub(super) fn is_busy(rank: CommRank) -> bool {
    all().pending.iter().any(|it| it.ranks.contains(&rank))
}

/// Advances the operation of a rank and returns its state.
pub(super) fn poll(rank: CommRank) -> Status {
    let mut background = all();
    if let Some((_, status)) = background.failed.iter().find(|it| it.0 == rank) {
        return *status;
    }
    let Some(at) = background.pending.iter().position(|it| it.ranks.contains(&rank)) else {
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
            all().failed.push((rank, status));
            status
        }
    }
}

/// Drops the operations of a communicator.
pub(super) fn abandon(comm_id: u64) {
    all().pending.retain(|it| it.ranks.iter().all(|(of_rank, _)| *of_rank != comm_id));
}
