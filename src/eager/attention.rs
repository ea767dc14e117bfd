//! Attention.

use super::Tensor;

impl Tensor {
    /// Computes `softmax(q k^T / sqrt(d)) v` with the softmax over the keys. `q: [.., n, d]`, `k:
    /// [.., m, d]`, `v: [.., m, e]` with equal leading dims (`[batch, heads]`) give `[.., n, e]`.
    /// If `is_causal`, query `i` attends to the keys `0..=i` only. Source: Vaswani et al. 2017.
    ///
    /// Of `h` heads of queries `[.., h, n, d]`, each `h / g` in turn share one of `g` heads of keys
    /// and values, as in PyTorch with `enable_gqa=True`. With one head of keys, this is multi-query
    /// attention. Sources: Shazeer 2019, Ainslie et al. 2023.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let query = Tensor::new([1, 2, 1], &[0.0, 0.0]);
    /// let key = Tensor::new([1, 2, 1], &[7.0, 8.0]);
    /// let value = Tensor::new([1, 2, 3], &[1.0, 2.0, 3.0, 5.0, 6.0, 7.0]);
    /// // All scores are 0, so each query gets the mean of the values that it attends to.
    /// let all = query.scaled_dot_product_attention(key, value, false);
    /// assert_eq!(all.to_vec(), [3.0, 4.0, 5.0, 3.0, 4.0, 5.0]);
    /// let causal = query.scaled_dot_product_attention(key, value, true);
    /// assert_eq!(causal.to_vec(), [1.0, 2.0, 3.0, 3.0, 4.0, 5.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[must_use]
    pub fn scaled_dot_product_attention(self, key: Self, value: Self, is_causal: bool) -> Self {
        let no_window = f64::INFINITY;
        let window = is_causal.then_some(no_window);
        self.grouped_attention("scaled_dot_product_attention", key, value, window)
    }

    /// Computes [`Self::scaled_dot_product_attention`] in which query `i` attends to the `window`
    /// keys up to its own, `i - window + 1..=i`. There are at least as many keys as queries.
    /// Sources: Beltagy, Peters & Cohan 2020; Jiang et al., "Mistral 7B", 2023.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let query = Tensor::new([3, 1], &[0.0, 0.0, 0.0]);
    /// let value = Tensor::new([3, 1], &[1.0, 3.0, 7.0]);
    /// // All scores are 0, so each query gets the mean of the values that it attends to.
    /// let windows = query.sliding_window_attention(query, value, 2);
    /// assert_eq!(windows.to_vec(), [1.0, 2.0, 5.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, or the window is 0.
    #[must_use]
    pub fn sliding_window_attention(self, key: Self, value: Self, window: usize) -> Self {
        assert!(window > 0, "`sliding_window_attention`: `window` must be at least 1, found 0");
        self.grouped_attention("sliding_window_attention", key, value, Some(window as f64))
    }

    /// Computes attention of which several heads of queries may share keys. A query sees the keys
    /// up to its own, at most `window`; all keys without a window.
    fn grouped_attention(self, name: &str, key: Self, value: Self, window: Option<f64>) -> Self {
        let (shape, shared) = (self.shape(), key.shape());
        let n_outer = shape.len().saturating_sub(3);
        if shape.len() < 3 || shared.len() != shape.len() || shape[n_outer] == shared[n_outer] {
            return self.attention(key, value, window);
        }
        let (h, g) = (shape[n_outer], shared[n_outer]);
        assert!(
            g > 0 && h.is_multiple_of(g),
            "`{name}`: {h} heads of queries cannot share {g} heads of keys"
        );
        let grouped = [&shape[..n_outer], &[g, h / g], &shape[n_outer + 1..]].concat();
        let [key, value] = [key, value].map(|it| it.unsqueeze(-3));
        let attended = self.reshaped(&grouped).attention(key, value, window);
        let width = value.shape().last().copied().unwrap_or(1);
        attended.reshaped(&[&shape[..shape.len() - 1], &[width]].concat())
    }

    /// Computes attention whose leading dims are equal or broadcast.
    fn attention(self, key: Self, value: Self, window: Option<f64>) -> Self {
        let width = self.shape().last().copied().unwrap_or(1) as f64;
        let scores = self.matmul(key.transpose()) / width.sqrt();
        let Some(window) = window else { return scores.softmax(-1).matmul(value) };
        let shape = scores.shape();
        let (queries, keys) = (indices(shape[shape.len() - 2]), indices(shape[shape.len() - 1]));
        let n_before = queries.unsqueeze(-1) - keys;
        let is_seen = n_before.ge(0.0) * n_before.lt(window);
        scores.where_(is_seen, f64::NEG_INFINITY).softmax(-1).matmul(value)
    }
}

fn indices(extent: usize) -> Tensor {
    Tensor::new([extent], &(0..extent).map(|it| it as f64).collect::<Vec<_>>())
}
