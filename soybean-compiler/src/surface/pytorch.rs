//! PyTorch's names for what operators here are called, or written, otherwise.

use super::{call_text, find};

/// The counterpart of a name of PyTorch.
enum Counterpart {
    /// The operator of this name.
    Operator(&'static str),
    /// What is written in place of it.
    Text(&'static str),
}

use Counterpart::{Operator, Text};

/// The names of PyTorch that are no operators here.
const NAMES: &[(&str, Counterpart)] = &[
    ("absolute", Operator("abs")),
    ("addmm", Text("`x.matmul(w) + b`")),
    ("and", Text("`x & y` for conditions")),
    ("all", Text("`x.ne(0).min(dims)`")),
    ("amax", Operator("max")),
    ("amin", Operator("min")),
    ("any", Text("`x.ne(0).max(dims)`")),
    ("backward", Text("nothing: the trainer computes the gradients of the returned loss")),
    ("bce_with_logits", Operator("binary_cross_entropy_with_logits")),
    ("bitwise_and", Text("`x & y` for conditions")),
    ("bitwise_not", Text("`!x` for conditions")),
    ("bitwise_or", Text("`x | y` for conditions")),
    ("bitwise_xor", Text("`x ^ y` for conditions")),
    ("bmm", Operator("matmul")),
    ("broadcast_to", Operator("expand")),
    ("cat", Operator("concat")),
    ("clamp_max", Operator("minimum")),
    ("clamp_min", Operator("maximum")),
    ("clip", Operator("clamp")),
    ("clone", Text("nothing: a tensor can be used any number of times")),
    ("concatenate", Operator("concat")),
    ("contiguous", Text("nothing: tensors have no strides")),
    ("cpu", Text("nothing: the plan places the tensors")),
    ("cuda", Text("nothing: the plan places the tensors")),
    ("divide", Text("`x / y`")),
    ("dot", Operator("matmul")),
    ("exp2", Text("`(x * 2f64.ln()).exp()`")),
    ("expand_as", Operator("expand")),
    ("eye", Text("`(arange(n) - arange(n).unsqueeze(1)).eq(0)`")),
    ("floor_div", Operator("floor_divide")),
    ("fmod", Text("`x.remainder(y)`, whose sign is that of `y`")),
    ("fix", Text("`x.to_i32().to_f32()`")),
    ("fliplr", Text("`x.flip(1)`")),
    ("flipud", Text("`x.flip(0)`")),
    ("float", Operator("to_f32")),
    ("float_power", Operator("pow")),
    ("frac", Text("`x - x.to_i32().to_f32()`")),
    ("full_like", Operator("full")),
    ("glu", Text("`let [a, b] = x.chunk(2, dim); a * b.sigmoid()`")),
    ("greater", Operator("gt")),
    ("greater_equal", Operator("ge")),
    ("hard_sigmoid", Operator("hardsigmoid")),
    ("hard_swish", Operator("hardswish")),
    ("hardtanh", Text("`x.clamp(-1.0, 1.0)`")),
    ("hstack", Operator("concat")),
    ("index_select", Text("`indices.embedding(table)` for rows, or `x.slice(dim, start, end)`")),
    ("instance_norm", Text("`x.group_norm(n_channels, weight, bias, eps)`")),
    ("int", Operator("to_i32")),
    ("item", Text("nothing: return the tensor as an output, and read it in the program")),
    ("less", Operator("lt")),
    ("less_equal", Operator("le")),
    ("linear", Text("`x.matmul(w.transpose()) + b`, or `soybean::nn::linear(x, out_features)`")),
    ("linspace", Text("`arange(n) * step + start`")),
    ("ln", Operator("log")),
    ("log10", Text("`x.log() / 10f64.ln()`")),
    ("log2", Text("`x.log() / 2f64.ln()`")),
    ("log_sigmoid", Operator("logsigmoid")),
    ("long", Operator("to_i32")),
    ("mm", Operator("matmul")),
    ("mod", Operator("remainder")),
    ("movedim", Operator("permute")),
    ("mse_loss", Operator("mse")),
    ("multiply", Text("`x * y`")),
    ("mv", Operator("matmul")),
    ("nan_to_num", Text("`x.where_(x.eq(x), 0.0)`")),
    ("narrow", Operator("slice")),
    ("ndim", Text("the number itself: ranks are known when the model is built")),
    ("negative", Text("`-x`")),
    ("nll_loss2d", Operator("nll_loss")),
    ("not", Text("`!x` for conditions")),
    ("not_equal", Operator("ne")),
    ("numel", Text("`x.dim(0) * x.dim(1)`, the product of the extents")),
    ("ones_like", Operator("full")),
    ("or", Text("`x | y` for conditions")),
    ("outer", Text("`x.einsum(\"i,j->ij\", y)`")),
    ("pairwise_distance", Text("`(x - y + 1e-6).square().sum(dim).sqrt()`")),
    ("prelu", Text("`x.where_(x.gt(0.0), x * weight)`")),
    ("ravel", Operator("reshape")),
    ("reshape_as", Operator("reshape")),
    ("scalar_tensor", Operator("full")),
    ("select", Text("`x.slice(dim, i, i + 1).squeeze(dim)`")),
    ("sgn", Operator("sign")),
    ("shape", Operator("dim")),
    ("size", Operator("dim")),
    ("softmin", Text("`(-x).softmax(dim)`")),
    ("subtract", Text("`x - y`")),
    ("swapaxes", Operator("permute")),
    ("swapdims", Operator("permute")),
    ("swish", Operator("silu")),
    ("t", Operator("transpose")),
    ("take", Text("`indices.embedding(table)`")),
    ("tan", Text("`x.sin() / x.cos()`")),
    ("tanhshrink", Text("`x - x.tanh()`")),
    ("tensor_split", Operator("split")),
    ("tile", Operator("repeat")),
    ("to", Text("`x.to_f32()` or `x.to_i32()`; the plan places the tensors")),
    ("true_divide", Text("`x / y`")),
    ("trunc", Text("`x.to_i32().to_f32()`")),
    ("type_as", Text("`x.to_f32()` or `x.to_i32()`")),
    ("upsample", Operator("interpolate")),
    ("unbind", Text("`x.split([1, 1], dim)`, and `squeeze(dim)` of each part")),
    ("vector_norm", Operator("norm")),
    ("view", Operator("reshape")),
    ("view_as", Operator("reshape")),
    ("vstack", Operator("concat")),
    ("where", Operator("where_")),
    ("zeros_like", Operator("full")),
];

/// Returns what to write for an operator of PyTorch that has another name here, as help; `None` for
/// other names. In-place variants such as `relu_` have no counterpart of their own.
#[must_use]
pub fn pytorch_counterpart(name: &str) -> Option<String> {
    if let Some((_, counterpart)) = NAMES.iter().find(|(it, _)| *it == name) {
        return Some(match counterpart {
            Operator(ours) => format!("PyTorch's `{name}` is `{}`", written(ours)?),
            Text(text) => format!("for PyTorch's `{name}`, write {text}"),
        });
    }
    let in_place = name.strip_suffix('_')?;
    let call = written(in_place)?;
    Some(format!("operators change no tensor in place: write `x = {call}`"))
}

/// Returns the call of an operator, with `x` as the receiver of a method.
fn written(name: &str) -> Option<String> {
    let (form, row) = find(name)?;
    let call = call_text(form, row);
    let receiver = format!("{}.", row.arguments[0]);
    Some(match call.strip_prefix(&receiver) {
        Some(method) => format!("x.{method}"),
        None => call,
    })
}

#[cfg(test)]
mod tests {
    use super::{Counterpart, NAMES, find, pytorch_counterpart};

    #[test]
    fn names_are_given_once_and_lead_to_operators() {
        let names: std::collections::BTreeSet<_> = NAMES.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), NAMES.len(), "a name is there twice");
        for (name, counterpart) in NAMES {
            assert!(find(name).is_none(), "`{name}` is an operator");
            let methods: Vec<&str> = match counterpart {
                Counterpart::Operator(ours) => vec![ours],
                // The methods in the text, but for those of numbers.
                Counterpart::Text(text) => text
                    .split('.')
                    .skip(1)
                    .filter_map(|it| it.split_once('(').map(|(method, _)| method))
                    .filter(|it| it.chars().all(|it| it.is_alphanumeric() || it == '_'))
                    .filter(|it| *it != "ln")
                    .collect(),
            };
            for method in methods {
                assert!(find(method).is_some(), "`{name}` leads to `{method}`");
            }
        }
    }

    #[test]
    fn counterparts_are_written_as_calls() {
        let check = |name: &str, expected: &str| {
            assert_eq!(pytorch_counterpart(name).as_deref(), Some(expected));
        };
        check("view", "PyTorch's `view` is `x.reshape(shape)`");
        check("cat", "PyTorch's `cat` is `concat(tensors, dim)`");
        check("trunc", "for PyTorch's `trunc`, write `x.to_i32().to_f32()`");
        check("relu_", "operators change no tensor in place: write `x = x.relu()`");
        assert_eq!(pytorch_counterpart("relu"), None);
        assert_eq!(pytorch_counterpart("rellu"), None);
    }
}
