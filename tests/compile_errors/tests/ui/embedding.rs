#[soybean::model(gpus = 2)]
mod words {
    use soybean::prelude::*;

    pub fn forward(x: Tensor<f32, 8, 6>, y: Tensor<i32, 8>) -> Tensor {
        let table = param("table", [100, 16], normal(0.02));
        let flat = param("flat", [100], normal(0.02));
        x.embedding(table).mean(..) + y.embedding(flat).mean(..) + y.embedding(y).mean(..)
    }
}

fn main() {}
