//! The pipeline: each pass is shown to the observer in order, and its result is sound.

use expect_test::expect;
use soybean_compiler::{
    Argument, Builder, Model, Network, Optimizer, Options, SearchRequest, Value, build_network,
    compile_observed, operators::elementwise::Elementwise,
};
use soybean_plan::{DType, Init, Precision};

use crate::support::{self, call};

#[test]
fn the_observer_sees_each_pass_with_a_sound_result() {
    let (builder, loss, logits) = support::classifier(8, &[4, 16, 8], true);
    let outputs = [("logits".to_owned(), logits)];
    let options = Options {
        name: "classifier".to_owned(),
        n_gpus: 2,
        search: SearchRequest::default(),
        precision: Precision::F32,
        optimizer: Optimizer::default(),
    };
    let mut passes = String::new();
    let mut texts = Vec::new();
    let model = Model { builder, loss: Some(loss), outputs: &outputs };
    compile_observed(model, &options, &|| 0.0, &mut |name, stage| {
        assert_eq!(stage.verify(), Ok(()), "{name}");
        passes.push_str(name);
        passes.push('\n');
        texts.push(stage.text());
    })
    .unwrap();
    expect![[r#"
        differentiate
        add-updates
        simplify
        fuse
        channels-last
        pad
        sparse-updates
        round
        replicate
        search
        order
        lower
        overlap
        bucket
        plan-memory
    "#]]
    .assert_eq(&passes);
    assert!(texts[0].contains("\ngradient of v1: "), "{}", texts[0]);
    assert!(texts[1].contains("\nupdate v1 = "), "{}", texts[1]);
    assert!(texts[14].contains("\narena: "), "{}", texts[14]);
}

/// Returns the fused training step of a chain of maps.
fn chain(n_maps: usize, map: impl Fn(&mut Builder, Value, Value) -> Value) -> Network {
    let mut builder = Builder::new();
    let x = builder.input("x", DType::F32, &[4, 6]);
    let w = builder.parameter("w", &[6], Init::Constant(1.0));
    let mut h = call(&mut builder, "mul", &[Argument::Tensor(x), Argument::Tensor(w)]);
    for _ in 0..n_maps {
        h = map(&mut builder, h, x);
    }
    let loss = call(&mut builder, "mean", &[Argument::Tensor(h), Argument::All]);
    build_network(builder, loss, &[], &Optimizer::default()).unwrap()
}

#[test]
fn long_chains_of_maps_become_kernels_of_bounded_length() {
    let sum = |builder: &mut Builder, h, x| {
        call(builder, "add", &[Argument::Tensor(h), Argument::Tensor(x)])
    };
    let network = chain(2400, sum);
    let graph = &network.graph;
    let maps = graph.values().filter_map(|it| graph.operator_as::<Elementwise>(it));
    let lengths: Vec<usize> = maps.map(|it| it.program.instructions.len()).collect();
    assert!(lengths.iter().all(|it| *it <= 512), "{lengths:?}");
    assert!(lengths.len() < 20, "{lengths:?}");
}

#[test]
fn doubled_sums_have_a_short_text() {
    let network = chain(40, |builder, h, x| {
        let sum = call(builder, "add", &[Argument::Tensor(h), Argument::Tensor(x)]);
        call(builder, "mul", &[Argument::Tensor(sum), Argument::Tensor(sum)])
    });
    assert!(network.to_string().len() < 20_000);
}

/// The optimizer `gradients` keeps each gradient as it is, and those of both biases are equal.
#[test]
fn equal_gradients_are_kept_apart() {
    let mut builder = Builder::new();
    let x = builder.input("x", DType::F32, &[8, 4]);
    let mut h = x;
    for name in ["b", "c"] {
        let bias = builder.parameter(name, &[4], Init::Constant(0.0));
        h = call(&mut builder, "add", &[Argument::Tensor(h), Argument::Tensor(bias)]);
    }
    let squares = call(&mut builder, "mul", &[Argument::Tensor(h), Argument::Tensor(h)]);
    let loss = call(&mut builder, "sum", &[Argument::Tensor(squares), Argument::All]);
    let options = Options {
        name: "biases".to_owned(),
        n_gpus: 2,
        search: SearchRequest::default(),
        precision: Precision::F32,
        optimizer: soybean_compiler::optimizer("gradients", &[]).unwrap(),
    };
    let compiled = soybean_compiler::compile(builder, loss, &[], &options, &|| 0.0).unwrap();
    let states = compiled.program.tables.states.iter();
    let buffers: std::collections::BTreeSet<usize> = states.map(|it| it.buffer).collect();
    assert_eq!(buffers.len(), 2);
}
