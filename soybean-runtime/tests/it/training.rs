//! The public API of the trainer, with a program written by hand, on one rank and on several.

use std::sync::Arc;

use soybean_linear_program::{BATCH, FEATURES, batch, program, vouched};
use soybean_plan::{Executable, Init, Kernel, Rows, Tables};
use soybean_runtime::{
    Array, Config, Device, ErrorKind, KernelCategory, Model, Predictor, Rank, Trainer, View,
};

fn config() -> Config {
    Config {
        seed: 3,
        learning_rate: 0.05,
        device: Device::Cpu,
        threads: Some(2),
        uses_graphs: true,
        autotunes: false,
        peer_timeout: None,
        step_timeout: None,
    }
}

fn trainer(n_ranks: usize) -> Trainer {
    Trainer::new_shared(vouched(program(n_ranks)), config()).unwrap()
}

#[test]
fn losses_and_parameters_are_those_of_plain_loops_on_any_number_of_ranks() {
    for n_ranks in [1, 2, 4, 8] {
        let mut trainer = trainer(n_ranks);
        let mut weights = trainer.parameters().unwrap()[0].1.data.clone();
        for step in 0..20 {
            let (x, y) = batch(step);
            let loss = trainer.step(&[View::F32(&x), View::F32(&y)]).unwrap();
            let expected = oracle(&mut weights, &x, &y, 0.05);
            // The tolerance covers sums of 32 products in single precision, in another order.
            assert!(
                (loss - expected).abs() <= 1e-5 * expected,
                "{n_ranks} ranks, step {step}: {loss}, not {expected}"
            );
            assert_eq!(
                trainer.moved_bytes(),
                program(n_ranks).tables.train_bytes(),
                "{n_ranks} ranks"
            );
            // The batch is split over all ranks.
            assert_eq!(trainer.fed_bytes(), 4 * (x.len() + y.len()) as u64, "{n_ranks} ranks");
        }
        let found = &trainer.parameters().unwrap()[0];
        assert_eq!((found.0.as_str(), &found.1.shape[..]), ("w", &[FEATURES, 1][..]));
        for (found, expected) in found.1.data.iter().zip(&weights) {
            assert!((found - expected).abs() <= 1e-5, "{n_ranks} ranks: {found}, not {expected}");
        }
    }
}

