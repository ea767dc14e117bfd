//! Losses, and labels and indices as vectors.

use super::Tensor;

impl Tensor {
    /// Computes the cross-entropy of logits `[.., classes]` and integer labels `[..]`: the mean
    /// over all rows of `-log(softmax(logits)[label])`. Classes are always the last dim; in PyTorch
    /// they are dim 1.
    ///
    /// # Panics
    /// If the shapes do not fit, or a label is not an integer in `0..classes`.
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
        let losses = rows.map(|(row, label)| -row[class("cross_entropy", *label, n_classes)]);
        Self::scalar(losses.sum::<f64>() / labels.data.len() as f64)
    }

    /// Computes the mean of `(x - target)^2` over all elements.
    ///
    /// # Panics
    /// If the shapes differ.
    #[must_use]
    pub fn mse(self, target: Self) -> Self {
        self.difference("mse", target).square().mean(..)
    }

    /// Computes the mean of `|x - target|` over all elements.
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
    /// # Panics
    /// If the shapes differ.
    #[must_use]
    pub fn binary_cross_entropy_with_logits(self, target: Self) -> Self {
        let _ = self.difference("binary_cross_entropy_with_logits", target);
        let softplus = self.map(|x| x.max(0.0) + (-x.abs()).exp().ln_1p());
        (softplus - target * self).mean(..)
    }

    /// Appends a dim of `n_classes` to integer labels: 1 at the label and 0 elsewhere. No gradient
    /// flows through it.
    ///
    /// # Panics
    /// If a label is not an integer in `0..n_classes`.
    #[must_use]
    pub fn one_hot(self, n_classes: usize) -> Self {
        let labels = self.value();
        let classes = labels.data.iter().map(|label| class("one_hot", *label, n_classes));
        let one = |chosen| (0..n_classes).map(move |it| f64::from(u8::from(it == chosen)));
        let elements: Vec<f64> = classes.flat_map(one).collect();
        Self::new([&labels.shape[..], &[n_classes]].concat(), &elements)
    }

    /// Looks up rows of `weight: [v, d]` for integers `[..]`, and returns `[.., d]`: PyTorch's
    /// `F.embedding(input, weight)` without further options. A trainer rejects batches with an
    /// index out of range. Indices that the model computes are not checked there, and give zeros.
    ///
    /// # Panics
    /// If the weight does not have two dims, or an index is not an integer in `0..v`.
    #[must_use]
    pub fn embedding(self, weight: Self) -> Self {
        let (indices, table) = (self.value(), weight.value());
        let [n_rows, width] = table.shape[..] else {
            panic!("`embedding`: the weight is [rows, width], found {:?}", table.shape)
        };
        let rows = indices.data.iter().map(|index| class("embedding", *index, n_rows));
        let elements: Vec<f64> =
            rows.flat_map(|row| &table.data[row * width..(row + 1) * width]).copied().collect();
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

fn class(name: &str, label: f64, n_classes: usize) -> usize {
    (0..n_classes)
        .find(|class| *class as f64 == label)
        .unwrap_or_else(|| panic!("`{name}`: label {label} is not a class in 0..{n_classes}"))
}
