//! Generated trainers give the same bits and move the same bytes as the compiled program, for every
//! number of devices and every strategy.

use soybean::{Config, Network, Trainer};
use soybean_test_support::models::{Batch, perceptron, sgd, trainer};

/// The perceptron of `models` as user code, for several numbers of devices and strategies, with a
/// check of each.
macro_rules! check {
    ($($module:ident $gpus:literal $strategy:literal,)*) => {$(
        #[soybean::model(gpus = $gpus, strategy = $strategy, optimizer = sgd(momentum = 0.9))]
        mod $module {
            use soybean::prelude::*;

            const CLASSES: usize = 12;

            fn dense(x: Tensor, units: usize) -> Tensor {
                x.matmul(param("w", [units, x.dim(1)], he_normal()).transpose())
                    + param("b", [units], uniform(-0.1, 0.1))
            }

            pub(crate) fn forward(x: Tensor<f32, 24, 12>, y: Tensor<i32, 24>) -> (Tensor, Tensor) {
                let mut h = x;
                for _ in 0..2 {
                    h = dense(h, 2 * CLASSES).relu();
                }
                let logits = dense(h, CLASSES);
                (logits.cross_entropy(y), logits)
            }
        }

        #[test]
        fn $module() {
            check::<$module::Network>(|batch, step| step(&$module::Batch { x: &batch.x, y: &batch.y }));
        }
    )*};
}

check! {
    auto_1 1 "auto", recursive_1 1 "recursive", data_1 1 "data", model_1 1 "model",
    auto_2 2 "auto", recursive_2 2 "recursive", data_2 2 "data", model_2 2 "model",
    auto_3 3 "auto", recursive_3 3 "recursive", data_3 3 "data", model_3 3 "model",
    auto_4 4 "auto", recursive_4 4 "recursive", data_4 4 "data", model_4 4 "model",
    auto_6 6 "auto", recursive_6 6 "recursive", data_6 6 "data", model_6 6 "model",
    auto_8 8 "auto", recursive_8 8 "recursive", data_8 8 "data", model_8 8 "model",
}

fn check<N: Network>(with_batch: impl Fn(&Batch, &mut dyn FnMut(&N::Batch<'_>))) {
    let plan = N::PLAN;
    let compiled = perceptron(plan.n_gpus, plan.strategy.parse().unwrap(), sgd(0.9));
    assert_eq!(plan.bytes_total, compiled.program.tables.train_bytes());
    let mut expected = trainer(&compiled, 0.05);
    let config = Config { seed: 3, learning_rate: 0.05, ..Config::default() };
    let mut found = Trainer::<N>::new(config).unwrap();
    for step in 0..20 {
        let batch = Batch::new(step);
        let loss = expected.step(&batch.views()).unwrap();
        with_batch(&batch, &mut |batch| {
            assert_eq!(found.step(batch).unwrap().to_bits(), loss.to_bits(), "step {step}");
        });
        assert_eq!(found.moved_bytes(), plan.bytes_total, "step {step}");
    }
}
