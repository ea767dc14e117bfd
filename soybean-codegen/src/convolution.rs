//! CUDA C for [`Convolution`]: matrix products for each group. Patches of images are read in place.

mod few_channels_filter;
mod few_channels_forward;
mod image_tile;

use soybean_plan::{Convolution, ConvolutionForm, ImageLayout};

use crate::{
    Call, Generated,
    generate::CudaKernel,
    product::{ColumnBias, Operand, Product, Units},
};

/// The general implementation for any sizes.
impl CudaKernel for Convolution {
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated> {
        generate_product(self, call, None, prefix)
    }
}

/// The maximum number of channels that are few. More of them suit products that copy patches.
const MOST_FEW_CHANNELS: usize = 8;

/// Returns the numbers of a word of tensor cores, if the convolution has few channels and suits
/// kernels that read windows in place. Each copy of 16 bytes has filters of one pixel.
fn words_of_few_channels(it: &Convolution, call: &Call<'_>) -> Option<usize> {
    let Units::Tensor { per_word } = Units::new(call) else { return None };
    let suits = it.layout == ImageLayout::ChannelsLast
        && (it.groups, it.dilation[1]) == (1, 1)
        && it.channels <= MOST_FEW_CHANNELS
        && it.filters.is_multiple_of(8);
    suits.then_some(per_word)
}

/// Returns true if [`generate`](crate::generate()) computes this gradient of filters in a way for
/// few channels. It may be faster than libraries.
#[must_use]
pub fn has_few_channels_filter(convolution: &Convolution, call: &Call<'_>) -> bool {
    few_channels_filter::suits(convolution, call)
}

/// Returns the functions of a forward convolution with channels last, whose call has a third input:
/// an element for each filter, which is added to its results. ReLU may follow. Returns none for
/// other convolutions.
#[must_use]
pub fn generate_convolution_with_bias(
    convolution: &Convolution,
    call: &Call<'_>,
    has_relu: bool,
    prefix: &str,
) -> Option<Generated> {
    let is_forward = convolution.form == ConvolutionForm::Forward;
    let bias = ColumnBias { input: 2, dtype: *call.inputs.get(2)?, has_relu };
    (is_forward && convolution.layout == ImageLayout::ChannelsLast)
        .then(|| generate_product(convolution, call, Some(bias), prefix))
        .flatten()
}

fn generate_product(
    it: &Convolution,
    call: &Call<'_>,
    bias: Option<ColumnBias>,
    prefix: &str,
) -> Option<Generated> {
    let Convolution { form, layout, batch, groups, channels, filters, .. } = *it;
    let (pixels, results, window) = (plane(it.image), plane(it.result), plane(it.window));
    let images = batch * groups * channels * pixels;
    let sums = batch * groups * filters * results;
    let weights = groups * filters * channels * window;
    let (rows, columns, depth) = match form {
        ConvolutionForm::Forward => (filters, batch * results, channels * window),
        ConvolutionForm::Data => (channels, batch * pixels, filters * window),
        ConvolutionForm::Filter => (filters, channels * window, batch * results),
    };
    if groups * rows * columns == 0 {
        return Some(Generated::default());
    }
    let of_few_channels = few_channels_filter::generate(it, call, prefix)
        .or_else(|| few_channels_forward::generate(it, call, bias, prefix));
    if of_few_channels.is_some() {
        return of_few_channels;
    }
    let (left, right, offset) = match form {
        ConvolutionForm::Forward => forward(it),
        ConvolutionForm::Data => data(it),
        ConvolutionForm::Filter => filter(it),
    };
    let (is_left_along_depth, is_right_along_depth) = match (layout, form) {
        (ImageLayout::ChannelsFirst, ConvolutionForm::Forward) => (true, false),
        // The filter elements of one pixel that are neighbors along the depth belong to different
        // filters.
        (ImageLayout::ChannelsFirst, ConvolutionForm::Data) => (window > 1, false),
        (ImageLayout::ChannelsFirst, ConvolutionForm::Filter) => (true, true),
        (ImageLayout::ChannelsLast, ConvolutionForm::Forward) => (true, true),
        (ImageLayout::ChannelsLast, ConvolutionForm::Data) => (false, true),
        (ImageLayout::ChannelsLast, ConvolutionForm::Filter) => (false, false),
    };
    let operand = |input: usize, is_along_depth: bool, members: String| Operand {
        input,
        dtype: call.inputs[input],
        is_along_depth,
        members,
    };
    let product = Product {
        prefix,
        units: Units::new(call),
        batch: groups,
        rows,
        columns,
        depth,
        left: operand(1, is_left_along_depth, left),
        right: operand(0, is_right_along_depth, right),
        bias,
        result: call.results[0],
        has_eight_neighbors: false,
        axes: ["row", "column"],
        offset,
        most_elements: images.max(sums).max(weights),
    };
    match (layout, form) {
        // Neighboring filters are neighbors in the result.
        (ImageLayout::ChannelsLast, ConvolutionForm::Forward) => {
            let has_eight_neighbors = filters.is_multiple_of(8);
            Product { has_eight_neighbors, ..product.transposed() }.generated()
        }
        _ => product.with_few_columns().generated(),
    }
}