#[test]
fn queued_batches_are_trained_on_in_their_turn() {
    let (mut one_by_one, mut ahead) = (trainer(4), trainer(4));
    let batches: Vec<_> = (0..4).map(batch).collect();
    let views = |it: usize| [View::F32(&batches[it].0), View::F32(&batches[it].1)];
    assert_eq!(ahead.step_queued(None).unwrap_err().kind(), ErrorKind::Batch);
    ahead.queue(&views(3)).unwrap();
    ahead.queue(&views(0)).unwrap();
    for step in 0..4 {
        let next = (step < 3).then(|| views(step + 1));
        let expected = one_by_one.step(&views(step)).unwrap();
        // An evaluation in between does not change the queue.
        ahead.evaluate(&views(2)).unwrap();
        let loss = match step {
            2 => {
                let (loss, trace) = ahead.trace_queued(next.as_ref().map(|it| &it[..])).unwrap();
                let n_kernels = program(4).train[0].len();
                assert_eq!(trace.n_spans(), 4 * n_kernels);
                assert_eq!(trace.to_json().matches(r#""ph":"X""#).count(), 4 * n_kernels);
                loss
            }
            _ => ahead.step_queued(next.as_ref().map(|it| &it[..])).unwrap(),
        };
        assert_eq!(loss, expected, "step {step}");
    }
    assert_eq!(ahead.step_queued(None).unwrap_err().kind(), ErrorKind::Batch);
}

#[test]
fn first_values_depend_on_the_seed_alone() {
    let first = trainer(1).parameters().unwrap();
    assert_eq!(first, trainer(4).parameters().unwrap());
    let other = Config { seed: 4, ..config() };
    let other = Trainer::new_shared(vouched(program(1)), other).unwrap().parameters().unwrap();
    assert_ne!(first, other);
}

#[test]
fn evaluation_gives_outputs_in_the_users_order_and_changes_nothing() {
    let mut trainer = trainer(4);
    let before = trainer.parameters().unwrap();
    let (x, y) = batch(0);
    let evaluation = trainer.evaluate(&[View::F32(&x), View::F32(&y)]).unwrap();
    let weights = &before[0].1.data;
    assert_eq!(evaluation.outputs.len(), 1);
    assert_eq!(evaluation.outputs[0].shape, [BATCH, 1]);
    for (row, found) in evaluation.outputs[0].data.iter().enumerate() {
        let terms = x[row * FEATURES..(row + 1) * FEATURES].iter().zip(weights);
        let expected: f32 = terms.map(|(x, w)| x * w).sum();
        assert!((found - expected).abs() < 1e-5, "row {row}: {found}, not {expected}");
    }
    let loss = trainer.step(&[View::F32(&x), View::F32(&y)]).unwrap();
    assert!((evaluation.loss - loss).abs() <= 1e-6 * loss);
    assert_ne!(trainer.parameters().unwrap(), before);
    trainer.set_parameters(&before).unwrap();
    assert_eq!(trainer.parameters().unwrap(), before);
}

#[test]
fn predictions_take_any_number_of_rows_and_do_not_read_labels() {
    let mut trainer = trainer(4);
    let (x, y) = batch(0);
    let expected = trainer.evaluate(&[View::F32(&x), View::F32(&y)]).unwrap().outputs;
    // Labels are not read, so any values are allowed.
    for labels in [View::F32(&y), View::F32(&[]), View::I32(&[7])] {
        assert_eq!(trainer.predict(&[View::F32(&x), labels]).unwrap(), expected);
        assert_eq!(trainer.moved_bytes(), program(4).tables.entries[0].bytes);
    }
    let none = View::F32(&[]);
    for n_rows in [1, 3, BATCH - 1] {
        let found = trainer.predict(&[View::F32(&x[..n_rows * FEATURES]), none]).unwrap();
        assert_eq!(found[0].shape, [n_rows, 1]);
        assert_eq!(found[0].data, expected[0].data[..n_rows]);
    }
    // Rows of two whole batches and part of a third. Each row has the same result as in another
    // batch.
    let (more, _) = batch(1);
    let of_more = trainer.predict(&[View::F32(&more), none]).unwrap();
    let all = [&more[..], &x, &more].concat();
    let of_all = [&of_more[0], &expected[0], &of_more[0]].map(|it| &it.data[..]).concat();
    for n_rows in [BATCH + 1, 2 * BATCH, 2 * BATCH + 3] {
        let found = trainer.predict(&[View::F32(&all[..n_rows * FEATURES]), none]).unwrap();
        assert_eq!((found.len(), &found[0].shape[..]), (1, &[n_rows, 1][..]));
        assert_eq!(found[0].data, of_all[..n_rows]);
        assert_eq!(trainer.moved_bytes(), program(4).tables.entries[0].bytes);
    }
    let labels = [0; BATCH];
    for query in [
        &[][..],
        &[View::F32(&x)],
        &[View::F32(&x[..FEATURES + 1]), none],
        &[none, none],
        &[View::F32(&all[..2 * BATCH * FEATURES + 1]), none],
        &[View::I32(&labels), none],
    ] {
        assert_eq!(trainer.predict(query).unwrap_err().kind(), ErrorKind::Batch, "{query:?}");
    }
    assert_eq!(trainer.predict(&[View::F32(&x), none]).unwrap(), expected);
}

#[test]
fn predictions_of_rows_that_are_mixed_take_whole_batches() {
    let mut program = program(2);
    let mut outputs = program.tables.outputs.into_owned();
    outputs[1].rows = Rows::Mixed;
    program.tables.outputs = outputs.into();
    let mut trainer = Trainer::new_shared(vouched(program), config()).unwrap();
    let (x, _) = batch(0);
    assert_eq!(trainer.predict(&[View::F32(&x), View::F32(&[])]).unwrap()[0].shape, [BATCH, 1]);
    let twice = [&x[..], &x].concat();
    for (x, n_rows) in [(&x[..FEATURES], 1), (&twice, 2 * BATCH)] {
        let error = trainer.predict(&[View::F32(x), View::F32(&[])]).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "the rows of output `prediction` cannot be told apart: expected as many as a batch has, {BATCH}, found {n_rows}"
            )
        );
    }
}

