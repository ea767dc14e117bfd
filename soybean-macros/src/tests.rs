//! Tests of whole models in the evaluator: parameters or errors from source text.

mod choices;
mod damaged;
mod depth;
mod recipes;

use expect_test::{Expect, expect};

use crate::{
    attribute::Attribute, diagnostic::Diagnostics, evaluate::Evaluator, expand, item::Model, layer,
    layers::Layers,
};

/// Builds the model and compares its parameters and errors.
fn check(attribute: &str, item: &str, expected: Expect) {
    check_in(&expand::Environment::default(), attribute, item, expected);
}

fn check_in(environment: &expand::Environment, attribute: &str, item: &str, expected: Expect) {
    let model = Model::parse(item.parse().unwrap(), vec!["forward".to_owned()]).unwrap();
    let mut diagnostics = Diagnostics::default();
    let attribute = Attribute::parse(attribute.parse().unwrap(), &mut diagnostics);
    let layers = Layers::unknown(&[]);
    let mut evaluator = Evaluator::new(model.items(), &layers);
    evaluator.diagnostics = diagnostics;
    let evaluated = expand::evaluate(&model, &attribute, environment, &mut evaluator);
    let mut text = evaluator.diagnostics.text();
    if let Some(evaluated) = evaluated {
        text += &format!("gpus {}\n", evaluated.settings.n_gpus);
    }
    for (name, parameter) in evaluator.naming.parameters() {
        let shape = parameter.value.map(|it| evaluator.builder.shape(it));
        text += &format!("{name} {}\n", shape.unwrap_or_default());
    }
    expected.assert_eq(&text);
}

fn check_body(body: &str, expected: Expect) {
    let item = format!("pub fn model(x: Tensor<f32, 4, 6>) -> Tensor {{ {body} }}");
    check("gpus = 2", &item, expected);
}

