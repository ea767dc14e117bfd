//! Predictions of any number of rows: every operator of the compiler's list on batched operands,
//! and layers that read constants beside the batch.

use std::sync::Arc;

use soybean::{
    Config, Device,
    plan::{Mode, Rows},
    runtime::{Array, Predictor, View},
};
use soybean_compiler::{
    Argument, Builder, Optimizer, Options, Sample, SampleArgument, SearchRequest, compile,
    operator_samples,
};
use soybean_plan::{DType, Init, Output, Precision};
use soybean_test_support::models::single;

use crate::support::samples::{Trial, compiled_argument, is_buffer, leaves};

/// One operand of a sample with its elements.
#[derive(Clone)]
enum Operand {
    F32(Vec<f32>),
    I32 { elements: Vec<i32>, n_classes: usize },
}

impl Operand {
    fn view(&self) -> View<'_> {
        match self {
            Self::F32(elements) => View::F32(elements),
            Self::I32 { elements, .. } => View::I32(elements),
        }
    }

    /// Returns the elements of these rows of `n_rows`, one after another.
    fn of_rows(&self, n_rows: usize, rows: &[usize]) -> Self {
        match self {
            Self::F32(elements) => Self::F32(of_rows(elements, n_rows, rows)),
            Self::I32 { elements, n_classes } => {
                Self::I32 { elements: of_rows(elements, n_rows, rows), n_classes: *n_classes }
            }
        }
    }

    /// Returns this operand with other elements in one row.
    fn with_changed(&self, n_rows: usize, row: usize) -> Self {
        match self.clone() {
            Self::F32(mut elements) => {
                let of_row = elements.len() / n_rows;
                for it in &mut elements[row * of_row..(row + 1) * of_row] {
                    *it = *it * 0.75 + 0.1;
                }
                elements[row * of_row..(row + 1) * of_row].reverse();
                Self::F32(elements)
            }
            Self::I32 { mut elements, n_classes } => {
                let of_row = elements.len() / n_rows;
                let n_classes = i32::try_from(n_classes).unwrap();
                for it in &mut elements[row * of_row..(row + 1) * of_row] {
                    *it = (*it + 1) % n_classes;
                }
                Self::I32 { elements, n_classes: usize::try_from(n_classes).unwrap() }
            }
        }
    }
}

fn of_rows<T: Copy>(elements: &[T], n_rows: usize, rows: &[usize]) -> Vec<T> {
    let of_row = elements.len() / n_rows;
    rows.iter().flat_map(|it| &elements[it * of_row..(it + 1) * of_row]).copied().collect()
}

/// Returns an output's parts of these rows of `n_rows` along a dim, one after another, as bits.
fn parts(array: &Array, dim: usize, n_rows: usize, rows: &[usize]) -> Vec<u32> {
    let integers = array.integers.iter().map(|it| it.cast_unsigned());
    let bits: Vec<u32> = array.data.iter().map(|it| it.to_bits()).chain(integers).collect();
    let inner: usize = array.shape[dim..].iter().product();
    let blocks = bits.chunks(inner.max(1));
    blocks.flat_map(|it| of_rows(it, n_rows, rows)).collect()
}

/// A predictor of one sample, with the operands that are its batch.
struct Batched {
    predictor: Predictor,
    outputs: Vec<Output>,
    n_rows: usize,
    batch: Vec<Operand>,
}

/// Returns the numbers of the operands whose dim 0 is that of the first one: all, and the first
/// alone. Labels are always part of the batch. There are none if the first operand has no rows.
fn batches(sample: &Sample) -> Vec<Vec<usize>> {
    let operands: Vec<&SampleArgument> =
        leaves(sample).into_iter().filter(|it| shape(it).is_some()).collect();
    let rows_of = |at: usize| {
        let operand = Some(operands[at]).filter(|it| !is_buffer(it));
        operand.and_then(shape).and_then(|it| it.first().copied())
    };
    let Some(n_rows) = (0..operands.len().min(1)).find_map(rows_of).filter(|it| *it > 1) else {
        return Vec::new();
    };
    let all: Vec<usize> = (0..operands.len()).filter(|it| rows_of(*it) == Some(n_rows)).collect();
    let has_labels = |batch: &Vec<usize>| {
        let is_label = |it: &&SampleArgument| matches!(it, SampleArgument::Labels { .. });
        (0..operands.len()).all(|it| batch.contains(&it) || !is_label(&operands[it]))
    };
    let first = Some(vec![0]).filter(|it| *it != all);
    [all].into_iter().chain(first).filter(has_labels).collect()
}

