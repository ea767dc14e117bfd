#[soybean::model(gpus = 2)]
mod parts {
    use soybean::prelude::*;

    pub fn forward(x: Tensor<f32, 8, 6>) -> Tensor {
        let [a, b] = x.split([3, 4], 1);
        let [c, d] = x.split([1, 2, 3], 1);
        let e = x.slice(1, 4, 7);
        let f = x.slice(0, 3, 3);
        let g = x.pad([1, 1, 1, 1, 1, 1], 0.0);
        let h = x.pad([-3, -3], 0.0);
        a.mean(..) + b.mean(..) + c.mean(..) + d.mean(..) + e.mean(..) + f.mean(..) + g.mean(..)
            + h.mean(..)
    }
}

fn main() {}
