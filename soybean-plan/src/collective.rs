//! Collectives: conversions of a tensor from one tiling to another.

use std::{fmt, ops::Range};

use crate::{AxisSet, Combine, DType, Halo, Mesh, Shape, Tile, Tiling};

/// Two ranks that each combine all elements move as many bytes as two that share the work, and wait
/// once less. From this many elements on, the arithmetic costs more than the wait.
const WORTH_SHARING: usize = 32 * 1024;

/// The kinds of data movement between tilings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CollectiveKind {
    /// `r -> P`: each rank keeps its part; no data moves.
    Slice,
    /// `red -> P`: each rank combines its part of the partial results of all ranks.
    ReduceScatter,
    /// `red -> r`: each rank combines one share of the partial results, then all shares are
    /// gathered.
    AllReduce,
    /// `P_i -> P_j`: each rank sends each other rank the part that it needs.
    AllToAll,
    /// `P -> r`: each rank receives the parts of all ranks.
    AllGather,
    /// `P -> P` with a [`Halo`]: each rank receives the elements around its own part.
    HaloExchange,
}

impl CollectiveKind {
    /// All kinds, in the order of their declaration.
    pub const ALL: [Self; 6] = [
        Self::Slice,
        Self::ReduceScatter,
        Self::AllReduce,
        Self::AllToAll,
        Self::AllGather,
        Self::HaloExchange,
    ];

    /// Returns the name in the text form.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slice => "slice",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllReduce => "all-reduce",
            Self::AllToAll => "all-to-all",
            Self::AllGather => "all-gather",
            Self::HaloExchange => "halo-exchange",
        }
    }

    /// Returns the number of elements that are moved between ranks, over all `n_ranks` ranks in
    /// groups of `group`. Each rank holds `n_local` elements before.
    ///
    /// # Panics
    /// Panics for a halo exchange, whose elements [`Halo::moved`] counts.
    #[must_use]
    pub fn moved(self, n_local: u64, group: u64, n_ranks: u64) -> u64 {
        match self {
            Self::Slice => 0,
            Self::ReduceScatter | Self::AllToAll => n_ranks * n_local / group * (group - 1),
            Self::AllReduce => n_ranks / group * 2 * n_local * (group - 1),
            Self::AllGather => n_ranks * n_local * (group - 1),
            Self::HaloExchange => unreachable!("the elements of a halo depend on its parts"),
        }
    }
}

/// A change of tiling along some axes of the mesh. All ranks that differ only along those axes take
/// part together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collective {
    /// The kind of data movement.
    pub kind: CollectiveKind,
    /// The type of the elements.
    pub dtype: DType,
    /// The function that combines partial results. Its identity is the value of a halo outside the
    /// tensor. Without meaning for the other kinds, which only move data.
    pub combine: Combine,
    /// The axes along which the placement changes.
    pub axes: AxisSet,
    /// The shape of the whole tensor.
    pub shape: Shape,
    /// The tiling before.
    pub from: Tiling,
    /// The tiling after.
    pub to: Tiling,
    /// The elements around its part that a rank has after.
    pub halo: Halo,
}

impl Collective {
    /// Returns the tile before.
    #[must_use]
    pub const fn source(&self) -> Tile {
        Tile::new(self.shape, self.from)
    }

    /// Returns the tile after, without its halo.
    #[must_use]
    pub const fn destination(&self) -> Tile {
        Tile::new(self.shape, self.to)
    }

    /// Returns the shape of a rank's part after, with its halo.
    #[must_use]
    pub fn result_shape(&self, mesh: &Mesh) -> Shape {
        self.halo.local_shape(&self.destination(), mesh)
    }

