//! CUDA C for [`Pooling`]: each thread combines one window, in as many neighboring channels as fill
//! 16 bytes.

mod gradients;

use soybean_plan::{DType, Pooling, PoolingForm};

use crate::{
    Call, Generated, Operation,
    generate::CudaKernel,
    map::{Access, Input},
    space::index_type_below,
    text::{Function, Parameter, Text, Threads, input_apart, result_apart},
};

/// The threads of a block.
const BLOCK: usize = 256;
/// Loops over more pixels or windows are not unrolled.
const FEW: usize = 16;

impl CudaKernel for Pooling {
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated> {
        let result = *call.results.first()?;
        let writer = Writer { it: self, prefix, inputs: call.inputs, result };
        writer.check_range()?;
        let [height, width] = match self.form {
            PoolingForm::Max | PoolingForm::Sum => self.result,
            PoolingForm::MaxGradient | PoolingForm::SumGradient => self.image,
        };
        if self.planes * height * width * self.channels == 0 {
            return Some(Generated::default());
        }
        let mut text = Text::default();
        let mut workspace_bytes = 0;
        let operations = match self.form {
            PoolingForm::Max => vec![writer.write_combined(&mut text, "soybean_max")?],
            PoolingForm::Sum => vec![writer.write_combined(&mut text, "soybean_sum")?],
            PoolingForm::SumGradient => vec![writer.write_gradient(&mut text)?],
            PoolingForm::MaxGradient if writer.has_separate_windows() => {
                vec![writer.write_separate_gradient(&mut text)?]
            }
            PoolingForm::MaxGradient => {
                workspace_bytes = writer.chosen_bytes();
                vec![writer.write_chosen(&mut text)?, writer.write_gradient(&mut text)?]
            }
        };
        Some(Generated { text: text.finish(), operations, workspace_bytes })
    }
}

struct Writer<'a> {
    it: &'a Pooling,
    prefix: &'a str,
    inputs: &'a [DType],
    result: DType,
}

/// The threads of a function for each plane and each vector of channels, and the names of their
/// coordinates.
struct Grid {
    size: [usize; 2],
    names: [&'static str; 2],
}

impl Grid {
    /// A thread for each window or block of pixels.
    const fn of_windows(size: [usize; 2]) -> Self {
        Self { size, names: ["row", "column"] }
    }
}

impl Writer<'_> {
    /// Returns none unless there are windows and positions within a plane are signed 32-bit
    /// integers.
    fn check_range(&self) -> Option<()> {
        let Pooling { channels, image, window, result, stride, .. } = *self.it;
        if result.contains(&0) {
            return None;
        }
        let blocks = self.blocks();
        for [height, width] in [image, result, blocks] {
            i32::try_from(height.checked_mul(width)?.checked_mul(channels)?).ok()?;
        }
        for dim in [0, 1] {
            i32::try_from(result[dim].max(blocks[dim]) * stride[dim] + window[dim]).ok()?;
        }
        Some(())
    }

    /// Returns the number of blocks of pixels along both dims: the first begin where the first
    /// windows do, all have the size of the stride, and together they cover the image.
    fn blocks(&self) -> [usize; 2] {
        let Pooling { image, stride, padding, .. } = *self.it;
        [0, 1].map(|dim| (image[dim] + padding[dim]).div_ceil(stride[dim]))
    }

    /// Returns the channels of a thread: as many as fill 16 bytes of the wider elements.
    fn width(&self) -> usize {
        let is_narrow = self.inputs.iter().chain([&self.result]).all(|it| *it == DType::Bf16);
        let fits = |it: &usize| self.it.channels.is_multiple_of(*it) && (*it == 4 || is_narrow);
        [8, 4].into_iter().find(fits).unwrap_or(1)
    }

    fn input(&self, number: usize) -> Option<Parameter> {
        Some(input_apart(number, *self.inputs.get(number)?))
    }

