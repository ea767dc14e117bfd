#[soybean::model(gpus = 2)]
mod transformer {
    use soybean::prelude::*;

    pub fn forward(
        x: Tensor<f32, 4, 2, 6, 8>,
        lengths: Tensor<i32, 4>,
        segments: Tensor<i32, 4, 6>,
    ) -> Tensor {
        let a = x.attention_with(x, x, "full", .., 0.0, 1.0, 0.0);
        let b = x.attention_with(x, x, true, .., 0.0, 1.0, 0.0);
        let c = x.attention_with(x, x, 0, .., 0.0, 1.0, 0.0);
        let d = x.attention_with(x, x, "none", x.sum([1, 2, 3]), 0.0, 1.0, 0.0);
        let e = x.attention_with(x, x, "none", segments, 0.0, 1.0, 0.0);
        let f = x.attention_with(x, x, "none", [segments, lengths], 0.0, 1.0, 0.0);
        let g = x.attention_with(x, x, "none", 6, 0.0, 1.0, 0.0);
        let h = x.attention_with(x, x, "none", .., x.mean(1), 1.0, 0.0);
        let i = x.attention_with(x, x, "none", .., 0.0, 1.0, 1.0);
        let j = x.attention_with(x, x, "none", .., 0.0, 0.0);
        (a + b + c + d + e + f + g + h + i + j).mean(..)
    }
}

fn main() {}
