//! Scopes: names of parameters that do not depend on the order of calls, and shared parameters.

use std::{collections::BTreeMap, fs, path::Path};

use soybean::{
    Config, Network,
    checkpoint::{Checkpoint, Checkpoints, Progress},
    weights,
};
use soybean_compiler::Recipe;
use soybean_test_support::models::{numbers, single};

/// Towers, a recurrent cell and a repeated block, each with parameters that calls share.
#[soybean::model(gpus = 4, optimizer = sgd())]
mod shared {
    use soybean::{nn, prelude::*};

    use super::layers;

    fn tower(x: Tensor) -> Tensor {
        let h = nn::linear(x, 6).tanh();
        scope("norm", || nn::batch_norm(h)).dropout(0.25)
    }

    fn cell(x: Tensor, h: Tensor) -> Tensor {
        let w = param("w", [6, x.dim(1) + 6], xavier_uniform()).tiled("r");
        concat([x, h], 1).matmul(w.transpose()).tanh()
    }

    pub(crate) fn forward(a: Tensor<f32, 8, 4>, b: Tensor<f32, 8, 4>) -> (Tensor, Tensor) {
        let left = scope("tower", || tower(a));
        let right = scope("tower", || tower(b));
        let mut h = left * 0.5;
        for t in 0..2 {
            h = scope("cell", || cell(a.slice(1, 2 * t, 2 * t + 2), h));
            // A layer of another module; the scope is in it.
            h = layers::twice(h);
        }
        for name in ["first", "second", "first"] {
            scope(name, || {
                h = h + layers::dense(h);
            });
        }
        ((h - right).square().mean(..), h)
    }
}

mod layers {
    use soybean::prelude::*;

    #[soybean::layer]
    pub(crate) fn dense(x: Tensor) -> Tensor {
        x.matmul(param("w", [x.dim(1), x.dim(1)], xavier_uniform())).sin()
    }

    /// Each of its calls has parameters of its own, which its two scopes share.
    #[soybean::layer]
    pub(crate) fn twice(x: Tensor) -> Tensor {
        let h = scope("dense", || dense(x));
        scope("dense", || dense(h))
    }
}

/// The same function with the parameters passed on by hand.
#[soybean::model(gpus = 1, optimizer = sgd())]
mod by_hand {
    use soybean::prelude::*;

    fn tower(x: Tensor, [w, b, scale, shift]: [Tensor; 4], [mean, var]: [Tensor; 2]) -> Tensor {
        let h = (x.matmul(w.transpose()) + b).tanh();
        h.batch_norm(mean, var, scale, shift, 0.1, 1e-5).dropout(0.25)
    }

    fn cell(x: Tensor, h: Tensor, w: Tensor) -> Tensor {
        concat([x, h], 1).matmul(w.transpose()).tanh()
    }

    fn dense(x: Tensor, w: Tensor) -> Tensor {
        x.matmul(w).sin()
    }

    pub(crate) fn forward(a: Tensor<f32, 8, 4>, b: Tensor<f32, 8, 4>) -> (Tensor, Tensor) {
        let linear = [
            param("w", [6, 4], zeros()),
            param("b", [6], zeros()),
            param("scale", [6], ones()),
            param("shift", [6], zeros()),
        ];
        let kept = [buffer("mean", [6], zeros()), buffer("var", [6], ones())];
        let left = tower(a, linear, kept);
        let right = tower(b, linear, kept);
        let mut h = left * 0.5;
        let w = param("cell", [6, 8], zeros());
        let twice = [param("twice_0", [6, 6], zeros()), param("twice_1", [6, 6], zeros())];
        let mut start = 0;
        for w_of_step in twice {
            h = cell(a.slice(1, start, start + 2), h, w);
            h = dense(dense(h, w_of_step), w_of_step);
            start += 2;
        }
        let first = param("first", [6, 6], zeros());
        let second = param("second", [6, 6], zeros());
        for w in [first, second, first] {
            h = h + dense(h, w);
        }
        ((h - right).square().mean(..), h)
    }
}

const NAMES: [(&str, &str); 11] = [
    ("tower.tower.linear.weight", "w"),
    ("tower.tower.linear.bias", "b"),
    ("tower.tower.norm.batch_norm.weight", "scale"),
    ("tower.tower.norm.batch_norm.bias", "shift"),
    ("tower.tower.norm.batch_norm.running_mean", "mean"),
    ("tower.tower.norm.batch_norm.running_var", "var"),
    ("cell.cell.w", "cell"),
    ("twice.0.dense.dense.w", "twice_0"),
    ("twice.1.dense.dense.w", "twice_1"),
    ("first.dense.w", "first"),
    ("second.dense.w", "second"),
];

