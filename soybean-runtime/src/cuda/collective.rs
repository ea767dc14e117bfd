//! Buckets of collectives as tasks.
//!
//! If every rank has its own GPU, NCCL moves the data. Otherwise each rank reads the memory of its
//! peers.

mod halo;

use std::ops::Range;

use soybean_plan::{
    Access, AxisSet, BUFFER_ALIGNMENT, Collective, CollectiveKind, Combine, DType, Lane, Mesh,
};

use super::{
    nccl::NcclOperation,
    transfer::{
        MemoryBlock, MemoryLocation, PackedSide, Transfer, TransferPart, contiguous, packed,
        with_offset,
    },
};
use crate::{Error, movement::Movement, tile_overlap::TileOverlap};

/// Way in which ranks exchange data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommunicationBackend {
    /// Kernels read the memory of other ranks.
    PeerAccess,
    /// Collectives and point-to-point calls of NCCL.
    Nccl,
}

/// Part of a bucket that is scheduled as one task.
pub(crate) struct CollectiveTask {
    /// Transfers before the calls; those that read the memory of peers, too.
    before: Vec<Transfer>,
    /// Calls of one group of NCCL.
    calls: Vec<NcclCall>,
    /// Transfers after the calls.
    after: Vec<Transfer>,
    pub(crate) access: Access,
    /// Bytes that each rank receives from other ranks.
    pub(crate) received: Vec<u64>,
}

impl CollectiveTask {
    /// Adds the work of a task of another collective of the same kind along the same axes.
    fn join(&mut self, other: Self) {
        self.before.extend(other.before);
        self.calls.extend(other.calls);
        self.after.extend(other.after);
        self.access.reads.extend(other.access.reads);
        self.access.group_reads.extend(other.access.group_reads);
        self.access.writes.extend(other.access.writes);
        self.received.iter_mut().zip(other.received).for_each(|(sum, it)| *sum += it);
    }

    /// Returns the operations in their order.
    pub(crate) fn into_operations(self) -> Vec<CollectiveOperation> {
        let before = self.before.into_iter().map(CollectiveOperation::Transfer);
        let calls = (!self.calls.is_empty()).then_some(CollectiveOperation::Nccl(self.calls));
        let after = self.after.into_iter().map(CollectiveOperation::Transfer);
        before.chain(calls).chain(after).collect()
    }

    /// Returns all transfers.
    pub(crate) fn transfers_mut(&mut self) -> impl Iterator<Item = &mut Transfer> {
        self.before.iter_mut().chain(&mut self.after)
    }
}

/// Joins the tasks of the collectives of a bucket: the first ones, the second ones, and so on.
pub(crate) fn joined(
    collectives: impl Iterator<Item = Vec<CollectiveTask>>,
) -> Vec<CollectiveTask> {
    let mut joined: Vec<CollectiveTask> = Vec::new();
    for tasks in collectives {
        for (phase, task) in tasks.into_iter().enumerate() {
            match joined.get_mut(phase) {
                Some(all) => all.join(task),
                None => joined.push(task),
            }
        }
    }
    joined
}

/// One operation that all ranks take part in.
pub(crate) enum CollectiveOperation {
    Transfer(Transfer),
    /// Calls along the same axes, as one group of NCCL.
    Nccl(Vec<NcclCall>),
}

/// An NCCL call that all ranks of each group make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NcclCall {
    pub(crate) operation: NcclOperation,
    pub(crate) axes: AxisSet,
    pub(crate) dtype: DType,
    /// Elements per rank, as NCCL counts them for this call.
    pub(crate) n_elements: usize,
    pub(crate) send: (MemoryBlock, usize),
    pub(crate) receive: (MemoryBlock, usize),
}

/// The elements that one rank reads from other ranks.
struct RankTransfers {
    /// Elements that it copies or combines from the inputs of its group.
    parts: Vec<TransferPart>,
    /// Elements that it then copies from the results of its group.
    gathered: Vec<TransferPart>,
    /// Number of elements in both lists that come from other ranks.
    n_received: usize,
}

