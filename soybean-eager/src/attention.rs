//! Attention.

use std::ops::RangeFull;

use super::{Operand, Tensor};

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
        let seen = if is_causal { Seen::Causal } else { Seen::All };
        let options = Options::new(seen, self.attention_scale());
        self.attended("scaled_dot_product_attention", key, value, &options)
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
        let options = Options::new(Seen::Window(window), self.attention_scale());
        self.attended("sliding_window_attention", key, value, &options)
    }

    /// Computes [`Self::scaled_dot_product_attention`] with options, `softmax(scale * q k^T + bias)
    /// v`:
    ///
    /// - `mask` is `"none"`, `"causal"`, or the number of keys of a sliding window.
    /// - `segments` are `..` if there are none. For keys `[batch, heads, m, d]`, lengths `[batch]`
    ///   are the numbers of keys that queries see, if later ones are padding. A pair of integers
    ///   `[batch, n]` and `[batch, m]` tells the sequences to which queries and keys belong, if
    ///   several are packed into a row: a query sees the keys of its own. Both may have more or
    ///   fewer of the leading dims that queries and keys share.
    /// - `bias` is a tensor `[.., n, m]`, broadcast to the scores, or a number. Minus infinity
    ///   hides a key.
    /// - `scale` is the factor of the scores, usually `1 / sqrt(d)`.
    /// - `p` is the probability with which [`dropout`](Self::dropout) drops a weight in training.
    ///
    /// A query that sees no key gives zeros, where PyTorch's function gives NaN.
    ///
    /// Without dropout, one kernel computes long attention, and skips keys that a block of queries
    /// does not see. With it, all weights are in memory, and so are they for the gradient of a
    /// bias that is trained. Sources: Press, Smith & Lewis 2022 (ALiBi), Raffel et al. 2020 (T5),
    /// Krell et al. 2021 (packed sequences).
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let query = Tensor::new([2, 1, 3, 1], &[0.0; 6]);
    /// let value = Tensor::new([2, 1, 3, 1], &[1.0, 3.0, 8.0, 1.0, 3.0, 8.0]);
    /// // All scores are 0, so each query gets the mean of the values that it attends to.
    /// let lengths = Tensor::new([2], &[2.0, 0.0]);
    /// let padded = query.attention_with(query, value, "none", lengths, 0.0, 1.0, 0.0);
    /// assert_eq!(padded.to_vec(), [2.0, 2.0, 2.0, 0.0, 0.0, 0.0]);
    /// let segments = Tensor::new([2, 3], &[7.0, 7.0, 8.0, 7.0, 8.0, 8.0]);
    /// let segments = [segments, segments];
    /// let packed = query.attention_with(query, value, "causal", segments, 0.0, 1.0, 0.0);
    /// assert_eq!(packed.to_vec(), [1.0, 2.0, 8.0, 1.0, 3.0, 5.5]);
    /// let bias = Tensor::new([3], &[0.0, 3.0_f64.ln(), f64::NEG_INFINITY]);
    /// let biased = query.attention_with(query, value, "none", .., bias, 1.0, 0.0);
    /// assert!((biased.to_vec()[0] - 2.5).abs() < 1e-12);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, `p` is not from 0 to below 1, or there is no such mask.
    #[must_use]
    #[expect(clippy::too_many_arguments, reason = "PyTorch's function has as many")]
    pub fn attention_with(
        self,
        key: Self,
        value: Self,
        mask: impl AttentionMask,
        segments: impl AttentionSegments,
        bias: impl Operand,
        scale: f64,
        p: f64,
    ) -> Self {
        let (segments, bias) = (segments.segments(), Some(bias.into_tensor()));
        let options = Options { segments, bias, p, ..Options::new(mask.seen(), scale) };
        self.attended("attention_with", key, value, &options)
    }

    /// Computes [`Self::attention_with`] whose scores are a function of the score, the head, the
    /// position of the query and that of the key, with the scale `1 / sqrt(d)` and without bias.
    /// Mask and segments hide keys besides, and a score of minus infinity hides its key.
    ///
    /// A model knows the function when it is built, and its kernel computes it. So the function
    /// computes with its four arguments and constants alone, by functions of elements. In a model,
    /// positions and heads are scalars of `i32`, and are counted over all devices; here each
    /// argument is a tensor of all values. Source: Dong, Feng, Guessous, Liang & He, "Flex
    /// Attention", 2024.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let query = Tensor::new([3, 1], &[0.0, 0.0, 0.0]);
    /// let value = Tensor::new([3, 1], &[1.0, 3.0, 7.0]);
    /// // Of scores 0, a key at distance n has n ln(2) less, and so half of the weight each time.
    /// let linear = query.flex_attention(query, value, "causal", .., |score, _, query, key| {
    ///     score - (query - key).to_f32() * 2.0_f64.ln()
    /// });
    /// assert!((linear.to_vec()[1] - 7.0 / 3.0).abs() < 1e-12);
    /// // Every second key.
    /// let dilated = query.flex_attention(query, value, "causal", .., |score, _, query, key| {
    ///     score.where_((query - key).remainder(2).eq(0), f64::NEG_INFINITY)
    /// });
    /// assert_eq!(dilated.to_vec(), [1.0, 3.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, or there is no such mask.
    #[must_use]
    pub fn flex_attention(
        self,
        key: Self,
        value: Self,
        mask: impl AttentionMask,
        segments: impl AttentionSegments,
        score: impl Fn(Self, Self, Self, Self) -> Self,
    ) -> Self {
        let options = Options {
            segments: segments.segments(),
            score: Some(&score),
            ..Options::new(mask.seen(), self.attention_scale())
        };
        self.attended("flex_attention", key, value, &options)
    }

    fn attention_scale(self) -> f64 {
        1.0 / (self.shape().last().copied().unwrap_or(1) as f64).sqrt()
    }

    /// Computes attention of which several heads of queries may share keys.
    fn attended(self, name: &str, key: Self, value: Self, options: &Options<'_>) -> Self {
        let (shape, shared) = (self.shape(), key.shape());
        let n_outer = shape.len().saturating_sub(3);
        if shape.len() < 3 || shared.len() != shape.len() || shape[n_outer] == shared[n_outer] {
            let weights = options.weights(self, key);
            return weights.dropped(options.p).matmul(value);
        }
        let (h, g) = (shape[n_outer], shared[n_outer]);
        assert!(
            g > 0 && h.is_multiple_of(g),
            "`{name}`: {h} heads of queries cannot share {g} heads of keys"
        );
        let [key, value] = [key, value].map(|it| it.repeat_interleave(h / g, n_outer));
        let weights = options.weights(self, key);
        // Weights are dropped by their indices, of which heads have two.
        let of_weights = weights.shape();
        let grouped = [&shape[..n_outer], &[g, h / g], &of_weights[n_outer + 1..]].concat();
        let weights = weights.reshaped(&grouped).dropped(options.p).reshaped(&of_weights);
        weights.matmul(value)
    }

    fn dropped(self, p: f64) -> Self {
        if p == 0.0 { self } else { self.dropout(p) }
    }
}

