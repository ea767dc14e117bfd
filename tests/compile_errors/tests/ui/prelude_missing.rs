#[soybean::model(gpus = 2)]
pub mod mlp {
    fn dense(x: Tensor, out: usize) -> Tensor {
        x.matmul(param("w", [x.dim(1), out], he_normal())) + param("b", [out], zeros())
    }

    pub fn forward(x: Tensor<f32, 64, 784>, y: Tensor<i32, 64>) -> (Tensor, Tensor) {
        let logits = dense(x, 10);
        (logits.cross_entropy(y), logits)
    }
}

fn main() {}
