//! Halos: the elements around its own part of a tensor that a rank reads, too.
//!
//! A rank that computes some rows of a convolution reads the rows of the image that its windows
//! reach. Those beyond its own part lie on its neighbors, or outside the image. A dim with a halo
//! is split into blocks of consecutive indices: see
//! [`splits_into_blocks`](crate::splits_into_blocks).

use std::{fmt, ops::Range};

use crate::{AxisSet, MAX_AXES, MAX_RANK, Mesh, Run, Shape, Tile};

/// The numbers of elements around its own part that a rank reads. All ranks store as many, also
/// where they lie outside the tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Halo {
    /// The elements before the part along each dim.
    pub before: [usize; MAX_RANK],
    /// The elements after the part along each dim.
    pub after: [usize; MAX_RANK],
}

impl Halo {
    /// No halo.
    pub const NONE: Self = Self { before: [0; MAX_RANK], after: [0; MAX_RANK] };

    /// Returns this halo with these elements before and after the part along a dim.
    ///
    /// # Panics
    /// Panics if the dim is [`MAX_RANK`] or more.
    #[must_use]
    pub const fn with(mut self, dim: usize, [before, after]: [usize; 2]) -> Self {
        (self.before[dim], self.after[dim]) = (before, after);
        self
    }

    /// Returns true if there is no halo.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Returns true if there is a halo along this dim.
    #[must_use]
    pub const fn is_along(&self, dim: usize) -> bool {
        self.before[dim] + self.after[dim] > 0
    }

    /// Returns the part of this halo that a rank has if it has `other` around the same part: all of
    /// it if `other` is as wide everywhere. Otherwise, it is the sides along which `other` is as
    /// wide, if there is one dim: along several dims, corners would be missing.
    #[must_use]
    pub fn within(&self, other: &Self) -> Self {
        let is_whole = |dim: usize| {
            self.before[dim] <= other.before[dim] && self.after[dim] <= other.after[dim]
        };
        if (0..MAX_RANK).all(is_whole) {
            return *self;
        }
        let mut dims = (0..MAX_RANK).filter(|&dim| self.is_along(dim) || other.is_along(dim));
        let (Some(dim), None) = (dims.next(), dims.next()) else { return Self::NONE };
        let side = |own: usize, other: usize| if own <= other { own } else { 0 };
        let before = side(self.before[dim], other.before[dim]);
        Self::NONE.with(dim, [before, side(self.after[dim], other.after[dim])])
    }

    /// Returns this halo without a part of it.
    #[must_use]
    pub fn without(&self, part: &Self) -> Self {
        let rest =
            |dim: usize| [self.before[dim] - part.before[dim], self.after[dim] - part.after[dim]];
        (0..MAX_RANK).fold(Self::NONE, |halo, dim| halo.with(dim, rest(dim)))
    }

    /// Returns the axes that split dims with a halo.
    #[must_use]
    pub fn axes(&self, tile: &Tile) -> AxisSet {
        let dims = (0..tile.shape.len()).filter(|&dim| self.is_along(dim));
        AxisSet(dims.fold(0, |axes, dim| axes | tile.tiling.axes_of(dim).0))
    }

    /// Returns the shape of a rank's part with its halo.
    #[must_use]
    pub fn local_shape(&self, tile: &Tile, mesh: &Mesh) -> Shape {
        let local = tile.local_shape(mesh);
        (0..local.len()).map(|dim| local[dim] + self.before[dim] + self.after[dim]).collect()
    }