// Guards: calls of one scope share parameters, buffers and pins, in loops and layers, at any depth;
// gradients add up, running statistics follow on, and each call drops its own elements.
#[test]
fn a_scope_that_begins_again_has_the_same_parameters() {
    let mut scoped = shared::Trainer::new(Config::default()).unwrap();
    let mut passed = by_hand::Trainer::new(Config::default()).unwrap();
    let initial: BTreeMap<_, _> = scoped.parameters().unwrap().into_iter().collect();
    let given: Vec<_> = NAMES.map(|(one, other)| (other.to_owned(), initial[one].clone())).into();
    assert_eq!(initial.len(), NAMES.len());
    passed.set_parameters(&given).unwrap();
    let (a, b) = (single(&numbers(32, 1)), single(&numbers(32, 2)));
    for _ in 0..5 {
        let found = scoped.step(&shared::Batch { a: &a, b: &b }).unwrap();
        let expected = passed.step(&by_hand::Batch { a: &a, b: &b }).unwrap();
        assert!((found - expected).abs() < 1e-5 * expected, "{found}, expected {expected}");
    }
    let expected: BTreeMap<_, _> = passed.parameters().unwrap().into_iter().collect();
    for (name, found) in scoped.parameters().unwrap() {
        let (_, other) = NAMES.iter().find(|it| it.0 == name).unwrap();
        for (found, expected) in found.data.iter().zip(&expected[*other].data) {
            assert!((found - expected).abs() < 1e-5, "{name}: {found}, expected {expected}");
        }
    }
    // A program that compiles its recipe again asks for the same parameters.
    let recipe: Recipe = shared::Trainer::PLAN.recipe.parse().unwrap();
    assert_eq!(recipe.to_string(), shared::Trainer::PLAN.recipe);
    let again = recipe.compile(&|| 0.0).unwrap().program.into_program().tables;
    assert_eq!(again.entries, shared::Network::model().tables().entries);
    let batch = shared::Batch { a: &a, b: &b };
    let eager = scoped.eager(&batch).unwrap();
    let found = scoped.evaluate(&batch).unwrap();
    assert!((eager.outputs[0].data[0] - found.loss).abs() < 1e-5);
}

// Guards: running statistics are those of PyTorch, where one module is called twice.
#[test]
fn running_statistics_follow_on_from_call_to_call() {
    let mut trainer = shared::Trainer::new(Config::default()).unwrap();
    let before: BTreeMap<_, _> = trainer.parameters().unwrap().into_iter().collect();
    let [w, bias] = ["weight", "bias"].map(|it| &before[&format!("tower.tower.linear.{it}")].data);
    let (a, b) = (single(&numbers(32, 1)), single(&numbers(32, 2)));
    trainer.step(&shared::Batch { a: &a, b: &b }).unwrap();
    let after: BTreeMap<_, _> = trainer.parameters().unwrap().into_iter().collect();
    let found = &after["tower.tower.norm.batch_norm.running_mean"].data;
    for feature in 0..6 {
        let mut expected = 0.0;
        for x in [&a, &b] {
            let h = |row: usize| {
                let products = (0..4).map(|it| x[4 * row + it] * w[4 * feature + it]);
                (products.sum::<f32>() + bias[feature]).tanh()
            };
            let mean = (0..8).map(h).sum::<f32>() / 8.0;
            expected = 0.9 * expected + 0.1 * mean;
        }
        assert!((found[feature] - expected).abs() < 1e-6, "{} {expected}", found[feature]);
    }
}

/// Two entries over one encoder with running statistics.
#[soybean::model(gpus = 2, optimizer = sgd(), entries = (near, far))]
mod normed {
    use soybean::{nn, prelude::*};

    fn encoder(x: Tensor) -> Tensor {
        nn::batch_norm(nn::linear(x, 6)).tanh()
    }

    pub(crate) fn near(x: Tensor<f32, 8, 4>) -> Tensor {
        scope("encoder", || encoder(x)).square().mean(..)
    }

    pub(crate) fn far(x: Tensor<f32, 8, 4>, y: Tensor<f32, 8, 4>) -> Tensor {
        let h = scope("encoder", || encoder(x)) - scope("encoder", || encoder(y));
        (h.square() - 1.0).square().mean(..)
    }
}

