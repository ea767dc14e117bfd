//! Convolution of images `[batch, channels, height, width]`, and the windows of convolution and
//! pooling.

use super::{Tensor, arena::Value, stack};

/// A setting for each spatial dim: one number for all of them, or an array of numbers.
pub trait PerDim<const N: usize> {
    /// Returns the setting of each dim.
    fn per_dim(self) -> [usize; N];
}

impl<const N: usize> PerDim<N> for usize {
    fn per_dim(self) -> [usize; N] {
        [self; N]
    }
}

impl<const N: usize> PerDim<N> for i32 {
    fn per_dim(self) -> [usize; N] {
        [usize::try_from(self).expect("settings of windows are not negative"); N]
    }
}

impl<P: PerDim<1>, const N: usize> PerDim<N> for [P; N] {
    fn per_dim(self) -> [usize; N] {
        self.map(|it| it.per_dim()[0])
    }
}

/// The windows of an image.
pub(super) struct Windows {
    pub(super) image: [usize; 2],
    pub(super) window: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) padding: [usize; 2],
    pub(super) dilation: [usize; 2],
}

impl Windows {
    /// Returns the number of windows along both dims.
    pub(super) fn count(&self, name: &str) -> [usize; 2] {
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

    /// Returns the pixel at an element of a window, or `None` outside the image.
    pub(super) fn pixel(&self, place: [usize; 2], element: [usize; 2]) -> Option<usize> {
        let along = |dim: usize| {
            let padded = place[dim] * self.stride[dim] + element[dim] * self.dilation[dim];
            padded.checked_sub(self.padding[dim]).filter(|&it| it < self.image[dim])
        };
        Some(along(0)? * self.image[1] + along(1)?)
    }
}

/// Returns all pairs of numbers below two bounds in row-major order.
pub(super) fn pairs(bounds: [usize; 2]) -> impl Iterator<Item = [usize; 2]> {
    (0..bounds[0]).flat_map(move |row| (0..bounds[1]).map(move |column| [row, column]))
}

pub(super) fn image_shape(name: &str, shape: &[usize]) -> [usize; 4] {
    shape.try_into().unwrap_or_else(|_| {
        panic!("`{name}`: images are [batch, channels, height, width], found {shape:?}")
    })
}

pub(super) fn volume_shape(name: &str, shape: &[usize]) -> [usize; 5] {
    shape.try_into().unwrap_or_else(|_| {
        panic!("`{name}`: volumes are [batch, channels, depth, height, width], found {shape:?}")
    })
}

impl Tensor {
    /// Computes a two-dimensional convolution (cross-correlation) as PyTorch's `conv2d`. `[n, c, h,
    /// w]` with a weight `[o, c / groups, kh, kw]` gives `[n, o, (h + 2 padding - dilation (kh - 1)
    /// - 1) / stride + 1, ..]`. Stride, padding and dilation are a number or an array of two. There
    /// is no bias: add one of shape `[o, 1, 1]`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let image = Tensor::new([1, 1, 3, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    /// let ones = Tensor::new([1, 1, 2, 2], &[1.0; 4]);
    /// // The sums of 2x2 pixels.
    /// let sums = image.conv2d(ones, 1, 0, 1, 1);
    /// assert_eq!((sums.shape(), sums.to_vec()), (vec![1, 1, 2, 2], vec![12.0, 16.0, 24.0, 28.0]));
    /// // Every second window of the image with a border of zeros.
    /// assert_eq!(image.conv2d(ones, 2, 1, 1, 1).to_vec(), [1.0, 5.0, 11.0, 28.0]);
    /// // Two groups: each filter sees two of the four channels.
    /// let images = Tensor::new([2, 4, 5, 5], &[1.0; 200]);
    /// let weight = Tensor::new([6, 2, 3, 3], &[1.0; 108]);
    /// assert_eq!(images.conv2d(weight, 1, [1, 0], 1, 2).shape(), [2, 6, 5, 3]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, or a window is larger than the padded image.
    #[must_use]
    pub fn conv2d(
        self,
        weight: Self,
        stride: impl PerDim<2>,
        padding: impl PerDim<2>,
        dilation: impl PerDim<2>,
        groups: usize,
    ) -> Self {
        self.convolved(weight, [stride.per_dim(), padding.per_dim(), dilation.per_dim()], groups)
    }

