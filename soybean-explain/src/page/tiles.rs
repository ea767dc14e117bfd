//! The indices of a dim on each rank, for all splits of a plan.

use std::collections::BTreeMap;

use soybean_compiler::tiling::TiledNetwork;
use soybean_plan::{AxisSet, MAX_AXES, Mesh, Placement, Shape, Tile, Tiling};

use super::json::list;

/// The largest number of ranks on the page.
const MAX_RANKS: usize = 64;
/// The largest number of index ranges of one rank on the page.
const MAX_RUNS: usize = 64;

/// Returns the coordinates of the ranks, and by extent and axes (as a bit mask) the number of each
/// rank's index ranges with the ranges `[first, length]`.
pub(super) fn json(tiled: &TiledNetwork) -> String {
    let mesh = &tiled.mesh;
    let n_shown = mesh.n_ranks().min(MAX_RANKS);
    let coordinates = (0..n_shown).map(|rank| {
        let coordinates = mesh.coordinates(rank);
        list(coordinates[..mesh.n_axes()].iter().map(ToString::to_string))
    });
    let splits = splits(tiled).into_iter().map(|(extent, axes)| {
        let ranks = ranks(mesh, extent, axes, n_shown);
        format!("\"{extent}:{}\":{}", axes.0, list(ranks.into_iter()))
    });
    let splits: Vec<String> = splits.collect();
    format!("{{\"coordinates\":{},\"splits\":{{{}}}}}", list(coordinates), splits.join(",\n"))
}

/// Returns all pairs of an extent and the axes that split it.
fn splits(tiled: &TiledNetwork) -> Vec<(usize, AxisSet)> {
    let graph = &tiled.network.graph;
    let mut splits = BTreeMap::new();
    for value in graph.values() {
        let (shape, tiling) = (graph.shape(value), tiled.tilings[value.index()]);
        for (dim, &extent) in shape.iter().enumerate() {
            let axes = tiling.axes_of(dim);
            if !axes.is_empty() {
                splits.insert((extent, axes), ());
            }
        }
    }
    splits.into_keys().collect()
}

/// Returns the index ranges of each of the first ranks. Ranks with equal coordinates along the axes
/// have the same.
fn ranks(mesh: &Mesh, extent: usize, axes: AxisSet, n_shown: usize) -> Vec<String> {
    let placement =
        |axis| if axes.contains(axis) { Placement::Split(0) } else { Placement::Replicated };
    let placements: Vec<Placement> = (0..mesh.n_axes()).map(placement).collect();
    let tile = Tile::new(Shape::new(&[extent]), Tiling::new(&placements));
    let mut known: BTreeMap<[usize; MAX_AXES], String> = BTreeMap::new();
    let mut of_rank = |rank: usize| {
        let coordinates = mesh.coordinates(rank);
        let mut along = [0; MAX_AXES];
        axes.iter().for_each(|axis| along[axis] = coordinates[axis]);
        let text = || {
            let runs = runs(&tile.indices(0, mesh, &coordinates));
            let shown = runs.iter().take(MAX_RUNS).map(|it| format!("[{},{}]", it[0], it[1]));
            format!("[{},{}]", runs.len(), list(shown))
        };
        known.entry(along).or_insert_with(text).clone()
    };
    (0..n_shown).map(&mut of_rank).collect()
}

/// Groups increasing indices into ranges: first index and length.
fn runs(indices: &[usize]) -> Vec<[usize; 2]> {
    let mut runs: Vec<[usize; 2]> = Vec::new();
    for &index in indices {
        match runs.last_mut() {
            Some([first, length]) if *first + *length == index => *length += 1,
            _ => runs.push([index, 1]),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inner_axis_takes_every_other_stretch() {
        let held = ranks(&Mesh::new(4), 8, AxisSet(0b10), 4);
        assert_eq!(held, ["[2,[[0,2],[4,2]]]", "[2,[[2,2],[6,2]]]"].repeat(2));
    }
}
