//! Attention over sequences on GPUs: it trains as on the CPU, and moves the predicted bytes.

use std::sync::Arc;

use soybean::plan::{DType, Init, Kernel, Precision};
use soybean_compiler::{Argument, Builder, Options, SampleFunction, Strategy};
use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;
use soybean_test_support::models::{call, finish_with, sgd};

use super::networks::{Model, learns_as_on_the_cpu};

/// The scores of causal queries.
#[derive(Clone, Copy, PartialEq)]
enum Scores {
    All,
    Window,
    Function(SampleFunction),
}

/// Causal attention of these heads of queries over 144 positions, which share one head of keys.
fn sequence(n_gpus: usize, n_heads: i64, scores: Scores, precision: Precision) -> Model {
    let mut builder = Builder::new();
    let x = Argument::Tensor(builder.input("x", DType::F32, &[144, 8]));
    let init = Init::Uniform { low: -0.5, high: 0.5 };
    let [query, key, value] = [("query", n_heads), ("key", 1), ("value", 1)].map(|it| {
        let (name, n_heads) = it;
        let width = 8 * usize::try_from(n_heads).expect("heads are few");
        let weight = Argument::Tensor(builder.parameter(name, &[8, width], init));
        let product = Argument::Tensor(call(&mut builder, "matmul", &[x.clone(), weight]));
        let integers = |all: [i64; 3]| Argument::List(all.map(Argument::Integer).to_vec());
        let heads = [product, integers([144, n_heads, 8])];
        let heads = Argument::Tensor(call(&mut builder, "reshape", &heads));
        Argument::Tensor(call(&mut builder, "permute", &[heads, integers([1, 0, 2])]))
    });
    let causal = Argument::Text("causal".to_owned());
    let (operator, last) = match scores {
        Scores::Window => ("sliding_window_attention", vec![Argument::Integer(20)]),
        Scores::Function(function) => {
            let score = function.build(&mut builder);
            ("flex_attention", vec![causal, Argument::All, score])
        }
        Scores::All => ("scaled_dot_product_attention", vec![Argument::Boolean(true)]),
    };
    let attended = call(&mut builder, operator, &[vec![query, key, value], last].concat());
    let square = [Argument::Tensor(attended), Argument::Integer(2)];
    let square = Argument::Tensor(call(&mut builder, "powi", &square));
    let loss = call(&mut builder, "mean", &[square, Argument::All]);
    let (name, strategy) = ("sequence".to_owned(), Strategy::Auto);
    let optimizer = sgd(0.9);
    let options = Options { name, n_gpus, search: strategy.into(), precision, optimizer };
    let outputs = [("attended".to_owned(), attended)];
    Model::Program(Arc::new(finish_with(builder, loss, &outputs, &options).program))
}

#[test]
fn split_sequences_in_all_precisions() {
    on_virtual_gpus("cuda::sequences::split_sequences_in_all_precisions", &[], |machine| {
        for n_ranks in [2, 3, 6, 8] {
            for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
                let model = sequence(n_ranks, 1, Scores::All, precision);
                let Model::Program(program) = &model else { unreachable!("it is a program") };
                let is_part = |it: &Kernel| matches!(it, Kernel::Attend(it) if it.is_part);
                assert_eq!(program.kernels.iter().filter(|it| is_part(it)).count(), 2);
                learns_as_on_the_cpu(machine, &model);
            }
        }
    });
}

#[test]
fn halos_of_windows_in_all_precisions() {
    on_virtual_gpus("cuda::sequences::halos_of_windows_in_all_precisions", &[], |machine| {
        for n_ranks in [2, 3, 8] {
            for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
                let model = sequence(n_ranks, 1, Scores::Window, precision);
                let Model::Program(program) = &model else { unreachable!("it is a program") };
                let has_halo =
                    |it: &Kernel| matches!(it, Kernel::Attend(it) if it.halo == Some(19));
                assert_eq!(program.kernels.iter().filter(|it| has_halo(it)).count(), 2);
                learns_as_on_the_cpu(machine, &model);
            }
        }
    });
}

#[test]
fn heads_that_share_keys_in_all_precisions() {
    on_virtual_gpus("cuda::sequences::heads_that_share_keys_in_all_precisions", &[], |machine| {
        for n_ranks in [1, 2, 6] {
            for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
                // One rank has both kinds, and several have one of them.
                let scores: &[Scores] = match n_ranks {
                    1 => &[Scores::All, Scores::Window],
                    2 => &[Scores::Window],
                    _ => &[Scores::All],
                };
                for &scores in scores {
                    let model = sequence(n_ranks, 4, scores, precision);
                    let Model::Program(program) = &model else { unreachable!("it is a program") };
                    let has_window = scores == Scores::Window;
                    let is_shared = |it: &Kernel| matches!(it, Kernel::Attend(it) if it.group > 1 && it.window.is_some() == has_window);
                    assert_eq!(program.kernels.iter().filter(|it| is_shared(it)).count(), 2);
                    learns_as_on_the_cpu(machine, &model);
                }
            }
        }
    });
}

#[test]
fn functions_of_scores_in_all_precisions() {
    on_virtual_gpus("cuda::sequences::functions_of_scores_in_all_precisions", &[], |machine| {
        for n_ranks in [1, 6] {
            for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
                for n_heads in [1, 4] {
                    let scores = Scores::Function(SampleFunction::LinearBias);
                    let model = sequence(n_ranks, n_heads, scores, precision);
                    learns_as_on_the_cpu(machine, &model);
                }
            }
        }
    });
}
