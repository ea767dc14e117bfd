//! `RMSprop`.

use soybean_plan::{NumberRange, Register, Unary};

use crate::optimizer::{
    method::{Method, Setting, State},
    operands::Operands,
    rule::Rule,
};

pub(super) static RMSPROP: Method = Method {
    name: "rmsprop",
    summary: "gradients divided by the root of a moving mean of their squares",
    source: "Tieleman & Hinton 2012, as in PyTorch",
    settings: &[
        Setting::number("alpha", 0.99, NumberRange::BELOW_ONE, "the decay of the moving means"),
        Setting::number(
            "eps",
            1e-8,
            NumberRange::NON_NEGATIVE,
            "a number added to the denominator",
        ),
        Setting::number(
            "momentum",
            0.0,
            NumberRange::NON_NEGATIVE,
            "the share of the last update in the next",
        ),
        Setting::flag("centered", false, "whether squares are those of deviations from the mean"),
        Setting::weight_decay(0.0, "the L2 penalty"),
    ],
    states: |rule, _| {
        let mut states = vec![State::full("square_mean")];
        states.extend((rule.number("momentum") != 0.0).then_some(State::full("momentum")));
        states.extend(rule.flag("centered").then_some(State::full("mean")));
        states
    },
    update,
    ..Method::PLAIN
};

// g += decay p; v = alpha v + (1 - alpha) g^2; m = alpha m + (1 - alpha) g
// d = g / (sqrt(v) + eps), or centered d = g / (sqrt(v - m^2) + eps)
// p -= rate d, or with momentum b = momentum b + d; p -= rate b
fn update(rule: &Rule, it: &mut Operands<'_>) -> Vec<Register> {
    let (alpha, momentum) = (rule.number("alpha"), rule.number("momentum"));
    let gradient = it.penalized_gradient(rule.weight_decay());
    let square = it.builder.mul(gradient, gradient);
    let square_mean = it.moving_mean(it.value("square_mean"), square, alpha);
    let mut next_mean = None;
    let mut variance = square_mean;
    if rule.flag("centered") {
        let mean = it.moving_mean(it.value("mean"), gradient, alpha);
        let square_of_mean = it.builder.mul(mean, mean);
        variance = it.builder.sub(square_mean, square_of_mean);
        next_mean = Some(mean);
    }
    let root = it.builder.unary(Unary::Sqrt, variance);
    let denominator = it.builder.offset(root, rule.number("eps"));
    let mut direction = it.builder.div(gradient, denominator);
    let mut next_momentum = None;
    if momentum != 0.0 {
        let kept = it.builder.scale(it.value("momentum"), momentum);
        direction = it.builder.add(kept, direction);
        next_momentum = Some(direction);
    }
    let step = it.builder.mul(it.learning_rate, direction);
    let next = it.builder.sub(it.parameter, step);
    [next, square_mean].into_iter().chain(next_momentum).chain(next_mean).collect()
}
