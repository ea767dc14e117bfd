//! States of inference models: a decoder that keeps the keys and values of the tokens so far.

use soybean::{Config, Device, Network, Predictor, runtime::View};

use crate::example_networks::{self, gpt2::Gpt2, llama::Llama};

/// The texts: four of nine tokens.
const N_TEXTS: usize = 4;
const LENGTH: usize = 9;
/// The number of different tokens.
const N_TOKENS: usize = 10;

#[soybean::model(gpus = 1, mode = "inference")]
mod whole {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(tokens: Tensor<i32, 4, 9>, places: Tensor<i32, 4, 9>) -> Tensor {
        let mut h = nn::embedding(tokens, nn::Embedding { vocabulary: 10, width: 16 });
        h += nn::embedding(places, nn::Embedding { vocabulary: 9, width: 16 });
        for _ in 0..2 {
            h = nn::transformer_block(
                h,
                nn::TransformerBlock { n_heads: 4, mask: "causal", p: 0.0 },
            );
        }
        nn::linear(h, 10)
    }
}

#[soybean::constant]
const GPT2: Gpt2 =
    Gpt2 { vocabulary: 10, n_positions: 9, width: 16, n_heads: 4, n_layers: 2, dropout: 0.0 };

#[soybean::constant]
const LLAMA: Llama = Llama {
    vocabulary: 10,
    width: 16,
    hidden: 24,
    n_heads: 4,
    n_key_value_heads: 2,
    n_layers: 2,
    rope_theta: 500.0,
    eps: 1e-5,
};

#[soybean::model(gpus = 1, mode = "inference")]
mod whole_gpt2 {
    use soybean::prelude::*;

    use super::{GPT2, example_networks};

    pub(crate) fn forward(tokens: Tensor<i32, 4, 9>) -> Tensor {
        example_networks::gpt2::gpt2(tokens, GPT2)
    }
}

#[soybean::model(gpus = 1, mode = "inference")]
mod whole_llama {
    use soybean::prelude::*;

    use super::{LLAMA, example_networks};

    pub(crate) fn forward(tokens: Tensor<i32, 4, 9>) -> Tensor {
        example_networks::llama::llama(tokens, LLAMA)
    }
}

macro_rules! decoders {
    ($($name:ident of $length:literal on $gpus:literal by $strategy:literal,)*) => {
        $(#[soybean::model(gpus = $gpus, strategy = $strategy, mode = "inference")]
        mod $name {
            use soybean::{nn, prelude::*};

            pub(crate) fn forward(
                tokens: Tensor<i32, 4, $length>,
                places: Tensor<i32, 4, $length>,
                n_before: Tensor<i32, 4>,
            ) -> Tensor {
                let mut h = nn::embedding(tokens, nn::Embedding { vocabulary: 10, width: 16 });
                h += nn::embedding(places, nn::Embedding { vocabulary: 9, width: 16 });
                let attention = nn::cached::Attention { n_heads: 4, capacity: 9 };
                for _ in 0..2 {
                    h = nn::cached::transformer_block(h, n_before, attention);
                }
                nn::linear(h, 10)
            }
        }

        #[test]
        fn $name() {
            check::<whole::Network, $name::Network>($length);
        })*
    };
}

decoders! {
    token_on_one of 1 on 1 by "auto",
    token_on_two of 1 on 2 by "auto",
    token_on_six of 1 on 6 by "auto",
    token_on_eight of 1 on 8 by "auto",
    token_on_four_by_model of 1 on 4 by "model",
    tokens_on_one of 3 on 1 by "auto",
    tokens_on_four_by_data of 3 on 4 by "data",
    tokens_on_eight of 3 on 8 by "auto",
}

/// Decoders of Hugging Face's models.
macro_rules! pretrained {
    ($($name:ident of $length:literal on $gpus:literal by $strategy:literal: $whole:ident,
        |$tokens:ident, $n_before:ident| $logits:expr;)*) => {
        $(#[soybean::model(gpus = $gpus, strategy = $strategy, mode = "inference")]
        mod $name {
            use soybean::prelude::*;

            use super::example_networks;

            pub(crate) fn forward(
                $tokens: Tensor<i32, 4, $length>,
                $n_before: Tensor<i32, 4>,
            ) -> Tensor {
                $logits
            }
        }

        #[test]
        fn $name() {
            check::<$whole::Network, $name::Network>($length);
        })*
    };
    (@gpt2 $($name:ident of $length:literal on $gpus:literal by $strategy:literal,)*) => {
        pretrained! {$(
            $name of $length on $gpus by $strategy: whole_gpt2, |tokens, n_before|
                example_networks::gpt2::cached::gpt2(tokens, n_before, super::GPT2);
        )*}
    };
    (@llama $($name:ident of $length:literal on $gpus:literal by $strategy:literal,)*) => {
        pretrained! {$(
            $name of $length on $gpus by $strategy: whole_llama, |tokens, n_before|
                example_networks::llama::cached::llama(tokens, n_before, super::LLAMA, 9);
        )*}
    };
}

pretrained! {
    @gpt2
    gpt2_token_on_one of 1 on 1 by "auto",
    gpt2_token_on_two of 1 on 2 by "auto",
    gpt2_token_on_four_by_model of 1 on 4 by "model",
    gpt2_token_on_six of 1 on 6 by "auto",
    gpt2_token_on_eight of 1 on 8 by "auto",
    gpt2_tokens_on_four of 3 on 4 by "auto",
}

pretrained! {
    @llama
    llama_token_on_one of 1 on 1 by "auto",
    llama_token_on_two of 1 on 2 by "auto",
    llama_token_on_four_by_model of 1 on 4 by "model",
    llama_token_on_six of 1 on 6 by "auto",
    llama_token_on_eight of 1 on 8 by "auto",
    llama_tokens_on_four of 3 on 4 by "auto",
}

