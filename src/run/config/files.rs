//! The files of traces and data.

use super::setting::{Key, Scope, Setting, path, set};

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "trace",
        value: "FILE",
        help: "write what each rank did when in one step, for Perfetto or chrome://tracing",
        scope: Scope::TrainingSteps,
        set: |run, text| set(&mut run.trace, Ok(Some(text.into()))),
        key: Key::Value(|run| run.trace.as_deref().map(path)),
    },
    Setting {
        name: "data",
        value: "FILE",
        help: "another data file than the model's own",
        scope: Scope::Data,
        set: |run, text| set(&mut run.data.path, Ok(Some(text.into()))),
        key: Key::Value(|run| run.data.path.as_deref().map(path)),
    },
    Setting {
        name: "data-dir",
        value: "DIR",
        help: "another data folder, for models whose data are several files",
        scope: Scope::Data,
        set: |run, text| set(&mut run.data.path, Ok(Some(text.into()))),
        // The key `data` has the same value.
        key: Key::Value(|_| None),
    },
];
