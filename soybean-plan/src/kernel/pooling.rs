//! Pooling and its gradients.

use std::fmt;

use super::KernelDescriptor;
use crate::{Binary, KernelCategory, Shape, WorkKind, descriptor::descriptor};

descriptor! {
    /// Pooling of each plane of an image window by window, or its gradient; dense and row-major.
    ///
    /// Reads images, or the gradients of sums; for [`PoolingForm::MaxGradient`] images and
    /// gradients. Images and results are `[planes, height, width, channels]`. Pixels outside an
    /// image are left out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Pooling {
        /// The computation, and with it the operands.
        pub form: PoolingForm,
        /// The number of planes: images, or images times channels if channels come first.
        pub planes: usize,
        /// The number of channels of a pixel; 1 if channels come first.
        pub channels: usize,
        /// Height and width of the images.
        pub image: [usize; 2],
        /// Height and width of the windows.
        pub window: [usize; 2],
        /// Height and width of the results.
        pub result: [usize; 2],
        /// The distance between neighboring windows, in pixels.
        pub stride: [usize; 2],
        /// The rows and columns outside an image that the first windows may reach.
        pub padding: [usize; 2],
    }
}

descriptor! {
    /// The computation of a [`Pooling`].
    pub enum PoolingForm {
        /// The maxima of images.
        Max = "max-pool",
        /// The gradient of images, from images and the gradient of their maxima. The first of
        /// several equal maxima takes all of it.
        MaxGradient = "max-pool-gradient",
        /// The sums of images.
        Sum = "sum-pool",
        /// The gradient of images, from the gradient of their sums.
        SumGradient = "sum-pool-gradient",
    }
}

impl Pooling {
    /// Returns the offset of each pixel of the image in the window of a result, in one channel.
    fn pixels(&self, plane: usize, result: [usize; 2], channel: usize) -> Vec<usize> {
        let pixel = |dim: usize, of_window: usize| {
            (result[dim] * self.stride[dim] + of_window)
                .checked_sub(self.padding[dim])
                .filter(|it| *it < self.image[dim])
        };
        let [height, width] = self.image;
        let offset = |at: &Vec<usize>| {
            let pixel = (plane * height + pixel(0, at[0])?) * width + pixel(1, at[1])?;
            Some(pixel * self.channels + channel)
        };
        Shape::new(&self.window).points().iter().filter_map(offset).collect()
    }
}

impl KernelDescriptor for Pooling {
    fn name(&self) -> &'static str {
        "pooling"
    }

    fn form(&self) -> &'static str {
        self.form.name()
    }

    fn category(&self) -> KernelCategory {
        KernelCategory::Pooling
    }

    fn work_kind(&self) -> WorkKind {
        WorkKind::Other
    }

    fn n_operations(&self) -> u64 {
        let n_results = (self.planes * self.channels * self.result[0] * self.result[1]) as u64;
        n_results.saturating_mul((self.window[0] * self.window[1]) as u64)
    }

    fn evaluate(&self, inputs: &[&[f64]], _scalars: &[f64]) -> Vec<Vec<f64>> {
        let [height, width] = match self.form {
            PoolingForm::Max | PoolingForm::Sum => self.result,
            PoolingForm::MaxGradient | PoolingForm::SumGradient => self.image,
        };
        let mut results = vec![0.0; self.planes * height * width * self.channels];
        let windows = Shape::new(&[self.planes, self.result[0], self.result[1], self.channels]);
        for (output, point) in windows.points().iter().enumerate() {
            let pixels = self.pixels(point[0], [point[1], point[2]], point[3]);
            let values = pixels.iter().map(|it| inputs[0][*it]);
            match self.form {
                PoolingForm::Max => results[output] = largest(values),
                PoolingForm::Sum => results[output] = values.sum(),
                PoolingForm::SumGradient => {
                    pixels.iter().for_each(|it| results[*it] += inputs[0][output]);
                }
                PoolingForm::MaxGradient => {
                    let max = largest(values);
                    let is_largest = |it: f64| it >= max || it.is_nan() && max.is_nan();
                    if let Some(&first) = pixels.iter().find(|it| is_largest(inputs[0][**it])) {
                        results[first] += inputs[1][output];
                    }
                }
            }
        }
        vec![results]
    }
}

/// Returns the largest number, or NaN if one is NaN.
fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::NEG_INFINITY, |x, y| Binary::Maximum.evaluate(x, y))
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([height, width], [rows, columns]) = (self.image, self.window);
        write!(f, "{} {}x{height}x{width}", self.form.name(), self.planes)?;
        if self.channels > 1 {
            write!(f, "x{}", self.channels)?;
        }
        write!(f, " by {rows}x{columns}")
    }
}
