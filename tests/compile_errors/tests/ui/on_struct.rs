#[soybean::model(gpus = 2)]
struct Model {
    width: usize,
}

fn main() {}
