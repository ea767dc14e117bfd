//! Convolutions and their gradients.

use std::fmt;

use super::KernelDescriptor;
use crate::{KernelCategory, Shape, WorkKind, descriptor::descriptor};

descriptor! {
    /// Convolution of images with filters, or one of its two gradients.
    ///
    /// Images are `[batch, groups * channels, height, width]`, filters
    /// `[groups * filters, channels, height, width]`, and results
    /// `[batch, groups * filters, height, width]`, all dense. They are row-major in this order of
    /// dims or in that of [`ImageLayout::ChannelsLast`]:
    ///
    /// ```text
    /// result[n, g o, y, x] = sum over c, i, j of
    ///     image[n, g c, y * stride + i * dilation - padding, ..] * filter[g o, c, i, j]
    /// ```
    ///
    /// Image elements outside are 0. Products are added up in `f32`. Convolutions of one spatial
    /// dim have height 1.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Convolution {
        /// The computation, and with it the operands.
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
        /// The distance between neighboring results, in pixels.
        pub stride: [usize; 2],
        /// The rows and columns of zeros on each side of an image.
        pub padding: [usize; 2],
        /// The distance between neighboring filter elements, in pixels.
        pub dilation: [usize; 2],
        /// The order of the dims of images, filters and results.
        pub layout: ImageLayout,
    }
}

descriptor! {
    /// The computation of a [`Convolution`].
    pub enum ConvolutionForm {
        /// Results from images and filters.
        Forward = "convolution",
        /// Gradients of images from gradients of results and filters.
        Data = "convolution-data",
        /// Gradients of filters from images and gradients of results.
        Filter = "convolution-filter",
    }
}

descriptor! {
    /// The order in which tensors of images store their dims.
    pub enum ImageLayout {
        /// Batch or filters, channels, height, width (NCHW).
        ChannelsFirst = "channels-first",
        /// Batch or filters, height, width, channels (NHWC), as tensor cores read them.
        ChannelsLast = "channels-last",
    }
}

impl ImageLayout {
    /// Returns the dims of a tensor, numbered with the channels as dim 1, in the order of this
    /// layout. Tensors of fewer than three dims have one order.
    #[must_use]
    pub fn order(self, n_dims: usize) -> Vec<usize> {
        match self {
            Self::ChannelsFirst => (0..n_dims).collect(),
            Self::ChannelsLast => {
                (0..n_dims.min(1)).chain(2..n_dims).chain(1..n_dims.min(2)).collect()
            }
        }
    }

    /// Returns extents or indices of four dims, given channels first, in the order of this layout.
    #[must_use]
    pub const fn from_channels_first(self, [n, c, h, w]: [usize; 4]) -> [usize; 4] {
        match self {
            Self::ChannelsFirst => [n, c, h, w],
            Self::ChannelsLast => [n, h, w, c],
        }
    }

    /// Returns extents or indices of four dims, given in the order of this layout, channels first.
    #[must_use]
    pub const fn to_channels_first(self, [n, second, third, fourth]: [usize; 4]) -> [usize; 4] {
        match self {
            Self::ChannelsFirst => [n, second, third, fourth],
            Self::ChannelsLast => [n, fourth, second, third],
        }
    }
}

impl Convolution {
    fn shape(&self, extents: [usize; 4]) -> Shape {
        Shape::new(&self.layout.from_channels_first(extents))
    }

    fn image_shape(&self) -> Shape {
        let [height, width] = self.image;
        self.shape([self.batch, self.groups * self.channels, height, width])
    }

    fn filter_shape(&self) -> Shape {
        let [height, width] = self.window;
        self.shape([self.groups * self.filters, self.channels, height, width])
    }

    fn result_shape(&self) -> Shape {
        let [height, width] = self.result;
        self.shape([self.batch, self.groups * self.filters, height, width])
    }

    /// Returns the row or column of a pixel of the window at a result, if it is in the image.
    fn pixel(&self, dim: usize, result: usize, of_window: usize) -> Option<usize> {
        let padded = result * self.stride[dim] + of_window * self.dilation[dim];
        padded.checked_sub(self.padding[dim]).filter(|it| *it < self.image[dim])
    }

    /// Returns the offsets in image, filter and result of each product.
    fn products(&self) -> Vec<[usize; 3]> {
        let (image, filter, result) = (
            self.image_shape().dense_strides(),
            self.filter_shape().dense_strides(),
            self.result_shape().dense_strides(),
        );
        let [batch, groups, filters, channels] =
            [self.batch, self.groups, self.filters, self.channels];
        let ([height, width], [rows, columns]) = (self.result, self.window);
        let loops = Shape::new(&[batch, groups, filters, channels, height, width, rows, columns]);
        let offsets = |point: Vec<usize>| {
            let &[n, g, o, c, y, x, i, j] = point.first_chunk()?;
            let (row, column) = (self.pixel(0, y, i)?, self.pixel(1, x, j)?);
            let at = |index: [usize; 4]| self.layout.from_channels_first(index);
            Some([
                image.offset(&at([n, g * channels + c, row, column])),
                filter.offset(&at([g * filters + o, c, i, j])),
                result.offset(&at([n, g * filters + o, y, x])),
            ])
        };
        loops.points().into_iter().filter_map(offsets).collect()
    }
}

impl KernelDescriptor for Convolution {
    fn name(&self) -> &'static str {
        "convolution"
    }

    fn form(&self) -> &'static str {
        self.form.name()
    }

    fn category(&self) -> KernelCategory {
        KernelCategory::Convolution
    }

    fn work_kind(&self) -> WorkKind {
        WorkKind::Product
    }

    // All three forms compute the same products of a pixel and a filter element.
    fn n_operations(&self) -> u64 {
        let channels = (self.channels * self.window[0] * self.window[1]) as u64;
        (self.result_shape().n_elements() as u64).saturating_mul(2 * channels)
    }

    fn evaluate(&self, inputs: &[&[f64]], _scalars: &[f64]) -> Vec<Vec<f64>> {
        let shape = match self.form {
            ConvolutionForm::Forward => self.result_shape(),
            ConvolutionForm::Data => self.image_shape(),
            ConvolutionForm::Filter => self.filter_shape(),
        };
        let mut results = vec![0.0; shape.n_elements()];
        for [image, filter, result] in self.products() {
            let (to, left, right) = match self.form {
                ConvolutionForm::Forward => (result, image, filter),
                ConvolutionForm::Data => (image, result, filter),
                ConvolutionForm::Filter => (filter, image, result),
            };
            results[to] += inputs[0][left] * inputs[1][right];
        }
        vec![results]
    }
}

impl fmt::Display for Convolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([height, width], [rows, columns]) = (self.image, self.window);
        let images = format!("{}x{}x{height}x{width}", self.batch, self.groups * self.channels);
        let filters = format!("{}x{}x{rows}x{columns}", self.groups * self.filters, self.channels);
        write!(f, "{} {images} by {filters}", self.form.name())?;
        match self.layout {
            ImageLayout::ChannelsFirst => Ok(()),
            ImageLayout::ChannelsLast => write!(f, " {}", self.layout.name()),
        }
    }
}
