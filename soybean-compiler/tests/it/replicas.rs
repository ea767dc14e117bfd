//! Replicas: parameters that are stored in parts are gathered once for all their readers.

use expect_test::expect;
use proptest::prelude::*;
use soybean_compiler::{
    Network, Optimizer, Strategy, build_network, optimizer, program, replicate, round,
    tiling::{SearchResult, search_alone},
    verify, verify_program,
};
use soybean_plan::{CollectiveKind, DType, Mesh, Placement, Precision, Program, Tiling};
use soybean_zoo::{Model, mlp};

/// Returns a perceptron with ReLU whose loss is the mean of its outputs.
fn perceptron(batch: usize, widths: &[usize], optimizer: &Optimizer) -> Network {
    let Model { builder, loss, .. } = mlp(batch, widths);
    build_network(builder, loss, &[], optimizer).unwrap()
}

/// Returns the network with every weight stored in parts along all axes.
fn in_parts(network: Network, mesh: &Mesh) -> Network {
    let tiling = Tiling::new(&vec![Placement::Split(0); mesh.n_axes()]);
    let weights = network.parameters.clone();
    weights.into_iter().fold(network, |it, value| it.pinned(value, tiling, mesh).unwrap())
}

fn searched(network: &Network, n_ranks: usize) -> SearchResult {
    let found = search_alone(network, Mesh::new(n_ranks), &Strategy::Auto.into());
    assert!(found.is_optimal);
    found
}

/// Lowers a plan. Checks that the program is valid and moves what the plan predicts.
fn lowered(found: &SearchResult) -> Program {
    let program = program("perceptron", &found.tiled);
    verify_program(&program).unwrap();
    assert_eq!(program.tables.train_bytes(), found.tiled.bytes());
    program
}

fn n_gathers(program: &Program) -> usize {
    let buckets = program.train[0].iter().filter_map(|it| program.kernels[it.kernel].transfer());
    let gathers = buckets.filter(|it| it.kind() == CollectiveKind::AllGather);
    gathers.map(|it| it.collectives.len()).sum()
}

#[test]
fn parameters_with_several_readers_have_replicas() {
    let network = replicate(&perceptron(8, &[4, 6, 2], &Optimizer::default()));
    verify(&network).unwrap();
    expect![[r#"
        v0: f32[8, 4] = input "x"
        v1: f32[4, 6] = param "0.weight"
        v2: f32[8, 6] = contract ik,kj->ij (v0, v1)
        v3: f32[8, 6] = map {relu(x0)} ij->ij (v2)
        v4: f32[6, 2] = param "1.weight"
        v5: f32[6, 2] = share ij->ij (v4)
        v6: f32[8, 2] = contract ik,kj->ij (v3, v5)
        v7: f32[] = sum {mul(x0, 0.0625)} ij-> (v6)
        v8: f32[] = map {x0} -> (v7)
        v9: f32[8, 2] = map {0.0625} ->ij ()
        v10: f32[8, 6] = contract ij,kj->ik (v9, v5)
        v11: f32[6, 2] = contract ik,ij->kj (v3, v9)
        v12: f32[8, 6] = map {select(gt(x0, 0), x1, 0)} ij,ij->ij (v3, v10)
        v13: f32[4, 6] = contract ik,ij->kj (v0, v12)
        v14: f32[4, 6] = map {sub(x0, mul(s0, x1))} ij,ij->ij (v1, v13)
        v15: f32[6, 2] = map {sub(x0, mul(s0, x1))} ij,ij->ij (v4, v11)
    "#]]
    .assert_eq(&network.graph.to_string());
    let again = replicate(&network);
    assert_eq!(again.graph.to_string(), network.graph.to_string());
}

#[test]
fn weights_in_parts_are_gathered_once() {
    let mesh = Mesh::new(4);
    for (name, precision) in
        [("sgd", Precision::F32), ("adamw", Precision::F32), ("adamw", Precision::Bf16)]
    {
        let network = perceptron(4096, &[64, 64, 64, 64], &optimizer(name, &[]).unwrap());
        let network = in_parts(round(network, precision), &mesh);
        let (own, shared) = (searched(&network, 4), searched(&replicate(&network), 4));
        let (own_program, program) = (lowered(&own), lowered(&shared));
        // In `bf16` the rounded weight is a tensor of its own, with a tiling that suits its
        // readers.
        if precision == Precision::Bf16 {
            assert_eq!(shared.tiled.bytes(), own.tiled.bytes());
            continue;
        }
        // The first layer's weight is read forward only, the other two backward too.
        assert_eq!((n_gathers(&own_program), n_gathers(&program)), (5, 3), "{name}");
        let weight = 64 * 64 * 4;
        assert_eq!(own.tiled.bytes() - shared.tiled.bytes(), 2 * 3 * weight, "{name}");
    }
}

#[test]
fn replicas_that_save_nothing_are_the_tensors_themselves() {
    for n_ranks in [1, 2, 4, 8] {
        for (batch, precision) in
            [(16, Precision::F32), (4096, Precision::F32), (4096, Precision::Bf16)]
        {
            let network = perceptron(batch, &[64, 128, 32], &optimizer("adam", &[]).unwrap());
            let network = round(network, precision);
            let (own, shared) =
                (searched(&network, n_ranks), searched(&replicate(&network), n_ranks));
            assert_eq!(own.tiled.bytes(), shared.tiled.bytes());
            let (own, shared) = (lowered(&own), lowered(&shared));
            assert_eq!(own.train[0], shared.train[0], "{n_ranks} {batch} {precision:?}");
            assert_eq!(own.tables.arena_bytes, shared.tables.arena_bytes);
            let types = |it: &Program| -> Vec<DType> {
                it.tables.buffers.iter().map(|it| it.dtype).collect()
            };
            assert_eq!(types(&own), types(&shared), "{n_ranks} {batch} {precision:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn replicas_never_cost_bytes(
        batch in prop::sample::select(vec![2_usize, 4, 6, 12, 48, 240]),
        widths in prop::collection::vec(prop::sample::select(vec![2_usize, 4, 6, 12, 24, 96]), 3..6),
        n_ranks in prop::sample::select(vec![2_usize, 3, 4, 6, 8]),
        pins in prop::collection::vec(prop::option::of(0..3_usize), 5),
    ) {
        let mesh = Mesh::new(n_ranks);
        let mut network = perceptron(batch, &widths, &Optimizer::default());
        for (value, pin) in network.parameters.clone().into_iter().zip(pins) {
            let placement = match pin {
                None => continue,
                Some(0) => Placement::Replicated,
                Some(1) => Placement::Split(0),
                Some(_) => Placement::Split(1),
            };
            let tiling = Tiling::new(&vec![placement; mesh.n_axes()]);
            network = network.clone().pinned(value, tiling, &mesh).unwrap_or(network);
        }
        let (own, shared) = (searched(&network, n_ranks), searched(&replicate(&network), n_ranks));
        prop_assert!(shared.tiled.bytes() <= own.tiled.bytes());
        lowered(&own);
        lowered(&shared);
    }
}
