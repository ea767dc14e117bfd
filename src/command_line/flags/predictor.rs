//! The commands of a predictor.

use super::{Command, CommandEntry};

/// The commands of a predictor of texts.
pub(in crate::command_line) const WRITER: &[CommandEntry] =
    &[GENERATE, PLAN, PREDICTOR[1], PREDICTOR[2], PREDICTOR[3]];

const GENERATE: CommandEntry = CommandEntry {
    command: Command::Generate,
    name: "generate",
    help: "continue texts (the default)",
};

const PLAN: CommandEntry =
    CommandEntry { command: Command::Plan, name: "plan", help: "show and explain the plan" };

/// The commands of any predictor.
pub(in crate::command_line) const PREDICTOR: &[CommandEntry] = &[
    CommandEntry {
        command: Command::Plan,
        name: "plan",
        help: "show and explain the plan (the default)",
    },
    CommandEntry {
        command: Command::CheckPredictor,
        name: "check",
        help: "compare the generated predictor with the model's function on random inputs",
    },
    CommandEntry {
        command: Command::BenchPredictor,
        name: "bench",
        help: "measure predictions on random inputs",
    },
    CommandEntry {
        command: Command::Devices,
        name: "devices",
        help: "list the devices and libraries, and those in use",
    },
];
