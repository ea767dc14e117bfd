//! Losses of numbers, and similarities.

use super::{Dim, Operand, Tensor, activation::softplus, arithmetic::zip};

impl Tensor {
    /// Computes the mean of `(x - target)^2` over all elements.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let (x, target) = (Tensor::new([2], &[1.0, 2.0]), Tensor::new([2], &[2.0, 4.0]));
    /// // (1 + 4) / 2
    /// assert_eq!(x.mse(target).item(), 2.5);
    /// ```
    ///
    /// # Panics
    /// If the shapes differ.
    #[must_use]
    pub fn mse(self, target: Self) -> Self {
        self.difference("mse", target).square().mean(..)
    }

    /// Computes the mean of `|x - target|` over all elements.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let (x, target) = (Tensor::new([2], &[1.0, 2.0]), Tensor::new([2], &[2.0, 4.0]));
    /// // (1 + 2) / 2
    /// assert_eq!(x.l1_loss(target).item(), 1.5);
    /// ```
    ///
    /// # Panics
    /// If the shapes differ.
    #[must_use]
    pub fn l1_loss(self, target: Self) -> Self {
        self.difference("l1_loss", target).abs().mean(..)
    }

    /// Computes the mean over all elements of `d^2 / 2` where `|d| <= delta`, else of `delta (|d| -
    /// delta / 2)`, with `d = x - target`. Source: Huber 1964.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let (x, target) = (Tensor::new([2], &[1.0, 2.0]), Tensor::new([2], &[2.0, 4.0]));
    /// // The distances are 1, at `delta`, and 2, beyond it: (0.5 + 1.5) / 2.
    /// assert_eq!(x.huber_loss(target, 1.0).item(), 1.0);
    /// ```
    ///
    /// # Panics
    /// If the shapes differ, or `delta` is not positive.
    #[must_use]
    pub fn huber_loss(self, target: Self, delta: f64) -> Self {
        assert!(delta > 0.0, "`huber_loss`: `delta` must be positive, found {delta}");
        self.difference("huber_loss", target).map(|d| huber(d, delta)).mean(..)
    }

    /// Computes [`huber_loss`](Self::huber_loss) with `beta`, divided by `beta`. Source: Girshick
    /// 2015.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let (x, target) = (Tensor::new([2], &[1.0, 2.0]), Tensor::new([2], &[2.0, 4.0]));
    /// // The distances 1 and 2 are beyond `beta`, which takes off `beta / 2`: (0.75 + 1.75) / 2.
    /// assert_eq!(x.smooth_l1_loss(target, 0.5).item(), 1.25);
    /// ```
    ///
    /// # Panics
    /// If the shapes differ, or `beta` is not positive.
    #[must_use]
    pub fn smooth_l1_loss(self, target: Self, beta: f64) -> Self {
        assert!(beta > 0.0, "`smooth_l1_loss`: `beta` must be positive, found {beta}");
        self.difference("smooth_l1_loss", target).map(|d| huber(d, beta) / beta).mean(..)
    }

    /// Computes the mean over all elements of `-t log(s) - (1 - t) log(1 - s)`, with `s =
    /// sigmoid(x)` and targets `t` in `0..=1`. The formula is `log(1 + e^x) - t x`, which does not
    /// overflow.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let (logits, target) = (Tensor::new([2], &[2.0, -2.0]), Tensor::new([2], &[1.0, 0.0]));
    /// // Both probabilities are sigmoid(2) = 0.881.
    /// let loss = logits.binary_cross_entropy_with_logits(target);
    /// assert_eq!(format!("{:.3}", loss.item()), "0.127");
    /// ```
    ///
    /// # Panics
    /// If the shapes differ.
    #[must_use]
    pub fn binary_cross_entropy_with_logits(self, target: Self) -> Self {
        let _ = self.difference("binary_cross_entropy_with_logits", target);
        (self.softplus() - target * self).mean(..)
    }

