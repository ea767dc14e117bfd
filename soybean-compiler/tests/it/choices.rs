//! Gradients through choices: nothing of what was not chosen reaches them.

use std::collections::BTreeMap;

use soybean_compiler::{
    Argument, Builder, Network, Optimizer, Value, fuse, simplify, training_step,
};
use soybean_plan::{DType, Init, Precision};

use crate::support::{
    call,
    interpreter::{LEARNING_RATE, evaluate},
};

const X: [f64; 4] = [-1.0, -4.0, 0.0, 4.0];

/// A model of the parameter `x` and the input `missing`, as calls.
struct Model<'a> {
    builder: &'a mut Builder,
    x: Value,
    missing: Value,
}

impl Model<'_> {
    fn call(&mut self, operator: &str, tensors: &[Value]) -> Value {
        let arguments: Vec<Argument> = tensors.iter().map(|it| Argument::Tensor(*it)).collect();
        call(self.builder, operator, &arguments)
    }

    fn with(&mut self, operator: &str, tensor: Value, others: &[Argument]) -> Value {
        let arguments = [&[Argument::Tensor(tensor)], others].concat();
        call(self.builder, operator, &arguments)
    }

    /// `tensor.gt(0)`
    fn is_positive(&mut self, tensor: Value) -> Argument {
        Argument::Tensor(self.with("gt", tensor, &[Argument::Integer(0)]))
    }

    /// `tensor.where_(x.gt(0), 0)`
    fn where_positive(&mut self, tensor: Value) -> Value {
        let condition = self.is_positive(self.x);
        self.with("where_", tensor, &[condition, Argument::Float(0.0)])
    }
}

