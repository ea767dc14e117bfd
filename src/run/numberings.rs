//! The meaning of the integers of a model's inputs, as readers of its training data numbered them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use soybean_plan::Input;
use soybean_runtime::{
    Error,
    checkpoint::Progress,
    data::{Classes, Dataset, Numbering, Tokenizer},
};

use super::columns::match_columns;

/// The key in the progress of a checkpoint.
const KEY: &str = "numbering";

/// The numberings of inputs, by their names. Inputs whose readers number nothing have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numberings(BTreeMap<String, Numbering>);

impl Numberings {
    /// Returns the numberings of the columns that are these inputs. `part` names the data set in
    /// errors.
    pub(crate) fn of(part: &str, dataset: &dyn Dataset, inputs: &[Input]) -> Result<Self, Error> {
        let positions = match_columns(inputs, dataset.columns())
            .map_err(|message| Error::data(format!("the {part} data: {message}")))?;
        let numbered = inputs.iter().zip(positions);
        let numbered = numbered.filter_map(|(input, position)| {
            Some((input.name.clone().into_owned(), dataset.numbering(position)?))
        });
        Ok(Self(numbered.collect()))
    }

    #[cfg(test)]
    pub(crate) fn with_classes(input: &str, classes: Classes) -> Self {
        Self(BTreeMap::from([(input.to_owned(), Numbering::Classes(classes))]))
    }

    /// Returns the classes of an input.
    pub(crate) fn classes(&self, input: &str) -> Option<&Classes> {
        match self.0.get(input)? {
            Numbering::Classes(classes) => Some(classes),
            Numbering::Tokens(_) => None,
        }
    }

    /// Checks that texts are read by the tokenizer of the data that the model was trained on.
    pub(crate) fn check_tokenizer(&self, tokenizer: &dyn Tokenizer) -> Result<(), Error> {
        let of_tokens = |it: &&Numbering| matches!(it, Numbering::Tokens(_));
        let Some(expected) = self.0.values().find(of_tokens) else { return Ok(()) };
        let found = Numbering::Tokens(tokenizer.fingerprint());
        expected.difference(&found).map_or(Ok(()), |it| Err(Error::data(it)))
    }

    /// Lists the inputs that others number differently: the name of the difference for
    /// `allow-change`, and its text.
    pub(crate) fn differences<'a>(
        &'a self,
        others: &'a Self,
    ) -> impl Iterator<Item = (&'static str, String)> + 'a {
        self.0.iter().filter_map(|(input, expected)| {
            let difference = expected.difference(others.0.get(input)?)?;
            let name = match expected {
                Numbering::Classes(_) => "classes",
                Numbering::Tokens(_) => "tokenizer",
            };
            Some((name, format!("`{input}`: {difference}")))
        })
    }

    /// Checks that other data number the inputs in the same way. `part` names them in errors.
    pub(crate) fn check(
        &self,
        part: &str,
        dataset: &dyn Dataset,
        inputs: &[Input],
    ) -> Result<(), Error> {
        let others = Self::of(part, dataset, inputs)?;
        let Some((_, difference)) = self.differences(&others).next() else { return Ok(()) };
        Err(Error::data(format!(
            "the {part} data for {difference}, unlike in training: read them with the numbering of \
             the training data, as `ImageFolder::open_as` does"
        )))
    }

    /// Stores the numberings in a checkpoint's progress.
    pub(crate) fn store(&self, extra: &mut Map<String, Value>) {
        let text = |numbering: &Numbering| match numbering {
            Numbering::Classes(classes) => json!({ "classes": classes.names() }),
            Numbering::Tokens(fingerprint) => json!({ "tokenizer": format!("{fingerprint:016x}") }),
        };
        let all: Map<String, Value> =
            self.0.iter().map(|(input, it)| (input.clone(), text(it))).collect();
        extra.insert(KEY.to_owned(), all.into());
    }

    /// Returns the numberings in a checkpoint's progress. Those of other programs have none.
    pub(crate) fn stored(progress: &Progress) -> Self {
        let numbering = |value: &Value| {
            if let Some(names) = value["classes"].as_array() {
                let names = names.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?;
                return Classes::new(names).ok().map(Numbering::Classes);
            }
            let fingerprint = u64::from_str_radix(value["tokenizer"].as_str()?, 16);
            fingerprint.ok().map(Numbering::Tokens)
        };
        let all = progress.extra.get(KEY).and_then(Value::as_object).into_iter().flatten();
        Self(all.filter_map(|(input, it)| Some((input.clone(), numbering(it)?))).collect())
    }
}