/// The keys that queries see by their positions.
#[derive(Clone, Copy, Debug)]
pub enum Seen {
    /// All.
    All,
    /// Those up to the query's own position.
    Causal,
    /// The last of those, these many.
    Window(usize),
}

/// The mask of [`Tensor::attention_with`]: `"none"`, `"causal"`, or the number of keys of a window.
pub trait AttentionMask {
    /// Returns the keys that queries see.
    ///
    /// # Panics
    /// If there is no such mask.
    fn seen(self) -> Seen;
}

impl AttentionMask for Seen {
    fn seen(self) -> Seen {
        self
    }
}

impl AttentionMask for &str {
    fn seen(self) -> Seen {
        match self {
            "none" => Seen::All,
            "causal" => Seen::Causal,
            other => {
                panic!("`attention_with`: `mask` must be \"none\" or \"causal\", found {other:?}")
            }
        }
    }
}

impl AttentionMask for usize {
    fn seen(self) -> Seen {
        assert!(self > 0, "`attention_with`: `mask` must be at least 1, found 0");
        Seen::Window(self)
    }
}

impl AttentionMask for i32 {
    fn seen(self) -> Seen {
        usize::try_from(self).unwrap_or(0).seen()
    }
}

/// The segments of queries and keys; a query sees the keys of its own.
#[derive(Clone, Copy, Debug)]
pub enum Segments {
    /// All are one segment.
    None,
    /// The first keys of each row, these many, are the segment of all queries.
    Lengths(Tensor),
    /// Those of queries `[.., n]` and of keys `[.., m]`.
    Pair([Tensor; 2]),
}

/// The segments of [`Tensor::attention_with`]: `..`, lengths, or those of queries and keys.
pub trait AttentionSegments {
    /// Returns the segments of queries and keys.
    fn segments(self) -> Segments;
}

