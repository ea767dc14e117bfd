//! Partial sums that travel: which sums ranks add up before they reduce them, and what that saves.

use soybean_compiler::{
    Argument, Builder, Network, Optimizer, Options, Strategy, Value, build_network, compile, round,
    signature::TERMS, tiling::search_alone,
};
use soybean_plan::{DType, Init, Mesh, Placement, Precision};

use crate::support::call;

/// The rows of the batch.
const ROWS: usize = 2;
/// The width of the activation.
const WIDTH: usize = 64;
/// The columns of each product.
const COLUMNS: usize = 256;

/// Returns a model in which several products read one activation, and its loss.
fn products(n_products: usize) -> (Builder, Value) {
    let mut builder = Builder::new();
    let x = builder.input("x", DType::F32, &[ROWS, WIDTH]);
    let w = builder.parameter("w", &[WIDTH, WIDTH], Init::Constant(0.1));
    let h = call(&mut builder, "matmul", &[x, w].map(Argument::Tensor));
    let h = call(&mut builder, "tanh", &[Argument::Tensor(h)]);
    let mut means = Vec::new();
    for at in 0..n_products {
        let w = builder.parameter(&format!("w{at}"), &[WIDTH, COLUMNS], Init::Constant(0.1));
        let product = call(&mut builder, "matmul", &[h, w].map(Argument::Tensor));
        let product = call(&mut builder, "tanh", &[Argument::Tensor(product)]);
        means.push(call(&mut builder, "mean", &[Argument::Tensor(product), Argument::All]));
    }
    let add = |sum, mean: &Value| call(&mut builder, "add", &[sum, *mean].map(Argument::Tensor));
    let loss = means[1..].iter().fold(means[0], add);
    (builder, loss)
}

fn network(n_products: usize) -> Network {
    let (builder, loss) = products(n_products);
    build_network(builder, loss, &[], &Optimizer::default()).unwrap()
}

/// Returns the additions of a network.
fn additions(network: &Network) -> Vec<Value> {
    let graph = &network.graph;
    let is_addition = |it: &Value| graph.operator(*it).is_some_and(|it| it.kind() == "add");
    graph.values().filter(is_addition).collect()
}

/// With columns split over two ranks, the activation is gathered and the sum of its gradients is
/// scattered, each `ROWS * WIDTH / 2` elements to one rank from the other. The mean of each product
/// is one number that is all-reduced. A further product costs no other byte.
#[test]
fn gradients_of_several_products_are_reduced_once() {
    for n_products in 1..=4 {
        let found = search_alone(&network(n_products), Mesh::new(2), &Strategy::Auto.into());
        let of_matrices = 2 * ROWS * WIDTH * size_of::<f32>();
        let of_means = n_products * 2 * size_of::<f32>();
        assert_eq!(found.tiled.bytes(), (of_matrices + of_means) as u64, "{n_products} products");
        assert!(found.is_optimal);
        for sum in additions(&found.tiled.network) {
            assert_eq!(found.tiled.forms[sum.index()].as_ref().unwrap().0, [Some(TERMS)]);
            for term in found.tiled.network.graph.operands(sum) {
                assert_eq!(found.tiled.tilings[term.index()].placements(), [Placement::Partial]);
            }
        }
    }
}

/// Terms that ranks hold whole cost no kernel: their sum is part of the map that reads it.
#[test]
fn additions_of_whole_terms_are_part_of_their_readers() {
    let is_of_terms = |n_gpus: usize| {
        let (builder, loss) = products(3);
        let options = Options {
            name: "products".to_owned(),
            n_gpus,
            search: Strategy::Auto.into(),
            precision: Precision::F32,
            optimizer: Optimizer::default(),
        };
        let compiled = compile(builder, loss, &[], &options, &|| 0.0).unwrap();
        !additions(&compiled.report.search().tiled.network).is_empty()
    };
    assert_eq!(additions(&network(3)).len(), 1);
    assert_eq!([1, 2].map(is_of_terms), [false, true]);
}

/// A term that something else reads, too, is reduced anyway, and one that no factor splits into
/// partial sums gains nothing.
#[test]
fn other_sums_are_no_additions() {
    assert_eq!(additions(&network(1)), []);
    let mut builder = Builder::new();
    let x = builder.input("x", DType::F32, &[ROWS, WIDTH]);
    let weight = |builder: &mut Builder, name| {
        Argument::Tensor(builder.parameter(name, &[WIDTH, WIDTH], Init::Constant(0.1)))
    };
    let (w, v) = (weight(&mut builder, "w"), weight(&mut builder, "v"));
    let one = call(&mut builder, "matmul", &[Argument::Tensor(x), w]);
    let other = call(&mut builder, "matmul", &[Argument::Tensor(one), v]);
    let sum = call(&mut builder, "add", &[one, other].map(Argument::Tensor));
    let sum = call(&mut builder, "tanh", &[Argument::Tensor(sum)]);
    let loss = call(&mut builder, "mean", &[Argument::Tensor(sum), Argument::All]);
    let network = build_network(builder, loss, &[], &Optimizer::default()).unwrap();
    assert_eq!(additions(&network), []);
}

/// Products give `bf16`, and so does their sum: terms are rounded on each rank, as the partial
/// results of products are.
#[test]
fn terms_have_the_type_of_their_sum() {
    let network = round(network(3), Precision::Bf16);
    for sum in additions(&network) {
        let values = [&network.graph.operands(sum)[..], &[sum]].concat();
        assert!(values.iter().all(|it| network.graph.node(*it).dtype == DType::Bf16));
    }
    let found = search_alone(&network, Mesh::new(2), &Strategy::Auto.into());
    let of_terms = |it: &Value| found.tiled.forms[it.index()].as_ref().unwrap().0 == [Some(TERMS)];
    assert!(additions(&network).iter().all(of_terms));
}
