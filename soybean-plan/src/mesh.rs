//! The mesh: the number of ranks factored into primes, each an axis. A rank is a list of
//! coordinates.

use std::fmt;

/// The most axes that a mesh can have: enough for 2^16 ranks.
pub const MAX_AXES: usize = 16;

/// The maximum number of extents with their own digit order.
const MAX_DIGIT_ORDERS: usize = 12;

/// Ranks arranged on axes of prime size, the first axis over the slowest interconnect.
///
/// Ranks are numbered row by row: the last axis changes fastest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mesh {
    sizes: [u16; MAX_AXES],
    n_axes: u8,
    n_digit_orders: u8,
    /// Extents of dims with their digit orders.
    digit_orders: [(u32, DigitOrder); MAX_DIGIT_ORDERS],
}

/// How the axes of a mesh take the digits of the indices of a dim; see [`crate::Tile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigitOrder {
    /// The axis that takes the first digit. The axes after it follow, then those before it.
    pub first_axis: u8,
    /// The number of equal parts that follow each other along the dim, such as 3 for queries, keys
    /// and values in one tensor. Axes split each part.
    pub n_parts: u16,
    /// True if each rank has ranges from all over a part, such that the indices of all ranks have
    /// the same mean. Causal attention then has as much work on each.
    pub is_balanced: bool,
}

impl DigitOrder {
    /// The order of extents that have no other: the first axis first, one part, and contiguous
    /// ranges.
    pub const DEFAULT: Self = Self { first_axis: 0, n_parts: 1, is_balanced: false };
}

impl Mesh {
    /// Returns the mesh of `n_ranks` ranks. Its axes are the prime factors of that number, smallest
    /// first; one rank has no axes.
    ///
    /// # Panics
    /// Panics if `n_ranks` is 0, has more than [`MAX_AXES`] prime factors, or one of 65,536 or
    /// more.
    #[must_use]
    pub const fn new(n_ranks: usize) -> Self {
        assert!(n_ranks > 0, "a mesh has at least one rank");
        let mut sizes = [1; MAX_AXES];
        let mut n_axes = 0;
        let mut rest = n_ranks;
        let mut factor = 2;
        while rest > 1 {
            if factor * factor > rest {
                factor = rest;
            }
            while rest.is_multiple_of(factor) {
                assert!(
                    (n_axes as usize) < MAX_AXES && factor < 65_536,
                    "a mesh has at most 16 axes of size below 65536"
                );
                #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
                {
                    sizes[n_axes as usize] = factor as u16;
                }
                n_axes += 1;
                rest /= factor;
            }
            factor += 1;
        }
        let digit_orders = [(0, DigitOrder::DEFAULT); MAX_DIGIT_ORDERS];
        Self { sizes, n_axes, n_digit_orders: 0, digit_orders }
    }

    /// Returns the mesh whose axes have these prime sizes, in this order.
    ///
    /// # Panics
    /// Panics if there are more than [`MAX_AXES`] sizes, or one is below 2 or above 65,535.
    #[must_use]
    pub const fn of(sizes: &[usize]) -> Self {
        assert!(sizes.len() <= MAX_AXES, "a mesh has at most 16 axes");
        let mut mesh = Self::new(1);
        while (mesh.n_axes as usize) < sizes.len() {
            let size = sizes[mesh.n_axes as usize];
            assert!(1 < size && size < 65_536, "axes are primes below 65536");
            #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
            {
                mesh.sizes[mesh.n_axes as usize] = size as u16;
            }
            mesh.n_axes += 1;
        }
        mesh
    }

    /// Returns this mesh with another digit order for dims of this extent.
    ///
    /// If two dims have too few factors for all axes, each should be split along different axes;
    /// see [`crate::Tile`]. The mesh stores up to a dozen such extents and ignores the rest.
    ///
    /// # Panics
    /// Panics if there is no such axis, or the extent is no multiple of the parts and, if balanced,
    /// of [`Self::free_radix`].
    #[must_use]
    pub const fn with_digit_order(mut self, extent: usize, order: DigitOrder) -> Self {
        assert!(order.first_axis < self.n_axes, "the mesh has this axis");
        let n_free = if order.is_balanced { self.free_radix() } else { 1 };
        assert!(extent.is_multiple_of(order.n_parts as usize * n_free), "parts are equal");
        if (self.n_digit_orders as usize) < MAX_DIGIT_ORDERS && extent <= u32::MAX as usize {
            #[expect(clippy::cast_possible_truncation, reason = "checked above")]
            {
                self.digit_orders[self.n_digit_orders as usize] = (extent as u32, order);
            }
            self.n_digit_orders += 1;
        }
        self
    }

    /// Returns the product of the different sizes of axes. A balanced dim has so many ranges before
    /// axes split it.
    #[must_use]
    pub const fn free_radix(&self) -> usize {
        let (mut product, mut axis) = (1, 0);
        while axis < self.n_axes as usize {
            if self.is_first_of_size(axis) {
                product *= self.size(axis);
            }
            axis += 1;
        }
        product
    }

    /// Returns whether no axis before this one has its size.
    const fn is_first_of_size(&self, axis: usize) -> bool {
        let mut before = 0;
        while before < axis {
            if self.sizes[before] == self.sizes[axis] {
                return false;
            }
            before += 1;
        }
        true
    }

