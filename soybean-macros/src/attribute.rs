//! The attribute's arguments: `gpus = 8, optimizer = sgd(momentum = 0.9), strategy = "auto", precision = "bf16", memory = "80GiB",
//! cluster = "dgx-h100", objective = "time", mode = "inference", clip_norm = 1.0, accumulate = 4, ema = 0.999, non_finite = "skip"`.

mod cluster;
pub(crate) mod mode;
mod updates;

use proc_macro2::TokenStream;
use quote::ToTokens;
use soybean_compiler::{MAX_GPUS, Objective, Optimizer, Strategy, parse_bytes};
use soybean_plan::Precision;
use syn::{
    Expr, Ident, Token,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
};

use cluster::{Described, read_cluster, read_objective};

use crate::{
    evaluate::{Evaluator, expression::peeled},
    expand::Environment,
    problem::{Message, Problems},
    source_text::source_text,
    suggestion,
    value::Value,
};

/// The names of all arguments.
const NAMES: [&str; 12] = [
    "gpus",
    "optimizer",
    "strategy",
    "precision",
    "memory",
    "cluster",
    "objective",
    "mode",
    "clip_norm",
    "accumulate",
    "ema",
    "non_finite",
];

/// The arguments with values.
const KNOWN: &str = "gpus = 8, optimizer = sgd(momentum = 0.9), strategy = \"auto\", precision = \"bf16\", memory = \"80GiB\", cluster = \"dgx-h100\", objective = \"time\", mode = \"inference\", clip_norm = 1.0, accumulate = 4, ema = 0.999, non_finite = \"skip\"";

/// The arguments as they are written.
#[derive(Default)]
pub(crate) struct Attribute {
    gpus: Option<Expr>,
    optimizer: Option<Expr>,
    strategy: Option<Expr>,
    precision: Option<Expr>,
    memory: Option<Expr>,
    cluster: Option<Expr>,
    objective: Option<Expr>,
    mode: Option<Expr>,
    clip_norm: Option<Expr>,
    accumulate: Option<Expr>,
    ema: Option<Expr>,
    non_finite: Option<Expr>,
    tokens: TokenStream,
    /// Whether some of them could not be read, so that nothing is known to be missing.
    is_broken: bool,
}

/// `name = value`
struct Setting {
    name: Ident,
    value: Expr,
}

impl Parse for Setting {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name: Ident = input.parse()?;
        if !input.peek(Token![=]) {
            let help = format!("the arguments are written `{name} = ..`");
            return Err(syn::Error::new_spanned(name, help));
        }
        input.parse::<Token![=]>()?;
        Ok(Self { name, value: input.parse()? })
    }
}

/// What the arguments say.
pub(crate) struct Settings {
    pub(crate) n_gpus: usize,
    pub(crate) optimizer: Optimizer,
    pub(crate) strategy: Strategy,
    pub(crate) precision: Precision,
    /// The bytes of memory that each GPU has, if that limits the plan.
    pub(crate) memory: Option<u64>,
    /// The machine, if it is known.
    pub(crate) cluster: Option<Described>,
    pub(crate) objective: Objective,
}

impl Attribute {
    /// Parses the arguments; what is wrong with them goes into `problems`.
    pub(crate) fn parse(tokens: TokenStream, problems: &mut Problems) -> Self {
        let mut attribute = Self { tokens: tokens.clone(), ..Self::default() };
        let parser = Punctuated::<Setting, Token![,]>::parse_terminated;
        let settings = match syn::parse::Parser::parse2(parser, tokens) {
            Ok(settings) => settings,
            Err(error) => {
                problems.adopt(error);
                attribute.is_broken = true;
                return attribute;
            }
        };
        for Setting { name, value } in settings {
            let text = name.to_string();
            let Some(slot) = attribute.slot(&text) else {
                let mut message =
                    Message::new(format!("unknown argument `{text}`")).note("known", KNOWN);
                if let Some(nearest) = suggestion::nearest(&text, NAMES) {
                    message = message.help(format!("did you mean `{nearest}`?"));
                }
                problems.report(&name, &message);
                attribute.is_broken = true;
                continue;
            };
            if slot.is_some() {
                problems.report(&name, &Message::new(format!("`{text}` is given twice")));
                continue;
            }
            *slot = Some(value);
        }
        attribute
    }

    /// The place of the argument with this name.
    fn slot(&mut self, name: &str) -> Option<&mut Option<Expr>> {
        Some(match name {
            "gpus" => &mut self.gpus,
            "optimizer" => &mut self.optimizer,
            "strategy" => &mut self.strategy,
            "precision" => &mut self.precision,
            "memory" => &mut self.memory,
            "cluster" => &mut self.cluster,
            "objective" => &mut self.objective,
            "mode" => &mut self.mode,
            "clip_norm" => &mut self.clip_norm,
            "accumulate" => &mut self.accumulate,
            "ema" => &mut self.ema,
            "non_finite" => &mut self.non_finite,
            _ => return None,
        })
    }

    /// Where faults of the number of GPUs belong: at the number, or else at all that is written.
    pub(crate) fn gpus_tokens(&self) -> &dyn ToTokens {
        match &self.gpus {
            Some(expression) => expression,
            None => &self.tokens,
        }
    }

