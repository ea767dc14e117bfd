//! Predictions of trainers, and of inference models with a trainer's weights on other numbers of
//! devices.

use crate::support::arrays::tensor;
use soybean::{
    Array, Config, Device, Network, Predictor,
    checkpoint::{Checkpoints, Progress},
    eager::{self, Tensor},
    plan::Mode,
    weights::Mapping,
};

/// The layers that the models of this file share.
mod layers {
    use soybean::{nn::batch_norm, prelude::*};

    #[soybean::layer]
    pub(crate) fn block(x: Tensor, filters: usize) -> Tensor {
        let w = param("w", [filters, x.dim(1), 3, 3], he_normal());
        batch_norm(x.conv2d(w, 1, 1, 1, 1)).relu().dropout(0.5)
    }

    /// Returns logits and features of images `[n, 2, 4, 4]`.
    #[soybean::layer]
    pub(crate) fn classifier(x: Tensor) -> (Tensor, Tensor) {
        let mut h = x;
        for _ in 0..2 {
            h = block(h, 6);
        }
        let features = h.mean([2, 3]);
        let w = param("w", [6, 5], he_normal());
        (features.matmul(w) + param("b", [5], zeros()), features)
    }
}

#[soybean::model(gpus = 4, optimizer = sgd(momentum = 0.9))]
mod trained {
    use super::layers::classifier;
    use soybean::prelude::*;

    pub(crate) fn forward(
        x: Tensor<f32, 12, 2, 4, 4>,
        y: Tensor<i32, 12>,
    ) -> (Tensor, Tensor, Tensor) {
        let (logits, features) = classifier(x);
        (logits.cross_entropy(y), logits, features)
    }
}

macro_rules! predictors {
    ($($name:ident of $batch:literal on $gpus:literal by $strategy:literal,)*) => {
        $(#[soybean::model(gpus = $gpus, strategy = $strategy, mode = "inference")]
        mod $name {
            use super::layers::classifier;
            use soybean::prelude::*;

            pub(crate) fn forward(x: Tensor<f32, $batch, 2, 4, 4>) -> (Tensor, Tensor, Tensor) {
                let (logits, features) = classifier(x);
                (logits, features, logits.argmax(1))
            }
        }

        #[test]
        fn $name() {
            check::<$name::Network>(|x, use_batch| use_batch(&$name::Batch { x }));
        })*
    };
}

predictors! {
    alone of 12 on 1 by "auto",
    two of 7 on 2 by "auto",
    three_by_data of 6 on 3 by "data",
    four_by_model of 3 on 4 by "model",
    five_by_data of 7 on 5 by "data",
    six of 2 on 6 by "auto",
    seven of 6 on 7 by "auto",
    eight of 8 on 8 by "auto",
    eight_of_one of 1 on 8 by "auto",
    eight_recursive of 4 on 8 by "recursive",
}

const ROW: usize = 2 * 4 * 4;

fn config() -> Config {
    Config { seed: 5, learning_rate: 0.1, device: Device::Cpu, ..Config::default() }
}

fn batch() -> (Vec<f32>, Vec<i32>) {
    let number = |it: usize| (it * 7919 % 2003) as f32 / 700.0 - 1.0;
    ((0..12 * ROW).map(number).collect(), (0..12).map(|it| it * 3 % 5).collect())
}

fn trainer() -> trained::Trainer {
    let mut trainer = trained::Trainer::new(config()).unwrap();
    let (x, y) = batch();
    for _ in 0..4 {
        trainer.step(&trained::Batch { x: &x, y: &y }).unwrap();
    }
    trainer
}

/// Compares relative to the largest number. The tolerance is for sums of some dozen terms in
/// another order, through several layers.
fn assert_close(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1e-3, |scale: f32, it| scale.max(it.abs()));
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= 1e-5 * scale, "{what}: {found}, not {expected}");
    }
}

