//! Random models from the builder to the runtime. On any number of devices and under any strategy,
//! a program gives the numbers of the naive interpreter of the user's graph, and moves the bytes
//! that its plan counts.

#[path = "../../soybean-compiler/tests/it/support/interpreter.rs"]
mod interpreter;
pub(crate) mod model;

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use soybean::runtime::{Array, View};
use soybean_compiler::{
    Compiled, ModelDiagnostic, Network, Optimizer, Padding, SearchRequest, Strategy, Value, fuse,
    graph::Graph, signature::Partitioning, simplify, training_step, verify, verify_program,
};
use soybean_plan::{AttentionForm, Kernel, Precision};
use soybean_test_support::models::{numbers, single, trainer};

use model::{Model, Pin};

/// Returns whether numbers are as single precision through a dozen operators gives them, with sums
/// of some hundred terms, or as `errors` allows.
fn close(found: &[f32], exact: &[f64], errors: impl Fn() -> f64) -> bool {
    let within = |slack: f64| {
        let is_close = |(found, exact): (&f32, &f64)| {
            (f64::from(*found) - exact).abs() <= 2e-4 * exact.abs().max(1.0) + slack
        };
        found.len() == exact.len() && found.iter().zip(exact).all(is_close)
    };
    within(0.0) || within(errors())
}

/// Evaluates a graph with results of operators that are too small or too large by an error of
/// rounding. Its errors are large where those of single precision are: the gradient of a softmax
/// with one weight of almost 1 is a small difference of what may be large numbers.
fn evaluate_rounded(
    graph: &Graph,
    sources: &BTreeMap<Value, Vec<f64>>,
) -> BTreeMap<Value, Vec<f64>> {
    let mut n_operators = 0;
    interpreter::evaluate_changed(graph, sources, graph.values(), |result| {
        n_operators += 1;
        let directions = numbers(result.len(), n_operators);
        for (number, direction) in result.iter_mut().zip(directions) {
            *number *= 1.0 + f64::from(f32::EPSILON) * direction;
        }
    })
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
    finished(model, loss, n_gpus, search, Precision::F32)
}

