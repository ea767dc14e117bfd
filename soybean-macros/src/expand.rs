//! The expansion of the attribute `model`: returns the item as ordinary Rust, with its trainer or
//! predictor.

use std::{path::PathBuf, time::Instant};

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use soybean_compiler::{
    Builder, Compiled, ModelDiagnostic, ModelPart, Options, Recipe, SearchRequest,
};
use soybean_plan::{DType, Mode, Shape};
use syn::{Expr, ItemFn, Pat, Stmt, ext::IdentExt};

use crate::{
    attribute::{Attribute, Settings, entries_of, mode_of},
    diagnostic::{Diagnostic, Diagnostics},
    erase::erase_dims,
    evaluate::{Evaluator, tensor::Assertion},
    generate,
    item::{Form, Model, arguments},
    layers::Layers,
    recovery, relayed,
    root::Manifest,
    source_text::whole_text,
    stub,
    value::Value,
};

/// The surroundings on which the expansion depends besides its tokens.
#[derive(Default)]
pub(crate) struct Environment {
    /// The value of `SOYBEAN_GPUS`. The generated code reads it by `option_env!` too, so that cargo
    /// tracks it.
    pub(crate) gpus: Option<String>,
    /// The folder of the crate's manifest. Paths of files are relative to it.
    pub(crate) folder: Option<PathBuf>,
    /// The facts of the manifest.
    pub(crate) manifest: Manifest,
    /// True if an editor requests the expansion. A search would take too long for it.
    pub(crate) is_editor: bool,
}

impl Environment {
    pub(crate) fn read() -> Self {
        let folder = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        Self {
            gpus: std::env::var("SOYBEAN_GPUS").ok(),
            manifest: folder.as_deref().map_or_else(Manifest::default, Manifest::read),
            folder,
            is_editor: std::env::var_os("RUST_ANALYZER_INTERNALS_DO_NOT_USE").is_some(),
        }
    }
}

/// An argument of the model's function.
pub(crate) struct Input {
    pub(crate) name: Ident,
    pub(crate) dtype: DType,
    /// `None` if it has errors or has not been evaluated.
    pub(crate) shape: Option<Shape>,
    value: Option<soybean_compiler::Value>,
}

impl Input {
    /// Returns an argument that has not been evaluated.
    pub(crate) fn without_value(name: Ident, dtype: DType) -> Self {
        Self { name, dtype, shape: None, value: None }
    }
}

/// A model that was compiled without errors.
pub(crate) struct Success {
    /// The arguments of each entry.
    pub(crate) inputs: Vec<Vec<Input>>,
    pub(crate) assertions: Vec<Assertion>,
    pub(crate) compiled: Compiled,
    /// The model as text, from which the program compiles it again.
    pub(crate) recipe: String,
    /// The file that describes the cluster.
    pub(crate) cluster_file: Option<String>,
}

/// Expands the attribute `model`.
pub(crate) fn expand(
    attribute: TokenStream,
    item: TokenStream,
    environment: &Environment,
) -> TokenStream {
    let parsed = match syn::parse2(item.clone()) {
        Ok(parsed) => parsed,
        // While its text is being written, an editor reads the item itself.
        Err(_) if environment.is_editor => return erase_dims(item),
        Err(error) => return recovery::model(&item, &attribute, &error),
    };
    let model = match Model::of(parsed, item.clone(), entries_of(&attribute)) {
        Ok(model) => model,
        Err(error) => {
            let (error, item) = (error.to_compile_error(), erase_dims(item));
            return quote!(#error #item);
        }
    };
    if environment.is_editor {
        return stub::for_editor(&model, &stub::inputs(&model), mode_of(&attribute));
    }
    let mut diagnostics = Diagnostics::default();
    let dependencies = model.dependencies();
    if !dependencies.is_empty() {
        model.check(mode_of(&attribute), &mut diagnostics);
        if diagnostics.is_empty() {
            return relayed::start(&model, attribute, &dependencies, environment);
        }
    }
    let layers = Layers::unknown(&dependencies);
    let mut evaluator = Evaluator::new(model.items(), &layers);
    let parsed = Attribute::parse(attribute.clone(), &mut evaluator.diagnostics);
    match build(&model, &parsed, environment, &mut evaluator) {
        Some(success) => generate::expansion(&model, &parsed, &success),
        None => stub::for_faults(&model, &attribute, &evaluator),
    }
}

/// An evaluated model with the settings of its compilation.
pub(crate) struct Evaluated<'a> {
    pub(crate) settings: Settings,
    /// The arguments of each entry.
    inputs: Vec<Vec<Input>>,
    /// The results of all entries.
    outputs: Outputs<'a>,
}

