//! What reports say of plans.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use soybean_compiler::{Optimizer, Options, Report, Strategy, compile};
use soybean_plan::Precision;

/// The report of the plan of a perceptron in one function, so that its layers have no names.
fn report(widths: &[usize], strategy: Strategy) -> Report {
    let (builder, loss, _) = support::classifier(16, widths, false);
    let options = Options {
        name: "perceptron".to_owned(),
        n_gpus: 4,
        search: strategy.into(),
        precision: Precision::F32,
        optimizer: Optimizer::default(),
    };
    compile(builder, loss, &[], &options, &|| 0.0).unwrap().report
}

#[test]
fn what_transfers_have_in_common_keeps_its_name() {
    let transfers = report(&[32, 64, 64, 64, 64, 64, 32], Strategy::Auto).transfers();
    assert!(transfers.iter().any(|it| it.n_conversions > 1), "{transfers:?}");
    assert!(transfers.iter().all(|it| it.layer.is_empty()), "{transfers:?}");
}

#[test]
fn weights_that_lie_otherwise_than_their_copies_are_sharded() {
    let report = report(&[8, 64, 32], Strategy::Model);
    let tiled = &report.search().tiled;
    assert!(tiled.network.graph.values().any(|it| tiled.network.graph.is_copy(it)), "{tiled}");
    let parallelism = report.parallelism();
    assert_eq!(parallelism[0].1.weights, "split 2 x sharded 2", "{parallelism:?} {tiled}");
}
