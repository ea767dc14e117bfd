//! A layered layout. Every edge leads downwards, the order of rows has few crossings, and lines are
//! as straight as possible.
//!
//! The method is that of Sugiyama, Tagawa and Toda 1981: assign rows to nodes, add a bend in each
//! row that an edge passes, order rows by barycenters, and choose positions.

mod grid;
mod order;
mod place;

use grid::Grid;

/// The distance between the centers of two rows.
pub(crate) const ROW: f64 = 76.0;
/// The minimum distance between two nodes of a row.
const GAP: f64 = 18.0;

/// The positions of all items, in pixels. None is negative.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layout {
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// The nodes' centers.
    pub(crate) centers: Vec<[f64; 2]>,
    /// The points of each line from top to bottom, including its ends.
    pub(crate) routes: Vec<Vec<[f64; 2]>>,
}

/// An edge of the layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) upper: usize,
    pub(crate) lower: usize,
    /// The node at which the edge begins. Edges with the same one share their bends as far as
    /// possible.
    pub(crate) source: usize,
}

/// Lays out nodes of these widths. All lines lead downwards and must not form cycles.
pub(crate) fn layout(widths: &[f64], lines: &[Line]) -> Layout {
    let mut grid = Grid::new(widths, lines);
    order::order(&mut grid);
    let places = place::places(&grid);
    let point = |item: usize| [places[item], (grid.row_of[item] as f64 + 0.5) * ROW];
    let right = |item: usize| places[item] + grid.widths[item] / 2.0;
    Layout {
        width: (0..places.len()).map(right).fold(0.0, f64::max) + GAP,
        height: grid.rows.len() as f64 * ROW,
        centers: (0..widths.len()).map(point).collect(),
        routes: grid.routes.iter().map(|it| it.iter().map(|&it| point(it)).collect()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns lines from each node to some later ones, by a small random number generator.
    fn random_lines(n_nodes: usize, seed: u64) -> Vec<Line> {
        let mut state = seed;
        let mut next = |bound: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % bound
        };
        let mut lines = Vec::new();
        for upper in 0..n_nodes - 1 {
            for _ in 0..=next(2) {
                let lower = upper + 1 + next((n_nodes - 1 - upper).min(12));
                lines.push(Line { upper, lower, source: [upper, lower][next(2)] });
            }
        }
        lines
    }

    fn down(upper: usize, lower: usize) -> Line {
        Line { upper, lower, source: upper }
    }

    #[test]
    fn edges_lead_downwards_and_nodes_keep_apart() {
        for (n_nodes, seed) in (3..).zip(0..50) {
            let lines = random_lines(n_nodes, seed);
            let widths: Vec<f64> = (0..n_nodes).map(|it| 20.0 + 10.0 * (it % 7) as f64).collect();
            let layout = layout(&widths, &lines);
            for (route, line) in layout.routes.iter().zip(&lines) {
                assert_eq!(route[0], layout.centers[line.upper]);
                assert_eq!(route[route.len() - 1], layout.centers[line.lower]);
                assert!(route.windows(2).all(|it| (it[1][1] - it[0][1] - ROW).abs() < 1e-9));
            }
            for (a, here) in layout.centers.iter().enumerate() {
                assert!(
                    here[0] - widths[a] / 2.0 >= 0.0 && here[0] + widths[a] / 2.0 <= layout.width
                );
                for (b, there) in layout.centers.iter().enumerate().filter(|it| it.0 != a) {
                    let apart = (here[0] - there[0]).abs() - f64::midpoint(widths[a], widths[b]);
                    assert!(here[1] != there[1] || apart > GAP - 1e-6, "{a} and {b} of {seed}");
                }
            }
        }
    }

    #[test]
    fn a_chain_is_a_straight_line() {
        let layout = layout(&[40.0, 80.0, 60.0], &[down(0, 1), down(1, 2)]);
        assert!(layout.centers.iter().all(|it| (it[0] - layout.centers[0][0]).abs() < 1e-6));
    }

    #[test]
    fn what_need_not_cross_does_not() {
        // Two stars with alternately numbered leaves.
        let lines: Vec<Line> = (0..8).map(|leaf| down(leaf % 2, 2 + leaf)).collect();
        let layout = layout(&[30.0; 10], &lines);
        let left = usize::from(layout.centers[0][0] > layout.centers[1][0]);
        let mut by_place: Vec<usize> = (2..10).collect();
        by_place.sort_by(|&a, &b| layout.centers[a][0].total_cmp(&layout.centers[b][0]));
        assert!(by_place[..4].iter().all(|leaf| leaf % 2 == left), "{by_place:?}");
    }
}
