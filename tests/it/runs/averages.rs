//! Evaluations of the moving averages of the parameters.

use soybean::{
    Config, Event, Flow, Split, Summary, TrainConfig, data::ViewMut, runtime::ErrorKind,
};

use soybean_test_support::averaged::{learning, serving};

use super::{
    faults::Shrunk,
    small::{config, folder, newest, state},
};

fn data() -> Split {
    Split::random::<learning::Network>(70, 21, 0)
}

fn fit(config: &TrainConfig) -> (learning::Trainer, Summary) {
    let mut trainer = learning::Trainer::new(config.trainer.clone()).unwrap();
    let summary = trainer.fit(config, &data()).unwrap();
    (trainer, summary)
}

/// Returns the held-out samples.
fn held_out() -> (Vec<f32>, Vec<i32>) {
    let (mut x, mut y) = (vec![0.0; 21 * 16], vec![0; 21]);
    let mut into = [ViewMut::F32(&mut x), ViewMut::I32(&mut y)];
    data().held_out.read(&(0..21).collect::<Vec<_>>(), &mut into).unwrap();
    (x, y)
}

/// Returns the loss and the accuracy of a predictor with these weights.
fn served(weights: &[(String, soybean::Array)]) -> (f64, f64) {
    let (x, y) = held_out();
    let mut predictor = serving::Predictor::new(Config::default()).unwrap();
    predictor.set_parameters(weights).unwrap();
    let logits = predictor.predict(&serving::Batch { x: &x }).unwrap().remove(0).data;
    let (mut loss, mut n_right) = (0.0, 0);
    for (row, label) in logits.chunks(5).zip(&y) {
        let label = usize::try_from(*label).unwrap();
        let sum: f64 = row.iter().map(|it| f64::from(*it).exp()).sum();
        loss += sum.ln() - f64::from(row[label]);
        n_right += usize::from(row.iter().all(|it| *it <= row[label]));
    }
    (loss / 21.0, n_right as f64 / 21.0)
}

#[test]
fn evaluations_see_the_averages_and_training_does_not_know() {
    let (seen, plain) = (folder("averages"), folder("averages-plain"));
    let config = |out, evaluate_averages, evaluate_every| {
        let evaluate_every = Some(evaluate_every);
        TrainConfig { evaluate_averages, evaluate_every, epochs: 2, ..config(out) }
    };
    let (mut trainer, summary) = fit(&config(&seen, true, 3));
    let (_, plainly) = fit(&config(&plain, false, 100));
    assert!(state(&newest(&seen)) == state(&newest(&plain)), "other weights");
    let last = summary.last.unwrap();
    assert_ne!(Some(last.held_out_loss), plainly.last.map(|it| it.held_out_loss));
    let (loss, accuracy) = served(&trainer.averaged_parameters().unwrap());
    assert_eq!(last.metric("accuracy"), Some(accuracy));
    // Losses are in single precision; a few are added and one is subtracted.
    assert!((last.held_out_loss - loss).abs() < 1e-6 * loss, "{last:?}, {loss}");
}

/// An evaluation that is stopped or fails restores the parameters.
#[test]
fn parameters_are_back_after_an_evaluation_that_ends_early() {
    let config = TrainConfig { evaluate_averages: true, ..TrainConfig::new(1, 0.02) };
    let (mut trainer, _) = fit(&TrainConfig { evaluate_averages: false, ..config.clone() });
    let expected = trainer.parameters().unwrap();
    let mut trainer = learning::Trainer::new(config.trainer.clone()).unwrap();
    let stopped = trainer.fit_watched(&config, &data(), |event| match event {
        Event::Evaluating { .. } => Flow::Stop,
        _ => Flow::Continue,
    });
    assert!(stopped.unwrap().last.is_none());
    assert_eq!(trainer.parameters().unwrap(), expected);
    let Split { train, held_out } = data();
    let held_out = std::sync::Arc::new(Shrunk { inner: held_out, n_left: 20 });
    let mut trainer = learning::Trainer::new(config.trainer.clone()).unwrap();
    let error = trainer.fit(&config, &Split { train, held_out }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    assert_eq!(trainer.parameters().unwrap(), expected);
}