/// Builder of the tasks of one collective between two buffers of the arena.
pub(crate) struct CollectiveBuilder<'a> {
    pub(crate) mesh: &'a Mesh,
    pub(crate) collective: &'a Collective,
    pub(crate) input: Range<usize>,
    pub(crate) result: Range<usize>,
    /// Words in use per rank for the patterns of transfers.
    pub(crate) n_words: &'a mut Vec<usize>,
    /// End of the staging memory of the bucket's collectives so far.
    pub(crate) staging_end: &'a mut usize,
}

impl CollectiveBuilder<'_> {
    /// Returns the tasks of the collective.
    pub(crate) fn tasks(
        &mut self,
        backend: CommunicationBackend,
    ) -> Result<Vec<CollectiveTask>, Error> {
        match (backend, self.collective.kind) {
            (_, CollectiveKind::Slice) | (CommunicationBackend::PeerAccess, _) => {
                self.peer_access()
            }
            (CommunicationBackend::Nccl, CollectiveKind::AllReduce) => Ok(vec![self.all_reduce()]),
            (CommunicationBackend::Nccl, CollectiveKind::AllGather) => Ok(vec![self.all_gather()?]),
            (
                CommunicationBackend::Nccl,
                CollectiveKind::ReduceScatter | CollectiveKind::AllToAll,
            ) => Ok(vec![self.scatter()?]),
            (CommunicationBackend::Nccl, CollectiveKind::HaloExchange) => {
                Ok(vec![self.halo_exchange()?])
            }
        }
    }

    fn n_bytes(&self, n_elements: usize) -> u64 {
        (n_elements * self.collective.dtype.bytes()) as u64
    }

    fn arena(rank: usize, range: &Range<usize>) -> MemoryLocation {
        MemoryLocation { rank, block: MemoryBlock::Arena, offset: range.start }
    }

    fn transfer(
        &mut self,
        combine: Option<Combine>,
        parts: Vec<(MemoryLocation, Vec<TransferPart>)>,
    ) -> Result<Transfer, Error> {
        Transfer::new(combine, self.collective.dtype, parts, self.n_words)
    }

    /// Builds transfers in which each rank reads the memory of its peers.
    fn peer_access(&mut self) -> Result<Vec<CollectiveTask>, Error> {
        let (mut received, mut first, mut second) = (Vec::new(), Vec::new(), Vec::new());
        for rank in 0..self.mesh.n_ranks() {
            let RankTransfers { parts, gathered, n_received } = self.rank_transfers(rank);
            received.push(self.n_bytes(n_received));
            first.push((Self::arena(rank, &self.result), parts));
            second.push((Self::arena(rank, &self.result), gathered));
        }
        let is_shared = second.iter().any(|it| !it.1.is_empty());
        let combine = match self.collective.kind {
            CollectiveKind::ReduceScatter | CollectiveKind::AllReduce => {
                Some(self.collective.combine)
            }
            CollectiveKind::Slice
            | CollectiveKind::AllToAll
            | CollectiveKind::AllGather
            | CollectiveKind::HaloExchange => None,
        };
        let first = self.transfer(combine, first)?;
        let mut tasks = vec![self.peer_access_task(first, self.input.clone(), received)];
        tasks[0].before.extend(self.filled_outside()?);
        if is_shared {
            let second = self.transfer(None, second)?;
            let none = vec![0; self.mesh.n_ranks()];
            tasks.push(self.peer_access_task(second, self.result.clone(), none));
        }
        Ok(tasks)
    }

    /// Returns the elements that a rank reads from its group.
    fn rank_transfers(&self, rank: usize) -> RankTransfers {
        let all = |group: &[usize]| {
            group.iter().map(|it| Self::arena(*it, &self.input)).collect::<Vec<_>>()
        };
        match Movement::new(self.collective, self.mesh, rank) {
            Movement::Copy(parts) => {
                let others = parts.iter().filter(|(peer, _)| *peer != rank);
                let n_received = others.map(|(_, overlap)| n_shared(overlap)).sum();
                let part = |(peer, overlap): &(usize, TileOverlap)| TransferPart {
                    sources: vec![Self::arena(*peer, &self.input)],
                    dims: overlap.dims(),
                };
                let parts = parts.iter().map(part).collect();
                RankTransfers { parts, gathered: Vec::new(), n_received }
            }
            Movement::Scatter { group, overlap } => RankTransfers {
                parts: vec![TransferPart { sources: all(&group), dims: overlap.dims() }],
                gathered: Vec::new(),
                n_received: n_shared(&overlap) * (group.len() - 1),
            },
            Movement::Reduce { group, shares } => {
                let (mut parts, mut gathered, mut n_received) = (Vec::new(), Vec::new(), 0);
                for (peer, share) in group.iter().zip(&shares) {
                    let dims = contiguous(share);
                    if *peer == rank {
                        n_received += share.len() * (group.len() - 1);
                        parts.push(TransferPart { sources: all(&group), dims });
                    } else {
                        n_received += share.len();
                        let sources = vec![Self::arena(*peer, &self.result)];
                        gathered.push(TransferPart { sources, dims });
                    }
                }
                RankTransfers { parts, gathered, n_received }
            }
        }
    }

    /// Builds a task that reads the same byte range on all ranks of the group.
    fn peer_access_task(
        &self,
        transfer: Transfer,
        reads: Range<usize>,
        received: Vec<u64>,
    ) -> CollectiveTask {
        let axes = self.collective.axes;
        let is_local = self.collective.kind == CollectiveKind::Slice;
        let (lane, own, group) = match is_local {
            true => (Lane::Compute, vec![reads], Vec::new()),
            false => (Lane::Communication, Vec::new(), vec![reads]),
        };
        let axes = if is_local { AxisSet::default() } else { axes };
        let writes = vec![self.result.clone()];
        CollectiveTask {
            before: vec![transfer],
            calls: Vec::new(),
            after: Vec::new(),
            access: Access { lane, reads: own, group_reads: group, axes, writes },
            received,
        }
    }

    /// Builds a task with an NCCL call. NCCL synchronizes the ranks, so only local accesses are
    /// listed.
    fn nccl_task(
        &self,
        call: NcclCall,
        [before, after]: [Option<Transfer>; 2],
        received: Vec<u64>,
    ) -> CollectiveTask {
        let access = Access {
            lane: Lane::Communication,
            reads: vec![self.input.clone()],
            group_reads: Vec::new(),
            axes: AxisSet::default(),
            writes: vec![self.result.clone()],
        };
        CollectiveTask {
            before: before.into_iter().collect(),
            calls: vec![call],
            after: after.into_iter().collect(),
            access,
            received,
        }
    }

    fn call(
        &self,
        operation: NcclOperation,
        n_elements: usize,
        send: (MemoryBlock, usize),
        receive: (MemoryBlock, usize),
    ) -> NcclCall {
        let (axes, dtype) = (self.collective.axes, self.collective.dtype);
        NcclCall { operation, axes, dtype, n_elements, send, receive }
    }

    fn in_arena(range: &Range<usize>) -> (MemoryBlock, usize) {
        (MemoryBlock::Arena, range.start)
    }

    fn all_reduce(&self) -> CollectiveTask {
        let n_elements = self.collective.source().local_shape(self.mesh).n_elements();
        let n_ranks = self.mesh.group_size(self.collective.axes);
        let operation = NcclOperation::AllReduce(self.collective.combine);
        let (send, receive) = (Self::in_arena(&self.input), Self::in_arena(&self.result));
        // Each rank reduces one share and gathers the others. Shares differ by at most one element.
        let received = |rank: usize| {
            let group = self.mesh.group(rank, self.collective.axes);
            let number = group.iter().position(|it| *it == rank).unwrap_or(0);
            let share = n_elements * (number + 1) / n_ranks - n_elements * number / n_ranks;
            self.n_bytes(share * (n_ranks - 1) + n_elements - share)
        };
        let received = (0..self.mesh.n_ranks()).map(received).collect();
        self.nccl_task(self.call(operation, n_elements, send, receive), [None, None], received)
    }

    fn all_gather(&mut self) -> Result<CollectiveTask, Error> {
        let n_elements = self.collective.source().local_shape(self.mesh).n_elements();
        let n_peers = self.mesh.group_size(self.collective.axes);
        let offset = self.reserve_staging(n_peers * n_elements);
        let staged = (MemoryBlock::Staging, offset);
        let call =
            self.call(NcclOperation::AllGather, n_elements, Self::in_arena(&self.input), staged);
        let unpack = |rank: usize| {
            let (to, from) = (self.collective.destination(), self.collective.source());
            let peers = self.mesh.group(rank, self.collective.axes);
            let part = |(number, peer): (usize, &usize)| {
                let overlap = TileOverlap::between(self.mesh, (&to, rank), (&from, *peer));
                let dims = with_offset(overlap.dims(), PackedSide::There, number * n_elements);
                let staged = MemoryLocation { rank, block: MemoryBlock::Staging, offset };
                TransferPart { sources: vec![staged], dims }
            };
            (Self::arena(rank, &self.result), peers.iter().enumerate().map(part).collect())
        };
        let unpack = (0..self.mesh.n_ranks()).map(unpack).collect();
        let unpack = self.transfer(None, unpack)?;
        let received = self.n_bytes(n_elements * (n_peers - 1));
        Ok(self.nccl_task(call, [None, Some(unpack)], vec![received; self.mesh.n_ranks()]))
    }

    /// Builds a reduce-scatter or an all-to-all: pack one block per peer, exchange, and unpack.
    fn scatter(&mut self) -> Result<CollectiveTask, Error> {
        let (from, to) = (self.collective.source(), self.collective.destination());
        let n_peers = self.mesh.group_size(self.collective.axes);
        let shared = |to_rank: usize, from_rank: usize| {
            TileOverlap::between(self.mesh, (&to, to_rank), (&from, from_rank))
        };
        let n_piece = n_shared(&shared(0, 0));
        let sent = self.reserve_staging(n_peers * n_piece);
        let staging = |rank, offset| MemoryLocation { rank, block: MemoryBlock::Staging, offset };
        // Where the pieces of an all-to-all arrive.
        let arrived = match self.collective.kind {
            CollectiveKind::AllToAll => self.reserve_staging(n_peers * n_piece),
            _ => sent,
        };
        let (mut pack, mut unpack) = (Vec::new(), Vec::new());
        for rank in 0..self.mesh.n_ranks() {
            let (mut pieces, mut parts) = (Vec::new(), Vec::new());
            for (number, peer) in
                self.mesh.group(rank, self.collective.axes).into_iter().enumerate()
            {
                let start = number * n_piece;
                let (dims, _) = packed(&shared(peer, rank), PackedSide::LocalRanks, start);
                pieces.push(TransferPart { sources: vec![Self::arena(rank, &self.input)], dims });
                let (dims, _) = packed(&shared(rank, peer), PackedSide::There, start);
                parts.push(TransferPart { sources: vec![staging(rank, arrived)], dims });
            }
            pack.push((staging(rank, sent), pieces));
            unpack.push((Self::arena(rank, &self.result), parts));
        }
        let pack = self.transfer(None, pack)?;
        let received = vec![self.n_bytes(n_piece * (n_peers - 1)); self.mesh.n_ranks()];
        let sent = (MemoryBlock::Staging, sent);
        if self.collective.kind == CollectiveKind::ReduceScatter {
            let operation = NcclOperation::ReduceScatter(self.collective.combine);
            let call = self.call(operation, n_piece, sent, Self::in_arena(&self.result));
            return Ok(self.nccl_task(call, [Some(pack), None], received));
        }
        let arrived = (MemoryBlock::Staging, arrived);
        let call = self.call(NcclOperation::AllToAll, n_piece, sent, arrived);
        let unpack = self.transfer(None, unpack)?;
        Ok(self.nccl_task(call, [Some(pack), Some(unpack)], received))
    }

    /// Reserves staging memory and returns its offset.
    fn reserve_staging(&mut self, n_elements: usize) -> usize {
        let offset = self.staging_end.next_multiple_of(BUFFER_ALIGNMENT);
        *self.staging_end = offset + n_elements * self.collective.dtype.bytes();
        offset
    }
}

fn n_shared(overlap: &TileOverlap) -> usize {
    let mut n_elements = 0;
    overlap.for_each(|_, _, length| n_elements += length);
    n_elements
}
