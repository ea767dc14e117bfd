//! Plans of attention in sliding windows: ranks that split the queries exchange the keys and values
//! of one window, not those of all positions.

use soybean_compiler::{
    Argument, Builder, Compiled, Network, Strategy, Value, build_network,
    operators::attend::Attend, optimizer, tiling::search_alone,
};
use soybean_plan::{Attention, AttentionForm, DType, Init, Kernel, Mesh};

use crate::{
    support::{self, brute_force::least_bytes, call},
    time::{is_close, level, program_seconds, searched, slow},
};

/// The features of a head.
const WIDTH: usize = 8;

/// Causal attention of these heads of queries, which share one head of keys, one after another. It
/// is in a window of this many keys where there is one.
fn attentions(tokens: usize, n_heads: usize, windows: &[Option<i64>]) -> (Builder, Value) {
    let mut builder = Builder::new();
    let mut x = builder.input("x", DType::F32, &[1, tokens, WIDTH]);
    for (at, window) in windows.iter().enumerate() {
        let mut project = |name: &str, n_heads: usize| {
            let shape = [n_heads, WIDTH, WIDTH];
            let weight = builder.parameter(&format!("{name}{at}"), &shape, Init::Constant(0.5));
            let operands = [x, weight].map(Argument::Tensor);
            Argument::Tensor(call(&mut builder, "matmul", &operands))
        };
        let query = project("query", n_heads);
        let [key, value] = ["key", "value"].map(|it| project(it, 1));
        let (name, last) = match window {
            Some(window) => ("sliding_window_attention", Argument::Integer(*window)),
            None => ("scaled_dot_product_attention", Argument::Boolean(true)),
        };
        let attended = call(&mut builder, name, &[query, key, value, last]);
        let of_dim = |it| [Argument::Tensor(it), Argument::Integer(0)];
        let sum = call(&mut builder, "sum", &of_dim(attended));
        x = call(&mut builder, "unsqueeze", &of_dim(sum));
    }
    let square = call(&mut builder, "powi", &[Argument::Tensor(x), Argument::Integer(2)]);
    let loss = call(&mut builder, "mean", &[Argument::Tensor(square), Argument::All]);
    (builder, loss)
}

fn compiled((builder, loss): (Builder, Value), n_gpus: usize) -> Compiled {
    let compiled = support::compiled(builder, loss, n_gpus, "sgd");
    let tables = &compiled.program.tables;
    assert_eq!(tables.train_bytes(), compiled.report.search().tiled.bytes(), "{n_gpus}");
    compiled
}

fn kernels(compiled: &Compiled) -> Vec<&Attention> {
    let kernels = compiled.program.kernels.iter();
    kernels
        .filter_map(|it| match it {
            Kernel::Attend(it) => Some(it),
            _ => None,
        })
        .collect()
}

/// Returns the bytes that the conversions of attention move.
fn bytes_of_attention(compiled: &Compiled) -> u64 {
    let tiled = &compiled.report.search().tiled;
    let graph = &tiled.network.graph;
    let attentions = graph.values().filter(|it| graph.operator_as::<Attend>(*it).is_some());
    attentions.flat_map(|it| tiled.conversions(it)).map(|it| it.bytes).sum()
}

/// Returns whether any attention of a network reads a halo.
fn has_halo(network: &Network) -> bool {
    let graph = &network.graph;
    graph.values().filter_map(|it| graph.operator_as::<Attend>(it)).any(|it| it.reads_halo)
}

#[test]
fn ranks_exchange_one_window_of_rows() {
    const TOKENS: usize = 1440;
    for (n_heads, window) in [(1, 1), (1, 33), (1, 301), (3, 65)] {
        for n_gpus in [2, 3, 4, 8] {
            let halos = compiled(attentions(TOKENS, n_heads, &[Some(window)]), n_gpus);
            let before = usize::try_from(window).unwrap() - 1;
            for it in kernels(&halos) {
                assert_eq!((it.halo, it.is_part), (Some(before), true), "{n_gpus}");
            }
            // Forward, keys and values before the part; backward, both after it, and for each head
            // queries and gradients. A halo ends where the sequence ends.
            let rows = |before: usize, after: usize| -> usize {
                let part = TOKENS / n_gpus;
                let starts = (0..n_gpus).map(|it| it * part);
                starts.map(|it| it.min(before) + (TOKENS - it - part).min(after)).sum()
            };
            let n_rows = 2 * rows(before, 0) + 2 * (1 + n_heads) * rows(0, before);
            let expected = (n_rows * WIDTH * DType::F32.bytes()) as u64;
            assert_eq!(bytes_of_attention(&halos), expected, "{n_heads} {window} {n_gpus}");
            // Without a window, all keys are gathered.
            let all = compiled(attentions(TOKENS, n_heads, &[None]), n_gpus);
            let totals = [&halos, &all].map(|it| it.report.bytes_total);
            assert!(totals[0] < totals[1], "{n_heads} {window} {n_gpus}: {totals:?}");
        }
    }
}

#[test]
fn long_windows_and_those_beside_full_attention_read_all_keys() {
    // A halo of 288 / 4 rows is the longest for one head, and of 288 / 6 rows for three.
    let is_short = |n_heads, window| has_halo(&network(attentions(288, n_heads, &[Some(window)])));
    let cases = [(1, 73), (1, 74), (3, 49), (3, 50)];
    assert_eq!(
        cases.map(|(n_heads, window)| is_short(n_heads, window)),
        [true, false, true, false]
    );
    // Full attention is balanced, and halos are around blocks.
    for windows in [[Some(9), None], [None, Some(9)]] {
        let compiled = compiled(attentions(288, 1, &windows), 4);
        assert!(!has_halo(&compiled.report.search().tiled.network));
        assert!(kernels(&compiled).iter().all(|it| it.is_part && it.halo.is_none()));
        assert!(compiled.report.work <= 1.03, "{}", compiled.report.work);
    }
}

