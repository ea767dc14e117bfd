//! Compiles the kernels of the examples, except for benchmarks, to machine code with NVRTC, which
//! needs no GPU. The code stays in `target/tmp/machine_code`, where `scripts/machine_code.py` reads
//! it. The tests of `soybean-runtime` compile kernels of all kinds for further architectures.
#![cfg(feature = "cuda")]

use std::{fs, path::Path};

use soybean::{
    Network,
    runtime::{MachineCode, compile_kernels},
};

use crate::examples::{
    alexnet, cnn_digits, cnn5, compare, digits, fashion_mnist, gan, gpt, mlp, resnet, transformer,
    vgg16,
};

/// H100 and H200.
const ARCHITECTURE: &str = "sm_90";

/// Writes machine code to `<example>-<network>-<architecture>.cubin`.
fn keep(example: &str, network: &str, code: &MachineCode) {
    let MachineCode { n_kernels, cubin } = code;
    assert!(*n_kernels > 0 && !cubin.is_empty());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("machine_code");
    fs::create_dir_all(&folder).unwrap();
    let network = network.trim_end_matches("::Network").replace("::", "-");
    fs::write(folder.join(format!("{example}-{network}-{ARCHITECTURE}.cubin")), cubin).unwrap();
}

macro_rules! examples {
    ($($example:ident { $($network:path),* })*) => {$(
        #[test]
        fn $example() {
            let network = [$((stringify!($network), <$network as Network>::model())),*];
            for (name, model) in network {
                match compile_kernels(model, ARCHITECTURE) {
                    Ok(code) => keep(stringify!($example), name, &code),
                    Err(error) if error.to_string().contains("NVRTC: expected") => {
                        return println!("skipped: {error}");
                    }
                    Err(error) => assert!(false, "{name}: {error}"),
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
    transformer { transformer::transformer::Network }
    vgg16 { vgg16::vgg16::Network }
}