/// Compiles a finished model; returns none if it is too small for so many devices.
pub(crate) fn finished(
    model: Model,
    loss: Value,
    n_gpus: usize,
    search: SearchRequest,
    precision: Precision,
) -> Result<Option<Planned>, TestCaseError> {
    let outputs = [("result".to_owned(), model.here)];
    let optimizer = Optimizer::default();
    let raw = training_step(model.builder.clone(), loss, &outputs, &optimizer).unwrap();
    verify(&raw).map_err(TestCaseError::fail)?;
    verify(&fuse(&simplify(&raw), Precision::F32)).map_err(TestCaseError::fail)?;
    let options = soybean_compiler::Options {
        name: "random".to_owned(),
        n_gpus,
        search,
        precision,
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
    prop_assert!(compiled.program.tables.train_bytes() == compiled.report.search().tiled.bytes());
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
    let rounded = LazyCell::new(|| evaluate_rounded(&raw.graph, &sources));
    let close = |found: &[f32], value: &Value| {
        let exact = &values[value];
        close(found, exact, || {
            let errors = exact.iter().zip(&rounded[value]).map(|(exact, it)| (exact - it).abs());
            8.0 * errors.fold(0.0, f64::max)
        })
    };
    let rate = single(&[interpreter::LEARNING_RATE])[0];
    let mut trainer = trainer(compiled, rate);
    trainer.set_parameters(&arrays).unwrap();
    let x = single(&x);
    let evaluation = trainer.evaluate(&[View::F32(&x)]).unwrap();
    prop_assert!(close(&[evaluation.loss], loss), "loss {} {:?}", evaluation.loss, values[loss]);
    prop_assert!(close(&evaluation.outputs[0].data, output), "outputs differ");
    prop_assert_eq!(trainer.moved_bytes(), compiled.program.tables.entries[0].bytes);
    prop_assert_eq!(trainer.fed_bytes(), compiled.report.fed_bytes);
    let stepped = trainer.step(&[View::F32(&x)]).unwrap();
    prop_assert!(close(&[stepped], loss), "loss of the step {stepped} {:?}", values[loss]);
    prop_assert_eq!(trainer.moved_bytes(), compiled.program.tables.train_bytes());
    for ((name, found), (_, next)) in trainer.parameters().unwrap().iter().zip(&raw.updates) {
        prop_assert!(
            close(&found.data, next),
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
        operators in prop::collection::vec((0..24_u8, 0..1000_usize), 1..9),
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
        operators in prop::collection::vec((0..24_u8, 0..1000_usize), 1..12),
        shape in prop::collection::vec(prop::sample::select(EXTENTS.to_vec()), 1..5),
        n_gpus in prop::sample::select(vec![5_usize, 8, 16, 24, 36, 64]),
        strategy in prop::sample::select(Strategy::NAMES.map(|(_, it)| it).to_vec()),
    ) {
        planned(&operators, &shape, n_gpus, strategy.into(), Pin::None)?;
    }
}

/// The shapes of inputs with long sequences, as dim before the last.
const SEQUENCES: [&[usize]; 8] = [
    &[36, 3],
    &[64, 2],
    &[1, 32, 4],
    &[1, 72, 3],
    &[2, 48, 2],
    &[3, 40, 3],
    &[1, 2, 36, 2],
    &[4, 36, 2],
];

proptest! {
    #![proptest_config(config())]

    #[test]
    fn sequences_may_be_split_in_fused_attention(
        first in 0..1000_usize,
        operators in prop::collection::vec((0..24_u8, 0..1000_usize), 0..4),
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
                    let is_forward = it.form == AttentionForm::Forward;
                    let after = it.halo.filter(|_| !is_forward).unwrap_or(0);
                    assert_eq!(it.queries, 144 / n_gpus + after, "{shape:?} on {n_gpus}: {it:?}");
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
            n_with_terms += usize::from(kinds_on_terms(&planned).next().is_some());
        }
    }
    assert!(n_with_terms >= 8, "{n_with_terms} plans");
}

/// Returns the kinds of the operators that work on terms.
fn kinds_on_terms(planned: &Planned) -> impl Iterator<Item = String> {
    let tiled = &planned.compiled.report.search().tiled;
    let of_terms =
        |it: &Value| tiled.forms[it.index()].as_ref().is_some_and(Partitioning::has_terms);
    let operators = tiled.network.graph.values().filter(of_terms);
    operators.map(|it| tiled.network.graph.operator(it).unwrap().kind())
}

/// Products over a long dim are scaled, added, subtracted, cut, summed up and multiplied before one
/// reduction, with dims that no device divides and padded ones.
#[test]
fn plans_of_linear_operators_on_partial_sums() {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for n_gpus in [2, 4, 6] {
        for detail in (0..512).step_by(7) {
            let shape = [[3, 48], [5, 96], [1, 48]][detail % 3];
            let (padding, poison) = match detail % 2 {
                0 => (Padding::Off, None),
                _ => (Padding::All, Some(POISONS[detail % 3])),
            };
            let search = SearchRequest { padding, poison, ..SearchRequest::default() };
            let planned = planned(&[(23, detail)], &shape, n_gpus, search, Pin::None).unwrap();
            let Some(planned) = planned else { continue };
            compare(&planned, &shape).unwrap();
            kinds_on_terms(&planned).for_each(|it| *kinds.entry(it).or_default() += 1);
        }
    }
    for kind in ["add", "combine", "sum", "pad", "contract"] {
        assert!(kinds.get(kind).is_some_and(|it| *it >= 3), "{kind}: {kinds:?}");
    }
}

/// Products over a long dim, with and without a bias, are cut into parts before these are reduced.
#[test]
fn plans_that_reduce_parts_of_sums() {
    let mut n_parts = 0;
    for n_gpus in [2, 3, 4, 6, 8] {
        for detail in 32..64 {
            let shape = [[3, 480], [5, 960], [1, 480]][detail % 3];
            let search = SearchRequest::default();
            let planned = planned(&[(21, detail)], &shape, n_gpus, search, Pin::None).unwrap();
            let Some(planned) = planned else { continue };
            compare(&planned, &shape).unwrap();
            n_parts += usize::from(kinds_on_terms(&planned).any(|it| it == "pad"));
        }
    }
    assert!(n_parts >= 8, "{n_parts} plans");
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

/// Scores of thousands give one key all the weight. Errors of rounding of the gradient of the
/// softmax, which is 0, are multiplied by keys of some hundred.
#[test]
fn programs_of_attention_to_one_key() {
    let operators = [(0, 958), (3, 0), (11, 78), (14, 0), (22, 36)];
    let shape = [6, 7, 9];
    let planned = planned(&operators, &shape, 1, Strategy::Auto.into(), Pin::None);
    compare(&planned.unwrap().unwrap(), &shape).unwrap();
}
