use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let a = x.view([64, 28, 28]);
    let b = x.t();
    let [c, d] = x.unbind(1);
    let e = x.trunc();
    let f = x.size(0);
    let g = cat([x, x], 1);
    let h = relu(x);
    let i = x.relu_();
    let j = x.cat(x, 1);
    let k = x.concat(x, 1);
    let l = x.sum(dim = 1, keepdim = true);
    let m = torch.cat([x, x], 1);
    let n = F.relu(x);
    let o = nn::Linear(784, 10);
    let p = x.cuda();
    let q = x.mean(keepdim = true);
    (a + b + c + d + e + f + g + h + i + j + k).mean(..)
}

#[soybean::model(gpus = 2, optimizer = adam(lr = 0.001))]
fn learning_rate(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("w", [784], zeros())).mean(..)
}

#[soybean::model(gpus = 2, lr = 0.001, batch_size = 64)]
fn attribute(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("w", [784], zeros())).mean(..)
}

fn main() {}
