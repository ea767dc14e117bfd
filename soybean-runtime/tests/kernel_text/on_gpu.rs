//! Every kind of kernel on a GPU, beside the CPU: what the libraries compute, and the rest from its
//! text.
//!
//! With `SOYBEAN_ON_GPU` set, as `scripts/gpu-check.sh` does, the tests run on the machine's GPU.
//! Otherwise half of the cases run on a virtual one, where `main` compares all of them.
//! `SOYBEAN_CASE` chooses one case of a kind.
#![cfg(feature = "cuda")]

use std::env;

use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;
use soybean_plan::Precision;
use soybean_runtime::{Config, Device};

use crate::{
    Kind,
    case::Case,
    program::{BufferTypes, program},
    reference::{self, trained},
    some_cases,
};

/// Compares every `step`-th case of a kind with the CPU, or the chosen one of them. Cases of one
/// precision are one program, since its start takes longer than its step.
fn check(kind: (&str, usize, Kind), step: usize) {
    let chosen: Option<usize> = env::var("SOYBEAN_CASE").ok().map(|it| it.parse().unwrap());
    for precision in Precision::ALL {
        let (numbers, cases): (Vec<usize>, Vec<Case>) = some_cases(kind, 0, step)
            .into_iter()
            .enumerate()
            .map(|(place, it)| (place * step, it))
            .filter(|(number, it)| {
                it.precision == precision && chosen.is_none_or(|it| it == *number)
            })
            .unzip();
        if !cases.is_empty() {
            check_program(kind.0, precision, &numbers, &cases);
        }
    }
}

fn check_program(kind: &str, precision: Precision, numbers: &[usize], cases: &[Case]) {
    let config = Config { device: Device::Cuda, uses_graphs: false, ..Config::default() };
    let found = trained(program(cases, precision, BufferTypes::Own), cases, config)
        .unwrap_or_else(|error| panic!("{kind} in {precision}, cases {numbers:?}: {error}"));
    let mut found = found.into_iter();
    let mut faults = Vec::new();
    for (number, case) in numbers.iter().zip(cases) {
        let of_case: Vec<Vec<f32>> = found.by_ref().take(case.results.len()).collect();
        if let Err(fault) = case.compare(&of_case, &reference::run(case)) {
            faults.push(format!("{kind} {number}: {fault}\n{case:?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

macro_rules! kinds {
    ($($test:ident $name:literal)*) => {
        $(
            #[test]
            fn $test() {
                let kind = *crate::KINDS.iter().find(|it| it.0 == $name).unwrap();
                if env::var_os("SOYBEAN_ON_GPU").is_some() {
                    return check(kind, 1);
                }
                let settings = [("SOYBEAN_FAKE_DEVICES", "1")];
                on_virtual_gpus(concat!("on_gpu::", stringify!($test)), &settings, |machine| {
                    check(kind, 2);
                    assert_eq!(machine.n_complaints(), 0);
                });
            }
        )*

        #[test]
        fn all_kinds_are_tested() {
            assert!(crate::KINDS.iter().map(|it| it.0).eq([$($name),*]));
        }
    };
}

kinds! {
    map "map"
    map_of_special_numbers "map-of-special-numbers"
    map_of_integers "map-of-integers"
    map_of_arithmetic_of_integers "map-of-arithmetic-of-integers"
    reduction "reduction"
    reduction_of_integers "reduction-of-integers"
    rows "rows"
    rows_of_networks "rows-of-networks"
    permutation "permutation"
    padding "padding"
    concatenation "concatenation"
    pooling "pooling"
    embedding "embedding"
    embedding_update "embedding-update"
    indexing "indexing"
    ranking "ranking"
    contraction "contraction"
    contraction_of_many_tiles "contraction-of-many-tiles"
    convolution "convolution"
    convolution_of_few_channels "convolution-of-few-channels"
    filters_of_few_channels "filters-of-few-channels"
    attention "attention"
    attention_of_usual_heads "attention-of-usual-heads"
    attention_of_nothing "attention-of-nothing"
}
