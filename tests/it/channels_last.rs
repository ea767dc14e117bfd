//! Channels last on the CPU: in `tf32`, which is `f32` there, programs give the numbers of the
//! interpreter of the user's graph, whatever operators are between convolutions.

use soybean_compiler::{Argument, Padding, SearchRequest, Strategy, Value};
use soybean_plan::{ImageLayout, Kernel, Precision};
use soybean_test_support::models::call;

use crate::random_models::{compare, finished, model::Model};

fn integers(numbers: &[usize]) -> Vec<Argument> {
    numbers.iter().map(|&it| Argument::Integer(i64::try_from(it).unwrap())).collect()
}

fn convolve(model: &mut Model, filter: [usize; 4], settings: [usize; 4]) {
    let filter = model.parameter(&filter);
    model.apply("conv2d", &[&[filter][..], &integers(&settings)].concat());
}

/// Returns a network of images: plain, grouped, depthwise and transposed convolutions, poolings,
/// normalizations, a concatenation, a slice and a dense layer.
fn images(batch: usize) -> (Model, Vec<usize>) {
    let shape = vec![batch, 3, 8, 8];
    let mut model = Model::new(&shape);
    convolve(&mut model, [8, 3, 3, 3], [1, 1, 1, 1]);
    model.apply("relu", &[]);
    let skip = model.here;
    model.apply("max_pool2d", &integers(&[2, 2, 0]));
    convolve(&mut model, [8, 4, 3, 3], [1, 1, 1, 2]);
    let (scale, shift) = (model.parameter(&[8]), model.parameter(&[8]));
    let groups = Argument::Integer(2);
    model.apply("group_norm", &[groups, scale, shift, Argument::Float(1e-2)]);
    convolve(&mut model, [8, 1, 3, 3], [1, 1, 1, 8]);
    let bias = model.parameter(&[8, 1, 1]);
    model.apply("add", &[bias]);
    let filter = model.parameter(&[8, 8, 2, 2]);
    let settings = integers(&[2, 0, 0, 1, 1]);
    model.apply("conv_transpose2d", &[&[filter][..], &settings].concat());
    let both = Argument::List(vec![Argument::Tensor(skip), Argument::Tensor(model.here)]);
    model.here = call(&mut model.builder, "concat", &[both, Argument::Integer(1)]);
    convolve(&mut model, [4, 16, 1, 1], [1, 0, 1, 1]);
    model.apply("tanh", &[]);
    model.apply("avg_pool2d", &integers(&[2, 2, 0]));
    // Maps read the other layout here, and in the gradient.
    model.apply("tanh", &[]);
    model.apply("flatten", &[]);
    let weight = model.parameter(&[64, 6]);
    model.apply("matmul", &[weight]);
    (model, shape)
}

/// Returns a network of images whose layers the user permutes to channels last and back.
fn permuted(batch: usize) -> (Model, Vec<usize>) {
    let shape = vec![batch, 6, 6, 3];
    let order = |dims: [usize; 4]| [Argument::List(integers(&dims))];
    let mut model = Model::new(&shape);
    model.apply("permute", &order([0, 3, 1, 2]));
    convolve(&mut model, [4, 3, 3, 3], [1, 1, 1, 1]);
    model.apply("permute", &order([0, 2, 3, 1]));
    model.apply("softmax", &[Argument::Integer(3)]);
    model.apply("permute", &order([0, 3, 1, 2]));
    convolve(&mut model, [4, 4, 3, 3], [1, 1, 1, 1]);
    model.apply("permute", &order([0, 3, 2, 1]));
    (model, shape)
}

/// Returns a network of sequences.
fn sequences(batch: usize) -> (Model, Vec<usize>) {
    let shape = vec![batch, 3, 12];
    let mut model = Model::new(&shape);
    for filter in [[4, 3, 3], [6, 4, 3]] {
        let filter = model.parameter(&filter);
        model.apply("conv1d", &[&[filter][..], &integers(&[1, 1, 1, 1])].concat());
        model.apply("tanh", &[]);
        model.apply("max_pool1d", &integers(&[2, 2, 0]));
    }
    (model, shape)
}

/// Returns a network of volumes.
fn volumes(batch: usize) -> (Model, Vec<usize>) {
    let shape = vec![batch, 2, 4, 4, 4];
    let mut model = Model::new(&shape);
    for filter in [[3, 2, 3, 3, 3], [2, 3, 1, 3, 3]] {
        let filter = model.parameter(&filter);
        model.apply("conv3d", &[&[filter][..], &integers(&[1, 1, 1, 1])].concat());
        model.apply("tanh", &[]);
    }
    model.apply("avg_pool3d", &integers(&[2, 2, 0]));
    (model, shape)
}

#[test]
fn programs_with_channels_last_mean_what_their_graphs_mean() {
    for build in [images, permuted, sequences, volumes] {
        for (n_gpus, batch) in [(1, 2), (2, 2), (3, 1), (4, 4), (6, 1), (8, 2)] {
            for padding in [Padding::Off, Padding::All] {
                let (mut model, shape) = build(batch);
                let loss: Value = model.loss();
                let search = SearchRequest { padding, ..Strategy::Auto.into() };
                let planned = finished(model, loss, n_gpus, search, Precision::Tf32).unwrap();
                let Some(planned) = planned else { continue };
                let is_last = |it: &Kernel| matches!(it, Kernel::Convolve(it) if it.layout == ImageLayout::ChannelsLast);
                assert!(planned.compiled.program.kernels.iter().any(is_last), "{shape:?}");
                compare(&planned, &shape)
                    .unwrap_or_else(|it| unreachable!("{shape:?} on {n_gpus}, {padding:?}: {it}"));
            }
        }
    }
}