/// Evaluates the model, or returns `None` after reporting errors.
pub(crate) fn evaluate<'a>(
    model: &'a Model,
    attribute: &'a Attribute,
    environment: &Environment,
    evaluator: &mut Evaluator<'a>,
) -> Option<Evaluated<'a>> {
    let mode = attribute.mode;
    model.check(mode, &mut evaluator.diagnostics);
    let settings = attribute.settings(evaluator, environment);
    evaluator.builder = Builder::in_mode(mode);
    if let (Form::Function(_), Some(first)) = (&model.form, attribute.entries().first()) {
        let message = Diagnostic::new("only a module has entries")
            .help("put the functions into a module: `mod name { .. }`");
        evaluator.diagnostics.report(first.name, &message);
    }
    let mut inputs = Vec::new();
    let mut outputs: Option<Outputs<'a>> = None;
    for (name, function) in model.entries() {
        if !inputs.is_empty() {
            evaluator.begin_entry();
        }
        let freeze = attribute.freeze_of(name, evaluator);
        if let Some(n_calls) = attribute.n_calls(name, evaluator)
            && attribute.has_entries()
        {
            evaluator.builder.begin_entry(name, n_calls);
        }
        let own = add_inputs(function, evaluator);
        let arguments =
            own.iter().map(|it| it.value.map_or(Value::Poison, Value::Tensor)).collect();
        inputs.push(own);
        let result = evaluator.entry(function, arguments);
        let found = self::outputs(function, result, mode, evaluator);
        if let (true, Some(loss), Some(freeze)) =
            (attribute.has_entries(), found.as_ref().and_then(|it| it.loss), freeze)
        {
            evaluator.builder.train_entry(loss, freeze);
        }
        match (&mut outputs, found) {
            (Some(all), Some(found)) => all.others.extend(found.others),
            (None, found) => outputs = found,
            (Some(_), None) => {}
        }
    }
    name_parameters(evaluator);
    evaluator.builder.name_layers(evaluator.naming.layers());
    for (name, value) in evaluator.naming.tensors() {
        evaluator.builder.name_tensor(&name, value);
    }
    let evaluated = Evaluated { settings: settings?, inputs, outputs: outputs? };
    evaluator.diagnostics.is_empty().then_some(evaluated)
}

/// Evaluates and compiles the model, or returns `None` after reporting errors.
pub(crate) fn build<'a>(
    model: &'a Model,
    attribute: &'a Attribute,
    environment: &Environment,
    evaluator: &mut Evaluator<'a>,
) -> Option<Success> {
    let Some(evaluated) = evaluate(model, attribute, environment, evaluator) else {
        let is_reported = evaluator.left_to_rustc.is_some() || !evaluator.unmarked.is_empty();
        if evaluator.diagnostics.is_empty() && !is_reported && !evaluator.layers.has_errors() {
            let message = "the macro cannot compile this model, and does not know why: this is a bug in `soybean`";
            evaluator.diagnostics.report(attribute.gpus_tokens(), &message.into());
        }
        return None;
    };
    let Evaluated { settings, inputs, outputs } = evaluated;
    let options = options(model, &settings);
    let builder = std::mem::take(&mut evaluator.builder);
    let loss = outputs.loss.filter(|_| !attribute.has_entries());
    let recipe = Recipe { builder, loss, outputs: outputs.others, options };
    let start = Instant::now();
    let now = || start.elapsed().as_secs_f64() * 1e3;
    match recipe.compile(&now) {
        Ok(compiled) => Some(Success {
            inputs,
            assertions: std::mem::take(&mut evaluator.assertions),
            compiled,
            recipe: recipe.to_string(),
            cluster_file: settings.cluster.and_then(|it| it.file),
        }),
        Err(diagnostics) => {
            for diagnostic in diagnostics {
                report(
                    diagnostic.at,
                    &message(diagnostic, environment),
                    model,
                    attribute,
                    &inputs,
                    outputs.first_at,
                    evaluator,
                );
            }
            None
        }
    }
}

