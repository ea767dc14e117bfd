//! CUDA C for [`Pooling`]: each thread computes one element of the result. The gradient of maxima
//! first stores the position of the maximum of each window. Each pixel then adds up the gradients
//! of the windows that chose it, in their order.

use soybean_plan::{DType, Pooling, PoolingForm};

use crate::{
    Call, Generated, Operation,
    generate::CudaKernel,
    space::index_type_below,
    text::{Function, Parameter, Text, Threads, input_apart, result_apart, workspace},
};

/// The threads of a block.
const BLOCK: usize = 256;

impl CudaKernel for Pooling {
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated> {
        // Positions within a plane are signed 32-bit integers.
        i32::try_from(self.image[0] * self.image[1] * self.channels).ok()?;
        let writer =
            Writer { it: self, prefix, inputs: call.inputs, result: *call.results.first()? };
        let mut text = Text::default();
        let mut workspace_bytes = 0;
        let operations = match self.form {
            PoolingForm::Max => vec![writer.write_combined(&mut text, "soybean_max")],
            PoolingForm::Sum => vec![writer.write_combined(&mut text, "soybean_sum")],
            PoolingForm::SumGradient => vec![writer.write_sum_gradient(&mut text)],
            PoolingForm::MaxGradient => {
                workspace_bytes = self.planes * self.result[0] * self.result[1] * self.channels * 4;
                vec![writer.write_chosen(&mut text), writer.write_max_gradient(&mut text)]
            }
        };
        let operations = operations.into_iter().flatten().collect();
        Some(Generated { text: text.finish(), operations, workspace_bytes })
    }
}

struct Writer<'a> {
    it: &'a Pooling,
    prefix: &'a str,
    inputs: &'a [DType],
    result: DType,
}

