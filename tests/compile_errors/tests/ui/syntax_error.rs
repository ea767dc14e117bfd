#[soybean::model(gpus = 2)]
pub mod mlp {
    use soybean::prelude::*;
    pub const BATCH: usize = 64;

    fn dense(x: Tensor, out: usize) -> Tensor {
        let w = param("w", [x.dim(1), out], he_normal())
        x.matmul(w)
    }

    pub fn forward(x: Tensor<f32, BATCH, 784>) -> Tensor<f32> {
        dense(x, 10).mean(..)
    }
}

fn main() {
    let mut trainer = mlp::Trainer::new(soybean::Config::default()).unwrap();
    trainer.step(&mlp::Batch { x: &[0.0; mlp::BATCH * 784] }).unwrap();
}