fn config() -> Config {
    Config { seed: 5, device: Device::Cpu, ..Config::default() }
}

fn integer(number: usize) -> i32 {
    i32::try_from(number).expect("texts are short")
}

fn token(text: usize, place: usize) -> i32 {
    integer((text * 31 + place * place * 7 + place) % N_TOKENS)
}

/// Returns the inputs of a model that has some of these.
fn batch<'a, N: Network>(
    tokens: &'a [i32],
    places: &'a [i32],
    n_before: &'a [i32],
) -> Vec<View<'a>> {
    let input = |name: &str| match name {
        "tokens" => View::I32(tokens),
        "places" => View::I32(places),
        "n_before" => View::I32(n_before),
        other => unreachable!("no model has the input {other}"),
    };
    N::model().tables().inputs.iter().map(|it| input(&it.name)).collect()
}

/// Compares a decoder of `length` tokens of each text with the model `W`, which reads texts as a
/// whole. Text `i` begins with the prediction of number `i`.
fn check<W: Network, N: Network>(length: usize) {
    let all = |it: fn(usize, usize) -> i32| -> Vec<i32> {
        (0..N_TEXTS).flat_map(|text| (0..LENGTH).map(move |place| it(text, place))).collect()
    };
    let (tokens, places) = (all(token), all(|_, place| integer(place)));
    let mut whole = Predictor::<W>::new(config()).unwrap();
    let expected = whole.predict(&batch::<W>(&tokens, &places, &[])).unwrap().remove(0);
    let mut decoder = Predictor::<N>::new(config()).unwrap();
    decoder.set_parameters(&whole.parameters().unwrap()).unwrap();
    for round in 0..2 {
        let mut n_compared = 0;
        for number in 0..LENGTH / length + N_TEXTS - 1 {
            let start = |text: usize| number.saturating_sub(text).min(LENGTH / length - 1) * length;
            let new = |it: fn(usize, usize) -> i32| -> Vec<i32> {
                let of = |text| (start(text)..start(text) + length).map(move |at| it(text, at));
                (0..N_TEXTS).flat_map(of).collect()
            };
            let (tokens, places) = (new(token), new(|_, place| integer(place)));
            let n_before: Vec<i32> = (0..N_TEXTS).map(|text| integer(start(text))).collect();
            let batch = batch::<N>(&tokens, &places, &n_before);
            let found = decoder.predict(&batch).unwrap().remove(0);
            assert_eq!(found.shape, [N_TEXTS, length, N_TOKENS]);
            assert_eq!(decoder.moved_bytes(), N::PLAN.bytes_total);
            let (found, expected) = (found.data.chunks(N_TOKENS), &expected.data);
            for (at, found) in found.enumerate() {
                let (text, place) = (at / length, start(at / length) + at % length);
                let row = (text * LENGTH + place) * N_TOKENS;
                for (one, other) in found.iter().zip(&expected[row..]) {
                    let what = format!("round {round}, text {text}, place {place}");
                    assert!((one - other).abs() <= 2e-5, "{what}: {one}, not {other}");
                    n_compared += 1;
                }
            }
        }
        assert!(n_compared >= N_TEXTS * LENGTH * N_TOKENS);
        // Afterwards all is as at the start.
        decoder.reset_states().unwrap();
    }
}

/// A state is zero at first, takes what is assigned to it, and may be read before and after that.
#[test]
fn states_follow_assignments() {
    let mut predictor = fibonacci::Predictor::new(config()).unwrap();
    for _ in 0..2 {
        let mut expected = (0.0, 0.0);
        for number in 0..6 {
            let start = if number == 0 { 1.0 } else { 0.0 };
            let outputs = predictor.predict(&fibonacci::Batch { start: &[start; 4] }).unwrap();
            let before = expected;
            expected = (before.1 + start, before.0 + before.1);
            let found = [0, 1, 2].map(|it| outputs[it].data[3]);
            assert_eq!(found, [before.0, expected.0, expected.0 + before.1], "{number}");
        }
        predictor.reset_states().unwrap();
    }
    let fault = predictor.predict(&fibonacci::Batch { start: &[0.0; 3] }).unwrap_err();
    let expected = "the model keeps states of the rows of its batch: expected 4 rows, found 3";
    assert!(fault.to_string().contains(expected), "{fault}");
}

#[soybean::model(gpus = 2, mode = "inference")]
mod fibonacci {
    use soybean::prelude::*;

    pub(crate) fn forward(start: Tensor<f32, 4>) -> (Tensor, Tensor, Tensor) {
        let (one, two) = (state("one", [4]), state("two", [4]));
        let new_one = one.assign(two + start);
        two.assign(one + two);
        (one * 1.0, new_one, new_one + two)
    }
}

/// A cache of attention stays where it is: programs write it in place, without a second copy.
#[test]
fn caches_are_written_in_place() {
    let tables = token_on_one::Network::model().tables();
    let of_states: usize = tables.states.iter().map(|it| it.tile.shape.n_elements() * 4).sum();
    assert_eq!(of_states, 4 * N_TEXTS * 16 * LENGTH * 4);
    assert_eq!(tables.states[0].name, "transformer_block.0.multi_head_attention.attention.keys");
    let of_parameters: usize =
        tables.parameters.iter().map(|it| it.tile.shape.n_elements() * 4).sum();
    let rest = tables.arena_bytes - of_states - of_parameters;
    assert!(rest < of_states, "{rest} bytes beside {of_states} of states");
}
