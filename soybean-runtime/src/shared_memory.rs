//! Collectives in shared memory. Between barriers, ranks of one process read each other's arenas.
//! Elements from ranks of other processes arrive as messages. The collectives of a bucket share
//! barriers, and their messages are under way at the same time.
#![expect(unsafe_code, reason = "ranks read each other's arenas")]

mod prepared;

use std::{collections::BTreeMap, mem, ops::Range, sync::Arc};

use soybean_plan::{AxisSet, Bucket, BufferId};

use crate::{
    Error, ErrorKind,
    abort::Abort,
    arena::Arenas,
    backend::Communicator,
    barrier::Barrier,
    cpu::{self, Region},
    model::AnyModel,
    movement::{Movement, as_bucket},
    remote_exchange::{ActiveExchange, ExchangePhase, PartialSource, RemoteEndpoint},
    tile_overlap::TileOverlap,
    transport::Transport,
};
use prepared::{PreparedBucket, PreparedCollective};

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
    /// For each kernel its bucket, if it is one.
    buckets: Vec<Option<PreparedBucket>>,
    endpoint: Option<RemoteEndpoint>,
}

/// A rank and the memory of its process.
struct LocalRank {
    model: AnyModel,
    arenas: Arenas,
    abort: Arc<Abort>,
    rank: usize,
}