fn shape(leaf: &SampleArgument) -> Option<&[usize]> {
    match leaf {
        SampleArgument::Tensor { shape, .. }
        | SampleArgument::Buffer { shape, .. }
        | SampleArgument::Labels { shape, .. } => Some(shape),
        _ => None,
    }
}

impl Batched {
    /// Builds a predictor whose inputs are these operands, and whose weights are the others.
    fn new(sample: &Sample, inputs: &[usize], n_gpus: usize) -> Result<Self, String> {
        let trial = Trial::new(sample);
        let mut builder = Builder::in_mode(Mode::Inference);
        let (mut tensors, mut batch, mut weights, mut n_rows) = (vec![], vec![], vec![], 0);
        let leaves = leaves(sample).into_iter().zip(&trial.operands);
        let leaves = leaves.filter_map(|(it, elements)| Some((it, shape(it)?, elements)));
        for (number, (leaf, shape, elements)) in leaves.enumerate() {
            let (name, data) = (format!("operand{number}"), single(elements));
            let n_classes = match leaf {
                SampleArgument::Labels { n_classes, .. } => Some(*n_classes),
                _ => None,
            };
            if !inputs.contains(&number) {
                let array = Array { shape: shape.to_vec(), data, ..Array::default() };
                weights.push((name.clone(), array));
                let init = Init::Constant(0.0);
                tensors.push(match is_buffer(leaf) {
                    true => builder.buffer(&name, shape, init),
                    false => builder.parameter(&name, shape, init),
                });
                continue;
            }
            n_rows = shape.first().copied().unwrap_or(1);
            tensors.push(match n_classes {
                Some(n_classes) => {
                    #[expect(clippy::cast_possible_truncation, reason = "small integers")]
                    let elements = elements.iter().map(|it| *it as i32).collect();
                    batch.push(Operand::I32 { elements, n_classes });
                    builder.input(&name, DType::I32, shape)
                }
                None => {
                    batch.push(Operand::F32(data));
                    builder.input(&name, DType::F32, shape)
                }
            });
        }
        let mut tensors = tensors.into_iter();
        let arguments: Vec<Argument> = (sample.arguments.iter())
            .map(|it| compiled_argument(&mut builder, it, &mut tensors))
            .collect();
        let called = builder.call(sample.operator, &arguments).map_err(|it| it.message)?;
        let results = match called {
            Argument::List(results) => results,
            one => vec![one],
        };
        let outputs = results.into_iter().enumerate().filter_map(|(number, it)| match it {
            Argument::Tensor(value) => Some((format!("result{number}"), value)),
            _ => None,
        });
        let outputs = outputs.collect::<Vec<_>>();
        let (search, optimizer) = (SearchRequest::default(), Optimizer::default());
        let (name, precision) = ("sample".to_owned(), Precision::F32);
        let options = Options { name, n_gpus, search, precision, optimizer };
        let compiled = compile(builder, None, &outputs, &options, &|| 0.0)
            .map_err(|faults| format!("{faults:?}"))?;
        let outputs = compiled.program.tables.outputs.to_vec();
        let config = Config { device: Device::Cpu, ..Config::default() };
        let mut predictor = Predictor::new_shared(Arc::new(compiled.program), config).unwrap();
        predictor.set_parameters(&weights).map_err(|it| it.to_string())?;
        Ok(Self { predictor, outputs, n_rows, batch })
    }

    fn predict(&mut self, batch: &[Operand]) -> Result<Vec<Array>, soybean::Error> {
        let views: Vec<View<'_>> = batch.iter().map(Operand::view).collect();
        self.predictor.predict(0, &views)
    }

    fn of_rows(&self, rows: &[usize]) -> Vec<Operand> {
        self.batch.iter().map(|it| it.of_rows(self.n_rows, rows)).collect()
    }

