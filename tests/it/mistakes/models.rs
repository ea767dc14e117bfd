//! The models in the sources of this repository.

use std::{fs, path::Path};

const FOLDERS: [&str; 8] = [
    "tests/it",
    "tests/programs",
    "tests/support",
    "tests/zoo",
    "examples",
    "benches",
    "src",
    "docs",
];

/// A model that needs nothing else of the file around it.
pub(super) struct Model {
    pub(super) file: String,
    /// The line in the file.
    pub(super) line: usize,
    pub(super) text: String,
}

/// Returns all models, by file and line.
pub(super) fn models() -> Vec<Model> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    FOLDERS.iter().for_each(|it| collect(&root.join(it), &mut files));
    files.push(root.join("README.md"));
    files.sort();
    let mut models = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let file = path.strip_prefix(root).unwrap().display().to_string();
        models.extend(models_in(&file, &text));
    }
    models
}

fn collect(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_source = path.extension().is_some_and(|it| it == "rs" || it == "md");
        match path.is_dir() {
            true => collect(&path, files),
            false if is_source => files.push(path),
            false => {}
        }
    }
}

fn models_in(file: &str, text: &str) -> Vec<Model> {
    let lines: Vec<&str> = text.lines().collect();
    let mut models = Vec::new();
    for line in 0..lines.len() {
        // An example in a comment goes on as long as the comment.
        let example: Vec<&str> = match example(lines[line]) {
            Some(_) => lines[line..].iter().map_while(|it| example(it)).collect(),
            None => lines[line..].to_vec(),
        };
        let is_wrong =
            lines[line.saturating_sub(5)..line].iter().any(|it| it.contains("compile_fail"));
        if !is_wrong && example[0].trim_start().starts_with("#[soybean::model(") {
            models.extend(item(&example).and_then(complete).map(|text| Model {
                file: file.to_owned(),
                line: line + 1,
                text,
            }));
        }
    }
    models
}

/// Returns a line of an example in a comment.
fn example(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = ["///", "//!"].iter().find_map(|it| line.strip_prefix(it))?;
    Some(text.strip_prefix(' ').unwrap_or(text))
}

/// Returns the lines up to the end of the first item's braces.
fn item(lines: &[&str]) -> Option<String> {
    let (mut text, mut depth, mut is_attribute) = (String::new(), 0, true);
    for line in lines {
        text.push_str(line);
        text.push('\n');
        let code = line.split("//").next().unwrap_or_default();
        is_attribute &= !code.contains("mod ") && !code.contains("fn ");
        if is_attribute {
            continue;
        }
        depth += code.matches('{').count();
        depth -= code.matches('}').count().min(depth);
        if depth == 0 && code.trim_end().ends_with('}') {
            return Some(text);
        }
    }
    None
}

/// Returns the item with its imports, if it names nothing else around it, and no file.
fn complete(item: String) -> Option<String> {
    let is_elsewhere = ["super::", "crate", "$", ".toml", "include", "= [("];
    if is_elsewhere.iter().any(|it| item.contains(it)) {
        return None;
    }
    if item.lines().any(|it| it.contains("mod ") && it.trim_end().ends_with('{')) {
        return item.contains("use soybean::").then_some(item);
    }
    let layers = if item.contains("nn::") { "use soybean::nn;\n" } else { "" };
    calls(&item).iter().all(|it| PRELUDE.contains(it)).then(|| {
        let prelude = "use soybean::prelude::*;\n";
        format!("{layers}{prelude}{item}")
    })
}

/// Functions that a model imports, and what else is followed by parentheses.
const PRELUDE: [&str; 18] = [
    "arange",
    "buffer",
    "concat",
    "constant",
    "full",
    "he_normal",
    "if",
    "in",
    "linear",
    "normal",
    "ones",
    "param",
    "stack",
    "state",
    "uniform",
    "xavier_uniform",
    "zeros",
    "",
];

/// Returns the names before parentheses in the body of a function, without methods.
fn calls(item: &str) -> Vec<&str> {
    let body = item.find("{\n").map_or(item, |it| &item[it..]);
    let is_name = |it: char| it.is_alphanumeric() || it == '_';
    let name = |before: &'_ str| before.rfind(|it| !is_name(it)).map_or(0, |it| it + 1);
    let calls = body.match_indices('(').map(|(at, _)| &body[name(&body[..at])..at]);
    let is_method = |it: &&str| body.contains(&format!(".{it}("));
    let is_constant =
        |it: &str| it.len() > 1 && it.chars().all(|it| it.is_uppercase() || it == '_');
    let words = body.split(|it| !is_name(it)).filter(|it| is_constant(it));
    calls.filter(|it| !is_method(it)).chain(words).collect()
}
