mod nn {
    use soybean::prelude::*;

    #[soybean::layer]
    pub fn head(x: Tensor, classes: usize) -> Tensor {
        let w = param("w", [classes, 10], he_normal());
        x.matmul(w).relu()
    }
}

#[soybean::model(gpus = 2)]
pub mod mlp {
    use soybean::prelude::*;

    pub fn forward(x: Tensor<f32, 8, 6>) -> Tensor {
        let h = super::nn::head(x, 7);
        let flat = x.reshape([48]);
        h.mean(..) + layer_crate::blocks::residual(flat).mean(..) + layer_crate::dense(x).mean(..)
    }
}

fn main() {
    let _ = mlp::Trainer::PLAN;
}