#[test]
fn a_program_without_a_loss_predicts_and_does_not_train() {
    let mut program = program(2);
    let (x, y) = batch(0);
    let expected = trainer(2).evaluate(&[View::F32(&x), View::F32(&y)]).unwrap().outputs;
    program.train.clear();
    program.tables.entries.to_mut()[0].training = None;
    program.tables.outputs.to_mut().remove(0);
    let fault = Predictor::new_shared(vouched(program.clone()), config()).err().unwrap();
    let expected_fault =
        "entry `forward`: expected outputs among 1 tensors, found those of numbers 0..2";
    assert!(fault.to_string().contains(expected_fault), "{fault}");
    program.tables.entries.to_mut()[0].outputs = 0..1;
    let program = vouched(program);
    let mut predictor = Predictor::new_shared(program.clone(), config()).unwrap();
    assert_eq!(predictor.predict(0, &[View::F32(&x), View::F32(&[])]).unwrap(), expected);
    let error = Trainer::new_shared(program, config()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "expected a model of mode training, found `linear`, of mode inference"
    );
    let error = Predictor::new_shared(vouched(self::program(2)), config()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Program);
}

#[test]
fn the_learning_rate_can_change_and_the_profile_tells_of_every_step() {
    let mut trainer = trainer(2);
    trainer.set_learning_rate(0.0);
    let before = trainer.parameters().unwrap();
    let (x, y) = batch(0);
    trainer.step(&[View::F32(&x), View::F32(&y)]).unwrap();
    assert_eq!(trainer.parameters().unwrap(), before);
    let profile = trainer.profile();
    assert_eq!(
        (profile.len(), profile[0].n_steps, profile[1].calls(KernelCategory::Contraction)),
        (2, 1, 2)
    );
    assert!(profile.iter().all(|it| it.share(KernelCategory::Map) < 1.0));
    trainer.reset_profile().unwrap();
    assert_eq!(trainer.profile()[0].n_steps, 0);
    assert_eq!(trainer.device_line(), "2 virtual devices on the CPU, 2 threads");
}

/// Checks that the error of a step names what was expected and what was found.
#[track_caller]
fn check_step(inputs: &[View<'_>], message: &str) {
    let error = trainer(2).step(inputs).unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Batch, message));
}

#[test]
fn batches_that_do_not_fit_are_refused() {
    let (x, y) = batch(0);
    check_step(&[View::F32(&x)], "expected a batch of 2 tensors (x, y), found 1");
    check_step(&[View::F32(&x), View::I32(&[1])], "input `y`: expected f32, found i32");
    check_step(
        &[View::F32(&x[1..]), View::F32(&y)],
        "input `x`: expected 256 elements for shape [32, 8], found 255",
    );
}

#[test]
fn labels_out_of_range_are_refused() {
    let mut program = program(1);
    let mut inputs = program.tables.inputs.into_owned();
    inputs[1].dtype = soybean_plan::DType::I32;
    inputs[1].n_classes = Some(10);
    program.tables.inputs = inputs.into();
    let mut trainer = Trainer::new_shared(vouched(program), config()).unwrap();
    let (x, _) = batch(0);
    for (label, found) in [(10, "10"), (-1, "-1")] {
        let mut labels = [9; BATCH];
        labels[7] = label;
        let error = trainer.step(&[View::F32(&x), View::I32(&labels)]).unwrap_err();
        let message = format!("input `y`, row 7: expected a label in 0..10, found {found}");
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn parameters_that_do_not_fit_are_refused() {
    let mut trainer = trainer(2);
    let array = |shape: &[usize]| Array {
        shape: shape.to_vec(),
        data: vec![0.0; shape.iter().product()],
        ..Array::default()
    };
    let mut check = |given: &[(&str, &[usize])], message: &str| {
        let given: Vec<_> = given.iter().map(|it| (it.0.to_owned(), array(it.1))).collect();
        let error = trainer.set_parameters(&given).unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Parameters, message));
    };
    check(&[], "parameter `w`: expected shape [8, 1], found none");
    check(&[("v", &[8, 1])], "expected parameters w, found `v`");
    check(&[("w", &[8, 1]), ("w", &[8, 1])], "parameter `w`: expected once, found twice");
    check(&[("w", &[1, 8])], "parameter `w`: expected shape [8, 1], found [1, 8] with 8 elements");
}

