//! Random models from the builder to the runtime. On any number of devices and under any strategy,
//! a program gives the numbers of the naive interpreter of the user's graph, and moves the bytes
//! that its plan counts.

#[path = "../../soybean-compiler/tests/it/support/interpreter.rs"]
mod interpreter;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use soybean::runtime::{Array, View};
use soybean_compiler::{
    Argument, Builder, Compiled, ModelDiagnostic, Network, Optimizer, Padding, SearchRequest,
    Strategy, Value, fuse, signature::TERMS, simplify, training_step, verify, verify_program,
};
use soybean_plan::{AttentionForm, DType, Init, Kernel, Precision, Shape};
use soybean_test_support::models::{call, numbers, single, trainer};

/// The pinned tiling of parameters.
#[derive(Clone, Copy, Debug)]
enum Pin {
    /// None: the search chooses.
    None,
    /// Partitioned over all devices.
    Parts,
    /// Replicated on every device.
    Whole,
}

/// A model under construction. Operators are chosen by number, and skipped where they do not fit.
pub(crate) struct Model {
    pub(crate) builder: Builder,
    pub(crate) here: Value,
    before: Vec<Value>,
    parameters: Vec<Value>,
}

impl Model {
    pub(crate) fn new(shape: &[usize]) -> Self {
        let mut builder = Builder::new();
        let here = builder.input("x", DType::F32, shape);
        Self { builder, here, before: vec![here], parameters: Vec::new() }
    }

    pub(crate) fn shape(&self) -> Shape {
        self.builder.shape(self.here)
    }

    pub(crate) fn parameter(&mut self, shape: &[usize]) -> Argument {
        let name = format!("p{}", self.parameters.len());
        let value = self.builder.parameter(&name, shape, Init::Uniform { low: -0.7, high: 0.7 });
        self.parameters.push(value);
        Argument::Tensor(value)
    }

    pub(crate) fn apply(&mut self, operator: &str, arguments: &[Argument]) {
        let all: Vec<Argument> =
            [Argument::Tensor(self.here)].into_iter().chain(arguments.iter().cloned()).collect();
        self.here = call(&mut self.builder, operator, &all);
        self.before.push(self.here);
    }

    fn add_operator(&mut self, choice: u8, detail: usize) {
        let shape = self.shape();
        let rank = shape.len();
        let last = *shape.last().unwrap_or(&1);
        let dim = || Argument::Integer(i64::try_from(detail % rank.max(1)).unwrap());
        let unary = ["relu", "tanh", "sigmoid", "gelu", "silu", "neg"];
        match choice {
            0..=2 if rank >= 2 => {
                let w = self.parameter(&[last, [1, 2, 3, 4, 6, 8][detail % 6]]);
                self.apply("matmul", &[w]);
            }
            3 if rank >= 1 => {
                let b = self.parameter(&[last]);
                self.apply("add", &[b]);
            }
            4 if rank >= 1 => {
                let mut column = vec![1; rank];
                column[0] = shape[0];
                let scale = self.parameter(&column);
                self.apply("mul", &[scale]);
            }
            5..=7 => self.apply(unary[detail % unary.len()], &[]),
            8 if rank >= 1 => self.apply("softmax", &[dim()]),
            11 if rank >= 2 => self.apply(["sum", "mean", "max"][detail % 3], &[dim()]),
            12 => {
                let same =
                    self.before.iter().copied().filter(|it| self.builder.shape(*it) == shape);
                let same: Vec<Value> = same.collect();
                self.apply(
                    ["add", "mul", "sub"][detail % 3],
                    &[Argument::Tensor(same[detail % same.len()])],
                );
            }
            14 if rank >= 2 => {
                // x x^T: one tensor is both operands.
                let transposed =
                    call(&mut self.builder, "transpose", &[Argument::Tensor(self.here)]);
                self.apply("matmul", &[Argument::Tensor(transposed)]);
            }
            15 if !self.parameters.is_empty() => {
                let used = self.parameters[detail % self.parameters.len()];
                if self.builder.shape(used)[..] == shape[..] {
                    self.apply("add", &[Argument::Tensor(used)]);
                }
            }
            20 if rank >= 2 => self.add_branches(detail),
            21 if rank >= 2 => self.gate(detail),
            22 if rank >= 2 => self.add_attention(detail),
            _ => self.change_layout(choice, detail),
        }
    }

