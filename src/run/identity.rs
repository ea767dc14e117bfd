//! The identity of a run: its settings, data, numberings and updates.
//!
//! Each checkpoint stores it, and a run that resumes compares it with its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use serde_json::{Map, Value};
use soybean_plan::{Input, Plan, Tables, nearest_names};
use soybean_runtime::{
    Error,
    checkpoint::Progress,
    data::{Dataset, LoaderOptions, Subset},
};

use super::{
    Split, TrainConfig,
    batches::{batch_size, hash, loader},
    config::{OnResume, config_error, setting_values},
    numberings::Numberings,
};

/// The keys in the progress of a checkpoint.
const FACTS: &str = "run";
const UPDATES: &str = "updates";

/// The steps between the rows of each part of the data whose contents are compared.
const N_SAMPLED: usize = 8;

/// The facts about a run.
#[derive(Debug)]
pub(crate) struct RunIdentity {
    /// Settings, and the sizes and samples of the data.
    facts: Vec<Fact>,
    /// The options of the model's updates by name; those with default values are absent.
    updates: BTreeMap<String, String>,
    numberings: Numberings,
}

/// A fact about a run, under the name that `allow-change` takes.
#[derive(Debug)]
struct Fact {
    name: &'static str,
    value: String,
    on_resume: OnResume,
    kind: FactKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FactKind {
    Setting,
    DataOrModel,
}

/// A difference from the run that wrote a checkpoint.
struct Change {
    name: String,
    on_resume: OnResume,
    kind: FactKind,
    /// The expected value and the found one.
    text: String,
}

impl RunIdentity {
    /// Returns the facts about a run of this configuration.
    ///
    /// # Errors
    /// If the columns of the data do not fit the inputs.
    pub(crate) fn of(
        plan: &Plan,
        tables: &Tables,
        config: &TrainConfig,
        split: &Split,
    ) -> Result<Self, Error> {
        let (inputs, seed) = (&tables.inputs, config.trainer.seed);
        let settings = setting_values(config).map(|(name, value, on_resume)| {
            let value = value.unwrap_or_else(|| "none".to_owned());
            Fact { name, value, on_resume, kind: FactKind::Setting }
        });
        let fact = |(name, value, on_resume): (_, Option<String>, _)| {
            let kind = FactKind::DataOrModel;
            value.map(|value| Fact { name, value, on_resume, kind })
        };
        let facts = [
            ("batch-size", Some(batch_size(inputs)?.to_string()), OnResume::Same),
            ("training-rows", Some(split.train.n_rows().to_string()), OnResume::Same),
            ("training-data", sample(&split.train, inputs, seed), OnResume::Same),
            ("held-out-rows", Some(split.held_out.n_rows().to_string()), OnResume::Same),
            ("held-out-data", sample(&split.held_out, inputs, seed), OnResume::Same),
            ("precision", Some(tables.precision.name().to_owned()), OnResume::Same),
            ("devices", Some(plan.n_gpus.to_string()), OnResume::Noted),
        ];
        Ok(Self {
            facts: settings.chain(facts.into_iter().filter_map(fact)).collect(),
            updates: updates(plan.recipe),
            numberings: Numberings::of("training", &*split.train, inputs)?,
        })
    }

    /// Stores the facts in a checkpoint's progress.
    pub(crate) fn store(&self, extra: &mut Map<String, Value>) {
        let facts = self.facts.iter().filter(|it| it.on_resume != OnResume::Free);
        let facts: Map<String, Value> =
            facts.map(|it| (it.name.to_owned(), it.value.clone().into())).collect();
        extra.insert(FACTS.to_owned(), facts.into());
        let updates: Map<String, Value> =
            self.updates.iter().map(|(name, it)| (name.clone(), it.clone().into())).collect();
        extra.insert(UPDATES.to_owned(), updates.into());
        self.numberings.store(extra);
    }

    /// Checks that the run goes on with the one that wrote a checkpoint with this progress. Returns
    /// a note on what differs and may differ.
    ///
    /// # Errors
    /// If something differs that must be the same and is not among the allowed changes, or one of
    /// these has no name of a fact.
    pub(crate) fn check(
        &self,
        path: &Path,
        progress: &Progress,
        allowed: &[String],
        noted: Noted,
    ) -> Result<Option<String>, Error> {
        let path = path.display();
        let Some(changes) = self.changes_since(progress) else {
            return Ok(Some(format!(
                "{path} does not say which settings and data its run had: they are not compared"
            )));
        };
        self.check_names(allowed, &changes)?;
        let is_fault = |it: &&Change| it.on_resume == OnResume::Same && !allowed.contains(&it.name);
        let faults: Vec<&Change> = changes.iter().filter(is_fault).collect();
        if !faults.is_empty() {
            let text: Vec<&str> = faults.iter().map(|it| it.text.as_str()).collect();
            let mut names: Vec<String> =
                faults.iter().map(|it| format!("--allow-change {}", it.name)).collect();
            names.dedup();
            let (text, names) = (text.join("; "), names.join(" "));
            return Err(config_error(format!(
                "{path}: expected to go on with the run that wrote it: {text}; if that is meant, add \
                 {names}"
            )));
        }
        let is_told = |it: &&Change| noted == Noted::All || it.kind != FactKind::Setting;
        let told: Vec<&str> = changes.iter().filter(is_told).map(|it| it.text.as_str()).collect();
        Ok((!told.is_empty()).then(|| format!("other than in {path}: {}", told.join("; "))))
    }

