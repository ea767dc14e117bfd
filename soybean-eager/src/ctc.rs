//! Connectionist temporal classification.

use super::Tensor;

impl Tensor {
    /// Computes the loss of connectionist temporal classification (Graves et al. 2006), as
    /// PyTorch's `ctc_loss`: the mean over the batch of `-log(p)` divided by the number of labels
    /// of the target. `p` is the probability of all alignments of a target with its frames, where
    /// frames repeat labels, or are blank, which is class 0.
    ///
    /// Log-probabilities are `[frames, batch, classes]`, targets `[batch, labels]`, and both
    /// lengths `[batch]`. Targets are classes behind their last label, too, but any of them. The
    /// loss of a target that its frames are too few for is infinite, and has no gradient.
    ///
    /// The gradient is the derivative of the loss. That of PyTorch differs by the probabilities of
    /// all classes; through `log_softmax`, both are equal.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// // Two frames, one text, and three classes with equal probabilities.
    /// let log_probs = Tensor::new([2, 1, 3], &[-(3.0_f64.ln()); 6]);
    /// let (one, two) = (Tensor::new([1], &[1.0]), Tensor::new([1], &[2.0]));
    /// // Three of nine alignments give the label: `2 2`, `2 _` and `_ 2`.
    /// let loss = log_probs.ctc_loss(Tensor::new([1, 1], &[2.0]), two, one);
    /// assert_eq!(format!("{:.3}", loss.item()), format!("{:.3}", 3.0_f64.ln()));
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, or a length is too large.
    #[must_use]
    pub fn ctc_loss(self, targets: Self, input_lengths: Self, target_lengths: Self) -> Self {
        self.ctc_loss_with(targets, input_lengths, target_lengths, 0, "mean", false)
    }

    /// Computes [`ctc_loss`](Self::ctc_loss) with the options of PyTorch's function: the class
    /// `blank`, a `reduction` that is `"mean"`, `"sum"` or `"none"` for a loss of each target, and
    /// `zero_infinity`, by which infinite losses become 0.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let log_probs = Tensor::new([1, 2, 3], &[-(3.0_f64.ln()); 6]);
    /// let targets = Tensor::new([2, 2], &[1.0, 0.0, 1.0, 0.0]);
    /// let (frames, labels) = (Tensor::new([2], &[1.0; 2]), Tensor::new([2], &[1.0, 2.0]));
    /// // One frame is too few for two labels.
    /// let losses = log_probs.ctc_loss_with(targets, frames, labels, 2, "none", true);
    /// assert_eq!(format!("{:.3?}", losses.to_vec()), "[1.099, 0.000]");
    /// ```
    ///
    /// # Panics
    /// As [`ctc_loss`](Self::ctc_loss), and if there is no such class or reduction.
    #[must_use]
    pub fn ctc_loss_with(
        self,
        targets: Self,
        input_lengths: Self,
        target_lengths: Self,
        blank: usize,
        reduction: &str,
        zero_infinity: bool,
    ) -> Self {
        let (rows, labels) = (self.value(), targets.value());
        let &[n_frames, n, n_classes] = &rows.shape[..] else {
            panic!("`ctc_loss`: log-probabilities are [frames, batch, classes]")
        };
        let &[_, n_labels] = &labels.shape[..] else {
            panic!("`ctc_loss`: targets are [batch, labels], found {:?}", labels.shape)
        };
        assert!(labels.shape[0] == n, "`ctc_loss`: {} targets for {n}", labels.shape[0]);
        assert!(blank < n_classes, "`ctc_loss`: class {blank} of {n_classes} is blank");
        let lengths = [(input_lengths, n_frames), (target_lengths, n_labels)]
            .map(|(it, most)| integers(&it.to_vec(), most + 1));
        assert!(lengths.iter().all(|it| it.len() == n), "`ctc_loss`: lengths are [{n}]");
        let labels = integers(&labels.data, n_classes);
        let loss = |at: usize| {
            let [frames, length] = [0, 1].map(|it| lengths[it][at]);
            let frame = |it: usize| &rows.data[(it * n + at) * n_classes..][..n_classes];
            let frames: Vec<&[f64]> = (0..frames).map(frame).collect();
            let loss = loss(&frames, &labels[at * n_labels..][..length], blank);
            if zero_infinity && loss.is_infinite() { 0.0 } else { loss }
        };
        let losses: Vec<f64> = (0..n).map(loss).collect();
        let of_lengths = losses.iter().zip(&lengths[1]);
        let means = of_lengths.map(|(loss, length)| loss / usize::max(*length, 1) as f64);
        match reduction {
            "mean" => Self::scalar(means.sum::<f64>() / n as f64),
            "sum" => Self::scalar(losses.iter().sum()),
            "none" => Self::new([n], &losses),
            other => panic!("`ctc_loss`: no reduction {other:?}; it is mean, sum or none"),
        }
    }
}

/// Returns the loss of one target, by the log-probabilities of each frame.
fn loss(frames: &[&[f64]], target: &[usize], blank: usize) -> f64 {
    // A blank before and after each label.
    let places: Vec<usize> =
        target.iter().flat_map(|label| [blank, *label]).chain([blank]).collect();
    // The probability that the frames so far end at each place; before them, at the first one.
    let mut ends = vec![f64::NEG_INFINITY; places.len()];
    ends[0] = 0.0;
    for frame in frames {
        let next = |at: usize| {
            let is_other = at >= 2 && places[at] != places[at - 2];
            let first = at.saturating_sub(if is_other { 2 } else { 1 });
            log_sum_exp(&ends[first..=at]) + frame[places[at]]
        };
        ends = (0..places.len()).map(next).collect();
    }
    -log_sum_exp(&ends[places.len().saturating_sub(2)..])
}

fn log_sum_exp(terms: &[f64]) -> f64 {
    let largest = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if largest.is_infinite() {
        return largest;
    }
    terms.iter().map(|it| (it - largest).exp()).sum::<f64>().ln() + largest
}

/// Returns numbers as integers below a bound.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
fn integers(numbers: &[f64], bound: usize) -> Vec<usize> {
    let integer = |it: &f64| {
        let is_valid = it.fract() == 0.0 && (0.0..bound as f64).contains(it);
        assert!(is_valid, "`ctc_loss`: expected an integer below {bound}, found {it}");
        *it as usize
    };
    numbers.iter().map(integer).collect()
}
