#[soybean::model(gpus = 2)]
mod net;

fn main() {}
