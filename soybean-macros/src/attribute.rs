//! The arguments of the attribute, written `gpus = 8, mode = "inference"`. [`ARGUMENTS`] lists
//! them.

mod cluster;
mod entries;
mod unknown;
mod updates;

use std::collections::BTreeMap;

use proc_macro2::TokenStream;
use quote::ToTokens;
use soybean_compiler::{
    Argument, MAX_GPUS, MAX_WORK, Objective, Optimizer, Padding, SearchEffort, Strategy,
    is_max_work,
};
use soybean_plan::{Mode, Precision, parse_bytes};
use syn::{
    Expr, Ident, Token,
    ext::IdentExt,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
};

use cluster::{Described, read_cluster};

pub(crate) use entries::FORWARD;

use crate::{
    diagnostic::{Diagnostic, Diagnostics},
    evaluate::{Evaluator, expression::peeled},
    expand::Environment,
    source_text::source_text,
    suggestion,
    value::Value,
};

/// An argument that the attribute takes.
struct Known {
    name: &'static str,
    /// An example of a value.
    example: &'static str,
    /// The mode of the models that have it, if others do not.
    mode: Option<Mode>,
}

const fn always(name: &'static str, example: &'static str) -> Known {
    Known { name, example, mode: None }
}

const fn only(mode: Mode, name: &'static str, example: &'static str) -> Known {
    Known { name, example, mode: Some(mode) }
}

/// All arguments.
const ARGUMENTS: [Known; 20] = [
    always("gpus", "8"),
    only(Mode::Training, "optimizer", "sgd(momentum = 0.9)"),
    always("strategy", "\"auto\""),
    always("precision", "\"bf16\""),
    always("memory", "\"80GiB\""),
    always("cluster", "\"dgx-h100\""),
    always("objective", "\"time\""),
    always("search", "\"thorough\""),
    always("padding", "\"off\""),
    always("max_work", "1.2"),
    always("crate", "path::of::soybean"),
    always("mode", "\"inference\""),
    always("entries", "(prefill = 1, decode = 128)"),
    only(Mode::Training, "freeze", "[\"encoder.*\"]"),
    only(Mode::Training, "groups", "[(\"*.bias\", sgd())]"),
    only(Mode::Training, "input_gradients", "[\"x\"]"),
    only(Mode::Training, "clip_norm", "1.0"),
    only(Mode::Training, "accumulate", "4"),
    only(Mode::Training, "ema", "0.999"),
    only(Mode::Training, "non_finite", "\"skip\""),
];

/// The arguments as the user wrote them.
#[derive(Default)]
pub(crate) struct Attribute {
    /// The values, by the names in [`ARGUMENTS`].
    values: BTreeMap<&'static str, Expr>,
    /// The model's mode. It decides the generated items also if there are errors. An unknown mode
    /// counts as the default.
    pub(crate) mode: Mode,
    tokens: TokenStream,
    /// True if some arguments could not be parsed. Then no argument is reported as missing.
    is_broken: bool,
}

/// `name = value`
struct Setting {
    name: Ident,
    value: Expr,
}

impl Parse for Setting {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name = input.call(Ident::parse_any)?;
        if !input.peek(Token![=]) {
            let help = format!("the arguments are written `{name} = ..`");
            return Err(syn::Error::new_spanned(name, help));
        }
        input.parse::<Token![=]>()?;
        Ok(Self { name, value: input.parse()? })
    }
}

/// The values of the arguments.
pub(crate) struct Settings {
    pub(crate) n_gpus: usize,
    pub(crate) optimizer: Optimizer,
    pub(crate) strategy: Strategy,
    pub(crate) precision: Precision,
    /// The memory of each GPU in bytes, if it limits the plan.
    pub(crate) memory: Option<u64>,
    /// The cluster, if it is given.
    pub(crate) cluster: Option<Described>,
    pub(crate) objective: Objective,
    pub(crate) effort: SearchEffort,
    pub(crate) padding: Padding,
    /// The most work for which the objective `bytes` alone counts.
    pub(crate) max_work: f64,
}

impl Attribute {
    /// Parses the arguments and reports errors in them.
    pub(crate) fn parse(tokens: TokenStream, diagnostics: &mut Diagnostics) -> Self {
        let mut attribute = Self { tokens: tokens.clone(), ..Self::default() };
        let parser = Punctuated::<Setting, Token![,]>::parse_terminated;
        let settings = match syn::parse::Parser::parse2(parser, tokens) {
            Ok(settings) => settings,
            Err(error) => {
                diagnostics.adopt(error);
                attribute.is_broken = true;
                return attribute;
            }
        };
        for Setting { name, value } in settings {
            let text = name.to_string();
            let Some(known) = ARGUMENTS.iter().find(|it| it.name == text) else {
                diagnostics.report(&name, &unknown::unknown(&text));
                attribute.is_broken = true;
                continue;
            };
            if attribute.values.contains_key(known.name) {
                diagnostics.report(&name, &Diagnostic::new(format!("`{text}` is given twice")));
                continue;
            }
            attribute.values.insert(known.name, value);
        }
        let mode = attribute.choice("mode", &Mode::NAMES, diagnostics);
        attribute.mode = mode.unwrap_or_default();
        attribute.check_entries(diagnostics);
        attribute
    }

