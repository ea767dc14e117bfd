//! Recipes: models as text, by which a program compiles its own model again with other options.
//!
//! A recipe lists the builder's calls, one line each, with the options of the compilation. Its
//! calls make the same graph, and with the same options the same program.
//!
//! ```text
//! soybean recipe 1
//! model "digits"
//! gpus 8
//! at "src/main.rs:12" "dense.0"
//! v2 = parameter "dense.0.w" [128, 64] "normal" [0.0, 0.17]
//! v3 = call "matmul" [v0, v2]
//! loss v9
//! ```

mod read;
mod wishes;

use std::fmt;

use soybean_plan::{Init, Mode, Pattern};

use crate::{
    builder::{Argument, Builder, Made, Site},
    compile::{Compiled, compile_observed},
    diagnostic::ModelDiagnostic,
    entry::EntryStart,
    graph::Source,
    model::Model,
    optimizer::Group,
    options::Options,
    pass::Observer,
    value::Value,
};

pub use read::RecipeError;

/// All that a compilation takes: a model, and what is asked.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The model.
    pub builder: Builder,
    /// The scalar that is minimized; none in inference, and in a model whose entries have losses.
    pub loss: Option<Value>,
    /// The model's further outputs, by name.
    pub outputs: Vec<(String, Value)>,
    /// The options of the compilation.
    pub options: Options,
}

/// The first line of every recipe.
const HEADING: &str = "soybean recipe 1";

impl Recipe {
    /// Compiles the model. `now` gives the time in milliseconds, from any origin.
    ///
    /// # Errors
    /// As [`compile`](crate::compile).
    pub fn compile(&self, now: &dyn Fn() -> f64) -> Result<Compiled, Vec<ModelDiagnostic>> {
        self.compile_observed(now, &mut |_, _| {})
    }

    /// Returns whether the training steps of an entry, by its number, change the parameters of this
    /// name that it uses.
    #[must_use]
    pub fn trains(&self, entry: usize, name: &str) -> bool {
        let freezes =
            |it: &EntryStart| it.freeze.iter().any(|pattern| Pattern::new(pattern).is_match(name));
        self.options.optimizer.trains(name) && !self.builder.entries.get(entry).is_some_and(freezes)
    }

    /// Compiles the model, and shows the result of each pass to an observer. `now` returns the time
    /// in milliseconds, from any origin.
    ///
    /// # Errors
    /// As [`compile`](crate::compile).
    pub fn compile_observed(
        &self,
        now: &dyn Fn() -> f64,
        observer: Observer<'_>,
    ) -> Result<Compiled, Vec<ModelDiagnostic>> {
        let (builder, outputs) = (self.builder.clone(), &self.outputs[..]);
        compile_observed(Model { builder, loss: self.loss, outputs }, &self.options, now, observer)
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADING}")?;
        options(&self.options, self.builder.mode(), f)?;
        let mut here = Site::default();
        let calls = self.builder.calls.iter().zip(self.builder.sites()).enumerate();
        for (number, (made, site)) in calls {
            for EntryStart { name, n_calls, freeze, .. } in
                self.builder.entries.iter().filter(|it| it.first_call == number)
            {
                write!(f, "entry {name:?} {n_calls}")?;
                freeze.iter().try_for_each(|it| write!(f, " {it:?}"))?;
                writeln!(f)?;
            }
            if (&site.place, &site.layer) != (&here.place, &here.layer) {
                writeln!(f, "at {:?} {:?}", site.place, site.layer)?;
                here = site;
            }
            self.call(made, f)?;
        }
        for (name, value) in &self.builder.names {
            writeln!(f, "name {name:?} {value}")?;
        }
        for (name, value) in &self.outputs {
            writeln!(f, "output {name:?} {value}")?;
        }
        let of_entries = self.builder.entries.iter().filter_map(|it| it.loss);
        let mut losses = self.loss.into_iter().chain(of_entries);
        losses.try_for_each(|loss| writeln!(f, "loss {loss}"))
    }
}

impl Recipe {
    fn call(&self, made: &Made, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let result = Text(&made.result);
        if let Some((operator, arguments)) = &made.operator {
            return writeln!(f, "{result} = call {operator:?} {}", List(arguments));
        }
        let Argument::Tensor(value) = made.result else { return Ok(()) };
        let node = self.builder.graph.node(value);
        let (name, dtype, shape) = (&node.name, node.dtype.name(), node.shape);
        match &node.source {
            Source::Parameter(init) => {
                writeln!(f, "{result} = parameter {name:?} {shape} {}", InitText(init))
            }
            Source::Buffer(init) => {
                writeln!(f, "{result} = buffer {name:?} {shape} {}", InitText(init))
            }
            Source::Input { .. } => writeln!(f, "{result} = input {name:?} {dtype:?} {shape}"),
            Source::State => writeln!(f, "{result} = state {name:?} {shape}"),
            // No call gives these without an operator.
            Source::Operator(_) => Ok(()),
        }
    }
}

fn options(options: &Options, mode: Mode, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Options { name, n_gpus, search, precision, optimizer } = options;
    writeln!(f, "model {name:?}")?;
    if mode == Mode::Inference {
        writeln!(f, "mode {:?}", mode.name())?;
    }
    writeln!(f, "gpus {n_gpus}")?;
    writeln!(f, "strategy {:?}\nprecision {:?}", search.strategy.name(), precision.name())?;
    wishes::write(search, f)?;
    if mode == Mode::Inference {
        return Ok(());
    }
    let (name, settings) = optimizer.settings();
    write!(f, "optimizer {name:?}")?;
    rule_settings(&settings, f)?;
    for Group { pattern, rule, learning_rate_factor } in &optimizer.groups {
        write!(f, "group {pattern:?} {learning_rate_factor:?} {:?}", rule.method().name)?;
        rule_settings(&rule.settings(), f)?;
    }
    let further = optimizer.further_settings();
    further.iter().try_for_each(|(setting, value)| writeln!(f, "{setting} {}", Text(value)))
}

/// Writes the settings of a rule, and ends its line.
fn rule_settings(settings: &[(&str, Argument)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (setting, value) in settings {
        write!(f, " {setting:?} {}", Text(value))?;
    }
    writeln!(f)
}

/// A value as the reader takes it.
struct Text<'a>(&'a Argument);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Argument::Tensor(it) => write!(f, "{it}"),
            Argument::Integer(it) => write!(f, "{it}"),
            // The debug form of a number has a point, an exponent or a word, and parses back to the
            // same number.
            Argument::Float(it) => write!(f, "{it:?}"),
            Argument::Boolean(it) => write!(f, "{it}"),
            Argument::Text(it) => write!(f, "{it:?}"),
            Argument::List(it) => write!(f, "{}", List(it)),
            Argument::All => f.write_str(".."),
        }
    }
}

struct List<'a>(&'a [Argument]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members: Vec<String> = self.0.iter().map(|it| Text(it).to_string()).collect();
        write!(f, "[{}]", members.join(", "))
    }
}

struct InitText<'a>(&'a Init);

impl fmt::Display for InitText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Init::Constant(value) => write!(f, "\"constant\" [{value:?}]"),
            Init::Normal { mean, std } => write!(f, "\"normal\" [{mean:?}, {std:?}]"),
            Init::TruncatedNormal { mean, std } => {
                write!(f, "\"truncated-normal\" [{mean:?}, {std:?}]")
            }
            Init::Uniform { low, high } => write!(f, "\"uniform\" [{low:?}, {high:?}]"),
        }
    }
}
