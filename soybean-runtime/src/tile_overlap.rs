//! The elements that two tiles share, as runs that are contiguous in both.

use std::{cmp::Ordering, ops::Range};

use soybean_plan::{Collective, ImageLayout, Mesh, Run, Shape, Tile, Tiling};

/// The shared elements of two dense tiles, `here` and `there`. The dims are in the order of memory
/// of `here`.
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
        let strides = [shape_here.dense_strides(), shape_there.dense_strides()];
        let dim = |dim| Dim {
            runs: runs_along(dim),
            stride_here: strides[0].0[dim],
            stride_there: strides[1].0[dim],
        };
        Self::of_dims((0..shape_here.len()).map(dim).collect())
    }

    /// Joins dims, outermost first, where runs along one are contiguous along the next.
    fn of_dims(outer_first: Vec<Dim>) -> Self {
        let mut dims: Vec<Dim> = Vec::new();
        for dim in outer_first.into_iter().rev() {
            match dims.last_mut() {
                Some(inner) if inner.is_whole_in(&dim) => {
                    let n_inner = dim.stride_here / inner.stride_here;
                    inner.runs = dim.runs.iter().map(|run| scaled(*run, n_inner)).collect();
                }
                // The elements of a run are neighbors in both tiles.
                None if [dim.stride_here, dim.stride_there] != [1, 1] => {
                    let runs = vec![Run { here: 0, there: 0, length: 1 }];
                    dims.extend([Dim { runs, stride_here: 1, stride_there: 1 }, dim]);
                }
                _ => dims.push(dim),
            }
        }
        dims.reverse();
        Self { dims }
    }

    /// Computes the overlap of a rank's tile, with its dims in this order of memory, and the whole
    /// tensor in the user's order.
    pub(crate) fn with_whole(mesh: &Mesh, tile: &Tile, layout: ImageLayout, rank: usize) -> Self {
        let whole = Tile::new(tile.shape, Tiling::replicated(mesh.n_axes()));
        let coordinates = mesh.coordinates(rank);
        let part = tile.local_shape(mesh);
        let order = layout.order(part.len());
        let stored: Shape = order.iter().map(|&dim| part[dim]).collect();
        let (here, there) = (stored.dense_strides(), tile.shape.dense_strides());
        let dim = |(place, &dim): (usize, &usize)| Dim {
            runs: tile.overlap(dim, mesh, &coordinates, &whole, &coordinates),
            stride_here: here.0[place],
            stride_there: there.0[dim],
        };
        Self::of_dims(order.iter().enumerate().map(dim).collect())
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
    /// Returns true if the elements along this dim and the next outer one lie at equal distances,
    /// and one run covers all of this dim.
    fn is_whole_in(&self, outer: &Self) -> bool {
        let length = outer.stride_here / self.stride_here;
        length * self.stride_here == outer.stride_here
            && length * self.stride_there == outer.stride_there
            && self.runs == [Run { here: 0, there: 0, length }]
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

#[cfg(test)]
mod tests {
    use soybean_plan::Placement;

    use super::*;

    /// Lists for each element of a rank's part, in the order of memory, its place in the whole
    /// tensor.
    fn places(tile: &Tile, layout: ImageLayout, n_ranks: usize, rank: usize) -> Vec<usize> {
        let mut places = Vec::new();
        let overlap = TileOverlap::with_whole(&Mesh::new(n_ranks), tile, layout, rank);
        overlap.for_each(|here, there, length| {
            assert_eq!(here, places.len());
            places.extend(there..there + length);
        });
        places
    }

    #[test]
    fn parts_with_channels_last_hold_the_elements_in_that_order() {
        let shape = Shape::new(&[2, 3, 2, 1]);
        let whole = Tile::new(shape, Tiling::replicated(1));
        let first = places(&whole, ImageLayout::ChannelsFirst, 2, 1);
        assert_eq!(first, (0..12).collect::<Vec<_>>());
        let last = places(&whole, ImageLayout::ChannelsLast, 2, 1);
        assert_eq!(last, [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
        let split = |dim| Tile::new(shape, Tiling::new(&[Placement::Split(dim)]));
        assert_eq!(places(&split(0), ImageLayout::ChannelsLast, 2, 1), [6, 8, 10, 7, 9, 11]);
        assert_eq!(places(&split(2), ImageLayout::ChannelsLast, 2, 1), [1, 3, 5, 7, 9, 11]);
    }
}