// Guards: entries share the running statistics of a scope, which evaluations read.
#[test]
fn running_statistics_of_a_scope_are_those_of_all_entries() {
    let mut trainer = normed::Trainer::new(Config::default()).unwrap();
    let (x, y) = (single(&numbers(32, 1)), single(&numbers(32, 2)));
    let (near, far) = (normed::Near { x: &x }, normed::Far { x: &x, y: &y });
    let mut losses = Vec::new();
    for _ in 0..3 {
        trainer.step(&near).unwrap();
        losses.push(trainer.evaluate(&far).unwrap().loss);
        trainer.step(&far).unwrap();
        let found = [trainer.evaluate(&near).unwrap().loss, trainer.evaluate(&far).unwrap().loss];
        let expected = [trainer.eager(&near).unwrap(), trainer.eager(&far).unwrap()];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected.outputs[0].data[0]).abs() < 1e-5);
        }
        losses.push(found[1]);
    }
    assert!(losses.windows(2).all(|it| it[0] != it[1]), "{losses:?}");
    let parameters = trainer.parameters().unwrap();
    let names: Vec<&str> = parameters.iter().map(|it| it.0.as_str()).collect();
    let start = "encoder.encoder.";
    assert!(names.len() == 6 && names.iter().all(|it| it.starts_with(start)), "{names:?}");
}

/// Two sums of what predictions are given, each in a scope.
#[soybean::model(gpus = 2, mode = "inference", entries = (add, both))]
mod sums {
    use soybean::prelude::*;

    fn sum(x: Tensor) -> Tensor {
        let sum = state("sum", [2, 3]);
        sum.assign(sum + x)
    }

    pub(crate) fn add(x: Tensor<f32, 2, 3>) -> Tensor {
        scope("first", || sum(x))
    }

    pub(crate) fn both(x: Tensor<f32, 2, 3>) -> (Tensor, Tensor) {
        (scope("first", || sum(x)), scope("second", || sum(x)))
    }
}

// Guards: the states of a scope are those of all entries, and of no other scope.
#[test]
fn states_of_a_scope_are_those_of_all_entries() {
    let mut predictor = sums::Predictor::new(Config::default()).unwrap();
    predictor.predict(&sums::Add { x: &[1.0; 6] }).unwrap();
    predictor.predict(&sums::Add { x: &[2.0; 6] }).unwrap();
    predictor.predict(&sums::Both { x: &[4.0; 6] }).unwrap();
    let found = predictor.predict(&sums::Both { x: &[8.0; 6] }).unwrap();
    assert_eq!([found[0].data[5], found[1].data[5]], [15.0, 12.0]);
    assert_eq!(predictor.predict(&sums::Add { x: &[0.0; 6] }).unwrap()[0].data[0], 15.0);
}

#[soybean::model(gpus = 1, mode = "inference")]
mod before {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 1, 4>) -> (Tensor, Tensor) {
        let mean = scope("mean", || nn::linear(x, 2));
        let log_variance = scope("log_variance", || nn::linear(x, 2));
        (mean, log_variance)
    }
}

#[soybean::model(gpus = 1, mode = "inference")]
mod exchanged {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 1, 4>) -> (Tensor, Tensor) {
        let log_variance = scope("log_variance", || nn::linear(x, 2));
        let mean = scope("mean", || nn::linear(x, 2));
        (mean, log_variance)
    }
}

// Guards: exchanging two layers with names in the source does not exchange their weights.
#[test]
fn names_of_scopes_do_not_depend_on_order() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scopes");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("order.safetensors");
    let mut one = before::Predictor::new(Config::default()).unwrap();
    weights::save(&file, &one.parameters().unwrap()).unwrap();
    let mut other = exchanged::Predictor::new(Config { seed: 1, ..Config::default() }).unwrap();
    other.load_weights(&file, &weights::Mapping::default()).unwrap();
    let x = [1.0, 2.0, 3.0, 4.0];
    let expected = one.predict(&before::Batch { x: &x }).unwrap();
    assert_eq!(other.predict(&exchanged::Batch { x: &x }).unwrap(), expected);
}

/// Two equal layers without names, on 2 devices, in this order and in the other.
#[soybean::model(gpus = 2, optimizer = adam())]
mod numbered {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 4, 4>) -> (Tensor, Tensor, Tensor) {
        let mean = nn::linear(nn::linear(x, 3), 2);
        let log_variance = nn::linear(nn::linear(x, 3), 2);
        ((mean.square() + log_variance.exp()).mean(..), mean, log_variance)
    }
}

