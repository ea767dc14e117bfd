//! Arguments that the attribute does not take.

use soybean_compiler::LEARNING_RATE;

use super::ARGUMENTS;
use crate::{diagnostic::Diagnostic, suggestion};

/// Names of what is given elsewhere, with the places.
const ELSEWHERE: [(&[&str], &str); 7] = [
    (&["lr", "learning_rate"], LEARNING_RATE),
    (
        &["epochs", "max_epochs", "num_epochs"],
        "write `train --epochs 20`, or `TrainConfig::new(20, 0.001)`",
    ),
    (
        &["batch", "batch_size"],
        "the batch size is a dim of the function's arguments: `x: Tensor<f32, 64, 784>`",
    ),
    (&["seed"], "write `train --seed 1`, or `Config { seed: 1, ..Config::default() }`"),
    (
        &["device", "devices"],
        "`gpus = 8` is their number; `train --device cuda` chooses their kind",
    ),
    (
        &["weight_decay", "momentum", "betas", "eps"],
        "it is a setting of the optimizer: `optimizer = adamw(weight_decay = 0.1)`",
    ),
    (
        &["scheduler", "schedule", "warmup", "warmup_steps"],
        "write `train --schedule cosine`, or the field `schedule` of `TrainConfig`",
    ),
];

/// Describes an unknown argument.
pub(super) fn unknown(name: &str) -> Diagnostic {
    let known = ARGUMENTS.map(|it| format!("{} = {}", it.name, it.example)).join(", ");
    let message = Diagnostic::new(format!("unknown argument `{name}`"));
    if let Some((_, help)) = ELSEWHERE.iter().find(|(names, _)| names.contains(&name)) {
        return message.help(*help);
    }
    let message = message.note("known", known);
    match suggestion::nearest(name, ARGUMENTS.map(|it| it.name)) {
        Some(nearest) => message.help(format!("did you mean `{nearest}`?")),
        None => message,
    }
}
