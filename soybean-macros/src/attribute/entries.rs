//! The argument `entries = (prefill = 1, decode = 128)`: the functions of a model that run by
//! themselves, with the number of their calls by which the plan is measured. In training, an entry
//! may freeze parameters: `entries = (discriminator(freeze = ["g.*"]), ..)`.

use quote::ToTokens;
use soybean_plan::Mode;
use syn::{Expr, Ident};

use super::{Attribute, updates::read_patterns};
use crate::{
    diagnostic::{Diagnostic, Diagnostics},
    evaluate::{Evaluator, expression::peeled},
    item::batch_name,
    source_text::source_text,
    value::Value,
};

/// The entry of models that do not name any.
pub(crate) const FORWARD: &str = "forward";

/// The names of generated types that are no batches.
const RESERVED: [&str; 3] = ["Network", "Predictor", "Trainer"];

/// An entry as the user wrote it: `discriminator(freeze = ["g.*"]) = 5`.
pub(crate) struct DeclaredEntry<'a> {
    pub(crate) name: &'a Ident,
    /// The number of calls; 1 if it is not given.
    pub(crate) n_calls: Option<&'a Expr>,
    /// The settings in parentheses.
    settings: Vec<&'a Expr>,
}

impl<'a> DeclaredEntry<'a> {
    fn of(expression: &'a Expr) -> Option<Self> {
        let (called, n_calls) = match expression {
            Expr::Assign(it) => (&*it.left, Some(&*it.right)),
            other => (other, None),
        };
        let (path, settings) = match called {
            Expr::Call(it) => (&*it.func, it.args.iter().collect()),
            other => (other, Vec::new()),
        };
        let Expr::Path(name) = path else { return None };
        Some(Self { name: name.path.get_ident()?, n_calls, settings })
    }

    /// Returns the value of the setting `freeze`.
    pub(crate) fn freeze(&self) -> Option<&'a Expr> {
        self.settings.iter().find_map(|setting| match setting {
            Expr::Assign(it) if source_text(&it.left) == "freeze" => Some(&*it.right),
            _ => None,
        })
    }
}

impl Attribute {
    /// Returns the expressions in the list of entries.
    fn entry_expressions(&self) -> Vec<&Expr> {
        match self.value("entries") {
            Some(Expr::Tuple(list)) => list.elems.iter().collect(),
            Some(Expr::Paren(alone)) => vec![&alone.expr],
            Some(other) => vec![other],
            None => Vec::new(),
        }
    }

    /// Returns the entries that are written as they must be.
    pub(crate) fn entries(&self) -> Vec<DeclaredEntry<'_>> {
        self.entry_expressions().into_iter().filter_map(DeclaredEntry::of).collect()
    }

    /// Returns whether the model names its entries.
    pub(crate) fn has_entries(&self) -> bool {
        self.value("entries").is_some()
    }

    /// Returns the names of the model's entries, without those whose types of batches are taken.
    pub(crate) fn entry_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for entry in self.entries() {
            let name = entry.name.to_string();
            let batch = batch_name(&name);
            let is_taken = RESERVED.contains(&&*batch);
            if !is_taken && !names.iter().any(|it| batch_name(it) == batch) {
                names.push(name);
            }
        }
        if names.is_empty() { vec![FORWARD.to_owned()] } else { names }
    }

    /// Reports entries that are not written as they must be, or twice.
    pub(crate) fn check_entries(&self, diagnostics: &mut Diagnostics) {
        let Some(whole) = self.value("entries") else { return };
        let example = "write the functions with the numbers of their calls: `entries = (prefill = 1, decode = 128)`";
        if self.entry_expressions().is_empty() {
            let message = Diagnostic::new("a model has at least one entry, found none");
            diagnostics.report(whole, &message.help(example));
        }
        for expression in self.entry_expressions() {
            if DeclaredEntry::of(expression).is_none() {
                let found = source_text(expression);
                let message =
                    Diagnostic::new(format!("expected a function's name, found `{found}`"));
                diagnostics.report(expression, &message.help(example));
            }
        }
        let entries = self.entries();
        for (at, entry) in entries.iter().enumerate() {
            let name = entry.name.to_string();
            let batch = batch_name(&name);
            let first = entries[..at].iter().find(|it| batch_name(&it.name.to_string()) == batch);
            if first.is_some_and(|it| *it.name == name) {
                let message = Diagnostic::new(format!("the entry `{name}` is given twice"));
                diagnostics.report(entry.name, &message);
            } else if first.is_some() || RESERVED.contains(&&*batch) {
                let message = Diagnostic::new(format!(
                    "the batches of the entry `{name}` are of the type `{batch}`, which is taken"
                ));
                diagnostics.report(entry.name, &message.help("give the function another name"));
            }
        }
    }

    /// Returns the tokens for errors about an entry.
    pub(crate) fn entry_tokens(&self, position: usize) -> Option<&dyn ToTokens> {
        self.entries().get(position).map(|it| it.name as &dyn ToTokens)
    }

    /// Returns the patterns of the names of parameters that an entry does not train.
    pub(crate) fn freeze_of<'a>(
        &'a self,
        name: &str,
        evaluator: &mut Evaluator<'a>,
    ) -> Option<Vec<String>> {
        let entry = self.entries().into_iter().find(|it| it.name == name);
        let Some(entry) = entry else { return Some(Vec::new()) };
        if let [first, ..] = &entry.settings[..]
            && self.mode == Mode::Inference
        {
            let message = "an entry of a model of `mode = \"inference\"` trains nothing";
            let message = Diagnostic::new(message).help("remove the parentheses");
            evaluator.diagnostics.report(first, &message);
            return None;
        }
        match (entry.freeze(), &entry.settings[..]) {
            (None, []) => Some(Vec::new()),
            (Some(patterns), [_]) => read_patterns(patterns, evaluator),
            (_, settings) => {
                let other = settings.iter().find(|it| match it {
                    Expr::Assign(it) => source_text(&it.left) != "freeze",
                    _ => true,
                });
                let message = Diagnostic::new("an entry has one setting, `freeze`")
                    .help("write `discriminator(freeze = [\"generator.*\"])`; other settings of updates are those of `groups`");
                evaluator.diagnostics.report(other.unwrap_or(&settings[0]), &message);
                None
            }
        }
    }

    /// Returns the number of an entry's calls.
    pub(crate) fn n_calls<'a>(&'a self, name: &str, evaluator: &mut Evaluator<'a>) -> Option<u64> {
        let Some(found) = self.entries().into_iter().find(|it| it.name == name) else {
            return Some(1);
        };
        let Some(expression) = found.n_calls else { return Some(1) };
        match evaluator.constant(peeled(expression)) {
            Value::Integer(number) if (1..=1 << 32).contains(&number) => u64::try_from(number).ok(),
            Value::Poison => None,
            _ => {
                let found = source_text(expression);
                let message = format!(
                    "the number of calls of `{name}` must be an integer from 1 to 2^32, found `{found}`"
                );
                evaluator.diagnostics.report(expression, &message.into());
                None
            }
        }
    }
}
