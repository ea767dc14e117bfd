//! Programs for GPUs in which attention does the permutations of heads.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{collections::BTreeMap, fmt::Write};

use expect_test::expect;
use soybean_codegen::fold_permutations;
use soybean_compiler::{Options, SearchRequest, compile, optimizer, program_text, verify_program};
use soybean_plan::{Kernel, Precision, Program, Step};
use soybean_zoo::{Model, Transformer};

fn program(model: Model, n_gpus: usize, precision: Precision) -> Program {
    let options = Options {
        name: "heads".to_owned(),
        n_gpus,
        search: SearchRequest::default(),
        precision,
        optimizer: optimizer("sgd", &[]).unwrap(),
    };
    compile(model.builder, model.loss, &[], &options, &|| 0.0).unwrap().program.into_program()
}

/// Returns the program without permutations that attention can do, and the number of tensors that
/// have a new place.
fn folded(program: &Program) -> (Program, usize) {
    let mut moved = BTreeMap::new();
    let mut kernels = program.kernels.to_vec();
    let mut folded = program.clone();
    for steps in folded.train.iter_mut().chain(&mut folded.evaluate) {
        *steps = fold_permutations(steps, &mut kernels, &mut folded.tables, &mut moved);
    }
    folded.kernels = kernels.into();
    (folded, moved.len())
}

fn n_permutations(program: &Program, steps: &[Step]) -> usize {
    let is_permutation = |it: &&Step| matches!(program.kernels[it.kernel], Kernel::Permute(_));
    steps.iter().filter(is_permutation).count()
}

/// Shows the permutations in training and evaluation and the bytes of the arena, before and after,
/// and the tensors with a new place.
#[test]
fn attention_does_the_permutations_of_heads() {
    let it = Transformer { batch: 12, tokens: 48, width: 48, n_heads: 6, n_blocks: 2, n_words: 96 };
    let models = [
        ("decoder", Transformer::decoder as fn(&Transformer) -> Model),
        ("encoder", |it| it.encoder(12)),
        ("decoder with slices", Transformer::decoder_with_fused_attention),
    ];
    let mut text = String::new();
    for (name, model) in models {
        for (n_gpus, precision) in
            [(1, Precision::F32), (1, Precision::Bf16), (2, Precision::F32), (8, Precision::Bf16)]
        {
            let program = program(model(&it), n_gpus, precision);
            let (folded, n_moved) = folded(&program);
            verify_program(&folded)
                .unwrap_or_else(|it| panic!("{name} {n_gpus}: {it}\n{}", program_text(&folded)));
            let [before, after] = [&program, &folded].map(|it| {
                let [train, evaluate] =
                    [&it.train[0], &it.evaluate[0]].map(|steps| n_permutations(it, steps));
                format!("{train} and {evaluate}, {} bytes", it.tables.arena_bytes)
            });
            writeln!(text, "{name}, {precision} on {n_gpus}: {before} -> {after}, {n_moved} moved")
                .unwrap();
        }
    }
    expect![[r#"
        decoder, f32 on 1: 16 and 8, 4628224 bytes -> 0 and 0, 4628224 bytes, 10 moved
        decoder, bf16 on 1: 16 and 8, 2540800 bytes -> 0 and 0, 2540800 bytes, 10 moved
        decoder, f32 on 2: 16 and 8, 2459904 bytes -> 0 and 0, 2459904 bytes, 12 moved
        decoder, bf16 on 8: 16 and 8, 435712 bytes -> 0 and 0, 435712 bytes, 10 moved
        encoder, f32 on 1: 16 and 8, 4413440 bytes -> 0 and 0, 4413440 bytes, 8 moved
        encoder, bf16 on 1: 16 and 8, 2459648 bytes -> 0 and 0, 2459648 bytes, 8 moved
        encoder, f32 on 2: 16 and 8, 2421504 bytes -> 0 and 0, 2421504 bytes, 11 moved
        encoder, bf16 on 8: 16 and 8, 413696 bytes -> 0 and 0, 413696 bytes, 9 moved
        decoder with slices, f32 on 1: 16 and 8, 4628224 bytes -> 0 and 0, 4628224 bytes, 6 moved
        decoder with slices, bf16 on 1: 16 and 8, 2540800 bytes -> 0 and 0, 2540800 bytes, 6 moved
        decoder with slices, f32 on 2: 16 and 8, 2459392 bytes -> 0 and 0, 2459392 bytes, 6 moved
        decoder with slices, bf16 on 8: 16 and 8, 433152 bytes -> 0 and 0, 433152 bytes, 6 moved
    "#]]
    .assert_eq(&text);
}
