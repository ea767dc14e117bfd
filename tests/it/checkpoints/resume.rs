//! Runs that are interrupted and resumed under another plan.

use soybean::{
    checkpoint::{Checkpoint, Checkpoints},
    runtime::{ErrorKind, Trainer},
};
use soybean_compiler::{Compiled, Optimizer, optimizer};
use soybean_plan::random::mixed;

use soybean_test_support::models::{self, perceptron, sgd};

use super::{
    environment::folder,
    network::{adam, bits, network, progress, state, train, trainer},
};

#[test]
fn a_run_that_is_interrupted_at_twenty_random_places_ends_with_the_same_bits() {
    let compiled = network(4, "auto", adam());
    let start = || models::trainer(&compiled, 0.003);
    let mut undisturbed = start();
    let expected = train(&mut undisturbed, 60);
    let mut places: Vec<u64> = (0..20).map(|it| mixed(it) % 60).collect();
    places.sort_unstable();
    let mut checkpoints = Checkpoints::new(folder("interrupted"), 2);
    let mut trainer = start();
    let mut losses = Vec::new();
    for place in places {
        let n_steps = place - trainer.n_steps();
        losses.extend(train(&mut trainer, n_steps));
        checkpoints.save(&mut trainer, &progress(place)).unwrap();
        // Training after the last checkpoint is lost.
        train(&mut trainer, 1);
        trainer = start();
        let latest = checkpoints.latest().unwrap();
        assert!(latest.refused.is_empty());
        let resumed = trainer.restore(&latest.checkpoint.unwrap()).unwrap();
        assert_eq!((resumed, trainer.n_steps()), (progress(place), place));
    }
    let n_steps = 60 - trainer.n_steps();
    losses.extend(train(&mut trainer, n_steps));
    assert_eq!(losses, expected);
    assert_eq!(state(&mut trainer), state(&mut undisturbed));
}

#[test]
fn a_run_goes_on_with_other_plans_and_the_same_losses() {
    let mut eight = trainer(8);
    train(&mut eight, 10);
    let path = Checkpoints::new(folder("other_plans"), 1).save(&mut eight, &progress(1)).unwrap();
    let checkpoint = Checkpoint::open(path).unwrap();
    let expected = state(&mut eight);
    let expected_losses = train(&mut eight, 20);
    for (n_gpus, strategy) in
        [(4, "auto"), (5, "auto"), (6, "auto"), (7, "data"), (1, "auto"), (8, "data"), (8, "model")]
    {
        let mut other = models::trainer(&network(n_gpus, strategy, adam()), 0.003);
        other.restore(&checkpoint).unwrap();
        assert_eq!(state(&mut other), expected, "{n_gpus}, {strategy}");
        for (step, (found, expected)) in
            train(&mut other, 20).iter().zip(&expected_losses).enumerate()
        {
            // Sums of some dozen terms in another order, over 20 steps.
            let is_close = (found - expected).abs() <= 1e-4 * expected.abs();
            assert!(is_close, "{n_gpus}, {strategy}, step {step}: {found}, not {expected}");
        }
    }
}

#[track_caller]
fn refusal(trainer: &mut Trainer, checkpoint: &Checkpoint) -> String {
    let before = state(trainer);
    let error = trainer.restore(checkpoint).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checkpoint);
    assert!(state(trainer) == before, "a checkpoint that does not fit changes nothing");
    let text = error.to_string();
    let (path, rest) = text.split_once(": ").unwrap();
    assert_eq!(path, checkpoint.path().to_str().unwrap());
    rest.to_owned()
}

#[test]
fn what_does_not_fit_is_listed() {
    let start = |compiled: &Compiled| models::trainer(compiled, 0.01);
    let mut saved = trainer(2);
    let path = Checkpoints::new(folder("misfits"), 1).save(&mut saved, &progress(0)).unwrap();
    let checkpoint = Checkpoint::open(path).unwrap();
    let momentum = refusal(&mut start(&network(2, "auto", sgd(0.9))), &checkpoint);
    assert_eq!(
        momentum,
        "expected a checkpoint of the model `model`: it is of another optimizer: expected one that keeps `momentum`, found one that keeps `mean`, `square_mean`"
    );
    let plain = refusal(&mut start(&network(2, "auto", sgd(0.0))), &checkpoint);
    assert!(
        plain.ends_with(
            "expected one that keeps nothing, found one that keeps `mean`, `square_mean`"
        ),
        "{plain}"
    );
    let adamw = optimizer("adamw", &[]).unwrap();
    let other = refusal(&mut start(&perceptron(2, "auto".parse().unwrap(), adamw)), &checkpoint);
    assert_eq!(
        other,
        "expected a checkpoint of the model `model`: without `second.b`, `second.w`; with the unexpected `norm.bias`, `norm.running_mean`, `norm.running_var`, `norm.weight`"
    );
}