    /// Where faults of the memory belong: at its size, or else where those of the number of GPUs do.
    pub(crate) fn memory_tokens(&self) -> &dyn ToTokens {
        match &self.memory {
            Some(expression) => expression,
            None => self.gpus_tokens(),
        }
    }

    /// The constants that the arguments compute: rustc is to check their names, and to count them as used.
    pub(crate) fn computed(&self) -> impl Iterator<Item = &Expr> {
        let settings = match self.optimizer.as_ref().map(peeled) {
            Some(Expr::Call(call)) => Some(&call.args),
            _ => None,
        };
        let values = settings.into_iter().flatten().filter_map(|argument| match argument {
            Expr::Assign(assign) => Some(&*assign.right),
            _ => None,
        });
        let numbers = [&self.clip_norm, &self.accumulate, &self.ema].into_iter().flatten();
        self.gpus
            .iter()
            .chain(numbers)
            .chain(values)
            .filter(|it| !matches!(peeled(it), Expr::Lit(_)))
    }

    /// What the arguments say; the environment's number of GPUs goes before the attribute's.
    pub(crate) fn settings<'a>(
        &'a self,
        evaluator: &mut Evaluator<'a>,
        environment: &Environment,
    ) -> Option<Settings> {
        let n_gpus = self.n_gpus(evaluator, environment.gpus.as_deref());
        let optimizer = self.optimizer_of_mode(evaluator);
        let strategy = match &self.strategy {
            Some(expression) => read_choice("strategy", expression, &Strategy::NAMES, evaluator),
            None => Some(Strategy::Auto),
        };
        let precisions = Precision::ALL.map(|it| (it.name(), it));
        let precision = match &self.precision {
            Some(expression) => read_choice("precision", expression, &precisions, evaluator),
            None => Some(Precision::F32),
        };
        let memory = match &self.memory {
            Some(expression) => read_memory(expression, evaluator).map(Some),
            None => Some(None),
        };
        let cluster = match &self.cluster {
            Some(expression) => read_cluster(expression, environment, evaluator).map(Some),
            None => Some(None),
        };
        let objective = match &self.objective {
            Some(expression) => read_objective(expression, self.cluster.is_some(), evaluator),
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
        })
    }

    fn n_gpus<'a>(
        &'a self,
        evaluator: &mut Evaluator<'a>,
        variable: Option<&str>,
    ) -> Option<usize> {
        let declared =
            self.gpus.as_ref().map(|expression| (expression, evaluator.constant(expression)));
        let requirement = format!("must be an integer from 1 to {MAX_GPUS}");
        if let Some((expression, value)) = &declared {
            let found = match value {
                Value::Integer(n) => n.to_string(),
                other => other.kind().to_owned(),
            };
            if !value.is_poisoned() && number_of_gpus(&found).is_none() {
                let message = format!("`gpus` {requirement}, found {found}");
                evaluator.problems.report(expression, &message.into());
                return None;
            }
        }
        match (variable, declared) {
            (Some(variable), _) => {
                let n_gpus = number_of_gpus(variable.trim());
                if n_gpus.is_none() {
                    let message = Message::new(format!(
                        "the environment variable SOYBEAN_GPUS, which overrides `gpus`, {requirement}, found \"{variable}\""
                    ));
                    evaluator.problems.report(self.gpus_tokens(), &message);
                }
                n_gpus
            }
            (None, Some((_, Value::Integer(n)))) => usize::try_from(n).ok(),
            (None, Some(_)) => None,
            (None, None) if self.is_broken => None,
            (None, None) => {
                let message = Message::new("the number of GPUs is missing")
                    .help("write `#[soybean::model(gpus = 8)]`, or set the environment variable SOYBEAN_GPUS");
                evaluator.problems.report(self.gpus_tokens(), &message);
                None
            }
        }
    }
}

fn number_of_gpus(text: &str) -> Option<usize> {
    text.parse().ok().filter(|n| (1..=MAX_GPUS).contains(n))
}

/// The choice whose name the string is.
fn read_choice<T: Copy>(
    argument: &str,
    expression: &Expr,
    choices: &[(&'static str, T)],
    evaluator: &mut Evaluator<'_>,
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
        let mut message = Message::new(format!(
            "`{argument}` must be one of {}, found {}",
            known.join(", "),
            source_text(expression)
        ));
        if let Some(nearest) = suggestion::nearest(&text, names()) {
            message = message.help(format!("did you mean \"{nearest}\"?"));
        }
        evaluator.problems.report(expression, &message);
    }
    choice
}

/// The bytes of a size, which must be a string.
fn read_memory(expression: &Expr, evaluator: &mut Evaluator<'_>) -> Option<u64> {
    let expression = peeled(expression);
    let found = match expression {
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(it), .. }) => parse_bytes(&it.value()),
        other => Err(format!("found {}", source_text(other))),
    };
    found
        .map_err(|reason| {
            let headline = "`memory` must be a size of memory in a string, such as \"80GiB\"";
            evaluator.problems.report(expression, &Message::new(format!("{headline}: {reason}")));
        })
        .ok()
}
