//! Plans that several tests show.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "shared with tests of the compiler")]
#[path = "../../../soybean-compiler/tests/support/networks.rs"]
mod networks;

use networks::{GPT, Transformer, vgg16};
use soybean_compiler::{
    Argument, Builder, Compiled, Options, Request, Strategy, compile, graph::Value, optimizer,
};
use soybean_plan::{DType, Init, Precision};

/// A compiled network with momentum.
pub(crate) fn compiled(name: &str, n_gpus: usize, (builder, loss): (Builder, Value)) -> Compiled {
    let options = Options {
        name: name.to_owned(),
        n_gpus,
        search: Request::from(Strategy::Auto),
        precision: Precision::F32,
        optimizer: optimizer("sgd", &[("momentum".to_owned(), Argument::Float(0.9))]).unwrap(),
    };
    compile(builder, loss, &[], &options, &|| 0.0).unwrap()
}

/// Two layers that tell digits of 8 x 8 pixels apart, with names as the macro gives them.
pub(crate) fn digits() -> (Builder, Value) {
    let mut builder = Builder::new();
    let mut x = builder.input("x", DType::F32, &[96, 64]);
    for (layer, [inputs, outputs]) in [[64, 128], [128, 10]].into_iter().enumerate() {
        let mut dense = |name: &str, shape: &[usize]| {
            let name = format!("dense.{layer}.{name}");
            Argument::Tensor(builder.parameter(&name, shape, Init::Constant(0.1)))
        };
        let (w, b) = (dense("w", &[inputs, outputs]), dense("b", &[outputs]));
        x = call(&mut builder, "matmul", &[Argument::Tensor(x), w]);
        x = call(&mut builder, "add", &[Argument::Tensor(x), b]);
        if layer == 0 {
            x = call(&mut builder, "relu", &[Argument::Tensor(x)]);
        }
    }
    let y = builder.input("y", DType::I32, &[96]);
    let loss = call(&mut builder, "cross_entropy", &[x, y].map(Argument::Tensor));
    (builder, loss)
}

fn call(builder: &mut Builder, operator: &str, arguments: &[Argument]) -> Value {
    match builder.call(operator, arguments).unwrap() {
        Argument::Tensor(value) => value,
        other => unreachable!("{operator} gave {other:?}"),
    }
}

/// A small plan, that of a deep convolutional network, and that of a transformer.
pub(crate) fn plans() -> [(&'static str, Compiled); 3] {
    let vgg16 = vgg16(64).apply("mean", &[Argument::All]);
    [
        ("digits", compiled("digits", 4, digits())),
        ("vgg16", compiled("vgg16", 8, (vgg16.builder, vgg16.here))),
        ("gpt", compiled("gpt", 8, Transformer { n_blocks: 12, ..GPT }.decoder())),
    ]
}
