//! A resumed run proves that it goes on with the same run.

use std::{path::Path, sync::Arc};

use soybean::{
    Curve, Error, Event, Flow, Network, Resume, Schedule, Split, TrainConfig, Trainer,
    checkpoint::{Checkpoints, Progress},
    data::{Dataset, Subset},
};

use super::small::{checkpoints, folder, mlp, newest};

/// The model of `small.rs` with other options.
macro_rules! models {
    ($($module:ident $batch:literal [$($option:tt)*])*) => {$(
        #[soybean::model($($option)*)]
        mod $module {
            use soybean::{nn, prelude::*};

            pub(crate) fn forward(x: Tensor<f32, $batch, 16>, y: Tensor<i32, $batch>) -> (Tensor, Tensor) {
                let h = nn::linear(x, 12).relu().dropout(0.2);
                let logits = nn::linear(h, 5);
                (logits.cross_entropy(y), logits)
            }
        }
    )*};
}

models! {
    large 16 [gpus = 4, optimizer = adam()]
    bf16 8 [gpus = 4, optimizer = adam(), precision = "bf16"]
    decayed 8 [gpus = 4, optimizer = adam(weight_decay = 0.1)]
    clipped 8 [gpus = 4, optimizer = adam(), clip_norm = 1]
    shared 8 [gpus = 4, optimizer = adam(), accumulate = 2]
    averaged 8 [gpus = 4, optimizer = adam(), ema = 0.99]
    skipping 8 [gpus = 4, optimizer = adam(), non_finite = "skip"]
    on_two 8 [gpus = 2, optimizer = adam()]
}

fn data() -> Split {
    Split::random::<mlp::Network>(70, 21, 0)
}

/// Returns data in which one number of a row differs.
fn changed(part: &Arc<dyn Dataset>, row: usize) -> Arc<dyn Dataset> {
    let n_rows = part.n_rows();
    let others = Arc::clone(part).transform(0, |row, _| row[0].f32s()[3] += 0.5);
    // Rows of the data and of their changed copy, one after the other.
    let both = soybean::data::Shards::with_counts(
        &[("same".into(), n_rows), ("changed".into(), n_rows)],
        2,
        {
            let (same, others) = (Arc::clone(part), Arc::new(others) as Arc<dyn Dataset>);
            move |path: &Path| Ok(Arc::clone(if path.ends_with("same") { &same } else { &others }))
        },
    );
    let rows = (0..n_rows).map(|it| if it == row { n_rows + it } else { it }).collect();
    Arc::new(Subset::new(Arc::new(both.unwrap()), rows).unwrap())
}

/// Resumes a run; returns its notes.
fn resume<N: Network>(config: &TrainConfig, data: &Split) -> Result<Vec<String>, Error> {
    let mut notes = Vec::new();
    let mut trainer = Trainer::<N>::new(config.trainer.clone())?;
    trainer.fit_watched(config, data, |event| {
        if let Event::Note(note) = event {
            notes.push((*note).to_owned());
        }
        Flow::Continue
    })?;
    Ok(notes)
}

