//! Pooling of images `[batch, channels, height, width]`.

use super::{
    PerDim, Tensor,
    arena::Value,
    convolution::{Windows, image_shape, pairs, volume_shape},
    reduction::larger,
};

impl Tensor {
    /// Returns the maximum of each window, as PyTorch's `max_pool2d`; pixels outside the image are
    /// ignored, and a NaN is larger than all numbers.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let image = Tensor::new([1, 1, 2, 4], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    /// let pooled = image.max_pool2d(2, 2, 0);
    /// assert_eq!((pooled.shape(), pooled.to_vec()), (vec![1, 1, 1, 2], vec![6.0, 8.0]));
    /// // With stride 1, the windows overlap.
    /// assert_eq!(image.max_pool2d(2, 1, 0).to_vec(), [6.0, 7.0, 8.0]);
    /// ```
    ///
    /// # Panics
    /// If this is not a tensor of images, or a window is larger than the padded image.
    #[must_use]
    pub fn max_pool2d(
        self,
        kernel_size: impl PerDim<2>,
        stride: impl PerDim<2>,
        padding: impl PerDim<2>,
    ) -> Self {
        let sizes = [kernel_size.per_dim(), stride.per_dim(), padding.per_dim()];
        self.pooled("max_pool2d", sizes, &|pixels| pixels.fold(f64::NEG_INFINITY, larger))
    }

    /// Returns the mean of each window, as PyTorch's `avg_pool2d` with its defaults: pixels outside
    /// the image count as zeros.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let image = Tensor::new([1, 1, 2, 4], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    /// let pooled = image.avg_pool2d(2, 2, 0);
    /// assert_eq!((pooled.shape(), pooled.to_vec()), (vec![1, 1, 1, 2], vec![3.5, 5.5]));
    /// // With padding 1, each window has one pixel of this image and three zeros.
    /// let square = Tensor::new([1, 1, 2, 2], &[4.0, 8.0, 12.0, 16.0]);
    /// assert_eq!(square.avg_pool2d(2, 2, 1).to_vec(), [1.0, 2.0, 3.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If this is not a tensor of images, or a window is larger than the padded image.
    #[must_use]
    pub fn avg_pool2d(
        self,
        kernel_size: impl PerDim<2>,
        stride: impl PerDim<2>,
        padding: impl PerDim<2>,
    ) -> Self {
        let window = kernel_size.per_dim();
        let sizes = [window, stride.per_dim(), padding.per_dim()];
        let n_pixels = (window[0] * window[1]) as f64;
        self.pooled("avg_pool2d", sizes, &|pixels| pixels.sum::<f64>() / n_pixels)
    }

    /// Returns the maximum of each window of sequences `[n, c, l]`, as PyTorch's `max_pool1d`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([1, 1, 4], &[1.0, 5.0, 3.0, 4.0]);
    /// assert_eq!(x.max_pool1d(2, 2, 0).to_vec(), [5.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If this is not a tensor of sequences, or a window is longer than the padded sequence.
    #[must_use]
    pub fn max_pool1d(self, kernel_size: usize, stride: usize, padding: usize) -> Self {
        self.in_one_row("max_pool1d")
            .max_pool2d([1, kernel_size], [1, stride], [0, padding])
            .squeeze(2)
    }

    /// Returns the mean of each window of sequences `[n, c, l]`, as PyTorch's `avg_pool1d` with its
    /// defaults: elements outside the sequence count as zeros.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([1, 1, 4], &[1.0, 5.0, 3.0, 4.0]);
    /// assert_eq!(x.avg_pool1d(2, 2, 0).to_vec(), [3.0, 3.5]);
    /// ```
    ///
    /// # Panics
    /// If this is not a tensor of sequences, or a window is longer than the padded sequence.
    #[must_use]
    pub fn avg_pool1d(self, kernel_size: usize, stride: usize, padding: usize) -> Self {
        self.in_one_row("avg_pool1d")
            .avg_pool2d([1, kernel_size], [1, stride], [0, padding])
            .squeeze(2)
    }

    /// Returns the maximum of each window of volumes `[n, c, d, h, w]`, as PyTorch's `max_pool3d`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([1, 1, 2, 2, 2], &[1.0, 2.0, 3.0, 4.0, 8.0, 7.0, 6.0, 5.0]);
    /// assert_eq!(x.max_pool3d(2, 2, 0).to_vec(), [8.0]);
    /// assert_eq!(x.max_pool3d([1, 2, 2], 1, 0).to_vec(), [4.0, 8.0]);
    /// ```
    ///
    /// # Panics
    /// If this is not a tensor of volumes, or a window is larger than the padded volume.
    #[must_use]
    pub fn max_pool3d(
        self,
        kernel_size: impl PerDim<3>,
        stride: impl PerDim<3>,
        padding: impl PerDim<3>,
    ) -> Self {
        let sizes = [kernel_size.per_dim(), stride.per_dim(), padding.per_dim()];
        self.pooled_volumes("max_pool3d", sizes, |x, [window, stride, padding]| {
            x.max_pool2d(window, stride, padding)
        })
    }