#[soybean::model(gpus = 2, optimizer = adam())]
mod renumbered {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 4, 4>) -> (Tensor, Tensor, Tensor) {
        let log_variance = nn::linear(nn::linear(x, 3), 2);
        let mean = nn::linear(nn::linear(x, 3), 2);
        ((mean.square() + log_variance.exp()).mean(..), mean, log_variance)
    }
}

#[soybean::model(gpus = 1, mode = "inference")]
mod served {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 4, 4>) -> (Tensor, Tensor) {
        let log_variance = nn::linear(nn::linear(x, 3), 2);
        let mean = nn::linear(nn::linear(x, 3), 2);
        (mean, log_variance)
    }
}

/// The same layers in another network: nothing tells which of them is meant.
#[soybean::model(gpus = 1, mode = "inference")]
mod changed {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 4, 4>) -> (Tensor, Tensor) {
        let log_variance = nn::linear(nn::linear(x, 3).relu(), 2);
        let mean = nn::linear(nn::linear(x, 3).relu(), 2);
        (mean, log_variance)
    }
}

// Guards: layers without names that change places in the source never get each other's weights
// without a word: from files of weights, from checkpoints, in training and in inference.
#[test]
fn numbered_layers_that_change_places_are_an_error() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scopes/numbered");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("weights.safetensors");
    let mut trainer = numbered::Trainer::new(Config::default()).unwrap();
    trainer.step(&numbered::Batch { x: &[0.5; 16] }).unwrap();
    weights::save(&file, &trainer.parameters().unwrap()).unwrap();
    let path = trainer.save(&mut Checkpoints::new(&folder, 1), &Progress::default()).unwrap();
    let checkpoint = Checkpoint::open(path).unwrap();

    let mut other = renumbered::Trainer::new(Config::default()).unwrap();
    let mut predictor = served::Predictor::new(Config::default()).unwrap();
    let mapping = weights::Mapping::default();
    for error in [
        other.load_weights(&file, &mapping).unwrap_err(),
        other.load_weights(checkpoint.path(), &mapping).unwrap_err(),
        other.restore(&checkpoint).unwrap_err(),
        predictor.load_weights(&file, &mapping).unwrap_err(),
    ] {
        let message = error.to_string();
        let expected = "`linear.0.weight` was written by a model that uses it as this one uses \
                        `linear.2.weight`: equal layers have changed places";
        assert!(message.contains(expected), "{message}");
    }
    // The mapping says which is which.
    let pairs = [(0, 2), (1, 3), (2, 0), (3, 1)];
    let rules = pairs.map(|(theirs, ours)| format!("linear.{theirs}.* = linear.{ours}.*"));
    let mapping: weights::Mapping = rules.join("\n").parse().unwrap();
    predictor.load_weights(&file, &mapping).unwrap();
    let x = single(&numbers(16, 3));
    let evaluation = trainer.evaluate(&numbered::Batch { x: &x }).unwrap();
    let found = predictor.predict(&served::Batch { x: &x }).unwrap();
    for (found, expected) in found.iter().zip(&evaluation.outputs) {
        let is_close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
        assert!(found.data.iter().zip(&expected.data).all(is_close));
    }
    // What was written by the same model is what it was, and another network takes the names.
    trainer.load_weights(&file, &weights::Mapping::default()).unwrap();
    trainer.restore(&checkpoint).unwrap();
    let mut other = changed::Predictor::new(Config::default()).unwrap();
    other.load_weights(&file, &weights::Mapping::default()).unwrap();
}

#[soybean::model(gpus = 2)]
mod unrolled {
    use soybean::{nn, prelude::*};

    fn cell(x: Tensor, h: Tensor) -> Tensor {
        nn::linear(concat([x, h], 1), 16).tanh()
    }

    pub(crate) fn forward(x: Tensor<f32, 4, 5, 3>, y: Tensor<f32, 4, 16>) -> Tensor {
        let mut h = full([4, 16], 0.0);
        for t in 0..5 {
            h = cell(x.slice(1, t, t + 1).squeeze(1), h);
        }
        h.mse(y)
    }
}

// Guards: a cell that is called five times with weights of its own is never so without a word.
#[test]
fn plans_say_which_calls_have_weights_of_their_own() {
    let line =
        |plan: &str| plan.lines().find(|it| it.contains("separate weights")).map(str::to_owned);
    let found = line(unrolled::Trainer::PLAN.text).unwrap();
    assert_eq!(found, "  separate weights in               5 calls of `cell`");
    let found = line(shared::Trainer::PLAN.text).unwrap();
    assert_eq!(found, "  separate weights in               2 calls of `twice`");
    assert_eq!(line(before::Predictor::PLAN.text), None);
}
