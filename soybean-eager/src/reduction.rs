//! Reductions over dims, and the softmax family, which consists of them.

use super::{
    Dim, Dims, Tensor,
    arena::Value,
    strides::{dense_strides, offsets},
};

impl Tensor {
    /// Sums over the dims, and drops them.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// assert_eq!(x.sum(0).to_vec(), [5.0, 7.0, 9.0]);
    /// assert_eq!(x.sum(-1).to_vec(), [6.0, 15.0]);
    /// assert_eq!(x.sum(..).item(), 21.0);
    /// assert_eq!(Tensor::new([2, 3, 4], &[1.0; 24]).sum([0, 2]).to_vec(), [8.0; 3]);
    /// ```
    ///
    /// # Panics
    /// If a dim does not exist or is named twice.
    #[must_use]
    pub fn sum(self, dims: impl Dims) -> Self {
        let mask = dims.mask("sum", self.value().shape.len());
        self.summed(&mask).without(&mask).wrapped()
    }

    /// Averages over the dims, and drops them.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// assert_eq!(x.mean(1).to_vec(), [2.0, 5.0]);
    /// assert_eq!(x.mean(..).item(), 3.5);
    /// // There is no `keepdim`: `unsqueeze` inserts the dim again.
    /// assert_eq!((x - x.mean(1).unsqueeze(1)).to_vec(), [-1.0, 0.0, 1.0, -1.0, 0.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If a dim does not exist or is named twice.
    #[must_use]
    pub fn mean(self, dims: impl Dims) -> Self {
        let shape = self.shape();
        let mask = dims.mask("mean", shape.len());
        let n_reduced: usize =
            shape.iter().zip(&mask).filter(|it| *it.1).map(|(extent, _)| extent).product();
        self.summed(&mask).without(&mask) / n_reduced as f64
    }

    /// Returns the largest element over the dims, and drops them.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 3], &[1.0, 5.0, 3.0, 4.0, 2.0, 6.0]);
    /// assert_eq!(x.max(0).to_vec(), [4.0, 5.0, 6.0]);
    /// assert_eq!(x.max(1).to_vec(), [5.0, 6.0]);
    /// assert_eq!(x.max(..).item(), 6.0);
    /// ```
    ///
    /// # Panics
    /// If a dim does not exist or is named twice.
    #[must_use]
    pub fn max(self, dims: impl Dims) -> Self {
        let mask = dims.mask("max", self.value().shape.len());
        self.largest(&mask).without(&mask)
    }

    /// Returns the smallest element over the dims, and drops them.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 3], &[1.0, 5.0, 3.0, 4.0, 2.0, 6.0]);
    /// assert_eq!(x.min(0).to_vec(), [1.0, 2.0, 3.0]);
    /// assert_eq!(x.min(1).to_vec(), [1.0, 2.0]);
    /// assert_eq!(x.min(..).item(), 1.0);
    /// ```
    ///
    /// # Panics
    /// If a dim does not exist or is named twice.
    #[must_use]
    pub fn min(self, dims: impl Dims) -> Self {
        let mask = dims.mask("min", self.value().shape.len());
        let smaller = |left: f64, right: f64| -larger(-left, -right);
        self.reduced(&mask, f64::INFINITY, smaller).without(&mask)
    }

    /// Computes the variance over the dims, and drops them: the sum of `(x - mean)^2` divided by
    /// the number of elements less `correction`, which is 0 or 1.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 2], &[1.0, 3.0, 10.0, 20.0]);
    /// assert_eq!(x.var(1, 0).to_vec(), [1.0, 25.0]);
    /// // Correction 1, the default in PyTorch.
    /// assert_eq!(x.var(1, 1).to_vec(), [2.0, 50.0]);
    /// ```
    ///
    /// # Panics
    /// If a dim does not exist or is named twice, or the correction is not 0 or 1, or is not less
    /// than the number of elements.
    #[must_use]
    pub fn var(self, dims: impl Dims, correction: usize) -> Self {
        let shape = self.shape();
        let mask = dims.mask("var", shape.len());
        let n_reduced: usize =
            shape.iter().zip(&mask).filter(|it| *it.1).map(|(extent, _)| extent).product();
        assert!(correction <= 1, "`var`: the correction is 0 or 1, found {correction}");
        assert!(
            correction < n_reduced,
            "`var`: correction {correction} needs more than {n_reduced} elements"
        );
        self.centered(&mask).square().summed(&mask).without(&mask) / (n_reduced - correction) as f64
    }

