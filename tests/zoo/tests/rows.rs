//! The kernels that GPUs run for a program once reductions are fused with the maps around them.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use soybean_codegen::fuse_rows;
use soybean_compiler::{
    Argument, Options, SearchRequest, compile, optimizer, program_text, verify_program,
};
use soybean_plan::{DType, Kernel, Precision, Program, Step};
use soybean_zoo::{Layers, Model, Transformer};

fn program(model: Model, n_gpus: usize, precision: Precision) -> Program {
    let options = Options {
        name: "rows".to_owned(),
        n_gpus,
        search: SearchRequest::default(),
        precision,
        optimizer: optimizer("sgd", &[]).unwrap(),
    };
    compile(model.builder, model.loss, &[], &options, &|| 0.0).unwrap().program.into_program()
}

/// Returns the program in which steps of all phases are fused along rows.
fn in_rows(program: &Program) -> Program {
    let mut kernels = program.kernels.to_vec();
    let mut fused = program.clone();
    for steps in fused.train.iter_mut().chain(&mut fused.evaluate) {
        *steps = fuse_rows(steps, &mut kernels, &program.tables);
    }
    fused.kernels = kernels.into();
    fused
}

/// Returns the steps of a training step as text.
fn lines(program: &Program) -> Vec<String> {
    let n_steps = program.train[0].len();
    program_text(program).lines().skip(2).take(n_steps).map(str::to_owned).collect()
}

/// Returns the number of steps of each kind that are neither products nor updates.
fn kinds(program: &Program, steps: &[Step]) -> String {
    let is_kept = |it: &Step| {
        program.tables.parameters.iter().any(|parameter| it.results.contains(&parameter.buffer))
    };
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    for step in steps.iter().filter(|it| !is_kept(it)) {
        let kernel = &program.kernels[step.kernel];
        if !matches!(kernel, Kernel::Contract(_)) {
            *numbers.entry(kernel.kind()).or_default() += 1;
        }
    }
    let numbers = numbers.iter().map(|(kind, n)| format!("{n} {kind}"));
    numbers.collect::<Vec<_>>().join(", ")
}

/// Checks the kernels of a training step and an evaluation of a layer between two products.
fn check(layer: impl FnOnce(Layers) -> Layers, is_loss: bool, expected: &Expect) {
    let it = layer(Layers::new(DType::F32, &[256, 64], false).dense(96));
    let model = if is_loss { it.classified(&[256]) } else { it.dense(8).averaged() };
    let program = program(model, 1, Precision::F32);
    let fused = in_rows(&program);
    let line = |phase: &str, steps: &[Step], fused_steps: &[Step]| {
        format!("{phase}: {} -> {}\n", kinds(&program, steps), kinds(&fused, fused_steps))
    };
    let text = line("train", &program.train[0], &fused.train[0])
        + &line("evaluate", &program.evaluate[0], &fused.evaluate[0]);
    expected.assert_eq(&text);
}

