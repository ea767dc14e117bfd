//! The flags of `train`.

use soybean_runtime::weights::Mapping;

use super::{
    Command, Flag, Key,
    Shown::{self, Number, Text},
    number, path, positive, set, switch,
};
use crate::run::Resume;

const TRAIN: &[Command] = &[Command::Train];

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        name: "config",
        value: "FILE",
        help: "a TOML file whose keys are the names of these flags; flags go before it",
        commands: TRAIN,
        set: |options, text| set(&mut options.file, Ok(Some(text.into()))),
        key: Key::None,
    },
    Flag {
        name: "epochs",
        value: "N",
        help: "passes over the training data",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.epochs, number(text)),
        key: Key::Value(|run| Some(Number(run.epochs.to_string()))),
    },
    Flag {
        name: "steps",
        value: "N",
        help: "the number of steps: to train, whatever --epochs says, or to measure (20)",
        commands: &[Command::Train, Command::Bench, Command::BenchPredictor],
        set: |options, text| {
            set(&mut options.n_measured, positive(text).map(Some))?;
            set(&mut options.run.steps, positive(text).map(Some))
        },
        key: Key::Value(|run| optional(run.steps)),
    },
    Flag {
        name: "batch-limit",
        value: "N",
        help: "at most this many batches in each epoch",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.batch_limit, positive(text).map(Some)),
        key: Key::Value(|run| optional(run.batch_limit)),
    },
    Flag {
        name: "lr",
        value: "X",
        help: "the learning rate; that of schedules at their peak",
        commands: &[Command::Train, Command::Bench],
        set: |options, text| set(&mut options.run.trainer.learning_rate, from_zero(text)),
        key: Key::Value(|run| Some(float(run.trainer.learning_rate))),
    },
    Flag {
        name: "schedule",
        value: "NAME",
        help: "constant, step, linear, cosine or one-cycle (constant)",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.schedule.curve, text.parse()),
        key: Key::Value(|run| Some(Text(run.schedule.curve.to_string()))),
    },
    Flag {
        name: "warmup",
        value: "N",
        help: "steps in which the learning rate rises from 0 before the schedule (0)",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.schedule.warm_up, number(text)),
        key: Key::Value(|run| Some(Number(run.schedule.warm_up.to_string()))),
    },
    Flag {
        name: "min-lr",
        value: "X",
        help: "the least learning rate of a schedule (0)",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.schedule.floor, from_zero(text)),
        key: Key::Value(|run| Some(float(run.schedule.floor))),
    },
    Flag {
        name: "decay-every",
        value: "N",
        help: "steps between the decays of the schedule step",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.schedule.decay_every, positive(text).map(Some)),
        key: Key::Value(|run| optional(run.schedule.decay_every)),
    },
    Flag {
        name: "decay",
        value: "X",
        help: "what the schedule step multiplies the learning rate by (0.1)",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.schedule.decay, from_zero(text)),
        key: Key::Value(|run| Some(float(run.schedule.decay))),
    },
    Flag {
        name: "evaluate-every",
        value: "N",
        help: "steps between evaluations, beside those at the ends of epochs",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.evaluate_every, or_never(text)),
        key: Key::Value(|run| optional(run.evaluate_every)),
    },
    Flag {
        name: "evaluate-averages",
        value: "",
        help: "evaluate the moving averages of the weights, which the model keeps with ema = 0.999",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.evaluate_averages, switch(text)),
        key: Key::Switch(|run| run.evaluate_averages),
    },
    Flag {
        name: "watch",
        value: "NAME",
        help: "the metric that chooses the best checkpoint and ends the run early (loss)",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.watch, Ok(Some(text.to_owned()))),
        key: Key::Value(|run| Some(Text(run.watched().to_owned()))),
    },
    Flag {
        name: "patience",
        value: "N",
        help: "end after this many evaluations in a row that are no better",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.patience, or_never(text)),
        key: Key::Value(|run| optional(run.patience)),
    },
    Flag {
        name: "min-delta",
        value: "X",
        help: "by how much an evaluation has to be better to count (0)",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.min_delta, from_zero(text)),
        key: Key::Value(|run| Some(float(run.min_delta))),
    },
    Flag {
        name: "out",
        value: "DIR",
        help: "where checkpoints, metrics and events go (runs/<model>)",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.out, Ok(Some(text.into()))),
        key: Key::Value(|run| run.out.as_deref().map(path)),
    },
    Flag {
        name: "log-every",
        value: "N",
        help: "steps between lines of metrics.jsonl (10)",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.log_every, positive(text)),
        key: Key::Value(|run| Some(Number(run.log_every.to_string()))),
    },
    Flag {
        name: "no-checkpoints",
        value: "",
        help: "write no checkpoints",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.checkpoints, switch(text).map(|is_on| !is_on)),
        key: Key::Switch(|run| !run.checkpoints),
    },
    Flag {
        name: "checkpoint-every",
        value: "N",
        help: "steps between checkpoints, beside those at the ends of epochs",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.checkpoint_every, or_never(text)),
        key: Key::Value(|run| optional(run.checkpoint_every)),
    },
    Flag {
        name: "keep",
        value: "N",
        help: "how many checkpoints are kept, beside the best; all if 0 (3)",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.keep, number(text)),
        key: Key::Value(|run| Some(Number(run.keep.to_string()))),
    },
    Flag {
        name: "async-checkpoint",
        value: "",
        help: "train on while a checkpoint is written",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.async_checkpoint, switch(text)),
        key: Key::Switch(|run| run.async_checkpoint),
    },
    Flag {
        name: "resume",
        value: "PATH",
        help: "go on at this checkpoint, or at the newest whole one: auto; or never (never)",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.resume, Ok(resume(text))),
        key: Key::Value(|run| {
            Some(match &run.resume {
                Resume::Never => Text("never".to_owned()),
                Resume::Auto => Text("auto".to_owned()),
                Resume::From(checkpoint) => path(checkpoint),
            })
        }),
    },
    Flag {
        name: "weights",
        value: "FILE",
        help: "start with the weights of a safetensors file",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.weights, Ok(Some(text.into()))),
        key: Key::Value(|run| run.weights.as_deref().map(path)),
    },
    Flag {
        name: "map",
        value: "THEIRS=OURS",
        help: "what a weight of that file is called here; may be given often",
        commands: TRAIN,
        set: |options, text| {
            text.parse::<Mapping>().map_err(|error| error.to_string())?;
            options.run.map.push(text.to_owned());
            Ok(())
        },
        key: Key::List { clear: |run| run.map.clear(), values: |run| &run.map },
    },
    Flag {
        name: "loader-threads",
        value: "N",
        help: "threads that read batches ahead (1)",
        commands: TRAIN,
        set: |options, text| set(&mut options.run.loader_threads, number(text)),
        key: Key::Value(|run| Some(Number(run.loader_threads.to_string()))),
    },
];

fn resume(text: &str) -> Resume {
    match text {
        "never" => Resume::Never,
        "auto" => Resume::Auto,
        path => Resume::From(path.into()),
    }
}

/// A number of steps or evaluations; nothing if it is 0.
fn or_never(text: &str) -> Result<Option<u64>, String> {
    number(text).map(|it| Some(it).filter(|it| *it > 0))
}

/// A number that is not negative.
fn from_zero<N: std::str::FromStr + Into<f64> + Copy>(text: &str) -> Result<N, String> {
    let is_good = |it: &N| (*it).into().is_finite() && (*it).into() >= 0.0;
    let found = text.parse().ok().filter(is_good);
    found.ok_or_else(|| format!("expected a finite number from 0, found `{text}`"))
}

fn optional(number: Option<u64>) -> Option<Shown> {
    number.map(|it| Number(it.to_string()))
}

/// A number that TOML reads as one that need not be whole.
fn float<N: std::fmt::Debug>(number: N) -> Shown {
    Number(format!("{number:?}"))
}
