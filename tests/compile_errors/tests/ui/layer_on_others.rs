#[soybean::layer]
pub struct Dense {
    pub units: usize,
}

#[soybean::layer]
pub const UNITS: usize = 10;

#[soybean::constant]
pub fn units() -> usize {
    10
}

#[soybean::layer(units = 10)]
pub fn dense(x: soybean::Tensor) -> soybean::Tensor {
    x
}

#[soybean::layer]
pub fn generic<const N: usize>(x: soybean::Tensor) -> soybean::Tensor {
    x
}

#[soybean::model(gpus = 1)]
pub fn model(x: soybean::Tensor<f32, 2, 2>) -> soybean::Tensor {
    generic(dense(x)).mean(..)
}

fn main() {}
