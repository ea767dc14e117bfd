//! Plans costed independently from their JSON, by counting elements one by one.

use std::collections::BTreeSet;

use serde_json::Value;
use soybean_compiler::{
    Argument, Builder, Compiled, Optimizer, Options, Strategy, compile, optimizer, tiling::route,
};
use soybean_plan::{Combine, DType, Mesh, Placement, Precision, Shape, Tile, Tiling};

use crate::{
    sliding_windows::one_gradient,
    support::{
        self,
        random_networks::{Sizes, image_model, random_model, random_predictor},
        recost::{Conversion, Halo, fewest_bytes, implied, listed},
    },
};

/// Returns the JSON of a plan, or `None` if there are too many ranks for the network.
fn plan(
    builder: Builder,
    loss: soybean_compiler::Value,
    n_gpus: usize,
    strategy: Strategy,
    precision: Precision,
) -> Option<Value> {
    let compiled = compiled(builder, loss, &[], n_gpus, strategy, precision)?;
    Some(serde_json::from_str(&compiled.report.json()).unwrap())
}

fn compiled(
    builder: Builder,
    loss: impl Into<Option<soybean_compiler::Value>>,
    outputs: &[(String, soybean_compiler::Value)],
    n_gpus: usize,
    strategy: Strategy,
    precision: Precision,
) -> Option<Compiled> {
    let options = Options { precision, ..options(n_gpus, strategy) };
    compile(builder, loss, outputs, &options, &|| 0.0).ok()
}

fn options(n_gpus: usize, strategy: Strategy) -> Options {
    Options {
        name: "model".to_owned(),
        n_gpus,
        search: strategy.into(),
        precision: Precision::F32,
        optimizer: optimizer("sgd", &[]).unwrap(),
    }
}

/// Checks that each conversion of a plan moves what counting gives. Returns the number of
/// conversions.
fn check(plan: &Value) -> usize {
    let mesh = Mesh::new(usize::try_from(plan["gpus"].as_u64().unwrap()).unwrap());
    let listed = listed(plan);
    for conversion in &listed {
        check_conversion(&mesh, conversion);
    }
    let total: u64 = listed.iter().map(|it| it.bytes).sum();
    assert_eq!(plan["bytes_total"], total, "the total is the sum of conversions");
    let per_axis = plan["bytes_per_axis"].as_array().unwrap().iter();
    assert_eq!(per_axis.map(|it| it.as_u64().unwrap()).sum::<u64>(), total);
    let told: Vec<_> = listed.into_iter().map(|it| (it.tensor, it.from, it.to, it.halo)).collect();
    assert_eq!(told, implied(plan), "conversions are those that forms and tilings need");
    told.len()
}

/// Checks a conversion. If every rank can have an equal part, it moves no more than necessary.
/// Otherwise it may need a detour, and moves the sum of its steps.
fn check_conversion(mesh: &Mesh, it: &Conversion) {
    let fewest = it.times * fewest_bytes(mesh, it);
    let divides = |dim: &usize| dim.is_multiple_of(mesh.n_ranks());
    if it.shape.iter().all(divides) {
        assert_eq!(it.bytes, fewest, "{mesh}: {it:?}");
    }
    assert!(it.bytes >= fewest, "{mesh}: {it:?} moves at least {fewest} bytes");
    let without = Conversion { halo: Halo::new(), ..it.clone() };
    let of_halo = fewest_bytes(mesh, it) - fewest_bytes(mesh, &without);
    let of_steps: u64 = steps(mesh, &without).iter().map(|it| fewest_bytes(mesh, it)).sum();
    assert_eq!(it.bytes, it.times * (of_steps + of_halo), "{mesh}: {it:?}");
}

/// Returns the collectives of a conversion, each as a conversion of its own.
fn steps(mesh: &Mesh, it: &Conversion) -> Vec<Conversion> {
    let (from, to) = (parsed(&it.from), parsed(&it.to));
    let texts = |tiling: &Tiling| tiling.placements().iter().map(ToString::to_string).collect();
    route(mesh, Shape::new(&it.shape), DType::F32, Combine::Sum, from, to)
        .iter()
        .map(|step| Conversion { from: texts(&step.from), to: texts(&step.to), ..it.clone() })
        .collect()
}

fn parsed(texts: &[String]) -> Tiling {
    let placement = |text: &String| match text.as_str() {
        "r" => Placement::Replicated,
        "red" => Placement::Partial,
        split => Placement::Split(split[1..].parse().unwrap()),
    };
    Tiling::new(&texts.iter().map(placement).collect::<Vec<_>>())
}