    /// Returns the different sizes of axes, in the order of the axes.
    pub(crate) fn different_sizes(&self) -> impl Iterator<Item = usize> + '_ {
        let axes = (0..self.n_axes()).filter(|it| self.is_first_of_size(*it));
        axes.map(|it| self.size(it))
    }

    /// Returns the extents that have a digit order of their own, with it.
    pub fn digit_orders(&self) -> impl Iterator<Item = (usize, DigitOrder)> + '_ {
        let orders = &self.digit_orders[..usize::from(self.n_digit_orders)];
        orders.iter().map(|&(extent, order)| (extent as usize, order))
    }

    /// Returns the digit order of dims of this extent.
    #[must_use]
    pub fn digit_order(&self, extent: usize) -> DigitOrder {
        self.digit_orders().find(|it| it.0 == extent).map_or(DigitOrder::DEFAULT, |it| it.1)
    }

    /// Returns the extent of the parts of a dim that axes split, or of the ranges of a balanced
    /// one, and the axes in the order in which they take the digits of it.
    pub(crate) fn axes_of_digits(
        &self,
        extent: usize,
    ) -> (usize, impl Iterator<Item = usize> + use<>) {
        let DigitOrder { first_axis, n_parts, is_balanced } = self.digit_order(extent);
        let n_free = if is_balanced { self.free_radix() } else { 1 };
        let n_axes = self.n_axes();
        let axes = (0..n_axes).map(move |at| (usize::from(first_axis) + at) % n_axes);
        (extent / (usize::from(n_parts) * n_free), axes)
    }

    /// Returns whether each axis has a digit of its own in the indices of dims of this extent.
    pub(crate) fn has_all_digits(&self, extent: usize) -> bool {
        extent != 0 && self.axes_of_digits(extent).0.is_multiple_of(self.n_ranks())
    }

    /// Returns the axes that take a digit of dims of this extent: those whose prime the extent of
    /// its parts still has as a factor.
    #[must_use]
    pub fn axes_with_digits(&self, extent: usize) -> AxisSet {
        let (mut rest, axes) = self.axes_of_digits(extent);
        let takes = |axis: &usize| {
            let is_factor = rest > 0 && rest.is_multiple_of(self.size(*axis));
            rest /= if is_factor { self.size(*axis) } else { 1 };
            is_factor
        };
        axes.filter(takes).collect()
    }

    /// Returns the number of axes.
    #[must_use]
    pub const fn n_axes(&self) -> usize {
        self.n_axes as usize
    }

    /// Returns the size of `axis`, a prime.
    #[must_use]
    pub const fn size(&self, axis: usize) -> usize {
        self.sizes[axis] as usize
    }

    /// Returns the sizes of all axes, slowest first.
    pub fn sizes(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.n_axes()).map(|axis| self.size(axis))
    }

    /// Returns the number of ranks.
    #[must_use]
    pub const fn n_ranks(&self) -> usize {
        self.group_size(AxisSet(u16::MAX))
    }

    /// Returns the number of ranks that differ only along `axes`.
    #[must_use]
    pub const fn group_size(&self, axes: AxisSet) -> usize {
        let (mut product, mut axis) = (1, 0);
        while axis < self.n_axes as usize {
            if axes.0 >> axis & 1 == 1 {
                product *= self.size(axis);
            }
            axis += 1;
        }
        product
    }

    /// Returns the coordinates of `rank`; entries past the last axis are 0.
    #[must_use]
    pub fn coordinates(&self, rank: usize) -> [usize; MAX_AXES] {
        let mut coordinates = [0; MAX_AXES];
        let mut rest = rank;
        for axis in (0..self.n_axes()).rev() {
            coordinates[axis] = rest % self.size(axis);
            rest /= self.size(axis);
        }
        coordinates
    }

    /// Returns the rank at `coordinates`.
    #[must_use]
    pub fn rank(&self, coordinates: &[usize; MAX_AXES]) -> usize {
        (0..self.n_axes()).fold(0, |rank, axis| rank * self.size(axis) + coordinates[axis])
    }

    /// Returns the ranks that differ from `rank` only along `axes`, including itself, in increasing
    /// order.
    #[must_use]
    pub fn group(&self, rank: usize, axes: AxisSet) -> Vec<usize> {
        let here = self.coordinates(rank);
        let outside = |other: &[usize; MAX_AXES]| {
            (0..self.n_axes()).all(|axis| axes.contains(axis) || other[axis] == here[axis])
        };
        (0..self.n_ranks()).filter(|&other| outside(&self.coordinates(other))).collect()
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sizes()).finish()
    }
}

impl fmt::Debug for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A set of axes of a mesh, as a bit mask: bit `a` is axis `a`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct AxisSet(pub u16);

impl AxisSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Returns this set with `axis` added.
    #[must_use]
    pub const fn with(self, axis: usize) -> Self {
        Self(self.0 | 1 << axis)
    }

    /// Returns true if `axis` is in the set.
    #[must_use]
    pub const fn contains(self, axis: usize) -> bool {
        self.0 >> axis & 1 == 1
    }

    /// Returns true if the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the axes of the set, smallest first.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let axis = rest.trailing_zeros() as usize;
            rest &= rest.wrapping_sub(1);
            (axis < MAX_AXES).then_some(axis)
        })
    }
}

impl FromIterator<usize> for AxisSet {
    fn from_iter<I: IntoIterator<Item = usize>>(axes: I) -> Self {
        axes.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Debug for AxisSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
