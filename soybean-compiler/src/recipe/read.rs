//! The reader of recipes: each line is a call, which is made when it is read.

pub(super) mod datum;

use std::{collections::BTreeMap, fmt, str::FromStr};

use soybean_plan::{DType, Init, MAX_RANK, Mode, Precision};

use super::{HEADING, Recipe, wishes};
use crate::{
    builder::{Argument, Builder},
    optimizer::{self, Group, Optimizer},
    options::Options,
    size_limits::check_extents,
    tiling::SearchRequest,
    value::Value,
};
use datum::{Datum, Line};

/// An error in the text of a recipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipeError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The expected and the found text.
    pub message: String,
}

impl fmt::Display for RecipeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the recipe: {}", self.line, self.message)
    }
}

impl std::error::Error for RecipeError {}

impl FromStr for Recipe {
    type Err = RecipeError;

    fn from_str(text: &str) -> Result<Self, RecipeError> {
        let at = |line: usize| move |message: String| RecipeError { line: line + 1, message };
        let mut lines = text.lines().enumerate();
        if lines.next().is_none_or(|(_, heading)| heading != HEADING) {
            return Err(at(0)(format!("expected `{HEADING}`")));
        }
        // Calls before the first position belong to the model itself.
        let mut reader = Reader { layers: vec![String::new()], ..Reader::default() };
        let mut n_lines = 1;
        for (number, line) in lines {
            Line::parse(line).and_then(|it| reader.line(&it)).map_err(at(number))?;
            n_lines = number + 1;
        }
        reader.finish().map_err(at(n_lines))
    }
}

/// A recipe as far as it has been read.
#[derive(Default)]
struct Reader {
    builder: Builder,
    /// The tensors by their numbers in the recipe.
    tensors: BTreeMap<usize, Value>,
    /// The layers' paths, in the order in which they are met.
    layers: Vec<String>,
    name: Option<String>,
    n_gpus: Option<usize>,
    search: SearchRequest,
    precision: Precision,
    optimizer: Optimizer,
    outputs: Vec<(String, Value)>,
    loss: Option<Value>,
}

impl Reader {
    fn line(&mut self, line: &Line) -> Result<(), String> {
        match &line.result {
            Some(result) => {
                let made = self.made(&line.word, &line.data)?;
                self.bind(result, &made)
            }
            None => self.said(&line.word, &line.data),
        }
    }

    /// Reads a line whose call makes a tensor.
    fn made(&mut self, word: &str, data: &[Datum]) -> Result<Argument, String> {
        let value = match (word, data) {
            ("call", [Datum::Text(operator), Datum::List(given)]) => {
                let arguments = self.arguments(given)?;
                return self.builder.call(operator, &arguments).map_err(|fault| fault.message);
            }
            ("input", [Datum::Text(name), Datum::Text(dtype), shape]) => {
                let known = [DType::F32, DType::I32, DType::Bf16];
                let dtype = known.into_iter().find(|it| it.name() == dtype);
                let dtype = dtype.ok_or("no such type of elements")?;
                self.builder.input(name, dtype, &self::shape(shape)?)
            }
            ("parameter", [Datum::Text(name), shape, Datum::Text(kind), numbers]) => {
                self.builder.parameter(name, &self::shape(shape)?, init(kind, numbers)?)
            }
            ("buffer", [Datum::Text(name), shape, Datum::Text(kind), numbers]) => {
                self.builder.buffer(name, &self::shape(shape)?, init(kind, numbers)?)
            }
            ("state", [Datum::Text(name), shape]) if self.builder.mode() == Mode::Inference => {
                self.builder.state(name, &self::shape(shape)?)
            }
            _ => return Err(format!("`{word}` with such operands makes nothing")),
        };
        Ok(Argument::Tensor(value))
    }

