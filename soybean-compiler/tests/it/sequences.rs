//! Plans that split attention along the positions of its queries: which sequences are split, that
//! causal ranks have equal work, and that no fused attention loses a better plan to the search.

use soybean_compiler::{
    Argument, Builder, Compiled, Network, Strategy, build_network, operators::attend::Attend,
    optimizer, tiling::search_alone,
};
use soybean_plan::{AttentionForm, DType, Init, Kernel, Mesh};
use soybean_zoo::{GPT, Transformer};

use crate::support::{self, brute_force::least_bytes, call};

/// A decoder for one text, with attention over enough positions for one kernel.
const ONE_TEXT: Transformer =
    Transformer { batch: 1, tokens: 576, width: 48, n_heads: 2, n_blocks: 2, n_words: 72 };

fn compiled(model: Transformer, n_gpus: usize) -> Compiled {
    let model = model.decoder();
    support::compiled(model.builder, model.loss, n_gpus, "adamw")
}

/// Returns the parts into which attention splits its queries, equal for all of its operators.
fn parts_of_queries(compiled: &Compiled) -> usize {
    let tiled = &compiled.report.search().tiled;
    let graph = &tiled.network.graph;
    let attentions = graph.values().filter(|it| graph.operator_as::<Attend>(*it).is_some());
    let parts: Vec<usize> = attentions
        .map(|it| {
            let (signature, form) = tiled.signature(it);
            let queries = u8::try_from(signature.factors.len() - 1).unwrap();
            tiled.mesh.group_size(form.axes_of(queries))
        })
        .collect();
    assert!(parts.len() >= 4 && parts.iter().all(|it| *it == parts[0]), "{parts:?}");
    parts[0]
}

#[test]
fn what_heads_do_not_split_is_split_along_the_queries() {
    // 576 positions are 2^6 x 3^2, enough for balance on all of these.
    for (n_gpus, n_heads, expected) in
        [(2, 2, 1), (3, 2, 3), (4, 2, 2), (6, 2, 3), (8, 2, 4), (8, 3, 8)]
    {
        let compiled = compiled(Transformer { n_heads, ..ONE_TEXT }, n_gpus);
        let (report, tables) = (&compiled.report, &compiled.program.tables);
        let what = format!("{n_heads} heads on {n_gpus}");
        assert_eq!(parts_of_queries(&compiled), expected, "{what}");
        assert_eq!(tables.train_bytes(), report.search().tiled.bytes(), "{what}");
        assert!(report.work <= 1.001, "{what}: work {}", report.work);
        // One kernel for all gradients; its pairs are the mean of all ranks.
        let mut forms = Vec::new();
        for kernel in compiled.program.kernels.iter() {
            let Kernel::Attend(it) = kernel else { continue };
            forms.push(it.form);
            assert_eq!(it.queries, 576 / expected, "{what}");
            assert_eq!(it.is_part, expected > 1, "{what}");
            assert_eq!(it.pairs, 577 * 576 / 2 / expected, "{what}");
        }
        assert_eq!(forms, [AttentionForm::Forward, AttentionForm::Gradient], "{what}");
    }
}

#[test]
fn work_is_that_of_the_rank_with_the_last_queries() {
    // 2,216 positions are 8 ranges of 277, which 8 ranks take one by one; 2,224 are 16 of 139.
    let of = |tokens| compiled(Transformer { tokens, n_heads: 3, ..ONE_TEXT }, 8);
    let [balanced, unbalanced] = [2224, 2216].map(of);
    assert_eq!(parts_of_queries(&unbalanced), 8);
    let most = (0..2216).rev().take(277).map(|it| it + 1).sum::<usize>();
    let pairs = |it: &Kernel| match it {
        Kernel::Attend(it) => Some(it.pairs),
        _ => None,
    };
    assert!(unbalanced.program.kernels.iter().filter_map(pairs).all(|it| it == most));
    let work = [&balanced, &unbalanced].map(|it| it.report.work);
    assert!(work[0] <= 1.001 && work[1] > 1.1, "{work:?}");
    let text = unbalanced.report.text();
    assert!(text.contains("on the GPUs with the last positions"), "{text}");
    assert!(text.contains("16 divides, and that no other dim has, may need less"), "{text}");
    assert!(!balanced.report.text().contains("last positions"));
}

