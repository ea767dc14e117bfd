//! Compiles every kernel of every example to machine code for two generations of GPUs with NVRTC,
//! which needs no GPU. The code stays in `target/tmp/machine_code`, where `scripts/machine_code.py`
//! reads it.
#![cfg(feature = "cuda")]

use std::{fs, path::Path};

use soybean::{
    Network,
    runtime::{MachineCode, compile_kernels},
};

use crate::examples::{
    alexnet, cnn_digits, cnn5, compare, digits, fashion_mnist, gan, gpt, mlp, resnet, step_bench,
    transformer, vgg16,
};

/// Writes machine code to `<example>-<network>-<architecture>.cubin`.
fn keep(example: &str, network: &str, architecture: &str, code: &MachineCode) {
    let MachineCode { n_kernels, cubin } = code;
    assert!(*n_kernels > 0 && !cubin.is_empty());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("machine_code");
    fs::create_dir_all(&folder).unwrap();
    let network = network.trim_end_matches("::Network").replace("::", "-");
    fs::write(folder.join(format!("{example}-{network}-{architecture}.cubin")), cubin).unwrap();
}

macro_rules! examples {
    ($($example:ident { $($network:path),* })*) => {$(
        #[test]
        fn $example() {
            let network = [$((stringify!($network), <$network as Network>::model())),*];
            for (name, model) in network {
                for architecture in ["sm_80", "sm_90"] {
                    match compile_kernels(model, architecture) {
                        Ok(code) => keep(stringify!($example), name, architecture, &code),
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
    alexnet { alexnet::alexnet::Network }
    cnn5 { cnn5::wide::Network, cnn5::large::Network }
    cnn_digits { cnn_digits::cnn_digits::Network }
    compare {
        compare::auto::Network, compare::recursive::Network, compare::data::Network, compare::model::Network
    }
    digits { digits::digits::Network }
    fashion_mnist { fashion_mnist::fashion_mnist::Network }
    gan { gan::gan::Network }
    gpt { gpt::gpt::Network }
    mlp { mlp::mlp::Network }
    resnet { resnet::resnet::Network }
    step_bench {
        step_bench::mlp1024x1::Network, step_bench::mlp2048x8::Network, step_bench::cnn::Network, step_bench::tfm::Network
    }
    transformer { transformer::transformer::Network }
    vgg16 { vgg16::vgg16::Network }
}
