//! The argument `cluster`: the name of a preset, or a file beside the crate's manifest.

use std::path::Path;

use soybean_plan::Cluster;
use syn::{Expr, ExprLit, Lit};

use crate::{
    diagnostic::{Diagnostic, Diagnostics},
    evaluate::expression::peeled,
    expand::Environment,
    source_text::source_text,
    suggestion,
};

/// A cluster, and the file that describes it.
pub(crate) struct Described {
    pub(crate) cluster: Cluster,
    /// The path as the user wrote it; none for presets.
    pub(crate) file: Option<String>,
}

/// Reads the cluster that the argument names.
pub(super) fn read_cluster(
    expression: &Expr,
    environment: &Environment,
    diagnostics: &mut Diagnostics,
) -> Option<Described> {
    let expression = peeled(expression);
    let found = match expression {
        Expr::Lit(ExprLit { lit: Lit::Str(it), .. }) => described(&it.value(), environment),
        other => {
            let found = source_text(other);
            Err(Diagnostic::new(format!(
                "`cluster` must be a preset's name or a file in a string, found {found}"
            ))
            .help("write `cluster = \"dgx-h100\"` or `cluster = \"machine.toml\"`"))
        }
    };
    found.map_err(|message| diagnostics.report(expression, &message)).ok()
}

fn described(name: &str, environment: &Environment) -> Result<Described, Diagnostic> {
    if let Some(cluster) = soybean_cluster::preset(name) {
        return Ok(Described { cluster, file: None });
    }
    let path = Path::new(name);
    if path.extension().is_none_or(|it| it != "toml") {
        return Err(unknown(name));
    }
    let folder = environment.folder.as_deref().ok_or_else(|| {
        Diagnostic::new(format!("`{name}` is relative to the crate's manifest, but there is none"))
            .help("build with cargo, which sets CARGO_MANIFEST_DIR")
    })?;
    let text = soybean_cluster::text_of(&folder.join(path)).map_err(|error| {
        Diagnostic::new(format!("the cluster file `{name}` cannot be read: {error}"))
            .help("its path is relative to the folder of the crate's manifest")
    })?;
    let stem = path.file_stem().map_or(name.into(), |it| it.to_string_lossy());
    let cluster = soybean_cluster::read(&stem, name, &text)
        .map_err(|error| Diagnostic::new(error.to_string()))?;
    Ok(Described { cluster, file: Some(name.to_owned()) })
}

fn unknown(name: &str) -> Diagnostic {
    let known: Vec<String> =
        soybean_cluster::preset_names().map(|it| format!("\"{it}\"")).collect();
    let message = Diagnostic::new(format!(
        "`cluster` must be the path of a TOML file or one of {}, found \"{name}\"",
        known.join(", ")
    ));
    match suggestion::nearest(name, soybean_cluster::preset_names()) {
        Some(nearest) => message.help(format!("did you mean \"{nearest}\"?")),
        None => message,
    }
}
