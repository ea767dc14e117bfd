//! The flags of `plan`.

use std::path::{Path, PathBuf};

use soybean_explain::{Changes, SearchEffort, is_max_work};
use soybean_plan::{Cluster, parse_bytes};

use super::{Command, Flag, Target};
use crate::run::setting::{positive, set, some_path};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::command_line) enum Format {
    #[default]
    Text,
    Json,
    Dot,
    Svg,
    Html,
    Launches,
}

/// All formats with their names.
const FORMATS: [(&str, Format); 6] = [
    ("text", Format::Text),
    ("json", Format::Json),
    ("dot", Format::Dot),
    ("svg", Format::Svg),
    ("html", Format::Html),
    ("launches", Format::Launches),
];

/// The options of `plan`.
#[derive(Clone, Debug, Default)]
pub(in crate::command_line) struct PlanOptions {
    pub(in crate::command_line) format: Format,
    pub(in crate::command_line) changes: Changes,
    /// The tensor whose other tilings are evaluated.
    pub(in crate::command_line) why: Option<String>,
    /// The two plans that are compared.
    pub(in crate::command_line) diff: Vec<String>,
    /// The folder for the text form after each pass.
    pub(in crate::command_line) passes: Option<PathBuf>,
    /// The output file, if not standard output.
    pub(in crate::command_line) file: Option<PathBuf>,
}

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        name: "gpus",
        value: "N",
        help: "the plan for another number of GPUs",
        commands: &[Command::Plan],
        target: Target::Option(|options, text| {
            set(&mut options.plan.changes.n_gpus, positive(text).map(Some))
        }),
    },
    Flag {
        name: "strategy",
        value: "NAME",
        help: "the plan with another strategy: auto, recursive, data or model",
        commands: &[Command::Plan],
        target: Target::Option(|options, text| {
            set(&mut options.plan.changes.strategy, text.parse().map(Some))
        }),
    },
    Flag {
        name: "precision",
        value: "NAME",
        help: "the plan in another precision: f32, tf32 or bf16",
        commands: &[Command::Plan],
        target: Target::Option(|options, text| {
            set(&mut options.plan.changes.precision, text.parse().map(Some))
        }),
    },
    Flag {
        name: "memory",
        value: "SIZE",
        help: "the plan within this memory per GPU, such as 80GiB",
        commands: &[Command::Plan],
        target: Target::Option(|options, text| {
            set(&mut options.plan.changes.memory, parse_bytes(text).map(Some))
        }),
    },
    Flag {
        name: "cluster",
        value: "NAME",
        help: "the plan for another cluster: a preset or a TOML file",
        commands: &[Command::Plan],
        target: Target::Option(|options, text| {
            set(&mut options.plan.changes.cluster, cluster(text).map(Some))
        }),
    },
    Flag {
        name: "objective",
        value: "NAME",
        help: "the plan with another objective: bytes or time",
        commands: &[Command::Plan],
        target: Target::Option(|options, text| {
            set(&mut options.plan.changes.objective, text.parse().map(Some))
        }),
    },
    Flag {
        name: "prove",
        value: "",
        help: "the plan of a thorough search, which may take minutes",
        commands: &[Command::Plan],
        target: Target::Option(|options, _| {
            set(&mut options.plan.changes.effort, Ok(Some(SearchEffort::Thorough)))
        }),
    },
    Flag {
        name: "padding",
        value: "NAME",
        help: "the plan with other dims padded: auto, off or all",
        commands: &[Command::Plan],
        target: Target::Option(|options, text| {
            set(&mut options.plan.changes.padding, text.parse().map(Some))
        }),
    },
    Flag {
        name: "max-work",
        value: "X",
        help: "the plan with at most this work over that of one device (1.05)",
        commands: &[Command::Plan],
        target: Target::Option(|options, text| {
            set(&mut options.plan.changes.max_work, max_work(text).map(Some))
        }),
    },
    Flag {
        name: "unshared",
        value: "",
        help: "the plan without replicas, in which every operator converts its own operands",
        commands: &[Command::Plan],
        target: Target::Option(|options, _| set(&mut options.plan.changes.shares, Ok(Some(false)))),
    },
    Flag {
        name: "why",
        value: "TENSOR",
        help: "the cost of every other tiling of a tensor",
        commands: &[Command::Plan],
        target: Target::Option(|options, text| {
            set(&mut options.plan.why, Ok(Some(text.to_owned())))
        }),
    },
    Flag {
        name: "diff",
        value: "A B",
        help: "the differences of two plans: strategies, or files of --format json",
        commands: &[Command::Plan],
        target: Target::Option(|options, text| {
            options.plan.diff.push(text.to_owned());
            Ok(())
        }),
    },
    Flag {
        name: "passes",
        value: "DIR",
        help: "the text form after each pass of the compiler, as numbered files",
        commands: &[Command::Plan],
        target: Target::Option(|options, text| set(&mut options.plan.passes, some_path(text))),
    },
    Flag {
        name: "format",
        value: "NAME",
        help: "text, json, dot, svg, html, or launches: what a GPU runs (text)",
        commands: &[Command::Plan],
        target: Target::Option(|options, text| set(&mut options.plan.format, format(text))),
    },
    Flag {
        name: "output",
        value: "FILE",
        help: "the output file (standard output); also -o FILE",
        commands: &[Command::Plan],
        target: Target::Option(|options, text| set(&mut options.plan.file, some_path(text))),
    },
];

fn format(text: &str) -> Result<Format, String> {
    let found = FORMATS.iter().find(|(name, _)| *name == text);
    let known = || FORMATS.map(|(name, _)| name).join(", ");
    found
        .map(|&(_, format)| format)
        .ok_or_else(|| format!("expected one of {}, found `{text}`", known()))
}

/// Parses the most work of a plan.
fn max_work(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|it| is_max_work(*it));
    found.ok_or_else(|| format!("expected a number from 1, found `{text}`"))
}

/// Returns the preset of this name, or the cluster that a file describes.
fn cluster(name: &str) -> Result<Cluster, String> {
    if let Some(cluster) = soybean_cluster::preset(name) {
        return Ok(cluster);
    }
    let known = || soybean_cluster::preset_names().collect::<Vec<_>>().join(", ");
    let path = Path::new(name);
    let text = soybean_cluster::text_of(path).map_err(|error| {
        format!("`{name}` is neither one of {} nor a file that can be read: {error}", known())
    })?;
    let stem = path.file_stem().map_or(name.into(), |it| it.to_string_lossy());
    soybean_cluster::read(&stem, name, &text).map_err(|error| error.to_string())
}