    fn index_type(&self) -> &'static str {
        let Pooling { planes, channels, image, result, .. } = *self.it;
        let pixels = [image, result, self.blocks()].map(|it| it[0] * it[1]).into_iter().max();
        index_type_below(planes * channels * pixels.unwrap_or(0))
    }

    /// Writes a function. In `body`, its `index`, its `plane`, its coordinates and its first
    /// `channel` are defined.
    fn write(
        &self,
        text: &mut Text,
        name: &str,
        (grid, parameters): (&Grid, Vec<Parameter>),
        body: impl FnOnce(&mut Text),
    ) -> Option<Operation> {
        let ([height, width], [row, column]) = (grid.size, grid.names);
        let n_vectors = self.it.channels / self.width();
        let n = self.it.planes * height * width * n_vectors;
        let function = Function {
            name: format!("{}_{name}", self.prefix),
            parameters,
            threads: Threads::Independent,
            block: 256,
        };
        let index_type = self.index_type();
        text.function(&function, |text| {
            text.line(format!(
                "const {index_type} index = ({index_type})blockIdx.x * {BLOCK}u + threadIdx.x;"
            ));
            text.line(format!("if (index >= {n}u) return;"));
            let first = format!("(int)(index % {n_vectors}u) * {}", self.width());
            text.line(format!("const int channel = {first};"));
            text.line(format!("const {index_type} place = index / {n_vectors}u;"));
            text.line(format!("const int {column} = (int)(place % {width}u);"));
            text.line(format!("const int {row} = (int)(place / {width}u % {height}u);"));
            text.line(format!("const {index_type} plane = place / {}u;", height * width));
            body(text);
        });
        let n_blocks = u32::try_from(n.div_ceil(BLOCK)).ok()?;
        Some(function.launch([n_blocks, 1, 1]))
    }

    /// Writes two nested loops from 0 on.
    fn write_loops(
        text: &mut Text,
        [i, j]: [&str; 2],
        ([n_outer, n_inner], is_unrolled): ([usize; 2], bool),
        body: impl FnOnce(&mut Text),
    ) {
        text.line(if is_unrolled { "#pragma unroll" } else { "#pragma unroll 1" });
        text.block(format!("for (int {i} = 0; {i} < {n_outer}; ++{i})"), |text| {
            text.line(if is_unrolled { "#pragma unroll" } else { "#pragma unroll 4" });
            text.block(format!("for (int {j} = 0; {j} < {n_inner}; ++{j})"), body);
        });
    }

    /// Writes a loop over the channels of a thread.
    fn write_lanes(&self, text: &mut Text, body: impl AsRef<str>) {
        text.line("#pragma unroll");
        text.line(format!("for (int e = 0; e < {}; ++e) {}", self.width(), body.as_ref()));
    }

    /// Writes the load of an array `x0` from input 0.
    fn write_load(&self, text: &mut Text, number: usize, place: &str) {
        let input = Input { number, is_integer: false };
        input.write_load(text, &format!("({place})"), Access::Dense, self.width());
    }

    /// Writes the store of an array to the result.
    fn write_store(&self, text: &mut Text, place: &str, array: &str) {
        let lane = if self.width() == 1 { "[0]" } else { "" };
        text.line(format!("soybean_store(out0 + ({place}), {array}{lane});"));
    }

    /// Writes the first pixel of the window or block at `row` and `column`, and the offset of the
    /// plane.
    fn write_corner(&self, text: &mut Text) {
        let Pooling { image: [height, width], stride, padding, channels, .. } = *self.it;
        text.line(format!("const int top = row * {} - {};", stride[0], padding[0]));
        text.line(format!("const int left = column * {} - {};", stride[1], padding[1]));
        let n_elements = height * width * channels;
        text.line(format!("const {} image = plane * {n_elements}u + channel;", self.index_type()));
    }

    /// Writes a loop over the pixels of the window at `row` and `column`, whose corner is defined.
    /// In `body`, these are defined: the pixel's place in the window, `i` and `j`; its place in the
    /// image, `y` and `x`; and its channels `x0`.
    ///
    /// A place outside the image is replaced by the nearest one within it, so that no load waits
    /// for a condition: `y` and `x` are then not `top + i` and `left + j`.
    fn write_window(&self, text: &mut Text, grid: &Grid, body: impl FnOnce(&mut Text)) {
        let Pooling { image, window, channels, .. } = *self.it;
        if image.contains(&0) {
            return;
        }
        let is_unrolled = window[0] * window[1] <= FEW;
        Self::write_loops(text, ["i", "j"], (window, is_unrolled), |text| {
            text.line(format!("const int y = {};", self.within_image(0, grid, "top + i")));
            text.line(format!("const int x = {};", self.within_image(1, grid, "left + j")));
            self.write_load(text, 0, &format!("image + (y * {} + x) * {channels}", image[1]));
            body(text);
        });
    }

    /// Returns the place nearest to this one of a window that is within the image.
    fn within_image(&self, dim: usize, grid: &Grid, place: &str) -> String {
        let Pooling { image, window, stride, padding, .. } = *self.it;
        let end = (grid.size[dim] * stride[dim] + window[dim]).saturating_sub(stride[dim]);
        let reaches = [padding[dim] > 0, end > image[dim] + padding[dim]];
        within(place, image[dim], reaches)
    }

    /// Returns the condition that a thread's window has no pixels; none if all windows have some.
    fn no_pixels(&self, grid: &Grid) -> Option<String> {
        let Pooling { image, window, result, stride, padding, .. } = *self.it;
        let mut conditions = Vec::new();
        for (dim, (corner, name)) in
            [("top", grid.names[0]), ("left", grid.names[1])].into_iter().enumerate()
        {
            if padding[dim] >= window[dim] {
                conditions.push(format!("{corner} + {} <= 0", window[dim]));
            }
            if (grid.size[dim] * stride[dim]).saturating_sub(stride[dim])
                >= image[dim] + padding[dim]
            {
                conditions.push(format!("{corner} >= {}", image[dim]));
            }
            if grid.size[dim] > result[dim] {
                conditions.push(format!("{name} >= {}", result[dim]));
            }
        }
        (!conditions.is_empty()).then(|| conditions.join(" || "))
    }

    fn write_combined(&self, text: &mut Text, combine: &str) -> Option<Operation> {
        let parameters = vec![self.input(0)?, result_apart(0, self.result)];
        let (grid, width) = (&Grid::of_windows(self.it.result), self.width());
        self.write(text, "pool", (grid, parameters), |text| {
            self.write_corner(text);
            text.line(format!("float all[{width}];"));
            self.write_lanes(text, format!("all[e] = {combine}::none();"));
            match self.it.form {
                PoolingForm::Max | PoolingForm::MaxGradient => {
                    // Pixels that are seen twice do not change a maximum.
                    self.write_window(text, grid, |text| {
                        let combined = format!("{combine}::combine(all[e], x0[e])");
                        self.write_lanes(text, format!("all[e] = {combined};"));
                    });
                    if let Some(condition) = self.no_pixels(grid) {
                        text.block(format!("if ({condition})"), |text| {
                            self.write_lanes(text, format!("all[e] = {combine}::none();"));
                        });
                    }
                }
                PoolingForm::Sum | PoolingForm::SumGradient => {
                    self.write_window(text, grid, |text| {
                        text.line("const bool is_inside = y == top + i && x == left + j;");
                        self.write_lanes(text, "all[e] += is_inside ? x0[e] : 0.0f;");
                    });
                }
            }
            self.write_store(text, &format!("index * {width}u"), "all");
        })
    }
}

