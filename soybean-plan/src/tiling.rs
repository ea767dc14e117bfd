//! Tilings: the placement of a tensor along each axis of the mesh.

use std::fmt;

use crate::{AxisSet, MAX_AXES};

/// The placement of a tensor along one axis of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Placement {
    /// Every rank along the axis holds the same elements (`r`).
    Replicated,
    /// Each rank holds the part of this dim whose digit is its coordinate (`P0`, `P1`, ..).
    Split(u8),
    /// Each rank holds a partial result of every element, to be combined by sum or maximum (`red`).
    Partial,
}

/// One placement for each axis of a mesh, slowest axis first: `[P0 r P1]`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tiling {
    placements: [Placement; MAX_AXES],
    n_axes: u8,
}

impl Tiling {
    /// Returns the tiling with these placements.
    ///
    /// # Panics
    /// Panics if there are more than [`MAX_AXES`] of them.
    #[must_use]
    pub const fn new(given: &[Placement]) -> Self {
        assert!(given.len() <= MAX_AXES, "a mesh has at most 16 axes");
        let mut placements = [Placement::Replicated; MAX_AXES];
        let mut axis = 0;
        while axis < given.len() {
            placements[axis] = given[axis];
            axis += 1;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most 16")]
        Self { placements, n_axes: given.len() as u8 }
    }

    /// Returns the tiling that replicates on all of `n_axes` axes.
    ///
    /// # Panics
    /// Panics if there are more than [`MAX_AXES`] of them.
    #[must_use]
    pub const fn replicated(n_axes: usize) -> Self {
        assert!(n_axes <= MAX_AXES, "a mesh has at most 16 axes");
        #[expect(clippy::cast_possible_truncation, reason = "at most 16")]
        Self { placements: [Placement::Replicated; MAX_AXES], n_axes: n_axes as u8 }
    }

    /// Returns the placements, slowest axis first.
    #[must_use]
    pub fn placements(&self) -> &[Placement] {
        &self.placements[..self.n_axes as usize]
    }

    /// Returns the placement along `axis`.
    ///
    /// # Panics
    /// Panics if there is no such axis.
    #[must_use]
    pub fn on(&self, axis: usize) -> Placement {
        assert!(axis < self.n_axes as usize, "axis {axis} of {}", self.n_axes);
        self.placements[axis]
    }

    /// Returns this tiling with the placement along `axis` replaced.
    ///
    /// # Panics
    /// Panics if there is no such axis.
    #[must_use]
    pub fn with(mut self, axis: usize, placement: Placement) -> Self {
        assert!(axis < self.n_axes as usize, "axis {axis} of {}", self.n_axes);
        self.placements[axis] = placement;
        self
    }

    /// Returns the tiling of the same tensor with another dim at each place, which `place` gives.
    #[must_use]
    pub fn with_dims(&self, place: impl Fn(usize) -> usize) -> Self {
        let moved = |it: &Placement| match *it {
            #[expect(clippy::cast_possible_truncation, reason = "a tensor has at most 8 dims")]
            Placement::Split(dim) => Placement::Split(place(usize::from(dim)) as u8),
            Placement::Replicated | Placement::Partial => *it,
        };
        Self::new(&self.placements().iter().map(moved).collect::<Vec<_>>())
    }

    /// Returns the axes along which `dim` is split.
    #[must_use]
    pub fn axes_of(&self, dim: usize) -> AxisSet {
        // The search calls it most of all. Unoptimized, `axes_where` takes several times as long.
        let (mut axes, mut axis) = (AxisSet::EMPTY, 0);
        while axis < self.n_axes as usize {
            if let Placement::Split(split) = self.placements[axis]
                && split as usize == dim
            {
                axes.0 |= 1 << axis;
            }
            axis += 1;
        }
        axes
    }

    /// Returns the axes along which the tensor is a partial result.
    #[must_use]
    pub fn partial_axes(&self) -> AxisSet {
        self.axes_where(|placement| placement == Placement::Partial)
    }

    /// Returns the axes whose placement satisfies `condition`.
    #[must_use]
    pub fn axes_where(&self, condition: impl Fn(Placement) -> bool) -> AxisSet {
        let (mut axes, mut axis) = (AxisSet::EMPTY, 0);
        while axis < self.n_axes as usize {
            if condition(self.placements[axis]) {
                axes = axes.with(axis);
            }
            axis += 1;
        }
        axes
    }
}

impl fmt::Display for Tiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (axis, placement) in self.placements().iter().enumerate() {
            let gap = if axis == 0 { "" } else { " " };
            write!(f, "{gap}{placement}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Tiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replicated => f.write_str("r"),
            Self::Split(dim) => write!(f, "P{dim}"),
            Self::Partial => f.write_str("red"),
        }
    }
}
