//! Runs and their output.

use std::{fs, path::Path};

use soybean::{
    Curve, End, Event, Flow, Metric, Resume, Schedule, TrainConfig,
    data::{DataLoader, LoaderOptions},
};

use super::small::{checkpoints, config, data, folder, lines, mlp, newest, state, trainer};

#[test]
fn a_run_leaves_checkpoints_metrics_and_its_choices() {
    let out = folder("whole");
    let config = TrainConfig { checkpoint_every: Some(3), keep: 2, ..config(&out) };
    let mut events = Vec::new();
    let summary = trainer(&config)
        .fit_watched(&config, &data(), |event| {
            events.push(event.to_string());
            Flow::Continue
        })
        .unwrap();
    assert_eq!((summary.end, summary.n_steps), (End::Finished, 40));
    assert_eq!(summary.checkpoint, Some(newest(&out)));
    assert_eq!(checkpoints(&out.join("checkpoints")), ["step-0000000039", "step-0000000040"]);
    let best = summary.best_checkpoint.unwrap();
    assert_eq!(checkpoints(&out.join("best")).len(), 1);
    assert!(best.ends_with(format!("step-{:010}", summary.best_step.unwrap())));
    soybean::runtime::checkpoint::Checkpoint::open(best).expect("the best one is whole");
    let lines = lines(&out);
    assert_eq!(lines.iter().filter(|it| it["kind"] == "step").count(), 40);
    assert_eq!(lines.iter().filter(|it| it["kind"] == "evaluation").count(), 5);
    assert_eq!(fs::read_to_string(out.join("metrics.csv")).unwrap().lines().count(), 6);
    assert!(fs::read_to_string(out.join("metrics.svg")).unwrap().contains("learning rate"));
    let again = TrainConfig::from_toml(out.join("config.toml")).unwrap();
    assert_eq!(again.to_toml(), config.to_toml());
    assert_eq!(events[0], "70 training and 21 held-out samples in batches of 8");
    assert!(events.iter().any(|it| it.starts_with("epoch 5  step 40  loss ")), "{events:?}");
}

#[test]
fn a_run_without_a_folder_writes_nothing() {
    let config = TrainConfig::new(1, 0.02);
    let summary = trainer(&config).fit(&config, &data()).unwrap();
    assert_eq!((summary.n_steps, summary.checkpoint), (8, None));
    assert!(summary.last.unwrap().metric("accuracy").is_some());
}

/// Returns the mean over samples, each evaluated in its own batch.
#[test]
fn rows_that_fill_up_a_batch_do_not_count() {
    let config = TrainConfig::new(1, 0.02);
    let split = data();
    let mut trainer = trainer(&config);
    let last = trainer.fit(&config, &split).unwrap().last.unwrap();
    let (mut loss, mut n_correct) = (0.0, 0);
    let n = split.held_out.n_rows();
    for row in 0..n {
        let (mut x, mut y) = ([0.0; 16 * mlp::BATCH], [0; mlp::BATCH]);
        let mut into = [soybean::data::ViewMut::F32(&mut x), soybean::data::ViewMut::I32(&mut y)];
        split.held_out.read(&[row; mlp::BATCH], &mut into).unwrap();
        let found = trainer.evaluate(&mlp::Batch { x: &x, y: &y }).unwrap();
        loss += f64::from(found.loss);
        let logits = &found.outputs[0].data[..5];
        let largest = (0..5).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
        n_correct += usize::from(largest == y[0] as usize);
    }
    let expected = loss / n as f64;
    // Losses are in single precision; a few are added and one is subtracted.
    assert!((last.held_out_loss - expected).abs() < 1e-6 * expected, "{last:?}, {expected}");
    assert_eq!(last.metric("accuracy"), Some(n_correct as f64 / n as f64));
}

