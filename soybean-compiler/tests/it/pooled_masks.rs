//! Max pooling after a bias and ReLU: their gradients read pooled pixels.

use soybean_compiler::{
    Argument, Builder, Network, build_network,
    operators::{elementwise::Elementwise, pool::Pool, reduce::Reduce},
    optimizer,
};
use soybean_plan::{DType, Init, PoolingForm};

use crate::support::call;

/// Returns the training step of a convolution with a bias, ReLU and max pooling. The ReLU's result
/// may have a second reader.
fn network(has_other_reader: bool) -> Network {
    let mut builder = Builder::new();
    let x = builder.input("x", DType::F32, &[2, 3, 8, 8]);
    let filter = builder.parameter("w", &[4, 3, 3, 3], Init::Normal { mean: 0.0, std: 0.1 });
    let bias = builder.parameter("b", &[4, 1, 1], Init::Constant(0.0));
    let tensor = Argument::Tensor;
    let one = || Argument::Integer(1);
    let y = call(&mut builder, "conv2d", &[tensor(x), tensor(filter), one(), one(), one(), one()]);
    let y = call(&mut builder, "add", &[tensor(y), tensor(bias)]);
    let y = call(&mut builder, "relu", &[tensor(y)]);
    let window = [2, 2, 0].map(Argument::Integer);
    let pooled = call(&mut builder, "max_pool2d", &[&[tensor(y)], &window[..]].concat());
    let mut loss = call(&mut builder, "sum", &[tensor(pooled), Argument::All]);
    if has_other_reader {
        let other = call(&mut builder, "sum", &[tensor(y), Argument::All]);
        loss = call(&mut builder, "add", &[tensor(loss), tensor(other)]);
    }
    build_network(builder, loss, &[], &optimizer("sgd", &[]).unwrap()).unwrap()
}

/// Returns the numbers of elements of the maps that the gradient of max pooling reads and that read
/// it.
fn maps_around_the_gradient(network: &Network) -> [Vec<usize>; 2] {
    let graph = &network.graph;
    let is_gradient = |it: &Pool| it.form == PoolingForm::MaxGradient;
    let mut pools =
        graph.values().filter(|it| graph.operator_as::<Pool>(*it).is_some_and(is_gradient));
    let gradient = pools.next().expect("the maximum has a gradient");
    assert_eq!(pools.next(), None);
    let n_elements = |values: Vec<_>| {
        let maps = values.into_iter().filter_map(|it| graph.operator_as::<Elementwise>(it));
        maps.map(|it| it.extents.iter().product()).collect()
    };
    [n_elements(vec![graph.operands(gradient)[1]]), n_elements(graph.users(gradient))]
}

#[test]
fn pooled_gradients_are_masked() {
    assert_eq!(maps_around_the_gradient(&network(false)), [vec![2 * 4 * 4 * 4], vec![]]);
}

#[test]
fn biases_sum_pooled_gradients() {
    let n_summed = |network: &Network| {
        let graph = &network.graph;
        let sums = graph.values().filter_map(|it| graph.operator_as::<Reduce>(it));
        let of_bias = sums.filter(|it| it.kept == [1]);
        of_bias.map(|it| it.map.extents.iter().product()).collect::<Vec<usize>>()
    };
    assert_eq!(n_summed(&network(false)), [2 * 4 * 4 * 4]);
    assert_eq!(n_summed(&network(true)), [2 * 4 * 8 * 8]);
}

#[test]
fn gradients_of_other_readers_need_the_mask_of_all_pixels() {
    let [_, after] = maps_around_the_gradient(&network(true));
    assert_eq!(after, [2 * 4 * 8 * 8]);
}
