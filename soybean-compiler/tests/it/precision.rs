//! Precision: which tensors are `bf16`, and what that does to plans and programs.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use soybean_compiler::{
    Argument, Builder, Network, Optimizer, Strategy, Value, build_network, operator::Rounding,
    operators::reduce::Reduce, optimizer, program, program_text, round, tiling::search, verify,
    verify_program,
};
use soybean_plan::{DType, Init, Kernel, Mesh, Precision, Program};
use soybean_zoo::{Model, Transformer, resnet20};

use crate::support;

const SMALL: Transformer =
    Transformer { batch: 8, tokens: 64, width: 32, n_heads: 2, n_blocks: 1, n_words: 96 };

fn in_bf16(builder: Builder, loss: Value, outputs: &[Value], optimizer: &Optimizer) -> Network {
    let outputs: Vec<_> = outputs.iter().map(|&it| ("logits".to_owned(), it)).collect();
    let network = build_network(builder, loss, &outputs, optimizer).unwrap();
    round(network, Precision::Bf16)
}

fn check(network: &Network, expected: Expect) {
    verify(network).unwrap();
    expected.assert_eq(&network.graph.to_string());
}

#[test]
fn a_perceptron() {
    let (builder, loss, logits) = support::classifier(8, &[4, 16, 8], true);
    check(
        &in_bf16(builder, loss, &[logits], &Optimizer::default()),
        expect![[r#"
            v0: f32[8, 4] = input "x"
            v1: f32[4, 16] = param "w0"
            v2: bf16[8, 4] = map {x0} to bf16 ij->ij (v0)
            v3: bf16[4, 16] = map {x0} to bf16 ij->ij (v1)
            v4: bf16[8, 16] = contract ik,kj->ij (v2, v3)
            v5: f32[16] = param "b0"
            v6: bf16[8, 16] = map {relu(add(x0, x1))} to bf16 ij,j->ij (v4, v5)
            v7: f32[16, 8] = param "w1"
            v8: bf16[16, 8] = map {x0} to bf16 ij->ij (v7)
            v9: bf16[8, 8] = contract ik,kj->ij (v6, v8)
            v10: f32[8] = param "b1"
            v11: bf16[8, 8] = map {add(x0, x1)} to bf16 ij,j->ij (v9, v10)
            v12: i32[8] = input "y"
            v13: f32[8] = max {x0} ij->i (v11)
            v14: bf16[8, 8] = map {exp(sub(x0, x1))} to bf16 ij,i->ij (v11, v13)
            v15: f32[8] = sum {x0} ij->i (v14)
            v16: i32[8] = iota ->_ ()
            v17: f32[8] = sum {select(eq.i32(x0, x1), sub(x2, x3), 0)} i,j,ij,i->i (v12, v16, v11, v13)
            v18: f32[] = sum {sub(log(x0), x1)} i,i-> (v15, v17)
            v19: f32[] = map {div(x0, 8)} -> (v18)
            v20: bf16[8, 8] = map {add(select(eq.i32(x0, x1), -0.125, 0), mul(div(0.125, x3), x2))} to bf16 i,j,ij,i->ij (v12, v16, v14, v15)
            v21: f32[8] = sum {x0} ij->j (v20)
            v22: bf16[8, 16] = contract ij,kj->ik (v20, v8)
            v23: f32[16, 8] = contract ik,ij->kj (v6, v20)
            v24: bf16[8, 16] = map {select(gt(x0, 0), x1, 0)} to bf16 ij,ij->ij (v6, v22)
            v25: f32[16] = sum {x0} ij->j (v24)
            v26: f32[4, 16] = contract ik,ij->kj (v2, v24)
            v27: f32[4, 16] = map {sub(x0, mul(s0, x1))} ij,ij->ij (v1, v26)
            v28: f32[16] = map {sub(x0, mul(s0, x1))} i,i->i (v5, v25)
            v29: f32[16, 8] = map {sub(x0, mul(s0, x1))} ij,ij->ij (v7, v23)
            v30: f32[8] = map {sub(x0, mul(s0, x1))} i,i->i (v10, v21)
        "#]],
    );
}

/// Returns the types of operands and results, with the number of operators; maps and reductions by
/// their results alone.
fn types(network: &Network) -> String {
    let graph = &network.graph;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for value in graph.values() {
        let Some(operator) = graph.operator(value) else { continue };
        let text = operator.to_string();
        let name = text.split(' ').next().unwrap_or_default();
        let of: Vec<&str> =
            graph.operands(value).into_iter().map(|it| graph.node(it).dtype.name()).collect();
        let of = match operator.rounding() {
            Rounding::Map => String::new(),
            _ if operator.is::<Reduce>() => String::new(),
            _ => format!("({})", of.join(", ")),
        };
        let cast = if operator.is_cast() { "cast" } else { name };
        *counts.entry(format!("{cast}{of} -> {}", graph.node(value).dtype)).or_default() += 1;
    }
    counts.iter().map(|(types, count)| format!("{count} {types}\n")).collect()
}

#[test]
fn a_transformer() {
    let Model { builder, loss, .. } = SMALL.decoder();
    let network = in_bf16(builder, loss, &[], &optimizer("adam", &[]).unwrap());
    verify(&network).unwrap();
    expect![[r#"
        1 add -> bf16
        1 attention(bf16, bf16, bf16, i32) -> bf16
        1 attention-key-gradient(bf16, bf16, bf16, bf16, i32) -> bf16
        1 attention-query-gradient(bf16, bf16, bf16, bf16, i32) -> bf16
        1 attention-value-gradient(bf16, bf16, bf16, bf16, i32) -> bf16
        1 by-phase(f32, f32) -> f32
        7 cast -> bf16
        14 contract(bf16, bf16) -> bf16
        7 contract(bf16, bf16) -> f32
        1 gather(i32, f32, i32) -> bf16
        4 iota() -> i32
        20 map -> bf16
        78 map -> f32
        1 max -> f32
        8 permute(bf16) -> bf16
        8 reshape(bf16) -> bf16
        1 scatter-add(i32, bf16, i32) -> f32
        32 sum -> f32
    "#]]
    .assert_eq(&types(&network));
}

#[test]
fn a_residual_network() {
    let Model { builder, loss, .. } = resnet20(8);
    let network = in_bf16(builder, loss, &[], &Optimizer::default());
    verify(&network).unwrap();
    expect![[r#"
        2 add -> bf16
        42 by-phase(f32, f32) -> f32
        24 cast -> bf16
        2 contract(bf16, bf16) -> bf16
        1 contract(bf16, bf16) -> f32
        21 convolution(bf16, bf16) -> bf16
        20 convolution-data(bf16, bf16) -> bf16
        21 convolution-filter(bf16, bf16) -> f32
        1 iota() -> i32
        46 map -> bf16
        192 map -> f32
        1 max -> f32
        108 sum -> f32
    "#]]
    .assert_eq(&types(&network));
}

#[test]
fn a_network_without_products_stays_as_it_is() {
    let mut builder = Builder::new();
    let x = builder.input("x", DType::F32, &[4, 6]);
    let w = builder.parameter("w", &[6], Init::Constant(1.0));
    let scaled = support::call(&mut builder, "mul", &[x, w].map(Argument::Tensor));
    let loss = support::call(&mut builder, "mean", &[Argument::Tensor(scaled), Argument::All]);
    let network = build_network(builder, loss, &[], &Optimizer::default()).unwrap();
    let rounded = round(network.clone(), Precision::Bf16);
    assert_eq!(rounded.graph.to_string(), network.graph.to_string());
}

#[test]
fn tf32_is_f32_in_memory() {
    let (builder, loss, _) = support::classifier(8, &[4, 16, 8], true);
    let network = build_network(builder, loss, &[], &Optimizer::default()).unwrap();
    let program = |precision| {
        let network = round(network.clone(), precision);
        program("tiny", &search(&network, Mesh::new(2), &Strategy::Auto.into()).tiled)
    };
    let (single, tensor) = (program(Precision::F32), program(Precision::Tf32));
    assert_eq!(tensor.tables.precision, Precision::Tf32);
    assert_eq!(program_text(&single), program_text(&tensor));
}

fn n_of(program: &Program, wanted: impl Fn(&Kernel) -> bool) -> usize {
    program.train[0].iter().filter(|it| wanted(&program.kernels[it.kernel])).count()
}

fn lowered(network: &Network, n_ranks: usize, strategy: Strategy) -> Program {
    let found = search(network, Mesh::new(n_ranks), &strategy.into());
    let program = program("model", &found.tiled);
    let verdict = verify_program(&program);
    assert_eq!(verdict, Ok(()), "{n_ranks} {strategy:?}:\n{}", program_text(&program));
    assert_eq!(program.tables.train_bytes(), found.tiled.bytes(), "{n_ranks} {strategy:?}");
    program
}

#[test]
fn programs_are_sound_and_move_the_bytes_of_their_plans() {
    let networks = [
        support::classifier(24, &[10, 36, 20, 12], true),
        {
            let it = SMALL.decoder();
            (it.builder, it.loss, it.loss)
        },
        {
            let it = resnet20(8);
            (it.builder, it.loss, it.loss)
        },
    ];
    for (builder, loss, output) in networks {
        let setting = |name: &str, value: f64| (name.to_owned(), Argument::Float(value));
        let nesterov = ("nesterov".to_owned(), Argument::Boolean(true));
        let settings = [setting("momentum", 0.9), nesterov, setting("weight_decay", 1e-4)];
        let momentum = optimizer("sgd", &settings).unwrap();
        let network = in_bf16(builder, loss, &[output], &momentum);
        verify(&network).unwrap();
        for n_ranks in [1, 2, 6, 8] {
            for (_, strategy) in Strategy::NAMES {
                lowered(&network, n_ranks, strategy);
            }
        }
    }
}

/// Data parallelism moves the gradients of all parameters, which are exact; a model with split
/// weights moves activations, at half the bytes.
#[test]
fn activations_and_weights_move_at_half_the_bytes_but_gradients_do_not() {
    let of = |strategy, precision| {
        let (builder, loss, _) = support::classifier(64, &[32, 64, 32], false);
        let network = build_network(builder, loss, &[], &Optimizer::default()).unwrap();
        let program = lowered(&round(network, precision), 4, strategy);
        (program.tables.train_bytes(), n_of(&program, |it| matches!(it, Kernel::Communicate(_))))
    };
    let (single, half) = (of(Strategy::Data, Precision::F32), of(Strategy::Data, Precision::Bf16));
    assert_eq!(single, half);
    let (single, half) =
        (of(Strategy::Model, Precision::F32), of(Strategy::Model, Precision::Bf16));
    assert!(half.0 < single.0 * 6 / 10, "{half:?} {single:?}");
}
