//! The seed, and the settings of the devices.

use std::time::Duration;

use super::setting::{
    Key, OnResume, Scope, Setting,
    Value::{Number, Text},
    number, or_never, positive, set, switch,
};

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "seed",
        on_resume: OnResume::Same,
        value: "N",
        help: "the seed of parameters, data and their order (0)",
        scope: Scope::Model,
        set: |run, text| {
            set(&mut run.data.seed, number(text))?;
            set(&mut run.trainer.seed, number(text))
        },
        key: Key::Value(|run| Some(Number(run.trainer.seed.to_string()))),
    },
    Setting {
        name: "device",
        on_resume: OnResume::Noted,
        value: "NAME",
        help: "cpu, cuda or auto (auto)",
        scope: Scope::Model,
        set: |run, text| set(&mut run.trainer.device, text.parse()),
        key: Key::Value(|run| Some(Text(run.trainer.device.to_string()))),
    },
    Setting {
        name: "threads",
        on_resume: OnResume::Noted,
        value: "N",
        help: "CPU threads of all ranks together (all cores)",
        scope: Scope::Model,
        set: |run, text| set(&mut run.trainer.threads, positive(text).map(Some)),
        key: Key::Value(|run| run.trainer.threads.map(|it| Number(it.to_string()))),
    },
    Setting {
        name: "peer-timeout",
        on_resume: OnResume::Noted,
        value: "SECONDS",
        help: "end if another process is silent for so long; 0 waits for ever (300)",
        scope: Scope::Model,
        set: |run, text| {
            let timeout = or_never(text).map(|it| it.map(Duration::from_secs));
            set(&mut run.trainer.peer_timeout, timeout)
        },
        key: Key::Value(|run| Some(Number(seconds(run.trainer.peer_timeout)))),
    },
    Setting {
        name: "step-timeout",
        on_resume: OnResume::Noted,
        value: "SECONDS",
        help: "end if a step on GPUs lasts so long; 0 waits for ever (600)",
        scope: Scope::Model,
        set: |run, text| {
            let timeout = or_never(text).map(|it| it.map(Duration::from_secs));
            set(&mut run.trainer.step_timeout, timeout)
        },
        key: Key::Value(|run| Some(Number(seconds(run.trainer.step_timeout)))),
    },
    Setting {
        name: "no-graph",
        on_resume: OnResume::Noted,
        value: "",
        help: "launch each kernel separately on GPUs, without CUDA graphs, for debugging",
        scope: Scope::Model,
        set: |run, text| set(&mut run.trainer.uses_graphs, switch(text).map(|is_on| !is_on)),
        key: Key::Switch(|run| !run.trainer.uses_graphs),
    },
    Setting {
        name: "no-autotune",
        on_resume: OnResume::Noted,
        value: "",
        help: "take the libraries' own choice of algorithms on GPUs, without measuring them",
        scope: Scope::Model,
        set: |run, text| set(&mut run.trainer.autotunes, switch(text).map(|is_on| !is_on)),
        key: Key::Switch(|run| !run.trainer.autotunes),
    },
];

/// Returns the seconds of a timeout; 0 means for ever, so parts of a second count as one.
fn seconds(timeout: Option<Duration>) -> String {
    timeout.unwrap_or_default().as_secs_f64().ceil().to_string()
}
