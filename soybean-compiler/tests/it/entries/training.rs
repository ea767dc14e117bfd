//! Entries that are trained: each has a loss, and updates the parameters that it does not freeze.

use soybean_compiler::{
    Argument, Builder, Group, ModelPart, Network, Optimizer, Options, Recipe, Strategy, Value,
    build_network, optimizer, tiling::search_alone,
};
use soybean_plan::{DType, Init, Mesh, Mode, NonFinite, Precision};

use crate::support::{brute_force::least_bytes, call};

/// Two entries of other batches.
struct Case {
    /// The rows and the calls of each entry.
    entries: [(usize, u64); 2],
    /// The patterns of the parameters that each entry does not train.
    freeze: [&'static [&'static str]; 2],
    /// The parameters that each entry reads, as widths of its layers by their names.
    layers: [&'static [(&'static str, usize)]; 2],
    width: usize,
    optimizer: Optimizer,
}

/// The two players of a GAN: the first trains `d`, the second trains `g` through `d`.
fn players(entries: [(usize, u64); 2], optimizer: Optimizer) -> Case {
    let layers: [&[(&str, usize)]; 2] = [&[("d", 4)], &[("g", 8), ("d", 4)]];
    Case { entries, freeze: [&[], &["d"]], layers, width: 8, optimizer }
}

/// The same function at two batch sizes.
fn sizes(entries: [(usize, u64); 2], optimizer: Optimizer) -> Case {
    let layers: &[(&str, usize)] = &[("a", 4), ("b", 6)];
    Case { entries, freeze: [&[], &[]], layers: [layers; 2], width: 6, optimizer }
}

impl Case {
    fn builder(&self) -> Builder {
        let mut builder = Builder::in_mode(Mode::Training);
        for (entry, name) in ["first", "second"].into_iter().enumerate() {
            let (rows, n_calls) = self.entries[entry];
            builder.begin_entry(name, n_calls);
            let loss = self.loss(&mut builder, entry, rows);
            let freeze = self.freeze[entry].iter().map(|it| (*it).to_owned()).collect();
            builder.train_entry(loss, freeze);
        }
        builder
    }

    fn loss(&self, builder: &mut Builder, entry: usize, rows: usize) -> Value {
        let mut h = builder.input("x", DType::F32, &[rows, self.width]);
        let mut width = self.width;
        for &(name, n_units) in self.layers[entry] {
            // The input of `d` is as wide as the result of `g`.
            let init = Init::Normal { mean: 0.0, std: 0.1 };
            let weight = builder.parameter(name, &[width, n_units], init);
            h = call(builder, "matmul", &[h, weight].map(Argument::Tensor));
            h = call(builder, "tanh", &[Argument::Tensor(h)]);
            width = n_units;
        }
        call(builder, "mean", &[Argument::Tensor(h), Argument::All])
    }

    fn network(&self) -> Network {
        build_network(self.builder(), None, &[], &self.optimizer).unwrap()
    }

    fn recipe(&self, n_gpus: usize) -> Recipe {
        let options = Options {
            name: "model".to_owned(),
            n_gpus,
            search: Strategy::Auto.into(),
            precision: Precision::F32,
            optimizer: self.optimizer.clone(),
        };
        Recipe { builder: self.builder(), loss: None, outputs: Vec::new(), options }
    }
}

/// Plans move the fewest bytes over all steps of both entries.
#[test]
fn plans_equal_those_of_brute_force() {
    let clipped = Optimizer { clip_norm: Some(1.0), ..Optimizer::default() };
    let (mut n_compared, mut n_that_move) = (0, 0);
    for optimizer in [Optimizer::default(), clipped] {
        for entries in [[(4, 1), (2, 1)], [(1, 5), (8, 1)], [(12, 1), (3, 20)]] {
            for case in [players(entries, optimizer.clone()), sizes(entries, optimizer.clone())] {
                let network = case.network();
                for n_ranks in [2, 4, 6] {
                    let mesh = Mesh::new(n_ranks);
                    let found = search_alone(&network, mesh, &Strategy::Auto.into());
                    let Some(least) = least_bytes(&network, &mesh, 200_000) else { continue };
                    assert_eq!(found.tiled.bytes(), least, "{entries:?} {n_ranks}");
                    assert!(found.is_optimal);
                    n_compared += 1;
                    n_that_move += usize::from(least > 0);
                }
            }
        }
    }
    assert!(n_compared >= 20, "{n_compared}");
    assert!(n_that_move >= 15, "{n_that_move} of {n_compared}");
}

