//! Embedding tables whose updates change the rows of a batch alone: training has the results of
//! updates of the whole table.

use soybean::runtime::{Trainer, View};
use soybean_compiler::{
    Argument, Builder, Compiled, Optimizer, Options, SearchRequest, Strategy, Value, optimizer,
};
use soybean_plan::{DType, EmbeddingForm, Init, Kernel, NonFinite, Precision};

use soybean_test_support::models::{call, dense, finish_with, numbers, sgd, single, trainer};

const BATCH: usize = 16;
const ROWS: usize = 48;
const WIDTH: usize = 8;

/// A table that is looked up twice for each sample, and a layer. The table has a tiling if `pin`
/// has one.
fn model(pin: &str) -> (Builder, Value) {
    let mut builder = Builder::new();
    let words = builder.input("words", DType::I32, &[BATCH, 2]);
    let y = builder.input("y", DType::F32, &[BATCH, 1]);
    let mut table =
        builder.parameter("table", &[ROWS, WIDTH], Init::Normal { mean: 0.0, std: 1.0 });
    if !pin.is_empty() {
        let pin = Argument::Text(pin.to_owned());
        table = call(&mut builder, "tiled", &[Argument::Tensor(table), pin]);
    }
    let rows = call(&mut builder, "embedding", &[words, table].map(Argument::Tensor));
    let flat = call(&mut builder, "flatten", &[Argument::Tensor(rows)]);
    let found = dense(&mut builder, flat, "last", 1);
    let difference = call(&mut builder, "sub", &[found, y].map(Argument::Tensor));
    let squares = call(&mut builder, "square", &[Argument::Tensor(difference)]);
    let loss = call(&mut builder, "mean", &[Argument::Tensor(squares), Argument::All]);
    (builder, loss)
}

/// Compiles the model of a pin.
pub(crate) fn compiled(
    n_gpus: usize,
    search: SearchRequest,
    pin: &str,
    optimizer: Optimizer,
) -> Compiled {
    let (builder, loss) = model(pin);
    let (name, precision) = ("model".to_owned(), Precision::F32);
    finish_with(builder, loss, &[], &Options { name, n_gpus, search, precision, optimizer })
}

/// Returns the optimizers whose updates may be sparse.
pub(crate) fn sparse() -> [Optimizer; 3] {
    let named = |it: &str| optimizer(it, &[]).unwrap();
    [sgd(0.0), named("adagrad"), named("lazy_adam")]
}

/// The same optimizer with a limit on the norm of gradients that none exceeds, so gradients of
/// tables are needed.
fn with_norm(optimizer: Optimizer) -> Optimizer {
    Optimizer { clip_norm: Some(1e30), ..optimizer }
}

fn has_gradients_of_tables(compiled: &Compiled) -> bool {
    let is_one =
        |it: &Kernel| matches!(it, Kernel::Embed(it) if it.form == EmbeddingForm::ScatterAdd);
    compiled.program.kernels.iter().any(is_one)
}

pub(crate) fn n_sparse_updates(compiled: &Compiled) -> usize {
    let is_one = |it: &usize| matches!(compiled.program.kernels[*it], Kernel::UpdateEmbedding(_));
    compiled.program.train[0].iter().map(|it| it.kernel).filter(is_one).count()
}

/// Runs a few steps, some of whose words repeat. Returns the losses, the parameters and states.
fn trained(compiled: &Compiled) -> Vec<f32> {
    let mut trainer = trainer(compiled, 0.05);
    let mut found = Vec::new();
    for step in 0..4 {
        found.push(run(&mut trainer, step));
        assert_eq!(trainer.moved_bytes(), compiled.program.tables.train_bytes());
    }
    let tensors = trainer.parameters().unwrap().into_iter();
    let tensors = tensors.chain(trainer.optimizer_state().unwrap());
    found.extend(tensors.flat_map(|it| it.1.data));
    found
}

fn run(trainer: &mut Trainer, step: usize) -> f32 {
    let words = (0..BATCH * 2).map(|it| i32::try_from((it * it * 7 + step * 5) % ROWS).unwrap());
    let words: Vec<i32> = words.collect();
    let y = single(&numbers(BATCH, step));
    trainer.step(&[View::I32(&words), View::F32(&y)]).unwrap()
}

fn assert_near(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        // Some dozen numbers of size 1 are added up in another order.
        assert!((found - expected).abs() < 1e-5, "{what}: {found}, not {expected}");
    }
}

#[test]
fn sparse_updates_have_the_bits_of_dense_ones_on_one_device() {
    for optimizer in sparse() {
        let sparse = compiled(1, Strategy::Auto.into(), "", optimizer.clone());
        let dense = compiled(1, Strategy::Auto.into(), "", with_norm(optimizer));
        assert!(!has_gradients_of_tables(&sparse) && has_gradients_of_tables(&dense));
        assert_eq!([&sparse, &dense].map(n_sparse_updates), [1, 0]);
        let bits = |it: &Compiled| trained(it).into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(&sparse), bits(&dense));
    }
}

#[test]
fn sparse_updates_agree_on_any_number_of_devices() {
    for optimizer in sparse() {
        let expected = trained(&compiled(1, Strategy::Auto.into(), "", optimizer.clone()));
        for n_gpus in [2, 4, 6, 8] {
            for strategy in [Strategy::Auto, Strategy::Data, Strategy::Model] {
                let sparse = compiled(n_gpus, strategy.into(), "", optimizer.clone());
                let what = format!("{n_gpus} ranks, {strategy:?}");
                assert!(n_sparse_updates(&sparse) > 0, "{what}");
                assert!(!has_gradients_of_tables(&sparse), "{what}");
                assert_near(&trained(&sparse), &expected, &what);
            }
        }
    }
}

// Guards: a rank updates a copy of a table that is stored in another tiling.
#[test]
fn tables_may_be_stored_in_any_tiling() {
    for optimizer in sparse() {
        let expected = trained(&compiled(1, Strategy::Auto.into(), "", optimizer.clone()));
        for pin in ["r r", "P0 r", "P1 P0", "r P1"] {
            let sparse = compiled(4, Strategy::Auto.into(), pin, optimizer.clone());
            assert!(n_sparse_updates(&sparse) > 0 && !has_gradients_of_tables(&sparse), "{pin}");
            assert_near(&trained(&sparse), &expected, pin);
        }
    }
}

#[test]
fn gradients_that_are_needed_are_dense() {
    let momentum = sgd(0.9);
    let decay = [("weight_decay".to_owned(), Argument::Float(0.1))];
    for optimizer in [
        momentum,
        optimizer("sgd", &decay).unwrap(),
        optimizer("adam", &[]).unwrap(),
        Optimizer { accumulate: 2, ..sgd(0.0) },
        Optimizer { ema: Some(0.9), ..sgd(0.0) },
        Optimizer { non_finite: NonFinite::Skip, ..sgd(0.0) },
        Optimizer { non_finite: NonFinite::Scale, ..sgd(0.0) },
    ] {
        let dense = compiled(1, Strategy::Auto.into(), "", optimizer);
        assert!(has_gradients_of_tables(&dense));
    }
}