#[test]
fn batches_that_suffice_leave_sequences_whole() {
    let compiled = compiled(Transformer { batch: 8, ..ONE_TEXT }, 8);
    assert_eq!(parts_of_queries(&compiled), 1);
}

/// 8 ranks have 2 x 8 ranges of a text of 8,192 tokens.
#[test]
fn a_large_decoder_of_one_text_is_balanced() {
    for n_heads in [2, 12] {
        let model = Transformer { batch: 1, tokens: 8192, n_heads, n_blocks: 2, ..GPT };
        let compiled = compiled(model, 8);
        assert_eq!(parts_of_queries(&compiled), 8 / n_heads.min(4), "{n_heads}");
        assert!(compiled.report.work <= 1.001, "{}", compiled.report.work);
        let network: &Network = &compiled.report.search().tiled.network;
        assert_eq!(network.inputs.len(), 2);
    }
}

/// Returns causal attention of these heads of queries, which share one head of keys. Only queries
/// or only values have a gradient, so that no kernel computes several.
fn shared_keys(n_heads: usize, rows: usize, trains_queries: bool) -> Network {
    let mut builder = Builder::new();
    let query = builder.input("query", DType::F32, &[n_heads, rows, 2]);
    let [key, value] =
        ["key", "value"].map(|name| builder.input(name, DType::F32, &[1, 1024 / rows, 2]));
    let weight = Argument::Tensor(builder.parameter("w", &[2, 2], Init::Constant(0.5)));
    let [query, key, value] = [query, key, value].map(Argument::Tensor);
    let of_weight = |builder: &mut Builder, it: Argument| {
        Argument::Tensor(call(builder, "matmul", &[it, weight.clone()]))
    };
    let (query, value) = match trains_queries {
        true => (of_weight(&mut builder, query), value),
        false => (query, of_weight(&mut builder, value)),
    };
    let arguments = [query, key, value, Argument::Boolean(true)];
    let attended = call(&mut builder, "scaled_dot_product_attention", &arguments);
    let loss = call(&mut builder, "mean", &[Argument::Tensor(attended), Argument::All]);
    build_network(builder, loss, &[], &optimizer("sgd", &[]).unwrap()).unwrap()
}

#[test]
fn heads_that_share_keys_have_the_plan_of_brute_force() {
    let (mut n_compared, mut n_of_shared) = (0, 0);
    for (n_heads, rows, n_ranks) in
        [(2, 32, 2), (4, 32, 2), (3, 32, 3), (6, 32, 3), (2, 64, 2), (4, 64, 2), (4, 32, 4)]
    {
        for trains_queries in [false, true] {
            let network = shared_keys(n_heads, rows, trains_queries);
            let found = search_alone(&network, Mesh::new(n_ranks), &Strategy::Auto.into());
            let Some(least) = least_bytes(&network, &found.tiled.mesh, 1 << 20) else { continue };
            n_compared += 1;
            let case = format!("{n_heads} heads of {rows} on {n_ranks}:\n{}", found.tiled);
            assert_eq!(found.tiled.bytes(), least, "{case}");
            assert!(found.is_optimal && found.lower_bound_bytes == least, "{case}");
            let graph = &network.graph;
            let attentions = graph.values().filter(|it| graph.operator_as::<Attend>(*it).is_some());
            // Factors: the head of keys, the heads that share it, the queries.
            n_of_shared +=
                attentions.filter(|it| !found.tiled.signature(*it).1.axes_of(1).is_empty()).count();
        }
    }
    assert!(n_compared >= 10, "{n_compared} networks");
    assert!(n_of_shared >= 4, "{n_of_shared} operators are split along heads that share keys");
}
