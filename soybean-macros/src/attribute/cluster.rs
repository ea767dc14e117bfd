//! The arguments `cluster = "dgx-h100"`, the name of a preset, and `cluster = "machine.toml"`, a file beside the crate's manifest.

use std::{fs, path::Path};

use soybean_compiler::Objective;
use soybean_plan::Cluster;
use syn::{Expr, ExprLit, Lit};

use super::read_choice;
use crate::{
    evaluate::expression::peeled,
    expand::Environment,
    problem::{Message, Problems},
    source_text::source_text,
    suggestion,
};

/// A cluster, and where it was described.
pub(crate) struct Described {
    pub(crate) cluster: Cluster,
    /// The path as it was written; none for presets.
    pub(crate) file: Option<String>,
}

/// The cluster that is named.
pub(super) fn read_cluster(
    expression: &Expr,
    environment: &Environment,
    problems: &mut Problems,
) -> Option<Described> {
    let expression = peeled(expression);
    let found = match expression {
        Expr::Lit(ExprLit { lit: Lit::Str(it), .. }) => described(&it.value(), environment),
        other => {
            let found = source_text(other);
            Err(Message::new(format!(
                "`cluster` must be a preset's name or a file in a string, found {found}"
            ))
            .help("write `cluster = \"dgx-h100\"` or `cluster = \"machine.toml\"`"))
        }
    };
    found.map_err(|message| problems.report(expression, &message)).ok()
}

fn described(name: &str, environment: &Environment) -> Result<Described, Message> {
    if let Some(cluster) = soybean_cluster::preset(name) {
        return Ok(Described { cluster, file: None });
    }
    let path = Path::new(name);
    if path.extension().is_none_or(|it| it != "toml") {
        return Err(unknown(name));
    }
    let folder = environment.folder.as_deref().ok_or_else(|| {
        Message::new(format!("`{name}` lies beside the crate's manifest, but there is none"))
            .help("build with cargo, which sets CARGO_MANIFEST_DIR")
    })?;
    let text = fs::read_to_string(folder.join(path)).map_err(|error| {
        Message::new(format!("the cluster file `{name}` cannot be read: {error}"))
            .help("its path is relative to the folder of the crate's manifest")
    })?;
    let stem = path.file_stem().map_or(name.into(), |it| it.to_string_lossy());
    let cluster = soybean_cluster::read(&stem, name, &text)
        .map_err(|error| Message::new(error.to_string()))?;
    Ok(Described { cluster, file: Some(name.to_owned()) })
}

fn unknown(name: &str) -> Message {
    let known: Vec<String> =
        soybean_cluster::preset_names().map(|it| format!("\"{it}\"")).collect();
    let message = Message::new(format!(
        "`cluster` must be the path of a TOML file or one of {}, found \"{name}\"",
        known.join(", ")
    ));
    match suggestion::nearest(name, soybean_cluster::preset_names()) {
        Some(nearest) => message.help(format!("did you mean \"{nearest}\"?")),
        None => message,
    }
}

/// What plans are compared by; times need a cluster.
pub(super) fn read_objective(
    expression: &Expr,
    has_cluster: bool,
    problems: &mut Problems,
) -> Option<Objective> {
    let objective = read_choice("objective", expression, &Objective::NAMES, problems)?;
    if objective == Objective::Time && !has_cluster {
        let message = Message::new("`objective = \"time\"` needs a cluster, found none")
            .help("add `cluster = \"dgx-h100\"`, another preset, or a file of your own");
        problems.report(expression, &message);
        return None;
    }
    Some(objective)
}