    /// Returns the value of one of [`ARGUMENTS`], if it is given.
    pub(crate) fn value(&self, name: &str) -> Option<&Expr> {
        debug_assert!(ARGUMENTS.iter().any(|it| it.name == name), "no argument `{name}`");
        self.values.get(name)
    }

    /// Returns the choice that an argument names, or the default without the argument. Returns none
    /// if there is no such choice.
    fn choice<T: Copy + Default>(
        &self,
        name: &str,
        choices: &[(&'static str, T)],
        diagnostics: &mut Diagnostics,
    ) -> Option<T> {
        match self.value(name) {
            Some(expression) => read_choice(name, expression, choices, diagnostics),
            None => Some(T::default()),
        }
    }

    /// Returns the tokens for errors about the number of GPUs: the number, or else all arguments.
    pub(crate) fn gpus_tokens(&self) -> &dyn ToTokens {
        match self.value("gpus") {
            Some(expression) => expression,
            None => &self.tokens,
        }
    }

    /// Returns the tokens for errors about memory: its size, or else those for the number of GPUs.
    pub(crate) fn memory_tokens(&self) -> &dyn ToTokens {
        match self.value("memory") {
            Some(expression) => expression,
            None => self.gpus_tokens(),
        }
    }

    /// Returns the expressions among the arguments, so that rustc checks their names and counts
    /// them as used.
    pub(crate) fn computed(&self) -> impl Iterator<Item = &Expr> {
        let settings = self.optimizer_settings().into_iter().flatten().chain(self.group_settings());
        let of_optimizer = settings.filter_map(|argument| match argument {
            Expr::Assign(assign) => Some(&*assign.right),
            _ => None,
        });
        let is_value = |name: &str| !["crate", "optimizer", "groups", "entries"].contains(&name);
        let others = self.values.iter().filter(move |it| is_value(it.0)).map(|it| it.1);
        let of_entries =
            self.entries().into_iter().flat_map(|it| it.n_calls.into_iter().chain(it.freeze()));
        others
            .chain(of_optimizer)
            .chain(of_entries)
            .filter(|it| !matches!(peeled(it), Expr::Lit(_)))
    }

    /// Evaluates the arguments. The environment's number of GPUs overrides the attribute's.
    pub(crate) fn settings<'a>(
        &'a self,
        evaluator: &mut Evaluator<'a>,
        environment: &Environment,
    ) -> Option<Settings> {
        let n_gpus = self.n_gpus(evaluator, environment.gpus.as_deref());
        let optimizer = match self.mode {
            Mode::Training => self.read_updates(evaluator),
            Mode::Inference => Some(Optimizer::default()),
        };
        let has_faults = self.refuse_other_mode(&mut evaluator.diagnostics);
        let optimizer = optimizer.filter(|_| !has_faults);
        let diagnostics = &mut evaluator.diagnostics;
        let strategy = self.choice("strategy", &Strategy::NAMES, diagnostics);
        let precisions = Precision::ALL.map(|it| (it.name(), it));
        let precision = self.choice("precision", &precisions, diagnostics);
        let effort = self.choice("search", &SearchEffort::NAMES, diagnostics);
        let padding = self.choice("padding", &Padding::NAMES, diagnostics);
        let memory = match self.value("memory") {
            Some(expression) => read_memory(expression, diagnostics).map(Some),
            None => Some(None),
        };
        let cluster = match self.value("cluster") {
            Some(expression) => read_cluster(expression, environment, diagnostics).map(Some),
            None => Some(None),
        };
        let max_work = match self.value("max_work") {
            Some(expression) => read_max_work(
                expression,
                &evaluator.constant(expression),
                &mut evaluator.diagnostics,
            ),
            None => Some(MAX_WORK),
        };
        let diagnostics = &mut evaluator.diagnostics;
        let objective = match self.value("objective") {
            Some(expression) => {
                read_choice("objective", expression, &Objective::NAMES, diagnostics)
            }
            None => Some(Objective::Bytes),
        };
        Some(Settings {
            n_gpus: n_gpus?,
            optimizer: optimizer?,
            strategy: strategy?,
            precision: precision?,
            memory: memory?,
            cluster: cluster?,
            objective: objective?,
            effort: effort?,
            padding: padding?,
            max_work: max_work?,
        })
    }

    /// Reports the arguments that a model of this mode cannot have. Returns whether there are any.
    fn refuse_other_mode(&self, diagnostics: &mut Diagnostics) -> bool {
        let is_other = |it: &&Known| it.mode.is_some_and(|mode| mode != self.mode);
        let mut has_faults = false;
        for Known { name, .. } in ARGUMENTS.iter().filter(is_other) {
            let Some(expression) = self.value(name) else { continue };
            let message = match self.mode {
                Mode::Inference => {
                    Diagnostic::new(format!("a model of `mode = \"inference\"` has no `{name}`"))
                        .help("remove this argument, or the mode")
                }
                Mode::Training => {
                    Diagnostic::new(format!("a model that is trained has no `{name}`"))
                        .help("remove this argument, or add `mode = \"inference\"`")
                }
            };
            diagnostics.report(expression, &message);
            has_faults = true;
        }
        has_faults
    }

    fn n_gpus<'a>(
        &'a self,
        evaluator: &mut Evaluator<'a>,
        variable: Option<&str>,
    ) -> Option<usize> {
        let declared =
            self.value("gpus").map(|expression| (expression, evaluator.constant(expression)));
        let requirement = format!("must be an integer from 1 to {MAX_GPUS}");
        if let Some((expression, value)) = &declared {
            let found = match value {
                Value::Integer(n) => n.to_string(),
                other => other.kind().to_owned(),
            };
            if !value.is_poisoned() && number_of_gpus(&found).is_none() {
                let message = format!("`gpus` {requirement}, found {found}");
                evaluator.diagnostics.report(expression, &message.into());
                return None;
            }
        }
        match (variable, declared) {
            (Some(variable), _) => {
                let n_gpus = number_of_gpus(variable.trim());
                if n_gpus.is_none() {
                    let message = Diagnostic::new(format!(
                        "the environment variable SOYBEAN_GPUS, which overrides `gpus`, {requirement}, found \"{variable}\""
                    ));
                    evaluator.diagnostics.report(self.gpus_tokens(), &message);
                }
                n_gpus
            }
            (None, Some((_, Value::Integer(n)))) => usize::try_from(n).ok(),
            (None, Some(_)) => None,
            (None, None) if self.is_broken => None,
            (None, None) => {
                let message = Diagnostic::new("the number of GPUs is missing")
                    .help("write `#[soybean::model(gpus = 8)]`, or set the environment variable SOYBEAN_GPUS");
                evaluator.diagnostics.report(self.gpus_tokens(), &message);
                None
            }
        }
    }
}

