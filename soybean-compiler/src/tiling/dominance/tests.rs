use soybean_minsum::{Options, labels_at, solve};
use soybean_plan::{DType, Init};

use super::*;
use crate::{
    Argument, Builder, Network, Optimizer, build_network,
    tiling::{
        instance::Instance,
        problem::{TilingProblem, WORK},
        resolution::Resolution,
    },
};

fn call(builder: &mut Builder, operator: &str, operands: &[Argument]) -> Argument {
    builder.call(operator, operands).unwrap()
}

fn integers(numbers: &[i64]) -> impl Iterator<Item = Argument> {
    numbers.iter().copied().map(Argument::Integer)
}

/// Returns a network with a convolution with normalized channels, a pooling, and a dense layer
/// over channels and pixels.
fn network(batch: usize, side: usize) -> Network {
    let mut it = Builder::new();
    let x = Argument::Tensor(it.input("x", DType::F32, &[batch, 2, side, side]));
    let w = Argument::Tensor(it.parameter("w", &[4, 2, 3, 3], Init::Constant(0.1)));
    let b = Argument::Tensor(it.parameter("b", &[4, 1, 1], Init::Constant(0.1)));
    let settings = [x, w].into_iter().chain(integers(&[1, 1, 1, 1])).collect::<Vec<_>>();
    let h = call(&mut it, "conv2d", &settings);
    let over = Argument::List(integers(&[0, 2, 3]).collect());
    let mean = call(&mut it, "mean", &[h.clone(), over]);
    let shape = Argument::List(integers(&[4, 1, 1]).collect());
    let mean = call(&mut it, "reshape", &[mean, shape]);
    let h = call(&mut it, "sub", &[h, mean]);
    let h = call(&mut it, "mul", &[h, b]);
    let pool = [h].into_iter().chain(integers(&[2, 2, 0])).collect::<Vec<_>>();
    let h = call(&mut it, "max_pool2d", &pool);
    let h = call(&mut it, "relu", &[h]);
    let h = call(&mut it, "flatten", &[h]);
    let Argument::Tensor(flat) = h else { unreachable!("flattening gives a tensor") };
    let n = it.shape(flat)[1];
    let w = Argument::Tensor(it.parameter("v", &[n, 8], Init::Constant(0.1)));
    let h = call(&mut it, "matmul", &[h, w]);
    let Argument::Tensor(loss) = call(&mut it, "mean", &[h, Argument::All]) else {
        unreachable!("means are tensors")
    };
    build_network(it, loss, &[], &Optimizer::default()).unwrap()
}

#[test]
fn needless_splits_are_in_no_better_plan() {
    let mut n_needless = 0;
    for (batch, side, n_ranks) in
        [(2, 4, 2), (4, 8, 4), (2, 8, 4), (6, 4, 4), (6, 12, 6), (3, 6, 6), (8, 16, 8), (4, 8, 8)]
    {
        let network = network(batch, side);
        n_needless += n_needless_of(&network, n_ranks);
    }
    assert!(n_needless > 0);
}

/// Returns the number of needless splits, without which the least cost is the same.
fn n_needless_of(network: &Network, n_ranks: usize) -> usize {
    let mesh = Mesh::new(n_ranks);
    let is_needless = needless_splits(network, &mesh);
    let least = |is_needless: &[Vec<bool>]| {
        let problem = TilingProblem::without(network, mesh, is_needless);
        let instance = Instance::new(&problem, Resolution::FINE);
        let found =
            solve(&instance.restricted(&instance.all_labels()), None, Options::with_work(WORK));
        let labels = labels_at(&instance.all_labels(), &found.labels);
        assert_eq!(found.lower_bound, problem.cost(&instance.plan(&labels)));
        problem.whole(found.lower_bound)
    };
    let nothing = no_splits(network, &mesh);
    assert_eq!(least(&nothing), least(&is_needless), "{n_ranks}: {}", network.graph);
    is_needless.iter().flatten().filter(|it| **it).count()
}

/// Returns a network with attention in one kernel to its own input, perhaps with positions.
fn attention(batch: usize, is_causal: bool, has_places: bool) -> Network {
    let mut it = Builder::new();
    let init = Init::Constant(0.1);
    let mut x = Argument::Tensor(it.input("x", DType::F32, &[batch, 36, 4]));
    if has_places {
        let places = Argument::Tensor(it.parameter("places", &[36, 4], init));
        x = call(&mut it, "add", &[x, places]);
    }
    let [query, key, value] = ["q", "k", "v"].map(|name| {
        let w = Argument::Tensor(it.parameter(name, &[4, 4], init));
        call(&mut it, "matmul", &[x.clone(), w])
    });
    let arguments = [query, key, value, Argument::Boolean(is_causal)];
    let h = call(&mut it, "scaled_dot_product_attention", &arguments);
    let w = Argument::Tensor(it.parameter("w", &[4, 8], init));
    let h = call(&mut it, "matmul", &[h, w]);
    let Argument::Tensor(loss) = call(&mut it, "mean", &[h, Argument::All]) else {
        unreachable!("means are tensors")
    };
    build_network(it, loss, &[], &Optimizer::default()).unwrap()
}

#[test]
fn needless_splits_of_attention_are_in_no_better_plan() {
    let mut n_needless = Vec::new();
    for (batch, is_causal, has_places, n_ranks) in [
        (2, true, false, 2),
        (4, false, false, 4),
        (4, true, true, 4),
        (2, true, false, 4),
        (6, true, false, 6),
    ] {
        let network = attention(batch, is_causal, has_places);
        n_needless.push(n_needless_of(&network, n_ranks));
    }
    // Batches that suffice make splits of the queries needless, unless positions are added.
    let is_needless: Vec<bool> = n_needless.iter().map(|it| *it > 0).collect();
    assert_eq!(is_needless, [true, true, false, false, true], "{n_needless:?}");
}