    /// Lists what differs from the run that wrote a checkpoint; `None` if the checkpoint does not
    /// say. A fact that an earlier version did not store is not compared.
    fn changes_since(&self, progress: &Progress) -> Option<Vec<Change>> {
        let extra = &progress.extra;
        let stored = extra.get(FACTS)?.as_object()?;
        let of_facts = self.facts.iter().filter_map(|fact| {
            let Fact { name, value, on_resume, kind } = fact;
            let text = difference(name, stored.get(*name)?.as_str()?, value)?;
            Some(Change { name: (*name).to_owned(), on_resume: *on_resume, kind: *kind, text })
        });
        let must_be_same = |name: &str, text| Change {
            name: name.to_owned(),
            on_resume: OnResume::Same,
            kind: FactKind::DataOrModel,
            text,
        };
        let none = Map::new();
        let stored = extra.get(UPDATES).and_then(Value::as_object).unwrap_or(&none);
        let names: BTreeSet<&String> = self.updates.keys().chain(stored.keys()).collect();
        let of_updates = names.into_iter().filter_map(|name| {
            let before = stored.get(name).and_then(Value::as_str).unwrap_or("none");
            let now = self.updates.get(name).map_or("none", String::as_str);
            Some(must_be_same(name, difference(name, before, now)?))
        });
        let before = Numberings::stored(progress);
        let of_numbers = before.differences(&self.numberings);
        let of_numbers = of_numbers.map(|(name, text)| must_be_same(name, text));
        Some(of_facts.chain(of_updates).chain(of_numbers).collect())
    }

    /// Checks that the allowed changes have names of facts.
    fn check_names(&self, allowed: &[String], changes: &[Change]) -> Result<(), Error> {
        let facts = self.facts.iter().filter(|it| it.on_resume != OnResume::Free);
        let names = facts.map(|it| it.name).chain(self.updates.keys().map(String::as_str));
        let names = names.chain(changes.iter().map(|it| it.name.as_str()));
        let known: BTreeSet<&str> = names.chain(["classes", "tokenizer"]).collect();
        let Some(unknown) = allowed.iter().find(|it| !known.contains(it.as_str())) else {
            return Ok(());
        };
        let nearest = nearest_names(unknown, known.iter().copied())[0].name;
        Err(config_error(format!(
            "allow-change: expected what may differ from a run that is resumed, found `{unknown}`; \
             the nearest is `{nearest}`"
        )))
    }
}

/// The differences that a note names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// All.
    All,
    /// Those of the data and the model, since the settings are told otherwise.
    ExceptSettings,
}

fn difference(name: &str, expected: &str, found: &str) -> Option<String> {
    (expected != found).then(|| format!("expected {name} = {expected}, found {found}"))
}

/// Returns the options of a model's updates, which its recipe has in lines such as `ema 0.999`.
fn updates(recipe: &str) -> BTreeMap<String, String> {
    let lines = recipe.lines().skip_while(|it| !it.starts_with("optimizer "));
    let mut updates: BTreeMap<String, String> = BTreeMap::new();
    for line in lines.take_while(|it| !it.starts_with("at ")) {
        let Some((name, value)) = line.split_once(' ') else { continue };
        let value = value.replace('"', "");
        // A model may have several groups of parameters.
        updates
            .entry(name.replace('_', "-"))
            .and_modify(|it| *it += &format!(" and {value}"))
            .or_insert(value);
    }
    updates
}

/// Returns a hash of rows that are spread over a data set, as the first pass reads them, with the
/// columns in the order of the inputs. Rows that cannot be read have none: steps tell the error.
fn sample(dataset: &Arc<dyn Dataset>, inputs: &[Input], seed: u64) -> Option<String> {
    let last = dataset.n_rows().checked_sub(1)?;
    let (n, rest) = (last / N_SAMPLED, last % N_SAMPLED);
    let mut rows: Vec<usize> = (0..=N_SAMPLED).map(|it| n * it + rest * it / N_SAMPLED).collect();
    rows.dedup();
    let options = LoaderOptions { n_threads: 0, seed, ..LoaderOptions::evaluation(rows.len()) };
    let sampled: Arc<dyn Dataset> = Arc::new(Subset::new(Arc::clone(dataset), rows).ok()?);
    let batch = loader("sampled", &sampled, inputs, options).ok()?.next()?.ok()?;
    Some(format!("{:016x}", hash(&batch)))
}

#[cfg(test)]
mod tests;