#[test]
fn users_measure_and_watch_what_they_like() {
    let out = folder("metrics");
    let first_pixel = Metric::new("first pixel", |evaluation, batch| {
        assert_eq!(evaluation.outputs[0].shape, [8, 5]);
        let pixels = batch.f32s("x")?.chunks(16).map(|it| f64::from(it[0]));
        assert_eq!(batch.i32s("y")?.len(), batch.n_valid);
        Some(pixels.sum::<f64>() / batch.n_valid as f64)
    });
    let nothing = Metric::new("nothing", |_, batch| batch.f32s("z").map(|_| 1.0));
    let split = data();
    let mut pixels = [0.0; 16 * 21];
    let mut labels = [0; 21];
    let mut into =
        [soybean::data::ViewMut::F32(&mut pixels), soybean::data::ViewMut::I32(&mut labels)];
    split.held_out.read(&(0..21).collect::<Vec<_>>(), &mut into).unwrap();
    let expected = pixels.chunks(16).map(|it| f64::from(it[0])).sum::<f64>() / 21.0;
    // The mean of the first pixel never changes, so the second evaluation is no improvement.
    let config = TrainConfig {
        metrics: vec![first_pixel, nothing, Metric::top(5), Metric::perplexity()],
        watch: Some("first pixel".to_owned()),
        patience: Some(2),
        evaluate_every: Some(3),
        ..config(&out)
    };
    let summary = trainer(&config).fit(&config, &split).unwrap();
    assert_eq!((summary.end, summary.n_steps, summary.best_step), (End::NoBetter, 8, Some(3)));
    let last = summary.last.unwrap();
    assert!((last.metric("first pixel").unwrap() - expected).abs() < 1e-9, "{last:?}");
    assert_eq!(last.metric("nothing"), None);
    assert_eq!(last.metric("top-5"), Some(1.0), "of five classes");
    let perplexity = last.metric("perplexity").unwrap();
    assert!((perplexity - last.held_out_loss.exp()).abs() < 1e-9);
    let error = |watch: &str| {
        let config = TrainConfig { watch: Some(watch.to_owned()), ..config.clone() };
        trainer(&config).fit(&config, &data()).unwrap_err().to_string()
    };
    let expected = |names: &str, found: &str| {
        format!(
            "watch: expected loss or a metric that applies to this model ({names}), found `{found}`"
        )
    };
    let known = "first pixel, nothing, top-5, perplexity";
    assert_eq!(error("precision"), expected(known, "precision"));
    // Custom metrics are evaluated once before the run begins, to learn whether they have a value.
    let known = "first pixel, top-5, perplexity";
    let before = lines(&out);
    assert_eq!(error("nothing"), expected(known, "nothing"));
    assert_eq!(lines(&out), before, "the run before stays where it is");
}

#[test]
fn a_metric_that_says_nothing_of_the_model_is_refused_at_once() {
    for watch in ["top-5", "perplexity"] {
        let config = TrainConfig { watch: Some(watch.to_owned()), ..TrainConfig::new(1, 0.02) };
        let error = trainer(&config).fit_watched(&config, &data(), |it| panic!("a step: {it}"));
        let expected = format!(
            "watch: expected loss or a metric that applies to this model (accuracy), found `{watch}`"
        );
        assert_eq!(error.unwrap_err().to_string(), expected);
    }
    let config = TrainConfig { watch: Some("loss".to_owned()), ..TrainConfig::new(1, 0.02) };
    let summary = trainer(&config).fit(&config, &data()).unwrap();
    assert_eq!(summary.best, Some(summary.last.unwrap().held_out_loss));
}

