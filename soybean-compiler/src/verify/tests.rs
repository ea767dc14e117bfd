//! What the verifier rejects of partial sums.

use soybean_plan::{Binary, Init, Mesh, Mode, Placement};

use super::*;
use crate::{
    builder::{Argument, Builder},
    compile::build_network,
    operators::elementwise::Elementwise,
    optimizer::Optimizer,
    scalar,
    signature::{TERMS, terms},
    tiling::{Strategy, search_alone},
};

/// Returns the plan of `operator(x a, x b)` on two ranks, and its last tensor.
fn planned(operator: &str) -> (TiledNetwork, Value) {
    let mut builder = Builder::in_mode(Mode::Inference);
    let x = builder.input("x", DType::F32, &[3, 8]);
    let apply = |builder: &mut Builder, operator: &str, operands: &[Value]| {
        let operands: Vec<Argument> = operands.iter().map(|it| Argument::Tensor(*it)).collect();
        match builder.call(operator, &operands) {
            Ok(Argument::Tensor(result)) => result,
            other => panic!("{operator}: {other:?}"),
        }
    };
    let products = ["a", "b"].map(|name| {
        let weight = builder.parameter(name, &[8, 3], Init::Constant(0.1));
        apply(&mut builder, "matmul", &[x, weight])
    });
    let result = apply(&mut builder, operator, &products);
    let outputs = [("result".to_owned(), result)];
    let network = build_network(builder, None, &outputs, &Optimizer::default()).unwrap();
    let found = search_alone(&network, Mesh::new(2), &Strategy::Auto.into());
    let last = found.tiled.network.graph.values().last().unwrap();
    (found.tiled, last)
}

/// Returns the verdict on the last operator's work on the terms of a set.
fn verdict(operator: &str, set: usize) -> Result<(), String> {
    let (mut tiled, last) = planned(operator);
    tiled.forms[last.index()].as_mut().unwrap().0 = vec![Some(terms(set))];
    verify_partial_sums(&tiled)
}

#[test]
fn terms_reach_linear_operators_alone() {
    assert_eq!(terms(0), TERMS);
    // A product of two tensors is linear in each, but has no third set; a sum has one.
    assert_eq!([0, 1].map(|set| verdict("mul", set)), [Ok(()), Ok(())]);
    assert!(verdict("mul", 2).unwrap_err().contains("is not linear in the partial sums"));
    assert_eq!(verdict("sub", 0), Ok(()));
    assert!(verdict("sub", 1).unwrap_err().contains("is not linear in the partial sums"));
    assert!(verdict("maximum", 0).unwrap_err().contains("is not linear in the partial sums"));
}

#[test]
fn terms_are_not_rounded_more_often_than_their_sum() {
    let (mut tiled, last) = planned("sub");
    tiled.forms[last.index()].as_mut().unwrap().0 = vec![Some(TERMS)];
    tiled.network.graph.node_mut(last).dtype = DType::Bf16;
    assert!(verify_partial_sums(&tiled).unwrap_err().contains("is not linear in"));
}

#[test]
fn results_of_a_step_are_no_partial_sums() {
    let (mut tiled, last) = planned("sub");
    tiled.tilings[last.index()] = tiled.tilings[last.index()].with(0, Placement::Partial);
    assert!(verify_partial_sums(&tiled).unwrap_err().contains("is no sum, or a result"));
}

/// The terms of a combination are its first operands.
#[test]
fn combinations_are_linear_in_their_terms() {
    let (tiled, last) = planned("sub");
    let mut network = tiled.network;
    let map = Elementwise::same(network.graph.shape(last), 2, scalar::binary(Binary::Multiply));
    let operands = network.graph.operands(last);
    network.graph.add(Combination { map: map.clone(), n_terms: 1 }.into(), &operands);
    assert_eq!(verify(&network), Ok(()));
    network.graph.add(Combination { map, n_terms: 2 }.into(), &operands);
    assert!(verify(&network).unwrap_err().contains("is not linear in its 2 terms"));
}
