//! Exchanges of halos on virtual GPUs: by NCCL, and in memory that ranks share.

use std::sync::Arc;

use soybean_compiler::{Options, SearchRequest, Strategy};
use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;
use soybean_plan::Precision;
use soybean_test_support::models::{finish_with, sgd};

use super::networks::{Model, learns_as_on_the_cpu};
use crate::split_images::{Pin, n_exchanges, network};

fn program(n_gpus: usize, sides: [usize; 2], pin: Pin, precision: Precision) -> Model {
    let (model, loss) = network(1, sides, Some(pin));
    let search = SearchRequest::from(Strategy::Auto);
    let (name, optimizer) = (format!("{n_gpus} {sides:?} {pin:?} {precision:?}"), sgd(0.9));
    let options = Options { name, n_gpus, search, precision, optimizer };
    let program = finish_with(model.builder, loss, &[], &options).program;
    assert!(n_exchanges(&program) > 0);
    Model::Program(Arc::new(program))
}

macro_rules! tests {
    ($($test:ident: $settings:expr;)*) => {
        $(#[test]
        fn $test() {
            let path = concat!("cuda::split_images::", stringify!($test));
            let settings: &[(&str, &str)] = &$settings;
            on_virtual_gpus(path, settings, |machine| {
                for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
                    learns_as_on_the_cpu(machine, &program(2, [4, 16], ("P3", [1, 2]), precision));
                    learns_as_on_the_cpu(machine, &program(4, [16, 8], ("P2", [4, 1]), precision));
                }
                let corners = program(4, [32, 30], ("P2 P3", [2, 2]), Precision::F32);
                learns_as_on_the_cpu(machine, &corners);
            });
        })*
    };
}

tests! {
    halos_through_nccl: [];
    halos_in_the_memory_of_peers: [("SOYBEAN_FAKE_DEVICES", "1")];
}
