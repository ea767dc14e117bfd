//! Several entries of one model, which share parameters and states and are planned together, in
//! inference and in training.

mod training;

use soybean_compiler::{
    Argument, Builder, Compiled, Network, Optimizer, Options, Recipe, Strategy, Value,
    build_network, tiling::search_alone,
};
use soybean_plan::{DType, Init, Mesh, Mode, Precision};

use crate::support::{brute_force::least_bytes, call};

/// A perceptron of two layers with a state, in two entries of different batches.
struct Case {
    /// The rows and the calls of each entry.
    entries: [(usize, u64); 2],
    widths: [usize; 3],
}

impl Case {
    fn built(&self) -> (Builder, Vec<(String, Value)>) {
        let mut builder = Builder::in_mode(Mode::Inference);
        let mut outputs = Vec::new();
        for (name, (rows, n_calls)) in ["first", "second"].into_iter().zip(self.entries) {
            builder.begin_entry(name, n_calls);
            outputs.push((format!("y of {name}"), self.entry(&mut builder, name, rows)));
        }
        (builder, outputs)
    }

    fn entry(&self, builder: &mut Builder, name: &str, rows: usize) -> Value {
        let [n, hidden, m] = self.widths;
        let mut h = builder.input(&format!("x of {name}"), DType::F32, &[rows, n]);
        let state = builder.state("sum", &[hidden]);
        for (layer, shape) in [[n, hidden], [hidden, m]].into_iter().enumerate() {
            let init = Init::Normal { mean: 0.0, std: 0.1 };
            let weight = builder.parameter(&format!("w{layer}"), &shape, init);
            h = call(builder, "matmul", &[Argument::Tensor(h), Argument::Tensor(weight)]);
            if layer == 0 {
                let of_rows = [Argument::Tensor(h), Argument::Integer(0)];
                let sum = call(builder, "sum", &of_rows);
                let sum = [state, sum].map(Argument::Tensor);
                let sum = call(builder, "add", &sum);
                let next = call(builder, "assign", &[state, sum].map(Argument::Tensor));
                let biased = call(builder, "add", &[h, next].map(Argument::Tensor));
                h = call(builder, "relu", &[Argument::Tensor(biased)]);
            }
        }
        h
    }

    fn network(&self) -> Network {
        let (builder, outputs) = self.built();
        build_network(builder, None, &outputs, &Optimizer::default()).unwrap()
    }

    fn recipe(&self, n_gpus: usize) -> Recipe {
        let (builder, outputs) = self.built();
        let options = Options {
            name: "model".to_owned(),
            n_gpus,
            search: Strategy::Auto.into(),
            precision: Precision::F32,
            optimizer: Optimizer::default(),
        };
        Recipe { builder, loss: None, outputs, options }
    }

    fn compiled(&self, n_gpus: usize) -> Compiled {
        self.recipe(n_gpus).compile(&|| 0.0).unwrap()
    }
}

/// Plans move the fewest bytes over all calls of both entries.
#[test]
fn plans_equal_those_of_brute_force() {
    let mut n_compared = 0;
    let mut n_that_move = 0;
    let all = [[4, 2], [1, 8], [3, 24]];
    let calls = [[1, 1], [1, 9], [20, 1]];
    for widths in [[4, 4, 4], [8, 2, 4], [2, 8, 6], [12, 12, 12]] {
        for (rows, n_calls) in all.into_iter().flat_map(|it| calls.map(|calls| (it, calls))) {
            for n_ranks in [2, 4, 6] {
                let entries = [0, 1].map(|it| (rows[it], n_calls[it]));
                let network = Case { entries, widths }.network();
                let mesh = Mesh::new(n_ranks);
                let found = search_alone(&network, mesh, &Strategy::Auto.into());
                let Some(least) = least_bytes(&network, &mesh, 200_000) else { continue };
                assert_eq!(found.tiled.bytes(), least, "{widths:?} {entries:?} {n_ranks}");
                assert!(found.is_optimal);
                n_compared += 1;
                n_that_move += usize::from(least > 0);
            }
        }
    }
    assert!(n_compared >= 60, "{n_compared}");
    assert!(n_that_move >= 30, "{n_that_move} of {n_compared}");
}

