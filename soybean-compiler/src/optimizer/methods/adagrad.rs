//! Adagrad.

use soybean_plan::{NumberRange, Register, RunScalar, Unary};

use crate::optimizer::{
    method::{Method, Setting, State},
    operands::Operands,
    rule::Rule,
};

pub(super) static ADAGRAD: Method = Method {
    name: "adagrad",
    summary: "gradients divided by the root of the sum of their squares",
    source: "Duchi et al. 2011, as in PyTorch",
    settings: &[
        Setting::number(
            "lr_decay",
            0.0,
            NumberRange::NON_NEGATIVE,
            "the decay of the learning rate",
        ),
        Setting::number(
            "initial_accumulator_value",
            0.0,
            NumberRange::NON_NEGATIVE,
            "a number added to the sum of squares",
        ),
        Setting::number(
            "eps",
            1e-10,
            NumberRange::NON_NEGATIVE,
            "a number added to the denominator",
        ),
        Setting::weight_decay(0.0, "the L2 penalty"),
    ],
    states: |_, _| vec![State::full("square_sum")],
    scalars: |rule| match rule.number("lr_decay") {
        0.0 => Vec::new(),
        _ => vec![RunScalar::UpdateNumber],
    },
    update,
    ..Method::PLAIN
};

// g += decay p; s += g^2; p -= rate / (1 + (t - 1) lr_decay) g / (sqrt(initial + s) + eps)
// States start at 0, so the initial value of the sum is added where the sum is read.
fn update(rule: &Rule, it: &mut Operands<'_>) -> Vec<Register> {
    let gradient = it.penalized_gradient(rule.weight_decay());
    let square = it.builder.mul(gradient, gradient);
    let square_sum = it.builder.add(it.value("square_sum"), square);
    let accumulated = it.builder.offset(square_sum, rule.number("initial_accumulator_value"));
    let root = it.builder.unary(Unary::Sqrt, accumulated);
    let denominator = it.builder.offset(root, rule.number("eps"));
    let mut rate = it.learning_rate;
    let lr_decay = rule.number("lr_decay");
    if lr_decay != 0.0 {
        let number = it.scalar(RunScalar::UpdateNumber);
        let n_before = it.builder.offset(number, -1.0);
        let decrease = it.builder.scale(n_before, lr_decay);
        let divisor = it.builder.offset(decrease, 1.0);
        rate = it.builder.div(rate, divisor);
    }
    let ratio = it.builder.div(gradient, denominator);
    let step = it.builder.mul(rate, ratio);
    vec![it.builder.sub(it.parameter, step), square_sum]
}