const fn plane([height, width]: [usize; 2]) -> usize {
    height * width
}

/// Returns the layout of the operands and the result: members of the left, members of the right,
/// and the offset of the result.
type Texts = (String, String, String);

/// The distances of neighboring channels and pixels of images.
struct Distances {
    channel: usize,
    pixel: usize,
}

impl Distances {
    fn new(layout: ImageLayout, channels: usize, pixels: usize) -> Self {
        match layout {
            ImageLayout::ChannelsFirst => Self { channel: pixels, pixel: 1 },
            ImageLayout::ChannelsLast => Self { channel: 1, pixel: channels },
        }
    }

    /// Returns the offset from the start of an image of the pixel at `y` and `x`, in rows of this
    /// width.
    fn offset(&self, width: usize) -> String {
        match self.pixel {
            1 => format!("y * {width} + x"),
            pixel => format!("(y * {width} + x) * {pixel}"),
        }
    }
}

/// Returns the channel of an element of a filter, and its row and column as signed numbers. `index`
/// is the name of the element's number in its filter.
fn element(it: &Convolution, index: &str, channels: usize) -> [String; 3] {
    let [rows, columns] = it.window;
    match it.layout {
        ImageLayout::ChannelsFirst => [
            format!("{index} / {}", rows * columns),
            format!("(int)({index} / {columns} % {rows})"),
            format!("(int)({index} % {columns})"),
        ],
        ImageLayout::ChannelsLast => [
            format!("{index} % {channels}"),
            format!("(int)({index} / {})", channels * columns),
            format!("(int)({index} / {channels} % {columns})"),
        ],
    }
}

fn forward(it: &Convolution) -> Texts {
    let Convolution { groups, channels, filters, image, result, stride, padding, dilation, .. } =
        *it;
    let (pixels, results, window) = (plane(image), plane(result), plane(it.window));
    let distances = Distances::new(it.layout, groups * channels, pixels);
    let left = dense(filters * channels * window, channels * window, 1);
    let line = format!(
        "Index pixel = line % {results};
  return {{line / {results} * {}, (int)(pixel / {}) * {} - {}, (int)(pixel % {}) * {} - {}}};",
        groups * channels * pixels,
        result[1],
        stride[0],
        padding[0],
        result[1],
        stride[1],
        padding[1],
    );
    let at = if it.layout == ImageLayout::ChannelsLast && groups == 1 && dilation[1] == 1 {
        // The elements of a row of a window are neighbors in the image.
        let of_window = it.window[1] * channels;
        format!(
            "int y = line.y + (int)(depth / {of_window}) * {}, x = line.x * {channels} + (int)(depth % {of_window});
  return 0 <= y && y < {} && 0 <= x && x < {} ? soybean_value(from[line.start + y * {} + x]) : 0.0f;",
            dilation[0],
            image[0],
            image[1] * channels,
            image[1] * channels,
        )
    } else {
        let [channel, row, column] = element(it, "depth", channels);
        format!(
            "int y = line.y + {row} * {}, x = line.x + {column} * {};
  return {} ? soybean_value(from[line.start + {channel} * {} + {}]) : 0.0f;",
            dilation[0],
            dilation[1],
            is_inside(image),
            distances.channel,
            distances.offset(image[1]),
        )
    };
    let offset = by_pixel(it.layout, groups * filters, filters, results);
    (left, by_place(channels * distances.channel, &line, &at), offset)
}