fn options(model: &Model, settings: &Settings) -> Options {
    Options {
        name: model.name().unraw().to_string(),
        n_gpus: settings.n_gpus,
        search: SearchRequest {
            strategy: settings.strategy,
            memory: settings.memory,
            cluster: settings.cluster.as_ref().map(|it| it.cluster.clone()),
            objective: settings.objective,
            effort: settings.effort,
            padding: settings.padding,
            max_work: settings.max_work,
            ..SearchRequest::default()
        },
        precision: settings.precision,
        optimizer: settings.optimizer.clone(),
    }
}

/// Adds the function's arguments to the graph.
fn add_inputs<'a>(function: &'a ItemFn, evaluator: &mut Evaluator<'a>) -> Vec<Input> {
    let mut inputs = Vec::new();
    for input in arguments(function) {
        let found = evaluator.input(input);
        let Pat::Ident(pattern) = &*input.pat else {
            let message = Diagnostic::new("an argument of a model must be a name")
                .help("take the value apart in the body");
            evaluator.diagnostics.report(&input.pat, &message);
            continue;
        };
        let name = pattern.ident.clone();
        evaluator.stand_at(&input);
        let value = found.map(|(dtype, shape)| {
            evaluator.builder.input(&name.unraw().to_string(), dtype, &shape)
        });
        let dtype = found.map_or(DType::F32, |(dtype, _)| dtype);
        inputs.push(Input { name, dtype, shape: found.map(|(_, shape)| shape), value });
    }
    inputs
}

/// The results of the model's function.
struct Outputs<'a> {
    /// None in inference.
    loss: Option<soybean_compiler::Value>,
    /// The tokens of the first result, which is the loss if there is one.
    first_at: &'a dyn ToTokens,
    others: Vec<(String, soybean_compiler::Value)>,
}

fn outputs<'a>(
    forward: &'a ItemFn,
    result: Value<'a>,
    mode: Mode,
    evaluator: &mut Evaluator<'a>,
) -> Option<Outputs<'a>> {
    let tail = tail(&forward.block.stmts);
    let at: &dyn ToTokens = tail.map_or(&forward.sig, |it| it as &dyn ToTokens);
    let (members, expressions): (Vec<_>, Vec<_>) = match (result, tail) {
        (Value::Tuple(members), Some(Expr::Tuple(tuple))) => {
            (members, tuple.elems.iter().map(Some).collect())
        }
        (Value::Tuple(members), _) => {
            let n_members = members.len();
            (members, vec![None; n_members])
        }
        (Value::Poison, _) => return None,
        (value, tail) => (vec![value], vec![tail]),
    };
    let mut tensors: Vec<(String, soybean_compiler::Value)> = Vec::new();
    for (index, (member, expression)) in members.iter().zip(&expressions).enumerate() {
        match member {
            Value::Tensor(value) => {
                tensors.push((output_name(*expression, index, &tensors), *value));
            }
            Value::Poison => return None,
            other => {
                let at = expression.map_or(at, |it| it as &dyn ToTokens);
                let headline = format!("a model returns tensors, found {}", other.kind());
                evaluator.diagnostics.report(at, &headline.into());
                return None;
            }
        }
    }
    if tensors.is_empty() {
        evaluator.diagnostics.report(at, &nothing_returned(mode));
        return None;
    }
    let loss = match mode {
        Mode::Training => Some(tensors.remove(0).1),
        Mode::Inference => None,
    };
    let first_at = expressions[0].map_or(at, |it| it as &dyn ToTokens);
    Some(Outputs { loss, first_at, others: tensors })
}