/// Returns all tilings of a tensor with the given placements in addition to splits.
fn tilings(mesh: &Mesh, shape: &[usize], others: &[Placement]) -> Vec<Tiling> {
    let splits = (0..u8::try_from(shape.len()).unwrap()).map(Placement::Split);
    let choices: Vec<Placement> = splits.chain(others.iter().copied()).collect();
    let mut tilings = vec![Tiling::replicated(mesh.n_axes())];
    for axis in 0..mesh.n_axes() {
        let with = |it: &Tiling| choices.iter().map(|&to| it.with(axis, to)).collect::<Vec<_>>();
        tilings = tilings.iter().flat_map(with).collect();
    }
    tilings.retain(|&tiling| Tile::new(Shape::new(shape), tiling).is_legal(mesh));
    tilings
}

/// Checks every conversion of a tensor of this shape, including those of no plan. Returns their
/// number.
fn check_all_conversions(n_ranks: usize, shape: &[usize]) -> usize {
    use Placement::{Partial, Replicated};
    let mesh = Mesh::new(n_ranks);
    let texts = |it: &Tiling| it.placements().iter().map(ToString::to_string).collect();
    let all = tilings(&mesh, shape, &[Replicated, Partial]);
    let mut n_conversions = 0;
    for &from in &all {
        for &to in all.iter().filter(|&&to| to != from) {
            let steps = route(&mesh, Shape::new(shape), DType::F32, Combine::Sum, from, to);
            check_conversion(
                &mesh,
                &Conversion {
                    tensor: 0,
                    shape: shape.to_vec(),
                    element_bytes: 4,
                    from: texts(&from),
                    to: texts(&to),
                    times: 1,
                    halo: Halo::new(),
                    bytes: steps.iter().map(|it| it.bytes(&mesh)).sum(),
                },
            );
            n_conversions += 1;
        }
    }
    n_conversions
}

#[test]
fn all_conversions_of_tensors_that_the_ranks_divide() {
    let cases =
        [(2, [2, 4], 12), (3, [3, 3], 12), (4, [4, 4], 240), (6, [6, 6], 240), (8, [8, 8], 4032)];
    for (n_ranks, shape, n_conversions) in cases {
        assert_eq!(check_all_conversions(n_ranks, &shape), n_conversions, "{n_ranks} ranks");
    }
}

/// Axes share the factors of an extent, or cannot split it at all.
#[test]
fn all_conversions_of_tensors_that_lack_factors() {
    let cases: [(usize, &[usize]); 7] = [
        (4, &[6, 4]),
        (4, &[2, 2, 2]),
        (6, &[2, 9]),
        (8, &[4, 2]),
        (8, &[12, 3]),
        (9, &[3, 6]),
        (12, &[6, 2]),
    ];
    for (n_ranks, shape) in cases {
        assert!(check_all_conversions(n_ranks, shape) > 0, "{shape:?} on {n_ranks} ranks");
    }
}

/// Checks the plans of random networks under every strategy. Returns the number of conversions.
fn check_random(n_gpus: usize, extents: &'static [usize], precision: Precision) -> usize {
    let mut n_conversions = 0;
    for (seed, n_operators) in (0..12).flat_map(|seed| (1..=4).map(move |it| (seed, it))) {
        let sizes = Sizes { n_operators, extents, is_trained: seed % 4 != 0 };
        for (_, strategy) in Strategy::NAMES {
            let (builder, loss) = random_model(seed, &sizes);
            let plan = plan(builder, loss, n_gpus, strategy, precision);
            n_conversions += plan.map_or(0, |it| check(&it));
        }
    }
    n_conversions
}

#[test]
fn conversions_of_random_networks_in_inference() {
    let mut n_conversions = 0;
    for (n_gpus, extents) in [(2, &[2, 3, 5, 6][..]), (6, &[2, 3, 6, 9]), (8, &[2, 4, 6, 8])] {
        let sizes = Sizes { n_operators: 4, extents, is_trained: true };
        for (seed, (_, strategy)) in (0..12).flat_map(|seed| Strategy::NAMES.map(|it| (seed, it))) {
            let (builder, outputs) = random_predictor(seed, &sizes);
            let compiled = compiled(builder, None, &outputs, n_gpus, strategy, Precision::F32);
            let Some(compiled) = compiled else { continue };
            let plan: Value = serde_json::from_str(&compiled.report.json()).unwrap();
            assert_eq!(plan["mode"], "inference");
            n_conversions += check(&plan);
        }
    }
    assert!(n_conversions > 150, "{n_conversions}");
}

