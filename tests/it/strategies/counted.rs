//! Steps that share an update of a loss that is a mean over what the batch counts: labels, weights
//! or masks. The update is that of one batch with the rows of all steps.

use soybean::{
    Counters,
    runtime::{Trainer, View},
};
use soybean_compiler::{
    Argument, Builder, Compiled, ModelDiagnostic, Optimizer, Options, SearchRequest, Strategy,
    Value, compile, optimizer,
};
use soybean_plan::{DType, NonFinite, Precision};
use soybean_test_support::models::{call, dense, finish, numbers, single, trainer};

/// Rows of a step.
const ROWS: usize = 8;
/// Steps of an update.
const N_STEPS: usize = 3;
const FEATURES: usize = 4;
const CLASSES: usize = 4;
/// Positions of a mask in each row.
const POSITIONS: usize = 2;
const IGNORED: i32 = -100;
const DEVICES: [usize; 3] = [1, 2, 4];

/// The tensors from which a loss is made.
struct Model {
    builder: Builder,
    /// `[rows, CLASSES]`
    logits: Value,
    /// `[rows]`
    labels: Value,
    /// `[rows, POSITIONS]`, zeros and other numbers
    mask: Value,
    /// A scalar that comes with the batch.
    given: Value,
}

type Loss = fn(&mut Model) -> Value;

impl Model {
    fn new(rows: usize) -> Self {
        let mut builder = Builder::new();
        let x = builder.input("x", DType::F32, &[rows, FEATURES]);
        let labels = builder.input("labels", DType::I32, &[rows]);
        let mask = builder.input("mask", DType::F32, &[rows, POSITIONS]);
        let given = builder.input("given", DType::F32, &[]);
        let hidden = dense(&mut builder, x, "first", 8);
        let hidden = call(&mut builder, "tanh", &[Argument::Tensor(hidden)]);
        let logits = dense(&mut builder, hidden, "last", CLASSES);
        Self { builder, logits, labels, mask, given }
    }

    fn call(&mut self, operator: &str, arguments: &[Argument]) -> Value {
        call(&mut self.builder, operator, arguments)
    }

    fn of(&mut self, operator: &str, tensors: &[Value]) -> Value {
        let tensors: Vec<Argument> = tensors.iter().map(|it| Argument::Tensor(*it)).collect();
        self.call(operator, &tensors)
    }

    fn with(&mut self, operator: &str, tensor: Value, number: f64) -> Value {
        self.call(operator, &[Argument::Tensor(tensor), Argument::Float(number)])
    }

    fn sum(&mut self, tensor: Value) -> Value {
        self.call("sum", &[Argument::Tensor(tensor), Argument::All])
    }

    fn mean(&mut self, tensor: Value) -> Value {
        self.call("mean", &[Argument::Tensor(tensor), Argument::All])
    }

    fn over(&mut self, operator: &str, tensor: Value, dim: i64) -> Value {
        self.call(operator, &[Argument::Tensor(tensor), Argument::Integer(dim)])
    }

    fn cross_entropy(&mut self, weight: Argument, reduction: &str, smoothing: f64) -> Value {
        let [logits, labels] = [self.logits, self.labels].map(Argument::Tensor);
        let options = [Argument::Integer(IGNORED.into()), Argument::Text(reduction.to_owned())];
        let [ignored, reduction] = options;
        let smoothing = Argument::Float(smoothing);
        self.call("cross_entropy_with", &[logits, labels, weight, ignored, reduction, smoothing])
    }

    fn mean_of_labels(&mut self) -> Value {
        self.cross_entropy(Argument::Float(1.0), "mean", 0.0)
    }

    /// Squares of logits under the mask, `[rows, POSITIONS]`.
    fn masked(&mut self) -> Value {
        let part = [Argument::Integer(1), Argument::Integer(0), Argument::Integer(2)];
        let logits = [&[Argument::Tensor(self.logits)][..], &part].concat();
        let logits = self.call("slice", &logits);
        let squares = self.of("square", &[logits]);
        let mask = self.mask;
        self.of("mul", &[squares, mask])
    }

    fn masked_sum(&mut self) -> Value {
        let masked = self.masked();
        self.sum(masked)
    }

    fn count(&mut self) -> Value {
        let mask = self.mask;
        self.sum(mask)
    }
}

