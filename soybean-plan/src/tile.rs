//! Tiles: the elements of a tensor that a rank holds, and their order.
//!
//! Let `D` be the extent of a dim, with its padding. The axes of the mesh are visited in order. An
//! axis of prime size `f` takes the next digit of the index, of radix `f`, if `D` still has that
//! factor: `index = digit_1 (D / f_1) + digit_2 (D / f_1 f_2) + .. + rest`. Along its axis, a rank
//! holds the indices whose digit is its coordinate. If the number of ranks divides `D`, each axis
//! has its own digit.
//!
//! A dim may consist of equal parts, such as queries, keys and values one after another. Then `D`
//! is the extent of a part, and each part is split in this way. The tile of a slice of such a dim
//! is the slice of its tile.
//!
//! In a *balanced* dim, the first digit is no axis's own. It has radix `f`, and each axis of size
//! `f` takes the sum (mod `f`) of its own digit and this one. On a rank, its own digit therefore
//! takes all values as the first one does, and the indices of all ranks have the same mean. On two
//! ranks, the ranges of the dim belong to ranks 0, 1, 1, 0. Meshes with several primes have one
//! such digit for each.
//! Source: for radix 2, chunks `i` and `2 n - 1 - i` belong to rank `i` in section 3.3 of Dubey et
//! al., "The Llama 3 Herd of Models", 2024.
//!
//! If `D` has fewer factors `f` than the mesh has axes of size `f`, the further axes take sums (mod
//! `f`) of the existing digits. Any one of them can then split the dim, and so can any set of axes
//! whose sums are linearly independent; [`may_split`] tests this. With two digits and three axes of
//! size 2 the sums are `a`, `b` and `a + b`, of which every two are independent.
//!
//! In both cases a tile is the set of indices that satisfy one condition for each axis that splits.
//! A change along one axis therefore never moves data along another. On a rank, the elements of a
//! tile are stored in the order of their global indices.

use std::ops::Range;

use crate::{AxisSet, MAX_AXES, Mesh, Placement, Shape, Tiling, digits::Digits};

/// A tensor of this shape, tiled over a mesh.
///
/// A tensor of partial results has, on every rank, the elements that it would have if it were
/// replicated along those axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The shape of the whole tensor.
    pub shape: Shape,
    /// The shape that is split: larger than `shape` along padded dims. Elements beyond `shape` are
    /// padding, which has no meaning.
    pub padded: Shape,
    /// Its placement on each axis.
    pub tiling: Tiling,
}

/// A run of indices that two lists share: `length` consecutive positions from `here` in one list
/// and from `there` in the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first position in this list.
    pub here: usize,
    /// The first position in the other list.
    pub there: usize,
    /// The number of positions.
    pub length: usize,
}

impl Tile {
    /// Returns the tile of a tensor without padding.
    #[must_use]
    pub const fn new(shape: Shape, tiling: Tiling) -> Self {
        Self { shape, padded: shape, tiling }
    }

    /// Returns true if the tensor has padding.
    #[must_use]
    pub fn is_padded(&self) -> bool {
        self.padded != self.shape
    }

    /// Returns true if every dim can be split along the axes that split it.
    #[must_use]
    pub fn is_legal(&self, mesh: &Mesh) -> bool {
        let in_range = |placement: &Placement| match placement {
            Placement::Split(dim) => (*dim as usize) < self.shape.len(),
            Placement::Replicated | Placement::Partial => true,
        };
        self.tiling.placements().iter().all(in_range)
            && (0..self.shape.len())
                .all(|dim| may_split(self.padded[dim], mesh, self.tiling.axes_of(dim)))
    }

    /// Returns the shape of the part that one rank holds, with its padding.
    #[must_use]
    pub fn local_shape(&self, mesh: &Mesh) -> Shape {
        let extent = |dim| self.padded[dim] / mesh.group_size(self.tiling.axes_of(dim));
        (0..self.shape.len()).map(extent).collect()
    }

    /// Returns the global indices along `dim` that the rank at `coordinates` holds, in local order.
    /// Padding has none; it follows them.
    #[must_use]
    pub fn indices(&self, dim: usize, mesh: &Mesh, coordinates: &[usize; MAX_AXES]) -> Vec<usize> {
        self.ranges(dim, mesh, coordinates).flatten().collect()
    }

    /// Returns the same indices as ranges, some of which may follow each other at once.
    pub fn ranges(
        &self,
        dim: usize,
        mesh: &Mesh,
        coordinates: &[usize; MAX_AXES],
    ) -> impl Iterator<Item = Range<usize>> + use<> {
        let (digits, axes, length) = self.runs_of_equal_digits(dim, mesh);
        let (extent, coordinates) = (self.shape[dim], *coordinates);
        let is_held = move |range: &Range<usize>| {
            axes.iter().all(|&axis| digits.coordinate(axis, range.start) == coordinates[axis])
        };
        let ranges = (0..extent).step_by(length);
        ranges.map(move |start| start..extent.min(start + length)).filter(is_held)
    }