/// Passes a model's batch of `x` to a function.
type WithBatch<N> = fn(&[f32], &mut dyn FnMut(&<N as Network>::Batch<'_>));

/// Checks the outputs and moved bytes of a predictor with the weights of a trained model, for full
/// and partial batches.
fn check<N: Network>(with_batch: WithBatch<N>) {
    let mut trainer = trainer();
    let (x, _) = batch();
    let expected = trainer.predict(&trained::Batch { x: &x, y: &[] }).unwrap();
    let weights = trainer.parameters().unwrap();
    let mut predictor = Predictor::<N>::new(config()).unwrap();
    let drawn = predictor.parameters().unwrap();
    let names = |it: &[(String, Array)]| {
        it.iter().map(|(name, array)| format!("{name} {:?}", array.shape)).collect::<Vec<_>>()
    };
    assert_eq!(names(&drawn), names(&weights));
    predictor.set_parameters(&weights).unwrap();
    assert_eq!(predictor.parameters().unwrap(), weights);
    let n_rows = N::model().tables().inputs[0].tile.shape[0];
    for n_given in [n_rows, n_rows.div_ceil(2), 1, 11] {
        let mut found = Vec::new();
        with_batch(&x[..n_given * ROW], &mut |batch| found = predictor.predict(batch).unwrap());
        let what = format!("{n_given} rows of {n_rows}");
        for (array, whole) in found.iter().zip(&expected) {
            assert_eq!(array.shape, [n_given, whole.shape[1]], "{what}");
            assert_close(&what, &array.data, &whole.data[..array.data.len()]);
        }
        assert_eq!(found[2].shape, [n_given], "{what}");
        let largest = |row: &[f32]| (0..5).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
        let classes: Vec<f32> = found[0].data.chunks(5).map(|it| largest(it) as f32).collect();
        assert_eq!(found[2].data, classes, "{what}");
        assert_eq!(predictor.moved_bytes(), N::PLAN.bytes_total, "{what}");
        assert_eq!(predictor.fed_bytes(), N::model().tables().fed_bytes(0), "{what}");
    }
    check_plan::<N>(n_rows);
}

/// Checks the reports about a predictor.
fn check_plan<N: Network>(n_rows: usize) {
    let (program, plan) = (N::model().tables(), N::PLAN);
    assert_eq!((program.mode(), plan.mode), (Mode::Inference, Mode::Inference));
    assert_eq!((program.entries[0].bytes, program.train_bytes()), (plan.bytes_total, 0));
    assert!(program.states.is_empty() && program.loss().is_none());
    if plan.strategy == "auto" {
        assert!(plan.is_optimal);
        // Each output depends on one image.
        assert_eq!(plan.bytes_total == 0, n_rows.is_multiple_of(plan.n_gpus));
    }
    let json = soybean::explain::json(plan.recipe).unwrap();
    assert!(json.contains("\"mode\": \"inference\""));
    assert!(json.contains(&format!("\"bytes_total\": {},", plan.bytes_total)));
}

#[test]
fn weights_come_from_checkpoints() {
    let folder = std::env::temp_dir().join(format!("soybean-inference-{}", std::process::id()));
    let mut trainer = trainer();
    let saved = trainer.save(&mut Checkpoints::new(&folder, 1), &Progress::default()).unwrap();
    let mut predictor = six::Predictor::new(config()).unwrap();
    let weights = trainer.parameters().unwrap();
    let loaded = predictor.load_weights(&saved, &Mapping::default()).unwrap();
    assert_eq!((loaded.n_tensors, loaded.missing.len()), (weights.len(), 0));
    assert_eq!(predictor.parameters().unwrap(), weights);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_trainer_predicts_what_its_function_says_of_an_evaluation() {
    let mut trainer = trainer();
    let (x, y) = batch();
    let whole = trainer.evaluate(&trained::Batch { x: &x, y: &y }).unwrap().outputs;
    assert_eq!(trainer.predict(&trained::Batch { x: &x, y: &[] }).unwrap(), whole);
    assert_eq!(trainer.moved_bytes(), trained::Network::model().tables().entries[0].bytes);
    let one = trainer.predict(&trained::Batch { x: &x[..ROW], y: &[] }).unwrap();
    let weights = trainer.parameters().unwrap();
    let expected = eager::scope(|| {
        let values: Vec<Tensor> = weights.iter().map(|(_, array)| tensor(array)).collect();
        let image: Vec<f64> = x[..ROW].iter().map(|it| f64::from(*it)).collect();
        eager::with_parameters(&values, || {
            layers::classifier(Tensor::new([1, 2, 4, 4], &image)).0.to_vec()
        })
    });
    assert_eq!(one[0].shape, [1, 5]);
    for (found, expected) in one[0].data.iter().zip(&expected) {
        assert!((f64::from(*found) - expected).abs() < 1e-4, "{found}, not {expected}");
    }
}

use soybean::prelude::{he_normal, param};

#[soybean::model(gpus = 2, mode = "inference")]
fn mixing(x: Tensor<f32, 4, 6>) -> Tensor {
    // The softmax is over the batch.
    x.matmul(param("w", [6, 6], he_normal())).softmax(0)
}

#[soybean::model(gpus = 2, mode = "inference")]
fn without_rows(x: Tensor<f32, 4, 6>, mask: Tensor<f32, 6, 6>) -> Tensor {
    x.matmul(param("w", [6, 6], he_normal()) * mask)
}

#[soybean::model(gpus = 2)]
fn without_outputs(x: Tensor<f32, 4, 6>) -> Tensor {
    x.matmul(param("w", [6, 6], he_normal())).square().mean(..)
}

#[soybean::model(gpus = 2, mode = "inference")]
fn words(x: Tensor<i32, 4>) -> Tensor {
    x.embedding(param("w", [10, 6], he_normal()))
}

#[test]
fn a_word_that_is_none_is_refused_by_its_row_among_all() {
    let mut predictor = words::Predictor::new(config()).unwrap();
    let mut x = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    assert_eq!(predictor.predict(&words::Batch { x: &x }).unwrap()[0].shape, [10, 6]);
    x[9] = 10;
    let message = predictor.predict(&words::Batch { x: &x }).unwrap_err().to_string();
    assert_eq!(message, "input `x`, row 9: expected a label in 0..10, found 10");
}

#[test]
fn what_cannot_be_predicted_is_refused() {
    let mut predictor = mixing::Predictor::new(config()).unwrap();
    let x = [0.5; 24];
    assert_eq!(predictor.predict(&mixing::Batch { x: &x }).unwrap()[0].shape, [4, 6]);
    let message = predictor.predict(&mixing::Batch { x: &x[..6] }).unwrap_err().to_string();
    assert!(message.contains("the rows of output `output.0` cannot be told apart"), "{message}");
    let message = predictor.predict(&mixing::Batch { x: &x[..7] }).unwrap_err().to_string();
    let expected = "input `x`: expected one or more rows of 6 elements, found 7 elements";
    assert_eq!(message, expected);
    let mut predictor = without_rows::Predictor::new(config()).unwrap();
    let mask = [1.0; 36];
    let whole = without_rows::Batch { x: &x, mask: &mask };
    assert_eq!(predictor.predict(&whole).unwrap()[0].shape, [4, 6]);
    let part = without_rows::Batch { x: &x[..6], mask: &mask };
    let message = predictor.predict(&part).unwrap_err().to_string();
    assert_eq!(message, "input `x`: expected 24 elements for shape [4, 6], found 6");
    let mut trainer = without_outputs::Trainer::new(config()).unwrap();
    let error = trainer.predict(&without_outputs::Batch { x: &x }).unwrap_err();
    let expected = "expected a model with outputs beside its loss, found none";
    assert_eq!(error.to_string(), expected);
    let foreign = vec![(
        "v".to_owned(),
        Array { shape: vec![6, 6], data: vec![0.0; 36], ..Array::default() },
    )];
    let error = predictor.set_parameters(&foreign).unwrap_err();
    assert_eq!(error.to_string(), "expected parameters w, found `v`");
}
