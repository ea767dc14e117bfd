//! The flags that say what runs where, for all commands that run something.

use super::{
    Command, Flag, Key,
    Shown::{Number, Text},
    number, path, positive, set, switch,
};

const RUNNING: &[Command] = &[
    Command::Train,
    Command::Check,
    Command::Bench,
    Command::CheckPredictor,
    Command::BenchPredictor,
];

/// The commands that take data.
const LOADING: &[Command] = &[Command::Train, Command::Check, Command::Bench];

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        name: "seed",
        value: "N",
        help: "the seed of parameters, data and their order (0)",
        commands: RUNNING,
        set: |options, text| {
            set(&mut options.run.data.seed, number(text))?;
            set(&mut options.run.trainer.seed, number(text))
        },
        key: Key::Value(|run| Some(Number(run.trainer.seed.to_string()))),
    },
    Flag {
        name: "device",
        value: "NAME",
        help: "cpu, cuda or auto (auto)",
        commands: RUNNING,
        set: |options, text| set(&mut options.run.trainer.device, text.parse()),
        key: Key::Value(|run| Some(Text(run.trainer.device.to_string()))),
    },
    Flag {
        name: "threads",
        value: "N",
        help: "CPU threads of all ranks together (all cores)",
        commands: RUNNING,
        set: |options, text| set(&mut options.run.trainer.threads, positive(text).map(Some)),
        key: Key::Value(|run| run.trainer.threads.map(|it| Number(it.to_string()))),
    },
    Flag {
        name: "no-graph",
        value: "",
        help: "queue each kernel anew in every step on GPUs, for debugging",
        commands: RUNNING,
        set: |options, text| {
            set(&mut options.run.trainer.uses_graphs, switch(text).map(|is_on| !is_on))
        },
        key: Key::Switch(|run| !run.trainer.uses_graphs),
    },
    Flag {
        name: "determinism",
        value: "",
        help: "instead train some steps several times, and compare the bits of all results",
        commands: &[Command::Check],
        set: |options, _| set(&mut options.determinism, Ok(true)),
        key: Key::None,
    },
    Flag {
        name: "trace",
        value: "FILE",
        help: "write what each rank did when in one step, for Perfetto or chrome://tracing",
        commands: &[Command::Train, Command::Bench],
        set: |options, text| set(&mut options.run.trace, Ok(Some(text.into()))),
        key: Key::Value(|run| run.trace.as_deref().map(path)),
    },
    Flag {
        name: "data",
        value: "FILE",
        help: "another data file than the model's own",
        commands: LOADING,
        set: |options, text| set(&mut options.run.data.path, Ok(Some(text.into()))),
        key: Key::Value(|run| run.data.path.as_deref().map(path)),
    },
    Flag {
        name: "data-dir",
        value: "DIR",
        help: "another data folder, for models whose data are several files",
        commands: LOADING,
        set: |options, text| set(&mut options.run.data.path, Ok(Some(text.into()))),
        // It is the same choice as `data`.
        key: Key::Value(|_| None),
    },
];
