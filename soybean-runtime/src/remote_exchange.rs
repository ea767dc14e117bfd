//! Messages to and from ranks of other processes in a collective. They carry the same elements that
//! ranks of one process read from each other's arenas.
#![expect(unsafe_code, reason = "messages refer to arenas that other ranks read")]

use std::{ops::Range, ptr};

use soybean_plan::{Collective, Mesh};

use crate::{
    Error,
    abort::Abort,
    arena::{ALIGNMENT, Arena},
    cpu::Region,
    movement::{Movement, received},
    tile_overlap::TileOverlap,
    transport::Transport,
};

/// All messages of one rank in one collective.
pub(crate) struct RemoteExchange {
    /// Parts of the inputs.
    pub(crate) inputs: MessageBatch,
    /// Shares of the result, after they are combined.
    pub(crate) shares: MessageBatch,
    /// Sources of the operands that are combined, in the order of the group. Empty for copies.
    pub(crate) sources: Vec<PartialSource>,
    /// End of its staging memory.
    pub(crate) staging_end: usize,
}

/// Messages that are pending at the same time.
#[derive(Default)]
pub(crate) struct MessageBatch {
    sends: Vec<Message>,
    receives: Vec<Message>,
}

/// Location of a rank's partial results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartialSource {
    /// The arena of this rank.
    Arena(usize),
    /// Staging memory from this byte on. Only elements that are combined are stored, contiguously.
    Staged(usize),
}

/// A message.
struct Message {
    peer: usize,
    n_elements: usize,
    location: MessageLocation,
}

/// Location of a message's elements on this rank.
enum MessageLocation {
    /// Contiguous in a buffer, from this element on.
    Contiguous(usize),
    /// In staging memory from this byte on.
    Staged(usize),
    /// Strided in a buffer, and packed in staging memory while the message is pending.
    Packed { start: usize, overlap: TileOverlap },
}

impl RemoteExchange {
    /// Plans the messages of `rank` in a collective. `local` are the ranks of its process. Staging
    /// memory is used from `staging_start` on. Returns `None` if all peers are local.
    pub(crate) fn new(
        collective: &Collective,
        movement: &Movement,
        mesh: &Mesh,
        rank: usize,
        local: &Range<usize>,
        staging_start: usize,
    ) -> Option<Self> {
        let peers: Vec<usize> = match movement {
            Movement::Copy(parts) => parts.iter().map(|it| it.0).collect(),
            Movement::Scatter { group, .. } | Movement::Reduce { group, .. } => group.clone(),
        };
        let remote_ranks: Vec<usize> = peers.into_iter().filter(|it| !local.contains(it)).collect();
        if remote_ranks.is_empty() {
            return None;
        }
        let element_bytes = collective.dtype.bytes();
        let mut staging = StagingLayout { end: staging_start, element_bytes };
        let received = |receiver, sender| received(collective, mesh, receiver, sender);
        let (mut inputs, mut shares_batch, mut sources) =
            (MessageBatch::default(), MessageBatch::default(), Vec::new());
        match movement {
            Movement::Copy(_) => {
                inputs.sends = messages(&remote_ranks, |it| staging.place_sent(received(it, rank)));
                inputs.receives =
                    messages(&remote_ranks, |it| staging.place_received(received(rank, it)));
            }
            Movement::Scatter { group, overlap } => {
                inputs.sends = messages(&remote_ranks, |it| staging.place_sent(received(it, it)));
                let n_elements = overlap.n_elements();
                inputs.receives = messages(&remote_ranks, |_| staging.place_partials(n_elements));
                sources = partial_sources(group, &inputs.receives);
            }
            Movement::Reduce { group, shares } => {
                let share = |rank: usize| {
                    let position = group.iter().position(|it| *it == rank);
                    shares[position.expect("a rank is in its group")].clone()
                };
                inputs.sends = messages(&remote_ranks, |it| in_buffer(share(it)));
                inputs.receives =
                    messages(&remote_ranks, |_| staging.place_partials(share(rank).len()));
                shares_batch.sends = messages(&remote_ranks, |_| in_buffer(share(rank)));
                shares_batch.receives = messages(&remote_ranks, |it| in_buffer(share(it)));
                sources = partial_sources(group, &inputs.receives);
            }
        }
        inputs.drop_empty();
        shares_batch.drop_empty();
        Some(Self { inputs, shares: shares_batch, sources, staging_end: staging.end })
    }
}