    /// Reads a line that sets an option or a name.
    fn said(&mut self, word: &str, data: &[Datum]) -> Result<(), String> {
        match (word, data) {
            ("model", [Datum::Text(name)]) => self.name = Some(name.clone()),
            ("mode", [Datum::Text(name)]) => self.begin(name.parse()?)?,
            ("gpus", [number]) => self.n_gpus = Some(number.count()?),
            ("strategy", [Datum::Text(name)]) => self.search.strategy = name.parse()?,
            ("precision", [Datum::Text(name)]) => self.precision = name.parse()?,
            ("optimizer", [Datum::Text(name), settings @ ..]) => {
                self.optimizer = self.optimizer(name, settings)?;
            }
            ("group", [Datum::Text(pattern), factor, Datum::Text(name), settings @ ..]) => {
                let rule = self.optimizer(name, settings)?.rule;
                let group = Group::new(pattern.clone(), rule, factor.number()?);
                self.optimizer.groups.push(group.map_err(|fault| fault.message)?);
            }
            (setting, [value]) if Optimizer::SETTINGS.contains(&setting) => {
                let value = self.argument(value)?;
                self.optimizer.set(setting, &value).map_err(|fault| fault.message)?;
            }
            ("entry", [Datum::Text(name), n_calls, freeze @ ..]) => {
                self.builder.begin_entry(name, n_calls.count()? as u64);
                let pattern = |it: &Datum| match it {
                    Datum::Text(pattern) => Ok(pattern.clone()),
                    _ => Err("an entry has patterns of frozen parameters"),
                };
                let freeze = freeze.iter().map(pattern).collect::<Result<_, _>>()?;
                let entry = self.builder.entries.last_mut();
                entry.expect("it was just begun").freeze = freeze;
            }
            ("at", [Datum::Text(place), Datum::Text(layer)]) => self.stand_at(place, layer),
            ("name", [Datum::Text(name), Datum::Tensor(number)]) => {
                let value = self.tensor(*number)?;
                self.builder.name_tensor(name, value);
            }
            ("output", [Datum::Text(name), Datum::Tensor(number)]) => {
                let value = self.tensor(*number)?;
                self.outputs.push((name.clone(), value));
            }
            ("loss", [Datum::Tensor(number)]) => {
                let loss = self.tensor(*number)?;
                let entry = self.builder.entries.iter_mut().find(|it| it.loss.is_none());
                match entry {
                    Some(entry) => entry.loss = Some(loss),
                    None => self.loss = Some(loss),
                }
            }
            _ if wishes::read(&mut self.search, word, data)? => {}
            _ => return Err(format!("`{word}` with such operands says nothing")),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Recipe, String> {
        self.builder.name_layers(self.layers);
        let options = Options {
            name: self.name.ok_or("the model has no name")?,
            n_gpus: self.n_gpus.ok_or("the number of GPUs is missing")?,
            search: self.search,
            precision: self.precision,
            optimizer: self.optimizer,
        };
        let has_loss = match &self.builder.entries[..] {
            [] => self.loss.is_some(),
            entries => entries.iter().all(|it| it.loss.is_some()),
        };
        if self.builder.mode() == Mode::Training && !has_loss {
            return Err("the loss is missing".to_owned());
        }
        Ok(Recipe { builder: self.builder, loss: self.loss, outputs: self.outputs, options })
    }

    /// Says what the model is compiled for, on which depends what its calls make.
    fn begin(&mut self, mode: Mode) -> Result<(), String> {
        if !self.tensors.is_empty() {
            return Err("expected `mode` above all calls".to_owned());
        }
        self.builder = Builder::in_mode(mode);
        Ok(())
    }

    fn stand_at(&mut self, place: &str, layer: &str) {
        let known = self.layers.iter().position(|it| it == layer);
        let number = known.unwrap_or_else(|| {
            self.layers.push(layer.to_owned());
            self.layers.len() - 1
        });
        self.builder.stand_at(place, number);
    }

    /// Reads the optimizer of a line; its further settings follow on lines of their own.
    fn optimizer(&self, name: &str, settings: &[Datum]) -> Result<Optimizer, String> {
        let setting = |pair: &[Datum]| match pair {
            [Datum::Text(name), value] => Ok((name.clone(), self.argument(value)?)),
            _ => Err("an optimizer's settings are names with values".to_owned()),
        };
        let settings = settings.chunks(2).map(setting).collect::<Result<Vec<_>, _>>()?;
        optimizer::optimizer(name, &settings).map_err(|fault| fault.message)
    }

    fn tensor(&self, number: usize) -> Result<Value, String> {
        self.tensors.get(&number).copied().ok_or_else(|| format!("v{number} is not made above"))
    }

    fn argument(&self, datum: &Datum) -> Result<Argument, String> {
        Ok(match datum {
            Datum::Tensor(number) => Argument::Tensor(self.tensor(*number)?),
            Datum::Integer(it) => Argument::Integer(*it),
            Datum::Float(it) => Argument::Float(*it),
            Datum::Boolean(it) => Argument::Boolean(*it),
            Datum::Text(it) => Argument::Text(it.clone()),
            Datum::List(it) => Argument::List(self.arguments(it)?),
            Datum::All => Argument::All,
        })
    }

    fn arguments(&self, data: &[Datum]) -> Result<Vec<Argument>, String> {
        data.iter().map(|it| self.argument(it)).collect()
    }

    /// Gives the tensors that a call made their numbers.
    fn bind(&mut self, result: &Datum, made: &Argument) -> Result<(), String> {
        match (result, made) {
            (Datum::Tensor(number), Argument::Tensor(value)) => {
                self.tensors.insert(*number, *value);
                Ok(())
            }
            (Datum::List(results), Argument::List(members)) if results.len() == members.len() => {
                results.iter().zip(members).try_for_each(|(result, it)| self.bind(result, it))
            }
            // Numbers are there for people: whoever uses them has them as arguments.
            (Datum::Integer(_), Argument::Integer(_)) => Ok(()),
            (_, made) => Err(format!("the call gives {}", made.kind())),
        }
    }
}

fn shape(datum: &Datum) -> Result<Vec<usize>, String> {
    let extents = datum.list()?.iter().map(Datum::count).collect::<Result<Vec<_>, _>>()?;
    match extents.len() <= MAX_RANK && !extents.contains(&0) {
        true => check_extents(&extents).map(|()| extents),
        false => Err(format!("a shape has at most {MAX_RANK} dims, none of them empty")),
    }
}

fn init(kind: &str, numbers: &Datum) -> Result<Init, String> {
    let numbers = numbers.list()?.iter().map(Datum::number).collect::<Result<Vec<_>, _>>()?;
    Ok(match (kind, &numbers[..]) {
        ("constant", &[value]) => Init::Constant(value),
        ("normal", &[mean, std]) => Init::Normal { mean, std },
        ("truncated-normal", &[mean, std]) => Init::TruncatedNormal { mean, std },
        ("uniform", &[low, high]) => Init::Uniform { low, high },
        _ => return Err(format!("there is no init `{kind}` of {} numbers", numbers.len())),
    })
}
