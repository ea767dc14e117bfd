//! The layers of `nn::padded` and `nn::packed`: each text has the results that it has alone.

use crate::support::arrays::tensor;
use soybean::{
    Config,
    eager::{self, Tensor},
    nn::{self, BertLayer, Gpt2Block, LlamaBlock, TransformerBlock},
};

const LENGTH: usize = 40;
const WIDTH: usize = 8;

#[soybean::constant]
const LAYER: BertLayer = BertLayer { n_heads: 2, hidden: 16, eps: 1e-5 };
#[soybean::constant]
const BLOCK: TransformerBlock = TransformerBlock { n_heads: 2, mask: "none", p: 0.0 };
#[soybean::constant]
const CAUSAL: TransformerBlock = TransformerBlock { mask: "causal", ..BLOCK };
#[soybean::constant]
const GPT2: Gpt2Block = Gpt2Block { n_heads: 2, p: 0.0 };
#[soybean::constant]
const LLAMA: LlamaBlock =
    LlamaBlock { n_heads: 2, n_key_value_heads: 1, hidden: 16, rope_theta: 10_000.0, eps: 1e-5 };

/// Enough positions for the fused kernel.
#[soybean::model(gpus = 2)]
mod padded {
    use soybean::{nn, prelude::*};

    use super::{BLOCK, CAUSAL, LAYER};

    pub(crate) fn forward(x: Tensor<f32, 2, 40, 8>, lengths: Tensor<i32, 2>) -> (Tensor, Tensor) {
        let h = nn::padded::bert_layer(x, lengths, LAYER);
        let h = nn::padded::transformer_block(h, lengths, CAUSAL);
        let h = nn::padded::transformer_block(h, lengths, BLOCK);
        (h.square().mean(..), h)
    }
}

#[soybean::model(gpus = 2)]
mod packed {
    use soybean::{nn, prelude::*};

    use super::{BLOCK, CAUSAL, GPT2, LLAMA};

    pub(crate) fn forward(
        x: Tensor<f32, 2, 40, 8>,
        segments: Tensor<i32, 2, 40>,
    ) -> (Tensor, Tensor) {
        let h = nn::packed::gpt2_block(x, segments, GPT2);
        let h = nn::packed::llama_block(h, segments, LLAMA);
        let h = nn::packed::transformer_block(h, segments, CAUSAL);
        let h = nn::packed::transformer_block(h, segments, BLOCK);
        (h.square().mean(..), h)
    }
}

fn number(at: usize) -> f32 {
    (at * 7919 % 2003) as f32 / 1001.0 - 1.0
}

/// Checks the rows of a result from a position on.
fn check(found: &[f32], expected: &[f64]) {
    for (found, expected) in found.iter().zip(expected) {
        // Some hundred operations in single precision on numbers near 1.
        let is_close = (f64::from(*found) - expected).abs() <= 1e-4 * expected.abs().max(1.0);
        assert!(is_close, "{found}, not {expected}");
    }
}

/// Returns positions of a row of numbers as a batch of one text.
fn text(row: &[f32], positions: std::ops::Range<usize>) -> Tensor {
    let n = positions.len();
    let numbers = &row[positions.start * WIDTH..positions.end * WIDTH];
    Tensor::new([1, n, WIDTH], &numbers.iter().map(|it| f64::from(*it)).collect::<Vec<_>>())
}

#[test]
fn padding_changes_no_text() {
    let mut trainer = padded::Trainer::new(Config::default()).unwrap();
    let parameters = trainer.parameters().unwrap();
    let lengths = [40, 23];
    let mut x: Vec<f32> = (0..2 * LENGTH * WIDTH).map(number).collect();
    let evaluate = |trainer: &mut padded::Trainer, x: &[f32]| {
        let batch = padded::Batch { x, lengths: &lengths.map(|it| i32::try_from(it).unwrap()) };
        trainer.evaluate(&batch).unwrap().outputs.remove(0).data
    };
    let found = evaluate(&mut trainer, &x);
    for (row, n) in lengths.into_iter().enumerate() {
        let start = row * LENGTH * WIDTH;
        let expected = eager::scope(|| {
            let values: Vec<Tensor> = parameters.iter().map(|it| tensor(&it.1)).collect();
            eager::with_parameters(&values, || {
                let h = nn::bert_layer(text(&x[start..], 0..n), LAYER);
                let h = nn::transformer_block(h, CAUSAL);
                nn::transformer_block(h, BLOCK).to_vec()
            })
        });
        check(&found[start..start + n * WIDTH], &expected);
    }
    let padding = (LENGTH + lengths[1]) * WIDTH..;
    x[padding].fill(100.0);
    let again = evaluate(&mut trainer, &x);
    let n_seen = (LENGTH + lengths[1]) * WIDTH;
    assert_eq!(found[..n_seen], again[..n_seen]);
}

#[test]
fn texts_in_a_row_do_not_see_each_other() {
    let mut trainer = packed::Trainer::new(Config::default()).unwrap();
    let parameters = trainer.parameters().unwrap();
    let x: Vec<f32> = (0..2 * LENGTH * WIDTH).map(number).collect();
    // The positions of the texts of each row.
    let texts: [Vec<std::ops::Range<usize>>; 2] =
        [vec![0..9, 9..39, 39..40], std::iter::once(0..LENGTH).collect()];
    let segment = |row: usize, at: usize| {
        let number = texts[row].iter().position(|it| it.contains(&at)).unwrap();
        i32::try_from(number).unwrap()
    };
    let segments: Vec<i32> =
        (0..2).flat_map(|row| (0..LENGTH).map(move |at| segment(row, at))).collect();
    let batch = packed::Batch { x: &x, segments: &segments };
    let found = trainer.evaluate(&batch).unwrap().outputs.remove(0).data;
    for (row, texts) in texts.iter().enumerate() {
        let start = row * LENGTH * WIDTH;
        for positions in texts {
            let expected = eager::scope(|| {
                let values: Vec<Tensor> = parameters.iter().map(|it| tensor(&it.1)).collect();
                eager::with_parameters(&values, || {
                    let h = nn::gpt2_block(text(&x[start..], positions.clone()), GPT2);
                    let h = nn::llama_block(h, LLAMA);
                    let h = nn::transformer_block(h, CAUSAL);
                    nn::transformer_block(h, BLOCK).to_vec()
                })
            });
            check(&found[start + positions.start * WIDTH..], &expected);
        }
    }
}
