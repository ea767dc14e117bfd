//! Collectives as transfers: what each rank takes from which other, when every rank reads the others' memory.

use soybean_plan::{Collective, CollectiveKind, Mesh, Tile};

/// What one rank takes from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) source: usize,
    pub(crate) bytes: u64,
}

/// For each rank what it takes from others, in the parts of a collective that follow one another: one, or for an all-reduce in shares two, with all ranks done with the first before any of their group
/// begins the second.
pub(crate) fn parts(collective: &Collective, mesh: &Mesh) -> Vec<Vec<Vec<Transfer>>> {
    let of_all = |taken: &dyn Fn(usize, usize) -> usize| -> Vec<Vec<Transfer>> {
        (0..mesh.n_ranks()).map(|rank| of_rank(collective, mesh, rank, taken)).collect()
    };
    let (from, to) = (collective.source(), collective.destination());
    match (collective.kind, collective.shares(mesh)) {
        (CollectiveKind::Slice, _) => Vec::new(),
        (CollectiveKind::AllToAll | CollectiveKind::AllGather, _) => {
            vec![of_all(&|rank, peer| n_shared(mesh, (&to, rank), (&from, peer)))]
        }
        // Partial results lie alike on all ranks of the group: each takes from every other all that it keeps.
        (CollectiveKind::ReduceScatter, _) | (CollectiveKind::AllReduce, None) => {
            vec![of_all(&|rank, _| n_shared(mesh, (&to, rank), (&from, rank)))]
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

/// What a rank takes from each other of its group, given the number of elements.
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

/// The number of elements that the tiles of two ranks share.
fn n_shared(mesh: &Mesh, (here, rank): (&Tile, usize), (there, peer): (&Tile, usize)) -> usize {
    let (coordinates, others) = (mesh.coordinates(rank), mesh.coordinates(peer));
    let along = |dim: usize| -> usize {
        let runs = here.overlap(dim, mesh, &coordinates, there, &others);
        runs.iter().map(|it| it.length).sum()
    };
    (0..here.shape.len()).map(along).product()
}
