//! Collectives as movements of elements between ranks.

use std::ops::Range;

use soybean_plan::{Bucket, Collective, CollectiveKind, Combine, DType, Kernel, Mesh};

use crate::tile_overlap::TileOverlap;

/// The elements that a rank reads from the inputs of other ranks to compute its result.
pub(crate) enum Movement {
    /// Copies each element of the result from the rank that has it.
    Copy(Vec<(usize, TileOverlap)>),
    /// Combines the rank's own elements from all ranks of the group.
    Scatter { group: Vec<usize>, overlap: TileOverlap },
    /// Combines the rank's share from all ranks of the group, then copies the other shares.
    Reduce { group: Vec<usize>, shares: Vec<Range<usize>> },
}

impl Movement {
    /// Returns the movement of a rank in a collective.
    pub(crate) fn new(collective: &Collective, mesh: &Mesh, rank: usize) -> Self {
        let group = mesh.group(rank, collective.axes);
        let shared = |peer: usize| received(collective, mesh, rank, peer);
        match collective.kind {
            CollectiveKind::Slice => Self::Copy(vec![(rank, shared(rank))]),
            CollectiveKind::AllToAll | CollectiveKind::AllGather | CollectiveKind::HaloExchange => {
                Self::Copy(group.iter().map(|peer| (*peer, shared(*peer))).collect())
            }
            // Partial results have the same layout on all ranks of the group.
            CollectiveKind::ReduceScatter => Self::Scatter { group, overlap: shared(rank) },
            CollectiveKind::AllReduce => match collective.shares(mesh) {
                Some(shares) => Self::Reduce { group, shares },
                None => Self::Scatter { group, overlap: shared(rank) },
            },
        }
    }
}

/// Returns the elements that `receiver` needs from the input of `sender`.
pub(crate) fn received(
    collective: &Collective,
    mesh: &Mesh,
    receiver: usize,
    sender: usize,
) -> TileOverlap {
    if collective.kind == CollectiveKind::HaloExchange {
        return TileOverlap::of_halo(collective, mesh, [receiver, sender]);
    }
    let (from, to) = (collective.source(), collective.destination());
    TileOverlap::between(mesh, (&to, receiver), (&from, sender))
}

/// Returns the elements of a rank's result that lie outside the tensor. They get the identity of
/// the collective's combination.
pub(crate) fn outside(collective: &Collective, mesh: &Mesh, rank: usize) -> Vec<TileOverlap> {
    match collective.kind {
        CollectiveKind::HaloExchange => TileOverlap::outside(collective, mesh, rank),
        CollectiveKind::Slice
        | CollectiveKind::ReduceScatter
        | CollectiveKind::AllReduce
        | CollectiveKind::AllToAll
        | CollectiveKind::AllGather => Vec::new(),
    }
}

/// Returns the bits of an element outside the tensor.
pub(crate) fn element_outside(collective: &Collective) -> u32 {
    match (collective.dtype, collective.combine) {
        (_, Combine::Sum) => 0,
        (DType::F32, Combine::Max) => f32::NEG_INFINITY.to_bits(),
        (DType::Bf16, Combine::Max) => f32::NEG_INFINITY.to_bits() >> 16,
        (DType::I32, Combine::Max) => collective.combine.integer_identity().cast_unsigned(),
    }
}

/// Returns the collectives of a kernel, if it is a bucket.
pub(crate) const fn as_bucket(kernel: &Kernel) -> Option<&Bucket> {
    match kernel {
        Kernel::Communicate(bucket) => Some(bucket),
        _ => None,
    }
}
