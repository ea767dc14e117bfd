//! The kinds of mistakes.

/// A model with a mistake.
pub(super) struct Mistake {
    pub(super) text: String,
    /// The line of the mistake, if the error must be there.
    pub(super) line: Option<usize>,
}

/// Kinds that rustc reports together. An error that rustc finds early could hide others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// The macro reports them.
    Model,
    /// rustc does not find a name.
    Names,
    /// rustc cannot parse the model.
    Syntax,
}

impl Group {
    pub(super) const ALL: [Self; 3] = [Self::Model, Self::Names, Self::Syntax];
}

pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) group: Group,
    pub(super) make: fn(&str) -> Option<Mistake>,
}

const fn kind(name: &'static str, group: Group, make: fn(&str) -> Option<Mistake>) -> Kind {
    Kind { name, group, make }
}

pub(super) const KINDS: &[Kind] = &[
    kind("operator", Group::Model, |it| {
        let names = [".cross_entropy(", ".relu(", ".mean(", ".softmax(", ".matmul(", ".sum("];
        let name = names.iter().find(|name| it.contains(**name))?;
        replaced(it, name, &name.replace('(', "q("))
    }),
    kind("variable", Group::Model, |it| inserted(it, "let _ = ARGUMENTq * 2.0;")),
    kind("shape", Group::Model, |it| inserted(it, "let _ = ARGUMENT.reshape([7, 1009]);")),
    kind("product", Group::Model, |it| {
        inserted(
            it,
            "let _ = param(\"wq\", [2, 3], zeros()).matmul(param(\"vq\", [2, 3], zeros()));",
        )
    }),
    kind("dtype", Group::Model, |it| replaced(it, "Tensor<f32", "Tensor<f64")),
    kind("argument", Group::Model, |it| inserted(it, "let _ = ARGUMENT.softmax();")),
    kind("surplus argument", Group::Model, |it| inserted(it, "let _ = ARGUMENT.relu(1, 2);")),
    kind("argument of the attribute", Group::Model, |it| {
        replaced(it, "model(", "model(lr = 0.1, ")
    }),
    kind("condition", Group::Model, |it| inserted(it, "if ARGUMENT { return ARGUMENT; }")),
    kind("loop", Group::Model, |it| inserted(it, "while true {}")),
    kind("bound", Group::Model, |it| inserted(it, "for _ in 0..2.5 {}")),
    kind("function", Group::Model, |it| inserted(it, "let _ = densq(ARGUMENT, 8);")),
    kind("name of an argument", Group::Model, |it| inserted(it, "let _ = ARGUMENT.sum(dim = 1);")),
    kind("macro", Group::Model, |it| inserted(it, "println!(\"{ARGUMENT:?}\");")),
    kind("assertion", Group::Model, |it| {
        inserted(it, "assert!(1 + 1 == 3, \"{}\", ARGUMENT.dim(0));")
    }),
    kind("heads", Group::Model, |it| replaced_number(it, "n_heads: ", "1009")),
    kind("init", Group::Model, |it| replaced(it, "zeros()", "zeroes()")),
    kind("argument of a layer", Group::Model, |it| {
        nn(it)?;
        inserted(it, "let _ = nn::linear(ARGUMENT, 8.5);")
    }),
    kind("arguments of a layer", Group::Model, |it| {
        nn(it)?;
        inserted(it, "let _ = nn::linear(ARGUMENT);")
    }),
    kind("private forward", Group::Model, |it| {
        let public = ["pub fn forward", "pub(crate) fn forward"];
        let public = public.iter().find(|public| it.contains(**public))?;
        replaced(it, public, "fn forward")
    }),
    kind("const", Group::Model, |it| {
        nn(it)?;
        inserted(it, "let _ = nn::linear(ARGUMENT, WIDTHQ);")
    }),
    kind("prelude", Group::Model, |it| {
        let line = it
            .contains("mod ")
            .then(|| it.lines())?
            .find(|it| it.trim() == "use soybean::prelude::*;")?;
        Some(Mistake { text: it.replace(line, ""), line: None })
    }),
    kind("variable with the name of a macro", Group::Model, |it| {
        inserted(it, "let cfg = ARGUMENT.reluq();")
    }),
    kind("const of the attribute", Group::Model, |it| {
        let import = "prelude::*};\nuse std::f64::consts::PI as RATE;";
        let text = it.replacen("prelude::*};", import, 1);
        let is_other = text == it || it.contains("\"inference\"") || it.contains("clip_norm");
        let text = text.replacen("model(", "model(clip_norm = RATE, ", 1);
        (!is_other).then_some(Mistake { text, line: None })
    }),
    kind("import", Group::Names, |it| {
        it.contains("use soybean::{nn, prelude::*};").then(|| Mistake {
            text: it.replace("use soybean::{nn, prelude::*};", "use soybean::prelude::*;"),
            line: None,
        })
    }),
    kind("misspelt import", Group::Names, |it| {
        replaced(it, "use soybean::{nn,", "use soybean::{nm as nn,")
    }),
    kind("layer", Group::Names, |it| replaced(it, "nn::linear(", "nn::liner(")),
    kind("value of a const", Group::Names, |it| {
        let line = it
            .lines()
            .find(|it| it.trim_start().starts_with("const ") && it.contains("usize = "))?;
        replaced(it, line, &line.replace(';', " + UNKNOWNQ;"))
    }),
    kind("path", Group::Names, |it| inserted(it, "let _ = nm::linear(ARGUMENT, 8);")),
    kind("semicolon", Group::Syntax, |it| {
        let at = it.find("let ")?;
        let end = at + it[at..].find(";\n")?;
        Some(Mistake { text: format!("{}{}", &it[..end], &it[end + 1..]), line: None })
    }),
    kind("operand", Group::Syntax, |it| inserted(it, "let _ = ARGUMENT + ;")),
    kind("keyword", Group::Syntax, |it| inserted(it, "lett z = ARGUMENT;")),
];

/// Returns the model with other text in one place.
fn replaced(model: &str, from: &str, to: &str) -> Option<Mistake> {
    let at = model.find(from)?;
    let text = format!("{}{to}{}", &model[..at], &model[at + from.len()..]);
    Some(Mistake { text, line: Some(model[..at].matches('\n').count()) })
}

/// Replaces the number after `from`.
fn replaced_number(model: &str, from: &str, to: &str) -> Option<Mistake> {
    let start = model.find(from)? + from.len();
    let n_digits = model[start..].find(|it: char| !it.is_ascii_digit())?;
    let text = format!("{}{to}{}", &model[..start], &model[start + n_digits..]);
    (n_digits > 0).then_some(Mistake { text, line: None })
}

/// Returns the model with a statement at the start of `forward`. `ARGUMENT` is its first argument.
fn inserted(model: &str, statement: &str) -> Option<Mistake> {
    let function = model.find("fn forward(").or_else(|| model.find("fn "))?;
    let start = function + model[function..].find('(')? + 1;
    let argument = model[start..].trim_start().split(':').next()?.trim_start_matches("mut ");
    let body = start + model[start..].find("{\n")? + 2;
    let statement = statement.replace("ARGUMENT", argument);
    let text = format!("{}        {statement}\n{}", &model[..body], &model[body..]);
    Some(Mistake { text, line: Some(model[..body].lines().count()) })
}

/// Returns whether the model calls layers of `nn`.
fn nn(model: &str) -> Option<()> {
    model.contains("nn::").then_some(())
}
