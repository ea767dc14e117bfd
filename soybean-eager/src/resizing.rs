//! Images `[batch, channels, height, width]` of another size.

use super::{
    PerDim, Tensor,
    arena::Value,
    convolution::{image_shape, pairs},
};

impl Tensor {
    /// Returns images of another size, as PyTorch's `interpolate` with `align_corners=False`: each
    /// pixel is the `"nearest"` one, or the `"bilinear"` mean of the nearest ones.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let image = Tensor::new([1, 1, 1, 2], &[0.0, 4.0]);
    /// assert_eq!(image.interpolate([1, 4], "nearest").to_vec(), [0.0, 0.0, 4.0, 4.0]);
    /// assert_eq!(image.interpolate([1, 4], "bilinear").to_vec(), [0.0, 1.0, 3.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If this is not a tensor of images, or there is no such mode.
    #[must_use]
    pub fn interpolate(self, output_size: impl PerDim<2>, mode: &str) -> Self {
        let value = self.value();
        let [batch, channels, height, width] = image_shape("interpolate", &value.shape);
        let size = output_size.per_dim();
        let sources = match mode {
            "nearest" => nearest,
            "bilinear" => between,
            _ => panic!(
                "`interpolate`: the mode must be \"nearest\" or \"bilinear\", found {mode:?}"
            ),
        };
        let mut data = Vec::with_capacity(batch * channels * size[0] * size[1]);
        for plane in value.data.chunks(height * width) {
            for [row, column] in pairs(size) {
                let columns = sources(column, width, size[1]);
                let of_row = |(row, share): (usize, f64)| {
                    let pixels = columns.iter().map(|(at, share)| plane[row * width + at] * share);
                    share * pixels.sum::<f64>()
                };
                data.push(sources(row, height, size[0]).into_iter().map(of_row).sum());
            }
        }
        Self::from_value(Value { shape: vec![batch, channels, size[0], size[1]], data })
    }

    /// Moves channels into the image, as PyTorch's `pixel_shuffle`: for the factor `r`,
    /// `[n, c r^2, h, w]` gives `[n, c, h r, w r]`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let image = Tensor::new([1, 4, 1, 1], &[1.0, 2.0, 3.0, 4.0]);
    /// let shuffled = image.pixel_shuffle(2);
    /// assert_eq!(shuffled.shape(), [1, 1, 2, 2]);
    /// assert_eq!(shuffled.to_vec(), [1.0, 2.0, 3.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If this is not a tensor of images, or the square of the factor does not divide the channels.
    #[must_use]
    pub fn pixel_shuffle(self, upscale_factor: usize) -> Self {
        let [n, channels, h, w] = image_shape("pixel_shuffle", &self.shape());
        let (r, c) = (upscale_factor, channels / (upscale_factor * upscale_factor));
        assert!(c * r * r == channels, "`pixel_shuffle`: {r}^2 must divide {channels} channels");
        self.reshaped(&[n, c, r, r, h, w]).permute([0, 1, 4, 2, 5, 3]).reshaped(&[
            n,
            c,
            h * r,
            w * r,
        ])
    }

    /// Moves pixels into channels, as PyTorch's `pixel_unshuffle`: the inverse of
    /// [`Self::pixel_shuffle`].
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let image = Tensor::new([1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
    /// assert_eq!(image.pixel_unshuffle(2).shape(), [1, 4, 1, 1]);
    /// assert_eq!(image.pixel_unshuffle(2).pixel_shuffle(2).to_vec(), image.to_vec());
    /// ```
    ///
    /// # Panics
    /// If this is not a tensor of images, or the factor does not divide height and width.
    #[must_use]
    pub fn pixel_unshuffle(self, downscale_factor: usize) -> Self {
        let [n, c, height, width] = image_shape("pixel_unshuffle", &self.shape());
        let (r, h, w) = (downscale_factor, height / downscale_factor, width / downscale_factor);
        assert!(
            h * r == height && w * r == width,
            "`pixel_unshuffle`: {r} must divide {height} rows and {width} columns"
        );
        self.reshaped(&[n, c, h, r, w, r]).permute([0, 1, 3, 5, 2, 4]).reshaped(&[
            n,
            c * r * r,
            h,
            w,
        ])
    }
}

/// Returns the pixel of `n` that is nearest to pixel `at` of `m`, with its share.
fn nearest(at: usize, n: usize, m: usize) -> Vec<(usize, f64)> {
    vec![(at * n / m, 1.0)]
}

/// Returns the pixels of `n` beside pixel `at` of `m`, with their shares.
fn between(at: usize, n: usize, m: usize) -> Vec<(usize, f64)> {
    let last = (n - 1) as f64;
    let place = ((at as f64 + 0.5) * n as f64 / m as f64 - 0.5).clamp(0.0, last);
    (0..n).map(|it| (it, 1.0 - (it as f64 - place).abs())).filter(|it| it.1 > 0.0).collect()
}
