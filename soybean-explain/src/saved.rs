//! Saved plans: reads the output of `plan --format json`.

use std::collections::BTreeMap;

use serde_json::Value;
use soybean_plan::Mode;

/// The parts of a plan that are compared.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedPlan {
    /// The name of the model.
    pub model: String,
    /// The model's mode.
    pub mode: Mode,
    /// The number of ranks.
    pub n_gpus: u64,
    /// The name of the strategy.
    pub strategy: String,
    /// The name of the precision.
    pub precision: String,
    /// The bytes that a training step, or in inference a prediction, moves over all ranks.
    pub bytes_total: u64,
    /// The number of steps that share an update.
    pub accumulate: u64,
    /// The number of the model's functions that run by themselves.
    pub n_entries: usize,
    /// The memory that each rank needs, in bytes.
    pub peak_memory_bytes_per_gpu: u64,
    /// The operations of all ranks over those of one device.
    pub work: f64,
    /// The tensors by their numbers.
    pub tensors: BTreeMap<u64, SavedTensor>,
    /// The operators in order.
    pub operators: Vec<SavedOperator>,
}

/// A tensor of a saved plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedTensor {
    /// Its name.
    pub name: String,
    /// `input`, `param`, ..
    pub kind: String,
    /// Type and shape, without padding: `f32[64, 10]`.
    pub shape: String,
    /// The padded shape: `[64, 16]`; empty without padding.
    pub padded: String,
    /// Its tiling: `[P0 r]`.
    pub tiling: String,
}

/// An operator of a saved plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedOperator {
    /// The number of the tensor that it computes.
    pub output: u64,
    /// The user's operator, or the kind of this one if that is unknown.
    pub operator: String,
    /// The pass to which it belongs.
    pub pass: String,
    /// The path of its layer.
    pub layer: String,
    /// The file and line of the user's operator.
    pub source: String,
    /// Its signature with its partitioning: `ik,jk->ij by [i j j]`.
    pub form: String,
    /// The changes of tiling that it needs.
    pub conversions: Vec<SavedConversion>,
}

/// A change of tiling of a saved plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SavedConversion {
    /// The number of the tensor.
    pub tensor: u64,
    /// Its tiling before.
    pub from: String,
    /// Its tiling after.
    pub to: String,
    /// The bytes that it moves, over all ranks.
    pub bytes: u64,
}

/// Returns the number of steps that share an update. Plans in which every step updates do not tell.
fn accumulate(plan: &Value) -> u64 {
    plan.get("accumulation").and_then(|it| it.get("steps")).and_then(Value::as_u64).unwrap_or(1)
}

impl SavedOperator {
    /// Returns the operator with its layer: `dense.0.matmul`.
    #[must_use]
    pub fn path(&self) -> String {
        let dot = if self.layer.is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.layer, self.operator)
    }
}

impl SavedTensor {
    /// Returns the tiling, with the padded shape if there is padding: `[P0 r] of [64, 16]`.
    pub(crate) fn placed(&self) -> String {
        match &self.padded[..] {
            "" => self.tiling.clone(),
            padded => format!("{} of {padded}", self.tiling),
        }
    }

    /// Returns whether it has no name of the user, but its number, `v12`.
    pub(crate) fn is_unnamed(&self) -> bool {
        let number = self.name.strip_prefix('v');
        number.is_some_and(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit()))
    }
}

impl SavedPlan {
    /// Returns the name of a tensor, or of the operator that computes it if the user gave no name.
    ///
    /// # Panics
    /// If there is no such tensor.
    #[must_use]
    pub fn label(&self, tensor: u64) -> String {
        let it = &self.tensors[&tensor];
        let operator = self.operators.iter().find(|it| it.output == tensor);
        match operator.filter(|_| it.is_unnamed()) {
            Some(operator) if operator.pass == "forward" => operator.path(),
            Some(operator) => format!("{} gradient", operator.path()),
            None => it.name.clone(),
        }
    }