#[test]
fn softmax_is_one_kernel_in_each_direction() {
    check(
        |it| it.apply("softmax", &[Argument::Integer(1)]),
        false,
        &expect![[r#"
        train: 5 map, 4 reduction -> 1 map, 3 row-fusion
        evaluate: 3 map, 3 reduction -> 2 row-fusion
    "#]],
    );
}

#[test]
fn log_softmax_is_one_kernel_in_each_direction() {
    check(
        |it| it.apply("log_softmax", &[Argument::Integer(1)]),
        false,
        &expect![[r#"
        train: 5 map, 4 reduction -> 1 map, 3 row-fusion
        evaluate: 3 map, 3 reduction -> 2 row-fusion
    "#]],
    );
}

#[test]
fn layer_norm_is_one_kernel_in_each_direction_besides_sums_of_columns() {
    check(
        Layers::layer_norm,
        false,
        &expect![[r#"
            train: 8 map, 8 reduction -> 1 map, 2 reduction, 4 row-fusion
            evaluate: 4 map, 4 reduction -> 2 row-fusion
        "#]],
    );
}

#[test]
fn rms_norm_is_one_kernel_in_each_direction_besides_sums_of_columns() {
    let layer = |mut it: Layers| {
        let scale = it.parameter("scale", &[96]);
        it.apply("rms_norm", &[scale, Argument::Float(1e-5)]).ended()
    };
    check(
        layer,
        false,
        &expect![[r#"
        train: 6 map, 4 reduction -> 1 map, 1 reduction, 3 row-fusion
        evaluate: 3 map, 2 reduction -> 2 row-fusion
    "#]],
    );
}

#[test]
fn cross_entropy_and_its_gradient_are_one_kernel() {
    check(
        |it| it,
        true,
        &expect![[r#"
        train: 3 map, 4 reduction -> 2 row-fusion
        evaluate: 2 map, 4 reduction -> 2 row-fusion
    "#]],
    );
}

fn gpt(batch: usize, n_blocks: usize, n_words: usize) -> Model {
    let tokens = 1024;
    Transformer { batch, tokens, width: 768, n_heads: 12, n_blocks, n_words }.decoder()
}

#[test]
fn steps_of_a_transformer_block_are_fused() {
    let program = program(gpt(8, 1, 50_257), 1, Precision::Bf16);
    let (before, after) = (lines(&program), lines(&in_rows(&program)));
    let without = |lines: &[String], others: &[String], sign: &str| -> String {
        let only = lines.iter().filter(|it| !others.contains(it));
        only.map(|it| format!("{sign} {}\n", it.trim())).collect()
    };
    let text = without(&before, &after, "-") + &without(&after, &before, "+");
    expect![[r#"
        - b30: bf16 = map [8, 1024, 768] {select(gt(x0, noise(noise(noise(noise(s0, 0), float(x1)), float(x2)), float(x3))), 0, div(add(x4, x5), sub(1, x0)))} (b29, b4, b5, b6, b28, b3)
        - b31 = sum [8, 1024, 768] {x0} (b30)
        - b32 = sum [8, 1024, 768] {sub(x0, div(x1, 768))} (b30, b31)
        - b33 = map [8, 1024] {add(div(x0, 768), div(x1, 768))} (b31, b32)
        - b34 = sum [8, 1024, 768] {mul(sub(x0, x1), sub(x0, x1))} (b30, b33)
        - b35 = map [8, 1024] {div(1, sqrt(add(div(x0, 768), 0.00001)))} (b34)
        - b36: bf16 = map [8, 1024, 768] {add(mul(mul(sub(x3, x4), x0), x1), x2)} (b35, b7, b8, b30, b33)
        - b53: bf16 = map [8, 1024, 768] {add(x0, select(gt(x1, noise(noise(noise(noise(s0, 1), float(x2)), float(x3)), float(x4))), 0, div(add(x5, x6), sub(1, x1))))} (b30, b29, b4, b5, b6, b52, b16)
        - b54 = sum [8, 1024, 768] {x0} (b53)
        - b55 = sum [8, 1024, 768] {sub(x0, div(x1, 768))} (b53, b54)
        - b56 = map [8, 1024] {add(div(x0, 768), div(x1, 768))} (b54, b55)
        - b57 = sum [8, 1024, 768] {mul(sub(x0, x1), sub(x0, x1))} (b53, b56)
        - b58 = map [8, 1024] {div(1, sqrt(add(div(x0, 768), 0.00001)))} (b57)
        - b59: bf16 = map [8, 1024, 768] {add(mul(mul(sub(x3, x4), x0), x1), x2)} (b58, b17, b18, b53, b56)
        - b65: bf16 = map [8, 1024, 768] {add(x0, select(gt(x1, noise(noise(noise(noise(s0, 2), float(x2)), float(x3)), float(x4))), 0, div(add(x5, x6), sub(1, x1))))} (b53, b29, b4, b5, b6, b64, b22)
        - b66 = sum [8, 1024, 768] {x0} (b65)
        - b67 = sum [8, 1024, 768] {sub(x0, div(x1, 768))} (b65, b66)
        - b68 = map [8, 1024] {add(div(x0, 768), div(x1, 768))} (b66, b67)
        - b69 = sum [8, 1024, 768] {mul(sub(x0, x1), sub(x0, x1))} (b65, b68)
        - b70 = map [8, 1024] {div(1, sqrt(add(div(x0, 768), 0.00001)))} (b69)
        - b71: bf16 = map [8, 1024, 768] {add(mul(mul(sub(x3, x4), x0), x1), x2)} (b70, b23, b24, b65, b68)
        - b74 = max [8, 1024, 50257] {add(x0, x1)} (b73, b26)
        - b75 = sum [8, 1024, 50257] {exp(sub(add(x1, x2), x0))} (b74, b73, b26)
        - b76 = sum [8, 1024, 50257] {select(eq.i32(x0, x1), sub(add(x3, x4), x2), 0)} (b27, b2, b74, b73, b26)
        - b77 = sum [8, 1024] {sub(log(x0), x1)} (b75, b76)
        - b78 = map [] {div(x0, 8192)} (b77)
        - b79: bf16 = map [8, 1024, 50257] {add(select(eq.i32(x0, x1), -0.0001220703125, 0), mul(div(0.0001220703125, x5), exp(sub(add(x3, x4), x2))))} (b27, b2, b74, b73, b26, b75)
        - b83 = sum [8, 1024, 768] {mul(mul(x1, x0), sub(x2, x3))} (b23, b81, b65, b68)
        - b86 = map [8, 1024] {div(div(neg(mul(div(x1, sqrt(add(div(x2, 768), 0.00001))), x0)), add(sqrt(add(div(x2, 768), 0.00001)), sqrt(add(div(x2, 768), 0.00001)))), 768)} (b70, b83, b69)
        - b87: bf16 = map [8, 1024, 768] {add(mul(mul(x2, x1), x0), add(mul(x5, sub(x3, x4)), mul(x5, sub(x3, x4))))} (b70, b23, b81, b65, b68, b86)
        - b88 = sum [8, 1024, 768] {neg(x0)} (b87)
        - b89: bf16 = map [8, 1024, 768] {div(select(gt(x0, noise(noise(noise(noise(s0, 2), float(x1)), float(x2)), float(x3))), 0, add(x4, div(x5, 768))), sub(1, x0))} (b29, b4, b5, b6, b87, b88)
        - b97 = sum [8, 1024, 768] {mul(mul(x1, x0), sub(x2, x3))} (b17, b95, b53, b56)
        - b100 = map [8, 1024] {div(div(neg(mul(div(x1, sqrt(add(div(x2, 768), 0.00001))), x0)), add(sqrt(add(div(x2, 768), 0.00001)), sqrt(add(div(x2, 768), 0.00001)))), 768)} (b58, b97, b57)
        - b101: bf16 = map [8, 1024, 768] {add(mul(mul(x2, x1), x0), add(mul(x5, sub(x3, x4)), mul(x5, sub(x3, x4))))} (b58, b17, b95, b53, b56, b100)
        - b102 = sum [8, 1024, 768] {neg(x0)} (b101)
        - b103: bf16 = map [8, 1024, 768] {add(add(add(x1, div(x2, 768)), x0), div(x3, 768))} (b101, b87, b88, b102)
        - b124 = sum [8, 1024, 768] {mul(mul(add(add(x3, x4), x5), x0), sub(x1, x2))} (b7, b30, b33, b114, b118, b122)
        - b127 = map [8, 1024] {div(div(neg(mul(div(x1, sqrt(add(div(x2, 768), 0.00001))), x0)), add(sqrt(add(div(x2, 768), 0.00001)), sqrt(add(div(x2, 768), 0.00001)))), 768)} (b35, b124, b34)
        - b128: bf16 = map [8, 1024, 768] {add(mul(mul(add(add(x5, x6), x7), x1), x0), add(mul(x4, sub(x2, x3)), mul(x4, sub(x2, x3))))} (b35, b7, b30, b33, b127, b114, b118, b122)
        - b129 = sum [8, 1024, 768] {neg(x0)} (b128)
        - b130: bf16 = map [8, 1024, 768] {div(select(gt(x0, noise(noise(noise(noise(s0, 0), float(x1)), float(x2)), float(x3))), 0, add(add(x4, x5), div(x6, 768))), sub(1, x0))} (b29, b4, b5, b6, b103, b128, b129)
        + b30, b33, b34, b35, b36: bf16 = rows [8, 1024] of [768] {store x8 = point select(gt(x0, noise(noise(noise(noise(s0, 0), float(x1)), float(x2)), float(x3))), 0, div(add(x4, x5), sub(1, x0))); x9 = sum x8; x10 = sum sub(x8, div(x9, 768)); store x11 = row add(div(x9, 768), div(x10, 768)); store x12 = sum mul(sub(x8, x11), sub(x8, x11)); store x13 = row div(1, sqrt(add(div(x12, 768), 0.00001))); store x14 = point add(mul(mul(sub(x8, x11), x13), x6), x7)} (b29, b4, b5, b6, b28, b3, b7, b8)
        + b53, b56, b57, b58, b59: bf16 = rows [8, 1024] of [768] {store x9 = point add(x0, select(gt(x1, noise(noise(noise(noise(s0, 1), float(x2)), float(x3)), float(x4))), 0, div(add(x5, x6), sub(1, x1)))); x10 = sum x9; x11 = sum sub(x9, div(x10, 768)); store x12 = row add(div(x10, 768), div(x11, 768)); store x13 = sum mul(sub(x9, x12), sub(x9, x12)); store x14 = row div(1, sqrt(add(div(x13, 768), 0.00001))); store x15 = point add(mul(mul(sub(x9, x12), x14), x7), x8)} (b30, b29, b4, b5, b6, b52, b16, b17, b18)
        + b65, b68, b69, b70, b71: bf16 = rows [8, 1024] of [768] {store x9 = point add(x0, select(gt(x1, noise(noise(noise(noise(s0, 2), float(x2)), float(x3)), float(x4))), 0, div(add(x5, x6), sub(1, x1)))); x10 = sum x9; x11 = sum sub(x9, div(x10, 768)); store x12 = row add(div(x10, 768), div(x11, 768)); store x13 = sum mul(sub(x9, x12), sub(x9, x12)); store x14 = row div(1, sqrt(add(div(x13, 768), 0.00001))); store x15 = point add(mul(mul(sub(x9, x12), x14), x7), x8)} (b53, b29, b4, b5, b6, b64, b22, b23, b24)
        + b75, b76, b79: bf16 = rows [8, 1024] of [50257] {x4 = max add(x0, x1); store x5 = sum exp(sub(add(x0, x1), x4)); store x6 = sum select(eq.i32(x2, x3), sub(add(x0, x1), x4), 0); store x7 = point add(select(eq.i32(x2, x3), -0.0001220703125, 0), mul(div(0.0001220703125, x5), exp(sub(add(x0, x1), x4))))} (b73, b26, b27, b2)
        + b78 = rows [] of [8, 1024] {x2 = sum sub(log(x0), x1); store x3 = row div(x2, 8192)} (b75, b76)
        + b87, b88, b89: bf16 = rows [8, 1024] of [768] {x10 = sum mul(mul(x1, x0), sub(x2, x3)); x11 = row div(div(neg(mul(div(x10, sqrt(add(div(x5, 768), 0.00001))), x4)), add(sqrt(add(div(x5, 768), 0.00001)), sqrt(add(div(x5, 768), 0.00001)))), 768); store x12 = point add(mul(mul(x1, x0), x4), add(mul(x11, sub(x2, x3)), mul(x11, sub(x2, x3)))); store x13 = sum neg(x12); store x14 = point div(select(gt(x6, noise(noise(noise(noise(s0, 2), float(x7)), float(x8)), float(x9))), 0, add(x12, div(x13, 768))), sub(1, x6))} (b23, b81, b65, b68, b70, b69, b29, b4, b5, b6)
        + b103: bf16 = rows [8, 1024] of [768] {x8 = sum mul(mul(x1, x0), sub(x2, x3)); x9 = row div(div(neg(mul(div(x8, sqrt(add(div(x5, 768), 0.00001))), x4)), add(sqrt(add(div(x5, 768), 0.00001)), sqrt(add(div(x5, 768), 0.00001)))), 768); x10 = point add(mul(mul(x1, x0), x4), add(mul(x9, sub(x2, x3)), mul(x9, sub(x2, x3)))); x11 = sum neg(x10); store x12 = point add(add(add(x6, div(x7, 768)), x10), div(x11, 768))} (b17, b95, b53, b56, b58, b57, b87, b88)
        + b130: bf16 = rows [8, 1024] of [768] {x13 = sum mul(mul(add(add(x3, x4), x5), x0), sub(x1, x2)); x14 = row div(div(neg(mul(div(x13, sqrt(add(div(x7, 768), 0.00001))), x6)), add(sqrt(add(div(x7, 768), 0.00001)), sqrt(add(div(x7, 768), 0.00001)))), 768); x15 = point add(mul(mul(add(add(x3, x4), x5), x0), x6), add(mul(x14, sub(x1, x2)), mul(x14, sub(x1, x2)))); x16 = sum neg(x15); store x17 = point div(select(gt(x8, noise(noise(noise(noise(s0, 0), float(x9)), float(x10)), float(x11))), 0, add(add(x12, x15), div(x16, 768))), sub(1, x8))} (b7, b30, b33, b114, b118, b122, b35, b34, b29, b4, b5, b6, b103)
    "#]].assert_eq(&text);
}

#[test]
fn gpt_has_fewer_steps_and_moves_fewer_bytes() {
    let program = program(gpt(8, 12, 50_257), 1, Precision::Bf16);
    let fused = in_rows(&program);
    let of_logits = |program: &Program| -> u64 {
        let is_large = |it: &usize| program.tables.buffers[*it].n_elements == 8 * 1024 * 50_257;
        let steps = program.train[0].iter().filter(|it| {
            let kernel = &program.kernels[it.kernel];
            let touches = it.inputs.iter().chain(&it.results).any(is_large);
            touches && !matches!(kernel, Kernel::Contract(_))
        });
        steps.map(|it| program.work(it).bytes).sum()
    };
    let gigabytes = |program: &Program| of_logits(program) as f64 / 1e9;
    let text = format!(
        "{} -> {} steps; cross-entropy and the bias of its logits: {:.2} -> {:.2} GB\n",
        program.train[0].len(),
        fused.train[0].len(),
        gigabytes(&program),
        gigabytes(&fused)
    );
    expect![[r#"
        1114 -> 860 steps; cross-entropy and the bias of its logits: 4.94 -> 2.47 GB
    "#]]
    .assert_eq(&text);
}

#[test]
fn programs_in_rows_are_sound_on_all_meshes() {
    for precision in [Precision::F32, Precision::Bf16] {
        for n_gpus in [1, 2, 4, 6, 8] {
            let tokens = 48;
            let it =
                Transformer { batch: 12, tokens, width: 48, n_heads: 6, n_blocks: 2, n_words: 96 };
            for model in [it.decoder(), it.encoder(12), it.decoder_with_fused_attention()] {
                let program = program(model, n_gpus, precision);
                let fused = in_rows(&program);
                assert!(fused.train[0].len() < program.train[0].len(), "{n_gpus} {precision:?}");
                verify_program(&fused).unwrap_or_else(|it| {
                    panic!("{n_gpus} {precision:?}: {it}\n{}", program_text(&fused))
                });
            }
        }
    }
}
