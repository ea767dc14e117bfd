//! Losses, learning rates and tensors that are not finite, in a program written by hand.

use soybean_linear_program::{batch, program, vouched};
use soybean_runtime::{Config, Device, ErrorKind, Trainer, View};

fn config() -> Config {
    Config { seed: 3, learning_rate: 0.05, device: Device::Cpu, ..Config::default() }
}

fn trainer(n_ranks: usize) -> Trainer {
    Trainer::new_shared(vouched(program(n_ranks)), config()).unwrap()
}

#[test]
fn a_loss_that_is_not_a_number_is_an_error_that_names_the_step() {
    let mut trainer = trainer(2);
    let (mut x, y) = batch(0);
    trainer.step(&[View::F32(&x), View::F32(&y)]).unwrap();
    x[5] = f32::NAN;
    let error = trainer.step(&[View::F32(&x), View::F32(&y)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Loss);
    assert_eq!(
        error.to_string(),
        "expected a finite loss, found that the loss is NaN in step 2 (learning rate 0.05)"
    );
}

#[test]
fn learning_rates_that_are_not_finite_are_refused() {
    let mut trainer = trainer(2);
    let (x, y) = batch(0);
    for rate in [f32::NAN, f32::INFINITY, -0.5] {
        let message = format!("`learning_rate` must be a number from 0 to 3.4e38, found {rate}");
        let config = Config { learning_rate: rate, ..config() };
        let error = Trainer::new_shared(vouched(program(1)), config).err().unwrap();
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Choice, message.clone()));
        trainer.set_learning_rate(rate);
        let error = trainer.step(&[View::F32(&x), View::F32(&y)]).unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Choice, message));
    }
    trainer.set_learning_rate(0.05);
    trainer.step(&[View::F32(&x), View::F32(&y)]).unwrap();
}

#[test]
fn an_inspected_step_finds_the_first_tensor_that_is_not_finite() {
    for n_ranks in [1, 2, 4] {
        let mut trainer = trainer(n_ranks);
        let (mut x, y) = batch(0);
        assert_eq!(trainer.inspect_step(&[View::F32(&x), View::F32(&y)]).unwrap(), []);
        assert_eq!(trainer.n_steps(), 1);
        x[5] = f32::NAN;
        let found = trainer.inspect_step(&[View::F32(&x), View::F32(&y)]).unwrap();
        let prediction = program(n_ranks).train[0][0].results[0];
        assert_eq!((found.len(), found[0].buffer, found[0].call), (1, prediction, Some(0)));
        assert!(found[0].value.is_nan());
        // The program, which is written by hand, has updated the weights.
        let found = trainer.inspect_step(&[View::F32(&x), View::F32(&y)]).unwrap();
        let weights = program(n_ranks).tables.parameters[0].buffer;
        assert_eq!((found.len(), found[0].buffer, found[0].call), (1, weights, None));
    }
}
