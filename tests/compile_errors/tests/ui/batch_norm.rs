#[soybean::model(gpus = 2)]
mod m {
    use soybean::prelude::*;

    pub fn forward(x: Tensor<f32, 8, 6, 4>, y: Tensor<f32, 8, 6, 4>) -> Tensor {
        let mean = buffer("mean", [6], zeros());
        let var = buffer("var", [6], ones());
        let (weight, bias) = (param("weight", [6], ones()), param("bias", [6], zeros()));
        let trained = x.batch_norm(weight, var, weight, bias, 0.1, 1e-5);
        let narrow = x.batch_norm(buffer("short", [4], zeros()), var, weight, bias, 0.1, 1e-5);
        let momentum = x.batch_norm(mean, var, weight, bias, 2.0, 1e-5);
        let h = x.batch_norm(mean, var, weight, bias, 0.1, 1e-5);
        let all_dropped = h.dropout(1.0);
        let shapeless = buffer("shapeless", zeros());
        (h + trained + narrow + momentum + all_dropped + shapeless).mse(y)
    }
}

fn main() {}
