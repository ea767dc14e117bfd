#[soybean::model(gpus = 2)]
mod images {
    use soybean::prelude::*;

    pub fn forward(x: Tensor<f32, 8, 6, 8, 8>, s: Tensor<f32, 8, 4, 9>) -> Tensor {
        let channels = x.conv2d(param("a", [4, 3, 3, 3], he_normal()), 1, 1, 1, 1);
        let kernel = x.conv2d(param("b", [4, 6, 9, 9], he_normal()), 1, 0, 1, 1);
        let groups = x.conv2d(param("c", [8, 2, 3, 3], he_normal()), 1, 1, 1, 4);
        let transposed = x.conv_transpose2d(param("d", [4, 6, 3, 3], he_normal()), 2, 1, 0, 1, 1);
        let beyond = x.conv_transpose2d(param("e", [6, 4, 3, 3], he_normal()), 2, 1, 2, 1, 1);
        let sequence = s.conv1d(param("f", [4, 2, 3], he_normal()), 1, 1, 1, 1);
        let window = x.local_response_norm(0, 1e-4, 0.75, 1.0);
        let pooled = x.adaptive_avg_pool2d([0, 2]);
        let flat = x.conv3d(param("g", [4, 6, 3, 3, 3], he_normal()), 1, 1, 1, 1);
        let volumes = x.unsqueeze(2);
        let deep = volumes.conv3d(param("h", [4, 6, 3, 3, 3], he_normal()), 1, 0, 1, 1);
        let few = volumes.max_pool3d([1, 2], 1, 0);
        let outside = volumes.avg_pool3d(1, 1, 1);
        channels.mean(..) + kernel.mean(..) + groups.mean(..) + transposed.mean(..)
            + beyond.mean(..) + sequence.mean(..) + window.mean(..) + pooled.mean(..)
            + flat.mean(..) + deep.mean(..) + few.mean(..) + outside.mean(..)
    }
}

fn main() {}