/// One entry needs whole rows of a state, the other whole columns: the state is stored as the entry
/// that is called more often needs it.
#[test]
fn more_calls_weigh_more() {
    let stored = |n_calls: [u64; 2]| {
        let mut builder = Builder::in_mode(Mode::Inference);
        let mut outputs = Vec::new();
        for (dim, name) in ["columns", "rows"].into_iter().enumerate() {
            builder.begin_entry(name, n_calls[dim]);
            let x = builder.input("x", DType::F32, &[12, 12]);
            let state = builder.state("sum", &[12, 12]);
            let sum = call(&mut builder, "add", &[state, x].map(Argument::Tensor));
            let over = [Argument::Tensor(sum), Argument::Integer(dim as i64)];
            let next = call(&mut builder, "softmax", &over);
            call(&mut builder, "assign", &[state, next].map(Argument::Tensor));
            let mean = call(&mut builder, "mean", &[Argument::Tensor(next), Argument::All]);
            outputs.push((name.to_owned(), mean));
        }
        let network = build_network(builder, None, &outputs, &Optimizer::default()).unwrap();
        let mesh = Mesh::new(4);
        let found = search_alone(&network, mesh, &Strategy::Auto.into());
        assert_eq!(Some(found.tiled.bytes()), least_bytes(&network, &mesh, 200_000));
        let state = network.updates[0].0;
        assert_eq!(network.updates[1].0, state);
        [0, 1].map(|dim| found.tiled.tilings[state.index()].axes_of(dim).0.count_ones())
    };
    assert_eq!([stored([9, 1]), stored([1, 9])], [[0, 2], [2, 0]]);
}

/// Parameters and states are kept once, and the rest of the memory serves one entry at a time.
#[test]
fn memory_is_shared() {
    let case = |n_rows| Case { entries: n_rows, widths: [64, 256, 32] };
    let both = case([(128, 1), (32, 9)]).compiled(2).program;
    let large = case([(128, 1), (128, 1)]).compiled(2).program;
    assert_eq!(both.tables.parameters.len(), 2);
    assert_eq!(both.tables.states.len(), 1);
    assert!(both.tables.arena_bytes < large.tables.arena_bytes);
    let [first, second] = &both.tables.entries[..] else { unreachable!("there are two") };
    assert_eq!((first.inputs.clone(), second.inputs.clone()), (0..1, 1..2));
    assert_eq!((first.outputs.clone(), second.outputs.clone()), (0..1, 1..2));
    assert_eq!((&first.parameters[..], &second.parameters[..]), (&[0, 1][..], &[0, 1][..]));
}

#[test]
fn recipes_and_reports_know_entries() {
    let case = Case { entries: [(12, 1), (4, 100)], widths: [6, 12, 4] };
    let recipe = case.recipe(4);
    let text = recipe.to_string();
    assert_eq!(text.matches("\nentry ").count(), 2, "{text}");
    assert!(text.contains("\nentry \"second\" 100\n"), "{text}");
    let read: Recipe = text.parse().unwrap();
    assert_eq!(read.to_string(), text);
    let compiled = recipe.compile(&|| 0.0).unwrap();
    assert!(read.compile(&|| 0.0).unwrap().program == compiled.program);
    let [first, second] = compiled.report.entries() else { unreachable!("there are two") };
    assert_eq!(compiled.report.bytes_total, first.bytes + 100 * second.bytes);
    let table = compiled.report.text();
    assert!(table.contains("bytes moved in one round of calls"), "{table}");
    assert!(table.contains("in 100 calls of `second`"), "{table}");
    assert!(compiled.report.json().contains("\"calls\": 100"));
}