    /// Adds up products of one tensor, after an activation or at once.
    fn add_branches(&mut self, detail: usize) {
        let (here, last) = (self.here, self.shape()[self.shape().len() - 1]);
        let width = [2, 3, 8, 24][detail % 4];
        let branch = |model: &mut Self, at: usize| {
            model.here = here;
            if (detail >> at & 1) == 1 {
                model.apply("tanh", &[]);
            }
            let weight = model.parameter(&[last, width]);
            model.apply("matmul", &[weight]);
            if (detail >> 3 & 1) == 1 {
                model.apply("sigmoid", &[]);
            }
            Argument::Tensor(model.here)
        };
        let n_branches = 2 + (detail >> 4 & 1);
        let branches: Vec<Argument> = (0..n_branches).map(|it| branch(self, it)).collect();
        branches[..n_branches - 1]
            .iter()
            .for_each(|it| self.apply("add", std::slice::from_ref(it)));
    }

    /// Adds attention to products of one tensor, or from those to parameters, causal or not.
    fn add_attention(&mut self, detail: usize) {
        let (here, shape) = (self.here, self.shape());
        let (rank, last) = (shape.len(), shape[shape.len() - 1]);
        let is_causal = detail & 1 == 1;
        let mut operand = |width: usize, n_keys: Option<usize>| match n_keys {
            Some(n_keys) => {
                let leading = shape[..rank - 2].iter().copied();
                self.parameter(&leading.chain([n_keys, width]).collect::<Vec<_>>())
            }
            None => {
                self.here = here;
                let weight = self.parameter(&[last, width]);
                self.apply("matmul", &[weight]);
                Argument::Tensor(self.here)
            }
        };
        let n_keys = (detail >> 1 & 1 == 1).then_some([16, 33, 64][detail / 4 % 3]);
        // Sometimes the tensor itself is the query. If it is the input, it needs no gradient.
        let is_own = detail >> 5 & 1 == 1;
        let features = if is_own { last } else { 2 + detail / 12 % 2 };
        let query = if is_own { Argument::Tensor(here) } else { operand(features, None) };
        let [key, value] = [features, 3].map(|width| operand(width, n_keys));
        let Argument::Tensor(query) = query else { unreachable!("operands are tensors") };
        self.here = query;
        self.apply("scaled_dot_product_attention", &[key, value, Argument::Boolean(is_causal)]);
    }

    /// Multiplies parts of one product, as gates do, and joins them with others.
    fn gate(&mut self, detail: usize) {
        let last = self.shape()[self.shape().len() - 1];
        let (width, n_parts) = ([2, 6, 8, 24][detail % 4], 2 + (detail >> 2 & 1));
        let weight = self.parameter(&[last, n_parts * width]);
        self.apply("matmul", &[weight]);
        let (product, dim) = (self.here, self.shape().len() - 1);
        let part = |model: &mut Self, at: usize| {
            let range = integers(&[dim, at * width, (at + 1) * width]);
            let Argument::List(range) = range else { unreachable!("integers are a list") };
            model.here = product;
            model.apply("slice", &range);
            Argument::Tensor(model.here)
        };
        let parts: Vec<Argument> = (0..n_parts).map(|it| part(self, it)).collect();
        self.apply("sigmoid", &[]);
        self.apply("mul", &parts[..1]);
        if (detail >> 3 & 1) == 1 {
            let joined = [&parts[..n_parts - 1], &[Argument::Tensor(self.here)]].concat();
            let dim = Argument::Integer(i64::try_from(dim).unwrap());
            self.here = call(&mut self.builder, "concat", &[Argument::List(joined), dim]);
            self.before.push(self.here);
        }
    }

