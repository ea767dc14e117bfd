//! The commands of a predictor.

use super::{Command, CommandEntry};

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