/// Returns the place nearest to this one in `0..n`, if it may be before and if it may be beyond.
fn within(place: &str, n: usize, [is_before, is_beyond]: [bool; 2]) -> String {
    let last = n.cast_signed() - 1;
    match (is_before, is_beyond) {
        (false, false) => place.to_owned(),
        (true, false) => format!("max({place}, 0)"),
        (false, true) => format!("min({place}, {last})"),
        (true, true) => format!("max(min({place}, {last}), 0)"),
    }
}

#[cfg(test)]
mod tests {
    use soybean_plan::{Kernel, Precision};

    use super::*;

    /// Returns the gradient of maxima in 8 channels of an image of 32 x 32 pixels.
    fn generated(planes: usize, window: usize, stride: usize, result: usize) -> Option<Generated> {
        let kernel = Kernel::from(Pooling {
            form: PoolingForm::MaxGradient,
            planes,
            channels: 8,
            image: [32; 2],
            window: [window; 2],
            result: [result; 2],
            stride: [stride; 2],
            padding: [0; 2],
        });
        let types = &[DType::Bf16; 2];
        let precision = Precision::Bf16;
        let call = Call { kernel: &kernel, inputs: types, results: &types[..1], precision };
        crate::generate(&call, "k")
    }

    #[test]
    fn places_of_maxima_are_stored_if_windows_overlap() {
        let check = |planes, window, stride, result, n_operations, workspace_bytes| {
            let found = generated(planes, window, stride, result).unwrap();
            assert_eq!(found.operations.len(), n_operations);
            assert_eq!(found.workspace_bytes, workspace_bytes);
        };
        check(3, 2, 2, 16, 1, 0);
        check(3, 1, 3, 11, 1, 0);
        check(3, 3, 2, 15, 2, 3 * 15 * 15 * 8);
        // A byte has no value for one of 256 places and for none of them.
        check(3, 15, 8, 3, 2, 3 * 3 * 3 * 8);
        check(3, 16, 8, 3, 2, 3 * 3 * 3 * 8 * 4);
        check(0, 3, 2, 15, 0, 0);
    }

    #[test]
    fn images_without_windows_have_no_text() {
        assert_eq!(generated(3, 2, 2, 0), None);
    }
}
