#[soybean::model(gpus = 2)]
mod joined {
    use soybean::prelude::*;

    pub fn forward(x: Tensor<f32, 8, 6>, y: Tensor<i32, 8, 6>) -> Tensor {
        let w = param("w", [8, 4], normal(0.1));
        let unequal = concat([x, w], 0);
        let stacked = stack([x, w], 0);
        let mixed = concat([x, y], 1);
        let lonely = concat(w, 1);
        let number = concat([w, 1.0], 1);
        let method = x.concat([w], 1);
        let misspelt = concta([x, w], 1);
        unequal.mean(..) + stacked.mean(..) + mixed.mean(..) + lonely.mean(..) + number.mean(..)
            + method.mean(..) + misspelt.mean(..)
    }
}

fn main() {}
