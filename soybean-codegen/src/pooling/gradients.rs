//! The gradients of [`Pooling`]. That of maxima takes one function if windows share no pixels: each
//! thread finds the maxima of its window, and writes all pixels up to the next windows.
//!
//! Otherwise a first function stores where in each window the maximum is, as one byte for most
//! windows. Then each thread adds up, for a few pixels, the gradients of the windows that chose
//! them. For windows of 3 x 3 at a stride of 2 in `bf16` this moves 5 bytes per pixel, where
//! operands and result have 4.5. Finding the maxima again instead would take at least 36
//! comparisons for 4 pixels, where storing them takes 9, and instructions would limit the speed.

use soybean_plan::{Pooling, PoolingForm};

use super::{FEW, Grid, Writer, within};
use crate::{
    Operation,
    map::{Access, Input},
    text::{Text, result_apart, workspace},
};

/// The maximum number of pixels of a thread that adds up gradients, which are in registers.
const MOST_PIXELS: usize = 4;

impl Writer<'_> {
    /// Returns true if no pixel is in several windows.
    pub(super) fn has_separate_windows(&self) -> bool {
        let Pooling { window, stride, .. } = *self.it;
        window[0] <= stride[0] && window[1] <= stride[1]
    }

    /// Returns the type of a place in a window, and its bytes.
    fn chosen_type(&self) -> (&'static str, usize) {
        // The number of places stands for none of them.
        if self.n_places() <= 255 { ("unsigned char", 1) } else { ("int", 4) }
    }

    const fn n_places(&self) -> usize {
        self.it.window[0] * self.it.window[1]
    }

    /// Returns the bytes of the place of the maximum of each window.
    pub(super) fn chosen_bytes(&self) -> usize {
        let Pooling { planes, channels, result, .. } = *self.it;
        planes * result[0] * result[1] * channels * self.chosen_type().1
    }

    /// Writes an array `best` with the place in the window of the first of its greatest pixels, or
    /// the number of places if it has no pixels. The corner is defined.
    fn write_best(&self, text: &mut Text, grid: &Grid) {
        let (columns, width) = (self.it.window[1], self.width());
        let [y, x] = [(0, "top"), (1, "left")].map(|it| self.within_image(it.0, grid, it.1));
        // It stays if all pixels are minus infinity.
        text.line(format!("const int first = ({y} - top) * {columns} + {x} - left;"));
        text.line(format!("int best[{width}];"));
        text.line(format!("float largest[{width}];"));
        self.write_lanes(text, "best[e] = first, largest[e] = -SOYBEAN_INFINITY;");
        self.write_window(text, grid, |text| {
            // A pixel that is seen twice is not larger than itself.
            text.line(format!("const int chosen = (y - top) * {columns} + x - left;"));
            text.line("#pragma unroll");
            text.block(format!("for (int e = 0; e < {width}; ++e)"), |text| {
                // NaN is the largest, and is not less than or equal to anything.
                let is_larger = "!(x0[e] <= largest[e]) && largest[e] == largest[e]";
                text.line(format!("const bool is_larger = {is_larger};"));
                text.line("best[e] = is_larger ? chosen : best[e];");
                text.line("largest[e] = is_larger ? x0[e] : largest[e];");
            });
        });
        if let Some(condition) = self.no_pixels(grid) {
            text.block(format!("if ({condition})"), |text| {
                self.write_lanes(text, format!("best[e] = {};", self.n_places()));
            });
        }
    }

    /// Writes a function that stores the place of the maximum of each window.
    pub(super) fn write_chosen(&self, text: &mut Text) -> Option<Operation> {
        let chosen = workspace(format!("{}* __restrict__ out0", self.chosen_type().0), 0);
        let grid = &Grid::of_windows(self.it.result);
        self.write(text, "chosen", (grid, vec![self.input(0)?, chosen]), |text| {
            self.write_corner(text);
            self.write_best(text, grid);
            self.write_store(text, &format!("index * {}u", self.width()), "best");
        })
    }

    /// Writes a loop over the pixels of the block at `row` and `column`, whose corner is defined.
    /// `body` defines `sums`, which become the result; in it, `i` and `j` are the pixel's place in
    /// the block.
    fn write_block(&self, text: &mut Text, is_unrolled: bool, body: impl FnOnce(&mut Text)) {
        let Pooling { image, stride, padding, channels, .. } = *self.it;
        Self::write_loops(text, ["i", "j"], (stride, is_unrolled), |text| {
            body(text);
            for (dim, place) in ["top + i", "left + j"].into_iter().enumerate() {
                if padding[dim] > 0 {
                    text.line(format!("if ({place} < 0) continue;"));
                }
                if !(image[dim] + padding[dim]).is_multiple_of(stride[dim]) {
                    text.line(format!("if ({place} >= {}) continue;", image[dim]));
                }
            }
            let pixel = format!("((top + i) * {} + left + j) * {channels}", image[1]);
            self.write_store(text, &format!("image + {pixel}"), "sums");
        });
    }

    /// Writes the gradient of maxima of windows that share no pixels.
    pub(super) fn write_separate_gradient(&self, text: &mut Text) -> Option<Operation> {
        let Pooling { window, result, stride, channels, .. } = *self.it;
        let parameters = vec![self.input(0)?, self.input(1)?, result_apart(0, self.result)];
        let grid = &Grid::of_windows(self.blocks());
        self.write(text, "gradient", (grid, parameters), |text| {
            self.write_corner(text);
            self.write_best(text, grid);
            let [row, column] = [0, 1].map(|dim| {
                within(grid.names[dim], result[dim], [false, grid.size[dim] > result[dim]])
            });
            let n_elements = result[0] * result[1] * channels;
            let window_at = format!("({row} * {} + {column}) * {channels}", result[1]);
            let place = format!("plane * {n_elements}u + channel + {window_at}");
            self.write_load(text, 1, &place);
            self.write_block(text, stride[0] * stride[1] <= FEW, |text| {
                let is_in_window = format!("i < {} && j < {}", window[0], window[1]);
                let here = format!("{is_in_window} ? i * {} + j : -1", window[1]);
                text.line(format!("const int here = {here};"));
                text.line(format!("float sums[{}];", self.width()));
                self.write_lanes(text, "sums[e] = best[e] == here ? x1[e] : 0.0f;");
            });
        })
    }

    /// Writes a function that adds up the gradients of the windows of each pixel, or of those that
    /// chose it.
    pub(super) fn write_gradient(&self, text: &mut Text) -> Option<Operation> {
        let Pooling { image, window, result, stride, padding, channels, .. } = *self.it;
        let parameters = match self.it.form {
            PoolingForm::MaxGradient => {
                let chosen = format!("const {}* __restrict__ in2", self.chosen_type().0);
                vec![self.input(1)?, workspace(chosen, 0), result_apart(0, self.result)]
            }
            _ => vec![self.input(0)?, result_apart(0, self.result)],
        };
        // Pixels of a block are in the same windows, except for their margins.
        let is_by_blocks = self.width() > 1 && stride[0] * stride[1] <= MOST_PIXELS;
        let grid = if is_by_blocks {
            Grid::of_windows(self.blocks())
        } else {
            Grid { size: image, names: ["y", "x"] }
        };
        let reach = [0, 1].map(|dim| window[dim].div_ceil(stride[dim]));
        self.write(text, "gradient", (&grid, parameters), |text| {
            let n_elements = result[0] * result[1] * channels;
            text.line(format!(
                "const {} windows = plane * {n_elements}u + channel;",
                self.index_type()
            ));
            if is_by_blocks {
                self.write_corner(text);
                let is_unrolled = window[0] * window[1] <= FEW;
                self.write_block(text, is_unrolled, |text| {
                    self.write_sums(text, (reach, is_unrolled));
                });
                return;
            }
            for (dim, [name, row, i]) in
                [["y", "row", "i"], ["x", "column", "j"]].into_iter().enumerate()
            {
                let (padding, stride) = (padding[dim], stride[dim]);
                text.line(format!("const int {row} = ({name} + {padding}) / {stride};"));
                text.line(format!("const int {i} = ({name} + {padding}) % {stride};"));
            }
            let is_unrolled = reach[0] * reach[1] <= FEW;
            self.write_sums(text, (reach, is_unrolled));
            self.write_store(text, &format!("index * {}u", self.width()), "sums");
        })
    }

    /// Writes an array `sums` for the pixel at `i` and `j` of the block at `row` and `column`, with
    /// this number of windows along both dims.
    fn write_sums(&self, text: &mut Text, reach: ([usize; 2], bool)) {
        let Pooling { window, result, stride, channels, .. } = *self.it;
        let blocks = self.blocks();
        text.line(format!("float sums[{}];", self.width()));
        self.write_lanes(text, "sums[e] = 0.0f;");
        let before = reach.0.map(|it| it.saturating_sub(1));
        Self::write_loops(text, ["k", "l"], reach, |text| {
            let mut is_window = Vec::new();
            for (dim, [i, k, row, name]) in
                [["i", "k", "row", "above"], ["j", "l", "column", "beside"]].into_iter().enumerate()
            {
                let (stride, before) = (stride[dim], before[dim]);
                let in_window = format!("{i} + ({before} - {k}) * {stride}");
                text.line(format!("const int {name} = {in_window};"));
                if !window[dim].is_multiple_of(stride) {
                    text.line(format!("if ({name} >= {}) continue;", window[dim]));
                }
                let reaches = [before > 0, blocks[dim] > result[dim]];
                let at = format!("{row} - {before} + {k}");
                let nearest = within(&at, result[dim], reaches);
                text.line(format!("const int {name}_window = {nearest};"));
                if reaches.contains(&true) {
                    is_window.push(format!("{name}_window == {at}"));
                }
            }
            text.line(format!(
                "const {} window = windows + (above_window * {} + beside_window) * {channels};",
                self.index_type(),
                result[1]
            ));
            self.write_addition(text, is_window);
        });
    }

    /// Writes the addition of the gradient of `window` to `sums` under some conditions.
    fn write_addition(&self, text: &mut Text, mut conditions: Vec<String>) {
        if self.it.form != PoolingForm::MaxGradient {
            self.write_load(text, 0, "window");
            // Compilers would move a load that only a branch needs into it.
            let term = match conditions.is_empty() {
                true => "x0[e]".to_owned(),
                false => format!("{} ? x0[e] : 0.0f", conditions.join(" && ")),
            };
            return self.write_lanes(text, format!("sums[e] += {term};"));
        }
        let chosen = Input { number: 2, is_integer: true };
        chosen.write_load(text, "window", Access::Dense, self.width());
        self.write_load(text, 1, "window");
        text.line(format!("const int here = above * {} + beside;", self.it.window[1]));
        conditions.push("x2[e] == here".to_owned());
        self.write_lanes(text, format!("if ({}) sums[e] += x1[e];", conditions.join(" && ")));
    }
}
