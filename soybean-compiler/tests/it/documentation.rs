//! Checks `docs/operators.md` and `docs/optimizers.md`, which are written from the lists of
//! operators and optimizers. `UPDATE_EXPECT=1` writes them anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use soybean_compiler::{
    Argument, Builder, Description, METHODS, Network, Optimizer, Sample, SampleArgument, Value,
    fuse, graph::Graph, operator_descriptions, operator_samples, signature::Dim, simplify,
    training_step,
};
use soybean_plan::{DType, Precision};

use crate::support::{call, samples::argument};

const HEAD: &str = "# Operators

Generated from the list of operators: `UPDATE_EXPECT=1 cargo test -p soybean-compiler --test it
documentation` rewrites this page.
What each operator takes and gives in full is told at the method or function of its name of `soybean::Tensor`; names, orders of arguments and meanings are PyTorch's
where PyTorch has the operator.

- *computed by*: the kernels of a sample call, fused, with their signatures in index notation. Each letter is a dim along which the kernel can be split over GPUs; one that
  the result lacks leaves partial results, which are added up or compared. `_` stays whole; `(i_)` can be split along its outermost part; `(_i)` has equal parts, each of which can be split.
- *ranges*: what the numbers of a call must be, with the extents of the sample; other numbers are compile errors.
- *splits*: the dims of operands and results that can be split where they enter and leave the operator.
- *gradient*: the kinds of kernels that compute it; the update of the parameters is one of the maps.
";

const OPTIMIZERS_HEAD: &str = "# Optimizers

`soybean-compiler/tests/it/documentation.rs` writes this page from the list of optimizers in
`soybean-compiler/src/optimizer/methods.rs`. To update it, run
`UPDATE_EXPECT=1 cargo test -p soybean-compiler --test it documentation`.

