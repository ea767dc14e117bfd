#[soybean::model(gpus = 2)]
mod transformer {
    use soybean::prelude::*;

    fn slope(score: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor {
        score - (query - key).to_f32() / (head + 1).to_f32()
    }

    pub fn forward(x: Tensor<f32, 4, 2, 6, 8>, t: Tensor<f32, 6>) -> Tensor {
        let a = x.flex_attention(x, x, "causal", .., slope);
        let b = x.flex_attention(x, x, "causal", .., 0.5);
        let c = x.flex_attention(x, x, "causal", .., |score, query, key| score);
        let d = x.flex_attention(x, x, "causal", .., |score, _, _, _| score + t);
        let e = x.flex_attention(x, x, "causal", .., |score, _, _, _| score * t.mean(..));
        let f = x.flex_attention(x, x, "causal", .., |_, _, query, key| query - key);
        let g = x.flex_attention(x, x, "causal", .., |score, _, query, _| score * query);
        let h = x.flex_attention(x, x, "causal", .., |score, _, _, _| score.dropout(0.5));
        let i = x.flex_attention(x, x, "full", .., |score, _, _, _| score);
        let j = x.flex_attention(x, x, "causal", .., |_, _, _, _| 1.0);
        let k = x.flex_attention(x, x, |score, _, _, _| score);
        let l = x.relu(|score| score);
        (a + b + c + d + e + f + g + h + i + j + k + l).mean(..)
    }
}

fn main() {}
