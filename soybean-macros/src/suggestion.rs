//! Suggestions: what to write in place of an unknown name.

use soybean_compiler::{method_names, operator_descriptions, pytorch_counterpart};
use soybean_plan::nearest_names;

/// The methods that are written as symbols.
const BY_SYMBOL: [&str; 9] =
    ["add", "sub", "mul", "div", "neg", "logical_and", "logical_or", "logical_xor", "logical_not"];

/// The most operators that a message names.
const MAX_OPERATORS: usize = 3;

/// Returns the candidate with the fewest edits, if they are few for its length.
pub(crate) fn nearest<'n>(
    name: &str,
    candidates: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    let near = nearest_names(name, candidates);
    near.iter().find(|it| it.n_edits <= 1 + it.name.len() / 4).map(|it| it.name)
}

/// Returns help for an unknown name: the nearest known name, or all of them.
pub(crate) fn help(name: &str, kind: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None => format!("the {kind} are {}", known.join(", ")),
    }
}

/// Returns help for an unknown method of tensors: what PyTorch's operator of this name is here, or
/// the operators with the nearest names.
pub(crate) fn help_with_operator(name: &str) -> String {
    if let Some(counterpart) = pytorch_counterpart(name) {
        return counterpart;
    }
    let methods = method_names();
    let near = nearest_names(name, methods.into_iter().filter(|it| !BY_SYMBOL.contains(it)));
    let least = near[0].n_edits;
    let is_near = least <= 1 + near[0].name.len() / 4;
    let shown: Vec<_> = near
        .iter()
        .take_while(|it| !is_near || it.n_edits == least)
        .take(MAX_OPERATORS)
        .map(|it| format!("`{}`", it.name))
        .collect();
    match is_near {
        true => format!("did you mean {}?", listed(&shown, "or")),
        false => format!("the nearest operators are {}", listed(&shown, "and")),
    }
}

/// Returns how an operator of this name is called.
pub(crate) fn call_of(name: &str) -> Option<String> {
    operator_descriptions().into_iter().find(|it| it.name == name).map(|it| it.call)
}

/// Returns help for an unknown function, if it is an operator here or in PyTorch.
pub(crate) fn help_with_function(name: &str) -> Option<String> {
    match method_names().contains(&name) {
        true => Some(format!("operators are methods of tensors: `x.{name}(..)`")),
        false => pytorch_counterpart(name),
    }
}

fn listed(names: &[String], conjunction: &str) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => {
            format!("{} {conjunction} {last}", first.join(", "))
        }
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::{help_with_operator, nearest};

    #[test]
    fn unknown_operators_get_at_most_three_names() {
        let check = |name: &str, expected: &str| assert_eq!(help_with_operator(name), expected);
        check("rellu", "did you mean `relu`?");
        check("conv", "did you mean `conv1d`, `conv2d` or `conv3d`?");
        check("t", "PyTorch's `t` is `x.transpose()`");
        check("convolve", "the nearest operators are `conv1d`, `conv2d` and `conv3d`");
    }

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["relu", "leaky_relu", "matmul", "tanh", "he"];
        assert_eq!(nearest("rellu", known), Some("relu"));
        assert_eq!(nearest("mat_mul", known), Some("matmul"));
        assert_eq!(nearest("convolve", known), None);
    }
}
