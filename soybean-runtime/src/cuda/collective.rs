//! Collectives as tasks. Where every rank has a GPU of its own, NCCL moves the data; else each rank reads what it needs from the others' memory.

use std::ops::Range;

use soybean_plan::{Access, AxisSet, Collective, CollectiveKind, Combine, DType, Lane, Mesh};

use super::transfer::{Block, Packed, Part, Position, Transfer, packed, shifted, stretch};
use crate::{Error, movement::Movement, overlap::Overlap};

/// How data pass between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Ranks read each other's memory.
    Direct,
    /// NCCL.
    Nccl,
}

/// A part of a collective that is queued at once.
pub(crate) struct Exchange {
    pub(crate) stages: Vec<Stage>,
    pub(crate) access: Access,
    /// The bytes that each rank receives from others.
    pub(crate) received: Vec<u64>,
}

/// One operation on all ranks.
pub(crate) enum Stage {
    Transfer(Transfer),
    Joint(Joint),
}

/// A call of NCCL by all ranks of each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Joint {
    pub(crate) kind: JointKind,
    pub(crate) axes: AxisSet,
    pub(crate) dtype: DType,
    /// The elements of each piece.
    pub(crate) n_elements: usize,
    pub(crate) send: (Block, usize),
    pub(crate) receive: (Block, usize),
}

/// The calls of NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JointKind {
    AllReduce(Combine),
    ReduceScatter(Combine),
    AllGather,
    AllToAll,
}

/// What one rank takes from the others.
struct Share {
    /// What it copies or combines from their inputs.
    parts: Vec<Part>,
    /// What it copies from their results after that.
    gathered: Vec<Part>,
    /// The elements of both that come from others.
    n_received: usize,
}

/// A collective between two buffers of the arena.
pub(crate) struct Builder<'a> {
    pub(crate) mesh: &'a Mesh,
    pub(crate) collective: &'a Collective,
    pub(crate) input: Range<usize>,
    pub(crate) result: Range<usize>,
    /// For each rank the words that its transfers have so far.
    pub(crate) n_words: &'a mut Vec<usize>,
    /// The bytes that collectives need while they run.
    pub(crate) staging_bytes: &'a mut usize,
}