impl Writer<'_> {
    fn input(&self, number: usize) -> Option<Parameter> {
        Some(input_apart(number, *self.inputs.get(number)?))
    }

    fn index_type(&self) -> &'static str {
        let Pooling { planes, channels, image, result, .. } = *self.it;
        index_type_below(planes * channels * (image[0] * image[1]).max(result[0] * result[1]))
    }

    /// Writes a function with a thread for each element of planes of this size. In `body`, its
    /// `index`, `plane`, `y`, `x` and `channel` are defined.
    fn write(
        &self,
        text: &mut Text,
        name: &str,
        (size, parameters): ([usize; 2], Vec<Parameter>),
        body: impl FnOnce(&mut Text),
    ) -> Option<Operation> {
        let channels = self.it.channels;
        let n = self.it.planes * size[0] * size[1] * channels;
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
            text.line(format!("const int channel = (int)(index % {channels}u);"));
            text.line(format!("const {index_type} pixel = index / {channels}u;"));
            text.line(format!("const int x = (int)(pixel % {}u);", size[1]));
            text.line(format!("const int y = (int)(pixel / {}u % {}u);", size[1], size[0]));
            text.line(format!("const {index_type} plane = pixel / {}u;", size[0] * size[1]));
            body(text);
        });
        let n_blocks = u32::try_from(n.div_ceil(BLOCK)).ok()?;
        (n_blocks > 0).then(|| function.launch([n_blocks, 1, 1]))
    }

    /// Writes a loop over the pixels of the window at `y` and `x`. In `body`, the `pixel` and its
    /// number `place` in its plane are defined.
    fn write_window(&self, text: &mut Text, body: impl FnOnce(&mut Text)) {
        let Pooling { image: [height, width], window, stride, padding, channels, .. } = *self.it;
        text.line(format!("const int top = y * {} - {};", stride[0], padding[0]));
        text.line(format!("const int left = x * {} - {};", stride[1], padding[1]));
        let n_elements = height * width * channels;
        text.line(format!("const auto* image = in0 + plane * {n_elements}u + channel;"));
        text.block(format!("for (int i = 0; i < {}; ++i)", window[0]), |text| {
            text.line(format!("if (top + i < 0 || top + i >= {height}) continue;"));
            text.block(format!("for (int j = 0; j < {}; ++j)", window[1]), |text| {
                text.line(format!("if (left + j < 0 || left + j >= {width}) continue;"));
                text.line(format!("const int place = (top + i) * {width} + left + j;"));
                text.line(format!("const float pixel = soybean_value(image[place * {channels}]);"));
                body(text);
            });
        });
    }

    fn write_combined(&self, text: &mut Text, combine: &str) -> Option<Operation> {
        let parameters = vec![self.input(0)?, result_apart(0, self.result)];
        self.write(text, "pool", (self.it.result, parameters), |text| {
            text.line(format!("float all = {combine}::none();"));
            self.write_window(text, |text| {
                text.line(format!("all = {combine}::combine(all, pixel);"));
            });
            text.line("soybean_store(out0 + index, all);");
        })
    }

    /// Writes a function that stores the position of the maximum of each window, -1 if the window
    /// has no pixels.
    fn write_chosen(&self, text: &mut Text) -> Option<Operation> {
        let parameters = vec![self.input(0)?, workspace("int* __restrict__ chosen", 0)];
        self.write(text, "chosen", (self.it.result, parameters), |text| {
            text.line("float largest = 0.0f;");
            text.line("int best = -1;");
            self.write_window(text, |text| {
                let is_larger = "pixel > largest || (pixel != pixel && largest == largest)";
                text.line(format!("if (best < 0 || {is_larger}) best = place, largest = pixel;"));
            });
            text.line("chosen[index] = best;");
        })
    }

    /// Writes a loop over the windows that contain the pixel at `y` and `x`. In `body`, the number
    /// `window` is defined.
    fn write_windows(&self, text: &mut Text, body: impl FnOnce(&mut Text)) {
        let Pooling { window, result, stride, padding, .. } = *self.it;
        for (dim, (name, at)) in [("row", "y"), ("column", "x")].into_iter().enumerate() {
            let (at, stride) = (format!("({at} + {})", padding[dim]), stride[dim]);
            text.line(format!(
                "const int last_{name} = min({at} / {stride}, {});",
                result[dim].cast_signed() - 1
            ));
            let window = window[dim];
            let first = format!("{at} < {window} ? 0 : ({at} - {window}) / {stride} + 1");
            text.line(format!("const int first_{name} = {first};"));
        }
        let (index_type, [height, width], channels) = (self.index_type(), result, self.it.channels);
        let n_elements = height * width * channels;
        text.line(format!("const {index_type} windows = plane * {n_elements}u + channel;"));
        text.block("for (int row = first_row; row <= last_row; ++row)", |text| {
            text.block(
                "for (int column = first_column; column <= last_column; ++column)",
                |text| {
                    text.line(format!(
                        "const {index_type} window = windows + (row * {width} + column) * {channels};"
                    ));
                    body(text);
                },
            );
        });
    }

    fn write_max_gradient(&self, text: &mut Text) -> Option<Operation> {
        let chosen = workspace("const int* __restrict__ chosen", 0);
        let parameters = vec![self.input(1)?, chosen, result_apart(0, self.result)];
        self.write(text, "gradient", (self.it.image, parameters), |text| {
            text.line("float sum = 0.0f;");
            text.line(format!("const int place = y * {} + x;", self.it.image[1]));
            self.write_windows(text, |text| {
                text.line("if (chosen[window] == place) sum += soybean_value(in1[window]);");
            });
            text.line("soybean_store(out0 + index, sum);");
        })
    }

    fn write_sum_gradient(&self, text: &mut Text) -> Option<Operation> {
        let parameters = vec![self.input(0)?, result_apart(0, self.result)];
        self.write(text, "gradient", (self.it.image, parameters), |text| {
            text.line("float sum = 0.0f;");
            self.write_windows(text, |text| text.line("sum += soybean_value(in0[window]);"));
            text.line("soybean_store(out0 + index, sum);");
        })
    }
}
