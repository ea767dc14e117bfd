//! Evaluations of data whose rows have different numbers of labels that count.

use soybean::{
    Config,
    data::{Column, Table, Values},
};

macro_rules! model {
    ($name:ident, $rows:literal) => {
        #[soybean::model(gpus = 2)]
        mod $name {
            use soybean::prelude::*;

            pub(crate) fn forward(x: Tensor<f32, $rows, 4>, y: Tensor<i32, $rows>) -> Tensor {
                let logits = x.matmul(param("w", [4, 3], normal(1.0)));
                logits.cross_entropy_with(y, 1.0, -1, "mean", 0.0)
            }
        }
    };
}

model!(in_batches, 4);
model!(at_once, 8);

const LABELS: [i32; 8] = [2, -1, -1, 0, -1, -1, -1, 1];

fn x() -> Vec<f32> {
    (0..32u16).map(|it| f32::from(it * 37 % 32) / 16.0 - 1.0).collect()
}

/// Returns the first rows as a data set.
fn rows(n: usize) -> Table {
    let column = |name: &str, row: &[usize], values| Column {
        name: name.to_owned(),
        row: row.to_vec(),
        values,
    };
    let x = Values::F32(x()[..4 * n].to_vec());
    let y = Values::I32(LABELS[..n].to_vec());
    Table::new(vec![column("x", &[4], x), column("y", &[], y)]).unwrap()
}

/// Guards: the held-out loss is a mean over all labels that count, and not one of means of batches
/// that count different numbers, or none. Rows that fill up a batch count neither.
#[test]
fn held_out_losses_are_means_over_the_labels_that_count() {
    let mut once = at_once::Trainer::new(Config::default()).unwrap();
    let mut batches = in_batches::Trainer::new(Config::default()).unwrap();
    for n in 1..=8 {
        let mut y = [-1; 8];
        y[..n].copy_from_slice(&LABELS[..n]);
        let expected = f64::from(once.evaluate(&at_once::Batch { x: &x(), y: &y }).unwrap().loss);
        let found = batches.evaluate_dataset(rows(n), &[]).unwrap().loss;
        assert!((found - expected).abs() < 1e-6 * expected, "{n} rows: {found}, {expected}");
    }
}

/// Guards: a held-out loss is a number that says something, or an error.
#[test]
fn held_out_data_without_labels_are_an_error() {
    let mut trainer = in_batches::Trainer::new(Config::default()).unwrap();
    let x = Column { name: "x".to_owned(), row: vec![4], values: Values::F32(vec![0.5; 20]) };
    let y = Column { name: "y".to_owned(), row: Vec::new(), values: Values::I32(vec![-1; 5]) };
    let unlabeled = Table::new(vec![x, y]).unwrap();
    let error = trainer.evaluate_dataset(unlabeled, &[]).unwrap_err();
    let expected = "expected samples that count in the loss, found none: all labels are ignored, or all weights are 0";
    assert_eq!(error.to_string(), expected);
}