    /// Returns ranges that cover the indices along `dim` in order, each with the number of the part
    /// that has it.
    pub fn ranges_of_parts(
        &self,
        dim: usize,
        mesh: &Mesh,
    ) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let (digits, axes, length) = self.runs_of_equal_digits(dim, mesh);
        let (extent, mesh) = (self.shape[dim], *mesh);
        (0..extent).step_by(length).map(move |start| {
            let part = axes
                .iter()
                .fold(0, |part, &axis| part * mesh.size(axis) + digits.coordinate(axis, start));
            (part, start..extent.min(start + length))
        })
    }

    /// Returns the digits of the indices along `dim`, the axes that split it, and the length of the
    /// runs in which no digit of these axes changes.
    fn runs_of_equal_digits(&self, dim: usize, mesh: &Mesh) -> (Digits, Vec<usize>, usize) {
        let digits = Digits::of(self.padded[dim], mesh);
        let axes: Vec<usize> = self.tiling.axes_of(dim).iter().collect();
        let length = axes.iter().map(|it| digits.least_place(*it)).min();
        (digits, axes, length.unwrap_or(self.shape[dim]).max(1))
    }

    /// Returns the runs of indices along `dim` that the tile of the rank at `coordinates` and the
    /// tile `other` of the rank at `other_coordinates` share. Positions in this tile are `here`,
    /// positions in the other tile `there`.
    #[must_use]
    pub fn overlap(
        &self,
        dim: usize,
        mesh: &Mesh,
        coordinates: &[usize; MAX_AXES],
        other: &Self,
        other_coordinates: &[usize; MAX_AXES],
    ) -> Vec<Run> {
        let theirs = other.indices(dim, mesh, other_coordinates);
        let mut runs: Vec<Run> = Vec::new();
        let mut there = 0;
        for (here, index) in self.indices(dim, mesh, coordinates).into_iter().enumerate() {
            while there < theirs.len() && theirs[there] < index {
                there += 1;
            }
            if theirs.get(there) != Some(&index) {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.here + run.length == here && run.there + run.length == there => {
                    run.length += 1;
                }
                _ => runs.push(Run { here, there, length: 1 }),
            }
        }
        runs
    }
}

/// Returns true if `axes` of the mesh can split a dim of this extent evenly, each independently.
#[must_use]
pub fn may_split(extent: usize, mesh: &Mesh, axes: AxisSet) -> bool {
    // Most extents have a digit for each axis, or none for one of the requested axes.
    let has_all_digits = mesh.has_all_digits(extent);
    let lacks_factor = |axis: usize| !extent.is_multiple_of(mesh.size(axis));
    axes.is_empty()
        || has_all_digits
        || (!axes.iter().any(lacks_factor) && Digits::of(extent, mesh).are_independent(axes))
}

/// Returns, for each set of axes by its bit mask, whether it [may split](may_split) a dim of this
/// extent.
#[must_use]
pub fn splitting_sets(extent: usize, mesh: &Mesh) -> Vec<bool> {
    let n_sets = 1_u32 << mesh.n_axes();
    if mesh.has_all_digits(extent) {
        return vec![true; n_sets as usize];
    }
    let digits = Digits::of(extent, mesh);
    let has_factor: AxisSet =
        (0..mesh.n_axes()).filter(|&axis| extent.is_multiple_of(mesh.size(axis))).collect();
    let may_split = |mask: u32| {
        #[expect(clippy::cast_possible_truncation, reason = "a mesh has at most 16 axes")]
        let axes = AxisSet(mask as u16);
        axes.is_empty()
            || (axes.0 & !has_factor.0 == 0
                && mask.count_ones() as usize <= digits.n_digits
                && digits.are_independent(axes))
    };
    (0..n_sets).map(may_split).collect()
}

/// Returns true if `axes` of the mesh can split a dim of this extent into blocks of consecutive
/// indices, one axis after another: the first of them into blocks, and so on.
#[must_use]
pub fn splits_into_blocks(extent: usize, mesh: &Mesh, axes: AxisSet) -> bool {
    let digits = Digits::of(extent, mesh);
    let mut first = AxisSet::EMPTY;
    // Otherwise ranks have a block of each part or range.
    let order = mesh.digit_order(extent);
    let is_whole = order.n_parts == 1 && !order.is_balanced;
    (axes.is_empty() || is_whole)
        && may_split(extent, mesh, axes)
        && axes.iter().enumerate().all(|(at, axis)| {
            first = first.with(axis);
            // As many independent sums of the leading digits as there are such digits.
            first.iter().all(|it| digits.depends_on_first(it, at + 1))
        })
}

