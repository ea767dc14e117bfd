//! Every operator that takes a dim also takes it counted from the end: the same operators follow.

use std::collections::{BTreeMap, BTreeSet};

use soybean_compiler::{
    Argument, Builder, Sample, SampleArgument, operator_descriptions, operator_samples,
};

use crate::support::samples::argument;

/// Operators whose result has one dim more, which is the one that they take.
const OF_NEW_DIMS: [&str; 2] = ["stack", "unsqueeze"];

/// Returns the position of the argument that is a dim or several, among all arguments.
fn position_of_dim(operator: &str) -> Option<usize> {
    let description = operator_descriptions().into_iter().find(|it| it.name == operator)?;
    let (before, arguments) = description.call.split_once('(')?;
    let names = arguments.trim_end_matches(')').split(", ");
    let at = names.clone().position(|it| it == "dim" || it == "dims")?;
    Some(at + usize::from(before.contains('.')))
}

/// Returns the rank of the first tensor of a sample.
fn rank(sample: &Sample) -> Option<i64> {
    let mut first = sample.arguments.first()?;
    if let SampleArgument::Array(items) = first {
        first = items.first()?;
    }
    match first {
        SampleArgument::Tensor { shape, .. } | SampleArgument::Labels { shape, .. } => {
            i64::try_from(shape.len()).ok()
        }
        _ => None,
    }
}

/// Returns the operators of a call with the dim as `change` makes it, in text form.
fn graph(sample: &Sample, position: usize, change: impl Fn(i64) -> i64) -> String {
    let (mut builder, mut sources) = (Builder::new(), BTreeMap::new());
    let mut arguments: Vec<Argument> =
        sample.arguments.iter().map(|it| argument(&mut builder, &mut sources, it)).collect();
    arguments[position] = match &arguments[position] {
        Argument::Integer(dim) => Argument::Integer(change(*dim)),
        Argument::List(dims) => {
            let changed = dims.iter().map(|it| match it {
                Argument::Integer(dim) => Argument::Integer(change(*dim)),
                other => other.clone(),
            });
            Argument::List(changed.collect())
        }
        other => other.clone(),
    };
    let result = builder.call(sample.operator, &arguments);
    format!("{:?}\n{}", result.expect("samples have no faults"), builder.graph())
}

#[test]
fn dims_are_counted_from_the_end() {
    let mut tried = BTreeSet::new();
    for sample in operator_samples() {
        let Some(position) = position_of_dim(sample.operator) else { continue };
        let n_new = i64::from(OF_NEW_DIMS.contains(&sample.operator));
        let rank = rank(&sample).expect("the first operand is a tensor") + n_new;
        let from_start = graph(&sample, position, |it| if it < 0 { it + rank } else { it });
        let from_end = graph(&sample, position, |it| if it < 0 { it } else { it - rank });
        assert_eq!(from_start, from_end, "{sample:?}");
        tried.insert(sample.operator);
    }
    // The list of operators has at least these, so the names of arguments have not changed.
    for operator in ["sum", "softmax", "argmin", "gather", "permute", "concat", "stack", "flip"] {
        assert!(tried.contains(operator), "`{operator}` takes no dim");
    }
}