/// Losses of which one batch of all rows is the reference.
const COUNTED: &[(&str, Loss)] = &[
    ("ignored labels", Model::mean_of_labels),
    ("smoothed labels", |it| it.cross_entropy(Argument::Float(1.0), "mean", 0.25)),
    ("class weights", |it| {
        let weight = it.builder.input("weight", DType::F32, &[CLASSES]);
        it.cross_entropy(Argument::Tensor(weight), "mean", 0.1)
    }),
    ("a multiple", |it| {
        let loss = it.mean_of_labels();
        let loss = it.with("mul", loss, -0.5);
        it.with("add", loss, 3.0)
    }),
    ("the sum of two heads", |it| {
        let first = it.mean_of_labels();
        it.logits = it.over("softmax", it.logits, 1);
        let second = it.mean_of_labels();
        let second = it.with("mul", second, 0.4);
        it.of("add", &[first, second])
    }),
    ("losses of no reduction", |it| {
        let losses = it.cross_entropy(Argument::Float(1.0), "none", 0.0);
        let weights = it.over("sum", it.mask, 1);
        let (weighted, count) = (it.of("mul", &[losses, weights]), it.sum(weights));
        let sum = it.sum(weighted);
        it.of("div", &[sum, count])
    }),
    ("a masked mean", |it| {
        let (sum, count) = (it.masked_sum(), it.count());
        it.of("div", &[sum, count])
    }),
    ("a mean over a mean", |it| {
        let masked = it.masked();
        let (mean, share) = (it.mean(masked), it.mean(it.mask));
        it.of("div", &[mean, share])
    }),
    ("division before the sum", |it| {
        let (masked, count) = (it.masked(), it.count());
        let divided = it.of("div", &[masked, count]);
        it.sum(divided)
    }),
    ("normalized weights", |it| {
        let count = it.count();
        it.mask = it.of("div", &[it.mask, count]);
        it.masked_sum()
    }),
    ("a reciprocal", |it| {
        let (sum, count) = (it.masked_sum(), it.count());
        let inverse = it.of("reciprocal", &[count]);
        it.of("mul", &[inverse, sum])
    }),
    ("a limited count", |it| {
        let (sum, count) = (it.masked_sum(), it.count());
        let count = it.with("maximum", count, 1.0);
        it.of("div", &[sum, count])
    }),
    ("a count and a small number", |it| {
        let (sum, count) = (it.masked_sum(), it.count());
        let count = it.with("add", count, 0.5);
        it.of("div", &[sum, count])
    }),
    ("a sum of sums", |it| {
        let (sum, counts) = (it.masked_sum(), it.over("sum", it.mask, 0));
        let count = it.over("sum", counts, 0);
        it.of("div", &[sum, count])
    }),
    ("integers", |it| {
        let ignored = Argument::Integer(IGNORED.into());
        let is_label = it.call("ne", &[Argument::Tensor(it.labels), ignored]);
        let is_label = it.of("to_i32", &[is_label]);
        let count = it.sum(is_label);
        let (sum, count) =
            (it.cross_entropy(Argument::Float(1.0), "sum", 0.0), it.of("to_f32", &[count]));
        it.of("div", &[sum, count])
    }),
    ("a count of the batch", |it| {
        let (sum, given) = (it.masked_sum(), it.given);
        it.of("div", &[sum, given])
    }),
    ("what is said to be a count", |it| {
        let (sum, count) = (it.masked_sum(), it.count());
        it.of("per", &[sum, count])
    }),
    ("other terms per count", |it| {
        let (sum, count, logits) = (it.masked_sum(), it.count(), it.logits);
        let square = it.of("square", &[logits]);
        let other = it.sum(square);
        let sum = it.of("add", &[sum, other]);
        it.of("per", &[sum, count])
    }),
    ("two denominators of all terms", |it| {
        let (sum, count, given) = (it.masked_sum(), it.count(), it.given);
        let first = it.of("div", &[sum, count]);
        let scaled = it.of("div", &[first, given]);
        it.with("mul", scaled, 7.0)
    }),
];