    /// Returns the number of elements that all ranks together receive for their halos.
    #[must_use]
    pub fn moved(&self, tile: &Tile, mesh: &Mesh) -> u64 {
        let local = tile.local_shape(mesh);
        let (mut n_parts, mut n_elements) = (1, 1);
        for dim in 0..local.len() {
            if !self.is_along(dim) {
                n_elements *= local[dim] as u64;
                continue;
            }
            let parts = mesh.group_size(tile.tiling.axes_of(dim));
            let inside = |part: usize| self.inside(dim, part * local[dim], tile, mesh).len();
            n_parts *= parts as u64;
            n_elements *= (0..parts).map(inside).sum::<usize>() as u64;
        }
        let n_ranks = mesh.n_ranks() as u64;
        n_ranks / n_parts * n_elements - n_ranks * local.n_elements() as u64
    }

    /// Returns the runs along `dim` that a rank's part with its halo, `here`, shares with the part
    /// without halo of another rank, `there`.
    #[must_use]
    pub fn overlap(
        &self,
        tile: &Tile,
        dim: usize,
        mesh: &Mesh,
        [here, there]: [&[usize; MAX_AXES]; 2],
    ) -> Vec<Run> {
        if !self.is_along(dim) {
            return tile.overlap(dim, mesh, here, tile, there);
        }
        let start = |coordinates| tile.indices(dim, mesh, coordinates).first().copied();
        let (Some(first), Some(other)) = (start(here), start(there)) else { return Vec::new() };
        let inside = self.inside(dim, first, tile, mesh);
        let (from, to) =
            (inside.start.max(other), inside.end.min(other + tile.local_shape(mesh)[dim]));
        let run =
            |length| Run { here: from + self.before[dim] - first, there: from - other, length };
        to.checked_sub(from).filter(|it| *it > 0).map(run).into_iter().collect()
    }

    /// Returns the positions along `dim` of a rank's part with its halo that lie outside the
    /// tensor, and those inside.
    #[must_use]
    pub fn outside_and_inside(
        &self,
        tile: &Tile,
        dim: usize,
        mesh: &Mesh,
        coordinates: &[usize; MAX_AXES],
    ) -> (Vec<Range<usize>>, Range<usize>) {
        let n_all = self.local_shape(tile, mesh)[dim];
        let first = tile.indices(dim, mesh, coordinates).first().copied();
        let Some(first) = first.filter(|_| self.is_along(dim)) else {
            return (Vec::new(), 0..n_all);
        };
        let inside = self.inside(dim, first, tile, mesh);
        let place = |index: usize| index + self.before[dim] - first;
        let inside = place(inside.start)..place(inside.end);
        let outside = [0..inside.start, inside.end..n_all];
        (outside.into_iter().filter(|it| !it.is_empty()).collect(), inside)
    }

    /// Returns the indices within the tensor of the part that begins at `first`, with its halo.
    fn inside(&self, dim: usize, first: usize, tile: &Tile, mesh: &Mesh) -> Range<usize> {
        let end = first + tile.local_shape(mesh)[dim] + self.after[dim];
        first.saturating_sub(self.before[dim])..end.min(tile.shape[dim])
    }
}

