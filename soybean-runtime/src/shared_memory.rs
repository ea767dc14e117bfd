//! Collectives in shared memory. Between barriers, ranks of one process read each other's arenas.
//! Elements from ranks of other processes arrive as messages.
#![expect(unsafe_code, reason = "ranks read each other's arenas")]

use std::{collections::BTreeMap, mem, ops::Range, sync::Arc};

use soybean_plan::{AxisSet, BufferId, Collective, DType};

use crate::{
    Error, ErrorKind,
    abort::Abort,
    arena::Arenas,
    backend::Communicator,
    barrier::Barrier,
    cpu::{self, Combiner, Region},
    model::AnyModel,
    movement::{Movement, as_collective},
    remote_exchange::{
        ActiveExchange, ExchangePhase, PartialSource, RemoteEndpoint, RemoteExchange,
    },
    tile_overlap::TileOverlap,
    transport::Transport,
};

/// Memory and barriers of all ranks of a process.
pub(crate) struct SharedMemoryGroup {
    model: AnyModel,
    arenas: Arenas,
    abort: Arc<Abort>,
    /// A barrier for each set of axes and each first rank of a group. It counts the group's ranks
    /// in this process.
    barriers: BTreeMap<(AxisSet, usize), Arc<Barrier>>,
}

/// Communicator of one rank.
pub(crate) struct SharedMemoryCommunicator {
    local: LocalRank,
    collectives: Vec<Option<PreparedCollective>>,
    endpoint: Option<RemoteEndpoint>,
}

/// A rank and the memory of its process.
struct LocalRank {
    model: AnyModel,
    arenas: Arenas,
    abort: Arc<Abort>,
    rank: usize,
}

struct PreparedCollective {
    name: &'static str,
    dtype: DType,
    barrier: Arc<Barrier>,
    /// Elements of this rank's tile before and after the collective.
    n_source: usize,
    n_destination: usize,
    movement: Movement,
    combiner: Combiner,
    /// Sources of the operands that are combined.
    sources: Vec<PartialSource>,
    remote: Option<RemoteExchange>,
}

impl SharedMemoryGroup {
    pub(crate) fn new(
        model: &AnyModel,
        arenas: &Arenas,
        abort: &Arc<Abort>,
        is_crowded: bool,
    ) -> Self {
        let mesh = &model.get().tables().mesh;
        let mut barriers = BTreeMap::new();
        for collective in model.get().kernels().iter().filter_map(as_collective) {
            for rank in arenas.ranks() {
                let group = mesh.group(rank, collective.axes);
                let n_here = group.iter().filter(|it| arenas.ranks().contains(it)).count();
                barriers.entry((collective.axes, group[0])).or_insert_with(|| {
                    let barrier = Arc::new(Barrier::new(n_here, is_crowded));
                    abort.watch(&barrier);
                    barrier
                });
            }
        }
        Self { model: model.clone(), arenas: arenas.clone(), abort: Arc::clone(abort), barriers }
    }

    /// Creates the communicator of a rank. `transport` reaches the ranks of other processes, if
    /// there are any.
    pub(crate) fn communicator(
        &self,
        rank: usize,
        transport: Option<Box<dyn Transport>>,
    ) -> Result<SharedMemoryCommunicator, Error> {
        let kernels = self.model.get().kernels().iter();
        let collectives: Vec<Option<PreparedCollective>> =
            kernels.map(|it| as_collective(it).map(|it| self.prepare(rank, it))).collect();
        let remote = collectives.iter().flatten().filter_map(|it| it.remote.as_ref());
        let n_bytes = remote.map(|it| it.staging_bytes).max();
        let endpoint = match (n_bytes, transport) {
            (None, _) => None,
            (Some(n_bytes), Some(transport)) => Some(RemoteEndpoint::new(transport, n_bytes)?),
            (Some(_), None) => {
                let message = "expected a transport to ranks of other processes, found none";
                return Err(Error::new(ErrorKind::Program, message));
            }
        };
        let (model, arenas) = (self.model.clone(), self.arenas.clone());
        let local = LocalRank { model, arenas, abort: Arc::clone(&self.abort), rank };
        Ok(SharedMemoryCommunicator { local, collectives, endpoint })
    }

    fn prepare(&self, rank: usize, collective: &Collective) -> PreparedCollective {
        let mesh = &self.model.get().tables().mesh;
        let group = mesh.group(rank, collective.axes);
        let movement = Movement::new(collective, mesh, rank);
        let remote = RemoteExchange::new(collective, &movement, mesh, rank, &self.arenas.ranks());
        let sources = match &remote {
            Some(remote) => remote.sources.clone(),
            None => group.iter().map(|it| PartialSource::Arena(*it)).collect(),
        };
        PreparedCollective {
            name: collective.kind.name(),
            dtype: collective.dtype,
            barrier: Arc::clone(&self.barriers[&(collective.axes, group[0])]),
            n_source: collective.source().local_shape(mesh).n_elements(),
            n_destination: collective.destination().local_shape(mesh).n_elements(),
            movement,
            combiner: Combiner::new(collective.combine),
            sources,
            remote,
        }
    }
}

