//! Runs of which some steps wait for an update: at the end, and where they are stopped.

use std::path::Path;

use soybean::{End, Event, Flow, Resume, Split, Summary, TrainConfig, runtime::Array};

use super::small::{folder, lines, newest, state};

macro_rules! models {
    ($($name:ident on $gpus:literal, $accumulate:literal;)*) => { $(
        #[soybean::model(
            gpus = $gpus, strategy = "data", optimizer = adam(), accumulate = $accumulate,
            clip_norm = 1.0, ema = 0.9
        )]
        mod $name {
            use soybean::{nn, prelude::*};

            pub(crate) fn forward(x: Tensor<f32, 8, 16>, y: Tensor<i32, 8>) -> (Tensor, Tensor) {
                let h = nn::batch_norm(nn::linear_without_bias(x, 12)).relu().dropout(0.2);
                let logits = nn::linear(h, 5);
                (logits.cross_entropy_with(y, 1.0, 4, "mean", 0.0), logits)
            }
        }
    )* };
}

models! {
    every_step on 1, 1;
    two_steps on 1, 2;
    on_one on 1, 3;
    on_two on 2, 3;
    on_four on 4, 3;
}

/// The parameters after a run, the summary, and the notes.
type Outcome = (Vec<(String, Array)>, Summary, Vec<String>);

/// Returns a function that runs a model until `stop` returns true. Epochs have 7 steps.
macro_rules! run {
    ($model:ident) => {
        |config: &TrainConfig, stop: &mut dyn FnMut(&Event<'_>) -> bool| -> Outcome {
            let mut trainer = $model::Trainer::new(config.trainer.clone()).unwrap();
            let mut notes = Vec::new();
            let data = Split::random::<$model::Network>(56, 8, 0);
            let summary = trainer
                .fit_watched(config, &data, |event| {
                    if let Event::Note(note) = event {
                        notes.push((*note).to_owned());
                    }
                    if stop(event) { Flow::Stop } else { Flow::Continue }
                })
                .unwrap();
            assert_eq!(trainer.counters().n_steps, summary.n_steps);
            (trainer.parameters().unwrap(), summary, notes)
        }
    };
}

type Run = fn(&TrainConfig, &mut dyn FnMut(&Event<'_>) -> bool) -> Outcome;

const RUNS: [(&str, Run); 3] =
    [("1 device", run!(on_one)), ("2 devices", run!(on_two)), ("4 devices", run!(on_four))];

fn of_steps(steps: u64) -> TrainConfig {
    TrainConfig { steps: Some(steps), log_every: 1, ..TrainConfig::new(3, 0.05) }
}

fn assert_near(found: &[(String, Array)], expected: &[(String, Array)], what: &str) {
    for ((name, found), (_, expected)) in found.iter().zip(expected) {
        for (found, expected) in found.data.iter().zip(&expected.data) {
            // Adam divides sums of a few terms, in another order, by their roots.
            assert!((found - expected).abs() <= 1e-4, "{what}, {name}: {found}, not {expected}");
        }
    }
}

/// Guards: the gradients of the last steps of a run are not dropped. They give an update with
/// their own mean, that of a model of which so many steps share an update.
#[test]
fn the_last_update_is_taken_with_the_steps_that_there_are() {
    for (n_steps, expected) in [(1, run!(every_step) as Run), (2, run!(two_steps) as Run)] {
        let (expected, ..) = expected(&of_steps(n_steps), &mut |_| false);
        for (what, run) in RUNS {
            let (found, summary, notes) = run(&of_steps(n_steps), &mut |_| false);
            assert_eq!(summary.end, End::Finished);
            assert_near(&found, &expected, what);
            assert_eq!(notes, [format!("the last update has {n_steps} of 3 steps")], "{what}");
        }
    }
    for (what, run) in RUNS {
        let at = |steps| run(&of_steps(steps), &mut |_| false);
        let [three, five, six] = [3, 5, 6].map(at);
        assert!(three.0 != five.0 && five.0 != six.0, "{what}");
        assert!(three.2.is_empty() && six.2.is_empty(), "{what}");
        // An epoch has 7 steps: the last update of 3 epochs is whole, that of 2 has 2 steps.
        let epochs = |epochs| TrainConfig { epochs, ..TrainConfig::new(3, 0.05) };
        assert!(run(&epochs(3), &mut |_| false).2.is_empty(), "{what}");
        let (.., notes) = run(&epochs(2), &mut |_| false);
        assert_eq!(notes, ["the last update has 2 of 3 steps"], "{what}");
    }
}

/// Guards: a run that ends early takes its last update, and the checkpoint has it.
#[test]
fn runs_that_end_early_take_their_last_update() {
    for (what, run) in RUNS {
        let out = folder(&format!("early-{}", &what[..1]));
        let config = TrainConfig {
            patience: Some(1),
            min_delta: 1e3,
            evaluate_every: Some(2),
            out: Some(out.clone()),
            ..of_steps(20)
        };
        let (found, summary, notes) = run(&config, &mut |_| false);
        assert_eq!((summary.end, summary.n_steps), (End::NoBetter, 4), "{what}");
        assert_eq!(notes, ["the last update has 1 of 3 steps"], "{what}");
        let evaluated = lines(&out).iter().filter(|it| it["kind"] == "evaluation").count();
        assert_eq!(evaluated, 3, "{what}: the last update is evaluated");
        let (before, ..) = run(&of_steps(3), &mut |_| false);
        assert!(found != before, "{what}");
        let resumed = TrainConfig { resume: Resume::Must, ..config };
        assert_eq!(run(&resumed, &mut |_| false).0, found, "{what}");

        // A run that is stopped, and keeps no checkpoint from which it could go on.
        let at_two = |event: &Event<'_>| matches!(event, Event::Step(it) if it.step == 2);
        let (found, summary, _) = run(&of_steps(20), &mut |it| at_two(it));
        assert_eq!(summary.end, End::Stopped, "{what}");
        assert_near(&found, &run(&of_steps(2), &mut |_| false).0, what);
    }
}

/// Guards: a run that was stopped between two updates ends with the same bits as one that was not,
/// on any number of devices, wherever its checkpoints are.
#[test]
fn a_run_stopped_between_two_updates_ends_with_the_same_bits() {
    for (what, run) in RUNS {
        let config = |out: &Path, resume| TrainConfig {
            checkpoint_every: Some(2),
            evaluate_every: Some(5),
            out: Some(out.into()),
            resume,
            ..of_steps(11)
        };
        let whole = folder(&format!("unstopped-{}", &what[..1]));
        run(&config(&whole, Resume::Never), &mut |_| false);
        for stopped_at in 1..11 {
            let out = folder(&format!("between-{}", &what[..1]));
            let at = |event: &Event<'_>| matches!(event, Event::Step(it) if it.step == stopped_at);
            let (_, summary, _) = run(&config(&out, Resume::Never), &mut |it| at(it));
            assert_eq!(summary.end, End::Stopped);
            assert_eq!(run(&config(&out, Resume::Must), &mut |_| false).1.end, End::Finished);
            let same = state(&newest(&out)) == state(&newest(&whole));
            assert!(same, "{what}: other bits, stopped at step {stopped_at}");
            assert_eq!(lines(&out), lines(&whole), "{what}, stopped at step {stopped_at}");
        }
    }
}