#[test]
fn a_device_that_is_not_there_is_named() {
    if soybean_runtime::devices().has_gpus() {
        return;
    }
    let config = Config { device: Device::Cuda, ..config() };
    let error = Trainer::new_shared(vouched(program(1)), config).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Device);
    assert!(error.to_string().starts_with("expected"), "{error}");
}

#[test]
fn programs_that_contradict_themselves_are_refused() {
    let mut program = program(1);
    program.tables.arena_bytes = 64;
    let error = Trainer::new_shared(vouched(program), config()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Program);
}

/// A model whose rank fails in its second step.
struct Faulty {
    program: Arc<Executable>,
    fault: fn(&mut Rank<'_>),
}

// SAFETY: a rank with a fault fails.
#[expect(unsafe_code, reason = "a model of a test")]
unsafe impl Model for Faulty {
    fn tables(&self) -> &Tables {
        &self.program.tables
    }

    fn kernels(&self) -> &[Kernel] {
        &self.program.kernels
    }

    fn train(&self, entry: usize, rank: &mut Rank<'_>) {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        if name.starts_with("rank 2") {
            (self.fault)(rank);
        }
        self.program.train(entry, rank);
    }

    fn evaluate(&self, entry: usize, rank: &mut Rank<'_>) {
        self.program.evaluate(entry, rank);
    }
}

fn check_fault(fault: fn(&mut Rank<'_>), message: &str) {
    let model = Faulty { program: vouched(program(4)), fault };
    let mut trainer = Trainer::new_shared(Arc::new(model), config()).unwrap();
    let (x, y) = batch(0);
    let error = trainer.step(&[View::F32(&x), View::F32(&y)]).unwrap_err();
    assert_eq!(error.to_string(), message);
    let later = trainer.evaluate(&[View::F32(&x), View::F32(&y)]).unwrap_err();
    let expected = format!("the trainer has stopped after an earlier failure: {message}");
    assert_eq!((later.kind(), later.to_string()), (ErrorKind::Rank, expected));
}

#[test]
fn a_rank_that_panics_ends_the_step_on_all_ranks() {
    check_fault(|_| panic!("tripped over a cable"), "rank 2: panicked: tripped over a cable");
}

#[test]
fn a_rank_that_fails_ends_the_step_on_all_ranks() {
    check_fault(|rank| rank.run(99, &[0, 0], &[0]), "rank 2: expected one of 7 kernels, found 99");
    check_fault(
        |rank| rank.run(1, &[0], &[1]),
        "rank 2: map 1 on the CPU: expected 2 inputs and 1 results, found 1 and 1",
    );
}

#[test]
fn inits_fill_parameters_as_they_say() {
    let mut program = program(2);
    let mut parameters = program.tables.parameters.into_owned();
    parameters[0].init = Init::Constant(0.5);
    program.tables.parameters = parameters.into();
    let mut trainer = Trainer::new_shared(vouched(program), config()).unwrap();
    assert_eq!(trainer.parameters().unwrap()[0].1.data, [0.5; FEATURES]);
}

/// Runs one step by plain loops. Updates the weights and returns the loss before the update.
fn oracle(weights: &mut [f32], x: &[f32], y: &[f32], rate: f32) -> f32 {
    let predicted = |row: &[f32]| row.iter().zip(&*weights).map(|(x, w)| x * w).sum::<f32>();
    let errors: Vec<f32> = x.chunks(FEATURES).zip(y).map(|(row, y)| predicted(row) - y).collect();
    let loss = errors.iter().map(|it| it * it).sum::<f32>() / BATCH as f32;
    for (column, weight) in weights.iter_mut().enumerate() {
        let terms = errors.iter().zip(x.chunks(FEATURES)).map(|(error, row)| error * row[column]);
        *weight -= rate * 2.0 / BATCH as f32 * terms.sum::<f32>();
    }
    loss
}