#[test]
fn conversions_of_random_networks() {
    for (n_gpus, extents) in [
        (2, &[2, 3, 4, 6][..]),
        (3, &[2, 3, 6, 9]),
        (4, &[2, 4, 6, 8]),
        (6, &[2, 3, 6, 12]),
        (8, &[2, 4, 8, 12]),
    ] {
        for precision in [Precision::F32, Precision::Bf16] {
            let n_conversions = check_random(n_gpus, extents, precision);
            assert!(n_conversions > 500, "{n_gpus} ranks: {n_conversions}");
        }
    }
}

#[test]
fn conversions_of_a_perceptron() {
    for n_gpus in [2, 4, 6, 8, 12, 16] {
        for (_, strategy) in Strategy::NAMES {
            let (builder, loss, _) = support::classifier(16, &[8, 16, 24, 8], true);
            let plan = plan(builder, loss, n_gpus, strategy, Precision::F32).unwrap();
            assert!(check(&plan) > 0);
        }
    }
}

/// Ranks sum the squares of their parts of gradients, and divide the sum where they have equal
/// parts. Only one number is communicated.
#[test]
fn conversions_of_clipped_gradients() {
    let mut n_shared = 0;
    for n_gpus in [2, 3, 4, 6, 8] {
        for (_, strategy) in Strategy::NAMES {
            let (builder, loss, _) = support::classifier(24, &[8, 12, 10, 6], true);
            let optimizer = Optimizer { clip_norm: Some(1.0), ..Optimizer::default() };
            let options = Options { optimizer, ..options(n_gpus, strategy) };
            let compiled = compile(builder, loss, &[], &options, &|| 0.0).unwrap();
            let plan: Value = serde_json::from_str(&compiled.report.json()).unwrap();
            check(&plan);
            let listed = listed(&plan);
            let of_sums = listed.iter().filter(|it| named(&plan, it.tensor).contains("square_sum"));
            let (moved, kept): (Vec<_>, Vec<_>) = of_sums.partition(|it| it.bytes > 0);
            let moved: Vec<&str> = moved.iter().map(|it| named(&plan, it.tensor)).collect();
            assert_eq!(moved, ["gradient_square_sum"], "{n_gpus} ranks, {strategy:?}");
            n_shared += kept.iter().filter(|it| it.from.contains(&"r".to_owned())).count();
        }
    }
    assert!(n_shared > 0, "some gradients lie whole on several ranks");
}

/// Conversions count once for each step of an update that has them. In data parallelism, sums of
/// gradients are partial sums, and all steps together move little more than one.
#[test]
fn conversions_of_accumulated_gradients() {
    for n_gpus in [2, 3, 4, 6, 8] {
        for (_, strategy) in Strategy::NAMES {
            let plan = |accumulate| -> Value {
                let (builder, loss, _) = support::classifier(24, &[48, 48, 12], true);
                let optimizer = Optimizer { accumulate, ..Optimizer::default() };
                let options = Options { optimizer, ..options(n_gpus, strategy) };
                let compiled = compile(builder, loss, &[], &options, &|| 0.0).unwrap();
                serde_json::from_str(&compiled.report.json()).unwrap()
            };
            let (alone, shared) = (plan(1), plan(8));
            check(&alone);
            check(&shared);
            let times: BTreeSet<u64> = listed(&shared).iter().map(|it| it.times).collect();
            assert!(times.iter().all(|it| [1, 7, 8].contains(it)), "{times:?}");
            let of = |plan: &Value| plan["bytes_total"].as_u64().unwrap();
            assert!(of(&shared) <= 8 * of(&alone), "{n_gpus} ranks, {strategy:?}");
            if strategy == Strategy::Data {
                assert!(5 * of(&shared) <= 6 * of(&alone), "{n_gpus} ranks");
            }
            let accumulation = &shared["accumulation"];
            let bytes = |name: &str| accumulation[name].as_u64().unwrap();
            let sum = 7 * bytes("accumulating_step_bytes") + bytes("updating_step_bytes");
            assert_eq!((bytes("steps"), sum), (8, of(&shared)));
            assert!(alone.get("accumulation").is_none());
        }
    }
}