fn nothing_returned(mode: Mode) -> Diagnostic {
    match mode {
        Mode::Training => Diagnostic::new("a model returns its loss, found nothing")
            .help("let the function end with the loss: `logits.cross_entropy(y)`"),
        Mode::Inference => {
            Diagnostic::new("a model of `mode = \"inference\"` returns its outputs, found nothing")
                .help("let the function end with an output: `logits`, or `(logits, hidden)`")
        }
    }
}

/// Returns the name of an output: the variable's name if the result is one, else its number.
fn output_name<T>(expression: Option<&Expr>, index: usize, taken: &[(String, T)]) -> String {
    let name = match expression {
        Some(Expr::Path(path)) => whole_text(path),
        _ => format!("output.{index}"),
    };
    match name == "loss" && index > 0 || taken.iter().any(|(it, _)| *it == name) {
        true => format!("output.{index}"),
        false => name,
    }
}

/// Returns the expression that gives a block its value.
fn tail(statements: &[Stmt]) -> Option<&Expr> {
    match statements.last()? {
        Stmt::Expr(Expr::Return(it), _) => it.expr.as_deref(),
        Stmt::Expr(it, None) => Some(it),
        _ => None,
    }
}

/// Gives the parameters their full names, and reports names that occur twice.
fn name_parameters(evaluator: &mut Evaluator<'_>) {
    let mut names = std::collections::BTreeSet::new();
    for (name, parameter) in evaluator.naming.parameters() {
        if let Some(value) = parameter.value {
            evaluator.builder.rename_parameter(value, &name);
        }
        if !names.insert((evaluator.naming.entry(parameter), name.clone())) {
            let message = Diagnostic::new(format!("there is already a parameter named `{name}`"))
                .help("give each `param` of a function a name of its own");
            evaluator.diagnostics.report(parameter.name, &message);
        }
    }
}

/// Reports an error of the model as a whole at the tokens that it is about.
fn report(
    at: ModelPart,
    message: &Diagnostic,
    model: &Model,
    attribute: &Attribute,
    inputs: &[Vec<Input>],
    first_at: &dyn ToTokens,
    evaluator: &mut Evaluator<'_>,
) {
    let parameters: Vec<_> = evaluator.naming.parameters().map(|(_, it)| it).collect();
    let value_tokens = |value| {
        let parameter = parameters.iter().find(|it| it.value == Some(value));
        let input = inputs.iter().flatten().position(|it| it.value == Some(value));
        match (parameter, input) {
            (Some(parameter), _) => Some(parameter.at as &dyn ToTokens),
            (None, Some(index)) => model.inputs().nth(index).map(|it| it as &dyn ToTokens),
            (None, None) => None,
        }
    };
    let tokens = match at {
        ModelPart::Value(value) => value_tokens(value),
        ModelPart::Pin(value) => {
            let pin = evaluator.pins.iter().find(|(it, _)| *it == value);
            pin.map(|&(_, tokens)| tokens as &dyn ToTokens)
        }
        ModelPart::Loss => Some(first_at),
        ModelPart::Memory => Some(attribute.memory_tokens()),
        ModelPart::NoDecay(position) => attribute.no_decay_tokens(position),
        ModelPart::Group(position) => attribute.group_tokens(position),
        ModelPart::Freeze(position) => attribute.tokens_in("freeze", position),
        ModelPart::InputGradient(position) => attribute.tokens_in("input_gradients", position),
        ModelPart::Entry(position) => attribute.entry_tokens(position),
        ModelPart::Setting(name) => attribute.value(name).map(|it| it as &dyn ToTokens),
        ModelPart::Gpus => None,
    };
    evaluator.diagnostics.report(tokens.unwrap_or_else(|| attribute.gpus_tokens()), message);
}

/// Describes an error of the model as a whole.
fn message(diagnostic: ModelDiagnostic, environment: &Environment) -> Diagnostic {
    let mut message = Diagnostic::new(diagnostic.message);
    if let (ModelPart::Gpus | ModelPart::Memory, Some(gpus)) = (diagnostic.at, &environment.gpus) {
        message = message.note("note", format!("SOYBEAN_GPUS={gpus} overrides `gpus`"));
    }
    match diagnostic.help {
        Some(help) => message.help(help),
        None => message,
    }
}
