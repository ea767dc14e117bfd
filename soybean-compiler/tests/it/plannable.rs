//! Models whose operators have no dim that all ranks can split, or none at all: each is planned
//! under every strategy, and whatever can be split is.

use soybean_compiler::{Argument, Builder, Optimizer, Options, SearchRequest, Strategy, Value};
use soybean_plan::{DType, Init, Precision};

use crate::support::call;

fn integers(numbers: &[i64]) -> Argument {
    Argument::List(numbers.iter().map(|&it| Argument::Integer(it)).collect())
}

/// A model under construction.
struct Model {
    builder: Builder,
    here: Value,
}

impl Model {
    fn new(shape: &[usize]) -> Self {
        let mut builder = Builder::new();
        let here = builder.input("x", DType::F32, shape);
        Self { builder, here }
    }

    fn apply(mut self, operator: &str, arguments: &[Argument]) -> Self {
        let all = [&[Argument::Tensor(self.here)], arguments].concat();
        self.here = call(&mut self.builder, operator, &all);
        self
    }

    fn times(mut self, name: &str, shape: &[usize]) -> Self {
        let init = Init::Normal { mean: 0.0, std: 0.1 };
        let parameter = Argument::Tensor(self.builder.parameter(name, shape, init));
        self.apply("matmul", &[parameter])
    }

    fn reshape(self, shape: &[i64]) -> Self {
        self.apply("reshape", &[integers(shape)])
    }

    fn permute(self, order: &[i64]) -> Self {
        self.apply("permute", &[integers(order)])
    }

    /// Compiles the mean of the squares under every strategy.
    #[track_caller]
    fn check(self, n_gpus: usize) {
        let model = self.apply("square", &[]).apply("mean", &[Argument::All]);
        for (name, strategy) in Strategy::NAMES {
            let options = Options {
                name: "model".to_owned(),
                n_gpus,
                search: SearchRequest::from(strategy),
                precision: Precision::F32,
                optimizer: Optimizer::default(),
            };
            let (builder, loss) = (model.builder.clone(), model.here);
            let compiled = soybean_compiler::compile(builder, loss, &[], &options, &|| 0.0);
            let compiled = compiled.unwrap_or_else(|it| panic!("{name}: {it:?}"));
            let counted = compiled.report.search().tiled.bytes();
            assert_eq!(compiled.program.tables.train_bytes(), counted, "{name}");
        }
    }
}

#[test]
fn reshapes_of_incompatible_dims() {
    let model = Model::new(&[4, 6, 5]).reshape(&[3, 2, 20]);
    model.times("p", &[20, 6]).check(2);
}

#[test]
fn windows_that_change_every_dim() {
    let pad = [integers(&[0, 1, 1, 1]), Argument::Float(0.5)];
    Model::new(&[6, 9]).apply("pad", &pad).times("p", &[10, 4]).check(2);
    let pad = [integers(&[1, 2, 3, 3]), Argument::Float(0.0)];
    let model = Model::new(&[30, 9]).apply("pad", &pad).times("p", &[12, 7]);
    model.apply("relu", &[]).times("w", &[7, 3]).check(6);
}

#[test]
fn batches_that_fall_below_the_number_of_ranks() {
    let model = Model::new(&[8, 2, 4, 6]).times("z", &[6, 6]).permute(&[0, 2, 1, 3]);
    model.reshape(&[2, 16, 12]).times("q", &[12, 12]).check(8);
    let model = Model::new(&[8, 2, 16, 6]).times("z", &[6, 6]).permute(&[0, 2, 1, 3]);
    let model = model.reshape(&[2, 2, 2, 4, 4, 12]).permute(&[0, 1, 3, 2, 4, 5]);
    model.reshape(&[2, 8, 8, 12]).check(8);
}

#[test]
fn tensors_of_many_elements() {
    // 2^44 elements in all tensors together would overflow 64 bits on many ranks.
    Model::new(&[1 << 20, 1 << 20]).times("p", &[1 << 20, 1 << 10]).check(64);
}

#[test]
fn tensors_that_are_too_large_together() {
    let model = Model::new(&[1 << 22, 1 << 22]).times("p", &[1 << 22, 1 << 22]);
    let model = model.apply("mean", &[Argument::All]);
    let options = Options {
        name: "model".to_owned(),
        n_gpus: 4096,
        search: SearchRequest::default(),
        precision: Precision::F32,
        optimizer: Optimizer::default(),
    };
    let faults = soybean_compiler::compile(model.builder, model.here, &[], &options, &|| 0.0);
    let messages: Vec<String> = faults.unwrap_err().into_iter().map(|it| it.message).collect();
    let [message] = &messages[..] else { panic!("{messages:?}") };
    assert!(message.starts_with("the tensors of this model are too large for 4096 GPUs"));
}