The attribute names one of them with its settings: `optimizer = adamw(weight_decay = 0.1)`.
[Training](training.md#updates) explains clipping, accumulation, averages and `no_decay`, which work
with each.
";

#[test]
fn the_list_of_operators_is_up_to_date() {
    // A sweep of the functions writes what follows (`tests/accuracy/functions.rs`).
    let path = format!("{}/../docs/operators.md", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(path).unwrap_or_default();
    let accuracy = page.find("\n## Accuracy\n").map_or("", |at| &page[at..]);
    check("docs/operators.md", &format!("{}{accuracy}", document()));
}

#[test]
fn the_list_of_optimizers_is_up_to_date() {
    check("docs/optimizers.md", &optimizers());
}

#[track_caller]
fn check(page: &str, text: &str) {
    let path = format!("{}/../{page}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "{page} is stale; UPDATE_EXPECT=1 rewrites it");
}

fn optimizers() -> String {
    let mut text = OPTIMIZERS_HEAD.to_owned();
    for method in METHODS {
        let name = method.name;
        let _ = write!(text, "\n## {name}\n\nUses {}.\n", method.summary);
        let _ = writeln!(text, "Source: {}.", method.source);
        if method.settings.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n| setting | meaning | values | default |");
        let _ = writeln!(text, "| --- | --- | --- | --- |");
        for setting in method.settings {
            let (name, meaning, values) = (setting.name, setting.summary, setting.expected());
            let _ = writeln!(text, "| `{name}` | {meaning} | {values} | `{}` |", setting.default);
        }
    }
    text
}

fn document() -> String {
    let mut text = HEAD.to_owned();
    let samples = operator_samples();
    let mut family = "";
    for operator in operator_descriptions() {
        if operator.family != family {
            family = operator.family;
            let module = operator.module;
            let _ = write!(text, "\n## {family}\n\n`soybean-compiler/src/surface/{module}.rs`\n");
        }
        let sample = samples.iter().find(|it| it.operator == operator.name);
        section(&mut text, &operator, sample);
    }
    text
}

fn section(text: &mut String, operator: &Description, sample: Option<&Sample>) {
    let Description { name, call, doc, .. } = operator;
    let _ = write!(text, "\n### {name}\n\n`{call}`: {doc}\n\n");
    let Some(sample) = sample else {
        let _ = writeln!(text, "- known when the model is built");
        return;
    };
    let given: Vec<String> = sample.arguments.iter().map(argument_text).collect();
    let _ = writeln!(text, "- sample: {}", given.join(", "));
    let ranges = ranges(sample);
    if !ranges.is_empty() {
        let _ = writeln!(text, "- ranges: {}", ranges.join("; "));
    }
    let model = Model::new(sample);
    let _ = writeln!(text, "- computed by: {}", listed(&model.kernels()));
    let _ = writeln!(text, "- splits: {}", model.splits());
    let _ = writeln!(text, "- gradient: {}", model.gradient());
}

/// Returns what a call's numbers must be, in the words of the faults of numbers out of range.
fn ranges(sample: &Sample) -> Vec<String> {
    let fault = |at: usize, odd: Argument| {
        let (mut builder, mut sources) = (Builder::new(), BTreeMap::new());
        let mut arguments: Vec<Argument> =
            sample.arguments.iter().map(|it| argument(&mut builder, &mut sources, it)).collect();
        arguments[at] = odd;
        builder.call(sample.operator, &arguments).err().map(|it| it.message)
    };
    let mut ranges = Vec::new();
    for (at, given) in sample.arguments.iter().enumerate() {
        let odd = match given {
            SampleArgument::Float(_) => Argument::Float(f64::NAN),
            SampleArgument::Integer(_) => Argument::Integer(-99),
            _ => continue,
        };
        // Dims have the range of all dims, and are no numbers.
        let range = fault(at, odd).filter(|it| it.contains(" must ") && !it.contains("a dim"));
        let Some(range) = range else { continue };
        let (_, range) = range.split_once(": ").expect("faults begin with the operator");
        let range = range.split_once(", found").map_or(range, |it| it.0);
        let range = range.replace(" must be a number", "").replace(" must be", "");
        if !ranges.contains(&range) {
            ranges.push(range);
        }
    }
    ranges
}

fn listed(items: &[String]) -> String {
    match items {
        [] => "nothing at run time".to_owned(),
        _ => items.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", "),
    }
}

fn argument_text(argument: &SampleArgument) -> String {
    match argument {
        SampleArgument::Tensor { shape, .. } => format!("f32 {shape:?}"),
        SampleArgument::Labels { shape, .. } => format!("i32 {shape:?}"),
        SampleArgument::Buffer { shape, .. } => format!("buffer f32 {shape:?}"),
        SampleArgument::Integer(it) => it.to_string(),
        SampleArgument::Float(it) => it.to_string(),
        SampleArgument::List(it) => format!("`{it:?}`"),
        SampleArgument::Boolean(it) => it.to_string(),
        SampleArgument::Text(it) => format!("`{it:?}`"),
        SampleArgument::Array(it) => {
            format!(
                "an array of {}",
                it.iter().map(argument_text).collect::<Vec<_>>().join(" and ")
            )
        }
        SampleArgument::Function(it) => format!("`{it:?}`"),
        SampleArgument::All => "`..`".to_owned(),
    }
}

/// A sample as a model that is trained on the sum of its results.
struct Model {
    /// The operator alone.
    forward: Graph,
    results: Vec<Value>,
    /// The same trained; none if no gradient flows.
    network: Option<Network>,
}

impl Model {
    fn new(sample: &Sample) -> Self {
        let mut builder = Builder::new();
        let mut sources = BTreeMap::new();
        let arguments: Vec<Argument> =
            sample.arguments.iter().map(|it| argument(&mut builder, &mut sources, it)).collect();
        let results = match builder.call(sample.operator, &arguments).unwrap() {
            Argument::Tensor(value) => vec![value],
            Argument::List(parts) => parts.iter().filter_map(tensor).collect(),
            other => unreachable!("{} gave {other:?}", sample.operator),
        };
        let forward = builder.graph().clone();
        let mut loss = None;
        for &result in &results {
            let shape = builder.shape(result).to_vec();
            let weights = Argument::Tensor(builder.input("weights", DType::F32, &shape));
            let result =
                Argument::Tensor(call(&mut builder, "to_f32", &[Argument::Tensor(result)]));
            let product = call(&mut builder, "mul", &[result, weights]);
            let sum = call(&mut builder, "sum", &[Argument::Tensor(product), Argument::All]);
            loss = Some(match loss {
                None => sum,
                Some(loss) => {
                    call(&mut builder, "add", &[Argument::Tensor(loss), Argument::Tensor(sum)])
                }
            });
        }
        let loss = loss.expect("an operator gives at least one tensor");
        let outputs: Vec<_> = results.iter().map(|&it| ("result".to_owned(), it)).collect();
        let network = training_step(builder, loss, &outputs, &Optimizer::default()).ok();
        Self { forward, results, network: network.map(|it| fuse(&simplify(&it), Precision::F32)) }
    }

    /// Returns the kernels that compute the results, each with its signature.
    fn kernels(&self) -> Vec<String> {
        let (graph, is_of_results) = match &self.network {
            Some(network) => (&network.graph, network.graph.ancestors(&network.fetched()[1..])),
            None => (&self.forward, self.forward.ancestors(&self.results)),
        };
        graph
            .values()
            .filter(|it| is_of_results[it.index()])
            .filter_map(|it| kernel(graph, it))
            .collect()
    }

    /// Returns the dims of operands and results that carry a factor in all operators that touch
    /// them.
    fn splits(&self) -> String {
        let graph = &self.forward;
        let mut text = Vec::new();
        let sources = graph.values().filter(|&it| graph.operator(it).is_none());
        for (position, source) in sources.enumerate() {
            let users: BTreeSet<Value> = graph.users(source).into_iter().collect();
            let carries =
                |dim: usize| users.iter().all(|&user| carries_in(graph, user, source, dim));
            text.push(format!("operand {position} {}", dims(graph, source, carries)));
        }
        let result = self.results[0];
        text.push(format!("result {}", dims(graph, result, |dim| carries_out(graph, result, dim))));
        text.join("; ")
    }

    fn gradient(&self) -> String {
        let Some(network) = self.network.as_ref().filter(|it| !it.updates.is_empty()) else {
            return "none".to_owned();
        };
        let is_forward = network.graph.ancestors(&network.fetched());
        let backward = network.graph.values().filter(|it| !is_forward[it.index()]);
        let kinds: BTreeSet<String> = backward.filter_map(|it| kind(&network.graph, it)).collect();
        listed(&kinds.into_iter().collect::<Vec<_>>())
    }
}

fn tensor(argument: &Argument) -> Option<Value> {
    match argument {
        Argument::Tensor(value) => Some(*value),
        _ => None,
    }
}

/// Returns an operator with its signature; `None` for sources and changes of shape.
fn kernel(graph: &Graph, value: Value) -> Option<String> {
    let operator = graph.operator(value)?;
    let shapes = graph.operand_shapes(value);
    operator.kernel(&shapes, &graph.shape(value))?;
    Some(format!("{operator} {}", operator.signature(&shapes)))
}

/// Returns the first word of an operator.
fn kind(graph: &Graph, value: Value) -> Option<String> {
    let kernel = kernel(graph, value)?;
    kernel.split(' ').next().map(str::to_owned)
}

/// Returns whether an operator carries a factor in a dim of an operand wherever it reads that. An
/// operator that only changes the shape does so if its own readers do.
fn carries_in(graph: &Graph, user: Value, source: Value, dim: usize) -> bool {
    let Some(operator) = graph.operator(user) else { return true };
    let signature = operator.signature(&graph.operand_shapes(user));
    let uses = graph.operands(user).into_iter().zip(&signature.operands);
    let carries = |(_, dims): (Value, &Vec<Dim>)| {
        let Some(factor) = dims[dim].factor else { return false };
        let shown = signature.result.iter().position(|it| it.factor == Some(factor));
        let readers = graph.users(user);
        !operator.is_alias()
            || shown.is_none_or(|dim| readers.iter().all(|&it| carries_in(graph, it, user, dim)))
    };
    uses.filter(|it| it.0 == source).all(carries)
}

/// Returns whether the operator that computes a tensor carries a factor in this dim of it, also
/// through changes of shape.
fn carries_out(graph: &Graph, value: Value, dim: usize) -> bool {
    let Some(operator) = graph.operator(value) else { return true };
    let signature = operator.signature(&graph.operand_shapes(value));
    let Some(factor) = signature.result[dim].factor else { return false };
    let operand = graph.operands(value).first().copied().filter(|_| operator.is_alias());
    let shown = operand
        .map(|it| (it, signature.operands[0].iter().position(|it| it.factor == Some(factor))));
    shown.is_none_or(|(operand, dim)| dim.is_none_or(|dim| carries_out(graph, operand, dim)))
}

fn dims(graph: &Graph, value: Value, carries: impl Fn(usize) -> bool) -> String {
    let rank = graph.shape(value).len();
    let split: Vec<String> = (0..rank).filter(|&it| carries(it)).map(|it| it.to_string()).collect();
    match split.len() {
        _ if rank == 0 => "is a scalar".to_owned(),
        0 => "in no dim".to_owned(),
        n if n == rank => "in all dims".to_owned(),
        _ => format!("in dims {}", split.join(" ")),
    }
}