/// A collective with its buffers on this rank.
struct Call<'a> {
    prepared: &'a PreparedCollective,
    input: BufferId,
    from: Region,
    result: BufferId,
    to: Region,
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
        for bucket in model.get().kernels().iter().filter_map(as_bucket) {
            for rank in arenas.ranks() {
                let group = mesh.group(rank, bucket.axes());
                let n_here = group.iter().filter(|it| arenas.ranks().contains(it)).count();
                barriers.entry((bucket.axes(), group[0])).or_insert_with(|| {
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
        let buckets: Vec<Option<PreparedBucket>> =
            kernels.map(|it| as_bucket(it).map(|it| self.prepare(rank, it))).collect();
        let n_bytes = buckets.iter().flatten().filter_map(PreparedBucket::staging_bytes).max();
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
        Ok(SharedMemoryCommunicator { local, buckets, endpoint })
    }

    fn prepare(&self, rank: usize, bucket: &Bucket) -> PreparedBucket {
        let mesh = &self.model.get().tables().mesh;
        let first = mesh.group(rank, bucket.axes())[0];
        let barrier = Arc::clone(&self.barriers[&(bucket.axes(), first)]);
        PreparedBucket::new(bucket, mesh, (rank, &self.arenas.ranks()), barrier)
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

    /// Returns a collective of a bucket with its buffers, which are checked.
    fn call<'a>(
        &self,
        (prepared, (&input, &result)): (&'a PreparedCollective, (&BufferId, &BufferId)),
    ) -> Result<Call<'a>, Error> {
        let (from, to) = (self.region(self.rank, input)?, self.region(self.rank, result)?);
        prepared.check(&from, &to)?;
        Ok(Call { prepared, input, from, result, to })
    }

    /// Copies the overlaps with local peers, if the collective only moves data, and fills a halo
    /// outside the tensor. Returns the number of bytes received from local and remote peers.
    ///
    /// # Safety
    /// Nothing writes to the sources, and nothing else uses the result.
    unsafe fn copy(&self, call: &Call<'_>) -> Result<u64, Error> {
        let Movement::Copy(parts) = &call.prepared.movement else { return Ok(0) };
        let element_bytes = call.to.dtype.bytes();
        let mut n_received = 0;
        for outside in &call.prepared.outside {
            let bits = call.prepared.element_outside.to_le_bytes();
            outside.for_each(|here, _, length| {
                for place in here..here + length {
                    // SAFETY: the places stay within the tile, whose size was checked, and nothing
                    // else uses the result.
                    unsafe {
                        call.to
                            .address(place)
                            .copy_from_nonoverlapping(bits.as_ptr(), element_bytes);
                    }
                }
            });
        }
        for (peer, overlap) in parts {
            if !self.is_local(*peer) {
                n_received += overlap.n_elements() * element_bytes;
                continue;
            }
            let source = self.region(*peer, call.input)?;
            overlap.for_each(|here, there, length| {
                let (from, to) = (source.address(there), call.to.address(here));
                let n_bytes = length * element_bytes;
                // SAFETY: overlaps stay within the tiles, whose sizes were checked; the rest is
                // required of the caller.
                unsafe { to.copy_from_nonoverlapping(from, n_bytes) };
                n_received += if *peer == self.rank { 0 } else { n_bytes };
            });
        }
        Ok(n_received as u64)
    }

    /// Combines the elements that this rank keeps or shares from all ranks of the group, if the
    /// collective combines any. Returns the number of bytes received.
    ///
    /// # Safety
    /// As [`Self::copy`], and the staging memory holds the messages from other processes.
    unsafe fn combine(&self, call: &Call<'_>, staging: *const u8) -> u64 {
        match &call.prepared.movement {
            Movement::Copy(_) => 0,
            // SAFETY: required of the caller.
            Movement::Scatter { overlap, .. } => unsafe { self.scatter(call, overlap, staging) },
            Movement::Reduce { group, shares } => {
                let own = group.iter().position(|it| *it == self.rank);
                let own = shares[own.expect("a rank is in its group")].clone();
                // SAFETY: required of the caller.
                unsafe { self.combine_share(call, own, staging) }
            }
        }
    }

    /// Combines the elements that this rank keeps. Returns the number of bytes received.
    ///
    /// # Safety
    /// As [`Self::combine`].
    unsafe fn scatter(&self, call: &Call<'_>, overlap: &TileOverlap, staging: *const u8) -> u64 {
        let &Call { prepared, input, ref to, .. } = call;
        let mut n_combined = 0;
        overlap.for_each(|here, there, length| {
            let n_before = n_combined * to.dtype.bytes();
            let sources = prepared.sources.iter().map(|it| match it {
                PartialSource::Arena(rank) => self.element(*rank, input, there),
                PartialSource::Staged(start) => staging.wrapping_add(start + n_before),
            });
            let place = to.address(here);
            // SAFETY: overlaps stay within the tiles, whose sizes were checked; the rest is
            // required of the caller.
            unsafe { prepared.combiner.combine(to.dtype, sources, place, length) };
            n_combined += length;
        });
        (n_combined * (prepared.sources.len() - 1) * to.dtype.bytes()) as u64
    }

    /// Combines this rank's share of the elements. Returns the number of bytes received.
    ///
    /// # Safety
    /// As [`Self::combine`].
    unsafe fn combine_share(
        &self,
        call: &Call<'_>,
        share: Range<usize>,
        staging: *const u8,
    ) -> u64 {
        let &Call { prepared, input, ref to, .. } = call;
        let sources = prepared.sources.iter().map(|it| match it {
            PartialSource::Arena(rank) => self.element(*rank, input, share.start),
            PartialSource::Staged(start) => staging.wrapping_add(*start),
        });
        let place = to.address(share.start);
        // SAFETY: shares stay within the tiles, whose sizes were checked; the rest is required of
        // the caller.
        unsafe { prepared.combiner.combine(to.dtype, sources, place, share.len()) };
        (share.len() * (prepared.sources.len() - 1) * to.dtype.bytes()) as u64
    }

    /// Copies the shares that local peers have combined, if there are shares. Returns the number of
    /// bytes received from local and remote peers.
    ///
    /// # Safety
    /// Nothing writes to the shares of the peers, and nothing else uses those shares of the result.
    unsafe fn gather_shares(&self, call: &Call<'_>) -> Result<u64, Error> {
        let Movement::Reduce { group, shares } = &call.prepared.movement else { return Ok(0) };
        let mut n_received = 0;
        for (peer, share) in group.iter().zip(shares).filter(|it| *it.0 != self.rank) {
            let n_bytes = share.len() * call.to.dtype.bytes();
            n_received += n_bytes;
            if !self.is_local(*peer) {
                continue;
            }
            let from = self.region(*peer, call.result)?.address(share.start);
            let to = call.to.address(share.start);
            // SAFETY: shares stay within the tiles, whose sizes were checked; the rest is required
            // of the caller.
            unsafe { to.copy_from_nonoverlapping(from, n_bytes) };
        }
        Ok(n_received as u64)
    }
}

impl SharedMemoryCommunicator {
    fn run_bucket(
        &mut self,
        kernel: usize,
        inputs: &[BufferId],
        results: &[BufferId],
    ) -> Result<u64, Error> {
        let Self { local, buckets, endpoint } = self;
        let Some(bucket) = buckets.get(kernel).and_then(Option::as_ref) else {
            let message = "expected the number of a collective".to_owned();
            return Err(Error::new(ErrorKind::Program, message));
        };
        let n_collectives = bucket.collectives.len();
        if (inputs.len(), results.len()) != (n_collectives, n_collectives) {
            let message = format!("expected {n_collectives} inputs and as many results");
            return Err(Error::new(ErrorKind::Program, message));
        }
        let buffers = || inputs.iter().zip(results);
        let calls = || bucket.collectives.iter().zip(buffers()).map(|it| local.call(it));
        calls().try_for_each(|it| it.map(drop))?;
        if bucket.is_of_one(local.rank) {
            // SAFETY: outside collectives, only this rank uses its arena.
            return calls().map(|it| unsafe { local.copy(&it?) }).sum();
        }
        let endpoint = endpoint.as_mut().filter(|_| bucket.staging_bytes().is_some());
        let exchange = ActiveExchange::new(endpoint, &local.abort);
        local.exchange(bucket, &calls, exchange)
    }
}

impl LocalRank {
    /// Runs the collectives of a bucket together with the other ranks of the group.
    fn exchange<'a, Calls: Iterator<Item = Result<Call<'a>, Error>>>(
        &self,
        bucket: &PreparedBucket,
        calls: &dyn Fn() -> Calls,
        mut exchange: ActiveExchange<'_>,
    ) -> Result<u64, Error> {
        let mut n_received = 0;
        for call in calls() {
            // SAFETY: this rank writes to its results only, which nobody reads before the shares
            // are combined.
            unsafe { call?.begin(ExchangePhase::Inputs, &mut exchange) }?;
        }
        // Everything a rank reads was written before the first barrier, and does not change before
        // the last.
        bucket.barrier.wait(&self.abort)?;
        for call in calls() {
            // SAFETY: all ranks of the group are between the same barriers, and write to their
            // results only.
            n_received += unsafe { self.copy(&call?) }?;
        }
        exchange.finish()?;
        for call in calls() {
            let call = call?;
            // SAFETY: as above; all messages have arrived.
            unsafe { call.unpack(&exchange) };
            // SAFETY: as above.
            n_received += unsafe { self.combine(&call, exchange.staging()) };
        }
        if bucket.has_shares() {
            for call in calls() {
                // SAFETY: this rank's shares are combined, and nothing else writes the other shares
                // of the results.
                unsafe { call?.begin(ExchangePhase::Shares, &mut exchange) }?;
            }
            bucket.barrier.wait(&self.abort)?;
            for call in calls() {
                // SAFETY: all shares are combined after the barrier, and each rank writes only the
                // others' shares in its own results.
                n_received += unsafe { self.gather_shares(&call?) }?;
            }
            exchange.finish()?;
        }
        bucket.barrier.wait(&self.abort)?;
        Ok(n_received)
    }
}

impl Call<'_> {
    /// Starts the messages of a phase.
    ///
    /// # Safety
    /// As [`ActiveExchange::begin`].
    unsafe fn begin(
        &self,
        phase: ExchangePhase,
        exchange: &mut ActiveExchange<'_>,
    ) -> Result<(), Error> {
        let Some(remote) = &self.prepared.remote else { return Ok(()) };
        let from = match phase {
            ExchangePhase::Inputs => &self.from,
            ExchangePhase::Shares => &self.to,
        };
        // SAFETY: required of the caller.
        unsafe { exchange.begin((phase, remote), from, &self.to) }
    }

    /// Unpacks the parts of inputs that have arrived.
    ///
    /// # Safety
    /// As [`ActiveExchange::unpack_inputs`].
    unsafe fn unpack(&self, exchange: &ActiveExchange<'_>) {
        let Some(remote) = &self.prepared.remote else { return };
        // SAFETY: required of the caller.
        unsafe { exchange.unpack_inputs(remote, &self.to) };
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
        inputs: &[BufferId],
        results: &[BufferId],
    ) -> Result<u64, Error> {
        self.run_bucket(kernel, inputs, results).map_err(|error| {
            let prepared = self.buckets.get(kernel).and_then(Option::as_ref);
            let name = prepared.map_or("collective", |it| it.kind.name());
            let is_local = prepared.is_none_or(|it| it.staging_bytes().is_none());
            let place = if is_local { "in shared memory" } else { "between processes" };
            Error::new(error.kind(), format!("{name} {kernel} {place}: {error}"))
        })
    }
}

#[cfg(test)]
mod tests;