    /// Computes [`Self::conv2d`] outside of the user's crate.
    fn convolved(
        self,
        weight: Self,
        [stride, padding, dilation]: [[usize; 2]; 3],
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
        let windows =
            Windows { image: [height, width], window: [rows, columns], stride, padding, dilation };
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

    /// Computes a one-dimensional convolution as PyTorch's `conv1d`. `[n, c, l]` with a weight `[o,
    /// c / groups, k]` gives `[n, o, (l + 2 padding - dilation (k - 1) - 1) / stride + 1]`. There
    /// is no bias: add one of shape `[o, 1]`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
    /// let weight = Tensor::new([1, 1, 2], &[1.0, 10.0]);
    /// assert_eq!(x.conv1d(weight, 1, 0, 1, 1).to_vec(), [21.0, 32.0, 43.0]);
    /// // Dilation 2: the window has a gap of one element.
    /// assert_eq!(x.conv1d(weight, 1, 0, 2, 1).to_vec(), [31.0, 42.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, or the window is larger than the padded sequence.
    #[must_use]
    pub fn conv1d(
        self,
        weight: Self,
        stride: usize,
        padding: usize,
        dilation: usize,
        groups: usize,
    ) -> Self {
        let shapes = [self.shape(), weight.shape()];
        assert!(
            shapes.iter().all(|it| it.len() == 3),
            "`conv1d`: sequences are [batch, channels, length], found {:?} and {:?}",
            shapes[0],
            shapes[1]
        );
        self.unsqueeze(2)
            .conv2d(weight.unsqueeze(2), [1, stride], [0, padding], [1, dilation], groups)
            .squeeze(2)
    }

    /// Computes a three-dimensional convolution as PyTorch's `conv3d`. Volumes `[n, c, d, h, w]`
    /// with a weight `[o, c / groups, kd, kh, kw]` give `[n, o, (d + 2 padding - dilation (kd - 1)
    /// - 1) / stride + 1, ..]`. Stride, padding and dilation are a number or an array of three.
    /// There is no bias: add one of shape `[o, 1, 1, 1]`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let volume = Tensor::new([1, 1, 3, 1, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// let weight = Tensor::new([1, 1, 2, 1, 1], &[1.0, 10.0]);
    /// // Each voxel plus ten times the one behind it.
    /// let sums = volume.conv3d(weight, 1, 0, 1, 1);
    /// assert_eq!(sums.shape(), [1, 1, 2, 1, 2]);
    /// assert_eq!(sums.to_vec(), [31.0, 42.0, 53.0, 64.0]);
    /// // Every second plane, with a plane of zeros on each side.
    /// let sums = volume.conv3d(weight, [2, 1, 1], [1, 0, 0], 1, 1);
    /// assert_eq!(sums.to_vec(), [10.0, 20.0, 53.0, 64.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, or a window is larger than the padded volume.
    #[must_use]
    pub fn conv3d(
        self,
        weight: Self,
        stride: impl PerDim<3>,
        padding: impl PerDim<3>,
        dilation: impl PerDim<3>,
        groups: usize,
    ) -> Self {
        let [volume, filter] = [self, weight].map(|it| volume_shape("conv3d", &it.shape()));
        let (stride, padding, dilation) = (stride.per_dim(), padding.per_dim(), dilation.per_dim());
        let beyond = i64::try_from(padding[0]).expect("extents are far below 2^63");
        let padded = self.pad([0, 0, 0, 0, beyond, beyond], 0.0);
        let (depth, reach) = (volume[2] + 2 * padding[0], dilation[0] * (filter[2] - 1) + 1);
        assert!(reach <= depth, "`conv3d`: a window of {reach} planes on {depth} padded ones");
        let plane = |of: Self, at: usize| of.slice(2, at, at + 1).squeeze(2);
        let [stride_of, padding_of, dilation_of] =
            [stride, padding, dilation].map(|it| [it[1], it[2]]);
        let convolved = |place: usize| {
            let taps = (0..filter[2]).map(|tap| {
                let images = plane(padded, place * stride[0] + tap * dilation[0]);
                images.conv2d(plane(weight, tap), stride_of, padding_of, dilation_of, groups)
            });
            taps.reduce(|sum, it| sum + it).expect("filters have a plane")
        };
        let planes: Vec<Self> = (0..=(depth - reach) / stride[0]).map(convolved).collect();
        stack(planes, 2)
    }

    /// Computes a transposed convolution as PyTorch's `conv_transpose2d`, the gradient of
    /// [`conv2d`](Self::conv2d) with respect to its images. `[n, c, h, w]` with a weight `[c, o /
    /// groups, kh, kw]` gives `[n, o, (h - 1) stride - 2 padding + dilation (kh - 1) +
    /// output_padding + 1, ..]`. There is no bias: add one of shape `[o, 1, 1]`. Source: Zeiler et
    /// al. 2010.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let image = Tensor::new([1, 1, 1, 2], &[1.0, 2.0]);
    /// let weight = Tensor::new([1, 1, 1, 2], &[1.0, 10.0]);
    /// // Each pixel adds its multiple of the window, two columns further on.
    /// let spread = image.conv_transpose2d(weight, [1, 2], 0, 0, 1, 1);
    /// assert_eq!(spread.shape(), [1, 1, 1, 4]);
    /// assert_eq!(spread.to_vec(), [1.0, 10.0, 2.0, 20.0]);
    /// // A window and a stride of 2 double height and width. The weight's dims begin with inputs.
    /// let images = Tensor::new([2, 4, 3, 3], &[1.0; 72]);
    /// let weight = Tensor::new([4, 5, 2, 2], &[1.0; 80]);
    /// assert_eq!(images.conv_transpose2d(weight, 2, 0, 0, 1, 1).shape(), [2, 5, 6, 6]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, or the result is empty.
    #[must_use]
    pub fn conv_transpose2d(
        self,
        weight: Self,
        stride: impl PerDim<2>,
        padding: impl PerDim<2>,
        output_padding: impl PerDim<2>,
        groups: usize,
        dilation: impl PerDim<2>,
    ) -> Self {
        let (stride, padding) = (stride.per_dim(), padding.per_dim());
        let (beyond, dilation) = (output_padding.per_dim(), dilation.per_dim());
        self.convolved_transposed(weight, [stride, padding, beyond, dilation], groups)
    }

    /// Computes [`Self::conv_transpose2d`] outside of the user's crate.
    fn convolved_transposed(
        self,
        weight: Self,
        [stride, padding, beyond, dilation]: [[usize; 2]; 4],
        groups: usize,
    ) -> Self {
        const NAME: &str = "conv_transpose2d";
        let (images, filters) = (self.value(), weight.value());
        let [batch, channels, height, width] = image_shape(NAME, &images.shape);
        let [n_filters, per_group, rows, columns] = image_shape(NAME, &filters.shape);
        assert!(
            channels == n_filters && channels.is_multiple_of(groups),
            "`{NAME}`: {channels} channels and a weight of shape {:?} in {groups} groups",
            filters.shape
        );
        assert!(
            (0..2).all(|dim| beyond[dim] < stride[dim].max(dilation[dim])),
            "`{NAME}`: output padding {beyond:?} is not less than stride or dilation"
        );
        let image = [0, 1].map(|dim| {
            let reach = dilation[dim] * ([rows, columns][dim] - 1) + 1 + beyond[dim];
            let whole = ([height, width][dim] - 1) * stride[dim] + reach;
            assert!(whole > 2 * padding[dim], "`{NAME}`: nothing is left of the result");
            whole - 2 * padding[dim]
        });
        let windows = Windows { image, window: [rows, columns], stride, padding, dilation };
        let n_pixels = image[0] * image[1];
        let mut data = vec![0.0; batch * groups * per_group * n_pixels];
        for (at, x) in images.data.iter().enumerate() {
            let (plane, place) = (at / (height * width), at % (height * width));
            let (sample, channel) = (plane / channels, plane % channels);
            let first = (sample * groups + channel / (channels / groups)) * per_group;
            for (filter, element) in
                (0..per_group).flat_map(|it| pairs([rows, columns]).map(move |at| (it, at)))
            {
                let Some(pixel) = windows.pixel([place / width, place % width], element) else {
                    continue;
                };
                let weight =
                    ((channel * per_group + filter) * rows + element[0]) * columns + element[1];
                data[(first + filter) * n_pixels + pixel] += x * filters.data[weight];
            }
        }
        let shape = vec![batch, groups * per_group, image[0], image[1]];
        Self::from_value(Value { shape, data })
    }
}
