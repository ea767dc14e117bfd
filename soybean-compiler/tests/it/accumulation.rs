//! Steps that share an update: the bytes of well-known networks, and plans within a limit of
//! memory.

use soybean_compiler::{
    Argument, Compiled, Optimizer, Options, SearchRequest, Strategy, compile, optimizer,
    verify_program,
};
use soybean_plan::{Placement, Precision, State};
use soybean_zoo::ZOO;

use crate::support;

fn options(search: SearchRequest, accumulate: u64) -> Options {
    let optimizer = Optimizer { accumulate, ..optimizer("sgd", &[]).unwrap() };
    let (name, precision) = ("model".to_owned(), Precision::F32);
    Options { name, n_gpus: 8, search, precision, optimizer }
}

fn of_zoo(name: &str, strategy: Strategy, accumulate: u64) -> Compiled {
    let entry = ZOO.iter().find(|it| it.name == name).unwrap();
    let model = (entry.model)();
    // With momentum, a single step needs the gradients of whole embedding tables, too.
    let momentum = [("momentum".to_owned(), Argument::Float(0.9))];
    let optimizer = Optimizer { accumulate, ..optimizer("sgd", &momentum).unwrap() };
    let options = Options { optimizer, ..options(strategy.into(), accumulate) };
    compile(model.builder, model.loss, &[], &options, &|| 0.0).unwrap()
}

#[test]
fn data_parallel_networks_move_their_gradients_once_per_update() {
    for name in ["gpt-12", "encoder", "resnet50", "vgg16", "mlp"] {
        let alone = of_zoo(name, Strategy::Data, 1).report.bytes_total;
        let compiled = of_zoo(name, Strategy::Data, 8);
        let (tables, report) = (&compiled.program.tables, &compiled.report);
        assert_eq!(
            report.bytes_total,
            tables.train_bytes() + 7 * tables.accumulate_bytes,
            "{name}"
        );
        assert_eq!(report.bytes_total, report.search().tiled.bytes(), "{name}");
        assert!(5 * report.bytes_total <= 6 * alone, "{name}: {} bytes", report.bytes_total);
        assert_eq!(verify_program(&compiled.program), Ok(()), "{name}");
    }
}

/// The best plan of a GPT for one step is no longer the best one for eight steps: gradients that
/// move once are cheaper than activations that move eight times.
#[test]
fn a_gpt_has_another_plan_if_steps_share_an_update() {
    let [alone, shared, data] = [(Strategy::Auto, 1), (Strategy::Auto, 8), (Strategy::Data, 8)]
        .map(|(strategy, n)| of_zoo("gpt-12", strategy, n));
    assert!(5 * shared.report.bytes_total < 8 * alone.report.bytes_total);
    assert!(shared.report.bytes_total < data.report.bytes_total);
    // Fewer bytes in each of the first steps, for more in the last.
    assert!(shared.program.tables.train_bytes() > alone.program.tables.train_bytes());
    assert!(shared.program.tables.accumulate_bytes < alone.program.tables.train_bytes() / 10);
}

/// Sums of gradients that are partial sums take the memory of the whole parameter. With less, they
/// are stored in parts, and every step reduces its gradients.
#[test]
fn with_little_memory_sums_of_gradients_are_stored_in_parts() {
    let compiled = |memory| {
        let (builder, loss, _) = support::classifier(4096, &[256, 512, 512, 64], true);
        let request = SearchRequest { memory, ..SearchRequest::default() };
        compile(builder, loss, &[], &options(request, 8), &|| 0.0).unwrap()
    };
    let n_partial = |it: &Compiled| {
        let is_partial = |it: &&State| {
            it.name.ends_with(".gradient_sum")
                && it.tile.tiling.placements().contains(&Placement::Partial)
        };
        it.program.tables.states.iter().filter(is_partial).count()
    };
    let free = compiled(None);
    let limit = free.program.tables.arena_bytes as u64 * 9 / 10;
    let limited = compiled(Some(limit));
    assert!(limited.program.tables.arena_bytes as u64 <= limit);
    assert!(n_partial(&limited) < n_partial(&free), "{}", limited.report.text());
    assert!(limited.report.bytes_total > free.report.bytes_total);
    assert!(limited.report.bytes_total >= limited.report.search().lower_bound_bytes);
    assert_eq!(limited.report.bytes_total, limited.report.search().tiled.bytes());
    assert_eq!(verify_program(&limited.program), Ok(()));
}
