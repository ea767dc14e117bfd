//! The same networks in candle, with our weights.

use std::{collections::HashMap, time::Instant};

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Embedding, LayerNorm, Linear, VarBuilder};
use candle_transformers::models::llama::{Cache, Config, Llama};
use soybean::Array;

use crate::{
    Seconds,
    gpt2::{Block, Gpt2},
    models::CAPACITY,
};

/// The weights by our names.
pub(crate) type Weights = [(String, Array)];

/// A network of candle.
pub(crate) enum Peer {
    Gpt2(Gpt2),
    Llama(Box<(Llama, Config)>),
}

fn weight(weights: &Weights, name: &str) -> Result<Tensor> {
    let (_, array) = weights.iter().find(|it| it.0 == name).expect("both have the same weights");
    Tensor::from_slice(&array.data, array.shape.as_slice(), &Device::Cpu)
}

pub(crate) fn gpt2(weights: &Weights) -> Result<Peer> {
    let named = |name: &str| weight(weights, name);
    let norm = |name: &str| -> Result<LayerNorm> {
        Ok(LayerNorm::new(named(&format!("{name}.weight"))?, named(&format!("{name}.bias"))?, 1e-5))
    };
    let linear = |name: &str| -> Result<Linear> {
        let weight = named(&format!("{name}.weight"))?.t()?.contiguous()?;
        Ok(Linear::new(weight, Some(named(&format!("{name}.bias"))?)))
    };
    let block = |number: usize| -> Result<Block> {
        let name = format!("gpt2.gpt2_block.{number}");
        let attention = format!("{name}.gpt2_attention.transposed_linear");
        let rest = format!("{name}.gpt2_feed_forward.transposed_linear");
        Ok(Block {
            norms: [norm(&format!("{name}.layer_norm.0"))?, norm(&format!("{name}.layer_norm.1"))?],
            layers: [
                linear(&format!("{attention}.0"))?,
                linear(&format!("{attention}.1"))?,
                linear(&format!("{rest}.0"))?,
                linear(&format!("{rest}.1"))?,
            ],
            n_heads: 12,
            cache: None,
        })
    };
    let words = named("gpt2.wte")?;
    Ok(Peer::Gpt2(Gpt2 {
        head: Linear::new(words.clone(), None),
        words: Embedding::new(words, 768),
        places: Embedding::new(named("gpt2.wpe")?, 768),
        blocks: (0..12).map(block).collect::<Result<_>>()?,
        norm: norm("gpt2.layer_norm")?,
    }))
}

pub(crate) fn llama(weights: &Weights) -> Result<Peer> {
    let config = Config {
        hidden_size: 1024,
        intermediate_size: 2816,
        vocab_size: 32000,
        num_hidden_layers: 8,
        num_attention_heads: 16,
        num_key_value_heads: 4,
        use_flash_attn: false,
        rms_norm_eps: 1e-5,
        rope_theta: 10000.0,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling: None,
        max_position_embeddings: CAPACITY,
        tie_word_embeddings: false,
    };
    let mut theirs = HashMap::new();
    let mut add = |name: String, ours: String| {
        theirs.insert(format!("{name}.weight"), weight(weights, &format!("{ours}.weight"))?);
        Ok::<(), candle_core::Error>(())
    };
    for number in 0..config.num_hidden_layers {
        let (layer, block) =
            (format!("model.layers.{number}"), format!("llama.llama_block.{number}"));
        let norms = ["input_layernorm", "post_attention_layernorm"];
        for (at, norm) in norms.into_iter().enumerate() {
            add(format!("{layer}.{norm}"), format!("{block}.rms_norm_with.{at}"))?;
        }
        for (at, name) in ["q_proj", "k_proj", "v_proj", "o_proj"].into_iter().enumerate() {
            let ours = format!("{block}.grouped_query_attention.linear_without_bias.{at}");
            add(format!("{layer}.self_attn.{name}"), ours)?;
        }
        for (at, name) in ["gate_proj", "up_proj", "down_proj"].into_iter().enumerate() {
            let ours = format!("{block}.swiglu.linear_without_bias.{at}");
            add(format!("{layer}.mlp.{name}"), ours)?;
        }
    }
    add("model.embed_tokens".to_owned(), "llama.embedding".to_owned())?;
    add("model.norm".to_owned(), "llama.rms_norm_with".to_owned())?;
    add("lm_head".to_owned(), "llama.linear_without_bias".to_owned())?;
    let builder = VarBuilder::from_tensors(theirs, DType::F32, &Device::Cpu);
    Ok(Peer::Llama(Box::new((Llama::load(builder, &config)?, config))))
}

impl Peer {
    /// Continues the prompt by the most probable tokens.
    pub(crate) fn run(&mut self, prompt: &[i32], n_new: usize) -> Result<(Vec<i32>, Seconds)> {
        let mut cache = match self {
            Self::Gpt2(network) => {
                network.reset();
                None
            }
            Self::Llama(network) => Some(Cache::new(true, DType::F32, &network.1, &Device::Cpu)?),
        };
        let started = Instant::now();
        let (mut tokens, mut n_read, mut first) = (prompt.to_vec(), 0, 0.0);
        while tokens.len() < prompt.len() + n_new {
            let unread: Vec<u32> = tokens[n_read..].iter().map(|it| it.cast_unsigned()).collect();
            let input = Tensor::new(unread, &Device::Cpu)?.unsqueeze(0)?;
            let logits = match (&mut *self, &mut cache) {
                (Self::Gpt2(network), _) => network.forward(&input, n_read)?,
                (Self::Llama(network), Some(cache)) => network.0.forward(&input, n_read, cache)?,
                (Self::Llama(_), None) => unreachable!("Llama has a cache"),
            };
            n_read = tokens.len();
            let logits = logits.flatten_all()?.to_vec1::<f32>()?;
            let largest = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
            tokens.extend(largest.and_then(|it| i32::try_from(it).ok()));
            if n_read == prompt.len() {
                first = started.elapsed().as_secs_f64();
            }
        }
        Ok((tokens.split_off(prompt.len()), [first, started.elapsed().as_secs_f64() - first]))
    }
}