    fn change_layout(&mut self, choice: u8, detail: usize) {
        let shape = self.shape();
        let rank = shape.len();
        let last = *shape.last().unwrap_or(&1);
        match choice {
            9 if rank >= 2 => self.apply(["transpose", "flatten"][detail % 2], &[]),
            10 if rank >= 1 => {
                let split = [2, 3, 4].into_iter().find(|it| last.is_multiple_of(*it) && rank < 4);
                let Some(split) = split else { return };
                let extents = shape[..rank - 1].iter().copied().chain([split, last / split]);
                let list =
                    extents.map(|it| Argument::Integer(i64::try_from(it).unwrap())).collect();
                self.apply("reshape", &[Argument::List(list)]);
            }
            13 if rank >= 3 => {
                let order =
                    (0..rank).map(|it| Argument::Integer(i64::try_from((it + 1) % rank).unwrap()));
                self.apply("permute", &[Argument::List(order.collect())]);
            }
            16 | 17 => self.apply("reshape", &[integers(&rearranged(&shape, detail))]),
            18 if rank >= 1 => {
                let around = (0..2 * rank).map(|it| (detail >> it & 3) % 3);
                let pads = integers(&around.collect::<Vec<_>>());
                self.apply("pad", &[pads, Argument::Float(0.5)]);
            }
            19 if rank >= 2 => {
                let order: Vec<usize> = (0..rank).rev().collect();
                self.apply("permute", &[integers(&order)]);
            }
            _ => {}
        }
    }

    /// Pins the parameters: partitioned along the first dim that all devices can split, or
    /// replicated.
    fn pin_parameters(&mut self, pin: Pin, n_gpus: usize) {
        for &parameter in &self.parameters {
            let shape = self.builder.shape(parameter);
            let dim = shape.iter().position(|extent| extent.is_multiple_of(n_gpus));
            let text = match (pin, dim) {
                (Pin::Parts, Some(dim)) => format!("P{dim}"),
                (Pin::Whole, _) => "r".to_owned(),
                (Pin::Parts, None) | (Pin::None, _) => continue,
            };
            let arguments = [Argument::Tensor(parameter), Argument::Text(text)];
            call(&mut self.builder, "tiled", &arguments);
        }
    }

    /// Returns the mean of the squares plus a direct term of every parameter, so that each has a
    /// gradient.
    pub(crate) fn loss(&mut self) -> Value {
        let scale = self.parameter(&[1]);
        self.apply("mul", &[scale]);
        let square =
            call(&mut self.builder, "powi", &[Argument::Tensor(self.here), Argument::Integer(2)]);
        let mut loss = call(&mut self.builder, "mean", &[Argument::Tensor(square), Argument::All]);
        for parameter in self.parameters.clone() {
            let mean =
                call(&mut self.builder, "mean", &[Argument::Tensor(parameter), Argument::All]);
            loss =
                call(&mut self.builder, "add", &[Argument::Tensor(loss), Argument::Tensor(mean)]);
        }
        loss
    }
}

fn integers(numbers: &[usize]) -> Argument {
    let integer = |it: &usize| Argument::Integer(i64::try_from(*it).unwrap());
    Argument::List(numbers.iter().map(integer).collect())
}

/// Returns another shape of as many elements: the primes of the extents in another order, in one to
/// four dims.
fn rearranged(shape: &[usize], detail: usize) -> Vec<usize> {
    let mut primes = Vec::new();
    for &extent in shape {
        let mut rest = extent;
        for prime in 2..=extent {
            while rest.is_multiple_of(prime) {
                primes.push(prime);
                rest /= prime;
            }
        }
    }
    let n_primes = primes.len().max(1);
    if !primes.is_empty() {
        primes.rotate_left(detail % n_primes);
    }
    let mut rearranged = vec![1; 1 + detail % 4];
    let n_dims = rearranged.len();
    for (at, prime) in primes.into_iter().enumerate() {
        rearranged[(at * n_dims / n_primes + detail / 7) % n_dims] *= prime;
    }
    rearranged
}

