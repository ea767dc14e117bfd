//! The search on convolutional networks: reference optima.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "shared with other tests")]
#[path = "support/networks.rs"]
mod networks;

use networks::{Layers, alexnet, vgg16};
use soybean_compiler::{
    Argument, Network, Optimizer, Strategy,
    tiling::{Search, search},
};
use soybean_plan::{DType, Mesh};

fn searched(layers: Layers, n_ranks: usize) -> Search {
    let it = layers.apply("mean", &[Argument::All]);
    let network = Network::new(it.builder, it.here, &[], &Optimizer::default()).unwrap();
    search(&network, Mesh::new(n_ranks), &Strategy::Auto.into())
}

fn cnn5(channels: usize, side: usize) -> Layers {
    let it = Layers::new(DType::F32, &[256, channels, side, side], false);
    (0..5).fold(it, |it, _| it.conv(channels, 3, 1, 1))
}

fn check(name: &str, layers: Layers, n_ranks: usize, most_megabytes: f64) {
    let found = searched(layers, n_ranks);
    let megabytes = found.tiled.bytes() as f64 / 1e6;
    assert!(found.is_optimal, "{name}");
    assert!(megabytes <= most_megabytes, "{name}: {megabytes} MB, at most {most_megabytes}");
}

#[test]
fn reference_optima_of_convolutional_networks() {
    check("cnn5", cnn5(2048, 6), 4, 1208.0);
    check("cnn5", cnn5(2048, 6), 8, 2416.0);
    check("cnn5 of the other setting", cnn5(512, 24), 8, 660.7);
    check("alexnet", alexnet(256), 8, 244.5);
    check("alexnet", alexnet(64), 8, 154.2);
    check("vgg16", vgg16(256), 8, 975.7);
    check("vgg16", vgg16(64), 8, 788.0);
}
