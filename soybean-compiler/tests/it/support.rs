//! Models that several tests compile.

pub(crate) mod averaged;
pub(crate) mod brute_force;
pub(crate) mod forms;
pub(crate) mod interpreter;
pub(crate) mod random_networks;
pub(crate) mod recost;
pub(crate) mod samples;
pub(crate) mod split;

use soybean_compiler::{
    Argument, Builder, Compiled, Options, SearchRequest, Value, compile, optimizer,
};
use soybean_plan::{DType, Init, Precision};

/// Calls an operator on tensors.
pub(crate) fn call(builder: &mut Builder, operator: &str, arguments: &[Argument]) -> Value {
    match builder.call(operator, arguments).unwrap() {
        Argument::Tensor(value) => value,
        other => unreachable!("{operator} gave {other:?}"),
    }
}

/// Compiles a model with the optimizer of this name.
pub(crate) fn compiled(builder: Builder, loss: Value, n_gpus: usize, updates: &str) -> Compiled {
    searched(builder, loss, n_gpus, SearchRequest::default(), updates)
}

/// Compiles a model with these options of the search.
pub(crate) fn searched(
    builder: Builder,
    loss: Value,
    n_gpus: usize,
    search: SearchRequest,
    updates: &str,
) -> Compiled {
    let options = Options {
        name: "model".to_owned(),
        n_gpus,
        search,
        precision: Precision::F32,
        optimizer: optimizer(updates, &[]).unwrap(),
    };
    compile(builder, loss, &[], &options, &|| 0.0).unwrap()
}

/// Returns an MLP through layers of these widths, with ReLU between them: the builder and the
/// logits.
pub(crate) fn mlp(batch: usize, widths: &[usize], has_bias: bool) -> (Builder, Value) {
    let mut builder = Builder::new();
    let mut x = builder.input("x", DType::F32, &[batch, widths[0]]);
    for (layer, pair) in widths.windows(2).enumerate() {
        let w = builder.parameter(&format!("w{layer}"), pair, Init::Normal { mean: 0.0, std: 0.1 });
        x = call(&mut builder, "matmul", &[Argument::Tensor(x), Argument::Tensor(w)]);
        if has_bias {
            let b = builder.parameter(&format!("b{layer}"), &pair[1..], Init::Constant(0.0));
            x = call(&mut builder, "add", &[Argument::Tensor(x), Argument::Tensor(b)]);
        }
        if layer + 2 < widths.len() {
            x = call(&mut builder, "relu", &[Argument::Tensor(x)]);
        }
    }
    (builder, x)
}

/// Returns an MLP classifier: the builder, the loss and the logits.
pub(crate) fn classifier(
    batch: usize,
    widths: &[usize],
    has_bias: bool,
) -> (Builder, Value, Value) {
    let (mut builder, logits) = mlp(batch, widths, has_bias);
    let y = builder.input("y", DType::I32, &[batch]);
    let loss =
        call(&mut builder, "cross_entropy", &[Argument::Tensor(logits), Argument::Tensor(y)]);
    (builder, loss, logits)
}
