//! The rows of a layout. Each node is as low as the nodes below it allow, and long edges have a
//! bend in each row that they pass.
//!
//! Edges of one tensor share their bends, so a tensor with many readers is one line with branches.

use std::collections::BTreeMap;

use super::Line;

/// The width of a bend, which separates lines from nodes.
const BEND: f64 = 6.0;

/// Nodes and bends in rows. Nodes have the first numbers.
pub(super) struct Grid {
    /// The items of each row, from left to right.
    pub(super) rows: Vec<Vec<usize>>,
    /// The row of each item.
    pub(super) row_of: Vec<usize>,
    pub(super) widths: Vec<f64>,
    /// The neighbors of each item in the next row.
    pub(super) below: Vec<Vec<usize>>,
    /// The neighbors of each item in the previous row.
    pub(super) above: Vec<Vec<usize>>,
    /// The items along each edge, including its ends.
    pub(super) routes: Vec<Vec<usize>>,
    pub(super) n_nodes: usize,
}

impl Grid {
    pub(super) fn new(widths: &[f64], lines: &[Line]) -> Self {
        let n_nodes = widths.len();
        let mut grid = Self {
            rows: Vec::new(),
            row_of: rows(n_nodes, lines),
            widths: widths.to_vec(),
            below: vec![Vec::new(); n_nodes],
            above: vec![Vec::new(); n_nodes],
            routes: Vec::new(),
            n_nodes,
        };
        let mut bends = BTreeMap::new();
        for line in lines {
            let route = grid.route(line, &mut bends);
            grid.routes.push(route);
        }
        let n_rows = grid.row_of.iter().max().map_or(0, |last| last + 1);
        grid.rows = vec![Vec::new(); n_rows];
        for (item, &row) in grid.row_of.iter().enumerate() {
            grid.rows[row].push(item);
        }
        grid
    }

    /// Connects the items along a line and returns them. `bends` contains the existing ones, by the
    /// line's tensor and row.
    fn route(&mut self, line: &Line, bends: &mut BTreeMap<(usize, usize), usize>) -> Vec<usize> {
        let mut route = vec![line.upper];
        for row in self.row_of[line.upper] + 1..self.row_of[line.lower] {
            route.push(*bends.entry((line.source, row)).or_insert_with(|| self.add_bend(row)));
        }
        route.push(line.lower);
        for pair in route.windows(2) {
            if !self.below[pair[0]].contains(&pair[1]) {
                self.below[pair[0]].push(pair[1]);
                self.above[pair[1]].push(pair[0]);
            }
        }
        route
    }

    fn add_bend(&mut self, row: usize) -> usize {
        self.row_of.push(row);
        self.widths.push(BEND);
        self.below.push(Vec::new());
        self.above.push(Vec::new());
        self.row_of.len() - 1
    }

    /// Returns whether an item is a bend of an edge.
    pub(super) fn is_bend(&self, item: usize) -> bool {
        item >= self.n_nodes
    }
}

/// Returns the lowest row of each node from which all edges lead downwards. The longest path fills
/// all rows.
fn rows(n_nodes: usize, lines: &[Line]) -> Vec<usize> {
    let mut above = vec![Vec::new(); n_nodes];
    let mut n_below = vec![0; n_nodes];
    for &Line { upper, lower, .. } in lines {
        above[lower].push(upper);
        n_below[upper] += 1;
    }
    let mut height = vec![0; n_nodes];
    let mut ready: Vec<usize> = (0..n_nodes).filter(|&it| n_below[it] == 0).collect();
    while let Some(node) = ready.pop() {
        for &upper in &above[node] {
            height[upper] = height[upper].max(height[node] + 1);
            n_below[upper] -= 1;
            if n_below[upper] == 0 {
                ready.push(upper);
            }
        }
    }
    let highest = height.iter().copied().max().unwrap_or(0);
    height.into_iter().map(|it| highest - it).collect()
}
