//! The search on deep networks, through the whole pipeline: optima are proved, and no other
//! strategy is better.

use soybean_compiler::{Compiled, Options, SearchEffort, SearchRequest, compile, optimizer};
use soybean_plan::Precision;
use soybean_zoo::{GPT, LARGE, Model, Transformer, ZOO, resnet20, resnet50};

const SMALL: Transformer = Transformer { tokens: 128, width: 256, n_heads: 4, ..GPT };

fn compiled(model: Model, n_gpus: usize, updates: &str) -> Compiled {
    compiled_with(SearchEffort::default(), model, n_gpus, updates)
}

fn compiled_with(
    effort: SearchEffort,
    Model { builder, loss, .. }: Model,
    n_gpus: usize,
    updates: &str,
) -> Compiled {
    let options = Options {
        name: "network".to_owned(),
        n_gpus,
        search: SearchRequest { effort, ..SearchRequest::default() },
        precision: Precision::F32,
        optimizer: optimizer(updates, &[]).unwrap(),
    };
    compile(builder, loss, &[], &options, &|| 0.0).unwrap()
}

/// Checks that the plan moves the bytes that it reports, and no more than others; returns its
/// largest possible excess over the optimum.
fn gap(network: &str, compiled: &Compiled) -> f64 {
    let (report, search) = (&compiled.report, compiled.report.search());
    let bytes = report.bytes_total;
    assert_eq!(bytes, search.tiled.bytes(), "{network}");
    assert_eq!(bytes, compiled.program.tables.train_bytes(), "{network}");
    let others = search.baselines;
    let least = others.data.min(others.model).min(others.recursive);
    assert!(bytes <= least, "{network}: {bytes} bytes, {others:?}");
    assert!(search.lower_bound_bytes <= bytes, "{network}");
    assert_eq!(report.is_optimal(), search.lower_bound_bytes == bytes, "{network}");
    bytes as f64 / search.lower_bound_bytes as f64 - 1.0
}

fn check_proved(network: &str, model: impl Fn() -> Model, gpus: &[usize], updates: &str) {
    for &n_gpus in gpus {
        let name = format!("{network} on {n_gpus}");
        assert_eq!(gap(&name, &compiled(model(), n_gpus, updates)), 0.0, "{name}");
    }
}

#[test]
fn residual_networks_are_proved() {
    check_proved("resnet20", || resnet20(128), &[2, 4, 6, 8], "sgd");
    check_proved("resnet20", || resnet20(1024), &[8], "adam");
    check_proved("resnet50", || resnet50(256), &[2, 4, 6, 8], "sgd");
}

#[test]
fn large_decoders_are_proved() {
    check_proved("gpt", || GPT.decoder(), &[2, 4, 6, 8], "adamw");
    check_proved("gpt", || Transformer { batch: 64, ..GPT }.decoder(), &[8], "sgd");
}

#[test]
fn small_transformers_are_proved() {
    check_proved("decoder", || SMALL.decoder(), &[2, 4], "adamw");
    let gap = gap("decoder", &compiled(SMALL.decoder(), 8, "adamw"));
    assert!(gap < 0.001, "{gap}");
    check_proved("decoder", || Transformer { batch: 64, ..SMALL }.decoder(), &[8], "sgd");
    let encoder = || Transformer { n_blocks: 2, ..SMALL }.encoder(10);
    check_proved("encoder", encoder, &[2, 4, 8], "adam");
}

/// With so few samples, the batch cannot be split as far as for larger ones, and proofs take more
/// work.
#[test]
fn small_batches_are_nearly_proved() {
    let gpt = Transformer { batch: 2, ..GPT }.decoder();
    let of_gpt = gap("gpt", &compiled_with(SearchEffort::Thorough, gpt, 8, "adamw"));
    assert!(of_gpt < 0.0006, "{of_gpt}");
    let of_resnet = gap("resnet50", &compiled(resnet50(32), 8, "adam"));
    assert!(of_resnet < 0.01, "{of_resnet}");
}

/// Without the additional work where gaps are wide, the gaps of the first and the last are 15.3 %
/// and 3.2 %. Without orbits near the best ones, and with blocks of axes that fit by size alone,
/// those of the first two are 3.0 % and 3.3 %.
#[test]
fn wide_gaps_are_narrowed() {
    for (name, n_gpus, most) in [
        ("resnet50-batch-32", 64, 0.023),
        ("diffusion-unet", 16, 0.02),
        ("diffusion-unet", 8, 0.012),
    ] {
        let entry = LARGE.iter().chain(ZOO).find(|it| it.name == name).unwrap();
        let Model { builder, loss, .. } = (entry.model)();
        let compiled = compile(builder, loss, &[], &entry.options(n_gpus), &|| 0.0).unwrap();
        let gap = gap(name, &compiled);
        assert!(gap < most, "{name} on {n_gpus}: {gap}");
    }
}

/// One product for queries, keys and values is split by heads like three products.
#[test]
fn slices_of_one_product_move_what_three_products_move() {
    for batch in [1, 2, 8] {
        let sizes =
            Transformer { batch, width: 384, n_heads: 12, n_blocks: 1, n_words: 768, ..SMALL };
        for n_gpus in [2, 3, 4, 6, 8, 12] {
            let bytes = |model: Model| compiled(model, n_gpus, "sgd").report.bytes_total;
            let fused = bytes(sizes.decoder_with_fused_attention());
            let apart = bytes(sizes.decoder());
            assert_eq!(fused, apart, "{batch} on {n_gpus}");
        }
    }
}
