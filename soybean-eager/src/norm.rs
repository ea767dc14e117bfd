//! Normalization.

use super::{Dim, Tensor, training::is_training};

impl Tensor {
    /// Divides by the length along a dim, the square root of the sum of squares, which counts as at
    /// least `eps` (1e-12 in PyTorch).
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 2], &[3.0, 4.0, 0.0, 0.0]);
    /// assert_eq!(x.normalize(-1, 1e-12).to_vec(), [0.6, 0.8, 0.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// If there is no such dim, or `eps` is less than 1e-18.
    #[must_use]
    pub fn normalize(self, dim: impl Dim, eps: f64) -> Self {
        assert!(eps >= 1e-18, "`normalize`: `eps` must be at least 1e-18, found {eps}");
        let dim = dim.index("normalize", self.shape().len());
        self / self.norm(dim).maximum(eps).unsqueeze(dim)
    }

    /// Computes `(x - mean(x)) / sqrt(var(x) + eps) * weight + bias` over the last dim, with the
    /// variance of correction 0; `x: [.., n]`, `weight` and `bias: [n]`. PyTorch's
    /// `normalized_shape` is always the last dim. Source: Ba et al. 2016.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// // Rows of mean 2 and variance 1, and of mean 15 and variance 25.
    /// let x = Tensor::new([2, 2], &[1.0, 3.0, 10.0, 20.0]);
    /// let (weight, bias) = (Tensor::new([2], &[1.0, 2.0]), Tensor::new([2], &[0.0, 10.0]));
    /// let normal = x.layer_norm(weight, bias, 1e-5);
    /// assert_eq!(format!("{:.2?}", normal.to_vec()), "[-1.00, 12.00, -1.00, 12.00]");
    /// ```
    ///
    /// # Panics
    /// If the shapes differ from these.
    #[must_use]
    pub fn layer_norm(self, weight: Self, bias: Self, eps: f64) -> Self {
        let n = self.last_extent("layer_norm");
        vectors("layer_norm", n, &[weight, bias]);
        self.standardized(eps) * weight + bias
    }

    /// Computes `x / sqrt(mean(x^2) + eps) * weight` over the last dim; `x: [.., n]`, `weight:
    /// [n]`. Source: Zhang & Sennrich 2019.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// // The root mean square is 5.
    /// let x = Tensor::new([1, 2], &[1.0, 7.0]);
    /// let normal = x.rms_norm(Tensor::new([2], &[1.0, 10.0]), 1e-6);
    /// assert_eq!(format!("{:.2?}", normal.to_vec()), "[0.20, 14.00]");
    /// ```
    ///
    /// # Panics
    /// If the shapes differ from these.
    #[must_use]
    pub fn rms_norm(self, weight: Self, eps: f64) -> Self {
        let n = self.last_extent("rms_norm");
        vectors("rms_norm", n, &[weight]);
        self / (self.square().mean(-1).unsqueeze(-1) + eps).sqrt() * weight
    }

    /// Computes `(x - mean) / sqrt(var + eps) * weight + bias` for each channel; `x: [n, c, ..]`,
    /// all others `[c]`. In training, mean and variance (of correction 0) are those of the batch
    /// over all ranks. The buffers `running_mean` and `running_var` become `(1 - momentum)` of
    /// themselves plus `momentum` of the batch's, the variance with correction 1. In evaluation
    /// they replace the batch's. Source: Ioffe & Szegedy 2015.
    ///
    /// In ordinary Rust the buffers do not change.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// use soybean::eager::in_training;
    ///
    /// // Two samples of two channels. The channels have means 2 and 20, and variances 1 and 100.
    /// let x = Tensor::new([2, 2], &[1.0, 10.0, 3.0, 30.0]);
    /// let (weight, bias) = (Tensor::new([2], &[1.0, 1.0]), Tensor::new([2], &[0.0, 0.0]));
    /// let (mean, var) = (Tensor::new([2], &[0.0, 5.0]), Tensor::new([2], &[1.0, 25.0]));
    /// let normal = || x.batch_norm(mean, var, weight, bias, 0.1, 1e-5);
    /// assert_eq!(format!("{:.2?}", normal().to_vec()), "[1.00, 1.00, 3.00, 5.00]");
    /// let trained = in_training(0, 1, normal);
    /// assert_eq!(format!("{:.2?}", trained.to_vec()), "[-1.00, -1.00, 1.00, 1.00]");
    /// ```
    ///
    /// # Panics
    /// If the shapes differ from these, `momentum` is not in `0..=1`, or a channel has only one
    /// element.
    #[must_use]
    pub fn batch_norm(
        self,
        running_mean: Self,
        running_var: Self,
        weight: Self,
        bias: Self,
        momentum: f64,
        eps: f64,
    ) -> Self {
        let shape = self.shape();
        let [n, channels, rest @ ..] = &shape[..] else {
            panic!("`batch_norm`: the input is [n, channels, ..], found {shape:?}")
        };
        vectors("batch_norm", *channels, &[running_mean, running_var, weight, bias]);
        let valid = 0.0..=1.0;
        assert!(
            valid.contains(&momentum),
            "`batch_norm`: `momentum` must be from 0 to 1, found {momentum}"
        );
        let n_elements = n * rest.iter().product::<usize>();
        assert!(n_elements > 1, "`batch_norm`: each channel of {shape:?} has one element only");
        let of_channels: Vec<usize> =
            [*channels].into_iter().chain(rest.iter().map(|_| 1)).collect();
        let (mean, var) = if is_training() {
            let dims: Vec<usize> = (0..shape.len()).filter(|dim| *dim != 1).collect();
            (self.mean(&dims[..]), self.var(&dims[..], 0))
        } else {
            (running_mean, running_var)
        };
        let [mean, var, weight, bias] =
            [mean, var, weight, bias].map(|it| it.reshaped(&of_channels));
        (self - mean) / (var + eps).sqrt() * weight + bias
    }

    /// Computes [`layer_norm`](Self::layer_norm) over each of `n_groups` groups of channels and all
    /// dims after them; `x: [n, c, ..]`, `weight` and `bias: [c]`. Source: Wu & He 2018.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// // Four channels in two groups: of mean 2 and variance 1, and of mean 15 and variance 25.
    /// let x = Tensor::new([1, 4], &[1.0, 3.0, 10.0, 20.0]);
    /// let weight = Tensor::new([4], &[1.0; 4]);
    /// let bias = Tensor::new([4], &[0.0, 0.0, 0.0, 10.0]);
    /// let normal = x.group_norm(2, weight, bias, 1e-5);
    /// assert_eq!(format!("{:.2?}", normal.to_vec()), "[-1.00, 1.00, -1.00, 11.00]");
    /// ```
    ///
    /// # Panics
    /// If the shapes differ from these, or the groups do not divide the channels.
    #[must_use]
    pub fn group_norm(self, n_groups: usize, weight: Self, bias: Self, eps: f64) -> Self {
        let shape = self.shape();
        let [n, channels, rest @ ..] = &shape[..] else {
            panic!("`group_norm`: the input is [n, channels, ..], found {shape:?}")
        };
        assert!(
            n_groups > 0 && channels.is_multiple_of(n_groups),
            "`group_norm`: {n_groups} groups do not divide {channels} channels"
        );
        vectors("group_norm", *channels, &[weight, bias]);
        let n_elements = self.value().data.len() / n / n_groups;
        let normal = self.reshape([*n, n_groups, n_elements]).standardized(eps).reshaped(&shape);
        let of_channels: Vec<usize> =
            [*channels].into_iter().chain(rest.iter().map(|_| 1)).collect();
        normal * weight.reshaped(&of_channels) + bias.reshaped(&of_channels)
    }

    /// Computes `x / (k + alpha m)^beta`, where `m` is the mean of `x^2` over `size` neighboring
    /// channels, with zeros outside; `x: [n, c, ..]`. As in PyTorch, an even size has one more
    /// channel before than after. Source: Krizhevsky et al. 2012.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// // Channels have one neighbor at the edges, 1 + 3 (2 / 3) = 3, and else two, 1 + 3 = 4.
    /// let x = Tensor::new([1, 4], &[1.0; 4]);
    /// let normal = x.local_response_norm(3, 3.0, 1.0, 1.0);
    /// assert_eq!(format!("{:.2?}", normal.to_vec()), "[0.33, 0.25, 0.25, 0.33]");
    /// ```
    ///
    /// # Panics
    /// If there are fewer than two dims, or the size is 0.
    #[must_use]
    pub fn local_response_norm(self, size: usize, alpha: f64, beta: f64, k: f64) -> Self {
        let shape = self.shape();
        let [n, channels, rest @ ..] = &shape[..] else {
            panic!("`local_response_norm`: the input is [n, channels, ..], found {shape:?}")
        };
        assert!(size > 0, "`local_response_norm`: `size` must be at least 1, found 0");
        let squares = self.square().reshape([*n, *channels, rest.iter().product()]);
        let means = (0..*channels).map(|channel| {
            let end = (channel + (size - 1) / 2 + 1).min(*channels);
            squares.slice(1, channel.saturating_sub(size / 2), end).sum(1) / size as f64
        });
        let means = super::stack(means.collect::<Vec<_>>(), 1).reshaped(&shape);
        self / (means * alpha + k).map(|base| base.powf(beta))
    }

    /// Subtracts the mean and divides by the standard deviation over the last dim.
    fn standardized(self, eps: f64) -> Self {
        let variance = self.var(-1, 0).unsqueeze(-1);
        let mut is_last = vec![false; self.shape().len()];
        is_last.last_mut().into_iter().for_each(|it| *it = true);
        self.centered(&is_last) / (variance + eps).sqrt()
    }

    fn last_extent(self, operator: &str) -> usize {
        let shape = self.shape();
        *shape.last().unwrap_or_else(|| panic!("`{operator}`: a scalar has no last dim"))
    }
}

fn vectors(operator: &str, n: usize, tensors: &[Tensor]) {
    for tensor in tensors {
        let shape = tensor.shape();
        assert!(shape == [n], "`{operator}`: weight and bias are [{n}], found {shape:?}");
    }
}
