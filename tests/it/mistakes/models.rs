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

/// A model that needs nothing of the file around it.
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
        if example[0].trim_start().starts_with("#[soybean::model(") {
            models.extend(item(&example).filter(|it| is_complete(it)).map(|text| Model {
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
        for letter in code.chars() {
            match letter {
                '{' => depth += 1,
                '}' if depth == 1 => return Some(text),
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    None
}

/// Returns whether an item is a module that names nothing around it, and no file.
fn is_complete(item: &str) -> bool {
    let is_elsewhere = ["super::", "crate", "$", ".toml", "compile_fail", "include", "= [("];
    let is_module = item.lines().any(|it| it.contains("mod ") && it.trim_end().ends_with('{'));
    is_module && item.contains("use soybean::") && !is_elsewhere.iter().any(|it| item.contains(it))
}
