//! The search: optima, baselines, and the forms that reach them.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use soybean_compiler::{
    Argument, Network, Optimizer, Strategy,
    tiling::{Search, search},
};
use soybean_plan::Mesh;

/// The network of an MLP without biases whose loss is the mean of its outputs.
fn mlp(batch: usize, widths: &[usize]) -> Network {
    let (mut builder, logits) = support::mlp(batch, widths, false);
    let loss = support::call(&mut builder, "mean", &[Argument::Tensor(logits), Argument::All]);
    Network::new(builder, loss, &[], &Optimizer::default()).unwrap()
}

fn searched(network: &Network, n_ranks: usize, strategy: Strategy) -> Search {
    search(network, Mesh::new(n_ranks), strategy)
}

#[test]
fn explore() {
    for (batch, widths, n) in [
        (512, vec![8192; 5], 8),
        (2048, vec![8192; 5], 8),
        (2048, vec![12288; 5], 8),
        (400, vec![300; 6], 16),
        (4096, vec![1024, 16, 128], 8),
        (4096, vec![128, 4096, 64], 8),
    ] {
        let network = mlp(batch, &widths);
        let time = std::time::Instant::now();
        let found = searched(&network, n, Strategy::Auto);
        let elapsed = time.elapsed();
        println!(
            "{batch} {widths:?} {n}: auto {} optimal {} largest {} {:?} {elapsed:?}",
            found.tiled.bytes(), found.is_optimal, found.largest_table, found.baselines
        );
        for strategy in [Strategy::Recursive, Strategy::Data, Strategy::Model] {
            let it = searched(&network, n, strategy);
            print!(" {} {}", strategy.name(), it.tiled.bytes());
        }
        println!();
    }
}