/// The place of a factor in the indices of a dim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// `index = factor * n + rest`, as the first of several dims that are flattened into one.
    #[default]
    Outermost,
    /// `index = part * n + factor`, as the positions within equal parts of a dim.
    Innermost,
}

/// Returns true if splitting a factor of a dim along `axes` splits the whole dim along them. The
/// factor has extent `factor`, the dim has extent `whole`.
///
/// Flattening `[c, h]` into one dim keeps a split of `c` if this holds for `c` and `c * h`.
#[must_use]
pub fn carries_split(
    factor: usize,
    whole: usize,
    place: Place,
    mesh: &Mesh,
    axes: AxisSet,
) -> bool {
    axes.0 & !carried_axes(factor, whole, place, mesh).0 == 0
}

/// Returns the axes along which splitting a factor of a dim splits the whole dim. The factor has
/// extent `factor`, the dim has extent `whole`.
#[must_use]
pub fn carried_axes(factor: usize, whole: usize, place: Place, mesh: &Mesh) -> AxisSet {
    let axes = 0..mesh.n_axes();
    if factor == whole {
        return axes.collect();
    }
    let (of_factor, of_whole) = (Digits::of(factor, mesh), Digits::of(whole, mesh));
    let scale = match place {
        Place::Outermost => whole / factor,
        Place::Innermost => 1,
    };
    axes.filter(|&axis| of_factor.terms(axis, scale) == of_whole.terms(axis, 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DigitOrder;

    fn held(extent: usize, n_ranks: usize, axes: &[usize]) -> Vec<Vec<usize>> {
        let mesh = Mesh::new(n_ranks);
        let placement =
            |axis| if axes.contains(&axis) { Placement::Split(0) } else { Placement::Replicated };
        let placements: Vec<_> = (0..mesh.n_axes()).map(placement).collect();
        let tile = Tile::new(Shape::new(&[extent]), Tiling::new(&placements));
        assert!(tile.is_legal(&mesh));
        (0..n_ranks).map(|rank| tile.indices(0, &mesh, &mesh.coordinates(rank))).collect()
    }

    #[test]
    fn outer_axes_split_into_blocks_and_inner_axes_into_strided_sets() {
        assert_eq!(held(8, 4, &[0]), [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7], [4, 5, 6, 7]]);
        assert_eq!(held(8, 4, &[1]), [[0, 1, 4, 5], [2, 3, 6, 7], [0, 1, 4, 5], [2, 3, 6, 7]]);
        assert_eq!(held(8, 4, &[0, 1]), [[0, 1], [2, 3], [4, 5], [6, 7]]);
    }

    #[test]
    fn each_part_of_a_dim_is_split() {
        let order = DigitOrder { n_parts: 3, ..DigitOrder::DEFAULT };
        let mesh = Mesh::new(4).with_digit_order(12, order);
        let tile = |extent: usize, placements: [Placement; 2]| {
            Tile::new(Shape::new(&[extent]), Tiling::new(&placements))
        };
        let (split, whole) = (Placement::Split(0), Placement::Replicated);
        let held = |it: Tile, rank: usize| it.indices(0, &mesh, &mesh.coordinates(rank));
        assert_eq!(held(tile(12, [split; 2]), 1), [1, 5, 9]);
        assert_eq!(held(tile(12, [whole, split]), 1), [1, 3, 5, 7, 9, 11]);
        assert_eq!(held(tile(12, [split, whole]), 1), [0, 1, 4, 5, 8, 9]);
        // A part is split like the dim, and parts cannot be split by more than their own digits.
        let axes: AxisSet = [0, 1].into_iter().collect();
        assert!(carries_split(4, 12, Place::Innermost, &mesh, axes));
        assert!(!carries_split(4, 12, Place::Outermost, &mesh, axes));
        assert!(!carries_split(4, 12, Place::Innermost, &Mesh::new(4), axes));
        assert!(may_split(12, &mesh, axes));
        let three = Mesh::new(3).with_digit_order(12, order);
        assert!(!may_split(12, &three, [0].into_iter().collect()));
    }

    #[test]
    fn balanced_ranks_have_indices_with_the_same_mean() {
        let order = DigitOrder { is_balanced: true, ..DigitOrder::DEFAULT };
        let of = |extent: usize, n_ranks: usize, axes: AxisSet| -> Vec<Vec<usize>> {
            let mesh = Mesh::new(n_ranks).with_digit_order(extent, order);
            let place = |it| match axes.contains(it) {
                true => Placement::Split(0),
                false => Placement::Replicated,
            };
            let placements: Vec<_> = (0..mesh.n_axes()).map(place).collect();
            let tile = Tile::new(Shape::new(&[extent]), Tiling::new(&placements));
            assert!(tile.is_legal(&mesh));
            check_even(extent, &mesh, axes);
            (0..n_ranks).map(|rank| tile.indices(0, &mesh, &mesh.coordinates(rank))).collect()
        };
        assert_eq!(of(8, 2, AxisSet(1)), [[0, 1, 6, 7], [2, 3, 4, 5]]);
        assert_eq!(of(8, 4, AxisSet(3)), [[0, 7], [1, 6], [2, 5], [3, 4]]);
        assert_eq!(of(9, 3, AxisSet(1)), [[0, 5, 7], [1, 3, 8], [2, 4, 6]]);
        for (extent, n_ranks) in [(48, 8), (72, 6), (216, 36), (50, 5), (64, 16), (144, 12)] {
            for axes in 1..1 << Mesh::new(n_ranks).n_axes() {
                let held = of(extent, n_ranks, AxisSet(axes));
                for indices in &held {
                    let sum: usize = indices.iter().sum();
                    assert_eq!(
                        2 * sum,
                        (extent - 1) * indices.len(),
                        "{extent} {n_ranks} {held:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn two_digits_serve_any_two_of_three_axes() {
        let mesh = Mesh::new(8);
        for axes in [[0, 1], [0, 2], [1, 2]] {
            let tiles = held(12, 8, &axes);
            assert!(tiles.iter().all(|tile| tile.len() == 3), "{axes:?}: {tiles:?}");
        }
        assert!(!may_split(12, &mesh, [0, 1, 2].into_iter().collect()));
        assert!(!may_split(7, &mesh, [0].into_iter().collect()));
    }

    #[test]
    fn every_legal_tile_is_even_and_changes_stay_on_their_axis() {
        for n_ranks in [2, 3, 4, 6, 8, 9, 12, 16, 18, 24] {
            let mesh = Mesh::new(n_ranks);
            for extent in 1..=48 {
                for mask in 0..1_u16 << mesh.n_axes() {
                    check_even(extent, &mesh, AxisSet(mask));
                }
            }
        }
    }

    #[test]
    fn leading_digits_split_into_blocks() {
        let axes = |list: &[usize]| list.iter().copied().collect::<AxisSet>();
        let mesh = Mesh::new(8);
        let of_8 = |list: &[usize]| splits_into_blocks(8, &mesh, axes(list));
        assert!(of_8(&[]) && of_8(&[0]) && of_8(&[0, 1]) && of_8(&[0, 1, 2]));
        assert!(!of_8(&[1]) && !of_8(&[2]) && !of_8(&[1, 2]) && !of_8(&[0, 2]));
        // All axes take the only digit of 14.
        assert!([0, 1, 2].iter().all(|&axis| splits_into_blocks(14, &mesh, axes(&[axis]))));
        assert!(!splits_into_blocks(7, &mesh, axes(&[0])));
        for (n_ranks, extent) in [(4, 12), (6, 12), (8, 12), (8, 28), (12, 24), (16, 28)] {
            let mesh = Mesh::new(n_ranks);
            for mask in 1..1_u16 << mesh.n_axes() {
                if splits_into_blocks(extent, &mesh, AxisSet(mask)) {
                    let axes: Vec<usize> = AxisSet(mask).iter().collect();
                    for tile in held(extent, n_ranks, &axes) {
                        assert!(tile.windows(2).all(|it| it[0] + 1 == it[1]), "{tile:?}");
                    }
                }
            }
        }
    }

    fn check_even(extent: usize, mesh: &Mesh, axes: AxisSet) {
        if !may_split(extent, mesh, axes) {
            return;
        }
        let placement =
            |axis| if axes.contains(axis) { Placement::Split(0) } else { Placement::Replicated };
        let placements: Vec<_> = (0..mesh.n_axes()).map(placement).collect();
        let tile = Tile::new(Shape::new(&[extent]), Tiling::new(&placements));
        let held = |rank| tile.indices(0, mesh, &mesh.coordinates(rank));
        for rank in 0..mesh.n_ranks() {
            assert_eq!(
                held(rank).len(),
                tile.local_shape(mesh)[0],
                "{extent} over {mesh} by {axes:?}"
            );
        }
        let mut union: Vec<usize> = mesh.group(0, axes).into_iter().flat_map(held).collect();
        union.sort_unstable();
        assert_eq!(union, (0..extent).collect::<Vec<_>>());
    }
}
