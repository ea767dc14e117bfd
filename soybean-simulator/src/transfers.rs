//! Collectives as transfers between pairs of ranks.

use soybean_plan::{AxisSet, Bucket, Collective, CollectiveKind, Mesh, Tile};

/// A transfer from one rank to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) source: usize,
    pub(crate) bytes: u64,
}

/// The transfers of all ranks at one point of a collective.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// For each rank the transfers that it receives.
    pub(crate) taken: Vec<Vec<Transfer>>,
    /// The number of latencies before the last byte can follow.
    pub(crate) n_hops: usize,
    /// The axes along which ranks begin and end together; none if each rank proceeds by itself.
    pub(crate) joint: AxisSet,
}

/// Returns a bucket in which every rank reads the others' memory, as consecutive phases. It has one
/// phase, or two if it contains an all-reduce in shares. The second begins when all ranks of a
/// group have ended the first.
pub(crate) fn direct(bucket: &Bucket, mesh: &Mesh) -> Vec<Part> {
    joined(bucket.collectives.iter().map(|it| direct_one(it, mesh)))
}

/// Returns a bucket as NCCL performs it: in a ring of the group's ranks, piece by piece.
pub(crate) fn in_rings(bucket: &Bucket, mesh: &Mesh) -> Vec<Part> {
    joined(bucket.collectives.iter().map(|it| ring_of_one(it, mesh)))
}

/// Returns collectives that run together: the transfers of each phase, between two ranks as one.
fn joined(collectives: impl Iterator<Item = Vec<Part>>) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::new();
    for parts in collectives {
        for (phase, part) in parts.into_iter().enumerate() {
            match joined.get_mut(phase) {
                Some(all) => all.taken.iter_mut().zip(part.taken).for_each(|it| add(it.0, it.1)),
                None => joined.push(part),
            }
        }
    }
    joined
}

/// Adds the transfers to a rank to others to the same rank.
fn add(all: &mut Vec<Transfer>, more: Vec<Transfer>) {
    for transfer in more {
        match all.iter_mut().find(|it| it.source == transfer.source) {
            Some(same) => same.bytes += transfer.bytes,
            None => all.push(transfer),
        }
    }
}

fn direct_one(collective: &Collective, mesh: &Mesh) -> Vec<Part> {
    let of_all = |taken: &dyn Fn(usize, usize) -> usize| Part {
        taken: (0..mesh.n_ranks()).map(|rank| of_rank(collective, mesh, rank, taken)).collect(),
        n_hops: 1,
        joint: AxisSet::EMPTY,
    };
    let (from, to) = (collective.source(), collective.destination());
    let n_local = |tile: &Tile| tile.local_shape(mesh).n_elements();
    match (collective.kind, collective.shares(mesh)) {
        (CollectiveKind::Slice, _) => Vec::new(),
        (CollectiveKind::AllToAll, _) => {
            vec![of_all(&|rank, peer| n_shared(mesh, (&to, rank), (&from, peer)))]
        }
        (CollectiveKind::HaloExchange, _) => {
            vec![of_all(&|rank, peer| collective.halo_from(mesh, rank, peer))]
        }
        // Each rank reads all elements of every other.
        (CollectiveKind::AllGather, _) => vec![of_all(&|_, _| n_local(&from))],
        // Partial results have the same layout on all ranks of the group: each rank reads its own
        // part from every other.
        (CollectiveKind::ReduceScatter, _) | (CollectiveKind::AllReduce, None) => {
            vec![of_all(&|_, _| n_local(&to))]
        }
        (CollectiveKind::AllReduce, Some(shares)) => {
            let share = |rank: usize| {
                let group = mesh.group(rank, collective.axes);
                group.iter().position(|it| *it == rank).map_or(0, |it| shares[it].len())
            };
            vec![of_all(&|rank, _| share(rank)), of_all(&|_, peer| share(peer))]
        }
    }
}

fn ring_of_one(collective: &Collective, mesh: &Mesh) -> Vec<Part> {
    let n_peers = mesh.group_size(collective.axes) - 1;
    let n_rounds = match collective.kind {
        CollectiveKind::Slice => return Vec::new(),
        CollectiveKind::AllToAll | CollectiveKind::HaloExchange => {
            let mut parts = direct_one(collective, mesh);
            parts.iter_mut().for_each(|it| it.joint = collective.axes);
            return parts;
        }
        CollectiveKind::AllReduce => 2,
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter => 1,
    };
    let n_groups = (mesh.n_ranks() / (n_peers + 1)) as u64;
    let of_group = collective.bytes(mesh) / n_groups;
    let taken = |rank: usize| {
        let group = mesh.group(rank, collective.axes);
        let (place, n) = (group.iter().position(|it| *it == rank).unwrap_or(0), group.len());
        let until = |place: usize| of_group * place as u64 / n as u64;
        let transfer =
            Transfer { source: group[(place + n - 1) % n], bytes: until(place + 1) - until(place) };
        if transfer.bytes > 0 { vec![transfer] } else { Vec::new() }
    };
    let taken = (0..mesh.n_ranks()).map(taken).collect();
    vec![Part { taken, n_hops: n_rounds * n_peers, joint: collective.axes }]
}

/// Returns the transfers to a rank from the others of its group, given the number of elements.
fn of_rank(
    collective: &Collective,
    mesh: &Mesh,
    rank: usize,
    n_taken: &dyn Fn(usize, usize) -> usize,
) -> Vec<Transfer> {
    let bytes = |peer: usize| (n_taken(rank, peer) * collective.dtype.bytes()) as u64;
    let peers = mesh.group(rank, collective.axes).into_iter().filter(|it| *it != rank);
    peers
        .map(|source| Transfer { source, bytes: bytes(source) })
        .filter(|it| it.bytes > 0)
        .collect()
}

/// Returns the number of elements that the tiles of two ranks share.
fn n_shared(mesh: &Mesh, (here, rank): (&Tile, usize), (there, peer): (&Tile, usize)) -> usize {
    let (coordinates, others) = (mesh.coordinates(rank), mesh.coordinates(peer));
    let along = |dim: usize| -> usize {
        let runs = here.overlap(dim, mesh, &coordinates, there, &others);
        runs.iter().map(|it| it.length).sum()
    };
    (0..here.shape.len()).map(along).product()
}