impl Builder<'_> {
    /// The tasks of the collective.
    pub(crate) fn exchanges(&mut self, transport: Transport) -> Result<Vec<Exchange>, Error> {
        match (transport, self.collective.kind) {
            (_, CollectiveKind::Slice) | (Transport::Direct, _) => self.direct(),
            (Transport::Nccl, CollectiveKind::AllReduce) => Ok(vec![self.all_reduce()]),
            (Transport::Nccl, CollectiveKind::AllGather) => Ok(vec![self.all_gather()?]),
            (Transport::Nccl, CollectiveKind::ReduceScatter | CollectiveKind::AllToAll) => {
                Ok(vec![self.scatter()?])
            }
        }
    }

    fn n_bytes(&self, n_elements: usize) -> u64 {
        (n_elements * self.collective.dtype.bytes()) as u64
    }

    fn arena(rank: usize, range: &Range<usize>) -> Position {
        Position { rank, block: Block::Arena, offset: range.start }
    }

    fn transfer(
        &mut self,
        combine: Option<Combine>,
        parts: Vec<(Position, Vec<Part>)>,
    ) -> Result<Stage, Error> {
        Transfer::new(combine, self.collective.dtype, parts, self.n_words).map(Stage::Transfer)
    }

    /// Ranks take what they need from each other's memory.
    fn direct(&mut self) -> Result<Vec<Exchange>, Error> {
        let (mut received, mut first, mut second) = (Vec::new(), Vec::new(), Vec::new());
        for rank in 0..self.mesh.n_ranks() {
            let Share { parts, gathered, n_received } = self.share(rank);
            received.push(self.n_bytes(n_received));
            first.push((Self::arena(rank, &self.result), parts));
            second.push((Self::arena(rank, &self.result), gathered));
        }
        let is_shared = second.iter().any(|it| !it.1.is_empty());
        let combine = match self.collective.kind {
            CollectiveKind::ReduceScatter | CollectiveKind::AllReduce => {
                Some(self.collective.combine)
            }
            CollectiveKind::Slice | CollectiveKind::AllToAll | CollectiveKind::AllGather => None,
        };
        let first = self.transfer(combine, first)?;
        let mut exchanges = vec![self.exchange(vec![first], self.input.clone(), received)];
        if is_shared {
            let second = self.transfer(None, second)?;
            let none = vec![0; self.mesh.n_ranks()];
            exchanges.push(self.exchange(vec![second], self.result.clone(), none));
        }
        Ok(exchanges)
    }

    /// What a rank takes from the others.
    fn share(&self, rank: usize) -> Share {
        let all = |group: &[usize]| {
            group.iter().map(|it| Self::arena(*it, &self.input)).collect::<Vec<_>>()
        };
        match Movement::new(self.collective, self.mesh, rank) {
            Movement::Copy(parts) => {
                let others = parts.iter().filter(|(peer, _)| *peer != rank);
                let n_received = others.map(|(_, overlap)| n_shared(overlap)).sum();
                let part = |(peer, overlap): &(usize, Overlap)| Part {
                    sources: vec![Self::arena(*peer, &self.input)],
                    dims: overlap.dims(),
                };
                let parts = parts.iter().map(part).collect();
                Share { parts, gathered: Vec::new(), n_received }
            }
            Movement::Scatter { group, overlap } => Share {
                parts: vec![Part { sources: all(&group), dims: overlap.dims() }],
                gathered: Vec::new(),
                n_received: n_shared(&overlap) * (group.len() - 1),
            },
            Movement::Reduce { group, shares } => {
                let (mut parts, mut gathered, mut n_received) = (Vec::new(), Vec::new(), 0);
                for (peer, share) in group.iter().zip(&shares) {
                    let dims = stretch(share);
                    if *peer == rank {
                        n_received += share.len() * (group.len() - 1);
                        parts.push(Part { sources: all(&group), dims });
                    } else {
                        n_received += share.len();
                        let sources = vec![Self::arena(*peer, &self.result)];
                        gathered.push(Part { sources, dims });
                    }
                }
                Share { parts, gathered, n_received }
            }
        }
    }

    /// A task that reads the same stretch on all ranks of the group.
    fn exchange(&self, stages: Vec<Stage>, reads: Range<usize>, received: Vec<u64>) -> Exchange {
        let axes = self.collective.axes;
        let is_local = self.collective.kind == CollectiveKind::Slice;
        let (lane, own, group) = match is_local {
            true => (Lane::Compute, vec![reads], Vec::new()),
            false => (Lane::Communication, Vec::new(), vec![reads]),
        };
        let axes = if is_local { AxisSet::default() } else { axes };
        let writes = vec![self.result.clone()];
        Exchange {
            stages,
            access: Access { lane, reads: own, group_reads: group, axes, writes },
            received,
        }
    }

    /// A task in which NCCL reads the other ranks' memory, in step with them.
    fn joint(&self, stages: Vec<Stage>, received: Vec<u64>) -> Exchange {
        let access = Access {
            lane: Lane::Communication,
            reads: vec![self.input.clone()],
            group_reads: Vec::new(),
            axes: AxisSet::default(),
            writes: vec![self.result.clone()],
        };
        Exchange { stages, access, received }
    }

    fn call(
        &self,
        kind: JointKind,
        n_elements: usize,
        send: (Block, usize),
        receive: (Block, usize),
    ) -> Stage {
        let (axes, dtype) = (self.collective.axes, self.collective.dtype);
        Stage::Joint(Joint { kind, axes, dtype, n_elements, send, receive })
    }

    fn in_arena(range: &Range<usize>) -> (Block, usize) {
        (Block::Arena, range.start)
    }

    fn all_reduce(&self) -> Exchange {
        let n_elements = self.collective.source().local_shape(self.mesh).n_elements();
        let n_ranks = self.mesh.group_size(self.collective.axes);
        let kind = JointKind::AllReduce(self.collective.combine);
        let (send, receive) = (Self::in_arena(&self.input), Self::in_arena(&self.result));
        // Each rank combines a share of the elements and gathers the others'; shares differ by at most one element.
        let received = |rank: usize| {
            let group = self.mesh.group(rank, self.collective.axes);
            let number = group.iter().position(|it| *it == rank).unwrap_or(0);
            let share = n_elements * (number + 1) / n_ranks - n_elements * number / n_ranks;
            self.n_bytes(share * (n_ranks - 1) + n_elements - share)
        };
        let received = (0..self.mesh.n_ranks()).map(received).collect();
        self.joint(vec![self.call(kind, n_elements, send, receive)], received)
    }

    fn all_gather(&mut self) -> Result<Exchange, Error> {
        let n_elements = self.collective.source().local_shape(self.mesh).n_elements();
        let n_peers = self.mesh.group_size(self.collective.axes);
        let staged = (Block::Staging, 0);
        self.stage(n_peers * n_elements);
        let call = self.call(JointKind::AllGather, n_elements, Self::in_arena(&self.input), staged);
        let unpack = |rank: usize| {
            let (to, from) = (self.collective.destination(), self.collective.source());
            let peers = self.mesh.group(rank, self.collective.axes);
            let part = |(number, peer): (usize, &usize)| {
                let overlap = Overlap::between(self.mesh, (&to, rank), (&from, *peer));
                let dims = shifted(overlap.dims(), Packed::There, number * n_elements);
                Part { sources: vec![Position { rank, block: Block::Staging, offset: 0 }], dims }
            };
            (Self::arena(rank, &self.result), peers.iter().enumerate().map(part).collect())
        };
        let unpack = (0..self.mesh.n_ranks()).map(unpack).collect();
        let unpack = self.transfer(None, unpack)?;
        let received = self.n_bytes(n_elements * (n_peers - 1));
        Ok(self.joint(vec![call, unpack], vec![received; self.mesh.n_ranks()]))
    }

    /// Pieces for each peer, which are combined on arrival or put in their places.
    fn scatter(&mut self) -> Result<Exchange, Error> {
        let (from, to) = (self.collective.source(), self.collective.destination());
        let n_peers = self.mesh.group_size(self.collective.axes);
        let shared = |to_rank: usize, from_rank: usize| {
            Overlap::between(self.mesh, (&to, to_rank), (&from, from_rank))
        };
        let n_piece = n_shared(&shared(0, 0));
        let (mut pack, mut unpack) = (Vec::new(), Vec::new());
        for rank in 0..self.mesh.n_ranks() {
            let (mut pieces, mut parts) = (Vec::new(), Vec::new());
            for (number, peer) in
                self.mesh.group(rank, self.collective.axes).into_iter().enumerate()
            {
                let start = number * n_piece;
                let (dims, _) = packed(&shared(peer, rank), Packed::Here, start);
                pieces.push(Part { sources: vec![Self::arena(rank, &self.input)], dims });
                let (dims, _) = packed(&shared(rank, peer), Packed::There, start);
                let offset = n_peers * n_piece * self.collective.dtype.bytes();
                let source =
                    Position { rank, block: Block::Staging, offset: offset.next_multiple_of(256) };
                parts.push(Part { sources: vec![source], dims });
            }
            pack.push((Position { rank, block: Block::Staging, offset: 0 }, pieces));
            unpack.push((Self::arena(rank, &self.result), parts));
        }
        let pack = self.transfer(None, pack)?;
        let received = vec![self.n_bytes(n_piece * (n_peers - 1)); self.mesh.n_ranks()];
        let sent = (Block::Staging, 0);
        if self.collective.kind == CollectiveKind::ReduceScatter {
            self.stage(n_peers * n_piece);
            let kind = JointKind::ReduceScatter(self.collective.combine);
            let call = self.call(kind, n_piece, sent, Self::in_arena(&self.result));
            return Ok(self.joint(vec![pack, call], received));
        }
        let second = (n_peers * n_piece * self.collective.dtype.bytes()).next_multiple_of(256);
        self.stage(second / self.collective.dtype.bytes() + n_peers * n_piece);
        let call = self.call(JointKind::AllToAll, n_piece, sent, (Block::Staging, second));
        let unpack = self.transfer(None, unpack)?;
        Ok(self.joint(vec![pack, call, unpack], received))
    }

    fn stage(&mut self, n_elements: usize) {
        let n_bytes = n_elements * self.collective.dtype.bytes();
        *self.staging_bytes = n_bytes.max(*self.staging_bytes);
    }
}

fn n_shared(overlap: &Overlap) -> usize {
    let mut n_elements = 0;
    overlap.for_each(|_, _, length| n_elements += length);
    n_elements
}
