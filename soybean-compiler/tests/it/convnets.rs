//! The search on convolutional networks: reference optima.

use soybean_compiler::{
    Optimizer, Strategy, build_network,
    tiling::{SearchResult, search},
};
use soybean_plan::Mesh;
use soybean_zoo::{Model, alexnet, vgg16};

fn searched(model: Model, n_ranks: usize) -> SearchResult {
    let network = build_network(model.builder, model.loss, &[], &Optimizer::default()).unwrap();
    search(&network, Mesh::new(n_ranks), &Strategy::Auto.into())
}

fn check(name: &str, model: Model, n_ranks: usize, most_megabytes: f64) {
    let found = searched(model, n_ranks);
    let megabytes = found.tiled.bytes() as f64 / 1e6;
    assert!(found.is_optimal, "{name}");
    assert!(megabytes <= most_megabytes, "{name}: {megabytes} MB, at most {most_megabytes}");
}

#[test]
fn reference_optima_of_convolutional_networks() {
    check("alexnet", alexnet(64), 8, 154.2);
    check("vgg16", vgg16(64), 8, 788.0);
}
