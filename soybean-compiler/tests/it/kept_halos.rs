//! Halos that are fetched once: the border that a forward operator has fetched serves the gradients
//! that read the same part of the tensor.

use std::collections::BTreeSet;

use expect_test::{Expect, expect};
use soybean_compiler::{
    Argument, Builder, Compiled, KeptHalos, Network, Optimizer, Read, SearchRequest, Strategy,
    Value, build_network, program_within, replicate, tiling::search_alone,
};
use soybean_plan::{DType, Init, Kernel, Mesh, Step};

use crate::{
    support::{self, brute_force::least_bytes, call, random_networks::image_model},
    time::{is_close, level, program_seconds, searched, slow},
};

/// A model of three layers of an operator with these filters, and what follows them among its
/// arguments.
struct Chain {
    operator: &'static str,
    input: &'static [usize],
    filters: [&'static [usize]; 3],
    settings: &'static [i64],
}

/// Filters of three elements at a distance of 16.
const SEQUENCE: Chain = Chain {
    operator: "conv1d",
    input: &[1, 4, 1440],
    filters: [&[8, 4, 3], &[8, 8, 3], &[8, 8, 3]],
    settings: &[1, 16, 16, 1],
};

/// Filters of two groups. The rows of images are halved from layer to layer.
const IMAGE: Chain = Chain {
    operator: "conv2d",
    input: &[1, 4, 192, 16],
    filters: [&[8, 2, 5, 5], &[8, 4, 5, 5], &[8, 4, 5, 5]],
    settings: &[2, 2, 1, 2],
};

const VOLUME: Chain = Chain {
    operator: "conv3d",
    input: &[1, 1, 16, 24, 24],
    filters: [&[4, 1, 3, 3, 3], &[4, 4, 3, 3, 3], &[4, 4, 3, 3, 3]],
    settings: &[1, 1, 1, 1],
};

impl Chain {
    fn model(&self) -> (Builder, Value) {
        let mut builder = Builder::new();
        let mut x = builder.input("x", DType::F32, self.input);
        for (at, shape) in self.filters.iter().enumerate() {
            let filter = builder.parameter(&format!("filter{at}"), shape, Init::Constant(0.1));
            let settings = self.settings.iter().map(|it| Argument::Integer(*it));
            let operands = [x, filter].map(Argument::Tensor).into_iter();
            let result =
                call(&mut builder, self.operator, &operands.chain(settings).collect::<Vec<_>>());
            x = call(&mut builder, "relu", &[Argument::Tensor(result)]);
        }
        let loss = call(&mut builder, "mean", &[Argument::Tensor(x), Argument::All]);
        (builder, loss)
    }