impl MessageBatch {
    /// Starts to receive parts of `to` and to send parts of `from`.
    ///
    /// # Safety
    /// Both regions have the elements of the tiles, and `staging` extends to
    /// [`RemoteExchange::staging_end`]. They stay valid until the transport has finished.
    /// Until then nothing writes to `from`, and nothing else uses the staging memory and those
    /// parts of `to`.
    pub(crate) unsafe fn begin(
        &self,
        transport: &mut dyn Transport,
        from: &Region,
        to: &Region,
        staging: *mut u8,
    ) -> Result<(), Error> {
        let element_bytes = from.dtype.bytes();
        for Message { peer, n_elements, location } in &self.receives {
            let memory = match location {
                MessageLocation::Contiguous(start) => to.address(*start),
                MessageLocation::Staged(start) | MessageLocation::Packed { start, .. } => {
                    staging.wrapping_add(*start)
                }
            };
            // SAFETY: required of the caller.
            unsafe { transport.receive(*peer, memory, n_elements * element_bytes) }?;
        }
        for Message { peer, n_elements, location } in &self.sends {
            let memory = match location {
                MessageLocation::Contiguous(start) => from.address(*start),
                MessageLocation::Staged(start) => staging.wrapping_add(*start),
                MessageLocation::Packed { start, overlap } => {
                    let packed = staging.wrapping_add(*start);
                    // SAFETY: required of the caller.
                    unsafe { pack(overlap, from, packed) };
                    packed
                }
            };
            // SAFETY: required of the caller.
            unsafe { transport.send(*peer, memory, n_elements * element_bytes) }?;
        }
        Ok(())
    }

    /// Unpacks strided elements from staging memory.
    ///
    /// # Safety
    /// As [`Self::begin`], after the transport has finished.
    pub(crate) unsafe fn unpack(&self, to: &Region, staging: *const u8) {
        let element_bytes = to.dtype.bytes();
        for message in &self.receives {
            let MessageLocation::Packed { start, overlap } = &message.location else { continue };
            let mut packed = staging.wrapping_add(*start);
            overlap.for_each(|local, _, length| {
                let n_bytes = length * element_bytes;
                // SAFETY: required of the caller.
                unsafe { to.address(local).copy_from_nonoverlapping(packed, n_bytes) };
                packed = packed.wrapping_add(n_bytes);
            });
        }
    }

    /// Drops messages without elements, which no peer expects.
    fn drop_empty(&mut self) {
        self.sends.retain(|it| it.n_elements > 0);
        self.receives.retain(|it| it.n_elements > 0);
    }
}

/// Connection of a rank to ranks of other processes.
pub(crate) struct RemoteEndpoint {
    transport: Box<dyn Transport>,
    /// Staging memory, used by one bucket at a time.
    staging: Arena,
}

impl RemoteEndpoint {
    /// Allocates staging memory of this size.
    pub(crate) fn new(transport: Box<dyn Transport>, n_bytes: usize) -> Result<Self, Error> {
        Ok(Self { transport, staging: Arena::new(n_bytes)? })
    }

    /// Returns true if no message is pending.
    pub(crate) fn is_idle(&self) -> bool {
        self.transport.is_idle()
    }
}

/// The messages of a bucket while it runs. Empty without other processes.
pub(crate) struct ActiveExchange<'a> {
    endpoint: Option<&'a mut RemoteEndpoint>,
    abort: &'a Abort,
}

/// The two phases of an exchange.
#[derive(Clone, Copy)]
pub(crate) enum ExchangePhase {
    /// [`RemoteExchange::inputs`].
    Inputs,
    /// [`RemoteExchange::shares`].
    Shares,
}

impl ExchangePhase {
    const fn of(self, remote: &RemoteExchange) -> &MessageBatch {
        match self {
            Self::Inputs => &remote.inputs,
            Self::Shares => &remote.shares,
        }
    }
}

impl<'a> ActiveExchange<'a> {
    /// Creates the exchange of a bucket. `endpoint` is `None` if all ranks are in this process.
    pub(crate) const fn new(endpoint: Option<&'a mut RemoteEndpoint>, abort: &'a Abort) -> Self {
        Self { endpoint, abort }
    }