#[test]
fn a_trace_is_written_or_it_is_said_why_not() {
    let out = folder("traced");
    let file = out.join("trace.json");
    let fit = |config: &TrainConfig| {
        let mut notes = Vec::new();
        let fitted = trainer(config).fit_watched(config, &data(), |event| {
            if let Event::Note(note) = event {
                notes.push((*note).to_owned());
            }
            Flow::Continue
        });
        fitted.map(|_| notes).map_err(|it| it.to_string())
    };
    let short = TrainConfig { steps: Some(3), trace: Some(file.clone()), ..config(&out) };
    assert_eq!(fit(&short).unwrap(), [""; 0]);
    let trace = fs::read_to_string(&file).unwrap();
    assert!(trace.contains("\"ph\":\"X\""));
    for name in ["linear.1.matmul, contraction", "linear.0.weight.grad, ", "linear.0.weight, map"] {
        assert!(trace.contains(name), "{name}: {trace}");
    }
    assert!(!trace.contains("predicted"), "the machine is not known");
    // The resumed run has no steps left.
    let over = TrainConfig { resume: Resume::Auto, ..short.clone() };
    let note = format!("too few steps were made for a trace in {}", file.display());
    assert_eq!(fit(&over).unwrap(), [note]);
    let nowhere = out.join("nowhere/trace.json");
    let error = fit(&TrainConfig { trace: Some(nowhere.clone()), ..short }).unwrap_err();
    let expected = format!("cannot write the trace into {}: ", nowhere.display());
    assert!(error.starts_with(&expected), "{error}");
    assert!(error.ends_with("; no checkpoint was written before"), "{error}");
}

#[test]
fn learning_rates_follow_the_schedule() {
    let schedule =
        Schedule { curve: Curve::Cosine, warm_up: 4, floor: 0.001, ..Schedule::default() };
    let config = TrainConfig { schedule, steps: Some(13), ..TrainConfig::new(1, 0.02) };
    let mut rates = Vec::new();
    let summary = trainer(&config)
        .fit_watched(&config, &data(), |event| {
            if let Event::Step(record) = event {
                rates.push(record.learning_rate);
            }
            Flow::Continue
        })
        .unwrap();
    assert_eq!(summary.n_steps, 13, "in the second epoch");
    let expected: Vec<f32> = (0..13).map(|step| schedule.rate(0.02, step, 13)).collect();
    assert_eq!(rates, expected);
}

#[test]
fn choices_that_contradict_each_other_are_refused() {
    let fault =
        |config: TrainConfig| trainer(&config).fit(&config, &data()).unwrap_err().to_string();
    let new = || TrainConfig::new(1, 0.02);
    let step = Schedule { curve: Curve::Step, ..Schedule::default() };
    assert_eq!(
        fault(TrainConfig { schedule: step, ..new() }),
        "expected `decay-every`, since `schedule = \"step\"` is given, found none"
    );
    assert_eq!(
        fault(TrainConfig { map: vec!["a = b".to_owned()], ..new() }),
        "expected `weights`, since `map` is given, found none"
    );
    assert_eq!(
        fault(TrainConfig { resume: Resume::Auto, ..new() }),
        "expected `out`, since `resume = \"auto\"` is given, found none"
    );
    assert_eq!(
        fault(TrainConfig { batch_limit: Some(0), ..new() }),
        "batch-limit: expected a whole number from 1, found `0`"
    );
    assert_eq!(
        fault(TrainConfig { evaluate_averages: true, ..new() }),
        "evaluate-averages: expected a model that keeps averages of its parameters, such as `ema = 0.999`, found `mlp`, which keeps none"
    );
    // 0 means never, not even before the first step.
    let config = TrainConfig { patience: Some(0), ..new() };
    assert_eq!(trainer(&config).fit(&config, &data()).unwrap().n_steps, 8);
    let few = soybean::Split::random::<mlp::Network>(7, 7, 0);
    let config = new();
    assert_eq!(
        trainer(&config).fit(&config, &few).unwrap_err().to_string(),
        "expected at least 8 rows of training data, one batch, found 7"
    );
}

#[test]
fn weights_of_a_file_are_where_the_run_starts() {
    let out = folder("weights");
    let first = config(&out.join("first"));
    trainer(&first).fit(&first, &data()).unwrap();
    let weights = newest(&out.join("first")).join("model.safetensors");
    // With a learning rate of 0 the parameters do not change.
    let second = TrainConfig {
        weights: Some(weights.clone()),
        map: vec!["unused nothing.*".to_owned()],
        epochs: 1,
        ..config(&out.join("second"))
    };
    let second = TrainConfig {
        trainer: soybean::Config { learning_rate: 0.0, ..second.trainer.clone() },
        ..second
    };
    let mut notes = Vec::new();
    trainer(&second)
        .fit_watched(&second, &data(), |event| {
            if let Event::Note(note) = event {
                notes.push((*note).to_owned());
            }
            Flow::Continue
        })
        .unwrap();
    assert_eq!(notes, [format!("4 tensors from {}", weights.display())]);
    assert_eq!(state(&newest(&out.join("second")))[0], fs::read(weights).unwrap());
}

