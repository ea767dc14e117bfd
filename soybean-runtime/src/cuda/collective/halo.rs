//! Exchanges of halos through NCCL, and what lies outside a tensor.

use super::{CollectiveBuilder, CollectiveTask};
use crate::{
    Error,
    cuda::{
        nccl::NcclOperation,
        transfer::{MemoryBlock, MemoryLocation, PackedSide, Transfer, TransferPart, packed},
    },
    movement::{element_outside, outside, received},
    tile_overlap::TileOverlap,
};

impl CollectiveBuilder<'_> {
    /// Builds an exchange of halos: pack a message for each other rank, exchange, and unpack. Each
    /// rank also copies its own part.
    pub(super) fn halo_exchange(&mut self) -> Result<CollectiveTask, Error> {
        let shared = |to: usize, from: usize| received(self.collective, self.mesh, to, from);
        let group = self.mesh.group(0, self.collective.axes);
        let n = group.len();
        let count = |at: usize| match (group[at / n], group[at % n]) {
            (receiver, sender) if receiver == sender => 0,
            (receiver, sender) => self.collective.halo_from(self.mesh, receiver, sender),
        };
        let counts: Vec<usize> = (0..n * n).map(count).collect();
        let n_sent_to = |peer: usize, own: usize| counts[peer * n + own];
        let most = |n_of: &dyn Fn(usize, usize) -> usize| {
            let of_rank = |own| (0..n).map(|peer| n_of(peer, own)).sum::<usize>();
            (0..n).map(of_rank).max().unwrap_or(0)
        };
        let most_sent = most(&n_sent_to);
        let most_received = most(&|peer, own| n_sent_to(own, peer));
        let sent = self.reserve_staging(most_sent);
        let arrived = self.reserve_staging(most_received);
        let staging = |rank, offset| MemoryLocation { rank, block: MemoryBlock::Staging, offset };
        let (mut pack, mut unpack, mut n_received) = (Vec::new(), Vec::new(), Vec::new());
        for rank in 0..self.mesh.n_ranks() {
            let group = self.mesh.group(rank, self.collective.axes);
            let own = group.iter().position(|it| *it == rank).unwrap_or(0);
            let input = || vec![Self::arena(rank, &self.input)];
            let own_part = TransferPart { sources: input(), dims: shared(rank, rank).dims() };
            let (mut pieces, mut parts) = (Vec::new(), vec![own_part]);
            let (mut start, mut end) = (0, 0);
            for (number, peer) in group.iter().enumerate().filter(|it| *it.1 != rank) {
                let (dims, _) = packed(&shared(*peer, rank), PackedSide::LocalRanks, start);
                pieces.push(TransferPart { sources: input(), dims });
                let (dims, _) = packed(&shared(rank, *peer), PackedSide::There, end);
                parts.push(TransferPart { sources: vec![staging(rank, arrived)], dims });
                start += n_sent_to(number, own);
                end += n_sent_to(own, number);
            }
            pack.push((staging(rank, sent), pieces));
            unpack.push((Self::arena(rank, &self.result), parts));
            n_received.push(self.n_bytes(end));
        }
        let pack = self.transfer(None, pack)?;
        let unpack = self.transfer(None, unpack)?;
        let (sent, arrived) = ((MemoryBlock::Staging, sent), (MemoryBlock::Staging, arrived));
        let call = self.call(NcclOperation::Exchange(counts.into()), most_sent, sent, arrived);
        let mut task = self.nccl_task(call, [Some(pack), Some(unpack)], n_received);
        task.after.extend(self.filled_outside()?);
        Ok(task)
    }

    /// Builds a transfer that fills what lies outside the tensor on each rank, if anything does.
    pub(super) fn filled_outside(&mut self) -> Result<Option<Transfer>, Error> {
        let parts = |rank: usize| {
            let outside = outside(self.collective, self.mesh, rank);
            let dims = outside.iter().map(TileOverlap::dims).collect::<Vec<_>>();
            (Self::arena(rank, &self.result), dims)
        };
        let parts: Vec<_> = (0..self.mesh.n_ranks()).map(parts).collect();
        if parts.iter().all(|it| it.1.is_empty()) {
            return Ok(None);
        }
        let bits = element_outside(self.collective);
        Transfer::fill(bits, self.collective.dtype, parts, self.n_words).map(Some)
    }
}
