//! The search on convolutional networks: reference optima.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "shared with other tests")]
mod support;

use soybean_compiler::{
    Argument, Builder, Network, Optimizer, Strategy,
    graph::Value,
    tiling::{Search, search},
};
use soybean_plan::{DType, Init, Mesh};
use support::call;

/// A network under construction, layer by layer.
struct Layers {
    builder: Builder,
    here: Value,
    has_bias: bool,
}

impl Layers {
    fn new(shape: &[usize], has_bias: bool) -> Self {
        let mut builder = Builder::new();
        let here = builder.input("x", DType::F32, shape);
        Self { builder, here, has_bias }
    }

    fn apply(mut self, operator: &str, arguments: &[Argument]) -> Self {
        let all: Vec<Argument> =
            [Argument::Tensor(self.here)].into_iter().chain(arguments.iter().cloned()).collect();
        self.here = call(&mut self.builder, operator, &all);
        self
    }

    fn parameter(&mut self, shape: &[usize]) -> Argument {
        let name = format!("p{}", self.builder.graph().n_values());
        Argument::Tensor(self.builder.parameter(&name, shape, Init::Constant(0.1)))
    }

    fn conv(mut self, filters: usize, window: usize, stride: i64, padding: i64) -> Self {
        let channels = self.builder.shape(self.here)[1];
        let w = self.parameter(&[filters, channels, window, window]);
        let settings = [stride, padding, 1, 1].map(Argument::Integer);
        let bias = self.has_bias.then(|| self.parameter(&[filters, 1, 1]));
        let mut this = self.apply("conv2d", &[&[w], &settings[..]].concat());
        if let Some(bias) = bias {
            this = this.apply("add", &[bias]);
        }
        this.apply("relu", &[])
    }

    fn pool(self, window: i64, stride: i64) -> Self {
        self.apply("max_pool2d", &[window, stride, 0].map(Argument::Integer))
    }

    fn dense(mut self, out: usize) -> Self {
        let inner = self.builder.shape(self.here)[1];
        let w = self.parameter(&[inner, out]);
        let bias = self.has_bias.then(|| self.parameter(&[out]));
        let this = self.apply("matmul", &[w]);
        match bias {
            Some(bias) => this.apply("add", &[bias]),
            None => this,
        }
    }

    fn searched(mut self, n_ranks: usize) -> Search {
        let loss = call(&mut self.builder, "mean", &[Argument::Tensor(self.here), Argument::All]);
        let network = Network::new(self.builder, loss, &[], &Optimizer::default()).unwrap();
        search(&network, Mesh::new(n_ranks), Strategy::Auto)
    }
}

fn alexnet(batch: usize) -> Layers {
    let it = Layers::new(&[batch, 3, 224, 224], true).conv(64, 11, 4, 2).pool(3, 2);
    let it = it
        .conv(192, 5, 1, 2)
        .pool(3, 2)
        .conv(384, 3, 1, 1)
        .conv(256, 3, 1, 1)
        .conv(256, 3, 1, 1)
        .pool(3, 2);
    it.apply("flatten", &[])
        .dense(4096)
        .apply("relu", &[])
        .dense(4096)
        .apply("relu", &[])
        .dense(1000)
}

fn vgg16(batch: usize) -> Layers {
    let mut it = Layers::new(&[batch, 3, 224, 224], true);
    for (filters, n_layers) in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)] {
        it = (0..n_layers).fold(it, |it, _| it.conv(filters, 3, 1, 1)).pool(2, 2);
    }
    it.apply("flatten", &[])
        .dense(4096)
        .apply("relu", &[])
        .dense(4096)
        .apply("relu", &[])
        .dense(1000)
}

fn cnn5(channels: usize, side: usize) -> Layers {
    (0..5)
        .fold(Layers::new(&[256, channels, side, side], false), |it, _| it.conv(channels, 3, 1, 1))
}

fn check(name: &str, layers: Layers, n_ranks: usize, most_megabytes: f64) {
    let found = layers.searched(n_ranks);
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
