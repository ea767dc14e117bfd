//! Tests of the reported parallelism of plans.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use soybean_compiler::{Compiled, Options, Recipe, Strategy, optimizer};
use soybean_plan::Precision;
use soybean_zoo::{Model, Transformer, cnn5, perceptron};

fn compiled(strategy: Strategy, n_gpus: usize, optimizer_name: &str, model: Model) -> Compiled {
    let options = Options {
        name: "model".to_owned(),
        n_gpus,
        search: strategy.into(),
        precision: Precision::F32,
        optimizer: optimizer(optimizer_name, &[]).unwrap(),
    };
    let recipe =
        Recipe { builder: model.builder, loss: Some(model.loss), outputs: Vec::new(), options };
    recipe.compile(&|| 0.0).unwrap()
}

fn check(strategy: Strategy, n_gpus: usize, optimizer: &str, model: Model, expected: Expect) {
    let report = compiled(strategy, n_gpus, optimizer, model).report;
    let mut text = String::new();
    for (layer, it) in report.parallelism() {
        let layer = if layer.is_empty() { "-" } else { &layer };
        let _ = writeln!(text, "{layer}: {} | {} | {}", it.forward, it.backward, it.weights);
    }
    expected.assert_eq(&text);
}

#[test]
fn strategies_have_their_names() {
    let model = || perceptron(64, &[32, 48, 16]);
    check(
        Strategy::Data,
        4,
        "sgd",
        model(),
        expect![[r#"
            0: data 4 | data 4 | replicated 4
            -: data 4 | data 4 | 
            1: data 4 | data 4 | replicated 4
        "#]],
    );
    check(
        Strategy::Data,
        4,
        "adam",
        model(),
        expect![[r#"
            0: data 4 | data 4 | sharded state 4
            -: data 4 | data 4 | 
            1: data 4 | data 4 | sharded state 4
        "#]],
    );
    check(
        Strategy::Model,
        4,
        "sgd",
        model(),
        expect![[r#"
            0: column 4 | column 4 | split 4
            -: feature 4 | feature 4 | 
            1: row 4 | row 4 | sharded 4
        "#]],
    );
}

#[test]
fn wide_layers_alternate_between_columns_and_rows() {
    check(
        Strategy::Auto,
        8,
        "sgd",
        perceptron(16, &[512; 4]),
        expect![[r#"
            0: column 8 | column 8 | split 8
            -: feature 8 | feature 8 | 
            1: column 4 x row 2 | column 4 x row 2 | split 8
            2: column 4 x row 2 | column 4 x row 2 | split 8
        "#]],
    );
    check(
        Strategy::Auto,
        6,
        "sgd",
        perceptron(96, &[96, 768, 96]),
        expect![[r#"
            0: column 6 | column 6 | split 6
            -: feature 6, data 6 | feature 6, data 6 | 
            1: row 6 | row 6 | split 6
        "#]],
    );
}

#[test]
fn convolutions_split_images_or_channels() {
    check(
        Strategy::Auto,
        4,
        "sgd",
        cnn5(64, 16, 12),
        expect![[r#"
        0: data 4 | data 4 | sharded 4
        -: data 4 | data 4 | 
        1: data 4 | data 4 | replicated 4
        2: data 4 | data 4 | replicated 4
        3: data 4 | data 4 | replicated 4
        4: data 4 | data 4 | replicated 4
    "#]],
    );
    check(
        Strategy::Auto,
        4,
        "sgd",
        cnn5(4, 256, 4),
        expect![[r#"
        0: column 4 | column 4 | split 4
        -: feature 4, data 2 x feature 2 | feature 4, data 2 x feature 2 | 
        1: column 2 x row 2 | column 2 x row 2 | split 4
        2: column 2 x row 2 | column 2 x row 2 | split 4
        3: column 2 x row 2 | column 2 x row 2 | split 4
        4: column 2 x row 2 | column 2 x row 2 | split 4
    "#]],
    );
}

#[test]
fn transformers_split_texts_heads_and_words() {
    let sizes =
        Transformer { batch: 16, tokens: 64, width: 32, n_heads: 4, n_blocks: 1, n_words: 256 };
    check(
        Strategy::Auto,
        4,
        "adamw",
        sizes.decoder(),
        expect![[r#"
            0: column 4 | column 4 | split 4
            -: data 4 | data 4 | 
            2: data 4 | data 4 | sharded 4
            3: data 4 | data 4 | sharded state 4
            4: data 4 | data 4 | sharded state 4
            5: data 4 | data 4 | sharded state 4
            6: data 4 | data 4 | sharded state 4
            7: data 4 | data 4 | sharded 4
            8: data 4 | data 4 | sharded state 4
            9: data 4 | data 4 | sharded state 4
            10: data 4 | data 4 | sharded 4
            11: data 4 | data 4 | sharded state 4
        "#]],
    );
    let wide =
        Transformer { batch: 1, tokens: 32, width: 512, n_heads: 8, n_blocks: 1, n_words: 4096 };
    check(
        Strategy::Auto,
        4,
        "adamw",
        wide.decoder(),
        expect![[r#"
            0: column 4 | column 4 | split 4
            -: head 4 | head 4 | 
            2: feature 4 | feature 4 | split 4
            3: column 4 | column 4 | split 4
            4: column 4 | column 4 | split 4
            5: column 4 | column 4 | split 4
            6: column 2 x row 2 | column 2 x row 2 | split 4
            7: feature 4 | feature 4 | split 4
            8: column 4 | column 4 | split 4
            9: row 4 | row 4 | split 4
            10: feature 4 | feature 4 | split 4
            11: vocabulary 4 | vocabulary 4 | split 4
        "#]],
    );
}
