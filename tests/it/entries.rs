//! Models with several entries: functions that run by themselves over the same parameters and
//! states, planned together.

mod training;

use soybean::{Config, Device, Network, Predictor, runtime::Array};

/// The texts: four of nine tokens, of which the first five are read at once.
const N_TEXTS: usize = 4;
const LENGTH: usize = 9;
const N_AT_ONCE: usize = 5;
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

macro_rules! chats {
    ($($name:ident on $gpus:literal by $strategy:literal,)*) => {
        $(#[soybean::model(
            gpus = $gpus,
            strategy = $strategy,
            mode = "inference",
            entries = (prefill, decode = N_NEW)
        )]
        pub(crate) mod $name {
            use soybean::{nn, prelude::*};

            const N_NEW: usize = 4;

            fn decoder(tokens: Tensor, places: Tensor, n_before: Tensor) -> Tensor {
                let mut h = nn::embedding(tokens, nn::Embedding { vocabulary: 10, width: 16 });
                h += nn::embedding(places, nn::Embedding { vocabulary: 9, width: 16 });
                let attention = nn::cached::Attention { n_heads: 4, capacity: 9 };
                for _ in 0..2 {
                    h = nn::cached::transformer_block(h, n_before, attention);
                }
                nn::linear(h, 10)
            }

            pub(crate) fn prefill(
                tokens: Tensor<i32, 4, 5>,
                places: Tensor<i32, 4, 5>,
                n_before: Tensor<i32, 4>,
            ) -> Tensor {
                decoder(tokens, places, n_before)
            }

            pub(crate) fn decode(
                tokens: Tensor<i32, 4, 1>,
                places: Tensor<i32, 4, 1>,
                n_before: Tensor<i32, 4>,
            ) -> Tensor {
                decoder(tokens, places, n_before)
            }
        }

        #[test]
        fn $name() {
            let mut predictor = $name::Predictor::new(config()).unwrap();
            let expected = expected(&mut predictor);
            for _ in 0..2 {
                let inputs = (tokens(0..5), places(0..5), [0; N_TEXTS]);
                let batch =
                    $name::Prefill { tokens: &inputs.0, places: &inputs.1, n_before: &inputs.2 };
                let logits = predictor.predict(&batch).unwrap().remove(0);
                compare(&logits, 0..5, &expected);
                assert_eq!(predictor.moved_bytes(), bytes::<$name::Network>(0));
                for place in N_AT_ONCE..LENGTH {
                    let range = place..place + 1;
                    let n_before = [integer(place); N_TEXTS];
                    let inputs = (tokens(range.clone()), places(range.clone()));
                    let batch = $name::Decode {
                        tokens: &inputs.0,
                        places: &inputs.1,
                        n_before: &n_before,
                    };
                    let logits = predictor.predict(&batch).unwrap().remove(0);
                    compare(&logits, range, &expected);
                    assert_eq!(predictor.moved_bytes(), bytes::<$name::Network>(1));
                }
                predictor.reset_states().unwrap();
            }
            planned_together::<$name::Network>();
        })*
    };
}

chats! {
    chat_on_one on 1 by "auto",
    chat_on_two on 2 by "auto",
    chat_on_six on 6 by "auto",
    chat_on_eight on 8 by "auto",
    chat_on_four_by_model on 4 by "model",
    chat_on_four_by_data on 4 by "data",
}

fn config() -> Config {
    Config { seed: 5, device: Device::Cpu, ..Config::default() }
}

fn integer(number: usize) -> i32 {
    i32::try_from(number).expect("texts are short")
}

fn of_texts(range: std::ops::Range<usize>, it: fn(usize, usize) -> usize) -> Vec<i32> {
    (0..N_TEXTS).flat_map(|text| range.clone().map(move |at| integer(it(text, at)))).collect()
}

fn tokens(range: std::ops::Range<usize>) -> Vec<i32> {
    of_texts(range, |text, place| (text * 31 + place * place * 7 + place) % N_TOKENS)
}

fn places(range: std::ops::Range<usize>) -> Vec<i32> {
    of_texts(range, |_, place| place)
}