    /// Returns, by predictions of whole batches alone, what the rows are to each output.
    fn observed(&mut self) -> Vec<Observed> {
        let n_rows = self.n_rows;
        let all: Vec<usize> = (0..n_rows).collect();
        let shifted: Vec<usize> = (1..n_rows).chain([0]).collect();
        let (plain, moved) = (self.batch.clone(), self.of_rows(&shifted));
        let whole = self.predict(&plain).unwrap();
        let of_shifted = self.predict(&moved).unwrap();
        let changed: Vec<Vec<Array>> = (0..n_rows)
            .map(|row| {
                let batch: Vec<Operand> =
                    self.batch.iter().map(|it| it.with_changed(n_rows, row)).collect();
                self.predict(&batch).unwrap()
            })
            .collect();
        let observed = |at: usize| {
            let has_rows = |dim: &usize| {
                let extent = whole[at].shape[*dim];
                let is_shifted = || {
                    parts(&of_shifted[at], *dim, n_rows, &all)
                        == parts(&whole[at], *dim, n_rows, &shifted)
                };
                let is_alone = |row: usize| {
                    let others: Vec<usize> = (0..n_rows).filter(|it| *it != row).collect();
                    parts(&changed[row][at], *dim, n_rows, &others)
                        == parts(&whole[at], *dim, n_rows, &others)
                };
                extent.is_multiple_of(n_rows) && is_shifted() && (0..n_rows).all(is_alone)
            };
            let depends = changed.iter().chain([&of_shifted]).any(|it| it[at] != whole[at]);
            let dims = (0..whole[at].shape.len()).filter(has_rows).collect();
            Observed { depends, dims }
        };
        (0..whole.len()).map(observed).collect()
    }
}

/// An output, as predictions of whole batches show it.
struct Observed {
    /// True if it depends on the batch.
    depends: bool,
    /// The dims along which each row has a part of its own.
    dims: Vec<usize>,
}

/// Operators of which a sample has independent rows by its numbers alone, with the reason.
const BY_CHANCE: [(&str, &str); 3] = [
    (
        "where_",
        "no condition is 0, so the other operand, which has a part for each row, is not read",
    ),
    ("sliding_window_attention", "a window of 1 shows each query its own key alone"),
    ("flex_attention", "the function of positions has one value for the first four queries"),
];

/// Checks an output's rows against those that are observed, and predictions of other numbers of
/// rows against a whole batch.
fn check(sample: &Sample, inputs: &[usize], n_gpus: usize) -> Result<bool, String> {
    let mut batched = Batched::new(sample, inputs, n_gpus)?;
    let observed = batched.observed();
    let n_rows = batched.n_rows;
    let mut has_all = true;
    for (output, Observed { depends, dims }) in batched.outputs.iter().zip(&observed) {
        let is_right = match output.rows {
            Rows::Own { dim } => dims.contains(&dim),
            Rows::Fixed => !depends,
            Rows::Mixed => {
                has_all = false;
                dims.is_empty() || BY_CHANCE.iter().any(|it| it.0 == sample.operator)
            }
        };
        if !is_right {
            let rows = output.rows;
            return Err(format!("`{}` is {rows:?}, its rows are in dims {dims:?}", output.name));
        }
    }
    let whole = batched.predict(&batched.batch.clone()).unwrap();
    for n_given in [1, n_rows - 1, n_rows + 1, 2 * n_rows + 1] {
        let rows: Vec<usize> = (0..n_rows).rev().cycle().take(n_given).collect();
        let given = batched.of_rows(&rows);
        let found = batched.predict(&given);
        if !has_all && n_given != n_rows {
            let error = found.err().ok_or("rows that are mixed have no error")?.to_string();
            let names = batched.outputs.iter().any(|it| error.contains(&format!("`{}`", it.name)));
            if !names || !error.contains("cannot be told apart") {
                return Err(format!("of {n_given} rows: {error}"));
            }
            continue;
        }
        let found = found.map_err(|it| format!("of {n_given} rows: {it}"))?;
        for (output, (found, whole)) in batched.outputs.iter().zip(found.iter().zip(&whole)) {
            let is_equal = match output.rows {
                Rows::Own { dim } => {
                    let all: Vec<usize> = (0..n_given).collect();
                    parts(found, dim, n_given, &all) == parts(whole, dim, n_rows, &rows)
                }
                Rows::Fixed | Rows::Mixed => found == whole,
            };
            if !is_equal {
                return Err(format!("`{}` of {n_given} rows is another", output.name));
            }
        }
    }
    Ok(has_all)
}