/// Ranks of data parallelism hold partial sums of gradients between the steps of an update. A
/// checkpoint has the whole sums, and one rank gets them back.
#[test]
fn sums_of_gradients_are_saved_whole_and_resumed_on_any_number_of_devices() {
    let start = |n_gpus, strategy| {
        let optimizer = Optimizer { accumulate: 4, ..adam() };
        network(n_gpus, strategy, optimizer)
    };
    let compiled = start(4, "data");
    let is_partial = |it: &soybean_plan::State| !it.tile.tiling.partial_axes().is_empty();
    let states = &compiled.program.tables.states;
    assert!(states.iter().any(|it| it.name == "last.w.gradient_sum" && is_partial(it)));
    let mut alone = models::trainer(&start(1, "auto"), 0.003);
    for n_saved in [6, 8] {
        let mut saved = models::trainer(&compiled, 0.003);
        train(&mut saved, n_saved);
        let name = format!("sums{n_saved}");
        let path = Checkpoints::new(folder(&name), 1).save(&mut saved, &progress(0)).unwrap();
        let checkpoint = Checkpoint::open(path).unwrap();
        // One device has the same sums, within rounding.
        let n_steps = n_saved - alone.n_steps();
        train(&mut alone, n_steps);
        let sums = |it: &mut Trainer| {
            let mut states = it.optimizer_state().unwrap();
            states.retain(|it| it.0.ends_with(".gradient_sum"));
            states
        };
        let whole = sums(&mut saved);
        for ((name, found), (_, expected)) in whole.iter().zip(sums(&mut alone)) {
            let size = expected.data.iter().fold(0.0_f32, |size, it| size.max(it.abs()));
            assert_eq!(size > 0.0, n_saved == 6, "{name}");
            for (found, expected) in found.data.iter().zip(expected.data) {
                // The batch norm leaves rounding alone of the gradient of the bias before it.
                let most = 1e-3 * size + 1e-6;
                assert!((found - expected).abs() <= most, "{name}: {found}, {expected}");
            }
        }
        let state_saved = state(&mut saved);
        let expected = train(&mut saved, 10);
        for (n_gpus, strategy) in [(4, "data"), (8, "data"), (4, "auto"), (6, "model"), (1, "auto")]
        {
            let mut resumed = models::trainer(&start(n_gpus, strategy), 0.003);
            resumed.restore(&checkpoint).unwrap();
            assert_eq!(state(&mut resumed), state_saved, "{n_gpus}, {strategy}");
            let found = train(&mut resumed, 10);
            for (found, expected) in found.iter().zip(&expected) {
                let difference = (found - expected).abs() / expected.abs();
                assert!(difference <= 1e-4, "{n_gpus}, {strategy}: {found}, not {expected}");
            }
            if (n_gpus, strategy, n_saved) == (4, "data", 8) {
                // Between updates, sums are zero.
                assert_eq!((found, state(&mut resumed)), (expected.clone(), state(&mut saved)));
            }
        }
    }
}

#[test]
fn steps_that_wait_for_an_update_of_another_model_are_refused() {
    let start = |accumulate| {
        let optimizer = Optimizer { accumulate, ..adam() };
        models::trainer(&network(2, "auto", optimizer), 0.01)
    };
    let mut saved = start(8);
    train(&mut saved, 5);
    let path = Checkpoints::new(folder("waiting"), 1).save(&mut saved, &progress(0)).unwrap();
    let checkpoint = Checkpoint::open(path).unwrap();
    assert_eq!(
        refusal(&mut start(4), &checkpoint),
        "expected a checkpoint of the model `model`: expected at most 3 steps that wait for an update, since `accumulate` is 4, found 5"
    );
    start(6).restore(&checkpoint).unwrap();
}

#[test]
fn a_file_that_changes_after_it_was_opened_stops_the_trainer() {
    let mut saved = trainer(2);
    let path = Checkpoints::new(folder("changed"), 1).save(&mut saved, &progress(0)).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let file = path.join("optimizer.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let mut trainer = trainer(2);
    let error = trainer.restore(&checkpoint).unwrap_err().to_string();
    assert!(error.contains("optimizer.safetensors: expected bytes with the CRC-32 "), "{error}");
    let later = trainer.parameters().unwrap_err();
    assert_eq!(later.kind(), ErrorKind::Rank, "{later}");
}

#[test]
fn a_save_in_the_background_is_of_the_moment_in_which_it_was_asked_for() {
    let mut trainer = trainer(4);
    train(&mut trainer, 2);
    let expected = state(&mut trainer);
    let mut checkpoints = Checkpoints::new(folder("background"), 3).with_shard_bytes(1 << 10);
    checkpoints.save_in_background(&mut trainer, &progress(2)).unwrap();
    train(&mut trainer, 3);
    let path = checkpoints.wait().unwrap().unwrap();
    assert!(checkpoints.wait().unwrap().is_none() && !checkpoints.is_saving());
    trainer.restore(&Checkpoint::open(path).unwrap()).unwrap();
    assert_eq!(state(&mut trainer), expected);
    let parameters = bits(trainer.parameters().unwrap());
    assert!(parameters.iter().any(|it| it.0 == "norm.running_var"));
}
