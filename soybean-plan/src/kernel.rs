//! Kernels: what one rank computes over its own buffers. All shapes are local, all strides in elements.

use std::borrow::Cow;

use crate::{Collective, MAX_RANK, ScalarProgram, Shape, Strides};

macro_rules! kernels {
    ($($(#[$doc:meta])* $kernel:ident($descriptor:ident) = $name:literal,)*) => {
        /// What a rank can do in one step. The buffers that a kernel reads and writes stand in the [`Step`](crate::Step).
        #[derive(Clone, Debug, PartialEq)]
        pub enum Kernel { $($(#[$doc])* $kernel($descriptor),)* }

        impl Kernel {
            /// The name of its kind.
            #[must_use]
            pub const fn kind(&self) -> &'static str {
                match self { $(Self::$kernel(_) => $name,)* }
            }
        }

        $(impl From<$descriptor> for Kernel {
            fn from(descriptor: $descriptor) -> Self {
                Self::$kernel(descriptor)
            }
        })*
    };
}

kernels! {
    /// Reads the left and the right operand.
    Contract(Contraction) = "contraction",
    /// Reads any number of tensors; writes one for each result of its program.
    Map(Map) = "map",
    /// Reads any number of tensors.
    Reduce(Reduction) = "reduction",
    /// Reads one tensor.
    Permute(Permutation) = "permutation",
    /// Reads images and filters; for [`ConvolutionForm::Data`] gradients of results and filters, for [`ConvolutionForm::Filter`] images and
    /// gradients of results.
    Convolve(Convolution) = "convolution",
    /// Reads images, or the gradients of sums; for [`PoolingForm::MaxGradient`] images and gradients.
    Pool(Pooling) = "pooling",
    /// Reads one tensor.
    Pad(Padding) = "padding",
    /// Reads one tensor for each part.
    Concatenate(Concatenation) = "concatenation",
    /// Reads indices, then the table or the gradient of its rows, then the global numbers of the rank's rows.
    Embed(Embedding) = "embedding",
    /// Reads queries, keys and values; for [`AttentionForm::Gradient`] also the gradient of the result.
    Attend(Attention) = "attention",
    /// Reads the tensor in the tiling before; the result is never the same buffer.
    Communicate(Collective) = "communication",
}

/// How several values become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Combine {
    /// Their sum; of none, 0.
    Sum,
    /// Their maximum; of none, negative infinity.
    Max,
}

impl Combine {
    /// The name in the text form.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Max => "max",
        }
    }
}

/// Batched matrix product: `result[b, i, j] = sum over k of left[b, i, k] * right[b, k, j]`, added up in `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contraction {
    /// The extents of the batch dims; empty for a plain product.
    pub batch: Shape,
    /// The extent of `i`.
    pub rows: usize,
    /// The extent of `j`.
    pub columns: usize,
    /// The extent of `k`.
    pub depth: usize,
    /// How the left operand lies: rows are `i`, columns are `k`.
    pub left: MatrixStrides,
    /// How the right operand lies: rows are `k`, columns are `j`.
    pub right: MatrixStrides,
    /// How the result lies: rows are `i`, columns are `j`.
    pub result: MatrixStrides,
}

/// How the matrices of a batch lie in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixStrides {
    /// The strides of the batch dims.
    pub batch: Strides,
    /// The stride from row to row.
    pub row: usize,
    /// The stride from column to column.
    pub column: usize,
}

/// Fused elementwise kernel: the program, applied at every point of an index space.
///
/// Results are dense and row-major over the index space, computed in `f32` and stored as the buffers' types; a result's buffer may be
/// an input's, if that input is dense too.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// The index space.
    pub extents: Shape,
    /// How each input lies over the index space; a stride of 0 broadcasts.
    pub inputs: Cow<'static, [Strides]>,
    /// What is computed at each point; one result for each buffer written.
    pub program: ScalarProgram,
}

/// Fused reduction: a map of one result whose values are combined along some dims of the index space.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduction {
    /// The map; its program has one result.
    pub map: Map,
    /// How values are combined.
    pub combine: Combine,
    /// How the result lies over the index space: 0 along dims that are reduced.
    pub result: Strides,
}

/// Convolution of images with filters, or one of its two gradients, added up in `f32`, dense and row-major.
///
/// Images are `[batch, groups * channels, height, width]`, filters `[groups * filters, channels, height, width]`, results `[batch, groups *
/// filters, height, width]`; `result[n, g o, y, x] = sum over c, i, j of image[n, g c, y * stride + i * dilation - padding, ..] * filter[g o, c, i, j]`,
/// where image elements outside are 0. Convolutions of one spatial dim have height 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// What is computed from what.
    pub form: ConvolutionForm,
    /// The number of images.
    pub batch: usize,
    /// The number of groups, each with its own channels and filters.
    pub groups: usize,
    /// The input channels of each group.
    pub channels: usize,
    /// The filters of each group.
    pub filters: usize,
    /// Height and width of the images.
    pub image: [usize; 2],
    /// Height and width of the filters.
    pub window: [usize; 2],
    /// Height and width of the results.
    pub result: [usize; 2],
    /// The distance between neighbouring results, in pixels.
    pub stride: [usize; 2],
    /// The rows and columns of zeros on each side of an image.
    pub padding: [usize; 2],
    /// The distance between neighbouring filter elements, in pixels.
    pub dilation: [usize; 2],
}

