//! Numerically delicate operators: at kinks, and for numbers that are large, far from 0, or NaN.

use soybean::{
    eager::{Tensor, scope},
    runtime::Array,
};
use soybean_compiler::{Argument, Builder, Optimizer, Strategy};
use soybean_plan::Init;
use soybean_test_support::models::{call, finish, trainer};

/// Returns the result of an operator for a vector and more arguments, and the gradient of its sum
/// with respect to the vector.
fn run(operator: &str, x: &[f32], others: &[Argument]) -> (Vec<f32>, Vec<f32>) {
    let mut builder = Builder::new();
    let parameter = builder.parameter("x", &[x.len()], Init::Constant(0.0));
    let arguments: Vec<Argument> =
        [Argument::Tensor(parameter)].into_iter().chain(others.iter().cloned()).collect();
    let result = call(&mut builder, operator, &arguments);
    let loss = call(&mut builder, "sum", &[Argument::Tensor(result), Argument::All]);
    let outputs = [("result".to_owned(), result)];
    let compiled = finish(builder, loss, &outputs, 1, Strategy::Auto, Optimizer::default());
    let mut trainer = trainer(&compiled, 1.0);
    let array = Array { shape: vec![x.len()], data: x.to_vec() };
    trainer.set_parameters(&[("x".to_owned(), array)]).unwrap();
    let result = trainer.evaluate(&[]).unwrap().outputs.remove(0).data;
    trainer.step(&[]).unwrap();
    let after = trainer.parameters().unwrap().remove(0).1.data;
    (result, x.iter().zip(after).map(|(before, after)| before - after).collect())
}

#[track_caller]
fn close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{found:?}, expected {expected:?}");
    for (x, y) in found.iter().zip(expected) {
        assert!((x - y).abs() <= 2e-6 * y.abs().max(1.0), "{found:?}, expected {expected:?}");
    }
}

#[test]
fn gradients_at_kinks() {
    close(&run("abs", &[-1.5, 0.0, 2.0], &[]).1, &[-1.0, 0.0, 1.0]);
    close(&run("maximum", &[0.0, 0.5, 1.0], &[Argument::Float(0.5)]).1, &[0.0, 0.5, 1.0]);
    close(&run("minimum", &[0.0, 0.5, 1.0], &[Argument::Float(0.5)]).1, &[1.0, 0.5, 0.0]);
    let bounds = [Argument::Integer(-1), Argument::Integer(1)];
    let (result, gradient) = run("clamp", &[-2.0, -1.0, 0.0, 1.0, 2.0], &bounds);
    close(&result, &[-1.0, -1.0, 0.0, 1.0, 1.0]);
    close(&gradient, &[0.0, 1.0, 1.0, 1.0, 0.0]);
    // Ties share the gradient.
    close(&run("min", &[2.0, -1.0, -1.0], &[Argument::All]).1, &[0.0, 0.5, 0.5]);
}

#[test]
fn sums_of_exponentials() {
    let (result, gradient) = run("logsumexp", &[1000.0, 1000.0, -1000.0], &[Argument::Integer(0)]);
    close(&result, &[1000.0 + 2.0_f32.ln()]);
    close(&gradient, &[0.5, 0.5, 0.0]);
}

#[test]
fn variances_far_from_zero() {
    // Deviations of 1 from a mean of 4096: the mean of squares minus the squared mean would lose
    // them.
    let x = [4095.0, 4097.0, 4095.0, 4097.0];
    close(&run("var", &x, &[Argument::All, Argument::Integer(0)]).0, &[1.0]);
    scope(|| {
        let x = Tensor::new([4], &[1e8 - 1.0, 1e8 + 1.0, 1e8 - 1.0, 1e8 + 1.0]);
        let one = Tensor::new([4], &[1.0; 4]);
        let normal = x.layer_norm(one, one - 1, 0.0);
        assert_eq!(normal.to_vec(), [-1.0, 1.0, -1.0, 1.0]);
    });
}

#[test]
fn logits_of_any_size() {
    // The gradient of a logit is (sigmoid(x) - t) / n, also at 0, where training starts.
    let mut builder = Builder::new();
    let x = builder.parameter("x", &[4], Init::Constant(0.0));
    let t = builder.parameter("t", &[4], Init::Constant(0.0));
    let arguments = [Argument::Tensor(x), Argument::Tensor(t)];
    let loss = call(&mut builder, "binary_cross_entropy_with_logits", &arguments);
    let compiled = finish(builder, loss, &[], 1, Strategy::Auto, Optimizer::default());
    let mut trainer = trainer(&compiled, 4.0);
    let array = |data: [f32; 4]| Array { shape: vec![4], data: data.to_vec() };
    let x = [0.0, 200.0, -200.0, 200.0];
    let arrays = [("x".to_owned(), array(x)), ("t".to_owned(), array([0.0, 1.0, 0.0, 0.0]))];
    trainer.set_parameters(&arrays).unwrap();
    close(&[trainer.step(&[]).unwrap()], &[(2.0_f32.ln() + 200.0) / 4.0]);
    let after = trainer.parameters().unwrap().remove(0).1.data;
    let gradient: Vec<f32> = x.iter().zip(after).map(|(before, after)| before - after).collect();
    close(&gradient, &[0.5, 0.0, 0.0, 1.0]);
}

#[test]
fn comparisons_with_what_is_no_number() {
    for (operator, expected) in
        [("eq", 0.0), ("ne", 1.0), ("lt", 0.0), ("le", 0.0), ("gt", 0.0), ("ge", 0.0)]
    {
        let mut builder = Builder::new();
        let x = builder.parameter("x", &[1], Init::Constant(0.0));
        let root = call(&mut builder, "sqrt", &[Argument::Tensor(x)]);
        let result = call(&mut builder, operator, &[Argument::Tensor(root), Argument::Integer(1)]);
        let loss = call(&mut builder, "sum", &[Argument::Tensor(x), Argument::All]);
        let outputs = [("result".to_owned(), result)];
        let compiled = finish(builder, loss, &outputs, 1, Strategy::Auto, Optimizer::default());
        let mut trainer = trainer(&compiled, 1.0);
        let array = Array { shape: vec![1], data: vec![-1.0] };
        trainer.set_parameters(&[("x".to_owned(), array)]).unwrap();
        let found = trainer.evaluate(&[]).unwrap().outputs.remove(0).data;
        assert_eq!(found, [expected], "{operator}");
    }
}