    /// Returns the mean of each window of volumes `[n, c, d, h, w]`, as PyTorch's `avg_pool3d` with
    /// its defaults: elements outside the volume count as zeros.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([1, 1, 2, 2, 2], &[1.0, 2.0, 3.0, 4.0, 8.0, 7.0, 6.0, 5.0]);
    /// assert_eq!(x.avg_pool3d(2, 2, 0).to_vec(), [4.5]);
    /// assert_eq!(x.avg_pool3d([1, 2, 2], 1, 0).to_vec(), [2.5, 6.5]);
    /// ```
    ///
    /// # Panics
    /// If this is not a tensor of volumes, or a window is larger than the padded volume.
    #[must_use]
    pub fn avg_pool3d(
        self,
        kernel_size: impl PerDim<3>,
        stride: impl PerDim<3>,
        padding: impl PerDim<3>,
    ) -> Self {
        let sizes = [kernel_size.per_dim(), stride.per_dim(), padding.per_dim()];
        self.pooled_volumes("avg_pool3d", sizes, |x, [window, stride, padding]| {
            x.avg_pool2d(window, stride, padding)
        })
    }

    /// Pools each plane as an image, then each column of the planes.
    fn pooled_volumes(
        self,
        name: &str,
        sizes: [[usize; 3]; 3],
        pool: impl Fn(Self, [[usize; 2]; 3]) -> Self,
    ) -> Self {
        let [n, channels, depth, height, width] = volume_shape(name, &self.shape());
        let [window, stride, padding] = sizes;
        let planes = pool(
            self.reshape([n, channels * depth, height, width]),
            sizes.map(|it| [it[1], it[2]]),
        );
        let [.., height, width] = image_shape(name, &planes.shape());
        let columns = pool(
            planes.reshape([n, channels, depth, height * width]),
            [[window[0], 1], [stride[0], 1], [padding[0], 0]],
        );
        let depth = columns.shape()[2];
        columns.reshape([n, channels, depth, height, width])
    }

    fn in_one_row(self, name: &str) -> Self {
        let shape = self.shape();
        assert!(
            shape.len() == 3,
            "`{name}`: sequences are [batch, channels, length], found {shape:?}"
        );
        self.unsqueeze(2)
    }

    /// Returns the means of windows that divide an image into `output_size` rows and columns, as
    /// PyTorch's `adaptive_avg_pool2d`. Of `m` windows along `n` pixels, window `o` is `floor(o n /
    /// m)..ceil((o + 1) n / m)`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let image = Tensor::new([1, 1, 1, 3], &[1.0, 2.0, 4.0]);
    /// // Two windows along three pixels: `0..2` and `1..3`.
    /// assert_eq!(image.adaptive_avg_pool2d([1, 2]).to_vec(), [1.5, 3.0]);
    /// let images = Tensor::new([2, 2, 4, 6], &[0.0; 96]);
    /// assert_eq!(images.adaptive_avg_pool2d(2).shape(), [2, 2, 2, 2]);
    /// ```
    ///
    /// # Panics
    /// If this is not a tensor of images.
    #[must_use]
    pub fn adaptive_avg_pool2d(self, output_size: impl PerDim<2>) -> Self {
        let value = self.value();
        let [batch, channels, height, width] = image_shape("adaptive_avg_pool2d", &value.shape);
        let size = output_size.per_dim();
        let window = |at: usize, n: usize, m: usize| at * n / m..((at + 1) * n).div_ceil(m);
        let mut data = Vec::with_capacity(batch * channels * size[0] * size[1]);
        for plane in value.data.chunks(height * width) {
            for [row, column] in pairs(size) {
                let (rows, columns) =
                    (window(row, height, size[0]), window(column, width, size[1]));
                let n_pixels = (rows.len() * columns.len()) as f64;
                let sum: f64 = rows.flat_map(|row| &plane[row * width..][columns.clone()]).sum();
                data.push(sum / n_pixels);
            }
        }
        Self::from_value(Value { shape: vec![batch, channels, size[0], size[1]], data })
    }

    /// Returns the mean of each channel of each image: `[n, c, h, w]` gives `[n, c]`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let image = Tensor::new([1, 2, 1, 2], &[1.0, 3.0, 10.0, 20.0]);
    /// let means = image.global_avg_pool2d();
    /// assert_eq!((means.shape(), means.to_vec()), (vec![1, 2], vec![2.0, 15.0]));
    /// ```
    ///
    /// # Panics
    /// If this is not a tensor of images.
    #[must_use]
    pub fn global_avg_pool2d(self) -> Self {
        let _ = image_shape("global_avg_pool2d", &self.shape());
        self.mean([2, 3])
    }

    fn pooled(
        self,
        name: &str,
        [window, stride, padding]: [[usize; 2]; 3],
        combine: &dyn Fn(&mut dyn Iterator<Item = f64>) -> f64,
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