impl AttentionSegments for Segments {
    fn segments(self) -> Segments {
        self
    }
}

impl AttentionSegments for RangeFull {
    fn segments(self) -> Segments {
        Segments::None
    }
}

impl AttentionSegments for Tensor {
    fn segments(self) -> Segments {
        Segments::Lengths(self)
    }
}

impl AttentionSegments for [Tensor; 2] {
    fn segments(self) -> Segments {
        Segments::Pair(self)
    }
}

impl AttentionSegments for (Tensor, Tensor) {
    fn segments(self) -> Segments {
        Segments::Pair([self.0, self.1])
    }
}

impl Segments {
    /// Returns 1 where a query sees a key, broadcast to scores `[.., n, m]`.
    fn are_same(self, scores: &[usize]) -> Option<Tensor> {
        let (n, m) = (scores[scores.len() - 2], scores[scores.len() - 1]);
        let [of_queries, of_keys] = match self {
            Self::None => return None,
            Self::Lengths(lengths) => {
                let is_inside = indices(m).lt(lengths.unsqueeze(-1));
                return Some(in_rows(is_inside, scores, [1, m]));
            }
            Self::Pair(pair) => pair,
        };
        Some(in_rows(of_queries, scores, [n, 1]).eq(in_rows(of_keys, scores, [1, m])))
    }
}

/// Returns numbers of queries or keys, `[.., n]`, whose leading dims are first ones of the scores,
/// as `[.., n, 1]` or `[.., 1, m]`.
fn in_rows(numbers: Tensor, scores: &[usize], last: [usize; 2]) -> Tensor {
    let shape = numbers.shape();
    let n_leading = shape.len().saturating_sub(1);
    let fits = n_leading + 2 <= scores.len()
        && shape[..n_leading] == scores[..n_leading]
        && shape.last() == Some(&(last[0] * last[1]));
    assert!(fits, "`attention_with`: segments {shape:?} do not fit scores {scores:?}");
    let ones = vec![1; scores.len() - 2 - n_leading];
    numbers.reshaped(&[&shape[..n_leading], &ones, &last].concat())
}

/// The options of attention.
struct Options<'a> {
    seen: Seen,
    segments: Segments,
    bias: Option<Tensor>,
    /// The score, from the scaled product, the head, and the positions of query and key.
    score: Option<&'a dyn Fn(Tensor, Tensor, Tensor, Tensor) -> Tensor>,
    scale: f64,
    p: f64,
}

impl Options<'_> {
    const fn new(seen: Seen, scale: f64) -> Self {
        Self { seen, segments: Segments::None, bias: None, score: None, scale, p: 0.0 }
    }

    /// Returns the weights of keys, `[.., n, m]`: all 0 for a query that sees none.
    fn weights(&self, query: Tensor, key: Tensor) -> Tensor {
        let products = query.matmul(key.transpose()) * self.scale;
        let shape = products.shape();
        let (queries, keys) = (indices(shape[shape.len() - 2]), indices(shape[shape.len() - 1]));
        let mut scores = self.bias.map_or(products, |bias| products + bias);
        assert_eq!(scores.shape(), shape, "`attention_with`: the bias does not fit the scores");
        if let Some(score) = self.score {
            let n_heads = if shape.len() > 2 { shape[shape.len() - 3] } else { 1 };
            let heads = indices(n_heads).reshape([n_heads, 1, 1]);
            scores = score(scores, heads, queries.unsqueeze(-1), keys);
            assert_eq!(scores.shape(), shape, "`flex_attention`: the function gives no score");
        }
        if let Some(are_same) = self.segments.are_same(&shape) {
            scores = scores.where_(are_same, f64::NEG_INFINITY);
        }
        let n_before = queries.unsqueeze(-1) - keys;
        let is_seen = match self.seen {
            Seen::All => None,
            Seen::Causal => Some(n_before.ge(0.0)),
            Seen::Window(window) => Some(n_before.ge(0.0) * n_before.lt(window as f64)),
        };
        if let Some(is_seen) = is_seen {
            scores = scores.where_(is_seen, f64::NEG_INFINITY);
        }
        let most = scores.max(-1).unsqueeze(-1);
        let powers = (scores - most.where_(most.ne(f64::NEG_INFINITY), 0.0)).exp();
        let total = powers.sum(-1).unsqueeze(-1);
        powers / total.where_(total.ne(0.0), 1.0)
    }
}

fn indices(extent: usize) -> Tensor {
    Tensor::new([extent], &(0..extent).map(|it| it as f64).collect::<Vec<_>>())
}
