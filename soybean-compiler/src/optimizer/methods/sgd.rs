//! Stochastic gradient descent, with momentum and Nesterov's momentum.

use soybean_plan::{NumberRange, Register};

use crate::optimizer::{
    method::{Method, Setting, State},
    operands::Operands,
    rule::Rule,
};

pub(super) static SGD: Method = Method {
    name: "sgd",
    summary: "stochastic gradient descent",
    source: "Robbins & Monro 1951; momentum as in PyTorch",
    settings: &[
        Setting::number(
            "momentum",
            0.0,
            NumberRange::NON_NEGATIVE,
            "the share of the last update in the next",
        ),
        Setting::flag("nesterov", false, "whether the gradient looks ahead along the momentum"),
        Setting::weight_decay(0.0, "the L2 penalty"),
    ],
    check: |rule| {
        let is_sound = !rule.flag("nesterov") || rule.number("momentum") > 0.0;
        (!is_sound).then_some("`nesterov` needs a momentum above 0")
    },
    states: |rule, _| match rule.number("momentum") {
        0.0 => Vec::new(),
        _ => vec![State::full("momentum")],
    },
    update,
    ..Method::PLAIN
};

// g += decay p; v = momentum v + g; p -= rate v, or with Nesterov p -= rate (g + momentum v)
fn update(rule: &Rule, it: &mut Operands<'_>) -> Vec<Register> {
    let gradient = it.penalized_gradient(rule.weight_decay());
    let momentum = rule.number("momentum");
    let mut direction = gradient;
    let mut next_states = Vec::new();
    if momentum != 0.0 {
        let kept = it.builder.scale(it.value("momentum"), momentum);
        direction = it.builder.add(kept, gradient);
        next_states.push(direction);
        if rule.flag("nesterov") {
            let ahead = it.builder.scale(direction, momentum);
            direction = it.builder.add(gradient, ahead);
        }
    }
    let step = it.builder.mul(it.learning_rate, direction);
    let next = it.builder.sub(it.parameter, step);
    [next].into_iter().chain(next_states).collect()
}
