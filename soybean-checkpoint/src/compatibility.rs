//! The check that a checkpoint fits a model and its optimizer. The plan does not matter.

use std::collections::{BTreeMap, BTreeSet};

use soybean_plan::{State, listed};

use crate::{
    Checkpoint, Error, StateSpec, TensorSpec,
    checkpoint::TensorFile,
    exchanged::{exchanged, words},
    tensor_file::checkpoint_error,
    weights::nearest::nearest,
};

/// The limit of suggestions in a message, since each compares a name with all others.
const MAX_SUGGESTIONS: usize = 20;

/// Shapes by name.
type Shapes<'a> = BTreeMap<&'a str, &'a [usize]>;

/// Checks that a checkpoint has exactly the tensors of this state, and possible counters.
pub(crate) fn check(spec: &StateSpec, checkpoint: &Checkpoint) -> Result<(), Error> {
    let wrong = |what: &str| {
        let (path, model) = (checkpoint.path().display(), &spec.model);
        Err(checkpoint_error(format!(
            "{path}: expected a checkpoint of the model `{model}`: {what}"
        )))
    };
    let expected = shapes_of_state(&spec.parameters);
    let found = shapes_of_files(&checkpoint.model_files);
    let of_model = differences(&expected, &found);
    if !of_model.is_empty() {
        return wrong(&of_model);
    }
    let entries = checkpoint.model_files.iter().flat_map(|it| &it.entries);
    let hashes = entries.map(|it| (it.name.as_str(), it.use_hash)).collect();
    if let Some(exchanged) = exchanged(&spec.parameters, &hashes) {
        return wrong(&exchanged);
    }
    let states = shapes_of_state(&spec.optimizer);
    let found = without_terms(shapes_of_files(&checkpoint.optimizer_files), &states);
    let (kinds, found_kinds) = (kinds(&states, &expected), kinds(&found, &expected));
    if kinds != found_kinds {
        return wrong(&format!(
            "it is of another optimizer: expected one that keeps {}, found one that keeps {}",
            names(&kinds),
            names(&found_kinds)
        ));
    }
    let of_optimizer = differences(&states, &found);
    if !of_optimizer.is_empty() {
        return wrong(&of_optimizer);
    }
    let (most, found) = (spec.accumulate.saturating_sub(1), checkpoint.counters().n_accumulated);
    if found > most {
        return wrong(&format!(
            "expected at most {most} steps that wait for an update, since `accumulate` is {}, \
             found {found}",
            spec.accumulate
        ));
    }
    Ok(())
}

fn shapes_of_state(tensors: &[TensorSpec]) -> Shapes<'_> {
    tensors.iter().map(|it| (it.name.as_str(), &it.shape[..])).collect()
}

fn shapes_of_files(files: &[TensorFile]) -> Shapes<'_> {
    files.iter().flat_map(|it| &it.entries).map(|it| (it.name.as_str(), &it.shape[..])).collect()
}

/// Removes the first dim of sums of the steps that share an update, if it has their terms.
fn without_terms<'a>(found: Shapes<'a>, expected: &Shapes<'_>) -> Shapes<'a> {
    let of_sum = |(name, shape): (&'a str, &'a [usize])| {
        let rank = expected.get(name).map_or(shape.len(), |it| it.len());
        let has_terms = State::is_step_sum(name) && shape.len() == rank + 1;
        (name, if has_terms { &shape[1..] } else { shape })
    };
    found.into_iter().map(of_sum).collect()
}

/// Lists the tensors that are missing, unexpected or of another shape.
fn differences(expected: &Shapes<'_>, found: &Shapes<'_>) -> String {
    let of_shape = |(name, expected): (&&str, &&[usize])| {
        let found = found.get(name).filter(|found| *found != expected)?;
        Some(format!("`{name}`: expected shape {expected:?}, found {found:?}"))
    };
    let only = |these: &Shapes<'_>, others: &Shapes<'_>, what: &str, near: Suggest<'_>| {
        let missing = these.keys().filter(|it| !others.contains_key(*it)).enumerate();
        let names: Vec<String> = missing
            .map(|(at, it)| {
                let near = near(it).filter(|_| at < MAX_SUGGESTIONS);
                near.map_or_else(|| format!("`{it}`"), |near| format!("`{it}` (near `{near}`)"))
            })
            .collect();
        (!names.is_empty()).then(|| format!("{what} {}", listed(names, ", ")))
    };
    let near = |name: &str| nearest(name, found.keys().copied());
    let missing = only(expected, found, "without", &near);
    let numbered = missing.as_ref().filter(|_| is_renumbered(expected, found)).map(|_| {
        "the calls of a function are numbered in their order, so a further call renames others"
            .to_owned()
    });
    let unexpected = only(found, expected, "with the unexpected", &|_| None);
    let of_names = [missing, unexpected].into_iter().flatten();
    let of_shapes = expected.iter().filter_map(of_shape);
    listed(of_names.chain(of_shapes).chain(numbered), "; ")
}

/// Returns the name to suggest for a missing one.
type Suggest<'a> = &'a dyn Fn(&str) -> Option<&'a str>;

/// Returns whether a missing name differs from a name of the other side in numbers alone.
fn is_renumbered(expected: &Shapes<'_>, found: &Shapes<'_>) -> bool {
    let others: BTreeSet<Vec<&str>> = found.keys().map(|it| words(it)).collect();
    let mut missing = expected.keys().filter(|it| !found.contains_key(*it));
    missing.any(|it| others.contains(&words(it)))
}

/// Returns the kinds of tensors that an optimizer keeps, such as `momentum`. A kind is the part of
/// a name after the longest name of a parameter.
fn kinds<'a>(states: &Shapes<'a>, parameters: &Shapes<'_>) -> BTreeSet<&'a str> {
    let kind = |name: &&'a str| {
        let mut splits = name.rmatch_indices('.').map(|(at, _)| name.split_at(at));
        let split = splits.find(|(parameter, _)| parameters.contains_key(parameter));
        split.map_or(*name, |(_, kind)| &kind[1..])
    };
    states.keys().map(kind).collect()
}

fn names(kinds: &BTreeSet<&str>) -> String {
    if kinds.is_empty() {
        return "nothing".to_owned();
    }
    listed(kinds.iter().map(|it| format!("`{it}`")), ", ")
}
