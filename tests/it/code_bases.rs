//! Models in crates with other names, editions and preludes than those of the examples.

use crate::rustc::{Compiled, Crate};

const MODEL: &str = "
    #[LIBRARY::model(gpus = 2, optimizer = adam())]
    pub mod classifier {
        use LIBRARY::{nn, prelude::*};
        pub const BATCH: usize = 4;
        pub fn forward(x: Tensor<f32, BATCH, 3>, y: Tensor<i32, 4>) -> (Tensor, Tensor) {
            let logits = nn::linear(LIBRARY::nn::linear(x, 5).relu(), 2);
            (logits.cross_entropy(y), logits)
        }
    }
    #[LIBRARY::model(gpus = 2)]
    pub fn small(x: LIBRARY::Tensor<f32, 4, 3>) -> LIBRARY::Tensor {
        LIBRARY::nn::linear(x, 2).mean(..) * LIBRARY::prelude::param(\"s\", [], LIBRARY::prelude::ones())
    }
    pub fn total() -> u64 { classifier::Trainer::PLAN.bytes_total + small::Trainer::PLAN.bytes_total }
    pub fn name<N: LIBRARY::Network>() -> String { N::model().tables().name.to_string() }
    pub fn names() -> [String; 2] { [name::<classifier::Network>(), name::<small::Network>()] }
";

const LAYER: &str = "
    #[LIBRARY::constant]
    pub const UNITS: usize = 3;
    #[LIBRARY::layer]
    pub fn block(x: LIBRARY::Tensor, width: usize) -> LIBRARY::Tensor {
        let w = LIBRARY::prelude::param(\"w\", [UNITS, x.dim(1)], LIBRARY::prelude::zeros());
        LIBRARY::nn::linear(x.matmul(w.transpose()), width)
    }
";

const USER: &str = "
    #[LIBRARY::model(gpus = 2)]
    pub mod user {
        use LIBRARY::{nn, prelude::*};
        use layers::block;
        pub fn forward(x: Tensor<f32, 4, 3>, y: Tensor<i32, 4>) -> Tensor {
            nn::linear(block(x, layers::UNITS), 2).cross_entropy(y)
        }
    }
";

fn with(source: &str, library: &str) -> String {
    source.replace("LIBRARY", library)
}

fn manifest(dependency: &str) -> String {
    format!("[package]\nname = \"a\"\nedition = \"2024\"\n[dependencies]\n{dependency}\n")
}

/// Compiles a crate, which must have no messages.
fn silent(it: &Crate<'_>) -> Compiled {
    let compiled = it.compile();
    assert!(compiled.messages.is_empty(), "{:#?}", compiled.messages);
    compiled
}

// Guards: a library with another name in the manifest, also that of a crate with layers.
#[test]
fn the_library_has_another_name() {
    let renamed = manifest("sb = { package = \"soybean\", version = \"0.1\" }");
    let plain = manifest("soybean = \"0.1\"");
    silent(&Crate::new("renamed", &with(MODEL, "sb")).manifest(&renamed).library("sb"));
    let both = [("sb", &renamed), ("soybean", &plain)];
    for (of_layers, manifest) in both {
        let source = with(LAYER, of_layers);
        let layers = Crate::new("layers", &source).manifest(manifest).library(of_layers);
        let layers = silent(&layers);
        for (of_user, manifest) in both {
            let source = with(USER, of_user);
            let user = Crate::new("user", &source).manifest(manifest).library(of_user);
            silent(&user.uses(&layers));
        }
    }
}

// Guards: a library that another crate re-exports, found by the attribute's name or its argument.
#[test]
fn the_library_is_re_exported() {
    let source = format!("pub use soybean;\n{}", with(LAYER, "soybean"));
    let layers = silent(&Crate::new("layers_of_wrapper", &source));
    let none = manifest("layers_of_wrapper = \"0.1\"");
    let named = |source: &str| source.replace("layers::", "layers_of_wrapper::");
    let found = format!(
        "use layers_of_wrapper::soybean;\n{}{}",
        with(MODEL, "soybean")
            .replace("use soybean::", "use layers_of_wrapper::soybean::")
            .replace("LIBRARY::nn::linear(x, 5)", "nn::linear(x, 5)")
            .replace("(soybean::nn::linear(x, 5)", "(nn::linear(x, 5)"),
        named(&with(USER, "soybean").replace("use soybean::", "use layers_of_wrapper::soybean::")),
    );
    let wrapper = |name, source| Crate::new(name, source).manifest(&none).library("unused_name");
    silent(&wrapper("found_by_name", &found).uses(&layers));
    let path = "layers_of_wrapper::soybean";
    let stated = with(&format!("{MODEL}{}", named(USER)), path);
    let stated =
        stated.replace(&format!("#[{path}::model("), &format!("#[{path}::model(crate = {path}, "));
    silent(&wrapper("stated", &stated).uses(&layers));
    let layer = with(LAYER, path);
    let layer = layer.replace("::layer]", &format!("::layer(crate = {path})]"));
    let layer = layer.replace("::constant]", &format!("::constant(crate = {path})]"));
    silent(&wrapper("layer_by_path", &layer).uses(&layers));
}

const OPERATOR: &str = "
    #[soybean::operator(\"i->i\", gradient = doubled_gradient)]
    pub fn doubled<F: soybean::operator::Float>(
        x: soybean::operator::TensorRef<'_, F>,
        mut result: soybean::operator::TensorMut<'_, F>,
    ) {
        let _ = (x, &mut result);
    }
    #[soybean::layer]
    pub fn doubled_gradient(
        x: soybean::Tensor, result: soybean::Tensor, gradient: soybean::Tensor,
    ) -> soybean::Tensor {
        let _ = (x, result);
        gradient * 2.0
    }
    #[soybean::model(gpus = 2)]
    pub mod with_operator {
        use soybean::prelude::*;
        use super::doubled;
        pub fn forward(x: Tensor<f32, 4>) -> Tensor {
            (doubled(x) * param(\"w\", [4], ones())).sum(..)
        }
    }
";

// Guards: crates of all editions, with layers and operators.
#[test]
fn all_editions_have_models() {
    for edition in ["2015", "2018", "2021", "2024"] {
        let root = if edition == "2015" { "extern crate soybean;" } else { "" };
        let source = format!("{root}\n{}{OPERATOR}", with(MODEL, "soybean"));
        let manifest = manifest("soybean = \"0.1\"").replace("2024", edition);
        let name = format!("edition_{edition}");
        silent(&Crate::new(&name, &source).edition(edition).manifest(&manifest));
    }
}

/// Macros of the standard library that a crate can define itself.
const MACROS: &str = "assert assert_eq assert_ne cfg column compile_error concat debug_assert eprintln
    env file format include_bytes include_str line matches module_path option_env panic print println
    stringify thread_local todo unimplemented unreachable vec write writeln";

// Guards: generated code that names macros or the prelude without their paths.
#[test]
fn nothing_of_the_prelude_is_needed() {
    let macros = MACROS.split_whitespace();
    let macros: String = macros
        .map(|it| format!("macro_rules! {it} {{ ($($_:tt)*) => {{ shadowed }}; }}\n"))
        .collect();
    let types =
        "Box Clone Copy Debug Default Drop Err FnOnce From Into Iterator None Ok Option Result
        Send Some String Sync Vec";
    let types: String = types.split_whitespace().map(|it| format!("pub struct {it};\n")).collect();
    let names = "pub mod core {}\npub mod std {}\npub mod soybeans {}\n";
    let model = with(MODEL, "::soybean")
        .replace("pub fn name", "pub fn named")
        .split("pub fn total")
        .next()
        .unwrap()
        .to_owned();
    let operator = OPERATOR.replace("soybean::", "::soybean::");
    let source = format!(
        "#![no_implicit_prelude]\n#![allow(unused_macros, dead_code)]\n{macros}{types}{names}{model}{operator}"
    );
    silent(&Crate::new("no_prelude", &source));
}

// Guards: raw names, which are equal to plain ones.
#[test]
fn names_can_be_raw() {
    let source = "
        pub mod layers {
            #[soybean::constant] pub const r#MATCH: usize = 3;
            #[allow(non_upper_case_globals)]
            #[soybean::constant] pub const r#match: usize = 5;
            #[soybean::layer] pub fn r#loop(x: soybean::Tensor) -> soybean::Tensor { x.relu() }
        }
        #[soybean::model(gpus = 2)]
        pub mod r#type {
            use soybean::{nn, prelude::*};
            use super::layers::{MATCH, r#loop};
            const r#WIDTH: usize = 4;
            const HEIGHT: usize = r#WIDTH;
            pub fn forward(r#fn: Tensor<f32, r#HEIGHT, 3>) -> Tensor {
                let r#x = r#loop(nn::linear(r#fn, r#MATCH + WIDTH));
                x.mean(..) * param(\"w\", [], ones())
            }
        }
        pub fn batch(x: &[f32]) -> r#type::Batch<'_> { r#type::Batch { r#fn: x } }
    ";
    silent(&Crate::new("raw", source));
}

// Guards: brackets that overflowed the parser's stack are an error.
#[test]
fn deep_brackets_are_one_error() {
    let depth = 1_000;
    for (open, close) in [("(", ")"), ("-", "")] {
        let value = format!("{}x{}", open.repeat(depth), close.repeat(depth));
        let source = format!(
            "#[soybean::model(gpus = 2)]\npub mod m {{ use soybean::{{nn, prelude::*}};\n\
             pub fn forward(x: Tensor<f32, 4, 3>) -> Tensor {{ nn::linear({value}, 2).mean(..) }} }}\n\
             #[soybean::layer]\npub fn layer(x: soybean::Tensor) -> soybean::Tensor {{ {value} }}"
        );
        let compiled = Crate::new("deep", &source).compile();
        let texts: Vec<_> = compiled.messages.iter().map(|it| it.text.as_str()).collect();
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(texts.iter().all(|it| it.contains("nest at most 100 deep")), "{texts:?}");
    }
}
