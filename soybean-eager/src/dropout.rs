//! Dropout.

use super::{Tensor, arena::Value, noise::state, training::next_noise};

impl Tensor {
    /// Sets each element to 0 with probability `p` in training, and divides the others by `1 - p`;
    /// in evaluation returns the tensor itself. The dropped elements depend on the seed, the step,
    /// the index of the call in the model and the element's position, but not on the tiling of
    /// the tensor. Source: Srivastava et al. 2014.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// use soybean::eager::in_training;
    ///
    /// let x = Tensor::new([1000], &[3.0; 1000]);
    /// assert_eq!(x.dropout(0.25).to_vec(), x.to_vec());
    /// let (seed, step) = (0, 1);
    /// let kept = in_training(seed, step, || x.dropout(0.25));
    /// assert!(kept.to_vec().iter().all(|it| [0.0, 3.0 / 0.75].contains(it)));
    /// assert!((700.0..800.0).contains(&kept.gt(0).sum(..).item()));
    /// ```
    ///
    /// # Panics
    /// If `p` is not in `0..1`.
    #[must_use]
    pub fn dropout(self, p: f64) -> Self {
        assert!((0.0..1.0).contains(&p), "`dropout`: `p` must be from 0 to below 1, found {p}");
        let Some((step, number)) = next_noise() else { return self };
        let value = self.value();
        #[expect(clippy::cast_possible_truncation, reason = "noise is in single precision")]
        let rate = p as f32;
        let kept = |(at, &x): (usize, &f64)| {
            let is_dropped = state(step, number, &value.shape, at) < rate;
            if is_dropped { 0.0 } else { x / (1.0 - p) }
        };
        let data = value.data.iter().enumerate().map(kept).collect();
        Self::from_value(Value { shape: value.shape.clone(), data })
    }
}
