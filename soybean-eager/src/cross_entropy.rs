//! Losses of classes, and labels and indices as vectors.

use super::{Operand, Tensor};

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
        check_labels("cross_entropy", self, labels);
        self.log_softmax(-1).nll_loss(labels)
    }

    /// Computes [`cross_entropy`](Self::cross_entropy) with the options of PyTorch's function, in
    /// its order. With `l[c] = -log(softmax(logits)[c])` and the smoothing `s`, the loss of a label
    /// `y` is `(1 - s) * weight[y] * l[y]` plus `s` times the mean over all classes of `weight[c] *
    /// l[c]`.
    ///
    /// - `weight` is a tensor `[classes]`, or one number for all, such as 1.
    /// - Labels `ignore_index` (-100 by default in PyTorch) have the loss 0. They need not be
    ///   classes, and a trainer accepts them in batches.
    /// - `reduction` is `"mean"`, the sum divided by the sum of `weight[y]` over all labels that
    ///   are not ignored, `"sum"`, or `"none"` for a loss of each label, `[..]`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let logits = Tensor::new([3, 2], &[0.0, 0.0, 0.0, 3.0_f64.ln(), 5.0, 7.0]);
    /// let labels = Tensor::new([3], &[1.0, 0.0, -100.0]);
    /// // The probabilities of the labels are 1/2 and 1/4: (log 2 + log 4) / 2.
    /// let loss = logits.cross_entropy_with(labels, 1, -100, "mean", 0.0);
    /// assert_eq!(format!("{:.3}", loss.item()), "1.040");
    /// let weight = Tensor::new([2], &[2.0, 1.0]);
    /// let losses = logits.cross_entropy_with(labels, weight, -100, "none", 0.0);
    /// assert_eq!(format!("{:.3?}", losses.to_vec()), "[0.693, 2.773, 0.000]");
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, a label is not an integer, there is no such reduction, or the
    /// smoothing is not in `0..=1`.
    #[must_use]
    pub fn cross_entropy_with(
        self,
        labels: Self,
        weight: impl Operand,
        ignore_index: i64,
        reduction: &str,
        label_smoothing: f64,
    ) -> Self {
        let name = "cross_entropy_with";
        let n_classes = check_labels(name, self, labels);
        assert!((0.0..=1.0).contains(&label_smoothing), "`{name}`: the smoothing is in 0..=1");
        let weight = weight.into_tensor().expanded(&[n_classes]).value();
        let (logarithms, labels) = (self.log_softmax(-1).value(), labels.value());
        let (mut losses, mut total) = (Vec::new(), 0.0);
        for (row, label) in logarithms.data.chunks(n_classes).zip(&labels.data) {
            if *label == ignore_index as f64 {
                losses.push(0.0);
                continue;
            }
            let class = class(name, *label, n_classes);
            let of_label = class.map_or(f64::NAN, |it| -weight.data[it] * row[it]);
            let all: f64 = row.iter().zip(&weight.data).map(|(it, weight)| -weight * it).sum();
            let smooth = label_smoothing * all / n_classes as f64;
            losses.push((1.0 - label_smoothing) * of_label + smooth);
            total += class.map_or(f64::NAN, |it| weight.data[it]);
        }
        let sum = Self::scalar(losses.iter().sum());
        match reduction {
            "mean" => sum / total,
            "sum" => sum,
            "none" => Self::new(&labels.shape, &losses),
            other => panic!("`{name}`: no reduction {other:?}; it is mean, sum or none"),
        }
    }

    /// Computes the mean over all rows of `-x[label]`, for log-probabilities `[.., classes]` and
    /// integer labels `[..]`. Classes are always the last dim; in PyTorch they are dim 1.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 2], &[0.5, 0.5, 0.25, 0.75]).log();
    /// let labels = Tensor::new([2], &[1.0, 0.0]);
    /// assert_eq!(format!("{:.3}", x.nll_loss(labels).item()), "1.040");
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, or a label is not an integer.
    #[must_use]
    pub fn nll_loss(self, labels: Self) -> Self {
        let n_classes = check_labels("nll_loss", self, labels);
        let (rows, labels) = (self.value(), labels.value());
        let loss = |(row, label): (&[f64], &f64)| {
            class("nll_loss", *label, n_classes).map_or(f64::NAN, |it| -row[it])
        };
        let losses = rows.data.chunks(n_classes).zip(&labels.data).map(loss);
        Self::scalar(losses.sum::<f64>() / labels.data.len() as f64)
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
}

/// Checks that there is a label for each row `[.., classes]`; returns the number of classes.
fn check_labels(name: &str, rows: Tensor, labels: Tensor) -> usize {
    let (rows, labels) = (rows.shape(), labels.shape());
    let Some((&n_classes, leading)) = rows.split_last() else {
        panic!("`{name}`: logits are [.., classes], found {rows:?}")
    };
    assert!(
        labels == leading,
        "`{name}`: labels for logits {rows:?} are {leading:?}, found {labels:?}"
    );
    n_classes
}

/// Returns the class of a label, or none if it is out of range.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number below")]
fn class(name: &str, label: f64, n_classes: usize) -> Option<usize> {
    assert!(label.fract() == 0.0, "`{name}`: expected an integer, found {label}");
    (0.0..n_classes as f64).contains(&label).then_some(label as usize)
}
