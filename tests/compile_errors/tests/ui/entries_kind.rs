fn main() {}

#[soybean::model(gpus = 1, mode = "inference", entries = (few, "many", few, more = "often"))]
mod sizes {
    use soybean::prelude::*;

    pub fn few(x: Tensor<f32, 2, 6>) -> Tensor {
        x.sum(1)
    }

    pub fn more(x: Tensor<f32, 4, 6>) -> Tensor {
        x.sum(1)
    }
}

#[soybean::model(gpus = 1, mode = "inference", entries = ())]
mod none {
    use soybean::prelude::*;

    pub fn forward(x: Tensor<f32, 2, 6>) -> Tensor {
        x.sum(1)
    }
}

#[soybean::model(gpus = 1, mode = "inference", entries = (function, other))]
fn function(x: soybean::Tensor<f32, 2, 6>) -> soybean::Tensor {
    x.sum(1)
}

#[soybean::model(gpus = 1, mode = "inference", entries = (forward, batch, network))]
mod taken {
    use soybean::prelude::*;

    pub fn forward(x: Tensor<f32, 2, 6>) -> Tensor {
        x.sum(1)
    }

    pub fn batch(x: Tensor<f32, 2, 6>) -> Tensor {
        x.sum(1)
    }
}