impl fmt::Display for Halo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("halo")?;
        for dim in (0..MAX_RANK).filter(|&dim| self.is_along(dim)) {
            write!(f, " {dim}:{}+{}", self.before[dim], self.after[dim])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Placement, Tiling, splits_into_blocks};

    /// Checks a halo against the sets of indices of all ranks, one by one.
    fn check(n_ranks: usize, extent: usize, axes: AxisSet, [before, after]: [usize; 2]) {
        let mesh = Mesh::new(n_ranks);
        let place = |axis| match axes.contains(axis) {
            true => Placement::Split(1),
            false => Placement::Replicated,
        };
        let placements: Vec<Placement> = (0..mesh.n_axes()).map(place).collect();
        let tile = Tile::new(Shape::new(&[3, extent]), Tiling::new(&placements));
        let halo = Halo::NONE.with(1, [before, after]);
        let held = |rank| tile.indices(1, &mesh, &mesh.coordinates(rank));
        let mut n_received = 0;
        for rank in 0..n_ranks {
            let own = held(rank);
            let wanted = |it: &usize| it + before >= own[0] && *it <= own[own.len() - 1] + after;
            let mut filled = vec![0; own.len() + before + after];
            for peer in mesh.group(rank, axes) {
                let coordinates = [rank, peer].map(|it| mesh.coordinates(it));
                let runs = halo.overlap(&tile, 1, &mesh, [&coordinates[0], &coordinates[1]]);
                for run in &runs {
                    for step in 0..run.length {
                        filled[run.here + step] += 1;
                        let index = held(peer)[run.there + step];
                        assert_eq!(index + before, own[0] + run.here + step);
                    }
                }
                let n_shared = held(peer).iter().filter(|it| wanted(it)).count();
                assert_eq!(runs.iter().map(|it| it.length).sum::<usize>(), n_shared);
                n_received += if peer == rank { 0 } else { 3 * n_shared };
            }
            let coordinates = mesh.coordinates(rank);
            let (outside, inside) = halo.outside_and_inside(&tile, 1, &mesh, &coordinates);
            outside.into_iter().flatten().for_each(|it| filled[it] += 1);
            assert!(filled.iter().all(|it| *it == 1), "{n_ranks} {extent} {axes:?}: {filled:?}");
            assert_eq!(inside.len(), (0..extent).filter(wanted).count());
        }
        assert_eq!(halo.moved(&tile, &mesh), n_received as u64, "{n_ranks} {extent} {axes:?}");
    }

    #[test]
    fn every_element_of_a_halo_has_one_owner_or_is_outside() {
        let mut n_checked = 0;
        for n_ranks in [2, 3, 4, 6, 8, 12] {
            let mesh = Mesh::new(n_ranks);
            for extent in [2, 4, 6, 8, 9, 12, 14, 24] {
                for mask in 1..1_u16 << mesh.n_axes() {
                    if splits_into_blocks(extent, &mesh, AxisSet(mask)) {
                        for halo in [[1, 0], [0, 1], [1, 1], [3, 2], [5, 5]] {
                            check(n_ranks, extent, AxisSet(mask), halo);
                            n_checked += 1;
                        }
                    }
                }
            }
        }
        assert!(n_checked > 200, "{n_checked}");
    }

    #[test]
    fn a_halo_within_another_is_its_sides_unless_corners_are_missing() {
        let along = |dim, sides| Halo::NONE.with(dim, sides);
        let one = along(1, [2, 3]);
        for (other, within) in [
            (one, one),
            (along(1, [2, 4]), one),
            (along(1, [2, 1]), along(1, [2, 0])),
            (along(1, [1, 3]), along(1, [0, 3])),
            (along(2, [2, 3]), Halo::NONE),
            (one.with(2, [1, 1]), one),
            (along(1, [2, 1]).with(2, [1, 1]), Halo::NONE),
            (Halo::NONE, Halo::NONE),
        ] {
            assert_eq!(one.within(&other), within, "{other}");
        }
        assert_eq!(one.without(&along(1, [2, 0])), along(1, [0, 3]));
        assert!(one.without(&one).is_none());
    }

    #[test]
    fn corners_of_two_dims_are_moved_too() {
        // 4 ranks, 2 x 2 parts of 2 x 2 elements, one element on each side: 2 + 2 + 1 for each.
        let mesh = Mesh::new(4);
        let tiling = Tiling::new(&[Placement::Split(0), Placement::Split(1)]);
        let tile = Tile::new(Shape::new(&[4, 4]), tiling);
        let halo = Halo::NONE.with(0, [1, 1]).with(1, [1, 1]);
        assert_eq!(halo.moved(&tile, &mesh), 4 * 5);
        assert_eq!(halo.local_shape(&tile, &mesh), Shape::new(&[4, 4]));
        assert_eq!(halo.axes(&tile), [0, 1].into_iter().collect());
        assert_eq!(halo.to_string(), "halo 0:1+1 1:1+1");
    }
}