impl PreparedCollective {
    fn check(&self, input: &Region, result: &Region) -> Result<(), Error> {
        let error = |message: &str| Err(Error::new(ErrorKind::Program, message));
        if (self.n_source, self.n_destination) != (input.n_elements, result.n_elements) {
            return error(&format!(
                "expected tiles of {} and {} elements before and after, found {} and {}",
                self.n_source, self.n_destination, input.n_elements, result.n_elements
            ));
        }
        if input.overlaps(result) {
            return error("expected a result that does not overlap the input");
        }
        if (input.dtype, result.dtype) != (self.dtype, self.dtype) {
            return error("expected tiles of the collective's element type before and after");
        }
        let only_moves = matches!(self.movement, Movement::Copy(_));
        if !only_moves && input.dtype == DType::I32 {
            return error("expected partial results in f32 or bf16, found i32");
        }
        Ok(())
    }
}

impl LocalRank {
    fn region(&self, rank: usize, buffer: BufferId) -> Result<Region, Error> {
        cpu::region(self.model.get().tables(), &self.arenas[rank], buffer)
    }

    /// Returns the address of an element on another rank, in a buffer that [`Self::region`] has
    /// checked.
    fn element(&self, rank: usize, buffer: BufferId, index: usize) -> *const u8 {
        let buffer = &self.model.get().tables().buffers[buffer];
        let start = self.arenas[rank].pointer(buffer).cast::<u8>().cast_const();
        start.wrapping_add(index * buffer.dtype.bytes())
    }

    fn is_local(&self, rank: usize) -> bool {
        self.arenas.ranks().contains(&rank)
    }

    /// Copies the overlaps with local peers. Returns the number of bytes received from local and
    /// remote peers.
    ///
    /// # Safety
    /// Nothing writes to the sources, and nothing else uses the result.
    unsafe fn copy(
        &self,
        parts: &[(usize, TileOverlap)],
        input: BufferId,
        result: &Region,
    ) -> Result<u64, Error> {
        let mut n_received = 0;
        for (peer, overlap) in parts {
            if !self.is_local(*peer) {
                n_received += overlap.n_elements() * result.dtype.bytes();
                continue;
            }
            let source = self.region(*peer, input)?;
            overlap.for_each(|here, there, length| {
                let (from, to) = (source.address(there), result.address(here));
                let n_bytes = length * result.dtype.bytes();
                // SAFETY: overlaps stay within the tiles, whose sizes were checked; the rest is
                // required of the caller.
                unsafe { to.copy_from_nonoverlapping(from, n_bytes) };
                n_received += if *peer == self.rank { 0 } else { n_bytes };
            });
        }
        Ok(n_received as u64)
    }

    /// Combines the elements that this rank keeps from all ranks of the group. Returns the number
    /// of bytes received.
    ///
    /// # Safety
    /// As [`Self::copy`], and the staging memory holds the messages from other processes.
    unsafe fn scatter(
        &self,
        prepared: &PreparedCollective,
        overlap: &TileOverlap,
        input: BufferId,
        result: &Region,
        staging: *const u8,
    ) -> u64 {
        let mut n_combined = 0;
        overlap.for_each(|here, there, length| {
            let n_before = n_combined * result.dtype.bytes();
            let sources = prepared.sources.iter().map(|it| match it {
                PartialSource::Arena(rank) => self.element(*rank, input, there),
                PartialSource::Staged(start) => staging.wrapping_add(start + n_before),
            });
            let to = result.address(here);
            // SAFETY: overlaps stay within the tiles, whose sizes were checked; the rest is
            // required of the caller.
            unsafe { prepared.combiner.combine(result.dtype, sources, to, length) };
            n_combined += length;
        });
        (n_combined * (prepared.sources.len() - 1) * result.dtype.bytes()) as u64
    }

    /// Combines this rank's share of the elements. Returns the number of bytes received.
    ///
    /// # Safety
    /// As [`Self::scatter`].
    unsafe fn combine_share(
        &self,
        prepared: &PreparedCollective,
        share: Range<usize>,
        input: BufferId,
        result: &Region,
        staging: *const u8,
    ) -> u64 {
        let sources = prepared.sources.iter().map(|it| match it {
            PartialSource::Arena(rank) => self.element(*rank, input, share.start),
            PartialSource::Staged(start) => staging.wrapping_add(*start),
        });
        let to = result.address(share.start);
        // SAFETY: shares stay within the tiles, whose sizes were checked; the rest is required of
        // the caller.
        unsafe { prepared.combiner.combine(result.dtype, sources, to, share.len()) };
        (share.len() * (prepared.sources.len() - 1) * result.dtype.bytes()) as u64
    }