/// Returns the gradient of the sum of a function of `x`, before and after fusion.
fn gradients(function: impl Fn(&mut Model<'_>) -> Value) -> [Vec<f64>; 2] {
    let mut builder = Builder::new();
    let x = builder.parameter("x", &[4], Init::Constant(0.0));
    let missing = builder.input("missing", DType::F32, &[4]);
    let result = function(&mut Model { builder: &mut builder, x, missing });
    let loss = call(&mut builder, "sum", &[Argument::Tensor(result), Argument::All]);
    let network = training_step(builder, loss, &[], &Optimizer::default()).unwrap();
    let fused = fuse(&simplify(&network), Precision::F32);
    [network, fused].map(|network| gradient(&network))
}

fn gradient(network: &Network) -> Vec<f64> {
    let [(parameter, next)] = network.updates[..] else { panic!("one parameter is updated") };
    let missing = vec![f64::NAN, f64::INFINITY, f64::NAN, 2.0];
    let of_input = network.inputs.iter().map(|it| (*it, missing.clone()));
    let sources: BTreeMap<Value, Vec<f64>> = of_input.chain([(parameter, X.to_vec())]).collect();
    let next = &evaluate(&network.graph, &sources)[&next];
    X.iter().zip(next).map(|(before, after)| (before - after) / LEARNING_RATE).collect()
}

#[track_caller]
fn check(expected: [f64; 4], function: impl Fn(&mut Model<'_>) -> Value) {
    for found in gradients(function) {
        let is_close = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-9 * (1.0 + y.abs());
        assert!(found.iter().zip(&expected).all(is_close), "{found:?}, expected {expected:?}");
    }
}

// Guards: the gradient of a branch that `where_` or `masked_fill` did not choose is never NaN.
#[test]
fn functions_without_a_finite_slope() {
    check([1.0, 1.0, 1.0, 0.25], |it| {
        let (root, x) = (it.call("sqrt", &[it.x]), it.x);
        let condition = it.is_positive(x);
        it.with("where_", root, &[condition, Argument::Tensor(x)])
    });
    for (operator, slope) in [
        ("log", 0.25),
        ("rsqrt", -0.0625),
        ("reciprocal", -0.0625),
        ("exp", 4.0_f64.exp()),
        ("log1p", 0.2),
    ] {
        check([0.0, 0.0, 0.0, slope], |it| {
            let value = it.call(operator, &[it.x]);
            it.where_positive(value)
        });
        check([0.0, 0.0, 0.0, slope], |it| {
            let (value, zero) = (it.call(operator, &[it.x]), Argument::Integer(0));
            let mask = Argument::Tensor(it.with("le", it.x, std::slice::from_ref(&zero)));
            it.with("masked_fill", value, &[mask, zero])
        });
    }
    // Powers, and quotients of 0 by 0.
    check([0.0, 0.0, 0.0, 3.0], |it| {
        let power = it.with("pow", it.x, &[Argument::Float(1.5)]);
        it.where_positive(power)
    });
    check([0.0; 4], |it| {
        let quotient = it.call("div", &[it.x, it.x]);
        it.where_positive(quotient)
    });
    // e^(1000 x) is infinite where x is 4, and the other branch is chosen there.
    check([0.0, 0.0, 1000.0, 1.0], |it| {
        let scaled = it.with("mul", it.x, &[Argument::Integer(1000)]);
        let (power, x) = (it.call("exp", &[scaled]), it.x);
        let condition = it.is_positive(x);
        it.with("where_", x, &[condition, Argument::Tensor(power)])
    });
}

#[test]
fn chains_of_functions() {
    // log(sqrt(x)) = log(x) / 2
    check([0.0, 0.0, 0.0, 0.125], |it| {
        let root = it.call("sqrt", &[it.x]);
        let logarithm = it.call("log", &[root]);
        it.where_positive(logarithm)
    });
    // A finite slope at NaN, which comes from a root.
    check([0.0, 0.0, 0.0, 0.25 * (1.0 - 2.0_f64.tanh().powi(2))], |it| {
        let root = it.call("sqrt", &[it.x]);
        let tanh = it.call("tanh", &[root]);
        it.where_positive(tanh)
    });
    // Other functions after the choice, and a choice of choices.
    check([0.0, 0.0, 0.0, 0.5], |it| {
        let root = it.call("sqrt", &[it.x]);
        let chosen = it.where_positive(root);
        let product = it.call("mul", &[chosen, chosen]);
        let again = it.where_positive(product);
        it.with("mul", again, &[Argument::Float(0.5)])
    });
    check([-2.0, -0.5, 0.0, 0.5], |it| {
        let square = it.call("square", &[it.x]);
        let logarithm = it.call("log", &[square]);
        it.with("clamp", logarithm, &[Argument::Integer(-10), Argument::Integer(10)])
    });
    check([0.0, 0.0, 0.0, -0.0625], |it| {
        let reciprocal = it.call("reciprocal", &[it.x]);
        let positive = it.where_positive(reciprocal);
        it.with("minimum", positive, &[Argument::Integer(3)])
    });
}

#[test]
fn rows_columns_and_parts() {
    // A column of x, broadcast and chosen by the row.
    check([0.0, 0.0, 0.0, 4.0 * 0.25], |it| {
        let column = it.with("unsqueeze", it.x, &[Argument::Integer(1)]);
        let root = it.call("sqrt", &[column]);
        let (ones, condition) = (it.missing, it.is_positive(column));
        let zeros = Argument::Tensor(it.with("mul", it.x, &[Argument::Integer(0)]));
        let zeros = it.with("where_", ones, &[zeros, Argument::Integer(0)]);
        let sums = it.call("add", &[root, zeros]);
        it.with("where_", sums, &[condition, Argument::Integer(0)])
    });
    // A sum, a maximum, and parts of what is chosen.
    for operator in ["sum", "mean", "max"] {
        check([0.0, 0.0, 0.0, 0.25], |it| {
            let root = it.call("sqrt", &[it.x]);
            let column = it.with("unsqueeze", root, &[Argument::Integer(1)]);
            let reduced = it.with(operator, column, &[Argument::Integer(1)]);
            it.where_positive(reduced)
        });
    }
    check([0.0, 0.0, 0.0, 0.25], |it| {
        let root = it.call("sqrt", &[it.x]);
        let twice = call(
            it.builder,
            "concat",
            &[Argument::List(vec![Argument::Tensor(root); 2]), Argument::Integer(0)],
        );
        let numbers = [0, 0, 4].map(Argument::Integer);
        let part = it.with("slice", twice, &numbers);
        it.where_positive(part)
    });
}

// Guards: a batch may have NaN where data are missing.
#[test]
fn missing_data() {
    check([0.0, 0.0, 0.0, 2.0], |it| {
        let product = it.call("mul", &[it.x, it.missing]);
        it.where_positive(product)
    });
}

// Guards: a gradient that is not finite where it was chosen is not hidden.
#[test]
fn chosen_slopes_are_not_hidden() {
    let [found, fused] = gradients(|it| {
        let root = it.call("sqrt", &[it.x]);
        let condition = Argument::Tensor(it.with("ge", it.x, &[Argument::Integer(0)]));
        it.with("where_", root, &[condition, Argument::Integer(0)])
    });
    for gradient in [found, fused] {
        assert_eq!(gradient[..3], [0.0, 0.0, f64::INFINITY]);
    }
}

// Guards: programs stay as they are where slopes are finite.
#[test]
fn finite_slopes_have_no_gate() {
    let text = |function: &dyn Fn(&mut Model<'_>) -> Value| {
        let mut builder = Builder::new();
        let x = builder.parameter("x", &[4, 4], Init::Constant(0.0));
        let result = function(&mut Model { builder: &mut builder, x, missing: x });
        let loss = call(&mut builder, "sum", &[Argument::Tensor(result), Argument::All]);
        training_step(builder, loss, &[], &Optimizer::default()).unwrap().to_string()
    };
    let norm = |it: &mut Model<'_>| {
        let weight = it.builder.parameter("weight", &[4], Init::Constant(0.0));
        let arguments = [Argument::Tensor(weight), Argument::Tensor(weight), Argument::Float(0.1)];
        let normal = it.with("layer_norm", it.x, &arguments);
        let gelu = it.call("gelu", &[normal]);
        let product = it.call("matmul", &[gelu, it.x]);
        it.call("tanh", &[product])
    };
    for operator in ["relu", "clamp"] {
        let text = text(&|it| {
            let value = norm(it);
            match operator {
                "clamp" => it.with("clamp", value, &[Argument::Float(-0.5), Argument::Float(0.5)]),
                _ => it.call(operator, &[value]),
            }
        });
        assert!(!text.contains("select(eq("), "{operator}: {text}");
    }
}
