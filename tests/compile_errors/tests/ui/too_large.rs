#[soybean::model(gpus = 2)]
pub mod loops {
    use soybean::prelude::*;

    pub fn forward(x: Tensor<f32, 64, 784>) -> Tensor {
        let mut n = 0;
        for _ in 0..1000 {
            for _ in 0..1000 {
                for _ in 0..1000 {
                    n += 1;
                }
            }
        }
        (x * n as f64).mean(..)
    }
}

#[soybean::model(gpus = 2)]
pub mod calls {
    use soybean::prelude::*;

    fn f0(x: Tensor) -> Tensor {
        x.relu()
    }
    fn f1(x: Tensor) -> Tensor {
        f0(f0(x))
    }
    fn f2(x: Tensor) -> Tensor {
        f1(f1(x))
    }
    fn f3(x: Tensor) -> Tensor {
        f2(f2(f2(f2(f2(f2(x))))))
    }
    fn f4(x: Tensor) -> Tensor {
        f3(f3(f3(f3(f3(f3(f3(f3(x))))))))
    }
    fn f5(x: Tensor) -> Tensor {
        f4(f4(f4(f4(f4(f4(f4(f4(x))))))))
    }
    fn f6(x: Tensor) -> Tensor {
        f5(f5(f5(f5(f5(f5(f5(f5(x))))))))
    }
    fn f7(x: Tensor) -> Tensor {
        f6(f6(f6(f6(f6(f6(f6(f6(x))))))))
    }

    pub fn forward(x: Tensor<f32, 64, 784>) -> Tensor {
        f7(f7(f7(f7(x)))).mean(..)
    }
}

#[soybean::model(gpus = 2)]
pub mod arrays {
    use soybean::prelude::*;
    const TABLE: [[[usize; 10000]; 10000]; 10000] = [[[1; 10000]; 10000]; 10000];

    pub fn forward(x: Tensor<f32, 64, 784>) -> Tensor {
        (x * TABLE[0][0][0] as f64).mean(..)
    }
}

fn main() {}
