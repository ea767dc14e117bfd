//! Lion: evolved sign momentum.

use soybean_plan::{Binary, NumberRange, Register};

use crate::{
    optimizer::{
        method::{Method, Setting, State},
        operands::Operands,
        rule::Rule,
    },
    scalar::ScalarBuilder,
};

pub(super) static LION: Method = Method {
    name: "lion",
    summary: "the sign of a moving mean of gradients",
    source: "Chen et al. 2023, algorithm 2",
    settings: &[
        Setting::pair(
            "betas",
            (0.9, 0.99),
            NumberRange::BELOW_ONE,
            "the decay of the mean in the update, and of the mean that is kept",
        ),
        Setting::weight_decay(0.0, "the decoupled weight decay"),
    ],
    states: |_, _| vec![State::full("mean")],
    update,
    ..Method::PLAIN
};

// c = beta1 m + (1 - beta1) g; p -= rate (sign(c) + decay p); m = beta2 m + (1 - beta2) g
fn update(rule: &Rule, it: &mut Operands<'_>) -> Vec<Register> {
    let betas = rule.pair("betas");
    let mean = it.value("mean");
    let interpolated = it.moving_mean(mean, it.gradient, betas.0);
    let next_mean = it.moving_mean(mean, it.gradient, betas.1);
    let direction = sign(it.builder, interpolated);
    let parameter = it.decayed_parameter(rule.weight_decay());
    let step = it.builder.mul(it.learning_rate, direction);
    vec![it.builder.sub(parameter, step), next_mean]
}

fn sign(builder: &mut ScalarBuilder, x: Register) -> Register {
    let zero = builder.constant(0.0);
    let is_positive = builder.binary(Binary::Greater, x, zero);
    let is_negative = builder.binary(Binary::Greater, zero, x);
    builder.sub(is_positive, is_negative)
}
