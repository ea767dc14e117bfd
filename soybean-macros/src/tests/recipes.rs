//! Tests of recipes: the builder's calls as text, from which the same program is compiled again.

use expect_test::expect;

use crate::{
    attribute::Attribute, diagnostic::Diagnostics, evaluate::Evaluator, expand, item::Model,
    layers::Layers,
};

/// Returns the recipe of a model, after checking that it gives the same program.
fn recipe(attribute: &str, item: &str) -> String {
    let mut diagnostics = Diagnostics::default();
    let attribute = Attribute::parse(attribute.parse().unwrap(), &mut diagnostics);
    let model = Model::parse(item.parse().unwrap(), attribute.entry_names()).unwrap();
    let layers = Layers::unknown(&[]);
    let mut evaluator = Evaluator::new(model.items(), &layers);
    let environment = expand::Environment::default();
    let success = expand::build(&model, &attribute, &environment, &mut evaluator).unwrap();
    let again: soybean_compiler::Recipe = success.recipe.parse().unwrap();
    assert!(again.compile(&|| 0.0).unwrap().program == success.compiled.program);
    // Parsed strings are numbered.
    let file = success.recipe.split_once("at \"").and_then(|(_, rest)| rest.split_once(':'));
    success.recipe.replace(file.unwrap().0, "model.rs")
}

/// Compares the recipe of a model whose layers and tensors have names of all kinds.
const NAMED: &str = r#"
        pub mod mlp { use soybean::prelude::*;
            fn dense(x: Tensor, out: usize) -> Tensor {
                let sum = x.matmul(param("w", [x.dim(1), out], normal(0.5)));
                sum + param("b", [out], zeros())
            }
            pub fn forward(x: Tensor<f32, 8, 6>, y: Tensor<i32, 8>) -> (Tensor, Tensor) {
                let mut h = x;
                for _ in 0..2 { h = dense(h, 6).tanh(); }
                let (first, rest) = (h * 2.0, [h, h + 1.0]);
                let h = first + rest[1];
                (h.cross_entropy(y), h)
            }
        }
    "#;

#[test]
fn recipes_name_layers_and_tensors() {
    expect![[r#"
        soybean recipe 1
        model "mlp"
        gpus 2
        strategy "auto"
        precision "f32"
        optimizer "adam" "betas" [0.9, 0.999] "eps" 1e-8 "weight_decay" 0.0
        at "model.rs:7" ""
        v0 = input "x" "f32" [8, 6]
        v1 = input "y" "i32" [8]
        at "model.rs:9 via :4" "dense.0"
        6 = call "dim" [v0, 1]
        v2 = parameter "dense.0.w" [6, 6] "normal" [0.0, 0.5]
        v3 = call "matmul" [v0, v2]
        at "model.rs:9 via :5" "dense.0"
        v4 = parameter "dense.0.b" [6] "constant" [0.0]
        v5 = call "add" [v3, v4]
        at "model.rs:9" ""
        v6 = call "tanh" [v5]
        at "model.rs:9 via :4" "dense.1"
        6 = call "dim" [v6, 1]
        v7 = parameter "dense.1.w" [6, 6] "normal" [0.0, 0.5]
        v8 = call "matmul" [v6, v7]
        at "model.rs:9 via :5" "dense.1"
        v9 = parameter "dense.1.b" [6] "constant" [0.0]
        v10 = call "add" [v8, v9]
        at "model.rs:9" ""
        v11 = call "tanh" [v10]
        at "model.rs:10" ""
        v12 = call "mul" [v11, 2.0]
        v13 = call "add" [v11, 1.0]
        at "model.rs:11" ""
        v14 = call "add" [v12, v13]
        at "model.rs:12" ""
        v24 = call "cross_entropy" [v14, v1]
        name "x" v0
        name "y" v1
        name "h" v0
        name "dense.0.x" v0
        name "dense.0.sum" v3
        name "h.0" v6
        name "dense.1.x" v6
        name "dense.1.sum" v8
        name "h.1" v11
        name "first" v12
        name "rest[0]" v11
        name "rest[1]" v13
        name "h#2" v14
        output "h" v14
        loss v24
    "#]]
    .assert_eq(&recipe("gpus = 2, optimizer = adam()", NAMED));
}

#[test]
fn recipes_say_how_parameters_are_updated() {
    let text = recipe(
        "gpus = 2, optimizer = adamw(no_decay = [\"*.b\", \"dense.1*\"]), clip_norm = 1, accumulate = 2 * 2, ema = 0.999, non_finite = \"scale\"",
        NAMED,
    );
    let lines: Vec<&str> = text.lines().skip(5).take(5).collect();
    expect![[r#"
        optimizer "adamw" "betas" [0.9, 0.999] "eps" 1e-8 "weight_decay" 0.01 "no_decay" ["*.b", "dense.1*"]
        clip_norm 1.0
        accumulate 4
        ema 0.999
        non_finite "scale"
    "#]].assert_eq(&(lines.join("\n") + "\n"));
}
