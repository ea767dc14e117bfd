//! The search: brute force on small graphs, reference optima, and the order of the strategies.

use proptest::prelude::*;
use soybean_compiler::{
    Argument, Network, Optimizer, Strategy, build_network, optimizer,
    tiling::{SearchResult, route, search},
};
use soybean_plan::{AxisSet, Combine, Mesh, Placement, Tiling};

use crate::support::{
    self,
    averaged::{averaged_mlp, averaged_mlp_with_output},
};

fn searched(network: &Network, n_ranks: usize, strategy: Strategy) -> SearchResult {
    search(network, Mesh::new(n_ranks), &strategy.into())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn auto_equals_brute_force_and_beats_every_strategy(
        batch in prop::sample::select(vec![2_usize, 3, 4, 6, 8, 12]),
        widths in prop::collection::vec(prop::sample::select(vec![1_usize, 2, 3, 4, 5, 6, 16]), 2..4),
        has_bias: bool,
        n_ranks in prop::sample::select(vec![2_usize, 3, 4, 6]),
    ) {
        let network = averaged_mlp(batch, &widths, has_bias);
        let found = searched(&network, n_ranks, Strategy::Auto);
        prop_assert!(found.is_optimal);
        prop_assert_eq!(found.lower_bound_bytes, found.tiled.bytes());
        let others = found.baselines;
        prop_assert!(found.tiled.bytes() <= others.data.min(others.model).min(others.recursive));
        let least = support::brute_force::least_bytes(&network, &Mesh::new(n_ranks), 1 << 16);
        prop_assert!(least.is_none_or(|it| it == found.tiled.bytes()));
    }
}

#[test]
fn reference_optima_of_mlps() {
    // The optima of an independent computation, in MB: batch, widths, ranks, data parallelism,
    // optimum. Ours count 56 bytes (120 for 16 ranks) more for the sum of the loss.
    let references: [(usize, &[usize], usize, f64, f64); 6] = [
        (512, &[8192; 5], 8, 15032.386, 402.653),
        (2048, &[8192; 5], 8, 15032.386, 1610.613),
        (2048, &[12288; 5], 8, 33822.867, 2415.919),
        (400, &[300; 6], 16, 54.0, 18.0),
        (4096, &[1024, 16, 128], 8, 1.032, 0.573),
        (4096, &[128, 4096, 64], 8, 44.040, 12.583),
    ];
    for (batch, widths, n_ranks, data, optimum) in references {
        let network = averaged_mlp_with_output(batch, widths);
        let found = searched(&network, n_ranks, Strategy::Auto);
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        assert!(found.is_optimal, "{widths:?}");
        assert!(
            (megabytes(found.baselines.data) - data).abs() < 0.001,
            "{widths:?}: data {:?}",
            found.baselines
        );
        assert!(
            (megabytes(found.tiled.bytes()) - optimum).abs() < 0.001,
            "{widths:?}: {}",
            found.tiled.bytes()
        );
    }
}

#[test]
fn every_mlp_up_to_ten_layers_is_proved_for_eight() {
    for n_layers in 1..=10 {
        for (batch, width) in
            [(512, 1024), (128, 128), (64, 4096), (4096, 64), (2048, 300), (100, 77)]
        {
            let widths = vec![width; n_layers + 1];
            let (builder, loss, logits) = support::classifier(batch, &widths, true);
            let outputs = [("logits".to_owned(), logits)];
            let momentum = ("momentum".to_owned(), Argument::Float(0.9));
            let momentum = optimizer("sgd", &[momentum]).unwrap();
            let network = build_network(builder, loss, &outputs, &momentum).unwrap();
            let found = searched(&network, 8, Strategy::Auto);
            assert!(found.is_optimal, "{n_layers} layers of {width}, batch {batch}");
            let baselines = found.baselines;
            assert!(
                found.tiled.bytes() <= baselines.data.min(baselines.model).min(baselines.recursive)
            );
        }
    }
}

#[test]
fn equal_input_gives_equal_output() {
    let text =
        || searched(&averaged_mlp(64, &[32, 48, 16], true), 8, Strategy::Auto).tiled.to_string();
    assert_eq!(text(), text());
}

#[test]
fn conversions_move_what_one_cut_of_two_moves_in_the_paper() {
    let mesh = Mesh::new(2);
    let (shape, size) = (soybean_plan::Shape::new(&[4, 4]), 64);
    let moved = |from: Placement, to: Placement| -> u64 {
        let (from, to) = (Tiling::new(&[from]), Tiling::new(&[to]));
        route(&mesh, shape, soybean_plan::DType::F32, Combine::Sum, from, to)
            .iter()
            .map(|it| it.bytes(&mesh))
            .sum()
    };
    use Placement::{Partial, Replicated, Split};
    assert_eq!(moved(Split(0), Replicated), size);
    assert_eq!(moved(Split(0), Split(1)), size / 2);
    assert_eq!(moved(Partial, Replicated), 2 * size);
    assert_eq!(moved(Partial, Split(0)), size);
    assert_eq!(moved(Replicated, Split(1)), 0);
}

#[test]
fn sums_are_scattered_around_an_exchange() {
    let mesh = Mesh::new(4);
    let (from, to) = (
        Tiling::new(&[Placement::Partial, Placement::Split(0)]),
        Tiling::new(&[Placement::Replicated, Placement::Split(1)]),
    );
    let shape = soybean_plan::Shape::new(&[8, 8]);
    let steps = route(&mesh, shape, soybean_plan::DType::F32, Combine::Sum, from, to);
    let axes: Vec<AxisSet> = steps.iter().map(|it| it.axes).collect();
    assert_eq!(steps.len(), 3, "{steps:?}");
    assert_eq!(axes, [AxisSet(1), AxisSet(2), AxisSet(1)]);
}

#[test]
fn what_only_evaluations_compute_costs_a_training_step_nothing() {
    // The product of all pairs of logits moves more than the whole training step.
    let network = |n_outputs: usize| {
        let (mut builder, loss, logits) = support::classifier(256, &[32, 64, 8], true);
        let transposed = support::call(&mut builder, "transpose", &[Argument::Tensor(logits)]);
        let operands = [logits, transposed].map(Argument::Tensor);
        let similar = support::call(&mut builder, "matmul", &operands);
        let sum =
            support::call(&mut builder, "sum", &[Argument::Tensor(similar), Argument::Integer(0)]);
        let outputs = [("similar".to_owned(), similar), ("sums".to_owned(), sum)];
        build_network(builder, loss, &outputs[..n_outputs], &Optimizer::default()).unwrap()
    };
    let alone = searched(&network(0), 4, Strategy::Auto);
    let both = searched(&network(2), 4, Strategy::Auto);
    assert!(both.is_optimal);
    assert_eq!(both.tiled.bytes(), alone.tiled.bytes());
    assert_eq!(both.lower_bound_bytes, alone.lower_bound_bytes);
    assert_eq!(both.baselines, alone.baselines);
    let program = soybean_compiler::program("model", &both.tiled);
    assert_eq!(program.tables.train_bytes(), both.tiled.bytes());
    // Among plans of equal training bytes, the search prefers one that gathers an operand of the
    // product, not the product.
    assert!(
        program.tables.entries[0].bytes < 256 * 256 * 4 / 4,
        "{}",
        program.tables.entries[0].bytes
    );
}
