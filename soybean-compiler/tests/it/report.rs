//! The texts of reports about plans.

use expect_test::expect;
use soybean_compiler::{
    Argument, Builder, Compiled, Optimizer, Options, Padding, Pass, Report, SearchRequest,
    Strategy, compile,
};
use soybean_plan::{DType, Init, NonFinite, Precision};

use crate::support;

/// Returns the report of the plan of a perceptron in one function, so that its layers have no
/// names.
fn report(widths: &[usize], strategy: Strategy) -> Report {
    let (builder, loss, _) = support::classifier(16, widths, false);
    let options = Options {
        name: "perceptron".to_owned(),
        n_gpus: 4,
        search: strategy.into(),
        precision: Precision::F32,
        optimizer: Optimizer::default(),
    };
    compile(builder, loss, &[], &options, &|| 0.0).unwrap().report
}

#[test]
fn what_transfers_have_in_common_keeps_its_name() {
    let transfers = report(&[32, 64, 64, 64, 64, 64, 32], Strategy::Auto).transfers();
    assert!(transfers.iter().any(|it| it.n_conversions > 1), "{transfers:?}");
    assert!(transfers.iter().all(|it| it.layer.is_empty()), "{transfers:?}");
}

#[test]
fn weights_that_lie_otherwise_than_their_copies_are_sharded() {
    let report = report(&[8, 64, 32], Strategy::Model);
    let tiled = &report.search().tiled;
    assert!(tiled.network.graph.values().any(|it| tiled.network.graph.is_replica(it)), "{tiled}");
    let parallelism = report.parallelism();
    assert_eq!(parallelism[0].1.weights, "split 2 x sharded 2", "{parallelism:?} {tiled}");
}

#[test]
fn gradients_of_scalars_belong_to_the_backward_pass() {
    let mut it = Builder::new();
    let x = it.input("x", DType::F32, &[8, 4]);
    let scale = it.parameter("scale", &[], Init::Constant(2.0));
    let scaled = support::call(&mut it, "mul", &[x, scale].map(Argument::Tensor));
    let loss = support::call(&mut it, "sum", &[Argument::Tensor(scaled), Argument::All]);
    let loss = support::call(&mut it, "exp", &[Argument::Tensor(loss)]);
    let optimizer = Optimizer { clip_norm: Some(1.0), ..Optimizer::default() };
    let options = Options {
        name: "scalar".to_owned(),
        n_gpus: 2,
        search: Strategy::Data.into(),
        precision: Precision::F32,
        optimizer,
    };
    let report = compile(it, loss, &[], &options, &|| 0.0).unwrap().report;
    let (passes, network) = (report.passes(), &report.search().tiled.network);
    let names = report.names();
    let of = |pass: Pass| -> Vec<&str> {
        let values = network.graph.values().filter(|it| network.graph.operator(*it).is_some());
        values.filter(|it| passes[it.index()] == pass).map(|it| names[&it].as_str()).collect()
    };
    assert_eq!(of(Pass::Update), ["gradient_norm", "scale'"], "{}", network.graph);
    assert_eq!(of(Pass::Backward), ["scale.grad"], "{}", network.graph);
}