    /// Returns the number of bytes moved between ranks, over all ranks.
    #[must_use]
    pub fn bytes(&self, mesh: &Mesh) -> u64 {
        let n_moved = match self.kind {
            CollectiveKind::HaloExchange => self.halo.moved(&self.destination(), mesh),
            CollectiveKind::Slice
            | CollectiveKind::ReduceScatter
            | CollectiveKind::AllReduce
            | CollectiveKind::AllToAll
            | CollectiveKind::AllGather => {
                let n_local = self.source().local_shape(mesh).n_elements() as u64;
                let group = mesh.group_size(self.axes) as u64;
                self.kind.moved(n_local, group, mesh.n_ranks() as u64)
            }
        };
        n_moved * self.dtype.bytes() as u64
    }

    /// Returns the number of elements of its halo that the rank `here` receives from `there`, which
    /// differs from it along the axes of the halo.
    #[must_use]
    pub fn halo_from(&self, mesh: &Mesh, here: usize, there: usize) -> usize {
        let tile = self.destination();
        let coordinates = [here, there].map(|it| mesh.coordinates(it));
        let shared = |dim: usize| -> usize {
            let runs = self.halo.overlap(&tile, dim, mesh, [&coordinates[0], &coordinates[1]]);
            runs.iter().map(|it| it.length).sum()
        };
        (0..self.shape.len()).map(shared).product()
    }

    /// Returns the bytes of a halo exchange along each axis; see [`Self::bytes_per_axis`].
    fn halo_bytes_per_axis(&self, mesh: &Mesh) -> Vec<u64> {
        let mut bytes = vec![0; mesh.n_axes()];
        // All groups move the same elements.
        let group = mesh.group(0, self.axes);
        let n_groups = mesh.n_ranks() / group.len();
        for &here in &group {
            for &there in &group {
                let (one, other) = (mesh.coordinates(here), mesh.coordinates(there));
                if let Some(axis) = self.axes.iter().find(|&axis| one[axis] != other[axis]) {
                    let n_elements = self.halo_from(mesh, here, there) * n_groups;
                    bytes[axis] += (n_elements * self.dtype.bytes()) as u64;
                }
            }
        }
        bytes
    }

    /// Returns the bytes moved along each axis of the mesh, over all ranks. A transfer counts for
    /// the slowest axis along which its two ranks differ.
    #[must_use]
    pub fn bytes_per_axis(&self, mesh: &Mesh) -> Vec<u64> {
        if self.kind == CollectiveKind::HaloExchange {
            return self.halo_bytes_per_axis(mesh);
        }
        let mut bytes = vec![0; mesh.n_axes()];
        let n_peers = mesh.group_size(self.axes) as u64 - 1;
        for axis in self.axes.iter() {
            let faster: AxisSet = self.axes.iter().filter(|&it| it > axis).collect();
            let n_across = (mesh.size(axis) as u64 - 1) * mesh.group_size(faster) as u64;
            bytes[axis] = self.bytes(mesh) / n_peers * n_across;
        }
        bytes
    }

    /// Returns, for an all-reduce, the elements that each rank of the group combines before it
    /// gathers the shares of the others. Returns none if each rank combines all elements itself,
    /// and for the other kinds.
    #[must_use]
    pub fn shares(&self, mesh: &Mesh) -> Option<Vec<Range<usize>>> {
        let n_elements = self.source().local_shape(mesh).n_elements();
        let n_ranks = mesh.group_size(self.axes);
        let is_shared =
            self.kind == CollectiveKind::AllReduce && !(n_ranks == 2 && n_elements < WORTH_SHARING);
        is_shared.then(|| shares(n_elements, n_ranks))
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} -> {}", self.kind.name(), self.shape, self.from, self.to)?;
        if self.halo.is_none() { Ok(()) } else { write!(f, " with {}", self.halo) }
    }
}

/// Splits elements into consecutive shares of about equal length that begin at cache lines, as long
/// as there are enough elements.
fn shares(n_elements: usize, n_shares: usize) -> Vec<Range<usize>> {
    const LINE: usize = 16;
    let bound =
        |share: usize| (n_elements * share / n_shares).next_multiple_of(LINE).min(n_elements);
    (0..n_shares).map(|it| bound(it)..bound(it + 1)).collect()
}