    /// Copies the shares that local peers have combined. Returns the number of bytes received from
    /// local and remote peers.
    ///
    /// # Safety
    /// Nothing writes to the shares of the peers, and nothing else uses those shares of the result.
    unsafe fn gather_shares(
        &self,
        group: &[usize],
        shares: &[Range<usize>],
        result: (BufferId, &Region),
    ) -> Result<u64, Error> {
        let mut n_received = 0;
        for (peer, share) in group.iter().zip(shares).filter(|it| *it.0 != self.rank) {
            let n_bytes = share.len() * result.1.dtype.bytes();
            n_received += n_bytes;
            if !self.is_local(*peer) {
                continue;
            }
            let from = self.region(*peer, result.0)?.address(share.start);
            let to = result.1.address(share.start);
            // SAFETY: shares stay within the tiles, whose sizes were checked; the rest is required
            // of the caller.
            unsafe { to.copy_from_nonoverlapping(from, n_bytes) };
        }
        Ok(n_received as u64)
    }
}

impl SharedMemoryCommunicator {
    fn run_collective(
        &mut self,
        kernel: usize,
        input: BufferId,
        result: BufferId,
    ) -> Result<u64, Error> {
        let Self { local, collectives, endpoint } = self;
        let Some(prepared) = collectives.get(kernel).and_then(Option::as_ref) else {
            let message = "expected the number of a collective".to_owned();
            return Err(Error::new(ErrorKind::Program, message));
        };
        let (source, to) = (local.region(local.rank, input)?, local.region(local.rank, result)?);
        prepared.check(&source, &to)?;
        let wait = || prepared.barrier.wait(&local.abort);
        if let Movement::Copy(parts) = &prepared.movement
            && parts.iter().all(|it| it.0 == local.rank)
        {
            // SAFETY: outside collectives, only this rank uses its arena.
            return unsafe { local.copy(parts, input, &to) };
        }
        let endpoint = endpoint.as_mut().zip(prepared.remote.as_ref());
        let mut exchange = ActiveExchange::new(endpoint, &local.abort);
        // SAFETY: this rank writes to its result only, which nobody reads before the shares are
        // combined.
        unsafe { exchange.begin(ExchangePhase::Inputs, &source, &to) }?;
        // Everything a rank reads was written before the first barrier, and does not change before
        // the last.
        wait()?;
        let n_bytes = match &prepared.movement {
            Movement::Copy(parts) => {
                // SAFETY: all ranks of the group are between the same barriers, and write to their
                // results only.
                let n_bytes = unsafe { local.copy(parts, input, &to) }?;
                // SAFETY: as above.
                unsafe { exchange.finish(ExchangePhase::Inputs, &to) }?;
                n_bytes
            }
            Movement::Scatter { overlap, .. } => {
                // SAFETY: as above.
                unsafe { exchange.finish(ExchangePhase::Inputs, &to) }?;
                // SAFETY: as above.
                unsafe { local.scatter(prepared, overlap, input, &to, exchange.staging()) }
            }
            Movement::Reduce { group, shares } => {
                let own = group.iter().position(|it| *it == local.rank);
                let own = shares[own.expect("a rank is in its group")].clone();
                // SAFETY: as above.
                unsafe { exchange.finish(ExchangePhase::Inputs, &to) }?;
                // SAFETY: as above.
                let combined =
                    unsafe { local.combine_share(prepared, own, input, &to, exchange.staging()) };
                // SAFETY: this rank's share is combined, and nothing else writes the other shares
                // of the result.
                unsafe { exchange.begin(ExchangePhase::Shares, &to, &to) }?;
                wait()?;
                // SAFETY: all shares are combined after the barrier, and each rank writes only the
                // others' shares in its own result.
                let gathered = unsafe { local.gather_shares(group, shares, (result, &to)) }?;
                // SAFETY: as above.
                unsafe { exchange.finish(ExchangePhase::Shares, &to) }?;
                combined + gathered
            }
        };
        wait()?;
        Ok(n_bytes)
    }
}

impl Drop for SharedMemoryCommunicator {
    fn drop(&mut self) {
        // After a failure, pending messages use this memory as long as the process lives.
        if self.endpoint.as_ref().is_some_and(|it| !it.is_idle()) {
            mem::forget(self.local.arenas.clone());
            mem::forget(self.endpoint.take());
        }
    }
}

impl Communicator for SharedMemoryCommunicator {
    fn communicate(
        &mut self,
        kernel: usize,
        input: BufferId,
        result: BufferId,
    ) -> Result<u64, Error> {
        self.run_collective(kernel, input, result).map_err(|error| {
            let prepared = self.collectives.get(kernel).and_then(Option::as_ref);
            let name = prepared.map_or("collective", |it| it.name);
            let is_local = prepared.is_none_or(|it| it.remote.is_none());
            let place = if is_local { "in shared memory" } else { "between processes" };
            Error::new(error.kind(), format!("{name} {kernel} {place}: {error}"))
        })
    }
}

#[cfg(test)]
mod tests;
