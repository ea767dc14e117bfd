//! Losses, and labels and indices as vectors.

use super::Tensor;

impl Tensor {
    /// Computes the cross-entropy of logits `[.., classes]` and integer labels `[..]`: the mean
    /// over all rows of `-log(softmax(logits)[label])`. Classes are always the last dim; in PyTorch
    /// they are dim 1. A label out of range makes the result NaN; a trainer rejects batches with
    /// such labels.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let logits = Tensor::new([2, 2], &[0.0, 0.0, 0.0, 3.0_f64.ln()]);
    /// let labels = Tensor::new([2], &[1.0, 0.0]);
    /// // The probabilities of the labels are 1/2 and 1/4: (log 2 + log 4) / 2.
    /// assert_eq!(format!("{:.3}", logits.cross_entropy(labels).item()), "1.040");
    /// // Logits of sequences, `[batch, length, classes]`, have labels `[batch, length]`.
    /// let (logits, labels) = (Tensor::new([2, 3, 4], &[0.0; 24]), Tensor::new([2, 3], &[3.0; 6]));
    /// assert_eq!(format!("{:.3}", logits.cross_entropy(labels).item()), "1.386");
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, or a label is not an integer.
    #[must_use]
    pub fn cross_entropy(self, labels: Self) -> Self {
        let (logits_shape, labels) = (self.shape(), labels.value());
        let Some((&n_classes, leading)) = logits_shape.split_last() else {
            panic!("`cross_entropy`: logits are [.., classes], found {logits_shape:?}")
        };
        assert!(
            labels.shape == leading,
            "`cross_entropy`: labels for logits {logits_shape:?} are {leading:?}, found {:?}",
            labels.shape
        );
        let logarithms = self.log_softmax(-1).value();
        let rows = logarithms.data.chunks(n_classes).zip(&labels.data);
        let loss = |(row, label): (&[f64], &f64)| {
            class("cross_entropy", *label, n_classes).map_or(f64::NAN, |it| -row[it])
        };
        let losses = rows.map(loss);
        Self::scalar(losses.sum::<f64>() / labels.data.len() as f64)
    }

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
        let softplus = self.map(|x| x.max(0.0) + (-x.abs()).exp().ln_1p());
        (softplus - target * self).mean(..)
    }

    /// Appends a dim of `n_classes` to integer labels: 1 at the label and 0 elsewhere. No gradient
    /// flows through it. A label out of range has no 1; a trainer rejects batches with such labels.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let labels = Tensor::new([2], &[2.0, 0.0]);
    /// assert_eq!(labels.one_hot(3).shape(), [2, 3]);
    /// assert_eq!(labels.one_hot(3).to_vec(), [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// If a label is not an integer.
    #[must_use]
    pub fn one_hot(self, n_classes: usize) -> Self {
        let labels = self.value();
        let classes = labels.data.iter().map(|label| class("one_hot", *label, n_classes));
        let one = |chosen| (0..n_classes).map(move |it| f64::from(u8::from(Some(it) == chosen)));
        let elements: Vec<f64> = classes.flat_map(one).collect();
        Self::new([&labels.shape[..], &[n_classes]].concat(), &elements)
    }

    /// Looks up rows of `weight: [v, d]` for integers `[..]`, and returns `[.., d]`: PyTorch's
    /// `F.embedding(input, weight)` without further options. An index out of range gives zeros; a
    /// trainer rejects batches with such indices.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let weight = Tensor::new([3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// let tokens = Tensor::new([2], &[2.0, 0.0]);
    /// assert_eq!(tokens.embedding(weight).to_vec(), [5.0, 6.0, 1.0, 2.0]);
    /// assert_eq!(Tensor::new([4, 8], &[0.0; 32]).embedding(weight).shape(), [4, 8, 2]);
    /// ```
    ///
    /// # Panics
    /// If the weight does not have two dims, or an index is not an integer.
    #[must_use]
    pub fn embedding(self, weight: Self) -> Self {
        let (indices, table) = (self.value(), weight.value());
        let [n_rows, width] = table.shape[..] else {
            panic!("`embedding`: the weight is [rows, width], found {:?}", table.shape)
        };
        let rows = indices.data.iter().map(|index| class("embedding", *index, n_rows));
        let zeros = vec![0.0; width];
        let row = |row: Option<usize>| match row {
            Some(row) => &table.data[row * width..(row + 1) * width],
            None => &zeros,
        };
        let elements: Vec<f64> = rows.flat_map(row).copied().collect();
        Self::new([&indices.shape[..], &[width]].concat(), &elements)
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

/// Returns the class of a label, or none if it is out of range.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number below")]
fn class(name: &str, label: f64, n_classes: usize) -> Option<usize> {
    assert!(label.fract() == 0.0, "`{name}`: expected an integer, found {label}");
    (0.0..n_classes as f64).contains(&label).then_some(label as usize)
}
