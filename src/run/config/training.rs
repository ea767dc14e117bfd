//! The settings of training: length, learning rate, evaluations, checkpoints and initial weights.

use soybean_runtime::weights::Mapping;

use super::{
    Resume,
    setting::{
        Key, Scope, Setting,
        Value::{Number, Text},
        float, from_zero, number, optional, or_never, path, positive, set, some_path, switch,
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
        help: "training steps, which override --epochs, or steps to measure (20)",
        scope: Scope::AllSteps,
        set: |run, text| set(&mut run.steps, positive(text).map(Some)),
        key: Key::Value(|run| optional(run.steps)),
    },
    Setting {
        name: "batch-limit",
        value: "N",
        help: "maximum number of batches in an epoch",
        scope: Scope::Training,
        set: |run, text| set(&mut run.batch_limit, positive(text).map(Some)),
        key: Key::Value(|run| optional(run.batch_limit)),
    },
    Setting {
        name: "lr",
        value: "X",
        help: "the learning rate, or the peak of the schedule",
        scope: Scope::Updates,
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
        help: "steps of linear warm-up from 0 before the schedule (0)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.schedule.warm_up, number(text)),
        key: Key::Value(|run| Some(Number(run.schedule.warm_up.to_string()))),
    },
    Setting {
        name: "min-lr",
        value: "X",
        help: "minimum learning rate of the schedule (0)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.schedule.floor, from_zero(text)),
        key: Key::Value(|run| Some(float(run.schedule.floor))),
    },
    Setting {
        name: "decay-every",
        value: "N",
        help: "steps between decays of the schedule `step`",
        scope: Scope::Training,
        set: |run, text| set(&mut run.schedule.decay_every, positive(text).map(Some)),
        key: Key::Value(|run| optional(run.schedule.decay_every)),
    },
    Setting {
        name: "decay",
        value: "X",
        help: "the factor of each decay of the schedule `step` (0.1)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.schedule.decay, from_zero(text)),
        key: Key::Value(|run| Some(float(run.schedule.decay))),
    },
    Setting {
        name: "evaluate-every",
        value: "N",
        help: "steps between evaluations, in addition to the ends of epochs",
        scope: Scope::Training,
        set: |run, text| set(&mut run.evaluate_every, or_never(text)),
        key: Key::Value(|run| optional(run.evaluate_every)),
    },
    Setting {
        name: "evaluate-averages",
        value: "",
        help: "evaluate the moving averages of the weights; the model needs ema = 0.999",
        scope: Scope::Training,
        set: |run, text| set(&mut run.evaluate_averages, switch(text)),
        key: Key::Switch(|run| run.evaluate_averages),
    },
    Setting {
        name: "watch",
        value: "NAME",
        help: "the metric that selects the best checkpoint and stops the run early (loss)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.watch, Ok(Some(text.to_owned()))),
        key: Key::Value(|run| Some(Text(run.watched().to_owned()))),
    },
    Setting {
        name: "patience",
        value: "N",
        help: "stop after this many evaluations without improvement",
        scope: Scope::Training,
        set: |run, text| set(&mut run.patience, or_never(text)),
        key: Key::Value(|run| optional(run.patience)),
    },
    Setting {
        name: "min-delta",
        value: "X",
        help: "the minimum improvement that counts (0)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.min_delta, from_zero(text)),
        key: Key::Value(|run| Some(float(run.min_delta))),
    },
    Setting {
        name: "out",
        value: "DIR",
        help: "the folder of checkpoints, metrics and events (runs/<model>)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.out, some_path(text)),
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
        help: "steps between checkpoints, in addition to the ends of epochs",
        scope: Scope::Training,
        set: |run, text| set(&mut run.checkpoint_every, or_never(text)),
        key: Key::Value(|run| optional(run.checkpoint_every)),
    },
    Setting {
        name: "keep",
        value: "N",
        help: "checkpoints to keep in addition to the best; 0 keeps all (3)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.keep, number(text)),
        key: Key::Value(|run| Some(Number(run.keep.to_string()))),
    },
    Setting {
        name: "async-checkpoint",
        value: "",
        help: "continue training while a checkpoint is written",
        scope: Scope::Training,
        set: |run, text| set(&mut run.async_checkpoint, switch(text)),
        key: Key::Switch(|run| run.async_checkpoint),
    },
    Setting {
        name: "resume",
        value: "PATH",
        help: "the checkpoint to resume from; auto or must: the newest valid one (never)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.resume, resume(text)),
        key: Key::Value(|run| {
            Some(match &run.resume {
                Resume::Never => Text("never".to_owned()),
                Resume::Auto => Text("auto".to_owned()),
                Resume::Must => Text("must".to_owned()),
                Resume::From(checkpoint) => path(checkpoint),
            })
        }),
    },
    Setting {
        name: "weights",
        value: "FILE",
        help: "a safetensors file with initial weights",
        scope: Scope::Training,
        set: |run, text| set(&mut run.weights, some_path(text)),
        key: Key::Value(|run| run.weights.as_deref().map(path)),
    },
    Setting {
        name: "map",
        value: "THEIRS=OURS",
        help: "the name of a weight of that file in this model; may be repeated",
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
        help: "threads that prefetch batches (1)",
        scope: Scope::Training,
        set: |run, text| set(&mut run.loader_threads, number(text)),
        key: Key::Value(|run| Some(Number(run.loader_threads.to_string()))),
    },
];

fn resume(text: &str) -> Result<Resume, String> {
    match text {
        "never" => Ok(Resume::Never),
        "auto" => Ok(Resume::Auto),
        "must" => Ok(Resume::Must),
        path => some_path(path).map(|it| Resume::From(it.unwrap_or_default())),
    }
}