fn data(it: &Convolution) -> Texts {
    let Convolution { groups, channels, filters, image, result, stride, padding, dilation, .. } =
        *it;
    let (pixels, results, window) = (plane(image), plane(result), plane(it.window));
    let distances = Distances::new(it.layout, groups * filters, results);
    let [filter, row, column] = element(it, "depth", filters);
    let (line, place) = match it.layout {
        ImageLayout::ChannelsFirst => (window, format!("depth % {window}")),
        ImageLayout::ChannelsLast => (1, format!("depth / {filters} * {channels}")),
    };
    let left = format!(
        "typedef Index Line;
static __device__ __forceinline__ Index start(Index batch) {{ return batch * {}; }}
__device__ __forceinline__ Line line(Index line) const {{ return line * {line}; }}
__device__ __forceinline__ float at(Line line, Index depth) const {{ return soybean_value(from[line + {filter} * {} + {place}]); }}",
        filters * channels * window,
        channels * window,
    );
    let line = format!(
        "Index pixel = line % {pixels};
  return {{line / {pixels} * {}, (int)(pixel / {}) + {}, (int)(pixel % {}) + {}}};",
        groups * filters * results,
        image[1],
        padding[0],
        image[1],
        padding[1],
    );
    // Windows begin only at multiples of the strides.
    let at = format!(
        "int top = line.y - {row} * {}, left = line.x - {column} * {};
  int y = top / {}, x = left / {};
  bool is_place = top >= 0 && left >= 0 && top % {} == 0 && left % {} == 0;
  return is_place && {} ? soybean_value(from[line.start + {filter} * {} + {}]) : 0.0f;",
        dilation[0],
        dilation[1],
        stride[0],
        stride[1],
        stride[0],
        stride[1],
        is_inside(result),
        distances.channel,
        distances.offset(result[1]),
    );
    let offset = by_pixel(it.layout, groups * channels, channels, pixels);
    (left, by_place(filters * distances.channel, &line, &at), offset)
}

fn filter(it: &Convolution) -> Texts {
    let Convolution { groups, channels, filters, image, result, stride, padding, dilation, .. } =
        *it;
    let (pixels, results) = (plane(image), plane(result));
    let distances = Distances::new(it.layout, groups * channels, pixels);
    let of_results = Distances::new(it.layout, groups * filters, results);
    let left = format!(
        "typedef Index Line;
static __device__ __forceinline__ Index start(Index batch) {{ return batch * {}; }}
__device__ __forceinline__ Line line(Index line) const {{ return line * {}; }}
__device__ __forceinline__ float at(Line line, Index depth) const {{ return soybean_value(from[line + depth / {results} * {} + depth % {results} * {}]); }}",
        filters * of_results.channel,
        of_results.channel,
        groups * filters * results,
        of_results.pixel,
    );
    let [channel, row, column] = element(it, "line", channels);
    let line = format!(
        "return {{{channel} * {}, {row} * {} - {}, {column} * {} - {}}};",
        distances.channel, dilation[0], padding[0], dilation[1], padding[1],
    );
    let at = format!(
        "Index pixel = depth % {results};
  int y = line.y + (int)(pixel / {}) * {}, x = line.x + (int)(pixel % {}) * {};
  return {} ? soybean_value(from[line.start + depth / {results} * {} + {}]) : 0.0f;",
        result[1],
        stride[0],
        result[1],
        stride[1],
        is_inside(image),
        groups * channels * pixels,
        distances.offset(image[1]),
    );
    let columns = channels * plane(it.window);
    let offset = format!("(batch * {filters} + row) * {columns} + column");
    (left, by_place(channels * distances.channel, &line, &at), offset)
}

/// Returns lines at these distances, for each batch.
fn dense(batch: usize, line: usize, depth: usize) -> String {
    format!(
        "typedef Index Line;
static __device__ __forceinline__ Index start(Index batch) {{ return batch * {batch}; }}
__device__ __forceinline__ Line line(Index line) const {{ return line * {line}; }}
__device__ __forceinline__ float at(Line line, Index depth) const {{ return soybean_value(from[line + depth * {depth}]); }}"
    )
}

/// Returns lines that are positions in planes, from which other positions are counted.
fn by_place(batch: usize, line: &str, at: &str) -> String {
    format!(
        "struct Line {{
  Index start;
  int y, x;
}};
static __device__ __forceinline__ Index start(Index batch) {{ return batch * {batch}; }}
__device__ __forceinline__ Line line(Index line) const {{
  {line}
}}
__device__ __forceinline__ float at(const Line& line, Index depth) const {{
  {at}
}}"
    )
}

fn is_inside([height, width]: [usize; 2]) -> String {
    format!("0 <= y && y < {height} && 0 <= x && x < {width}")
}

/// Returns the offset of the pixel with the number `column`, over all images, in plane `row` of a
/// group.
fn by_pixel(layout: ImageLayout, all_planes: usize, planes: usize, pixels: usize) -> String {
    match layout {
        ImageLayout::ChannelsFirst => format!(
            "column / {pixels} * {} + (batch * {planes} + row) * {pixels} + column % {pixels}",
            all_planes * pixels
        ),
        ImageLayout::ChannelsLast => format!("column * {all_planes} + batch * {planes} + row"),
    }
}