/// Evaluations by a metric that never changes, so that the first one remains the best.
fn unchanging(out: Option<&Path>) -> TrainConfig {
    let one = Metric::new("one", |_, _| Some(1.0));
    TrainConfig {
        metrics: vec![one],
        watch: Some("one".to_owned()),
        evaluate_every: Some(3),
        restore_best: true,
        out: out.map(Into::into),
        ..TrainConfig::new(1, 0.02)
    }
}

#[test]
fn a_run_can_leave_the_weights_of_its_best_evaluation() {
    let mut short = trainer(&unchanging(None));
    short.fit(&TrainConfig { steps: Some(3), ..unchanging(None) }, &data()).unwrap();
    let expected = short.parameters().unwrap();
    let config = unchanging(None);
    let mut restored = trainer(&config);
    let summary = restored.fit(&config, &data()).unwrap();
    assert_eq!((summary.n_steps, summary.best_step), (8, Some(3)));
    assert!(restored.parameters().unwrap() == expected);
    let mut last = trainer(&config);
    last.fit(&TrainConfig { restore_best: false, ..config }, &data()).unwrap();
    assert!(last.parameters().unwrap() != expected);
    // The best evaluation of a run that resumes was that of the run before.
    let out = folder("restore-best");
    let config = unchanging(Some(&out));
    let first = TrainConfig { steps: Some(5), ..config.clone() };
    trainer(&first).fit(&first, &data()).unwrap();
    let resumed = TrainConfig { resume: Resume::Auto, ..config };
    let mut trainer = trainer(&resumed);
    let summary = trainer.fit(&resumed, &data()).unwrap();
    assert_eq!((summary.n_steps, summary.best_step), (8, Some(3)));
    assert!(trainer.parameters().unwrap() == expected);
}

#[test]
fn a_loop_of_ones_own_does_what_a_run_does() {
    let config = TrainConfig::new(1, 0.02);
    let mut expected = trainer(&config);
    let last = expected.fit(&config, &data()).unwrap().last.unwrap();
    let data = data();
    let mut trainer = trainer(&config);
    let mut loader = DataLoader::new(data.train, LoaderOptions::training(mlp::BATCH, 0)).unwrap();
    for (number, batch) in (&mut loader).enumerate() {
        let batch = batch.unwrap();
        if number % 2 == 0 {
            trainer.step(&batch).unwrap();
        } else {
            trainer.step(&batch.views()).unwrap();
        }
    }
    assert!(trainer.parameters().unwrap() == expected.parameters().unwrap());
    let found = trainer.evaluate_dataset(data.held_out, &Metric::usual()).unwrap();
    assert_eq!((found.loss, &found.metrics), (last.held_out_loss, &last.metrics));
    assert_eq!(found.metric("accuracy"), last.metric("accuracy"));
    let labels = soybean::data::Column {
        name: "y".to_owned(),
        row: Vec::new(),
        values: soybean::data::Values::I32(vec![0; 3]),
    };
    let labels = soybean::data::Table::new(vec![labels]).unwrap();
    let error = trainer.evaluate_dataset(labels, &[]).unwrap_err();
    assert_eq!(
        format!("{error:?}"),
        "the evaluation data: expected 2 columns (x [8, 16], y [8]), found 1"
    );
}

#[test]
fn labels_may_be_left_out_of_predictions() {
    let mut trainer = trainer(&TrainConfig::new(1, 0.02));
    let outputs = trainer.predict(&mlp::Batch { x: &[0.5; 32], ..Default::default() }).unwrap();
    assert_eq!(outputs[0].shape, [2, 5]);
}