fn close(found: &[f32], expected: &[f64]) -> bool {
    // Single precision through a dozen operators, with sums of some hundred terms.
    let is_close = |(found, expected): (&f32, &f64)| {
        (f64::from(*found) - expected).abs() <= 2e-4 * expected.abs().max(1.0)
    };
    found.len() == expected.len() && found.iter().zip(expected).all(is_close)
}

/// A compiled model, with the graph of its training step before simplification.
pub(crate) struct Planned {
    raw: Network,
    pub(crate) compiled: Compiled,
    loss: Value,
    output: Value,
}

/// Compiles a model; returns none if its tensors are too large for these tests, or too small for so
/// many devices. Anything else that cannot be planned is a fault of the compiler.
fn planned(
    operators: &[(u8, usize)],
    shape: &[usize],
    n_gpus: usize,
    search: SearchRequest,
    pin: Pin,
) -> Result<Option<Planned>, TestCaseError> {
    let mut model = Model::new(shape);
    for &(choice, detail) in operators {
        model.add_operator(choice, detail);
        if model.shape().n_elements() > 4096 {
            return Ok(None);
        }
    }
    let loss = model.loss();
    model.pin_parameters(pin, n_gpus);
    finished(model, loss, n_gpus, search)
}

/// Compiles a finished model; returns none if it is too small for so many devices.
pub(crate) fn finished(
    model: Model,
    loss: Value,
    n_gpus: usize,
    search: SearchRequest,
) -> Result<Option<Planned>, TestCaseError> {
    let outputs = [("result".to_owned(), model.here)];
    let optimizer = Optimizer::default();
    let raw = training_step(model.builder.clone(), loss, &outputs, &optimizer).unwrap();
    verify(&raw).map_err(TestCaseError::fail)?;
    verify(&fuse(&simplify(&raw))).map_err(TestCaseError::fail)?;
    let options = soybean_compiler::Options {
        name: "random".to_owned(),
        n_gpus,
        search,
        precision: Precision::F32,
        optimizer,
    };
    let compiled = soybean_compiler::compile(model.builder, loss, &outputs, &options, &|| 0.0);
    let compiled = match compiled {
        Ok(compiled) => compiled,
        Err(faults) => {
            let is_expected = |it: &ModelDiagnostic| it.message.contains("can be split over");
            prop_assert!(faults.iter().all(is_expected), "{faults:?}");
            return Ok(None);
        }
    };
    verify_program(&compiled.program).map_err(TestCaseError::fail)?;
    prop_assert!(compiled.program.tables.train_bytes == compiled.report.search().tiled.bytes());
    Ok(Some(Planned { raw, compiled, loss, output: outputs[0].1 }))
}

/// Runs the program and the interpreter on the same numbers; compares loss, outputs, bytes, and the
/// parameters after one step.
pub(crate) fn compare(planned: &Planned, shape: &[usize]) -> Result<(), TestCaseError> {
    let Planned { raw, compiled, loss, output } = planned;
    let x = numbers(shape.iter().product(), 5);
    let mut sources = BTreeMap::from([(raw.inputs[0], x.clone())]);
    let mut arrays = Vec::new();
    for (seed, &parameter) in raw.parameters.iter().enumerate() {
        let node = raw.graph.node(parameter);
        let data = numbers(node.shape.n_elements(), seed + 20);
        arrays.push((
            node.name.clone(),
            Array { shape: node.shape.to_vec(), data: single(&data), ..Array::default() },
        ));
        sources.insert(parameter, data);
    }
    let values = interpreter::evaluate(&raw.graph, &sources);
    if !values[loss][0].is_finite() || values[loss][0].abs() > 1e4 {
        return Ok(());
    }
    let rate = single(&[interpreter::LEARNING_RATE])[0];
    let mut trainer = trainer(compiled, rate);
    trainer.set_parameters(&arrays).unwrap();
    let x = single(&x);
    let evaluation = trainer.evaluate(&[View::F32(&x)]).unwrap();
    prop_assert!(
        close(&[evaluation.loss], &values[loss]),
        "loss {} {:?}",
        evaluation.loss,
        values[loss]
    );
    prop_assert!(close(&evaluation.outputs[0].data, &values[output]), "outputs differ");
    prop_assert_eq!(trainer.moved_bytes(), compiled.program.tables.evaluate_bytes);
    let stepped = trainer.step(&[View::F32(&x)]).unwrap();
    prop_assert!(close(&[stepped], &values[loss]), "loss of the step {stepped} {:?}", values[loss]);
    prop_assert_eq!(trainer.moved_bytes(), compiled.program.tables.train_bytes);
    for ((name, found), (_, next)) in trainer.parameters().unwrap().iter().zip(&raw.updates) {
        prop_assert!(
            close(&found.data, &values[next]),
            "{}: {:?} instead of {:?}",
            name,
            found.data,
            values[next]
        );
    }
    Ok(())
}