    /// Starts to receive parts of `to` and to send parts of `from` in one of the collectives.
    ///
    /// # Safety
    /// As [`MessageBatch::begin`], for this rank's part of the collective.
    pub(crate) unsafe fn begin(
        &mut self,
        (phase, remote): (ExchangePhase, &RemoteExchange),
        from: &Region,
        to: &Region,
    ) -> Result<(), Error> {
        let Some(endpoint) = &mut self.endpoint else { return Ok(()) };
        let (transport, staging) = (&mut *endpoint.transport, endpoint.staging.start());
        // SAFETY: required of the caller; the staging memory was sized for the largest bucket.
        unsafe { phase.of(remote).begin(transport, from, to, staging) }
    }

    /// Waits for all messages that have begun.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        let Some(endpoint) = &mut self.endpoint else { return Ok(()) };
        endpoint.transport.finish(self.abort)
    }

    /// Unpacks the parts of inputs of a collective after they have arrived. Shares need no
    /// unpacking.
    ///
    /// # Safety
    /// As [`MessageBatch::unpack`].
    pub(crate) unsafe fn unpack_inputs(&self, remote: &RemoteExchange, to: &Region) {
        // SAFETY: required of the caller.
        unsafe { remote.inputs.unpack(to, self.staging()) };
    }

    /// Returns the start of the staging memory.
    pub(crate) fn staging(&self) -> *const u8 {
        self.endpoint.as_ref().map_or(ptr::null(), |it| it.staging.start().cast_const())
    }
}

/// Packs strided elements into contiguous memory.
///
/// # Safety
/// As [`MessageBatch::begin`].
unsafe fn pack(overlap: &TileOverlap, from: &Region, packed: *mut u8) {
    let mut packed = packed;
    overlap.for_each(|_, there, length| {
        let n_bytes = length * from.dtype.bytes();
        // SAFETY: required of the caller.
        unsafe { packed.copy_from_nonoverlapping(from.address(there), n_bytes) };
        packed = packed.wrapping_add(n_bytes);
    });
}

/// Allocator of staging memory.
struct StagingLayout {
    end: usize,
    element_bytes: usize,
}

impl StagingLayout {
    /// Returns the location of elements of the input that are sent.
    fn place_sent(&mut self, overlap: TileOverlap) -> (usize, MessageLocation) {
        self.place(overlap, |_, there| there)
    }

    /// Returns the location of elements of the result that are received.
    fn place_received(&mut self, overlap: TileOverlap) -> (usize, MessageLocation) {
        self.place(overlap, |local, _| local)
    }

    fn place(
        &mut self,
        overlap: TileOverlap,
        side: impl Fn(usize, usize) -> usize,
    ) -> (usize, MessageLocation) {
        let (mut n_elements, mut first, mut is_whole) = (0, None, true);
        overlap.for_each(|local, there, length| {
            let start = side(local, there);
            is_whole &= start == *first.get_or_insert(start) + n_elements;
            n_elements += length;
        });
        match first {
            Some(start) if is_whole => (n_elements, MessageLocation::Contiguous(start)),
            Some(_) | None => {
                (n_elements, MessageLocation::Packed { start: self.reserve(n_elements), overlap })
            }
        }
    }

    /// Returns the location of partial results that are received.
    fn place_partials(&mut self, n_elements: usize) -> (usize, MessageLocation) {
        (n_elements, MessageLocation::Staged(self.reserve(n_elements)))
    }

    fn reserve(&mut self, n_elements: usize) -> usize {
        let start = self.end;
        self.end += (n_elements * self.element_bytes).next_multiple_of(ALIGNMENT);
        start
    }
}

const fn in_buffer(share: Range<usize>) -> (usize, MessageLocation) {
    (share.end - share.start, MessageLocation::Contiguous(share.start))
}

fn messages(
    peers: &[usize],
    mut of: impl FnMut(usize) -> (usize, MessageLocation),
) -> Vec<Message> {
    let message = |peer: &usize| {
        let (n_elements, location) = of(*peer);
        Message { peer: *peer, n_elements, location }
    };
    peers.iter().map(message).collect()
}

fn partial_sources(group: &[usize], received: &[Message]) -> Vec<PartialSource> {
    let source = |rank: &usize| {
        let message = received.iter().find(|it| it.peer == *rank);
        match message.map(|it| &it.location) {
            Some(MessageLocation::Staged(start)) => PartialSource::Staged(*start),
            Some(MessageLocation::Contiguous(_) | MessageLocation::Packed { .. }) | None => {
                PartialSource::Arena(*rank)
            }
        }
    };
    group.iter().map(source).collect()
}
