//! Every kernel of every example as machine code for two generations of GPUs, by NVRTC, which needs no GPU.
#![cfg(feature = "cuda")]
#![expect(unreachable_pub, dead_code, reason = "examples are programs of their own")]
#![expect(
    clippy::duplicate_mod,
    clippy::module_inception,
    reason = "examples share data and networks, and name models as themselves"
)]

use soybean::{Network, runtime::compile_kernels};

macro_rules! examples {
    ($($example:ident $path:literal { $($network:path),* })*) => {$(
        #[path = $path]
        mod $example;

        #[test]
        fn $example() {
            let network = [$((stringify!($network), <$network as Network>::model())),*];
            for (name, model) in network {
                for architecture in ["sm_80", "sm_90"] {
                    match compile_kernels(model, architecture) {
                        Ok((n_kernels, n_bytes)) => {
                            assert!(n_kernels > 0 && n_bytes > 0);
                            println!("{name}: {n_kernels} kernels, {n_bytes} bytes for {architecture}");
                        }
                        Err(error) if error.to_string().contains("NVRTC: expected") => {
                            return println!("skipped: {error}");
                        }
                        Err(error) => assert!(false, "{name}: {error}"),
                    }
                }
            }
        }
    )*};
}

examples! {
    alexnet "../examples/alexnet.rs" { alexnet::alexnet::Network }
    cnn5 "../examples/cnn5.rs" { cnn5::wide::Network, cnn5::large::Network }
    cnn_digits "../examples/cnn_digits.rs" { cnn_digits::cnn_digits::Network }
    compare "../examples/compare.rs" {
        compare::auto::Network, compare::recursive::Network, compare::data::Network, compare::model::Network
    }
    digits "../examples/digits.rs" { digits::digits::Network }
    fashion_mnist "../examples/fashion_mnist.rs" { fashion_mnist::fashion_mnist::Network }
    gpt "../examples/gpt.rs" { gpt::gpt::Network }
    mlp "../examples/mlp.rs" { mlp::mlp::Network }
    resnet "../examples/resnet.rs" { resnet::resnet::Network }
    step_bench "../examples/step_bench.rs" {
        step_bench::mlp1024x1::Network, step_bench::mlp2048x8::Network, step_bench::cnn::Network, step_bench::tfm::Network
    }
    transformer "../examples/transformer.rs" { transformer::transformer::Network }
    vgg16 "../examples/vgg16.rs" { vgg16::vgg16::Network }
}