    /// Computes the square root of the sum of squares over the dims, and drops them: PyTorch's
    /// `norm` with `p = 2`. Its gradient at 0 is 0.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 2], &[3.0, 4.0, 0.0, 0.0]);
    /// assert_eq!(x.norm(1).to_vec(), [5.0, 0.0]);
    /// assert_eq!(x.norm(..).item(), 5.0);
    /// ```
    ///
    /// # Panics
    /// If a dim does not exist or is named twice.
    #[must_use]
    pub fn norm(self, dims: impl Dims) -> Self {
        let mask = dims.mask("norm", self.value().shape.len());
        self.square().summed(&mask).without(&mask).sqrt()
    }

    /// Computes the square root of [`var`](Self::var).
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 2], &[1.0, 3.0, 10.0, 20.0]);
    /// assert_eq!(x.std(1, 0).to_vec(), [1.0, 5.0]);
    /// ```
    ///
    /// # Panics
    /// As [`var`](Self::var).
    #[must_use]
    pub fn std(self, dims: impl Dims, correction: usize) -> Self {
        self.var(dims, correction).sqrt()
    }

    /// Computes `log(sum(e^x))` along one dim, and drops it.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// // Twice e^x gives x + log 2, also where e^x overflows.
    /// let x = Tensor::new([2, 2], &[0.0, 0.0, 1000.0, 1000.0]);
    /// assert_eq!(format!("{:.3?}", x.logsumexp(1).to_vec()), "[0.693, 1000.693]");
    /// ```
    ///
    /// # Panics
    /// If the dim does not exist.
    #[must_use]
    pub fn logsumexp(self, dim: impl Dim) -> Self {
        let mask = dim.mask("logsumexp", self.value().shape.len());
        let maximum = self.largest(&mask);
        // The difference of two infinities would be no number.
        let maximum = maximum.map(|it| if it.is_infinite() { 0.0 } else { it });
        let sum = (self - maximum).exp().summed(&mask);
        (sum.log() + maximum).without(&mask)
    }

    /// Computes `e^x / sum(e^x)` along one dim.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 2], &[0.0, 3.0_f64.ln(), 7.0, 7.0]);
    /// assert_eq!(format!("{:.2?}", x.softmax(1).to_vec()), "[0.25, 0.75, 0.50, 0.50]");
    /// assert_eq!(format!("{:.2?}", x.softmax(1).sum(1).to_vec()), "[1.00, 1.00]");
    /// ```
    ///
    /// # Panics
    /// If the dim does not exist.
    #[must_use]
    pub fn softmax(self, dim: impl Dim) -> Self {
        let mask = dim.mask("softmax", self.value().shape.len());
        let exponentials = self.shifted(&mask).exp();
        exponentials / exponentials.summed(&mask)
    }

    /// Computes `log(softmax(x))` along one dim.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([1, 2], &[0.0, 3.0_f64.ln()]);
    /// // log(1/4) and log(3/4)
    /// assert_eq!(format!("{:.3?}", x.log_softmax(1).to_vec()), "[-1.386, -0.288]");
    /// ```
    ///
    /// # Panics
    /// If the dim does not exist.
    #[must_use]
    pub fn log_softmax(self, dim: impl Dim) -> Self {
        let mask = dim.mask("log_softmax", self.value().shape.len());
        let shifted = self.shifted(&mask);
        shifted - shifted.exp().summed(&mask).log()
    }

    /// Returns the index of the first largest element along one dim, or of the first NaN, and drops
    /// the dim. The result is integer, and no gradient flows through it. Unlike in PyTorch, the dim
    /// is required.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let logits = Tensor::new([2, 3], &[1.0, 5.0, 2.0, 7.0, 0.0, 7.0]);
    /// assert_eq!(logits.argmax(1).to_vec(), [1.0, 0.0]);
    /// assert_eq!(logits.argmax(0).to_vec(), [1.0, 0.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the dim does not exist.
    #[must_use]
    pub fn argmax(self, dim: impl Dim) -> Self {
        self.along("argmax", dim, &|line| {
            let largest = line.iter().copied().fold(f64::NEG_INFINITY, larger);
            let is_largest = |it: &f64| *it == largest || it.is_nan() && largest.is_nan();
            let first = line.iter().position(is_largest).expect("one of them is the largest");
            vec![first as f64]
        })
        .squeeze(dim)
        .to_i32()
    }

    /// Returns the index of the first smallest element along one dim, or of the first NaN, and
    /// drops the dim, like [`argmax`](Self::argmax).
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let distances = Tensor::new([2, 3], &[4.0, 1.0, 1.0, 0.0, 5.0, 2.0]);
    /// assert_eq!(distances.argmin(1).to_vec(), [1.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// If the dim does not exist.
    #[must_use]
    pub fn argmin(self, dim: impl Dim) -> Self {
        (-self).argmax(dim)
    }

    /// Computes the cumulative sum along one dim. A trainer does so by `log2(n)` additions of the
    /// whole tensor.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// assert_eq!(x.cumsum(1).to_vec(), [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
    /// assert_eq!(x.cumsum(0).to_vec(), [1.0, 2.0, 3.0, 5.0, 7.0, 9.0]);
    /// ```
    ///
    /// # Panics
    /// If the dim does not exist.
    #[must_use]
    pub fn cumsum(self, dim: impl Dim) -> Self {
        self.along("cumsum", dim, &|line| {
            let mut sum = 0.0;
            let add = |x: &f64| {
                sum += x;
                sum
            };
            line.iter().map(add).collect()
        })
        .wrapped()
    }

    /// Replaces each line of elements along a dim by another; all new lines have one length.
    pub(super) fn along(
        self,
        name: &str,
        dim: impl Dim,
        function: &dyn Fn(&[f64]) -> Vec<f64>,
    ) -> Self {
        self.along_index(dim.index(name, self.shape().len()), function)
    }

    /// Computes [`Self::along`] outside of the user's crate.
    fn along_index(self, dim: usize, function: &dyn Fn(&[f64]) -> Vec<f64>) -> Self {
        let rank = self.shape().len();
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(dim, rank - 1);
        let last = self.permuted(&order).value();
        let (extent, leading) = last.shape.split_last().expect("the dim is one of them");
        let lines: Vec<Vec<f64>> = last.data.chunks(*extent).map(function).collect();
        let length = lines.first().map_or(0, Vec::len);
        Self::new([leading, &[length]].concat(), &lines.concat()).like(self).permuted(&order)
    }

    /// Subtracts the mean over the dims, and then the mean that rounding has left. Equal numbers
    /// become 0.
    pub(super) fn centered(self, mask: &[bool]) -> Self {
        let shape = self.shape();
        let n: usize =
            shape.iter().zip(mask).filter(|it| *it.1).map(|(extent, _)| extent).product();
        let mean = |it: Self| it.summed(mask) / n as f64;
        let difference = self - mean(self);
        difference - mean(difference)
    }

    /// Returns integers modulo 2^32, and numbers as they are.
    fn wrapped(self) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the integers are modulo 2^32")]
        let wrap = |x: f64| f64::from(x as i64 as i32);
        if self.is_integer { self.map(wrap).like(self) } else { self }
    }

    /// Subtracts the largest element along the dims, so that no exponential overflows and one of
    /// them is 1.
    fn shifted(self, mask: &[bool]) -> Self {
        self - self.largest(mask)
    }

    /// Sums over the dims of the mask, which keep extent 1.
    fn summed(self, mask: &[bool]) -> Self {
        self.reduced(mask, 0.0, |left, right| left + right)
    }

    /// Returns the largest element over the dims of the mask, which keep extent 1.
    fn largest(self, mask: &[bool]) -> Self {
        self.reduced(mask, f64::NEG_INFINITY, larger)
    }

    /// Combines the elements along the dims of the mask, which keep extent 1.
    fn reduced(self, mask: &[bool], start: f64, combine: impl Fn(f64, f64) -> f64) -> Self {
        let value = self.value();
        let kept = |extent: usize, is_reduced: bool| if is_reduced { 1 } else { extent };
        let shape: Vec<usize> =
            value.shape.iter().zip(mask).map(|(extent, reduced)| kept(*extent, *reduced)).collect();
        let strides: Vec<usize> = dense_strides(&shape)
            .iter()
            .zip(mask)
            .map(|(stride, is_reduced)| if *is_reduced { 0 } else { *stride })
            .collect();
        let mut data = vec![start; shape.iter().product()];
        for (element, offset) in value.data.iter().zip(offsets(&value.shape, &strides)) {
            data[offset] = combine(data[offset], *element);
        }
        Self::from_value(Value { shape, data }).like(self)
    }

    /// Removes the dims of the mask, each of extent 1.
    fn without(self, mask: &[bool]) -> Self {
        let value = self.value();
        let kept = value.shape.iter().zip(mask).filter(|it| !it.1).map(|(extent, _)| *extent);
        Self::new(kept.collect::<Vec<_>>(), &value.data).like(self)
    }
}

/// Returns the larger number, or NaN if one is NaN.
pub(super) fn larger(left: f64, right: f64) -> f64 {
    if right > left || right.is_nan() { right } else { left }
}