// Guards: whether the rows of a batch are told apart, for every operator and every choice of the
// operands that are batched. What predictions of whole batches show is the truth.
#[test]
fn rows_of_every_operator_are_told_apart_where_they_are_independent() {
    let (mut faults, mut n_apart, mut n_mixed) = (Vec::new(), 0, 0);
    for sample in operator_samples() {
        for inputs in batches(&sample) {
            match check(&sample, &inputs, 1) {
                Ok(true) => n_apart += 1,
                Ok(false) => n_mixed += 1,
                Err(fault) => faults.push(format!("{sample:?} with inputs {inputs:?}: {fault}")),
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(n_apart > 250 && n_mixed > 50, "{n_apart} {n_mixed}");
}

#[soybean::model(gpus = 2, mode = "inference")]
mod ordered {
    use soybean::prelude::*;

    pub(crate) fn forward(x: Tensor<f32, 4, 6>) -> (Tensor, Tensor, Tensor, Tensor, Tensor) {
        let logits = x * 2.0;
        let (best, indices) = logits.topk(2, 1);
        let (_, order) = logits.sort(1, "descending");
        (best, indices, order, logits.argsort(1, "ascending"), full([4, 5], 0.5))
    }
}

// Guards: `topk(2, 1).1` as an output was an error for other numbers of rows, and an output
// `full([4, 5], ..)` kept four rows.
#[test]
fn indices_and_constants_have_a_row_for_each_row_of_the_batch() {
    let mut predictor = ordered::Predictor::new(Config::default()).unwrap();
    let row = [0.5, 3.0, -1.0, 2.0, 7.0, 0.0_f32];
    for n_rows in [1, 3, 4, 9] {
        let x = row.repeat(n_rows);
        let outputs = predictor.predict(&ordered::Batch { x: &x }).unwrap();
        let expected = [[4, 1].repeat(n_rows), [4, 1, 3, 0, 5, 2].repeat(n_rows)];
        assert_eq!(outputs[0].data, [14.0, 6.0].repeat(n_rows));
        assert_eq!([&outputs[1].integers, &outputs[2].integers], [&expected[0], &expected[1]]);
        assert_eq!(outputs[3].integers, [2, 5, 0, 3, 1, 4].repeat(n_rows));
        assert_eq!(outputs[4].shape, [n_rows, 5]);
    }
}

#[soybean::model(gpus = 2, mode = "inference")]
mod texts {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 4, 6, 8>, lengths: Tensor<i32, 4>) -> Tensor {
        let layer = nn::BertLayer { n_heads: 2, hidden: 16, eps: 1e-12 };
        let h = nn::padded::bert_layer(x, lengths, layer);
        let options = nn::TransformerBlock { n_heads: 2, mask: "causal", p: 0.1 };
        nn::padded::transformer_block(h, lengths, options)
    }
}

// Guards: attention with lengths was an error for other numbers of rows than a batch has.
#[test]
fn texts_of_several_lengths_are_told_apart() {
    let mut predictor = texts::Predictor::new(Config::default()).unwrap();
    let x: Vec<f32> = (0..4 * 48).map(|it| ((it * 7919 % 199) as f32 - 99.0) / 99.0).collect();
    let lengths = [6, 2, 4, 1];
    let whole = predictor.predict(&texts::Batch { x: &x, lengths: &lengths }).unwrap();
    for n_rows in 1..=3 {
        let batch = texts::Batch { x: &x[..n_rows * 48], lengths: &lengths[..n_rows] };
        let found = predictor.predict(&batch).unwrap();
        assert_eq!(found[0].shape, [n_rows, 6, 8]);
        assert_eq!(found[0].data, whole[0].data[..n_rows * 48]);
    }
}
