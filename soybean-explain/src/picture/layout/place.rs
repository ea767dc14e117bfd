//! The positions of items. Each row in turn moves as close to its neighbors as its order and the
//! space between its items allow.

use super::{GAP, grid::Grid};

/// The number of sweeps over all rows.
const N_SWEEPS: usize = 24;

/// The weight of the drawing's center, relative to that of one neighbor.
const TO_THE_MIDDLE: f64 = 0.5;

/// Returns the centers of all items along their rows. No item extends below 0.
pub(super) fn places(grid: &Grid) -> Vec<f64> {
    let mut places = vec![0.0; grid.row_of.len()];
    for row in &grid.rows {
        let offsets = offsets(grid, row);
        let middle = offsets.iter().sum::<f64>() / offsets.len() as f64;
        for (&item, offset) in row.iter().zip(offsets) {
            places[item] = offset - middle;
        }
    }
    let n_rows = grid.rows.len();
    for sweep in 0..N_SWEEPS {
        // The last sweeps use both neighboring rows, so that no row is far from the next one.
        let is_late = sweep + 4 >= N_SWEEPS;
        for at in 0..n_rows {
            let row = if sweep % 2 == 0 { at } else { n_rows - 1 - at };
            let sides: &[&[Vec<usize>]] = match (is_late, sweep % 2) {
                (true, _) => &[&grid.above, &grid.below],
                (false, 0) => &[&grid.above],
                (false, _) => &[&grid.below],
            };
            move_row(grid, &grid.rows[row], sides, &mut places);
        }
    }
    let left = |item: usize| places[item] - grid.widths[item] / 2.0;
    let shift = (0..places.len()).map(left).fold(f64::INFINITY, f64::min) - GAP;
    places.iter().map(|it| it - shift).collect()
}

/// Returns the centers of a row whose items are as close as possible.
fn offsets(grid: &Grid, row: &[usize]) -> Vec<f64> {
    let mut offsets = Vec::with_capacity(row.len());
    let mut right = 0.0;
    for &item in row {
        offsets.push(right + grid.widths[item] / 2.0);
        right += grid.widths[item] + GAP;
    }
    offsets
}

fn move_row(grid: &Grid, row: &[usize], sides: &[&[Vec<usize>]], places: &mut [f64]) {
    let wanted: Vec<Wish> = row.iter().map(|&item| wish(grid, item, sides, places)).collect();
    for (&item, place) in row.iter().zip(settle(&wanted, &offsets(grid, row))) {
        places[item] = place;
    }
}

/// Returns the preferred position of an item, with its weight.
struct Wish {
    place: f64,
    weight: f64,
}

fn wish(grid: &Grid, item: usize, sides: &[&[Vec<usize>]], places: &[f64]) -> Wish {
    let (mut sum, mut weight) = (0.0, 0.0);
    for &near in sides.iter().flat_map(|side| &side[item]) {
        // Long lines should be straight, so bends within a line cost more than those at its ends.
        let pull = match (grid.is_bend(item), grid.is_bend(near)) {
            (true, true) => 8.0,
            (true, false) | (false, true) => 2.0,
            (false, false) => 1.0,
        };
        sum += pull * places[near];
        weight += pull;
    }
    if weight == 0.0 {
        return Wish { place: places[item], weight: 0.1 };
    }
    // The center of the drawing, at 0, has a small weight, so that long chains do not drift.
    Wish { place: sum / (weight + TO_THE_MIDDLE), weight: weight + TO_THE_MIDDLE }
}

/// Returns the positions with the least weighted squares of differences to the preferred ones, for
/// items in this order with the distances of `offsets`. The differences of preferred positions and
/// offsets must not decrease. Neighbors that violate this are moved to their mean (pool adjacent
/// violators).
fn settle(wanted: &[Wish], offsets: &[f64]) -> Vec<f64> {
    let mut blocks: Vec<(Wish, usize)> = Vec::with_capacity(wanted.len());
    for (wish, offset) in wanted.iter().zip(offsets) {
        let mut block = (Wish { place: wish.place - offset, weight: wish.weight }, 1);
        while let Some((left, n_left)) = blocks.pop_if(|it| it.0.place > block.0.place) {
            let weight = left.weight + block.0.weight;
            let sum = left.place * left.weight + block.0.place * block.0.weight;
            block = (Wish { place: sum / weight, weight }, n_left + block.1);
        }
        blocks.push(block);
    }
    let shifts = blocks.iter().flat_map(|(wish, n)| std::iter::repeat_n(wish.place, *n));
    shifts.zip(offsets).map(|(shift, offset)| shift + offset).collect()
}
