//! The settings of training: length, learning rate, evaluations, checkpoints and initial weights.

use soybean_runtime::weights::Mapping;

use super::{
    Resume,
    setting::{
        Key, Scope, Setting,
        Value::{Number, Text},
        float, from_zero, number, optional, or_never, path, positive, set, switch,
    },
};

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "epochs",
        value: "N",
        help: "passes over the training data",
        scope: Scope::Training,
        set: |run, text| set(&mut run.epochs, number(text)),
        key: Key::Value(|run| Some(Number(run.epochs.to_string()))),
    },
    Setting {
        name: "steps",
        value: "N",
        help: "the number of steps: to train, whatever --epochs says, or to measure (20)",
        scope: Scope::AllSteps,
        set: |run, text| set(&mut run.steps, positive(text).map(Some)),
        key: Key::Value(|run| optional(run.steps)),
    },
    Setting {
        name: "batch-limit",
        value: "N",
        help: "at most this many batches in each epoch",
        scope: Scope::Training,
        set: |run, text| set(&mut run.batch_limit, positive(text).map(Some)),
        key: Key::Value(|run| optional(run.batch_limit)),
    },
    Setting {
        name: "lr",
        value: "X",
        help: "the learning rate; that of schedules at their peak",
        scope: Scope::TrainingSteps,
        set: |run, text| set(&mut run.trainer.learning_rate, from_zero(text)),
        key: Key::Value(|run| Some(float(run.trainer.learning_rate))),
    },
    Setting {
        name: "schedule",
        value: "NAME",
        help: "constant, step, linear, cosine or one-cycle (constant)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.schedule.curve, text.parse()),
        key: Key::Value(|run| Some(Text(run.schedule.curve.to_string()))),
    },
    Setting {
        name: "warmup",
        value: "N",
        help: "steps in which the learning rate rises from 0 before the schedule (0)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.schedule.warm_up, number(text)),
        key: Key::Value(|run| Some(Number(run.schedule.warm_up.to_string()))),
    },
    Setting {
        name: "min-lr",
        value: "X",
        help: "the least learning rate of a schedule (0)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.schedule.floor, from_zero(text)),
        key: Key::Value(|run| Some(float(run.schedule.floor))),
    },
    Setting {
        name: "decay-every",
        value: "N",
        help: "steps between the decays of the schedule step",
        scope: Scope::Training,
        set: |run, text| set(&mut run.schedule.decay_every, positive(text).map(Some)),
        key: Key::Value(|run| optional(run.schedule.decay_every)),
    },
    Setting {
        name: "decay",
        value: "X",
        help: "what the schedule step multiplies the learning rate by (0.1)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.schedule.decay, from_zero(text)),
        key: Key::Value(|run| Some(float(run.schedule.decay))),
    },
    Setting {
        name: "evaluate-every",
        value: "N",
        help: "steps between evaluations, beside those at the ends of epochs",
        scope: Scope::Training,
        set: |run, text| set(&mut run.evaluate_every, or_never(text)),
        key: Key::Value(|run| optional(run.evaluate_every)),
    },
    Setting {
        name: "evaluate-averages",
        value: "",
        help: "evaluate the moving averages of the weights, which the model keeps with ema = 0.999",
        scope: Scope::Training,
        set: |run, text| set(&mut run.evaluate_averages, switch(text)),
        key: Key::Switch(|run| run.evaluate_averages),
    },
    Setting {
        name: "watch",
        value: "NAME",
        help: "the metric that chooses the best checkpoint and ends the run early (loss)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.watch, Ok(Some(text.to_owned()))),
        key: Key::Value(|run| Some(Text(run.watched().to_owned()))),
    },
    Setting {
        name: "patience",
        value: "N",
        help: "end after this many evaluations in a row that are no better",
        scope: Scope::Training,
        set: |run, text| set(&mut run.patience, or_never(text)),
        key: Key::Value(|run| optional(run.patience)),
    },
    Setting {
        name: "min-delta",
        value: "X",
        help: "by how much an evaluation has to be better to count (0)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.min_delta, from_zero(text)),
        key: Key::Value(|run| Some(float(run.min_delta))),
    },
    Setting {
        name: "out",
        value: "DIR",
        help: "where checkpoints, metrics and events go (runs/<model>)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.out, Ok(Some(text.into()))),
        key: Key::Value(|run| run.out.as_deref().map(path)),
    },
    Setting {
        name: "log-every",
        value: "N",
        help: "steps between lines of metrics.jsonl (10)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.log_every, positive(text)),
        key: Key::Value(|run| Some(Number(run.log_every.to_string()))),
    },
    Setting {
        name: "no-checkpoints",
        value: "",
        help: "write no checkpoints",
        scope: Scope::Training,
        set: |run, text| set(&mut run.checkpoints, switch(text).map(|is_on| !is_on)),
        key: Key::Switch(|run| !run.checkpoints),
    },
    Setting {
        name: "checkpoint-every",
        value: "N",
        help: "steps between checkpoints, beside those at the ends of epochs",
        scope: Scope::Training,
        set: |run, text| set(&mut run.checkpoint_every, or_never(text)),
        key: Key::Value(|run| optional(run.checkpoint_every)),
    },
    Setting {
        name: "keep",
        value: "N",
        help: "how many checkpoints are kept, beside the best; all if 0 (3)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.keep, number(text)),
        key: Key::Value(|run| Some(Number(run.keep.to_string()))),
    },
    Setting {
        name: "async-checkpoint",
        value: "",
        help: "train on while a checkpoint is written",
        scope: Scope::Training,
        set: |run, text| set(&mut run.async_checkpoint, switch(text)),
        key: Key::Switch(|run| run.async_checkpoint),
    },
    Setting {
        name: "resume",
        value: "PATH",
        help: "go on at this checkpoint, or at the newest whole one: auto; or never (never)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.resume, Ok(resume(text))),
        key: Key::Value(|run| {
            Some(match &run.resume {
                Resume::Never => Text("never".to_owned()),
                Resume::Auto => Text("auto".to_owned()),
                Resume::From(checkpoint) => path(checkpoint),
            })
        }),
    },
    Setting {
        name: "weights",
        value: "FILE",
        help: "start with the weights of a safetensors file",
        scope: Scope::Training,
        set: |run, text| set(&mut run.weights, Ok(Some(text.into()))),
        key: Key::Value(|run| run.weights.as_deref().map(path)),
    },
    Setting {
        name: "map",
        value: "THEIRS=OURS",
        help: "what a weight of that file is called here; may be given often",
        scope: Scope::Training,
        set: |run, text| {
            text.parse::<Mapping>().map_err(|error| error.to_string())?;
            run.map.push(text.to_owned());
            Ok(())
        },
        key: Key::List { clear: |run| run.map.clear(), values: |run| &run.map },
    },
    Setting {
        name: "loader-threads",
        value: "N",
        help: "threads that read batches ahead (1)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.loader_threads, number(text)),
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
