//! Models with one mistake each: the messages are one error at the mistake, and nothing else.
//!
//! The models are those of the tests, the examples and the book that need nothing of the file
//! around them. Each gets several mistakes, every one in a module of its own. rustc compiles all
//! modules of a group at once.
#![expect(clippy::print_stdout, reason = "tests say how many models they tried")]

mod kinds;
mod models;

use std::collections::BTreeMap;

use crate::rustc::{Crate, Message};
use kinds::{Group, KINDS, Mistake};

/// Returns the faults of the messages about a group's mistakes, and the number of mistakes by kind.
fn faults(group: Group) -> (Vec<String>, BTreeMap<&'static str, usize>) {
    let models = models::models();
    let (mut source, mut cases, mut counts) = (String::new(), Vec::new(), BTreeMap::new());
    for kind in KINDS.iter().filter(|it| it.group == group) {
        for model in &models {
            let Some(Mistake { text, line }) = (kind.make)(&model.text) else { continue };
            *counts.entry(kind.name).or_default() += 1;
            let case = format!("{} in {} {}", kind.name, model.file, model.line);
            source.push_str(&format!("pub mod case_{} {{\n", cases.len()));
            let first = source.lines().count() + 1;
            source.push_str(&text);
            source.push_str("\n}\n");
            cases.push((case, first, first + text.lines().count(), line.map(|it| first + it)));
        }
    }
    let mut found: Vec<Vec<Message>> = cases.iter().map(|_| Vec::new()).collect();
    let mut faults = Vec::new();
    let name = format!("mistakes_{group:?}").to_lowercase();
    for message in Crate::new(&name, &source).compile().messages {
        let line = message.lines.0;
        match cases.iter().position(|(_, first, last, _)| (*first..=*last).contains(&line)) {
            Some(case) => found[case].push(message),
            None => faults.push(format!("in no model: {message:?}")),
        }
    }
    for ((case, _, _, line), messages) in cases.iter().zip(&found) {
        let is_there =
            |it: &Message| line.is_none_or(|line| (it.lines.0..=it.lines.1).contains(&line));
        match &messages[..] {
            [it] if it.level == "error" && it.code != "E0080" && is_there(it) => {}
            other => faults.push(format!("{case} (line {line:?}):\n{other:#?}")),
        }
    }
    (faults, counts)
}

fn check(group: Group) -> usize {
    let (faults, counts) = faults(group);
    let n_models: usize = counts.values().sum();
    println!("{n_models} models with one mistake: {counts:?}");
    let shown = faults.iter().take(8).cloned().collect::<Vec<_>>().join("\n");
    assert!(faults.is_empty(), "{} of {n_models} models:\n{shown}", faults.len());
    n_models
}

// Guards: after an error in a model, the only message is about it: no false "unused import", no
// second error for the same mistake, and no panic of a const that the rest of the crate evaluates.
#[test]
fn one_mistake_is_one_error() {
    let n_models: usize = Group::ALL.into_iter().map(check).sum();
    assert!(n_models >= 300, "only {n_models} models");
}
