use soybean::prelude::*;

#[soybean::model(gpus = 1)]
fn trained(x: Tensor<f32, 4, 3>) -> Tensor {
    (x * param("w", [3], ones()) + state("kept", [4, 3])).mean(..)
}

#[soybean::model(gpus = 1)]
mod buffers {
    use soybean::prelude::*;

    pub(crate) fn forward(x: Tensor<f32, 4, 3>) -> Tensor {
        let w = param("w", [3], ones());
        let kept = buffer("kept", [3], zeros());
        w.assign(x.mean(0));
        kept.assign(x);
        kept.assign(x.mean(0));
        kept.assign(x.max(0));
        (x * w).mean(..)
    }
}

#[soybean::model(gpus = 1, mode = "inference")]
mod forgotten {
    use soybean::prelude::*;

    pub(crate) fn forward(x: Tensor<f32, 4, 3>) -> Tensor {
        x + state("kept", [4, 3])
    }
}

#[soybean::model(gpus = 1, mode = "inference")]
mod arguments {
    use soybean::prelude::*;

    pub(crate) fn forward(x: Tensor<f32, 4, 3>) -> Tensor {
        let kept = state("kept", [4, 3], zeros());
        kept.assign(x)
    }
}

fn main() {}
