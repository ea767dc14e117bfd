//! Gradients of weights are computed in the order of their dims: no step transposes them.

use expect_test::expect;
use soybean_compiler::{
    Argument, Builder, Network, Value, build_network,
    operators::{elementwise::Elementwise, permute::Permute, reshape::Reshape},
    optimizer,
};
use soybean_plan::{DType, Init};
use soybean_zoo::{Model, ZOO};

use crate::support::call;

/// Returns the permutations of parameters' gradients, which updates read at once or through maps
/// and changes of shape.
fn permuted_gradients(network: &Network) -> Vec<String> {
    let graph = &network.graph;
    let mut waiting: Vec<Value> = network.updates.iter().map(|it| it.1).collect();
    let mut found = Vec::new();
    while let Some(value) = waiting.pop() {
        let Some(operator) = graph.operator(value) else { continue };
        if operator.is::<Permute>() {
            found.push(graph.line(value));
        }
        let is_map = operator.is::<Elementwise>() || operator.is::<Reshape>();
        let is_sum = ["add", "combine"].contains(&operator.kind().as_str());
        if is_map || is_sum {
            waiting.extend(graph.operands(value));
        }
    }
    found
}

/// Returns the training step of a loss that is the mean of a product of `x [4, 6]` and weights.
fn network(
    shapes: &[&[usize]],
    product: impl Fn(&mut Builder, Value, &[Value]) -> Value,
) -> Network {
    let mut builder = Builder::new();
    let x = builder.input("x", DType::F32, &[4, 6]);
    let normal = Init::Normal { mean: 0.0, std: 0.1 };
    let weights: Vec<Value> = shapes
        .iter()
        .enumerate()
        .map(|(number, shape)| builder.parameter(&format!("w{number}"), shape, normal))
        .collect();
    let y = product(&mut builder, x, &weights);
    let squares = call(&mut builder, "square", &[Argument::Tensor(y)]);
    let loss = call(&mut builder, "mean", &[Argument::Tensor(squares), Argument::All]);
    build_network(builder, loss, &[], &optimizer("sgd", &[]).unwrap()).unwrap()
}

fn transpose(builder: &mut Builder, value: Value) -> Value {
    call(builder, "transpose", &[Argument::Tensor(value)])
}

fn matmul(builder: &mut Builder, x: Value, y: Value) -> Value {
    call(builder, "matmul", &[Argument::Tensor(x), Argument::Tensor(y)])
}

/// The experts of the zoo are left out: their einsums permute weights that lie in no matrix.
#[test]
fn networks_of_the_zoo_transpose_no_gradient() {
    for name in ["mlp", "alexnet", "vgg16", "resnet20", "resnet50", "encoder", "gpt-12"] {
        let entry = ZOO.iter().find(|it| it.name == name).unwrap();
        let Model { builder, loss, .. } = (entry.model)();
        let optimizer = optimizer(entry.optimizer, &[]).unwrap();
        let network = build_network(builder, loss, &[], &optimizer).unwrap();
        assert_eq!(permuted_gradients(&network), [""; 0], "{name}");
    }
}

#[test]
fn a_product_with_a_transposed_weight_gives_the_gradient_of_the_weight() {
    let network = network(&[&[5, 6]], |builder, x, weights| {
        let turned = transpose(builder, weights[0]);
        matmul(builder, x, turned)
    });
    assert_eq!(permuted_gradients(&network), [""; 0]);
    let lines: Vec<String> = network.graph.values().map(|it| network.graph.line(it)).collect();
    let products: Vec<&String> = lines.iter().filter(|it| it.contains("contract")).collect();
    expect![[r#"
        [
            "v2: f32[4, 5] = contract ik,jk->ij (v0, v1)",
            "v6: f32[5, 6] = contract ij,ik->jk (v5, v0)",
        ]"#]]
    .assert_eq(&format!("{products:#?}"));
}

#[test]
fn products_of_other_orders_give_gradients_of_weights() {
    let turned_twice = network(&[&[6, 5], &[3, 5]], |builder, x, weights| {
        let h = matmul(builder, x, weights[0]);
        let turned = transpose(builder, weights[1]);
        let y = matmul(builder, h, turned);
        transpose(builder, y)
    });
    assert_eq!(permuted_gradients(&turned_twice), [""; 0]);
    for (notation, shape) in
        [("bi,ji->bj", &[5, 6][..]), ("bi,ji->jb", &[5, 6]), ("bi,ijk->bjk", &[6, 2, 5])]
    {
        let network = network(&[shape], |builder, x, weights| {
            let notation = Argument::Text(notation.to_owned());
            call(builder, "einsum", &[Argument::Tensor(x), notation, Argument::Tensor(weights[0])])
        });
        assert_eq!(permuted_gradients(&network), [""; 0], "{notation}");
    }
}

/// A sum of products is permuted term by term.
#[test]
fn a_transposed_weight_may_be_read_several_times() {
    let network = network(&[&[6, 6]], |builder, x, weights| {
        let turned = transpose(builder, weights[0]);
        let h = matmul(builder, x, turned);
        matmul(builder, h, turned)
    });
    assert_eq!(permuted_gradients(&network), [""; 0]);
}
