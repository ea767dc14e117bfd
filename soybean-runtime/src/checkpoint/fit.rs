//! Whether a checkpoint is one of this model and its optimiser, whatever the plan.

use std::collections::{BTreeMap, BTreeSet};

use soybean_plan::Tables;

use super::{Checkpoint, open::TensorFile};
use crate::{Error, state::Stretch, tensor_file::fault};

/// Shapes by name.
type Shapes<'a> = BTreeMap<&'a str, &'a [usize]>;

/// Checks that a checkpoint has the tensors of the model and of its optimiser, and no others, and that it is one between two steps of the model.
pub(super) fn check(tables: &Tables, checkpoint: &Checkpoint) -> Result<(), Error> {
    let wrong = |what: &str| {
        let (path, model) = (checkpoint.path().display(), &tables.name);
        Err(fault(format!("{path}: expected a checkpoint of the model `{model}`: {what}")))
    };
    let tensors: Vec<_> = Stretch::parameters(tables).tensors(tables).collect();
    let expected: Shapes<'_> = tensors.iter().map(|it| (it.name, &it.tile.shape[..])).collect();
    let found = shapes(&checkpoint.model_files);
    let of_model = misfits(&expected, &found);
    if !of_model.is_empty() {
        return wrong(&of_model);
    }
    let tensors: Vec<_> = Stretch::states(tables).tensors(tables).collect();
    let states: Shapes<'_> = tensors.iter().map(|it| (it.name, &it.tile.shape[..])).collect();
    let found = shapes(&checkpoint.optimizer_files);
    let (kinds, found_kinds) = (kinds(&states, &expected), kinds(&found, &expected));
    if kinds != found_kinds {
        return wrong(&format!(
            "it is of another optimizer: expected one that keeps {}, found one that keeps {}",
            listed(&kinds),
            listed(&found_kinds)
        ));
    }
    let of_optimizer = misfits(&states, &found);
    if !of_optimizer.is_empty() {
        return wrong(&of_optimizer);
    }
    let (most, found) = (tables.accumulate.saturating_sub(1), checkpoint.counters().n_accumulated);
    if found > most {
        return wrong(&format!(
            "expected at most {most} steps that wait for an update, since `accumulate` is {}, found {found}",
            tables.accumulate
        ));
    }
    Ok(())
}

fn shapes(files: &[TensorFile]) -> Shapes<'_> {
    files.iter().flat_map(|it| &it.entries).map(|it| (it.name.as_str(), &it.shape[..])).collect()
}

/// What is missing, unexpected, or of another shape.
fn misfits(expected: &Shapes<'_>, found: &Shapes<'_>) -> String {
    let of_shape = |(name, expected): (&&str, &&[usize])| {
        let found = found.get(name).filter(|found| *found != expected)?;
        Some(format!("`{name}`: expected shape {expected:?}, found {found:?}"))
    };
    let only = |these: &Shapes<'_>, others: &Shapes<'_>, what: &str| {
        let names: Vec<String> = these
            .keys()
            .filter(|it| !others.contains_key(*it))
            .map(|it| format!("`{it}`"))
            .collect();
        (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")))
    };
    let of_names = [only(expected, found, "without"), only(found, expected, "with the unexpected")];
    let all: Vec<String> =
        of_names.into_iter().flatten().chain(expected.iter().filter_map(of_shape)).collect();
    all.join("; ")
}

/// What an optimiser keeps for each parameter, such as `momentum`: what follows the longest name of a parameter.
fn kinds<'a>(states: &Shapes<'a>, parameters: &Shapes<'_>) -> BTreeSet<&'a str> {
    let kind = |name: &&'a str| {
        let mut splits = name.rmatch_indices('.').map(|(at, _)| name.split_at(at));
        let split = splits.find(|(parameter, _)| parameters.contains_key(parameter));
        split.map_or(*name, |(_, kind)| &kind[1..])
    };
    states.keys().map(kind).collect()
}

fn listed(kinds: &BTreeSet<&str>) -> String {
    if kinds.is_empty() {
        return "nothing".to_owned();
    }
    kinds.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", ")
}
