//! GPT-2 in candle, whose crates have none: the operators that its other decoders use.

use candle_core::{D, Module, Result, Tensor};
use candle_nn::{Embedding, LayerNorm, Linear, ops::softmax_last_dim};

pub(crate) struct Gpt2 {
    pub(crate) words: Embedding,
    pub(crate) places: Embedding,
    pub(crate) blocks: Vec<Block>,
    pub(crate) norm: LayerNorm,
    /// The table of words, transposed when it is applied.
    pub(crate) head: Linear,
}

pub(crate) struct Block {
    pub(crate) norms: [LayerNorm; 2],
    /// Queries, keys and values; the output of attention; the two layers after it.
    pub(crate) layers: [Linear; 4],
    pub(crate) n_heads: usize,
    pub(crate) cache: Option<(Tensor, Tensor)>,
}

impl Gpt2 {
    pub(crate) fn reset(&mut self) {
        self.blocks.iter_mut().for_each(|it| it.cache = None);
    }

    /// Returns the logits of the token after the last of `tokens [1, n]`, which come after
    /// `n_before` others.
    pub(crate) fn forward(&mut self, tokens: &Tensor, n_before: usize) -> Result<Tensor> {
        let n = tokens.dim(1)?;
        let places = Tensor::arange(n_before as u32, (n_before + n) as u32, tokens.device())?;
        let mut h = self.words.forward(tokens)?.broadcast_add(&self.places.forward(&places)?)?;
        for block in &mut self.blocks {
            h = block.forward(&h)?;
        }
        let last = self.norm.forward(&h)?.narrow(1, n - 1, 1)?;
        self.head.forward(&last)
    }
}

impl Block {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        let attended = self.attend(&self.norms[0].forward(x)?)?;
        let h = (x + self.layers[1].forward(&attended)?)?;
        let inner = self.layers[2].forward(&self.norms[1].forward(&h)?)?.gelu()?;
        h + self.layers[3].forward(&inner)?
    }

    fn attend(&mut self, x: &Tensor) -> Result<Tensor> {
        let (batch, n, width) = x.dims3()?;
        let joined = self.layers[0].forward(x)?;
        let heads = |part: usize| {
            let part = joined.narrow(D::Minus1, part * width, width)?;
            let shape = (batch, n, self.n_heads, width / self.n_heads);
            part.reshape(shape)?.transpose(1, 2)?.contiguous()
        };
        let (query, mut key, mut value) = (heads(0)?, heads(1)?, heads(2)?);
        if let Some((keys, values)) = &self.cache {
            key = Tensor::cat(&[keys, &key], 2)?.contiguous()?;
            value = Tensor::cat(&[values, &value], 2)?.contiguous()?;
        }
        self.cache = Some((key.clone(), value.clone()));
        let scale = ((width / self.n_heads) as f64).sqrt();
        let mut scores = (query.matmul(&key.t()?)? / scale)?;
        if n > 1 {
            let later = |i| (0..n).map(move |j| if j > i { f32::NEG_INFINITY } else { 0.0 });
            let mask: Vec<f32> = (0..n).flat_map(later).collect();
            scores = scores.broadcast_add(&Tensor::from_vec(mask, (n, n), x.device())?)?;
        }
        let attended = softmax_last_dim(&scores)?.matmul(&value)?;
        attended.transpose(1, 2)?.reshape((batch, n, width))
    }
}