/// The extents of inputs; some are odd, and some have no factor of any number of devices.
const EXTENTS: [usize; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12];

/// What the padding holds, so that whatever reads it is found. Maxima may pass over NaN.
const POISONS: [f64; 3] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];

/// Returns 200 cases, unless the environment variable PROPTEST_CASES has another number.
fn config() -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(200),
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn programs_mean_what_their_graphs_mean(
        operators in prop::collection::vec((0..23_u8, 0..1000_usize), 1..9),
        shape in prop::collection::vec(prop::sample::select(EXTENTS.to_vec()), 1..4),
        n_gpus in 1..14_usize,
        strategy in prop::sample::select(Strategy::NAMES.map(|(_, it)| it).to_vec()),
        (shares, poison) in (any::<bool>(), prop::option::of(prop::sample::select(POISONS.to_vec()))),
        pin in prop::sample::select(vec![Pin::None, Pin::Parts, Pin::Whole]),
    ) {
        // Padding holds the poison wherever it need not be zero.
        let padding = if poison.is_some() { Padding::All } else { Padding::Auto };
        let search = SearchRequest { shares, padding, poison, ..strategy.into() };
        if let Some(planned) = planned(&operators, &shape, n_gpus, search, pin)? {
            compare(&planned, &shape)?;
        }
    }

    #[test]
    fn every_model_is_planned(
        operators in prop::collection::vec((0..23_u8, 0..1000_usize), 1..12),
        shape in prop::collection::vec(prop::sample::select(EXTENTS.to_vec()), 1..5),
        n_gpus in prop::sample::select(vec![5_usize, 8, 16, 24, 36, 64]),
        strategy in prop::sample::select(Strategy::NAMES.map(|(_, it)| it).to_vec()),
    ) {
        planned(&operators, &shape, n_gpus, strategy.into(), Pin::None)?;
    }
}

/// The shapes of inputs with long sequences, as dim before the last.
const SEQUENCES: [&[usize]; 7] =
    [&[36, 3], &[64, 2], &[1, 32, 4], &[1, 72, 3], &[2, 48, 2], &[3, 40, 3], &[1, 2, 36, 2]];

proptest! {
    #![proptest_config(config())]

    #[test]
    fn sequences_may_be_split_in_fused_attention(
        first in 0..1000_usize,
        operators in prop::collection::vec((0..23_u8, 0..1000_usize), 0..4),
        shape in prop::sample::select(SEQUENCES.to_vec()),
        n_gpus in 1..10_usize,
        strategy in prop::sample::select(Strategy::NAMES.map(|(_, it)| it).to_vec()),
        (shares, poison) in (any::<bool>(), prop::option::of(prop::sample::select(POISONS.to_vec()))),
        pin in prop::sample::select(vec![Pin::None, Pin::Parts, Pin::Whole]),
    ) {
        let padding = if poison.is_some() { Padding::All } else { Padding::Auto };
        let search = SearchRequest { shares, padding, poison, ..strategy.into() };
        let operators = [vec![(22, first)], operators].concat();
        if let Some(planned) = planned(&operators, shape, n_gpus, search, pin)? {
            compare(&planned, shape)?;
        }
    }
}

