//! Models that a `macro_rules!` writes.

macro_rules! models {
    ($($name:ident: $gpus:literal, $optimizer:expr, $strategy:literal, $batch:expr;)*) => {
        $(
            /// A model.
            #[soybean::model(gpus = $gpus, optimizer = $optimizer, strategy = $strategy)]
            pub mod $name {
                use soybean::prelude::*;
                const BATCH: usize = $batch;

                /// The mean of the results.
                pub fn forward(x: Tensor<f32, BATCH, 6>) -> Tensor {
                    x.matmul(param("w", [6, $gpus], he_normal())).mean(..)
                }
            }
        )*
    };
}

models! {
    first: 1, sgd, "auto", 8;
    second: 2, adam(betas = (0.8, 0.9)), "data", 2 * 8;
}

#[test]
fn each_model_of_a_macro_has_its_own_arguments() {
    assert_eq!((first::Trainer::PLAN.n_gpus, second::Trainer::PLAN.n_gpus), (1, 2));
    assert_eq!(second::Trainer::PLAN.strategy, "data");
}
