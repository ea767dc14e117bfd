//! Recipes: what they make is what the calls made.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use proptest::prelude::{Just, Strategy as _, any, prop_oneof, proptest};
use soybean_compiler::{
    Argument, Builder, Compiled, Group, METHODS, Objective, Optimizer, Options, Padding, Recipe,
    SearchEffort, SearchRequest, SettingValue, Strategy, Value, operator_samples, optimizer,
};
use soybean_plan::{
    Cluster, CollectiveKind, DType, Device, Init, Level, MeasuredCollective, MeasuredKernel,
    Measurements, NonFinite, Precision,
};
use soybean_zoo::{
    GPT, Model, Transformer, alexnet, cnn5, inception_v3, mlp, resnet20, resnet50, vgg16,
};

use crate::support::{call, samples::argument};

fn recipe(builder: Builder, loss: Value, n_gpus: usize) -> Recipe {
    let options = Options {
        name: "model".to_owned(),
        n_gpus,
        search: Strategy::Data.into(),
        precision: Precision::F32,
        optimizer: Optimizer::default(),
    };
    Recipe { builder, loss: Some(loss), outputs: Vec::new(), options }
}

/// Reads the recipe's text back and compares everything that the two make.
fn check(recipe: &Recipe) {
    let text = recipe.to_string();
    let read: Recipe = text.parse().unwrap();
    assert_eq!(read.to_string(), text);
    assert_eq!(read.builder.graph().to_string(), recipe.builder.graph().to_string());
    assert_eq!(read.builder.sites(), recipe.builder.sites());
    match (recipe.compile(&|| 0.0), read.compile(&|| 0.0)) {
        (Ok(of_calls), Ok(of_text)) => check_compiled(&of_calls, &of_text),
        (of_calls, of_text) => assert_eq!(of_calls.err(), of_text.err(), "{text}"),
    }
}

fn check_compiled(of_calls: &Compiled, of_text: &Compiled) {
    assert!(of_text.program == of_calls.program);
    assert_eq!(of_text.report.text(), of_calls.report.text());
    assert_eq!(of_text.report.json(), of_calls.report.json());
}

fn sum_of(builder: &mut Builder, result: &Argument) -> Option<Value> {
    match result {
        Argument::Tensor(value) => {
            let number = Argument::Tensor(call(builder, "to_f32", &[Argument::Tensor(*value)]));
            Some(call(builder, "sum", &[number, Argument::All]))
        }
        Argument::List(members) => sum_of(builder, members.first()?),
        _ => None,
    }
}

#[test]
fn every_operator_is_made_again() {
    for sample in operator_samples() {
        let mut builder = Builder::new();
        let mut sources = BTreeMap::new();
        let arguments: Vec<Argument> =
            sample.arguments.iter().map(|it| argument(&mut builder, &mut sources, it)).collect();
        let result = builder.call(sample.operator, &arguments).unwrap();
        let x = builder.parameter("x", &[4], Init::Uniform { low: -1.0, high: 0.5 });
        let x = call(&mut builder, "sum", &[Argument::Tensor(x), Argument::All]);
        let loss = match sum_of(&mut builder, &result) {
            Some(sum) => call(&mut builder, "add", &[Argument::Tensor(sum), Argument::Tensor(x)]),
            None => x,
        };
        check(&recipe(builder, loss, 2));
    }
}

#[test]
fn networks_are_made_again() {
    let small = Transformer { n_blocks: 2, ..GPT };
    let models = [
        (mlp(32, &[64, 128, 10]), 8),
        (cnn5(8, 4, 16), 4),
        (alexnet(16), 8),
        (vgg16(8), 4),
        (resnet20(8), 2),
        (resnet50(8), 4),
        (inception_v3(4), 2),
        (small.decoder(), 8),
        (small.encoder(10), 2),
    ];
    for (Model { builder, loss, .. }, n_gpus) in models {
        check(&recipe(builder, loss, n_gpus));
    }
}