    /// Computes [`binary_cross_entropy_with_logits`](Self::binary_cross_entropy_with_logits) with
    /// PyTorch's options. `weight` scales each loss, and `pos_weight` the terms of targets 1: a
    /// number above 1 for classes with few of them. Both are numbers, or tensors that broadcast to
    /// the input. `reduction` is `"mean"`, `"sum"`, or `"none"` for a loss of each element.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let (logits, target) = (Tensor::new([2], &[2.0, -2.0]), Tensor::new([2], &[1.0, 0.0]));
    /// let loss = logits.weighted_binary_cross_entropy_with_logits(target, 1.0, "none", 3.0);
    /// // Both losses are 0.127; the first is of a target 1.
    /// assert_eq!(format!("{:.3?}", loss.to_vec()), "[0.381, 0.127]");
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, or there is no such reduction.
    #[must_use]
    pub fn weighted_binary_cross_entropy_with_logits(
        self,
        target: Self,
        weight: impl Operand,
        reduction: &str,
        pos_weight: impl Operand,
    ) -> Self {
        let name = "weighted_binary_cross_entropy_with_logits";
        let _ = self.difference(name, target);
        let positive = (pos_weight.into_tensor() - 1.0) * target + 1.0;
        let losses = (self * (1.0 - target) + positive * (-self).softplus()) * weight;
        let _ = losses.difference(name, self);
        match reduction {
            "mean" => losses.mean(..),
            "sum" => losses.sum(..),
            "none" => losses,
            other => panic!("`{name}`: no reduction {other:?}; it is mean, sum or none"),
        }
    }

    /// Computes the mean of `-t log(x) - (1 - t) log(1 - x)` over all elements, for probabilities
    /// `x` and targets `t` in `0..=1`. Logarithms count as at least -100, as in PyTorch.
    /// [`binary_cross_entropy_with_logits`](Self::binary_cross_entropy_with_logits) rounds less.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let (x, target) = (Tensor::new([2], &[0.881, 0.0]), Tensor::new([2], &[1.0, 1.0]));
    /// // (0.127 + 100) / 2
    /// assert_eq!(format!("{:.3}", x.binary_cross_entropy(target).item()), "50.063");
    /// ```
    ///
    /// # Panics
    /// If the shapes differ.
    #[must_use]
    pub fn binary_cross_entropy(self, target: Self) -> Self {
        let _ = self.difference("binary_cross_entropy", target);
        let log = |it: Self| it.log().maximum(-100.0);
        (-target * log(self) - (1.0 - target) * log(1.0 - self)).mean(..)
    }

    /// Computes the focal loss of logits and targets in `0..=1`: the mean of [the cross-entropy
    /// ](Self::binary_cross_entropy_with_logits) times `(1 - p)^gamma`, with `p` the probability of
    /// the target, times `alpha` for targets 1 and `1 - alpha` for targets 0. It is torchvision's
    /// function with `reduction="mean"`, which also takes a negative `alpha` for no weights.
    /// Source: Lin et al. 2017.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let (logits, target) = (Tensor::new([2], &[2.0, -2.0]), Tensor::new([2], &[1.0, 0.0]));
    /// // Both losses are 0.127 (1 - 0.881)^2; the weights are 1/4 and 3/4.
    /// let loss = logits.sigmoid_focal_loss(target, 0.25, 2.0);
    /// assert_eq!(format!("{:.6}", loss.item()), "0.000902");
    /// ```
    ///
    /// # Panics
    /// If the shapes differ, `alpha` is not in `0..=1`, or `gamma` is negative.
    #[must_use]
    pub fn sigmoid_focal_loss(self, target: Self, alpha: f64, gamma: f64) -> Self {
        let is_share = (0.0..=1.0).contains(&alpha);
        assert!(is_share, "`sigmoid_focal_loss`: `alpha` must be in 0..=1, found {alpha}");
        assert!(gamma >= 0.0, "`sigmoid_focal_loss`: `gamma` must be at least 0, found {gamma}");
        let _ = self.difference("sigmoid_focal_loss", target);
        let focal = |x: f64, t: f64| {
            let loss = softplus(x) - t * x;
            let p = 1.0 / (1.0 + (-x).exp());
            let of_target = p * t + (1.0 - p) * (1.0 - t);
            (alpha * t + (1.0 - alpha) * (1.0 - t)) * (1.0 - of_target).powf(gamma) * loss
        };
        zip("sigmoid_focal_loss", self, target, &focal).mean(..)
    }

    /// Divides a sum, a scalar, by a count: a loss that is a mean over what the batch counts.
    ///
    /// In a compiled model, steps that share an update (`accumulate`) add up the gradients of the
    /// sum and the counts, and the update divides the one by the other. They do the same for
    /// losses with ignored labels or class weights, and for sums that `/` divides by a sum over the
    /// batch. `per` says so for any count.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let (sum, count) = (Tensor::scalar(6.0), Tensor::scalar(4.0));
    /// assert_eq!(sum.per(count).item(), 1.5);
    /// ```
    ///
    /// # Panics
    /// If one of them is no scalar.
    #[must_use]
    pub fn per(self, count: impl Operand) -> Self {
        let count = count.into_tensor();
        for operand in [self, count] {
            assert!(operand.shape().is_empty(), "`per` takes scalars, found {:?}", operand.shape());
        }
        self / count
    }

