//! Collectives as movements of elements: what each rank takes from the others.

use std::ops::Range;

use soybean_plan::{Collective, CollectiveKind, Kernel, Mesh};

use crate::overlap::Overlap;

/// Two ranks that each combine all elements move as many bytes as two that share them, and wait once less. From this many elements on,
/// the combining costs more than the waiting.
const WORTH_SHARING: usize = 32 * 1024;

/// From which ranks a rank takes which elements of their inputs, for its own result.
pub(crate) enum Movement {
    /// Copies the elements that it needs, each from the rank that has it.
    Copy(Vec<(usize, Overlap)>),
    /// Combines the elements that it keeps from all ranks of the group.
    Scatter { group: Vec<usize>, overlap: Overlap },
    /// Combines its share from all ranks of the group, then copies the others' shares.
    Reduce { group: Vec<usize>, shares: Vec<Range<usize>> },
}

impl Movement {
    /// The part of a rank in a collective.
    pub(crate) fn new(collective: &Collective, mesh: &Mesh, rank: usize) -> Self {
        let group = mesh.group(rank, collective.axes);
        let (from, to) = (collective.source(), collective.destination());
        let shared = |peer: usize| Overlap::between(mesh, (&to, rank), (&from, peer));
        match collective.kind {
            CollectiveKind::Slice => Self::Copy(vec![(rank, shared(rank))]),
            CollectiveKind::AllToAll | CollectiveKind::AllGather => {
                Self::Copy(group.iter().map(|peer| (*peer, shared(*peer))).collect())
            }
            // Partial results lie alike on all ranks of the group.
            CollectiveKind::ReduceScatter => Self::Scatter { group, overlap: shared(rank) },
            CollectiveKind::AllReduce => {
                let n_elements = from.local_shape(mesh).n_elements();
                if group.len() == 2 && n_elements < WORTH_SHARING {
                    return Self::Scatter { group, overlap: shared(rank) };
                }
                let shares = shares(n_elements, group.len());
                Self::Reduce { group, shares }
            }
        }
    }
}

/// Consecutive shares of about equal length that begin at cache lines, as far as there are enough elements.
fn shares(n_elements: usize, n_shares: usize) -> Vec<Range<usize>> {
    const LINE: usize = 16;
    let bound =
        |share: usize| (n_elements * share / n_shares).next_multiple_of(LINE).min(n_elements);
    (0..n_shares).map(|it| bound(it)..bound(it + 1)).collect()
}

/// The collective that a kernel is, if it is one.
pub(crate) const fn as_collective(kernel: &Kernel) -> Option<&Collective> {
    match kernel {
        Kernel::Communicate(collective) => Some(collective),
        _ => None,
    }
}