fn small(name: &str) -> Recipe {
    let mut builder = Builder::new();
    builder.stand_at("src/main.rs:3", 0);
    let x = builder.input("x", DType::F32, &[8, 4]);
    builder.stand_at("src/main.rs:7", 1);
    let w = builder.parameter(name, &[4, 6], Init::Normal { mean: 0.0, std: 0.5 });
    let h = call(&mut builder, "matmul", &[Argument::Tensor(x), Argument::Tensor(w)]);
    builder.stand_at("", 0);
    let loss = call(&mut builder, "mean", &[Argument::Tensor(h), Argument::All]);
    builder.name_layers(vec![String::new(), "dense".to_owned()]);
    builder.name_tensor("h", h);
    Recipe { outputs: vec![("h".to_owned(), h)], ..recipe(builder, loss, 2) }
}

fn check_text(recipe: &Recipe, expected: Expect) {
    check(recipe);
    expected.assert_eq(&recipe.to_string());
}

#[test]
fn a_recipe_is_a_list_of_calls() {
    check_text(
        &small("dense.w"),
        expect![[r#"
            soybean recipe 1
            model "model"
            gpus 2
            strategy "data"
            precision "f32"
            optimizer "sgd" "momentum" 0.0 "nesterov" false "weight_decay" 0.0
            at "src/main.rs:3" ""
            v0 = input "x" "f32" [8, 4]
            at "src/main.rs:7" "dense"
            v1 = parameter "dense.w" [4, 6] "normal" [0.0, 0.5]
            v2 = call "matmul" [v0, v1]
            at "" ""
            v4 = call "mean" [v2, ..]
            name "h" v2
            output "h" v2
            loss v4
        "#]],
    );
}

/// Returns the error of a recipe in which one text is replaced by another.
fn fault(from: &str, to: &str) -> String {
    let text = small("w").to_string();
    assert!(text.contains(from), "{from} in {text}");
    text.replace(from, to).parse::<Recipe>().err().unwrap().to_string()
}

#[test]
fn faults_say_the_line_and_what_is_wrong() {
    let faults = [
        fault("recipe 1", "recipe 2"),
        fault("[4, 6]", "[4, 0]"),
        fault("\"normal\"", "\"abnormal\""),
        fault("[v0, v1]", "[v0, v7]"),
        fault("[v0, v1]", "[v0, v1"),
        fault("[v0, v1]", "[v0, v0]"),
        fault("\"matmul\"", "\"matmull\""),
        fault("\"data\"", "\"fast\""),
        fault("loss v4\n", ""),
        fault("gpus 2\n", ""),
        fault("\"dense\"", "\"den\\se\""),
    ];
    expect![[r#"
        line 1 of the recipe: expected `soybean recipe 1`
        line 10 of the recipe: a shape has at most 8 dims, none of them empty
        line 10 of the recipe: there is no init `abnormal` of 2 numbers
        line 11 of the recipe: v7 is not made above
        line 11 of the recipe: a list has no end
        line 11 of the recipe: `matmul`: inner dimensions differ: 4 vs 8
        line 11 of the recipe: unknown operator `matmull`
        line 4 of the recipe: unknown strategy `fast`; the strategies are auto, recursive, data, model
        line 16 of the recipe: the loss is missing
        line 16 of the recipe: the number of GPUs is missing
        line 9 of the recipe: a string has a wrong escape"#]].assert_eq(&faults.join("\n"));
}

#[test]
fn names_are_unique() {
    let mut recipe = small("w");
    recipe.builder.buffer("w", &[3], Init::Constant(0.0));
    check(&recipe);
    let faults = recipe.compile(&|| 0.0).unwrap_err();
    let texts: Vec<&str> = faults.iter().map(|it| it.message.as_str()).collect();
    assert_eq!(texts, ["the name `w` stands for two tensors"]);
}

fn numbers() -> impl proptest::strategy::Strategy<Value = f64> {
    prop_oneof![
        any::<f64>().prop_filter("comparable", |it| !it.is_nan()),
        Just(f64::INFINITY),
        Just(-0.0),
        (-9..9_i32).prop_map(f64::from),
    ]
}

/// Returns a machine of two groups of so many GPUs.
fn cluster(n_gpus: usize, speeds: [f64; 8]) -> Cluster {
    let [f32_flops, tf32_flops, bf16_flops, memory, launch, link, latency, other] = speeds;
    let level = |name: &'static str, count| Level {
        name: name.into(),
        count,
        link_bytes_per_second: link,
        gpus_per_link: 1,
        latency_seconds: latency,
    };
    let device = Device {
        name: "a \"device\"".into(),
        f32_flops,
        tf32_flops,
        bf16_flops,
        memory_bytes_per_second: memory,
        memory_bytes: 1 << 34,
        launch_seconds: launch,
        efficiency: 1.0 / (1.0 + other),
    };
    let levels = vec![level("nodes", 2), level("gpus", n_gpus)];
    let measurements = measurements([memory, launch, link, latency]);
    Cluster { name: "two".into(), levels: levels.into(), device, measurements }
}

/// Returns measured times of a kernel and of a collective.
fn measurements(
    [step_seconds, seconds, bytes_per_second, latency_seconds]: [f64; 4],
) -> Measurements {
    let kernel =
        MeasuredKernel { name: "contraction".into(), operations: 1 << 40, bytes: 12, seconds };
    let kind = CollectiveKind::ReduceScatter;
    let collective = MeasuredCollective { kind, n_ranks: 2, latency_seconds, bytes_per_second };
    Measurements {
        step_seconds,
        kernels: vec![kernel].into(),
        collectives: vec![collective].into(),
    }
}

/// Returns the optimizer with all further settings; all parameters match a pattern, or none.
fn with_further(
    (clip_norm, accumulate, ema, non_finite, is_masked): (
        Option<f64>,
        u64,
        Option<f64>,
        usize,
        bool,
    ),
    optimizer: Optimizer,
) -> Optimizer {
    let decays = optimizer.rule.weight_decay() > 0.0;
    let patterns = if is_masked && decays { vec!["*".to_owned()] } else { Vec::new() };
    let non_finite = NonFinite::ALL[non_finite];
    Optimizer {
        clip_norm,
        accumulate,
        ema,
        non_finite,
        no_decay: patterns.clone(),
        groups: groups(&patterns, &optimizer),
        freeze: patterns,
        ..optimizer
    }
}

/// Returns a group for each pattern, with the settings of the optimizer.
fn groups(patterns: &[String], optimizer: &Optimizer) -> Vec<Group> {
    let group = |it: &String| Group::new(it.clone(), optimizer.rule.clone(), 0.3).unwrap();
    patterns.iter().map(group).collect()
}

/// Returns the optimizer with each of its settings at one of these numbers, where it takes that.
fn with_settings(name: &str, momentum: f64, number: f64) -> Optimizer {
    let method = METHODS.iter().find(|it| it.name == name).expect("known");
    let mut settings = Vec::new();
    for setting in method.settings {
        let number = if setting.name == "momentum" { momentum } else { number };
        let value = match setting.default {
            SettingValue::Flag(_) => Argument::Boolean(momentum > 0.5),
            SettingValue::Number(_) => Argument::Float(number),
            SettingValue::Pair(..) => Argument::List(vec![Argument::Float(number); 2]),
        };
        let value = (setting.name.to_owned(), value);
        let settings_of = |it: &(String, Argument)| optimizer(name, std::slice::from_ref(it));
        if settings_of(&value).is_ok() || setting.name == "nesterov" {
            settings.push(value);
        }
    }
    optimizer(name, &settings).expect("each setting is sound")
}

proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn names_numbers_and_options_come_back(
        name in any::<String>(),
        place in any::<String>(),
        (low, high, factor) in (numbers(), numbers(), numbers()),
        (momentum, decay) in (0.0..1.0_f64, 0.0..1.0_f64),
        which in 0..METHODS.len() + 2,
        n_gpus in 1..10_usize,
        strategy in 0..4_usize,
        precision in 0..3_usize,
        (memory, shares, effort, padding, max_work) in (proptest::option::of(1_u64 << 20..1 << 40), any::<bool>(), 0..2_usize, 0..3_usize, 1.0..9.0_f64),
        speeds in proptest::array::uniform8(1e-6..1e15_f64),
        has_cluster in any::<bool>(),
        further in (proptest::option::of(1e-6..1e6_f64), 1..9_u64, proptest::option::of(1e-6..0.999_f64), 0..3_usize, any::<bool>()),
    ) {
        let mut recipe = small(&name);
        recipe.builder.stand_at(&place, 1);
        let w = recipe.builder.parameter(&place, &[3], Init::Uniform { low, high });
        let operands = [Argument::Tensor(w), Argument::Float(factor)];
        let product = call(&mut recipe.builder, "mul", &operands);
        let product = call(&mut recipe.builder, "mean", &[Argument::Tensor(product), Argument::All]);
        let operands = [Argument::Tensor(recipe.loss.unwrap()), Argument::Tensor(product)];
        let loss = call(&mut recipe.builder, "add", &operands);
        recipe.loss = Some(loss);
        recipe.builder.name_tensor(&name, loss);
        recipe.options = Options {
            name,
            n_gpus,
            search: SearchRequest {
                strategy: Strategy::NAMES[strategy].1,
                memory,
                cluster: has_cluster.then(|| cluster(n_gpus, speeds)),
                objective: if has_cluster { Objective::Time } else { Objective::Bytes },
                effort: SearchEffort::NAMES[effort].1,
                padding: Padding::NAMES[padding].1,
                max_work,
                poison: None,
                shares,
                keeps_images_whole: !shares,
            },
            precision: Precision::ALL[precision],
            optimizer: with_further(further, match which {
                0 => with_settings("sgd", momentum, decay),
                1 => optimizer("adam", &[("weight_decay".to_owned(), Argument::Float(decay))]).unwrap(),
                _ => with_settings(METHODS[which - 2].name, momentum, decay),
            }),
        };
        check(&recipe);
    }
}

#[test]
fn recipes_keep_what_is_asked_of_the_search() {
    let (mut builder, mut wanted) = (Builder::new(), Vec::new());
    let x = builder.input("x", DType::F32, &[8, 16]);
    let w = builder.parameter("w", &[16, 16], Init::Constant(0.5));
    let x = call(&mut builder, "matmul", &[Argument::Tensor(x), Argument::Tensor(w)]);
    let loss = call(&mut builder, "mean", &[Argument::Tensor(x), Argument::All]);
    let cluster = soybean_cluster::preset("p2.8xlarge");
    let requests = [
        SearchRequest { memory: Some(1 << 30), ..SearchRequest::default() },
        SearchRequest { shares: false, ..SearchRequest::default() },
        SearchRequest { keeps_images_whole: true, ..SearchRequest::default() },
        SearchRequest { effort: SearchEffort::Thorough, ..SearchRequest::default() },
        SearchRequest { padding: Padding::Off, ..SearchRequest::default() },
        SearchRequest { max_work: 1.2, ..SearchRequest::default() },
        SearchRequest { cluster: cluster.clone(), ..SearchRequest::default() },
        SearchRequest { cluster, objective: Objective::Time, ..SearchRequest::default() },
    ];
    for search in requests {
        let mut recipe = recipe(builder.clone(), loss, 8);
        recipe.options.search = search;
        check(&recipe);
        let read: Recipe = recipe.to_string().parse().unwrap();
        wanted.push(format!("{:?}", recipe.options.search));
        assert_eq!(wanted.last().unwrap(), &format!("{:?}", read.options.search));
    }
    wanted.dedup();
    assert_eq!(wanted.len(), 8);
}