/// One head is split along its queries. One kernel computes all gradients, or one each if the input
/// is the query and has none.
#[test]
fn plans_that_split_sequences() {
    let (mut n_joined, mut n_alone) = (0, 0);
    for n_gpus in [2, 3, 4, 6, 8] {
        for (shape, detail, pin) in [
            (&[1, 144, 2][..], 0, Pin::None),
            (&[1, 144, 2], 1, Pin::None),
            (&[144, 2], 1, Pin::None),
            (&[144, 2], 0b00_0111, Pin::Parts),
            (&[144, 2], 0b10_0001, Pin::None),
        ] {
            // Without replicas, each reader of a pinned tensor converts it for itself.
            let shares = !matches!(pin, Pin::Parts);
            let search = SearchRequest { shares, padding: Padding::Off, ..Strategy::Auto.into() };
            let planned = planned(&[(22, detail)], shape, n_gpus, search, pin).unwrap().unwrap();
            compare(&planned, shape).unwrap();
            let mut forms = BTreeSet::new();
            for kernel in planned.compiled.program.kernels.iter() {
                if let Kernel::Attend(it) = kernel {
                    assert_eq!(it.queries, 144 / n_gpus, "{shape:?} on {n_gpus}: {it:?}");
                    assert_eq!(it.is_part, it.is_causal, "{it:?}");
                    forms.insert(it.form);
                }
            }
            let is_joined = forms.contains(&AttentionForm::Gradient);
            *(if is_joined { &mut n_joined } else { &mut n_alone }) += 1;
        }
    }
    assert!(n_joined == 20 && n_alone == 5, "{n_joined} plans with one kernel, {n_alone} without");
}

/// Several products read each activation of a small batch, so plans split their columns.
#[test]
fn plans_that_add_up_partial_sums() {
    let mut n_with_terms = 0;
    for n_gpus in [2, 3, 4, 5, 6, 7, 8, 12] {
        for (detail, shape) in [(0b01011, [2, 12]), (0b11011, [3, 8]), (0b10011, [1, 24])] {
            let operators = [(20, detail), (5, 1), (20, detail), (5, 2), (20, detail)];
            let padding = if n_gpus % 2 == 0 { Padding::Auto } else { Padding::All };
            let search = SearchRequest { padding, ..SearchRequest::default() };
            let planned = planned(&operators, &shape, n_gpus, search, Pin::None).unwrap().unwrap();
            compare(&planned, &shape).unwrap();
            let forms = planned.compiled.report.search().tiled.forms.iter().flatten();
            n_with_terms += usize::from(forms.flat_map(|it| &it.0).any(|it| *it == Some(TERMS)));
        }
    }
    assert!(n_with_terms >= 8, "{n_with_terms} plans");
}

/// Models of little batches split the columns of products. Where these have parts, each is split.
#[test]
fn plans_that_split_each_part_of_a_product() {
    let mut n_split = 0;
    for n_gpus in [2, 3, 4, 6, 8, 12] {
        for (detail, shape) in [(0b0011, [2, 24]), (0b0111, [1, 24]), (0b1111, [1, 12])] {
            let operators = [(21, detail), (5, 1), (21, detail), (0, 2)];
            let planned = planned(&operators, &shape, n_gpus, SearchRequest::default(), Pin::None);
            let planned = planned.unwrap().unwrap();
            compare(&planned, &shape).unwrap();
            let tiled = &planned.compiled.report.search().tiled;
            let is_split = |it: &Value| {
                let Some(operator) = tiled.network.graph.operator(*it) else { return false };
                let moves_parts = ["pad", "concatenate"].contains(&operator.kind().as_str());
                let dim = tiled.network.graph.shape(*it).len() - 1;
                moves_parts && !tiled.tilings[it.index()].axes_of(dim).is_empty()
            };
            n_split += usize::from(tiled.network.graph.values().any(|it| is_split(&it)));
        }
    }
    assert!(n_split >= 8, "{n_split} plans");
}
