//! Convolution and pooling of images `[batch, channels, height, width]`.

use super::{Tensor, arena::Value};

/// A setting for height and width: one number for both, or two.
pub trait Pair {
    /// Height and width.
    fn pair(self) -> [usize; 2];
}

impl Pair for usize {
    fn pair(self) -> [usize; 2] {
        [self; 2]
    }
}

impl Pair for i32 {
    fn pair(self) -> [usize; 2] {
        [usize::try_from(self).expect("settings of windows are not negative"); 2]
    }
}

impl<P: Pair + Copy> Pair for [P; 2] {
    fn pair(self) -> [usize; 2] {
        [self[0].pair()[0], self[1].pair()[0]]
    }
}

/// How windows lie on an image.
struct Windows {
    image: [usize; 2],
    window: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
}

impl Windows {
    /// The number of windows along both dims.
    fn count(&self, name: &str) -> [usize; 2] {
        [0, 1].map(|dim| {
            let reach = self.dilation[dim] * (self.window[dim] - 1) + 1;
            let padded = self.image[dim] + 2 * self.padding[dim];
            assert!(
                reach <= padded,
                "`{name}`: a window of {reach} pixels on a padded image of {padded}"
            );
            (padded - reach) / self.stride[dim] + 1
        })
    }

    /// The pixel under an element of a window; none outside the image.
    fn pixel(&self, place: [usize; 2], element: [usize; 2]) -> Option<usize> {
        let along = |dim: usize| {
            let padded = place[dim] * self.stride[dim] + element[dim] * self.dilation[dim];
            padded.checked_sub(self.padding[dim]).filter(|&it| it < self.image[dim])
        };
        Some(along(0)? * self.image[1] + along(1)?)
    }
}

/// All pairs of numbers below two bounds, row by row.
fn pairs(bounds: [usize; 2]) -> impl Iterator<Item = [usize; 2]> {
    (0..bounds[0]).flat_map(move |row| (0..bounds[1]).map(move |column| [row, column]))
}

fn image_shape(name: &str, shape: &[usize]) -> [usize; 4] {
    shape.try_into().unwrap_or_else(|_| {
        panic!("`{name}`: images are [batch, channels, height, width], found {shape:?}")
    })
}

impl Tensor {
    /// Two-dimensional convolution (cross-correlation) as `PyTorch`'s `conv2d`: `[n, c, h, w]` with a weight `[o, c / groups, kh, kw]` gives
    /// `[n, o, (h + 2 padding - dilation (kh - 1) - 1) / stride + 1, ..]`. Stride, padding and dilation are a number or an array of two; there is no bias:
    /// add one of shape `[o, 1, 1]`.
    ///
    /// # Panics
    /// If the shapes do not fit, or a window is larger than the padded image.
    #[must_use]
    pub fn conv2d(
        self,
        weight: Self,
        stride: impl Pair,
        padding: impl Pair,
        dilation: impl Pair,
        groups: usize,
    ) -> Self {
        let (images, filters) = (self.value(), weight.value());
        let [batch, channels, height, width] = image_shape("conv2d", &images.shape);
        let [n_filters, per_group, rows, columns] = image_shape("conv2d", &filters.shape);
        assert!(
            channels == per_group * groups && n_filters.is_multiple_of(groups),
            "`conv2d`: {channels} channels and a weight of shape {:?} in {groups} groups",
            filters.shape
        );
        let windows = Windows {
            image: [height, width],
            window: [rows, columns],
            stride: stride.pair(),
            padding: padding.pair(),
            dilation: dilation.pair(),
        };
        let count = windows.count("conv2d");
        let mut data = Vec::with_capacity(batch * n_filters * count[0] * count[1]);
        for plane in 0..batch * n_filters {
            let (image, filter) = (plane / n_filters, plane % n_filters);
            let first = image * channels + filter / (n_filters / groups) * per_group;
            for place in pairs(count) {
                let mut sum = 0.0;
                for channel in 0..per_group {
                    for element in pairs([rows, columns]) {
                        let Some(pixel) = windows.pixel(place, element) else { continue };
                        let weight = ((filter * per_group + channel) * rows + element[0]) * columns
                            + element[1];
                        sum += images.data[(first + channel) * height * width + pixel]
                            * filters.data[weight];
                    }
                }
                data.push(sum);
            }
        }
        Self::from_value(Value { shape: vec![batch, n_filters, count[0], count[1]], data })
    }

    /// The maximum of each window, as `PyTorch`'s `max_pool2d`; pixels outside the image are left out.
    ///
    /// # Panics
    /// If this is no tensor of images, or a window is larger than the padded image.
    #[must_use]
    pub fn max_pool2d(self, kernel_size: impl Pair, stride: impl Pair, padding: impl Pair) -> Self {
        let sizes = [kernel_size.pair(), stride.pair(), padding.pair()];
        self.pooled("max_pool2d", sizes, |pixels| pixels.fold(f64::NEG_INFINITY, f64::max))
    }

    /// The mean of each window, as `PyTorch`'s `avg_pool2d` with its defaults: pixels outside the image count as zeros.
    ///
    /// # Panics
    /// If this is no tensor of images, or a window is larger than the padded image.
    #[must_use]
    pub fn avg_pool2d(self, kernel_size: impl Pair, stride: impl Pair, padding: impl Pair) -> Self {
        let window = kernel_size.pair();
        let sizes = [window, stride.pair(), padding.pair()];
        let n_pixels = (window[0] * window[1]) as f64;
        self.pooled("avg_pool2d", sizes, |pixels| pixels.sum::<f64>() / n_pixels)
    }

    /// The mean of each channel of each image: `[n, c, h, w]` gives `[n, c]`.
    ///
    /// # Panics
    /// If this is no tensor of images.
    #[must_use]
    pub fn global_avg_pool2d(self) -> Self {
        let _ = image_shape("global_avg_pool2d", &self.shape());
        self.mean([2, 3])
    }

    fn pooled(
        self,
        name: &str,
        [window, stride, padding]: [[usize; 2]; 3],
        combine: impl Fn(&mut dyn Iterator<Item = f64>) -> f64,
    ) -> Self {
        let value = self.value();
        let [batch, channels, height, width] = image_shape(name, &value.shape);
        let windows = Windows { image: [height, width], window, stride, padding, dilation: [1; 2] };
        let count = windows.count(name);
        let mut data = Vec::with_capacity(batch * channels * count[0] * count[1]);
        for plane in value.data.chunks(height * width) {
            for place in pairs(count) {
                let mut pixels =
                    pairs(window).filter_map(|it| windows.pixel(place, it)).map(|it| plane[it]);
                data.push(combine(&mut pixels));
            }
        }
        Self::from_value(Value { shape: vec![batch, channels, count[0], count[1]], data })
    }
}
