use soybean::prelude::*;

#[soybean::model(gpus = 2, mode = "inference")]
mod net {
    use soybean::prelude::*;

    fn head(x: Tensor, out: usize) -> Tensor {
        x.matmul(param("w", [x.dim(1), out], zeros()))
    }

    pub fn forward(x: Tensor<f32, 8, 4>) -> Tensor {
        let _auxiliary = head(x, 3);
        head(x, 2)
    }
}

#[soybean::model(gpus = 2, mode = "inference")]
fn nothing(x: Tensor<f32, 8, 4>) -> () {
    let _sum = x.sum(..);
    ()
}

fn main() {
    net::Predictor::new(soybean::Config::default()).unwrap();
}