#[test]
fn names_are_paths_of_calls_and_rounds() {
    check(
        "gpus = 8",
        r#"
        mod mlp {
            use soybean::prelude::*;
            const WIDTHS: [usize; 2] = [8, 2 * SMALL];
            const SMALL: usize = { let n: usize = 3; n.max(2) };
            fn dense(x: Tensor, out: usize) -> Tensor {
                x.matmul(param("w", [x.dim(1), out], he_normal())) + param("b", [out], zeros())
            }
            fn block(x: Tensor, last: bool) -> Tensor {
                if last { return dense(x, 1); }
                let mut h = x;
                for (i, width) in WIDTHS.iter().enumerate() { h = dense(h, *width) * (i as f32 + 1.0); }
                h
            }
            pub fn forward(x: Tensor<f32, 4, { SMALL }>) -> Tensor {
                let (mut h, scale) = (block(x, false), 1.0 / (16 as f32).sqrt());
                for _ in 0..2 { h += param("s", [], constant(scale)); }
                block(h, 1 < 2).mean(..)
            }
        }
        "#,
        expect![[r#"
            gpus 8
            block.0.dense.0.w [3, 8]
            block.0.dense.0.b [8]
            block.0.dense.1.w [8, 6]
            block.0.dense.1.b [6]
            s.0 []
            s.1 []
            block.1.dense.w [6, 1]
            block.1.dense.b [1]
        "#]],
    );
}

#[test]
fn constants_are_computed_as_rust_does() {
    check_body(
        r#"
        let a = [7 / 2, 7 % 4, 1 << 3, (2.9_f32 as usize), 10usize.div_ceil(4), 2usize.pow(3)];
        let b = if 0.1 + 0.2 == 0.3 { 1 } else { 5 };
        let (mut c, [d, e]) = (3, [4, 5]);
        c *= d;
        let mut m = [1, 2];
        m[1] = c + e;
        for i in (0..=4).rev().step_by(2) { if i == 0 { break; } c += i; }
        x.sum(..) * param("w", a, zeros()).sum(..) * param("v", [b, c, m[1], m.len()], ones()).sum(..)
        "#,
        expect![[r#"
            gpus 2
            w [3, 3, 8, 2, 3, 8]
            v [5, 18, 17, 2]
        "#]],
    );
}

#[test]
fn one_fault_gives_one_message() {
    check_body(
        r#"
        let w = param("w", [5, 3], he_normal());
        let h = x.matmul(w).relu();
        for _ in 0..3 { let z = h.rellu(); }
        let n = unknown + 1;
        while n { h = h.tanh(); }
        let y = x + n;
        let k = param("w", [1, n], he_normal());
        (h + y).mean(..)
        "#,
        expect![[r#"
            3:25-26: `matmul`: inner dimensions differ: 6 vs 5
              left:  `x` is [4, 6]
              right: `w` is [5, 3]
              help:  [.., m, k] x [k, n]
            4:34-39: unknown operator `rellu`
              help: did you mean `relu`?
            5:16-23: `unknown` is not known when the model is built
              help: the macro sees only the tokens that it annotates: put the const into the annotated `mod`
            6:8-13: `while` is not part of the model language
              help: its number of rounds is not known when the model is built; use `for` over a constant range
            8:22-25: there is already a parameter named `w`
              help: give each `param` of a function a name of its own
            w [5, 3]
            w []
        "#]],
    );
}

#[test]
fn attributes_are_checked() {
    let model = "pub fn model(x: Tensor<f32, 4, 6>) -> Tensor { x.mean(..) }";
    check(
        "gpus = 2 * 4, optimizer = sgd(momentum = 0.9), strategy = \"data\"",
        model,
        expect![[r#"
        gpus 8
    "#]],
    );
    check(
        "gpus = 0, gpu = 8, strategy = \"dta\", strategy = \"auto\"",
        model,
        expect![[r#"
            1:10-13: unknown argument `gpu`
              known: gpus = 8, optimizer = sgd(momentum = 0.9), strategy = "auto", precision = "bf16", memory = "80GiB", cluster = "dgx-h100", objective = "time", search = "thorough", padding = "off", max_work = 1.2, crate = path::of::soybean, mode = "inference", entries = (prefill = 1, decode = 128), freeze = ["encoder.*"], groups = [("*.bias", sgd())], input_gradients = ["x"], clip_norm = 1.0, accumulate = 4, ema = 0.999, non_finite = "skip"
              help:  did you mean `gpus`?
            1:37-45: `strategy` is given twice
            1:7-8: `gpus` must be an integer from 1 to 4096, found 0
            1:30-35: `strategy` must be one of "auto", "recursive", "data", "model", found "dta"
              help: did you mean "data"?
        "#]],
    );
    check(
        "gpus = 8, memory = \"80gb\"",
        model,
        expect![[r#"
            1:19-25: `memory` must be a size of memory in a string, such as "80GiB": unknown unit `gb`; the units are B, kB, MB, GB, TB, KiB, MiB, GiB, TiB
        "#]],
    );
    check(
        "gpus = 8, memory = 80 << 30",
        model,
        expect![[r#"
            1:19-27: `memory` must be a size of memory in a string, such as "80GiB": found 80 << 30
        "#]],
    );
    check(
        "optimizer = sgd(momentun = 0.9)",
        model,
        expect![[r#"
            1:0-31: the number of GPUs is missing
              help: write `#[soybean::model(gpus = 8)]`, or set the environment variable SOYBEAN_GPUS
            1:16-30: `sgd` has no setting `momentun`
              help: its settings are momentum, nesterov, weight_decay, no_decay
        "#]],
    );
    check(
        "gpus(8)",
        model,
        expect![[r#"
            1:0-4: the arguments are written `gpus = ..`
        "#]],
    );
}

#[test]
fn what_goes_on_around_updates_is_checked() {
    let model = "pub fn model(x: Tensor<f32, 4, 6>) -> Tensor { x.mean(..) }";
    check(
        "gpus = 8, clip_norm = -1.0, accumulate = N, ema = \"0.9\", non_finite = skip, optimizer = sgd(no_decay = [1])",
        model,
        expect![[r#"
            1:92-106: `sgd`: `no_decay` must be a list of strings, which are names of parameters with `*` for any letters; found an integer
              help: write `no_decay = ["*.b", "embed*"]`
            1:22-26: `clip_norm` must be a number above 0 in single precision, so from 1e-45 to 3.4e38, found -1.0
            1:41-42: `N` is not known when the model is built
              help: the macro sees only the tokens that it annotates: put the const into the annotated `mod`
            1:50-55: `ema` must be a number above 0 and below 1 in single precision, found a string
            1:70-74: `non_finite` must be one of "stop", "skip", "scale", found skip
              help: did you mean "skip"?
        "#]],
    );
}

#[test]
fn the_environment_overrides_the_number_of_gpus() {
    let model = "pub fn model(x: Tensor<f32, 4, 6>) -> Tensor { x.mean(..) }";
    let with = |gpus: &str| expand::Environment {
        gpus: Some(gpus.to_owned()),
        ..expand::Environment::default()
    };
    check_in(
        &with("4"),
        "gpus = 8",
        model,
        expect![[r#"
        gpus 4
    "#]],
    );
    check_in(
        &with(" 6\n"),
        "",
        model,
        expect![[r#"
        gpus 6
    "#]],
    );
    check_in(
        &with("many"),
        "gpus = 8",
        model,
        expect![[r#"
        1:7-8: the environment variable SOYBEAN_GPUS, which overrides `gpus`, must be an integer from 1 to 4096, found "many"
    "#]],
    );
    check_in(
        &with("0"),
        "",
        model,
        expect![[r#"
        1:0-0: the environment variable SOYBEAN_GPUS, which overrides `gpus`, must be an integer from 1 to 4096, found "0"
    "#]],
    );
}

#[test]
fn editors_get_the_function_and_stubs() {
    let environment = expand::Environment { is_editor: true, ..expand::Environment::default() };
    let item = "fn model(x: Tensor<f32, 4, 6>, y: Tensor<i32, 4>) -> Tensor { x.rellu() }";
    let parse = |text: &str| text.parse::<proc_macro2::TokenStream>().unwrap();
    let expansion = expand::expand(parse(""), parse(item), &environment).to_string();
    for part in [
        "fn model(x: Tensor, y: Tensor) -> Tensor { x.rellu() }",
        "pub y : & 'a [:: core :: primitive :: i32]",
        "type Trainer = :: soybean :: Trainer < Network >",
    ] {
        let part = parse(part).to_string();
        assert!(
            expansion.replace(' ', "").contains(&part.replace(' ', "")),
            "{part} in {expansion}"
        );
    }
    assert!(!expansion.contains("compile_error"));
}

#[test]
fn editors_get_layers_without_the_relay() {
    let environment = expand::Environment { is_editor: true, ..expand::Environment::default() };
    let parse = |text: &str| text.parse::<proc_macro2::TokenStream>().unwrap();
    let item = parse("pub fn layer(x: Tensor<f32, ROWS>) -> Tensor { other(x) }");
    let expansion = layer::expand(crate::kind::Kind::Layer, parse(""), item.clone(), &environment);
    let expected = parse("pub fn layer(x: Tensor) -> Tensor { other(x) }");
    assert_eq!(expansion.to_string(), expected.to_string());
    let expansion = expand::expand(parse("gpus = 2"), item, &environment).to_string();
    assert!(!expansion.contains("__continue"), "{expansion}");
}

#[test]
fn models_without_layers_need_no_relay() {
    let environment = expand::Environment::default();
    let parse = |text: &str| text.parse::<proc_macro2::TokenStream>().unwrap();
    let relays = |item: &str| {
        let expansion = expand::expand(parse("gpus = 2"), parse(item), &environment);
        expansion.to_string().contains("__continue")
    };
    assert!(!relays(
        "mod m { use soybean::prelude::*; const N: usize = 6; fn f(x: Tensor) -> Tensor { x.relu() }
         pub fn forward(x: Tensor<f32, 4, N>) -> Tensor { f(x * param(\"w\", [N], normal(0.1))).mean(..) } }"
    ));
    assert!(relays(
        "mod m { use super::f; use soybean::prelude::*; pub fn forward(x: Tensor<f32, 4, 6>) -> Tensor { f(x).mean(..) } }"
    ));
}

#[test]
fn expansions_differ_in_the_time_of_the_search_only() {
    let item = r#"
        pub mod mlp {
            use soybean::prelude::*;
            pub fn forward(x: Tensor<f32, 8, 6>, y: Tensor<i32, 8>) -> Tensor {
                let mut h = x;
                for _ in 0..3 { h = h.matmul(param("w", [6, 6], he_normal())).tanh(); }
                h.cross_entropy(y)
            }
        }
    "#;
    let environment = expand::Environment::default();
    let parse = |text: &str| text.parse::<proc_macro2::TokenStream>().unwrap();
    let expand = || expand::expand(parse("gpus = 4"), parse(item), &environment).to_string();
    let without_plan = |text: String| {
        let (before, rest) = text.split_once("const PLAN : Plan").unwrap();
        let (_, after) = rest.split_once("static TABLES").unwrap();
        format!("{before}{after}")
    };
    assert_eq!(without_plan(expand()), without_plan(expand()));
}

#[test]
fn clusters_are_files_beside_the_manifest() {
    let model = "fn model(x: Tensor<f32, 4, 6>) -> Tensor { x.mean(..) }";
    let folder = Some([env!("CARGO_MANIFEST_DIR"), "..", "tests", "machines"].iter().collect());
    let here = expand::Environment { folder, ..expand::Environment::default() };
    let nowhere = expand::Environment::default();
    check_in(
        &here,
        "gpus = 2, cluster = \"abacus.toml\"",
        model,
        expect![[r#"
        gpus 2
    "#]],
    );
    check_in(
        &here,
        "gpus = 2, cluster = \"broken.toml\"",
        model,
        expect![[r#"
        1:20-33: broken.toml:5: `f32` must be a speed of arithmetic above 0 such as "67 TFLOP/s", found "ten"
    "#]],
    );
    check_in(
        &nowhere,
        "gpus = 2, cluster = \"abacus.toml\"",
        model,
        expect![[r#"
        1:20-33: `abacus.toml` is relative to the crate's manifest, but there is none
          help: build with cargo, which sets CARGO_MANIFEST_DIR
    "#]],
    );
    check_in(
        &nowhere,
        "gpus = 2, cluster = \"dgx-h100\"",
        model,
        expect![[r#"
        gpus 2
    "#]],
    );
}

#[test]
fn sizes_are_limited_at_the_tensor() {
    check(
        "gpus = 2",
        r#"
        pub fn model(
            x: Tensor<f32, 4294967296, 4294967296>,
            y: Tensor<f32, { 1 << 60 }>,
            z: Tensor<f32, 9223372036854775808>,
            v: Tensor<f32, 4>,
        ) -> Tensor {
            let w = param("w", [1 << 30, 1 << 30], he_normal());
            let u = param("u", [4, { -(-9223372036854775807 - 1) }], zeros());
            v.expand([1 << 30, 1 << 30, 4]).mean(..)
        }
        "#,
        expect![[r#"
            3:15-50: a dim has at most 2147483647 elements, found 4294967296
            4:15-39: a dim has at most 2147483647 elements, found 1152921504606846976
            5:27-46: a model's literals are numbers of up to 64 bits, bools and strings
            8:31-49: a tensor has at most 17592186044416 elements, found [1073741824, 1073741824]
            9:37-64: -(-9223372036854775808) does not fit into 64 bits
            10:14-20: `expand`: a tensor has at most 17592186044416 elements, found [1073741824, 1073741824, 4]
              operand: `v` is [4]
            w []
            u []
        "#]],
    );
}
