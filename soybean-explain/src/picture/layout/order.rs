//! The order of rows. Each row is sorted by the mean position of neighbors in the previous row,
//! down and up, and the order with the fewest crossings is kept.

use super::grid::Grid;

/// The number of sweeps over all rows.
const N_SWEEPS: usize = 12;

/// Orders the items of all rows.
pub(super) fn order(grid: &mut Grid) {
    let mut position = vec![0; grid.row_of.len()];
    for row in &grid.rows {
        number(row, &mut position);
    }
    let mut best = grid.rows.clone();
    let mut fewest = crossings(grid, &position);
    for sweep in 0..N_SWEEPS {
        let n_rows = grid.rows.len();
        if sweep % 2 == 0 {
            (1..n_rows).for_each(|row| sort(&mut grid.rows[row], &grid.above, &mut position));
        } else {
            (0..n_rows).rev().for_each(|row| sort(&mut grid.rows[row], &grid.below, &mut position));
        }
        let n_crossings = crossings(grid, &position);
        if n_crossings < fewest {
            fewest = n_crossings;
            best.clone_from(&grid.rows);
        }
    }
    grid.rows = best;
}

fn number(row: &[usize], position: &mut [usize]) {
    for (at, &item) in row.iter().enumerate() {
        position[item] = at;
    }
}

/// Sorts a row by the mean position of neighbors. Items without neighbors keep about their
/// positions.
fn sort(row: &mut Vec<usize>, neighbors: &[Vec<usize>], position: &mut [usize]) {
    let barycenter = |&item: &usize| match neighbors[item].as_slice() {
        [] => position[item] as f64,
        near => near.iter().map(|&it| position[it] as f64).sum::<f64>() / near.len() as f64,
    };
    let mut keyed: Vec<(f64, usize)> = row.iter().map(|it| (barycenter(it), *it)).collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    *row = keyed.into_iter().map(|it| it.1).collect();
    number(row, position);
}

/// Counts the pairs of lines that cross.
fn crossings(grid: &Grid, position: &[usize]) -> u64 {
    grid.rows.windows(2).map(|rows| crossings_between(grid, position, rows)).sum()
}

/// Counts the inversions of the lower ends of lines sorted by their upper ends, with a Fenwick
/// tree.
fn crossings_between(grid: &Grid, position: &[usize], rows: &[Vec<usize>]) -> u64 {
    let mut ends: Vec<usize> = Vec::new();
    for &item in &rows[0] {
        let first = ends.len();
        ends.extend(grid.below[item].iter().map(|&it| position[it]));
        ends[first..].sort_unstable();
    }
    let mut tree = vec![0_u64; rows[1].len() + 1];
    let mut n_crossings = 0;
    for (n_before, end) in (0_u64..).zip(ends) {
        let mut at = end + 1;
        let mut n_left = 0;
        while at > 0 {
            n_left += tree[at];
            at &= at - 1;
        }
        n_crossings += n_before - n_left;
        let mut at = end + 1;
        while at < tree.len() {
            tree[at] += 1;
            at += at & at.wrapping_neg();
        }
    }
    n_crossings
}