    fn compile(&self, n_gpus: usize, search: SearchRequest) -> Compiled {
        let (builder, loss) = self.model();
        let compiled = support::searched(builder, loss, n_gpus, search, "sgd");
        let tables = &compiled.program.tables;
        assert_eq!(tables.train_bytes(), compiled.report.search().tiled.bytes(), "{n_gpus}");
        compiled
    }
}

/// Returns options by which each operator fetches its halos, or by which halos are kept.
fn sharing(shares: bool) -> SearchRequest {
    SearchRequest { shares, ..SearchRequest::default() }
}

/// Returns the numbers of the operators that fetch a halo and of the different halos of tensors.
fn n_halos(compiled: &Compiled) -> [usize; 2] {
    let tiled = &compiled.report.search().tiled;
    let computed = tiled.network.graph.values().filter(|it| tiled.forms[it.index()].is_some());
    let fetched = computed.flat_map(|it| tiled.conversions(it)).filter(|it| !it.halo.is_none());
    let fetched: Vec<_> = fetched.map(|it| (it.value, it.to, it.halo)).collect();
    [fetched.len(), fetched.iter().collect::<BTreeSet<_>>().len()]
}

/// Compares the bytes of plans that fetch each halo for each operator, and once.
fn check(chain: &Chain, expected: &Expect) {
    let (mut text, mut n_all) = (String::new(), 0);
    for n_gpus in [2, 3, 4, 8] {
        let [anew, once] = [false, true].map(|it| chain.compile(n_gpus, sharing(it)));
        let [n_fetched, n_different] = n_halos(&once);
        assert_eq!(n_fetched, n_different, "{n_gpus}");
        n_all += n_fetched;
        let is_proved = [&anew, &once].iter().all(|it| it.report.search().is_optimal);
        assert!(is_proved, "{n_gpus}");
        text += &format!("{n_gpus}: {} {}\n", anew.report.bytes_total, once.report.bytes_total);
    }
    assert!(n_all >= 9, "{n_all} halos");
    expected.assert_eq(&text);
}

#[test]
fn each_halo_of_a_dilated_sequence_is_fetched_once() {
    check(
        &SEQUENCE,
        &expect![[r#"
        2: 11016 8456
        3: 22032 16912
        4: 33048 25368
        8: 77112 59192
    "#]],
    );
}

#[test]
fn each_halo_of_an_image_is_fetched_once() {
    check(
        &IMAGE,
        &expect![[r#"
        2: 8 8
        3: 40464 36624
        4: 20248 18328
        8: 60728 54968
    "#]],
    );
}

#[test]
fn each_halo_of_a_volume_is_fetched_once() {
    check(
        &VOLUME,
        &expect![[r#"
        2: 198248 115304
        3: 396496 230608
        4: 594744 345912
        8: 1387736 807128
    "#]],
    );
}

#[test]
fn plans_with_kept_halos_are_those_of_brute_force() {
    let (mut n_compared, mut n_cheaper) = (0, 0);
    for (seed, n_ranks) in (0..60).flat_map(|seed| [2, 3, 4].map(|it| (seed, it))) {
        let (builder, loss) = image_model(seed, 1);
        let network = build_network(builder, loss, &[], &Optimizer::default()).unwrap();
        let network = replicate(&network);
        if network.kept_halos.is_empty() {
            continue;
        }
        let found = search_alone(&network, Mesh::new(n_ranks), &Strategy::Auto.into());
        let Some(least) = least_bytes(&network, &found.tiled.mesh, 1 << 15) else { continue };
        n_compared += 1;
        let case = format!("seed {seed} on {n_ranks}:\n{}", found.tiled);
        assert_eq!(found.tiled.bytes(), least, "{case}");
        assert!(found.is_optimal && found.lower_bound_bytes == least, "{case}");
        let alone = Network { kept_halos: KeptHalos::new(), ..network };
        let alone = search_alone(&alone, Mesh::new(n_ranks), &Strategy::Auto.into());
        assert!(least <= alone.tiled.bytes(), "{case}");
        n_cheaper += usize::from(least < alone.tiled.bytes());
    }
    assert!(n_compared >= 30 && n_cheaper >= 12, "{n_compared} networks, {n_cheaper} cheaper");
}

/// Borders live from the forward pass to the gradient of filters. If that takes too much memory,
/// they are fetched again.
#[test]
fn kept_borders_count_as_memory() {
    // Most of the borders are longer than the part of a rank.
    let chain = Chain { settings: &[1, 120, 120, 1], ..SEQUENCE };
    let plans = [false, true].map(|it| chain.compile(8, sharing(it)));
    let [anew, once] = &plans;
    let least = plans.each_ref().map(|it| {
        let held = it.report.peak().by_content().values().sum::<u64>();
        assert_eq!(it.program.tables.arena_bytes as u64, held);
        let lean = program_within("model", &it.report.search().tiled, 1);
        lean.tables.arena_bytes as u64
    });
    assert!(least[0] < least[1], "{least:?}");
    for (memory, expected) in [(least[1], once), (least[1] - 1, anew)] {
        let search = SearchRequest { memory: Some(memory), ..SearchRequest::default() };
        let limited = chain.compile(8, search);
        assert_eq!(limited.report.bytes_total, expected.report.bytes_total, "{memory}");
        assert!(limited.program.tables.arena_bytes as u64 <= memory, "{memory}");
    }
}

/// Without gradients, no operator reads a border again.
#[test]
fn evaluations_keep_no_borders() {
    let compiled = IMAGE.compile(4, SearchRequest::default());
    let n_cut = |steps: &[Step]| {
        let kernels = steps.iter().map(|it| &compiled.program.kernels[it.kernel]);
        kernels.filter(|it| matches!(it, Kernel::Pad(_))).count()
    };
    // Two sides for each of three filters.
    assert_eq!(n_cut(&compiled.program.train[0]), 6);
    assert_eq!(n_cut(&compiled.program.evaluate[0]), 0);
}

#[test]
fn times_of_plans_with_kept_halos_are_those_of_their_programs() {
    let mut n_kept = 0;
    for seed in 0..60 {
        let (builder, loss) = image_model(seed, 1);
        let network = build_network(builder, loss, &[], &Optimizer::default()).unwrap();
        let network = replicate(&network);
        if network.kept_halos.is_empty() {
            continue;
        }
        for levels in [&[level(4, 1e6, 1e-5)][..], &[level(2, 1e5, 1e-4), level(2, 1e6, 1e-5)]] {
            let found = searched(&network, &slow(levels), Strategy::Auto);
            let (plan, program) = (found.times.unwrap().plan, program_seconds(&found));
            assert!(is_close(plan, program), "seed {seed}: {plan} s, the program {program} s");
            let reads = found.tiled.network.kept_halos.keys();
            let is_fetched = |&(value, at): &Read| {
                let conversion = found.tiled.conversions(value)[at];
                !conversion.halo.is_none() || conversion.to.axes_of(2).is_empty()
            };
            n_kept += reads.filter(|it| !is_fetched(it)).count();
        }
    }
    assert!(n_kept >= 8, "{n_kept}");
}
