#[soybean::model(gpus = 0)]
pub mod mlp {
    use soybean::prelude::*;
    const BATCH: usize = 64;

    fn dense(x: Tensor, out: usize) -> Tensor {
        x.matmul(param("w", [x.dim(1), out], he_normal())) + param("b", [out + 1], zeros())
    }

    pub fn forward(x: Tensor<f32, BATCH, 784>, y: Tensor<i32, BATCH>) -> (Tensor, Tensor) {
        let mut h = x;
        for _ in 0..3 {
            h = dense(h, 256).relu();
        }
        let a = x.reshape([BATCH, 28, 27]);
        let b = x.matmul(param("v", [700, 10], he_normal()));
        let c = x.softmaxx(1);
        while true {}
        let d = x.sum(2);
        let logits = dense(h, 10);
        (logits.cross_entropy(y), logits + a + b + c + d)
    }
}

fn main() {
    let (x, y) = ([0.0; 64 * 784], [0; 64]);
    let mut trainer = mlp::Trainer::new(soybean::Config::default()).unwrap();
    let loss: f32 = trainer.step(&mlp::Batch { x: &x, y: &y }).unwrap();
    println!("{loss} {}", mlp::Trainer::PLAN.text);
}
