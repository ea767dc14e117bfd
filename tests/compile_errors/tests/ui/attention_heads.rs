#[soybean::model(gpus = 2)]
mod transformer {
    use soybean::prelude::*;

    const BATCH: usize = 4;
    const TOKENS: usize = 6;
    const WIDTH: usize = 32;
    const HEADS: usize = 5;

    pub fn forward(x: Tensor<f32, BATCH, TOKENS, WIDTH>) -> Tensor {
        let q = x.matmul(param("q", [WIDTH, WIDTH], xavier_uniform()).transpose());
        let heads = q.reshape([BATCH, TOKENS, HEADS, WIDTH / HEADS]).permute([0, 2, 1, 3]);
        let k = param("k", [BATCH, 3, TOKENS, 8], normal(0.1));
        let v = param("v", [BATCH, 3, TOKENS, 8], normal(0.1));
        let seen = q.reshape([BATCH, 4, TOKENS, 8]).scaled_dot_product_attention(k, v, true);
        heads.mean(..) + seen.mean(..)
    }
}

fn main() {}