    /// Computes the Kullback-Leibler divergence of log-probabilities `x` from probabilities `t`:
    /// the sum of `t (log(t) - x)`, which is 0 where `t` is, divided by the extent of dim 0. It is
    /// PyTorch's function with `reduction="batchmean"`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([1, 2], &[0.5, 0.5]).log();
    /// let target = Tensor::new([1, 2], &[1.0, 0.0]);
    /// assert_eq!(format!("{:.3}", x.kl_div(target).item()), "0.693");
    /// ```
    ///
    /// # Panics
    /// If the shapes differ or have no dims.
    #[must_use]
    pub fn kl_div(self, target: Self) -> Self {
        let _ = self.difference("kl_div", target);
        let term = |x: f64, t: f64| if t == 0.0 { -t * x } else { t * (t.ln() - x) };
        zip("kl_div", self, target, &term).sum(..) / self.dim(0) as f64
    }

    /// Computes the cosine of the angle between vectors along a dim: their product divided by both
    /// lengths, each of which counts as at least `eps` (1e-8 in PyTorch).
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 2], &[3.0, 4.0, 0.0, 0.0]);
    /// let y = Tensor::new([2, 2], &[1.0, 0.0, 1.0, 0.0]);
    /// assert_eq!(x.cosine_similarity(y, -1, 1e-8).to_vec(), [0.6, 0.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes differ, there is no such dim, or `eps` is less than 1e-18.
    #[must_use]
    pub fn cosine_similarity(self, other: Self, dim: impl Dim, eps: f64) -> Self {
        assert!(eps >= 1e-18, "`cosine_similarity`: `eps` must be at least 1e-18, found {eps}");
        let _ = self.difference("cosine_similarity", other);
        let length = |it: Self| it.square().sum(dim).sqrt().maximum(eps);
        (self * other).sum(dim) / (length(self) * length(other))
    }

    /// Computes the mean over rows `[.., d]` of `1 - c` where the target `[..]` is 1, and of
    /// `max(c - margin, 0)` where it is -1, with `c` the cosine of the angle between the rows.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 2], &[3.0, 4.0, 3.0, 4.0]);
    /// let y = Tensor::new([2, 2], &[1.0, 0.0, 1.0, 0.0]);
    /// let target = Tensor::new([2], &[1.0, -1.0]);
    /// // (0.4 + 0.6 - 0.2) / 2
    /// let loss = x.cosine_embedding_loss(y, target, 0.2);
    /// assert_eq!(format!("{:.3}", loss.item()), "0.400");
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[must_use]
    pub fn cosine_embedding_loss(self, other: Self, target: Self, margin: f64) -> Self {
        let name = "cosine_embedding_loss";
        let _ = self.difference(name, other);
        let length = |it: Self| (it.square().sum(-1) + 1e-12).sqrt();
        let cosine = (self * other).sum(-1) / (length(self) * length(other));
        let _ = cosine.difference(name, target);
        let loss = |cosine: f64, target: f64| match target {
            1.0 => 1.0 - cosine,
            -1.0 => (cosine - margin).max(0.0),
            _ => 0.0,
        };
        zip(name, cosine, target, &loss).mean(..)
    }

    /// Computes the mean over rows `[.., d]` of `max(d(x, positive) - d(x, negative) + margin, 0)`,
    /// where `d(x, y)` is the length of `x - y + 1e-6`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([1, 2], &[0.0, 0.0]);
    /// let near = Tensor::new([1, 2], &[3.0, 4.0]);
    /// let far = Tensor::new([1, 2], &[0.0, 5.5]);
    /// let loss = x.triplet_margin_loss(near, far, 1.0);
    /// assert_eq!(format!("{:.3}", loss.item()), "0.500");
    /// ```
    ///
    /// # Panics
    /// If the shapes differ.
    #[must_use]
    pub fn triplet_margin_loss(self, positive: Self, negative: Self, margin: f64) -> Self {
        let distance = |other: Self| {
            let difference = self.difference("triplet_margin_loss", other);
            (difference + 1e-6).square().sum(-1).sqrt()
        };
        (distance(positive) - distance(negative) + margin).relu().mean(..)
    }

    fn difference(self, name: &str, target: Self) -> Self {
        let (here, there) = (self.shape(), target.shape());
        assert!(here == there, "`{name}`: shapes {here:?} and {there:?} differ");
        self - target
    }
}

fn huber(difference: f64, delta: f64) -> f64 {
    let distance = difference.abs();
    if distance <= delta { distance * distance / 2.0 } else { delta * (distance - delta / 2.0) }
}