#[test]
fn work_in_a_window_is_that_of_the_keys_in_it() {
    const TOKENS: usize = 288;
    for (n_gpus, window) in [(1, 40), (2, 40), (3, 7), (4, 64), (6, 1), (8, 64), (8, 100)] {
        let compiled = compiled(attentions(TOKENS, 1, &[Some(window)]), n_gpus);
        let window = usize::try_from(window).unwrap();
        let seen: usize = (0..TOKENS).map(|it| (it + 1).min(window)).sum();
        let kernels = kernels(&compiled);
        assert_eq!(kernels.len(), 2, "{n_gpus}");
        for it in kernels {
            assert_eq!(it.window, Some(window), "{n_gpus}");
            assert_eq!(it.halo.is_some(), n_gpus > 1 && window < 100, "{n_gpus} {window}");
            let is_forward = it.form == AttentionForm::Forward;
            let after = it.halo.filter(|_| !is_forward).unwrap_or(0);
            assert_eq!(it.queries, TOKENS / n_gpus + after, "{n_gpus}");
            if it.halo.is_some() {
                // The last rank has no queries that see fewer keys.
                assert_eq!(it.pairs, it.queries * window, "{n_gpus} {window}");
                continue;
            }
            // The first queries see fewer keys, so a rank without them has at most so many more.
            let missing = window * (window - 1) / 2;
            assert!(it.pairs * n_gpus >= seen, "{n_gpus} {window}: {it:?}");
            assert!(it.pairs * n_gpus <= seen + missing, "{n_gpus} {window}: {it:?}");
        }
        let text = compiled.report.text();
        let is_told = text.contains("is also computed in the halo of each GPU; a shorter window");
        // The other windows are short.
        assert_eq!(is_told, n_gpus > 1 && (40..100).contains(&window), "{text}");
    }
}

/// Returns attention of these heads of queries in a window over keys that they share. Only queries
/// or only values have a gradient, so that no kernel computes several.
pub(crate) fn one_gradient(
    n_heads: usize,
    tokens: usize,
    window: i64,
    trains_queries: bool,
) -> (Builder, Value) {
    let mut builder = Builder::new();
    let query = builder.input("query", DType::F32, &[n_heads, tokens, 2]);
    let [key, value] =
        ["key", "value"].map(|name| builder.input(name, DType::F32, &[1, tokens, 2]));
    let weight = Argument::Tensor(builder.parameter("w", &[2, 2], Init::Constant(0.5)));
    let mut operands = [query, key, value].map(Argument::Tensor);
    let trained = if trains_queries { 0 } else { 2 };
    let product = [operands[trained].clone(), weight];
    operands[trained] = Argument::Tensor(call(&mut builder, "matmul", &product));
    let arguments = [&operands[..], &[Argument::Integer(window)]].concat();
    let attended = call(&mut builder, "sliding_window_attention", &arguments);
    let loss = call(&mut builder, "mean", &[Argument::Tensor(attended), Argument::All]);
    (builder, loss)
}

fn network((builder, loss): (Builder, Value)) -> Network {
    build_network(builder, loss, &[], &optimizer("sgd", &[]).unwrap()).unwrap()
}

#[test]
fn plans_of_windows_are_those_of_brute_force() {
    let (mut n_compared, mut n_with_halo) = (0, 0);
    for (n_heads, tokens, window, n_ranks) in [
        (1, 32, 1, 2),
        (1, 32, 2, 2),
        (1, 32, 9, 2),
        (2, 32, 4, 2),
        (1, 36, 5, 3),
        (1, 32, 3, 4),
        (2, 32, 7, 4),
    ] {
        for trains_queries in [false, true] {
            let network = network(one_gradient(n_heads, tokens, window, trains_queries));
            assert!(has_halo(&network));
            let found = search_alone(&network, Mesh::new(n_ranks), &Strategy::Auto.into());
            let Some(least) = least_bytes(&network, &found.tiled.mesh, 1 << 20) else { continue };
            n_compared += 1;
            let case = format!("{n_heads} heads of {tokens} on {n_ranks}:\n{}", found.tiled);
            assert_eq!(found.tiled.bytes(), least, "{case}");
            assert!(found.is_optimal && found.lower_bound_bytes == least, "{case}");
            n_with_halo += usize::from(case.contains(" with halo "));
        }
    }
    assert!(n_compared >= 10, "{n_compared} networks");
    assert!(n_with_halo >= 8, "{n_with_halo} networks");
}

#[test]
fn times_of_plans_of_windows_are_those_of_their_programs() {
    for (n_heads, window) in [(1, 2), (1, 33), (3, 25)] {
        for levels in [&[level(4, 1e6, 1e-5)][..], &[level(2, 1e5, 1e-4), level(2, 1e6, 1e-5)]] {
            let network = network(attentions(288, n_heads, &[Some(window)]));
            let found = searched(&network, &slow(levels), Strategy::Auto);
            let (plan, program) = (found.times.unwrap().plan, program_seconds(&found));
            let case = format!("{n_heads} heads in windows of {window}:\n{}", found.tiled);
            assert!(is_close(plan, program), "{plan} s, the program {program} s: {case}");
            assert!(case.contains(" with halo "), "{case}");
        }
    }
}
