//! Losses.

use super::Tensor;

impl Tensor {
    /// The cross-entropy of logits `[batch, classes]` against integer labels `[batch]`: the mean over the batch of `-log(softmax(logits)[label])`.
    ///
    /// # Panics
    /// If the shapes do not fit, or a label is not an integer in `0..classes`.
    #[must_use]
    pub fn cross_entropy(self, labels: Self) -> Self {
        let (logits_shape, labels) = (self.shape(), labels.value());
        let [batch, n_classes] = logits_shape[..] else {
            panic!("`cross_entropy`: logits are [batch, classes], found {logits_shape:?}")
        };
        assert!(
            labels.shape == [batch],
            "`cross_entropy`: labels for logits {logits_shape:?} are [{batch}], found {:?}",
            labels.shape
        );
        let logarithms = self.log_softmax(1).value();
        let rows = logarithms.data.chunks(n_classes).zip(&labels.data);
        let losses = rows.map(|(row, label)| -row[class(*label, n_classes)]);
        Self::scalar(losses.sum::<f64>() / batch as f64)
    }

    /// The mean over all elements of `(a - b)^2`.
    ///
    /// # Panics
    /// If the shapes differ.
    #[must_use]
    pub fn mse(self, target: Self) -> Self {
        let (here, there) = (self.shape(), target.shape());
        assert!(here == there, "`mse`: shapes {here:?} and {there:?} differ");
        (self - target).powi(2).mean(..)
    }
}

fn class(label: f64, n_classes: usize) -> usize {
    (0..n_classes).find(|class| *class as f64 == label).unwrap_or_else(|| {
        panic!("`cross_entropy`: label {label} is not a class in 0..{n_classes}")
    })
}
