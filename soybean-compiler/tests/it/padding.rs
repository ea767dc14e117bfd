//! Which dims a search pads, and what the report says about it.

use soybean_compiler::{
    Objective, Optimizer, Options, Padding, Report, SearchRequest, Strategy, compile,
};
use soybean_plan::Precision;
use soybean_zoo::{Model, Transformer, perceptron, vgg16};

fn report(model: Model, n_gpus: usize, search: SearchRequest) -> Report {
    let options = Options {
        name: "model".to_owned(),
        n_gpus,
        search,
        precision: Precision::F32,
        optimizer: Optimizer::default(),
    };
    compile(model.builder, model.loss, &[], &options, &|| 0.0).unwrap().report
}

/// Returns the shapes of a tensor of this name, as the user wrote it and as it is stored.
fn shapes(report: &Report, name: &str) -> (String, String) {
    let graph = &report.search().tiled.network.graph;
    let node = graph.values().map(|it| graph.node(it)).find(|it| it.name == name).unwrap();
    (node.unpadded.to_string(), node.shape.to_string())
}

#[test]
fn data_parallelism_pads_the_batch_or_says_what_became_of_it() {
    let of = |padding| {
        let search = SearchRequest { padding, ..Strategy::Data.into() };
        report(perceptron(30, &[16, 16, 8]), 4, search)
    };
    let padded = of(Padding::Auto);
    assert_eq!(shapes(&padded, "x").1, "[32, 16]");
    assert_eq!(padded.warnings(), [""; 0]);
    let unpadded = of(Padding::Off);
    let [warning] = &unpadded.warnings()[..] else { panic!("{:?}", unpadded.warnings()) };
    assert!(
        warning.starts_with("data parallelism splits the batch into 2 parts, not 4;")
            && warning.ends_with("a batch of 28 or 32 would be split over all GPUs"),
        "{warning}"
    );
    assert!(unpadded.text().contains(&format!("  warning: {warning}\n")));
    assert!(unpadded.json().contains(&format!("\"warnings\": [\"{warning}\"]")));
}

#[test]
fn bytes_count_among_plans_within_the_limit_of_work() {
    let of = |max_work| {
        let search = SearchRequest { max_work, ..SearchRequest::default() };
        report(perceptron(17, &[8, 8, 8]), 4, search)
    };
    let (light, heavy) = (of(1.05), of(1.25));
    assert!(light.work <= 1.05, "{}", light.work);
    assert!(heavy.work > 1.05 && heavy.work <= 1.25, "{}", heavy.work);
    assert!(heavy.bytes_total < light.bytes_total);
    let warnings = light.warnings();
    let hint = format!("`max_work = {:.2}` allows it", (heavy.work * 100.0).ceil() / 100.0);
    assert!(warnings.iter().any(|it| it.ends_with(&hint)), "{warnings:?}, not {hint}");
}

#[test]
fn repetition_is_not_recommended() {
    // Every device computes nearly all of it, and moves nearly nothing.
    let report = report(perceptron(4, &[8, 8, 5]), 5, SearchRequest::default());
    let warnings = report.warnings();
    assert!(!warnings.iter().any(|it| it.contains("max_work")), "{warnings:?}");
}

#[test]
fn a_batch_that_would_more_than_double_is_not_padded() {
    let report = report(perceptron(3, &[16, 16, 16]), 8, Strategy::Data.into());
    let warnings = report.warnings();
    assert!(
        warnings.iter().any(|it| it.ends_with("a batch of 8 would be split over all GPUs")),
        "{warnings:?}"
    );
}

#[test]
fn much_work_is_warned_of_with_what_would_help() {
    let search = SearchRequest { padding: Padding::Off, ..SearchRequest::default() };
    let report = report(perceptron(9, &[27, 27, 6]), 6, search);
    assert!(report.work > 1.1, "{}", report.work);
    let warnings = report.warnings();
    assert!(
        warnings.iter().any(|it| it.starts_with("GPUs do ")
            && it.contains("is computed 2 times; a batch of 6 or 12 may need less")),
        "{warnings:?}"
    );
}

#[test]
fn heads_are_padded_as_a_whole() {
    let sizes =
        Transformer { batch: 1, tokens: 32, width: 96, n_heads: 3, n_blocks: 1, n_words: 61 };
    let search = SearchRequest { padding: Padding::All, ..SearchRequest::default() };
    let report = report(sizes.decoder(), 4, search);
    let graph = &report.search().tiled.network.graph;
    let padded: Vec<(String, String)> = graph
        .values()
        .map(|it| graph.node(it))
        .filter(|it| it.unpadded != it.shape)
        .map(|it| (it.unpadded.to_string(), it.shape.to_string()))
        .collect();
    let is_there = |one: &str, other: &str| padded.contains(&(one.to_owned(), other.to_owned()));
    // Three heads of 32 become four, and 61 words 64.
    assert!(is_there("[96, 96]", "[96, 128]") && is_there("[96, 61]", "[96, 64]"), "{padded:?}");
}

#[test]
fn the_order_of_axes_of_several_sizes_suits_the_heads() {
    let sizes =
        Transformer { batch: 8, tokens: 32, width: 48, n_heads: 12, n_blocks: 1, n_words: 96 };
    let mesh = |n_gpus| {
        let report = report(sizes.decoder(), n_gpus, SearchRequest::default());
        report.search().tiled.mesh.to_string()
    };
    // Of 24, 12 heads have the factors 3, 2 and 2, and 48 features one 2 more.
    assert_eq!((mesh(24), mesh(6)), ("[3, 2, 2, 2]".to_owned(), "[2, 3]".to_owned()));
}

#[test]
fn what_becomes_dear_after_a_padding_is_padded_next() {
    let search = SearchRequest {
        objective: Objective::Time,
        cluster: soybean_cluster::preset("dgx-h100"),
        ..SearchRequest::default()
    };
    let report = report(vgg16(64), 7, search);
    // Without padding, convolutions move so much that dense layers hardly count.
    let graph = &report.search().tiled.network.graph;
    let is_padded = |user: &str, stored: &str| {
        graph.values().map(|it| graph.node(it)).any(|it| {
            (it.unpadded.to_string(), it.shape.to_string()) == (user.to_owned(), stored.to_owned())
        })
    };
    assert!(is_padded("[64, 3, 224, 224]", "[70, 3, 224, 224]"));
    assert!(is_padded("[4096, 4096]", "[4102, 4102]") || is_padded("[4096, 4096]", "[4096, 4102]"));
}

#[test]
fn any_number_of_gpus_has_a_plan_where_a_dim_is_long_enough() {
    for n_gpus in [11, 97, 120, 1000, 1021, 4093, 4096] {
        let report = report(perceptron(256, &[8192, 8192]), n_gpus, SearchRequest::default());
        // Next to a multiple of 4,093, both widths become half as long again.
        let most = if n_gpus == 4093 { 2.3 } else { 1.5 };
        assert!(report.work < most, "{n_gpus}: {}", report.work);
    }
}