#[test]
fn the_norm_of_the_gradients_belongs_to_the_updates() {
    let (builder, loss, _) = support::classifier(8, &[4, 16, 8], true);
    let options = Options {
        name: "tiny".to_owned(),
        n_gpus: 4,
        search: Strategy::Data.into(),
        precision: Precision::F32,
        optimizer: Optimizer {
            clip_norm: Some(1.0),
            accumulate: 2,
            ema: Some(0.9),
            non_finite: NonFinite::Skip,
            ..Optimizer::default()
        },
    };
    let compiled = compile(builder, loss, &[], &options, &|| 0.0).unwrap();
    let transfers = compiled.report.transfers();
    let of_norm = transfers.iter().filter(|it| it.name.ends_with("square_sum"));
    let of_norm: Vec<_> = of_norm.map(|it| (it.collectives.as_str(), it.pass)).collect();
    assert_eq!(of_norm, [("all-reduce", Pass::Update)]);
    expect![[r#"
        plan of `tiny` for 4 GPUs, mesh [2, 2], strategy data, precision f32

          tensor  shape       tiling   optimizer states
          x       f32[8, 4]   [P0 P0]
          w0      f32[4, 16]  [r r]    [P0 P0], [red red]
          b0      f32[16]     [r r]    [P0 P0], [red red]
          w1      f32[16, 8]  [r r]    [P0 P0], [red red]
          b1      f32[8]      [r r]    [P0 P0], [red red]
          y       i32[8]      [P0 P0]
          loss    f32[]       [r r]

          layer               forward  backward  weights and states
          (the model itself)  data 4   data 4    sharded state 4

          bytes   share   tensor                              collective      for
          1.5 kB  29.2 %  w1.grad_total [red red] -> [P0 P0]  reduce-scatter  update
          1.5 kB  29.2 %  w1' [P0 P0] -> [r r]                all-gather      update
          768 B   14.6 %  w0.grad_total [red red] -> [P0 P0]  reduce-scatter  update
          768 B   14.6 %  w0' [P0 P0] -> [r r]                all-gather      update
          192 B   3.7 %   b0.grad_total [red red] -> [P0 P0]  reduce-scatter  update
          192 B   3.7 %   b0' [P0 P0] -> [r r]                all-gather      update
          96 B    1.8 %   b1.grad_total [red red] -> [P0 P0]  reduce-scatter  update
          96 B    1.8 %   b1' [P0 P0] -> [r r]                all-gather      update
          72 B    1.4 %   2 other conversions

          bytes moved in 2 steps                5.3 kB
            in 1 accumulating step                24 B
            in the step that updates            5.2 kB
          with strategy data                    5.3 kB  1.00 x
          with strategy model                   5.3 kB  1.01 x
          with strategy recursive               3.2 kB  0.62 x
          fed to GPUs in one training step       160 B  40 B to each GPU, 320 B in 2 steps
          work over that of one device            1.04
          memory of each GPU                    7.7 kB
            parameters                          1.3 kB
            optimizer states                    2.3 kB
            inputs                               768 B
            gradients                           2.3 kB
            collectives                         1.0 kB
          search                                0.0 ms
    "#]]
    .assert_eq(&compiled.report.text());
}

/// Checks the bytes of a batch that the host writes to all of some ranks, and to each of them.
fn check_feeding(pin: Option<&str>, padding: Padding, n_gpus: usize, expected: (u64, u64)) {
    let mut it = Builder::new();
    let mut x = it.input("x", DType::F32, &[6, 4]);
    if let Some(pin) = pin {
        let arguments = [Argument::Tensor(x), Argument::Text(pin.to_owned())];
        x = support::call(&mut it, "tiled", &arguments);
    }
    let w = it.parameter("w", &[4, 6], Init::Constant(0.5));
    let h = support::call(&mut it, "matmul", &[x, w].map(Argument::Tensor));
    let y = it.input("y", DType::I32, &[6]);
    let loss = support::call(&mut it, "cross_entropy", &[h, y].map(Argument::Tensor));
    let options = Options {
        name: "fed".to_owned(),
        n_gpus,
        search: SearchRequest { padding, ..Strategy::Data.into() },
        precision: Precision::Bf16,
        optimizer: Optimizer { accumulate: 3, ..Optimizer::default() },
    };
    let Compiled { program, report } = compile(it, loss, &[], &options, &|| 0.0).unwrap();
    assert_eq!((report.fed_bytes, report.fed_bytes_per_gpu), expected, "{}", report.text());
    let buffers = program.tables.inputs.iter().map(|it| program.tables.buffers[it.buffer]);
    let held: usize = buffers.map(|it| it.n_elements * it.dtype.bytes()).sum();
    assert_eq!(held as u64, expected.1, "what is written is what a rank holds");
    let json = format!(
        "\"feeding\": {{ \"step_bytes\": {}, \"step_bytes_per_gpu\": {}, \"bytes_total\": {} }}",
        expected.0,
        expected.1,
        3 * expected.0
    );
    assert!(report.json().contains(&json), "{}", report.json());
}

/// `x` has 24 elements and `y` 6, of 4 bytes each.
#[test]
fn each_rank_is_fed_its_part_of_the_batch() {
    check_feeding(None, Padding::Off, 1, (120, 120));
    check_feeding(None, Padding::Off, 2, (120, 60));
    // Both ranks have all of `x`, and half of `y`.
    check_feeding(Some("r"), Padding::Off, 2, (2 * 96 + 24, 96 + 12));
    // Of 8 rows, two are padding.
    check_feeding(None, Padding::All, 4, (160, 40));
}