/// Returns the mode of an attribute that has not been parsed yet. Parsing it reports its errors.
pub(crate) fn mode_of(attribute: &TokenStream) -> Mode {
    Attribute::parse(attribute.clone(), &mut Diagnostics::default()).mode
}

/// Returns the names of the entries of an attribute that has not been parsed yet.
pub(crate) fn entries_of(attribute: &TokenStream) -> Vec<String> {
    Attribute::parse(attribute.clone(), &mut Diagnostics::default()).entry_names()
}

fn number_of_gpus(text: &str) -> Option<usize> {
    text.parse().ok().filter(|n| (1..=MAX_GPUS).contains(n))
}

/// Reads a string that names one of some choices.
fn read_choice<T: Copy>(
    argument: &str,
    expression: &Expr,
    choices: &[(&'static str, T)],
    diagnostics: &mut Diagnostics,
) -> Option<T> {
    let expression = peeled(expression);
    let text = match expression {
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(it), .. }) => it.value(),
        other => source_text(other),
    };
    let named = choices.iter().find(|(name, _)| *name == text).map(|&(_, choice)| choice);
    let choice = named.filter(|_| matches!(expression, Expr::Lit(_)));
    if choice.is_none() {
        let names = || choices.iter().map(|&(name, _)| name);
        let known: Vec<String> = names().map(|name| format!("\"{name}\"")).collect();
        let mut message = Diagnostic::new(format!(
            "`{argument}` must be one of {}, found {}",
            known.join(", "),
            source_text(expression)
        ));
        if let Some(nearest) = suggestion::nearest(&text, names()) {
            message = message.help(format!("did you mean \"{nearest}\"?"));
        }
        diagnostics.report(expression, &message);
    }
    choice
}

/// Reads the most work of a plan, which is a number from 1.
fn read_max_work(
    expression: &Expr,
    value: &Value<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<f64> {
    let number = match value.to_argument() {
        Some(Argument::Integer(number)) => Some(number as f64),
        Some(Argument::Float(number)) => Some(number),
        _ => None,
    };
    let found = number.filter(|it| is_max_work(*it));
    if found.is_none() && !value.is_poisoned() {
        let message =
            format!("`max_work` must be a number from 1, found {}", source_text(expression));
        diagnostics.report(expression, &Diagnostic::new(message));
    }
    found
}

/// Reads a size of memory, which must be a string, in bytes.
fn read_memory(expression: &Expr, diagnostics: &mut Diagnostics) -> Option<u64> {
    let expression = peeled(expression);
    let found = match expression {
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(it), .. }) => parse_bytes(&it.value()),
        other => Err(format!("found {}", source_text(other))),
    };
    found
        .map_err(|reason| {
            let headline = "`memory` must be a size of memory in a string, such as \"80GiB\"";
            diagnostics.report(expression, &Diagnostic::new(format!("{headline}: {reason}")));
        })
        .ok()
}