    /// Reads the output of `plan --format json`.
    ///
    /// # Errors
    /// If the text is not JSON, or not a plan. The error names the missing part.
    pub fn read(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|it| format!("not JSON: {it}"))?;
        let plan = Part { value: &value, path: String::new() };
        let tensors = plan.list("tensors")?.into_iter().map(|it| {
            let (dtype, stored) = (it.text("dtype")?, it.words("shape", ", ")?);
            let (shape, padded) = match it.value.get("unpadded") {
                Some(_) => (it.words("unpadded", ", ")?, stored),
                None => (stored, String::new()),
            };
            let tensor = SavedTensor {
                name: it.text("name")?,
                kind: it.text("kind")?,
                shape: format!("{dtype}{shape}"),
                padded,
                tiling: it.words("tiling", " ")?,
            };
            Ok((it.number("id")?, tensor))
        });
        let tensors = tensors.collect::<Result<_, String>>()?;
        let operators = plan.list("ops")?.iter().map(operator).collect::<Result<_, String>>()?;
        let saved = Self {
            model: plan.text("model")?,
            mode: plan.text("mode")?.parse().map_err(|it| format!("not a plan: {it} at `mode`"))?,
            n_gpus: plan.number("gpus")?,
            strategy: plan.text("strategy")?,
            precision: plan.text("precision")?,
            bytes_total: plan.number("bytes_total")?,
            accumulate: accumulate(&value),
            n_entries: value["entries"].as_array().map_or(1, Vec::len),
            peak_memory_bytes_per_gpu: plan.number("peak_memory_bytes_per_gpu")?,
            work: plan.float("work")?,
            tensors,
            operators,
        };
        saved.check()
    }

    /// Checks that all tensors to which operators refer exist.
    fn check(self) -> Result<Self, String> {
        let of_operator = |it: &SavedOperator| {
            let converted = it.conversions.iter().map(|it| it.tensor);
            converted.chain([it.output]).collect::<Vec<_>>()
        };
        let mut used = self.operators.iter().flat_map(of_operator);
        match used.find(|it| !self.tensors.contains_key(it)) {
            Some(missing) => Err(format!("not a whole plan: there is no tensor {missing}")),
            None => Ok(self),
        }
    }
}

fn operator(it: &Part<'_>) -> Result<SavedOperator, String> {
    let conversions = it.list("conversions")?.into_iter().map(|it| {
        Ok(SavedConversion {
            tensor: it.number("tensor")?,
            from: it.words("from", " ")?,
            to: it.words("to", " ")?,
            bytes: it.number("bytes")?,
        })
    });
    let (name, call) = (it.text("name")?, it.text("call")?);
    let kind = name.split(' ').next().unwrap_or_default().to_owned();
    Ok(SavedOperator {
        output: it.number("output")?,
        operator: if call.is_empty() { kind } else { call },
        pass: it.text("pass")?,
        layer: it.text("layer")?,
        source: it.text("source")?,
        form: format!("{} by {}", it.text("signature")?, it.words("form", " ")?),
        conversions: conversions.collect::<Result<_, String>>()?,
    })
}

/// A part of a plan, whose accessors report missing parts.
struct Part<'a> {
    value: &'a Value,
    path: String,
}

impl<'a> Part<'a> {
    fn member(&self, name: &str, what: &str) -> Result<&'a Value, String> {
        let missing = || format!("not a plan: expected {what} at `{}{name}`", self.path);
        self.value.get(name).ok_or_else(missing)
    }

    fn text(&self, name: &str) -> Result<String, String> {
        let value = self.member(name, "a string")?;
        let wrong = || format!("not a plan: expected a string at `{}{name}`", self.path);
        value.as_str().map(str::to_owned).ok_or_else(wrong)
    }

    fn number(&self, name: &str) -> Result<u64, String> {
        let value = self.member(name, "a number")?;
        value.as_u64().ok_or_else(|| {
            format!("not a plan: expected a whole number from 0 at `{}{name}`", self.path)
        })
    }

    fn float(&self, name: &str) -> Result<f64, String> {
        let value = self.member(name, "a number")?;
        value
            .as_f64()
            .ok_or_else(|| format!("not a plan: expected a number at `{}{name}`", self.path))
    }

    fn list(&self, name: &str) -> Result<Vec<Self>, String> {
        let value = self.member(name, "a list")?;
        let wrong = || format!("not a plan: expected a list at `{}{name}`", self.path);
        let members = value.as_array().ok_or_else(wrong)?.iter().enumerate();
        let part = |(at, value)| Part { value, path: format!("{}{name}[{at}].", self.path) };
        Ok(members.map(part).collect())
    }

    /// Reads a list of words or numbers as one text: `[P0 r]`.
    fn words(&self, name: &str, separator: &str) -> Result<String, String> {
        let word = |it: Part<'_>| match it.value {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            other => Err(format!("not a plan: unexpected {other} in `{}{name}`", self.path)),
        };
        let words = self.list(name)?.into_iter().map(word).collect::<Result<Vec<_>, _>>()?;
        Ok(format!("[{}]", words.join(separator)))
    }
}
