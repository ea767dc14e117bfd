//! The norm of all gradients: any number of gradients and devices, and an error if it is not
//! finite.

use soybean::runtime::{ErrorKind, View};
use soybean_compiler::{Argument, Builder, Optimizer, Strategy};
use soybean_plan::{DType, Init};

use soybean_test_support::models::{call, finish, numbers, single, trainer};

#[test]
fn gradients_whose_norm_is_not_finite_stop_clipped_training() {
    // The loss and the gradients, 1e30 / 4, are finite. The sum of their squares overflows single
    // precision.
    let mut it = Builder::new();
    let x = it.input("x", DType::F32, &[4]);
    let w = it.parameter("w", &[4], Init::Constant(1.0));
    let product = call(&mut it, "mul", &[Argument::Tensor(x), Argument::Tensor(w)]);
    let loss = call(&mut it, "mean", &[Argument::Tensor(product), Argument::All]);
    let optimizer = Optimizer { clip_norm: Some(1.0), ..Optimizer::default() };
    let compiled = finish(it, loss, &[], 1, Strategy::Auto, optimizer);
    let mut trainer = trainer(&compiled, 0.5);
    let error = trainer.step(&[View::F32(&[1e30; 4])]).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (
            ErrorKind::Loss,
            "expected finite gradients, found that the norm of the gradients is infinite in step 1 (learning rate 0.5)"
        )
    );
}

#[test]
fn the_norm_is_that_of_more_gradients_than_one_kernel_adds_up() {
    // A kernel adds 32 numbers; of 33, one is left for the next kernel. Their gradients are x, 2 x,
    // 3 x and so on.
    let factors: Vec<f64> = (1..=33).map(f64::from).collect();
    let x_of = numbers(24, 5);
    for n_gpus in [1, 2, 4, 6, 8] {
        let mut it = Builder::new();
        let mut sum = it.input("x", DType::F32, &[24]);
        for factor in &factors {
            let w = it.parameter(&format!("w{factor}"), &[24], Init::Constant(1.0));
            let term = call(&mut it, "mul", &[Argument::Tensor(w), Argument::Float(*factor)]);
            sum = call(&mut it, "add", &[sum, term].map(Argument::Tensor));
        }
        let x = it.input("z", DType::F32, &[24]);
        let product = call(&mut it, "mul", &[x, sum].map(Argument::Tensor));
        let loss = call(&mut it, "sum", &[Argument::Tensor(product), Argument::All]);
        let optimizer = Optimizer { clip_norm: Some(1.0), ..Optimizer::default() };
        let mut trainer = trainer(&finish(it, loss, &[], n_gpus, Strategy::Auto, optimizer), 0.5);
        let x = single(&x_of);
        trainer.step(&[&x, &x].map(|it| View::F32(it))).unwrap();
        let squares = [&factors, &x_of].map(|of| of.iter().map(|it| it * it).sum::<f64>());
        let ratio = f64::from(trainer.gradient_norm().unwrap()) / (squares[0] * squares[1]).sqrt();
        assert!((ratio - 1.0).abs() < 1e-5, "{n_gpus}: {ratio}");
    }
}