/// Losses of rows that are independent, which are as they were.
const PER_ROW: &[(&str, Loss)] = &[
    ("a mean", |it| {
        let [logits, labels] = [it.logits, it.labels];
        let limits = [0, 3].map(Argument::Integer);
        let labels = it.call("clamp", &[&[Argument::Tensor(labels)][..], &limits].concat());
        it.of("cross_entropy", &[logits, labels])
    }),
    ("masked means of rows", |it| {
        let masked = it.masked();
        let (sums, counts) = (it.over("sum", masked, 1), it.over("sum", it.mask, 1));
        let counts = it.with("add", counts, 1.0);
        let means = it.of("div", &[sums, counts]);
        it.mean(means)
    }),
];

/// The rows of all steps of an update.
struct Rows {
    x: Vec<f32>,
    labels: Vec<i32>,
    mask: Vec<f32>,
    weight: Vec<f32>,
}

impl Rows {
    /// Steps count 1, 0 and 7 labels.
    fn new() -> Self {
        let n = ROWS * N_STEPS;
        let is_counted = |row: &usize| *row == 3 || *row > 2 * ROWS;
        let class = |row: usize| i32::try_from(row % CLASSES).unwrap();
        let label = |row: usize| if is_counted(&row) { class(row) } else { IGNORED };
        let number =
            |row: usize, at: usize| if (row + at) % 3 == 1 { 0.0 } else { 0.5 + at as f32 };
        let mask = (0..n).flat_map(|row| {
            (0..POSITIONS).map(move |at| if is_counted(&row) { number(row, at) } else { 0.0 })
        });
        Self {
            x: single(&numbers(n * FEATURES, 5)),
            labels: (0..n).map(label).collect(),
            mask: mask.collect(),
            weight: vec![0.5, 2.0, 1.0, 0.25],
        }
    }

    /// Runs a step on these rows.
    fn step(&self, trainer: &mut Trainer, first: usize, n: usize, has_weight: bool) -> f32 {
        self.views(first, n, has_weight, |views| trainer.step(views)).unwrap()
    }