/// What a [`Convolution`] computes from what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConvolutionForm {
    /// Results from images and filters.
    Forward,
    /// Gradients of images from gradients of results and filters.
    Data,
    /// Gradients of filters from images and gradients of results.
    Filter,
}

impl ConvolutionForm {
    /// The name in the text form.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "convolution",
            Self::Data => "convolution-data",
            Self::Filter => "convolution-filter",
        }
    }
}

/// Pooling: each plane of an image is combined window by window, or the gradient of that; dense and row-major.
///
/// Images are `[planes, height, width]`, results `[planes, height, width]`. Pixels outside an image are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooling {
    /// What is computed from what.
    pub form: PoolingForm,
    /// The number of planes: images times channels.
    pub planes: usize,
    /// Height and width of the images.
    pub image: [usize; 2],
    /// Height and width of the windows.
    pub window: [usize; 2],
    /// Height and width of the results.
    pub result: [usize; 2],
    /// The distance between neighbouring windows, in pixels.
    pub stride: [usize; 2],
    /// The rows and columns outside an image that the first windows may reach.
    pub padding: [usize; 2],
}

/// What a [`Pooling`] computes from what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolingForm {
    /// The maxima of images.
    Max,
    /// The gradient of images, from images and the gradient of their maxima; the first of several equal maxima has it all.
    MaxGradient,
    /// The sums of images.
    Sum,
    /// The gradient of images, from the gradient of their sums.
    SumGradient,
}

impl PoolingForm {
    /// The name in the text form.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Max => "max-pool",
            Self::MaxGradient => "max-pool-gradient",
            Self::Sum => "sum-pool",
            Self::SumGradient => "sum-pool-gradient",
        }
    }
}

/// A copy into a dense row-major result: `result[i, j, ..] = input[i * s_0 + j * s_1 + ..]`; elements of any type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permutation {
    /// The extents of the result.
    pub extents: Shape,
    /// How the input lies over the result's dims.
    pub input: Strides,
}

/// A copy of a window of a tensor, which may reach beyond it: `result[i, j, ..] = input[i - low_0, j - low_1, ..]`, or the filling where the
/// input has no such element; elements of any type, dense and row-major.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Padding {
    /// The extents of the input.
    pub input: Shape,
    /// The extents of the result.
    pub result: Shape,
    /// How many elements stand before the input's first along each dim; negative where the window begins inside.
    pub low: [i32; MAX_RANK],
    /// What stands where the input has no element; rounded to the type of the elements.
    pub fill: f64,
}

/// Tensors one after another along a dim; elements of any type, dense and row-major.
///
/// The dims from that one on are taken together: part `p` is `[outer, lengths[p]]`, the result `[outer, sum of lengths]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concatenation {
    /// The product of the extents before the dim.
    pub outer: usize,
    /// For each part the product of its extents from the dim on.
    pub lengths: Cow<'static, [usize]>,
}

/// Rows of a table by their numbers, or the gradient of the table.
///
/// A rank may hold some of the rows only: the third input, `[rows]` as `f32`, has the global number of each. Indices are `[n_indices]` as `i32`; those of
/// rows that are elsewhere give zeros and add nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedding {
    /// What is computed from what.
    pub form: EmbeddingForm,
    /// The number of indices.
    pub n_indices: usize,
    /// The rows of the table that the rank holds.
    pub rows: usize,
    /// The rows of the whole table.
    pub vocabulary: usize,
    /// The elements of a row.
    pub width: usize,
}

/// What an [`Embedding`] computes from what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EmbeddingForm {
    /// `[n_indices, width]` from the table `[rows, width]`.
    Gather,
    /// The gradient of the table, `[rows, width]`, from that of the gathered rows `[n_indices, width]`: sums in the order of the indices.
    ScatterAdd,
}

impl EmbeddingForm {
    /// The name in the text form.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gather => "gather",
            Self::ScatterAdd => "scatter-add",
        }
    }
}

/// Scaled dot-product attention of each head, computed in `f32`, dense and row-major: `softmax(scale * query key^T) value` for queries `[heads, queries,
/// features]`, keys `[heads, keys, features]` and values `[heads, keys, width]`. The matrix of scores is never in memory as a whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// What is computed from what.
    pub form: AttentionForm,
    /// The number of heads: batch times heads.
    pub heads: usize,
    /// The number of queries.
    pub queries: usize,
    /// The number of keys.
    pub keys: usize,
    /// The elements of a query and of a key.
    pub features: usize,
    /// The elements of a value.
    pub width: usize,
    /// Whether query `i` sees keys `0..=i` only.
    pub is_causal: bool,
    /// The factor of the scores.
    pub scale: f64,
}

/// What an [`Attention`] computes from what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttentionForm {
    /// `[heads, queries, width]` from queries, keys and values.
    Forward,
    /// The gradients of all three, from them and the gradient of the result; for each head the queries' `[queries, features]`, then the keys' `[keys,
    /// features]`, then the values' `[keys, width]`, one after another.
    Gradient,
}

impl AttentionForm {
    /// The name in the text form.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "attention",
            Self::Gradient => "attention-gradient",
        }
    }
}