/// Returns the logits of a model that reads whole texts, `[texts, LENGTH, tokens]`, after giving it
/// the parameters of a predictor.
fn expected<N: Network>(predictor: &mut Predictor<N>) -> Vec<f32> {
    let mut whole = whole::Predictor::new(config()).unwrap();
    let of_whole = |name: String| name.trim_start_matches("decoder.").to_owned();
    let parameters = predictor.parameters().unwrap();
    let parameters: Vec<(String, Array)> =
        parameters.into_iter().map(|(name, it)| (of_whole(name), it)).collect();
    whole.set_parameters(&parameters).unwrap();
    let (tokens, places) = (tokens(0..LENGTH), places(0..LENGTH));
    whole.predict(&whole::Batch { tokens: &tokens, places: &places }).unwrap().remove(0).data
}

/// Compares logits of these places with those of whole texts.
fn compare(found: &Array, range: std::ops::Range<usize>, expected: &[f32]) {
    assert_eq!(found.shape, [N_TEXTS, range.len(), N_TOKENS]);
    for (at, found) in found.data.chunks(N_TOKENS).enumerate() {
        let (text, place) = (at / range.len(), range.start + at % range.len());
        let expected = &expected[(text * LENGTH + place) * N_TOKENS..][..N_TOKENS];
        for (one, other) in found.iter().zip(expected) {
            assert!((one - other).abs() <= 2e-5, "text {text}, place {place}: {one}, not {other}");
        }
    }
}

fn bytes<N: Network>(entry: usize) -> u64 {
    N::model().tables().entries[entry].bytes
}

/// Checks that parameters and states exist once, and that the plan counts each entry's calls.
fn planned_together<N: Network>() {
    let tables = N::model().tables();
    let names: Vec<&str> = tables.entries.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["prefill", "decode"]);
    assert_eq!(tables.entries.iter().map(|it| it.n_calls).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(N::PLAN.bytes_total, bytes::<N>(0) + 4 * bytes::<N>(1));
    let of_whole = whole::Network::model().tables();
    assert_eq!(tables.parameters.len(), of_whole.parameters.len());
    assert_eq!(tables.states.len(), 4);
    assert_eq!(tables.inputs_of(1)[0].tile.shape[..], [N_TEXTS, 1]);
}

/// One function at two sizes of batches.
#[soybean::model(gpus = 2, mode = "inference", entries = (few, many = 3))]
mod sizes {
    use soybean::{nn, prelude::*};

    fn classifier(x: Tensor) -> Tensor {
        nn::linear(nn::batch_norm(nn::linear(x, 12)).relu(), 3)
    }

    pub(crate) fn few(x: Tensor<f32, 2, 6>) -> Tensor {
        classifier(x)
    }

    /// Has a second output, and needs one parameter more.
    pub(crate) fn many(x: Tensor<f32, 8, 6>) -> (Tensor, Tensor) {
        let y = classifier(x);
        (y, y * param("scale", [3], ones()))
    }
}

#[test]
fn batches_may_differ_in_size() {
    let mut predictor = sizes::Predictor::new(config()).unwrap();
    let names: Vec<String> = predictor.parameters().unwrap().into_iter().map(|it| it.0).collect();
    let expected = [
        "classifier.linear.0.weight",
        "classifier.linear.0.bias",
        "classifier.batch_norm.weight",
        "classifier.batch_norm.bias",
        "classifier.batch_norm.running_mean",
        "classifier.batch_norm.running_var",
        "classifier.linear.1.weight",
        "classifier.linear.1.bias",
        "scale",
    ];
    let sorted = |names: &[String]| {
        let mut names: Vec<&str> = names.iter().map(|it| &**it).collect();
        names.sort_unstable();
        names.join(" ")
    };
    assert_eq!(sorted(&names), sorted(&expected.map(str::to_owned)));
    let x: Vec<f32> = (0..48).map(|it| (it * it % 17) as f32 / 8.0 - 1.0).collect();
    let many = predictor.predict(&sizes::Many { x: &x }).unwrap();
    assert_eq!((many.len(), &many[0].data), (2, &many[1].data));
    assert_eq!(many[0].shape, [8, 3]);
    for rows in [2, 3, 8] {
        let few = predictor.predict(&sizes::Few { x: &x[..6 * rows] }).unwrap();
        assert_eq!((few.len(), few[0].shape.clone()), (1, vec![rows, 3]));
        assert_eq!(few[0].data, many[0].data[..3 * rows], "{rows}");
    }
    let fault = predictor.predict(&sizes::Few { x: &x[..7] }).unwrap_err();
    assert!(fault.to_string().contains("`x`"), "{fault}");
}