fn named(plan: &Value, tensor: u64) -> &str {
    let tensors = plan["tensors"].as_array().unwrap();
    tensors.iter().find(|it| it["id"] == tensor).unwrap()["name"].as_str().unwrap()
}

#[test]
fn conversions_of_images() {
    let mut builder = Builder::new();
    let x = builder.input("x", DType::F32, &[8, 4, 4, 4]);
    let filter = builder.parameter("f", &[8, 4, 3, 3], soybean_plan::Init::Constant(0.1));
    let settings = [1, 1, 1, 1].map(Argument::Integer);
    let operands = [x, filter].map(Argument::Tensor);
    let h = support::call(&mut builder, "conv2d", &[&operands[..], &settings].concat());
    let flat = support::call(&mut builder, "flatten", &[Argument::Tensor(h)]);
    let weight = builder.parameter("w", &[128, 8], soybean_plan::Init::Constant(0.1));
    let product = support::call(&mut builder, "matmul", &[flat, weight].map(Argument::Tensor));
    let loss = support::call(&mut builder, "mean", &[Argument::Tensor(product), Argument::All]);
    for (_, strategy) in Strategy::NAMES {
        let plan = plan(builder.clone(), loss, 4, strategy, Precision::F32).unwrap();
        assert!(check(&plan) > 0);
    }
}

/// Few images are split along rows and columns, too, where ranks exchange halos.
#[test]
fn conversions_of_few_images() {
    let mut n_with_halo = 0;
    for (n_gpus, batch) in [(2, 1), (3, 1), (4, 1), (4, 2), (6, 2), (8, 1), (8, 2)] {
        for seed in 0..40 {
            let (builder, loss) = image_model(seed, batch);
            for (_, strategy) in Strategy::NAMES {
                let plan = plan(builder.clone(), loss, n_gpus, strategy, Precision::F32);
                let Some(plan) = plan else { continue };
                check(&plan);
                n_with_halo += listed(&plan).iter().filter(|it| !it.halo.is_empty()).count();
            }
        }
    }
    assert!(n_with_halo >= 40, "{n_with_halo}");
}

/// The last windows are longer than the part of a rank.
#[test]
fn conversions_of_sliding_windows() {
    let mut n_with_halo = 0;
    for (n_gpus, n_heads, window) in [(2, 1, 9), (3, 2, 5), (4, 1, 13), (6, 1, 1), (8, 1, 17)] {
        for trains_queries in [false, true] {
            let (builder, loss) = one_gradient(n_heads, 72, window, trains_queries);
            for (_, strategy) in Strategy::NAMES {
                let plan = plan(builder.clone(), loss, n_gpus, strategy, Precision::F32).unwrap();
                check(&plan);
                n_with_halo += listed(&plan).iter().filter(|it| !it.halo.is_empty()).count();
            }
        }
    }
    assert!(n_with_halo >= 40, "{n_with_halo}");
}

/// A step moves nothing for outputs that only evaluations compute.
#[test]
fn conversions_of_evaluations_are_not_of_a_step() {
    let (mut builder, loss, logits) = support::classifier(24, &[12, 24, 36], true);
    let outputs = [0, 1].map(|dim| {
        let operands = [Argument::Tensor(logits), Argument::Integer(dim)];
        (format!("sums{dim}"), support::call(&mut builder, "sum", &operands))
    });
    let mut n_bytes_of_evaluations = 0;
    for (_, strategy) in Strategy::NAMES {
        let compiled = compiled(builder.clone(), loss, &outputs, 6, strategy, Precision::F32);
        let report = compiled.unwrap().report;
        let plan: Value = serde_json::from_str(&report.json()).unwrap();
        let listed = listed(&plan);
        assert_eq!(plan["bytes_total"], listed.iter().map(|it| it.bytes).sum::<u64>());
        let told: Vec<_> =
            listed.into_iter().map(|it| (it.tensor, it.from, it.to, it.halo)).collect();
        assert_eq!(told, implied(&plan), "conversions are those that forms and tilings need");
        let tiled = &report.search().tiled;
        let is_measured = tiled.network.measured();
        let computed = tiled.network.graph.values().filter(|it| tiled.forms[it.index()].is_some());
        let conversions =
            computed.filter(|it| !is_measured[it.index()]).flat_map(|it| tiled.conversions(it));
        n_bytes_of_evaluations += conversions.map(|it| it.bytes).sum::<u64>();
    }
    assert!(n_bytes_of_evaluations > 0);
}