    /// Calls a function with a batch of these rows; its scalar is their share of what all have.
    fn views<R>(
        &self,
        first: usize,
        n: usize,
        has_weight: bool,
        with: impl FnOnce(&[View<'_>]) -> R,
    ) -> R {
        let of = |width: usize| first * width..(first + n) * width;
        let given = [[2.0, 3.0, 5.0][first / ROWS]];
        let given = if n == ROWS { given } else { [10.0] };
        let mut views = vec![
            View::F32(&self.x[of(FEATURES)]),
            View::I32(&self.labels[of(1)]),
            View::F32(&self.mask[of(POSITIONS)]),
            View::F32(&given),
        ];
        if has_weight {
            views.push(View::F32(&self.weight));
        }
        with(&views)
    }
}

fn compiled(loss: Loss, rows: usize, n_gpus: usize, optimizer: Optimizer) -> Compiled {
    let mut model = Model::new(rows);
    let loss = loss(&mut model);
    finish(model.builder, loss, &[], n_gpus, Strategy::Auto, optimizer)
}

fn with_momentum(accumulate: u64) -> Optimizer {
    let momentum = ("momentum".to_owned(), Argument::Float(0.5));
    Optimizer { accumulate, ..optimizer("sgd", &[momentum]).unwrap() }
}

fn parameters(trainer: &mut Trainer) -> Vec<f32> {
    trainer.parameters().unwrap().into_iter().flat_map(|it| it.1.data).collect()
}

/// Sums of some dozen terms are rounded in another order.
fn assert_near(found: &[f32], expected: &[f32], what: &str) {
    let near = |(found, expected): (&f32, &f32)| (found - expected).abs() <= 2e-5;
    assert_eq!(found.len(), expected.len(), "{what}");
    let pairs = found.iter().zip(expected);
    assert!(pairs.clone().all(near), "{what}: {:?}", pairs.collect::<Vec<_>>());
}

/// Guards: steps that share an update are weighed by what they count, as in one batch of all their
/// rows, whatever the denominator is. A step that counts nothing adds nothing, and is no error.
#[test]
fn an_update_is_that_of_one_batch_with_the_rows_of_all_steps() {
    let rows = Rows::new();
    for &(name, loss) in COUNTED {
        let has_weight = name == "class weights";
        let mut whole = trainer(&compiled(loss, ROWS * N_STEPS, 1, with_momentum(1)), 0.5);
        for _ in 0..2 {
            rows.step(&mut whole, 0, ROWS * N_STEPS, has_weight);
        }
        let expected = parameters(&mut whole);
        for n_gpus in DEVICES {
            let what = format!("{name}, {n_gpus} devices");
            let compiled = compiled(loss, ROWS, n_gpus, with_momentum(N_STEPS as u64));
            let mut shared = trainer(&compiled, 0.5);
            let before = parameters(&mut shared);
            for step in 0..2 * N_STEPS {
                let predicted = shared.bytes_of_next_step();
                let loss = rows.step(&mut shared, step % N_STEPS * ROWS, ROWS, has_weight);
                assert!(loss.is_finite(), "{what}: {loss}");
                assert_eq!(shared.moved_bytes(), predicted, "{what}");
            }
            assert_near(&parameters(&mut shared), &expected, &what);
            assert!(before != expected, "{what}");
        }
    }
}

/// Guards: the mean of the losses of batches, weighed by what they count, is the loss of one batch
/// with all their rows. A batch that counts nothing has the weight 0.
#[test]
fn weighed_losses_of_batches_have_the_mean_of_all_rows() {
    let rows = Rows::new();
    // Several denominators have no weight. Two are no multiples of their counts here: the limit is
    // 1, and a batch counts 0.5. One loss is infinite for a batch that counts nothing.
    let others = [
        "two denominators of all terms",
        "a limited count",
        "a count and a small number",
        "other terms per count",
    ];
    let weighed = COUNTED.iter().filter(|it| !others.contains(&it.0));
    for &(name, loss) in weighed {
        let has_weight = name == "class weights";
        let mut whole = trainer(&compiled(loss, ROWS * N_STEPS, 1, with_momentum(1)), 0.5);
        let all = rows.views(0, ROWS * N_STEPS, has_weight, |views| whole.evaluate(views)).unwrap();
        for n_gpus in DEVICES {
            let mut parts = trainer(&compiled(loss, ROWS, n_gpus, with_momentum(1)), 0.5);
            let (mut sum, mut weight) = (0.0, 0.0);
            for step in 0..N_STEPS {
                let found =
                    rows.views(step * ROWS, ROWS, has_weight, |it| parts.evaluate(it)).unwrap();
                let own = found.loss_weight.unwrap();
                assert_eq!(
                    own == 0.0,
                    step == 1 && name != "a count of the batch",
                    "{name}: {own}"
                );
                sum += if own == 0.0 { 0.0 } else { found.loss * own };
                weight += own;
            }
            assert_near(&[sum / weight], &[all.loss], &format!("{name}, {n_gpus} devices"));
        }
    }
}

/// Guards: a run that ends between two updates takes the last one with what its steps counted.
#[test]
fn an_unfinished_update_is_that_of_one_batch_with_the_rows_of_its_steps() {
    let rows = Rows::new();
    for &(name, loss) in &COUNTED[..7] {
        let has_weight = name == "class weights";
        let mut whole = trainer(&compiled(loss, ROWS * 2, 1, with_momentum(1)), 0.5);
        rows.step(&mut whole, 0, ROWS * 2, has_weight);
        for n_gpus in DEVICES {
            let compiled = compiled(loss, ROWS, n_gpus, with_momentum(N_STEPS as u64));
            let mut shared = trainer(&compiled, 0.5);
            for step in 0..2 {
                rows.step(&mut shared, step * ROWS, ROWS, has_weight);
            }
            assert_eq!(shared.finish_update().unwrap(), 2);
            let what = format!("{name}, {n_gpus} devices");
            assert_near(&parameters(&mut shared), &parameters(&mut whole), &what);
            let counters = shared.counters();
            assert_eq!((counters.n_steps, counters.n_updates, counters.n_accumulated), (2, 1, 0));
        }
    }
}

/// Guards: an update of which no step counts anything is NaN, as one batch of its rows is, and
/// changes nothing. The next step that counts something makes the update.
#[test]
fn an_update_that_counts_nothing_is_refused() {
    let rows = Rows::new();
    for non_finite in [NonFinite::Stop, NonFinite::Skip, NonFinite::Scale] {
        for n_gpus in DEVICES {
            let what = format!("{non_finite}, {n_gpus} devices");
            let optimizer = Optimizer { non_finite, clip_norm: Some(1.0), ..with_momentum(2) };
            let compiled = compiled(Model::mean_of_labels, ROWS, n_gpus, optimizer);
            let mut shared = trainer(&compiled, 0.5);
            let before = parameters(&mut shared);
            let nothing = [ROWS, 0];
            let step = |trainer: &mut Trainer, first: usize| {
                let of = |width: usize| first * width..(first + ROWS) * width;
                let views = [
                    View::F32(&rows.x[of(FEATURES)]),
                    View::I32(&rows.labels[of(1)]),
                    View::F32(&rows.mask[of(POSITIONS)]),
                    View::F32(&[1.0]),
                ];
                trainer.step(&views)
            };
            assert_eq!(step(&mut shared, nothing[0]).unwrap(), 0.0, "{what}");
            let refused = step(&mut shared, nothing[0]);
            match non_finite {
                NonFinite::Stop => assert!(refused.is_err(), "{what}"),
                NonFinite::Skip | NonFinite::Scale => {
                    assert!(refused.unwrap().is_nan() && shared.was_skipped(), "{what}");
                }
            }
            assert_eq!(parameters(&mut shared), before, "{what}");
            assert_eq!(shared.counters().n_accumulated, 1, "{what}");
            assert!(step(&mut shared, nothing[1]).unwrap() > 0.0, "{what}");
            assert!(parameters(&mut shared) != before, "{what}");
            assert_eq!(shared.counters().n_updates, 1, "{what}");
        }
    }
}

/// Returns the fault of a model whose steps share an update.
fn fault(loss: Loss) -> Option<ModelDiagnostic> {
    let mut model = Model::new(ROWS);
    let loss = loss(&mut model);
    let optimizer = with_momentum(2);
    let (name, precision) = ("model".to_owned(), Precision::F32);
    let options =
        Options { name, n_gpus: 1, search: SearchRequest::default(), precision, optimizer };
    compile(model.builder, loss, &[], &options, &|| 0.0).err().map(|it| it[0].clone())
}

/// Guards: a loss whose steps cannot be added up exactly is an error, and never another loss.
#[test]
fn losses_that_steps_cannot_share_are_refused() {
    let refused: &[(&str, Loss)] = &[
        ("one denominator", |it| {
            let (first, second) = (it.mean_of_labels(), it.logits);
            let second = it.of("square", &[second]);
            let second = it.mean(second);
            it.of("add", &[first, second])
        }),
        ("one denominator", |it| {
            let (first, sum, count) = (it.mean_of_labels(), it.masked_sum(), it.count());
            let second = it.of("div", &[sum, count]);
            it.of("add", &[first, second])
        }),
        ("a sum over the rows", |it| {
            let (sum, mask) = (it.masked_sum(), it.mask);
            let largest = it.call("max", &[Argument::Tensor(mask), Argument::All]);
            it.of("div", &[sum, largest])
        }),
        ("a sum over the rows", |it| {
            let (masked, counts) = (it.masked(), it.over("sum", it.mask, 0));
            let sums = it.over("sum", masked, 0);
            let means = it.of("div", &[sums, counts]);
            it.mean(means)
        }),
        ("linear in what it divides", |it| {
            let loss = it.mean_of_labels();
            it.of("sqrt", &[loss])
        }),
        ("linear in what it divides", |it| {
            let loss = it.mean_of_labels();
            it.of("mul", &[loss, loss])
        }),
    ];
    for (what, loss) in refused {
        let fault = fault(*loss).expect(what);
        assert!(fault.message.contains(what), "{what}: {}", fault.message);
        assert!(fault.help.is_some_and(|it| it.contains(".per(count)")), "{what}");
    }
    for &(name, loss) in COUNTED.iter().chain(PER_ROW) {
        assert_eq!(fault(loss), None, "{name}");
    }
}

/// Guards: losses that divide by constants, or each row by its own number, keep their program: the
/// mean over the steps.
#[test]
fn losses_of_independent_rows_are_means_over_the_steps() {
    for &(name, loss) in PER_ROW {
        let compiled = compiled(loss, ROWS, 2, with_momentum(2));
        let states = &compiled.program.tables.states;
        assert!(!states.iter().any(|it| it.name.ends_with("count_sum")), "{name}");
    }
    let compiled = compiled(Model::mean_of_labels, ROWS, 2, with_momentum(2));
    let states = &compiled.program.tables.states;
    assert_eq!(states.iter().filter(|it| it.name.ends_with("count_sum")).count(), 1);
    let start = Counters::default();
    assert_eq!(trainer(&compiled, 0.1).counters(), start);
}
