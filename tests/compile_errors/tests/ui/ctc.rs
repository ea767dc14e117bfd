#[soybean::model(gpus = 2)]
mod sequences {
    use soybean::prelude::*;

    pub fn forward(
        x: Tensor<f32, 8, 4, 6>,
        y: Tensor<i32, 4, 3>,
        z: Tensor<i32, 3, 4>,
        n: Tensor<i32, 4>,
        m: Tensor<i32, 8>,
    ) -> Tensor {
        let flat = x.flatten().ctc_loss(y, n, n);
        let targets = x.ctc_loss(z, n, n);
        let numbers = x.ctc_loss(y.to_f32(), n, n);
        let frames = x.ctc_loss(y, m, n);
        let blank = x.ctc_loss_with(y, n, n, 6, "mean", false);
        let reduction = x.ctc_loss_with(y, n, n, 0, "max", false);
        flat + targets + numbers + frames + blank + reduction
    }
}

fn main() {}
