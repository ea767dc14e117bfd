//! The files of traces and data.

use super::setting::{Key, OnResume, Scope, Setting, path, set, some_path, switch};

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "trace",
        on_resume: OnResume::Noted,
        value: "FILE",
        help: "write a trace of one step of all ranks, for Perfetto or chrome://tracing",
        scope: Scope::TrainingSteps,
        set: |run, text| set(&mut run.trace, some_path(text)),
        key: Key::Value(|run| run.trace.as_deref().map(path)),
    },
    Setting {
        name: "data",
        on_resume: OnResume::Noted,
        value: "FILE",
        help: "a data file instead of the model's own",
        scope: Scope::Data,
        set: |run, text| set(&mut run.data.path, some_path(text)),
        key: Key::Value(|run| run.data.path.as_deref().map(path)),
    },
    Setting {
        name: "data-dir",
        on_resume: OnResume::Noted,
        value: "DIR",
        help: "a data folder, for models whose data are several files",
        scope: Scope::Data,
        set: |run, text| set(&mut run.data.path, some_path(text)),
        // The key `data` has the same value.
        key: Key::Value(|_| None),
    },
    Setting {
        name: "augment",
        on_resume: OnResume::Same,
        value: "",
        help: "augment the training data, where the model's data can be",
        scope: Scope::TrainingSteps,
        set: |run, text| set(&mut run.data.augment, switch(text)),
        key: Key::Switch(|run| run.data.augment),
    },
];
