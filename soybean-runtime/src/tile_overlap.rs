//! The elements that two tiles share, as runs that are contiguous in both.

use std::{cmp::Ordering, ops::Range};

use soybean_plan::{Collective, Mesh, Run, Shape, Tile, Tiling};

/// The shared elements of two tiles, `here` and `there`, which are both dense and row-major.
pub(crate) struct TileOverlap {
    dims: Vec<Dim>,
}

struct Dim {
    runs: Vec<Run>,
    stride_here: usize,
    stride_there: usize,
}

impl TileOverlap {
    /// Computes the overlap of the tile `here` of one rank and the tile `there` of another.
    pub(crate) fn between(
        mesh: &Mesh,
        (here, rank_here): (&Tile, usize),
        (there, rank_there): (&Tile, usize),
    ) -> Self {
        let (coordinates_here, coordinates_there) =
            (mesh.coordinates(rank_here), mesh.coordinates(rank_there));
        let runs = |dim| here.overlap(dim, mesh, &coordinates_here, there, &coordinates_there);
        Self::of_runs([here.local_shape(mesh), there.local_shape(mesh)], runs)
    }

    /// Computes the overlap of the part with halo of the rank `here`, and the own part of the rank
    /// `there`.
    pub(crate) fn of_halo(collective: &Collective, mesh: &Mesh, [here, there]: [usize; 2]) -> Self {
        let tile = collective.destination();
        let (here, there) = (mesh.coordinates(here), mesh.coordinates(there));
        let runs = |dim| collective.halo.overlap(&tile, dim, mesh, [&here, &there]);
        Self::of_runs([collective.result_shape(mesh), tile.local_shape(mesh)], runs)
    }

    /// Returns the elements of the part with halo of a rank that lie outside the tensor, as `here`
    /// of several overlaps. `there` has no meaning.
    pub(crate) fn outside(collective: &Collective, mesh: &Mesh, rank: usize) -> Vec<Self> {
        let (tile, shape) = (collective.destination(), collective.result_shape(mesh));
        let coordinates = mesh.coordinates(rank);
        let places: Vec<_> = (0..shape.len())
            .map(|dim| collective.halo.outside_and_inside(&tile, dim, mesh, &coordinates))
            .collect();
        let run = |it: &Range<usize>| Run { here: it.start, there: it.start, length: it.len() };
        // Inside along the dims before one, outside along it, and anywhere along those after it.
        let outside_along = |outer: usize| {
            Self::of_runs([shape; 2], |dim| match dim.cmp(&outer) {
                Ordering::Less => vec![run(&places[dim].1)],
                Ordering::Equal => places[dim].0.iter().map(run).collect(),
                Ordering::Greater => vec![run(&(0..shape[dim]))],
            })
        };
        let all = (0..shape.len()).filter(|&dim| !places[dim].0.is_empty()).map(outside_along);
        all.collect()
    }

    /// Computes the overlap of parts with these shapes, given the shared runs along each dim.
    fn of_runs(
        [shape_here, shape_there]: [Shape; 2],
        runs_along: impl Fn(usize) -> Vec<Run>,
    ) -> Self {
        let mut dims: Vec<Dim> = Vec::new();
        let (mut inner_here, mut inner_there) = (1, 1);
        for dim in (0..shape_here.len()).rev() {
            let runs = runs_along(dim);
            let (extent_here, extent_there) = (shape_here[dim], shape_there[dim]);
            match dims.last_mut() {
                // If all inner elements are shared in order, they extend the runs of this dim.
                Some(inner) if inner.is_whole(inner_here, inner_there) => {
                    let n_inner = inner_here / inner.stride_here;
                    inner.runs = runs.iter().map(|run| scaled(*run, n_inner)).collect();
                }
                _ => dims.push(Dim { runs, stride_here: inner_here, stride_there: inner_there }),
            }
            inner_here *= extent_here;
            inner_there *= extent_there;
        }
        dims.reverse();
        Self { dims }
    }

    /// Computes the overlap of a rank's tile and the whole tensor in the user's order.
    pub(crate) fn with_whole(mesh: &Mesh, tile: &Tile, rank: usize) -> Self {
        let whole = Tile::new(tile.shape, Tiling::replicated(mesh.n_axes()));
        Self::between(mesh, (tile, rank), (&whole, rank))
    }

    /// Returns the dims, outermost first, for kernels that iterate over them.
    #[cfg(feature = "cuda")]
    pub(crate) fn dims(&self) -> Vec<soybean_codegen::movement::Dim> {
        let dim = |it: &Dim| soybean_codegen::movement::Dim {
            runs: it.runs.clone(),
            stride_here: it.stride_here,
            stride_there: it.stride_there,
        };
        self.dims.iter().map(dim).collect()
    }

    /// Returns the number of shared elements.
    pub(crate) fn n_elements(&self) -> usize {
        let extent = |dim: &Dim| dim.runs.iter().map(|it| it.length).sum::<usize>();
        self.dims.iter().map(extent).product()
    }

    /// Calls `visit(here, there, length)` for each contiguous run, in the order of `here`.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(usize, usize, usize)) {
        walk(&self.dims, 0, 0, &mut visit);
    }
}

impl Dim {
    /// Returns true if one run covers all elements of this dim and the inner dims, of which the
    /// tiles have `n_here` and `n_there`.
    fn is_whole(&self, n_here: usize, n_there: usize) -> bool {
        let whole = Run { here: 0, there: 0, length: n_here / self.stride_here };
        self.stride_here == self.stride_there && n_here == n_there && self.runs == [whole]
    }
}

const fn scaled(run: Run, factor: usize) -> Run {
    Run { here: run.here * factor, there: run.there * factor, length: run.length * factor }
}

fn walk(dims: &[Dim], here: usize, there: usize, visit: &mut impl FnMut(usize, usize, usize)) {
    let Some((dim, inner)) = dims.split_first() else { return visit(here, there, 1) };
    for run in &dim.runs {
        if inner.is_empty() {
            visit(here + run.here, there + run.there, run.length);
            continue;
        }
        for step in 0..run.length {
            let here = here + (run.here + step) * dim.stride_here;
            walk(inner, here, there + (run.there + step) * dim.stride_there, visit);
        }
    }
}