/// Only trained parameters have updates and states; entries that train the same share them.
#[test]
fn entries_update_what_they_train() {
    let adam = optimizer("adam", &[]).unwrap();
    let updated = |case: &Case| -> [Vec<String>; 2] {
        let network = case.network();
        [0, 1].map(|entry| {
            let updates = &network.updates[network.entries[entry].updates.clone()];
            updates.iter().map(|it| network.graph.node(it.0).name.clone()).collect()
        })
    };
    let states = |it: &str| [it.to_owned(), format!("{it}.mean"), format!("{it}.square_mean")];
    let found = updated(&players([(4, 1), (2, 1)], adam.clone()));
    assert_eq!(found, [states("d").to_vec(), states("g").to_vec()]);
    let found = updated(&sizes([(4, 1), (2, 1)], adam.clone()));
    assert_eq!(found[0], [states("a"), states("b")].concat());
    assert_eq!(found[0], found[1]);
    let program = sizes([(4, 1), (2, 1)], adam).recipe(4).compile(&|| 0.0).unwrap().program;
    assert_eq!(program.tables.states.len(), 4);
    let trains_like = program.tables.entries.iter().map(|it| it.training.as_ref().unwrap());
    assert_eq!(trains_like.map(|it| it.trains_like).collect::<Vec<_>>(), [0, 0]);
}

#[test]
fn recipes_and_reports_know_training_entries() {
    let recipe = players([(12, 5), (4, 1)], Optimizer::default()).recipe(4);
    let text = recipe.to_string();
    assert!(text.contains("\nentry \"second\" 1 \"d\"\n"), "{text}");
    let read: Recipe = text.parse().unwrap();
    assert_eq!(read.to_string(), text);
    let compiled = recipe.compile(&|| 0.0).unwrap();
    assert!(read.compile(&|| 0.0).unwrap().program == compiled.program);
    let bytes = compiled.report.entries().iter().map(|it| it.training.as_ref().unwrap().bytes);
    let bytes: Vec<u64> = bytes.collect();
    assert_eq!(compiled.report.bytes_total, 5 * bytes[0] + bytes[1]);
    let table = compiled.report.text();
    assert!(table.contains("bytes moved in one round of steps"), "{table}");
    assert!(table.contains("in 5 steps of `first`"), "{table}");
}

/// Returns the messages about a model, each with the part that is wrong.
fn faults(case: &Case) -> Vec<(ModelPart, String)> {
    let faults = case.recipe(2).compile(&|| 0.0).unwrap_err();
    faults.into_iter().map(|it| (it.at, it.message)).collect()
}

#[test]
fn entries_that_cannot_be_trained_together_are_faults() {
    let entries = [(4, 1), (2, 1)];
    let plain = Optimizer::default;
    // Both train `d`, and only the second trains `g`.
    let found = faults(&Case { freeze: [&[], &[]], ..players(entries, plain()) });
    let [(ModelPart::Entry(1), message)] = &found[..] else { panic!("{found:?}") };
    assert!(message.contains("`g` is trained by one of two that share others"), "{message}");
    let found = faults(&Case { freeze: [&["d"], &["d"]], ..players(entries, plain()) });
    let [(ModelPart::Entry(0), message)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(message, "the entry `first` trains no parameter");
    let found = faults(&Case { freeze: [&["e"], &["d"]], ..players(entries, plain()) });
    assert_eq!(found[0].1, "`freeze`: no parameter has a name like `e`");
    let found = faults(&players(entries, Optimizer { accumulate: 2, ..plain() }));
    let [(ModelPart::Setting("accumulate"), _)] = &found[..] else { panic!("{found:?}") };
    let found = faults(&players(entries, Optimizer { ema: Some(0.9), ..plain() }));
    let [(ModelPart::Setting("ema"), _)] = &found[..] else { panic!("{found:?}") };
}

/// Each parameter has the rule of its group in all entries, and every treatment of steps that are
/// not finite compiles.
#[test]
fn groups_and_guards_apply_in_all_entries() {
    for non_finite in NonFinite::ALL {
        let rule = optimizer("sgd", &[("momentum".to_owned(), Argument::Float(0.9))]).unwrap().rule;
        let groups = vec![Group::new("d".to_owned(), rule, 2.0).unwrap()];
        let adam = optimizer("adam", &[]).unwrap();
        let clip_norm = Some(0.5);
        let case = players([(4, 1), (2, 1)], Optimizer { groups, non_finite, clip_norm, ..adam });
        for n_gpus in [1, 2, 6] {
            let program = case.recipe(n_gpus).compile(&|| 0.0).unwrap().program;
            let names: Vec<&str> = program.tables.states.iter().map(|it| &*it.name).collect();
            assert_eq!(names, ["d.momentum", "g.mean", "g.square_mean"]);
            for entry in program.tables.entries.iter() {
                assert!(entry.training.as_ref().unwrap().gradient_norm.is_some());
            }
        }
    }
}
