//! The files from which weights are loaded: one file, several with an index, or a checkpoint.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde::Deserialize;
use soybean_plan::caught;

use crate::{
    Checkpoint, Error,
    locate::weights_in,
    tensor_file::{Entry, checkpoint_error, entries, text},
};

/// The file names that are looked for in a folder, in this order.
const IN_FOLDERS: [&str; 2] = ["model.safetensors.index.json", "model.safetensors"];

/// The files with all tensors.
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) files: Vec<SourceFile>,
}

/// A file and its tensors, in the order of their elements.
pub(super) struct SourceFile {
    pub(super) path: PathBuf,
    pub(super) entries: Vec<Entry>,
}

/// The part of an index that all programs write.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Opens a file, an index, a folder with either of them, or the folder of a checkpoint or run.
pub(super) fn open(path: &Path) -> Result<Source, Error> {
    let files = if path.is_dir() {
        in_folder(path)?
    } else if path.to_string_lossy().ends_with(".index.json") {
        by_index(path)?
    } else {
        vec![file(path.to_owned())?]
    };
    Ok(Source { path: path.to_owned(), files })
}

fn file(path: PathBuf) -> Result<SourceFile, Error> {
    Ok(SourceFile { entries: entries(&path)?, path })
}

fn in_folder(folder: &Path) -> Result<Vec<SourceFile>, Error> {
    if let Some(checkpoint) = weights_in(folder)? {
        let checkpoint = Checkpoint::open(checkpoint)?;
        let files = checkpoint.into_model_files();
        return Ok(files.map(|(path, entries)| SourceFile { path, entries }).collect());
    }
    let found = IN_FOLDERS.iter().map(|it| folder.join(it)).find(|it| it.is_file());
    match found {
        Some(path) if path.extension().is_some_and(|it| it == "json") => by_index(&path),
        Some(path) => Ok(vec![file(path)?]),
        None => {
            let folder = folder.display();
            let names = IN_FOLDERS.join(" or ");
            Err(checkpoint_error(format!(
                "{folder}: expected a checkpoint, or {names}, found neither"
            )))
        }
    }
}

fn by_index(path: &Path) -> Result<Vec<SourceFile>, Error> {
    let wrong = |message: String| checkpoint_error(format!("{}: {message}", path.display()));
    let text = text(path)?;
    let index = caught(|| serde_json::from_str(&text).map_err(|it| it.to_string()));
    let index: Index = index.flatten().map_err(wrong)?;
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (tensor, file) in &index.weight_map {
        names.entry(file).or_default().insert(tensor);
    }
    let mut files = Vec::new();
    for (name, tensors) in names {
        if Path::new(name).file_name() != Some(Path::new(name).as_os_str()) {
            return Err(wrong(format!("expected files of the same folder, found `{name}`")));
        }
        let file = file(path.with_file_name(name))?;
        let found: BTreeSet<&str> = file.entries.iter().map(|it| it.name.as_str()).collect();
        if found != tensors {
            let tensor = found.symmetric_difference(&tensors).next().copied().unwrap_or_default();
            let which = if found.contains(tensor) { "without" } else { "with" };
            return Err(wrong(format!(
                "expected `{name}` {which} the tensor `{tensor}`, found the opposite"
            )));
        }
        files.push(file);
    }
    Ok(files)
}