/// Guards: each fact that a run must share with the one that it resumes. Settings are walked in
/// `src/run/identity/tests.rs`; the model's options and the data are walked here.
#[test]
fn a_run_that_is_not_the_same_does_not_go_on() {
    type Fit = fn(&TrainConfig, &Split) -> Result<Vec<String>, Error>;
    let out = folder("same-run");
    let first = TrainConfig { out: Some(out.clone()), keep: 0, ..TrainConfig::new(1, 0.02) };
    resume::<mlp::Network>(&first, &data()).unwrap();
    let from = newest(&out);
    let again =
        TrainConfig { epochs: 2, resume: Resume::From(from.clone()), out: None, ..first.clone() };
    let note = |changes: &str| format!("other than in {}: {changes}", from.display());
    let longer = note("expected epochs = 1, found 2");
    assert_eq!(resume::<mlp::Network>(&again, &data()).unwrap(), [longer]);

    let Split { train, held_out } = data();
    let with_train = |train| Split { train, held_out: Arc::clone(&held_out) };
    let with_held_out = |held_out| Split { train: Arc::clone(&train), held_out };
    let fewer: Arc<dyn Dataset> =
        Arc::new(Subset::new(Arc::clone(&train), (0..64).collect()).unwrap());
    let fewer_held: Arc<dyn Dataset> =
        Arc::new(Subset::new(Arc::clone(&held_out), (0..20).collect()).unwrap());
    let other = Split::random::<mlp::Network>(70, 21, 1);
    let own: Fit = resume::<mlp::Network>;
    let cases: [(&str, Fit, Split, &str); 13] = [
        ("training-rows", own, with_train(fewer), "70, found 64"),
        ("training-data", own, with_train(changed(&train, 0)), ""),
        ("training-data", own, with_train(changed(&train, 69)), ""),
        ("training-data", own, with_train(other.train), ""),
        ("held-out-rows", own, with_held_out(fewer_held), "21, found 20"),
        ("held-out-data", own, with_held_out(changed(&held_out, 20)), ""),
        ("batch-size", resume::<large::Network>, data(), "8, found 16"),
        ("precision", resume::<bf16::Network>, data(), "f32, found bf16"),
        (
            "optimizer",
            resume::<decayed::Network>,
            data(),
            "adam betas [0.9, 0.999] eps 1e-8 weight_decay 0.0, found adam betas [0.9, 0.999] eps 1e-8 weight_decay 0.1",
        ),
        ("clip-norm", resume::<clipped::Network>, data(), "none, found 1.0"),
        ("accumulate", resume::<shared::Network>, data(), "none, found 2"),
        ("ema", resume::<averaged::Network>, data(), "none, found 0.99"),
        ("non-finite", resume::<skipping::Network>, data(), "none, found skip"),
    ];
    for (name, fit, data, values) in &cases {
        let error = fit(&again, data).unwrap_err().to_string();
        let start = format!("{}: expected to go on with the run that wrote it: ", from.display());
        assert!(error.starts_with(&start), "{name}: {error}");
        assert!(error.contains(&format!("expected {name} = {values}")), "{error}");
        assert!(error.contains(&format!(" --allow-change {name}")), "{error}");
        // Another number of rows has other rows.
        let n_expected = if name.ends_with("-rows") { 2 } else { 1 };
        assert_eq!(error.matches("--allow-change").count(), n_expected, "{error}");
        if ["accumulate", "ema"].contains(name) {
            // The optimizer's tensors are others, which no setting allows.
            continue;
        }
        let allowed_changes = ["rows", "data"].map(|it| name.replace("rows", it)).into();
        let config = TrainConfig { allowed_changes, ..again.clone() };
        let notes = fit(&config, data).unwrap();
        assert!(notes[0].contains(&format!("expected {name} = {values}")), "{notes:?}");
    }
    // Another number of devices is meant.
    let notes = resume::<on_two::Network>(&again, &data()).unwrap();
    assert_eq!(notes, [note("expected epochs = 1, found 2; expected devices = 4, found 2")]);
    assert_eq!(checkpoints(&out.join("checkpoints")), ["step-0000000008"], "nothing is written");
}

/// Guards: a schedule that is not that of the run, by the API, in the run's own folder.
#[test]
fn another_schedule_is_refused_before_anything_is_moved() {
    let out = folder("same-schedule");
    let first = TrainConfig { out: Some(out.clone()), ..TrainConfig::new(2, 0.02) };
    resume::<mlp::Network>(&first, &data()).unwrap();
    let again = TrainConfig { epochs: 3, resume: Resume::Auto, ..first.clone() };
    for (schedule, change) in [
        (
            Schedule { curve: Curve::Cosine, ..Schedule::default() },
            "expected schedule = \"constant\", found \"cosine\"",
        ),
        (Schedule { warm_up: 9, ..Schedule::default() }, "expected warmup = 0, found 9"),
    ] {
        let config = TrainConfig { schedule, ..again.clone() };
        let error = resume::<mlp::Network>(&config, &data()).unwrap_err().to_string();
        assert!(error.contains(change), "{error}");
    }
    assert_eq!(checkpoints(&out.join("checkpoints")).len(), 2);
    assert!(!out.join("old").exists() && !out.join("config.old.toml").exists());
    // The settings of a run in its own folder are told with the file that keeps them.
    let notes = resume::<mlp::Network>(&again, &data()).unwrap();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].starts_with("changed settings: epochs = 3 (was 2); "), "{notes:?}");
}

/// Guards: checkpoints that earlier versions and other loops wrote are resumed.
#[test]
fn a_checkpoint_without_facts_is_resumed_with_a_word() {
    let mut trainer = mlp::Trainer::new(soybean::Config::default()).unwrap();
    let mut own = Checkpoints::new(folder("same-own"), 1);
    let path = trainer.save(&mut own, &Progress::default()).unwrap();
    let config = TrainConfig { resume: Resume::From(path.clone()), ..TrainConfig::new(1, 0.02) };
    let notes = resume::<mlp::Network>(&config, &data()).unwrap();
    let expected = format!(
        "{} does not say which settings and data its run had: they are not compared",
        path.display()
    );
    assert_eq!(notes[0], expected);
}
