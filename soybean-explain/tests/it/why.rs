//! Tests of the costs of other tilings of a tensor.

use expect_test::expect;
use soybean_compiler::{
    Argument, Builder, Compiled, Network, Objective, Optimizer, Options, Padding, Recipe, Report,
    SearchRequest, Strategy, Value, replicate, tiling::search_alone,
};
use soybean_explain::{Changes, Choice, Why, compile_again, why};
use soybean_plan::{
    Cluster, DType, Device, Init, Level, Measurements, Mesh, Placement, Precision, Tiling,
};
use soybean_zoo::{GPT, Transformer};

fn call(builder: &mut Builder, operator: &str, arguments: &[Argument]) -> Value {
    match builder.call(operator, arguments).unwrap() {
        Argument::Tensor(value) => value,
        other => unreachable!("{operator} gave {other:?}"),
    }
}

/// Returns two layers with a named tensor between them, as the macro records them.
fn recipe(n_gpus: usize, pin: Option<&str>) -> Recipe {
    let mut builder = Builder::new();
    builder.name_layers(["", "dense.0", "dense.1"].map(str::to_owned).to_vec());
    let mut x = builder.input("x", DType::F32, &[24, 12]);
    for (layer, [inputs, outputs]) in [[12, 48], [48, 18]].into_iter().enumerate() {
        builder.stand_at("src/main.rs:5", layer + 1);
        let init = Init::Normal { mean: 0.0, std: 0.1 };
        let w = builder.parameter(&format!("dense.{layer}.w"), &[inputs, outputs], init);
        if let Some(pin) = pin.filter(|_| layer == 0) {
            call(&mut builder, "tiled", &[Argument::Tensor(w), Argument::Text(pin.to_owned())]);
        }
        x = call(&mut builder, "matmul", &[Argument::Tensor(x), Argument::Tensor(w)]);
        if layer == 0 {
            builder.stand_at("src/main.rs:9", 0);
            x = call(&mut builder, "add", &[Argument::Tensor(x), Argument::Float(0.5)]);
            builder.name_tensor("sum", x);
            x = call(&mut builder, "sigmoid", &[Argument::Tensor(x)]);
            builder.name_tensor("h", x);
        }
    }
    builder.name_tensor("logits", x);
    builder.stand_at("src/main.rs:12", 0);
    let y = builder.input("y", DType::I32, &[24]);
    let loss = call(&mut builder, "cross_entropy", &[x, y].map(Argument::Tensor));
    let options = Options {
        name: "model".to_owned(),
        n_gpus,
        search: SearchRequest::default(),
        precision: Precision::F32,
        optimizer: Optimizer::default(),
    };
    Recipe { builder, loss: Some(loss), outputs: Vec::new(), options }
}

fn compiled(n_gpus: usize, pin: Option<&str>) -> Compiled {
    compile_again(&recipe(n_gpus, pin)).unwrap()
}

fn ask(report: &Report, name: &str) -> Result<Why, String> {
    why(report, &SearchRequest::default(), name)
}

fn bytes(network: &Network, mesh: Mesh, tensor: Value, tiling: Tiling) -> Option<u64> {
    let pinned = network.clone().pinned(tensor, tiling, &mesh).ok()?;
    Some(search_alone(&replicate(&pinned), mesh, &Strategy::Auto.into()).tiled.bytes())
}

/// Returns all tilings of a matrix on this mesh.
fn all(mesh: &Mesh) -> Vec<Tiling> {
    let placements = [Placement::Replicated, Placement::Split(0), Placement::Split(1)];
    let mut tilings = vec![Vec::new()];
    for _ in 0..mesh.n_axes() {
        let with = |it: &Vec<Placement>| placements.map(|more| [&it[..], &[more]].concat());
        tilings = tilings.iter().flat_map(with).collect();
    }
    tilings.iter().map(|it| Tiling::new(it)).collect()
}

/// Sorts placements along axes of the same size.
fn kind(mesh: &Mesh, tiling: &Tiling) -> Vec<(usize, Placement)> {
    let mut kind: Vec<_> = mesh.sizes().zip(tiling.placements().to_vec()).collect();
    kind.sort_unstable();
    kind
}

#[test]
fn every_tiling_has_the_cost_of_its_row() {
    for (n_gpus, name) in [(4, "dense.0.w"), (6, "dense.1.w"), (8, "h"), (4, "x"), (4, "logits")] {
        let report = compiled(n_gpus, None).report;
        let why = ask(&report, name).unwrap();
        let (network, mesh) = (&report.search().tiled.network, Mesh::new(n_gpus));
        for tiling in all(&mesh) {
            let rows: Vec<&Choice> = why
                .choices
                .iter()
                .filter(|it| kind(&mesh, &it.tiling) == kind(&mesh, &tiling))
                .collect();
            let cost = bytes(network, mesh, why.tensor, tiling);
            assert_eq!(rows.len(), usize::from(cost.is_some()), "{name} {tiling} on {mesh}");
            if let (&[row], Some(cost)) = (&rows[..], cost) {
                assert_eq!(row.bytes, cost, "{name} {tiling} on {mesh}");
                assert!(row.lower_bound_bytes <= row.bytes && row.is_optimal, "{row:?}");
            }
        }
        let chosen: Vec<&Choice> = why.choices.iter().filter(|it| it.is_chosen).collect();
        assert_eq!(chosen.len(), 1, "{name}");
        assert_eq!((chosen[0].bytes, why.choices[0]), (report.bytes_total, *chosen[0]), "{name}");
    }
}

#[test]
fn a_plan_is_searched_anew_on_its_own_mesh() {
    // Two of three axes take a digit of 12 heads each. With few texts the heads are split as well.
    let sizes = Transformer { batch: 2, tokens: 32, n_blocks: 1, n_words: 256, ..GPT };
    let model = sizes.decoder();
    let recipe = Recipe { builder: model.builder, loss: Some(model.loss), ..recipe(8, None) };
    let report = compile_again(&recipe).unwrap().report;
    let tiled = &report.search().tiled;
    let orders = tiled.mesh.digit_orders().filter(|it| it.1.first_axis > 0);
    let first_axes = orders.map(|(extent, it)| (extent, it.first_axis));
    assert_eq!(first_axes.collect::<Vec<_>>(), [(12, 1), (768, 1)]);
    let why = ask(&report, "3.weight").unwrap();
    // The first axis is not equivalent to the others: 3 tilings along it, 6 along them.
    assert_eq!(why.choices.len(), 18);
    let chosen = why.choices.iter().find(|it| it.is_chosen).unwrap();
    assert_eq!(chosen.bytes, report.bytes_total);
    assert!(why.choices.iter().all(|it| it.bytes >= chosen.bytes), "{:?}", why.choices);
    let elsewhere = bytes(&tiled.network, Mesh::new(8), why.tensor, chosen.tiling);
    assert!(elsewhere > Some(report.bytes_total), "{elsewhere:?}");
}

/// Returns a cluster of two machines with two GPUs each.
fn cluster() -> Cluster {
    let level = |name: &'static str, link_bytes_per_second| Level {
        name: name.into(),
        count: 2,
        link_bytes_per_second,
        gpus_per_link: 1,
        latency_seconds: 1e-6,
    };
    let device = Device {
        name: "gpu".into(),
        f32_flops: 1e10,
        tf32_flops: 1e10,
        bf16_flops: 1e10,
        memory_bytes_per_second: 1e10,
        memory_bytes: 1 << 30,
        launch_seconds: 1e-6,
        efficiency: 0.5,
    };
    let levels = vec![level("machine", 1e8), level("gpu", 1e9)];
    Cluster {
        name: "two".into(),
        levels: levels.into(),
        device,
        measurements: Measurements::default(),
    }
}

#[test]
fn axes_of_other_levels_are_told_apart_by_time_and_not_by_bytes() {
    for (objective, n_tilings) in [(Objective::Bytes, 6), (Objective::Time, 9)] {
        let mut recipe = recipe(4, None);
        recipe.options.search =
            SearchRequest { cluster: Some(cluster()), objective, ..SearchRequest::default() };
        let report = compile_again(&recipe).unwrap().report;
        let choices = why(&report, &recipe.options.search, "dense.0.w").unwrap().choices;
        assert_eq!(choices.len(), n_tilings, "{choices:?}");
        let chosen = choices.iter().find(|it| it.is_chosen).unwrap();
        // The fastest plan is not proved; a tiling that is asked for may lead to a faster one.
        let is_first = choices[0].is_chosen || objective == Objective::Time;
        assert!(is_first && chosen.bytes == report.bytes_total, "{choices:?}");
        assert_eq!(chosen.seconds.map(|it| it.0), report.search().times.map(|it| it.plan));
    }
}

/// A loss that every rank needs is communicated by itself; a term of a total is not.
#[test]
fn sums_of_squares_are_cheapest_in_parts() {
    let mut recipe = recipe(4, None);
    recipe.options.optimizer.clip_norm = Some(1.0);
    let report = compile_again(&recipe).unwrap().report;
    let choices = ask(&report, "dense.0.w.grad.square_sum").unwrap().choices;
    let found: Vec<(String, bool)> =
        choices.iter().map(|it| (it.tiling.to_string(), it.is_chosen)).collect();
    assert_eq!(found, [("[red red]".to_owned(), true), ("[r r]".to_owned(), false)]);
    // Three of four ranks send their parts of a number of four bytes, and receive the sum.
    let all_reduce = 2 * 3 * 4;
    assert_eq!(
        choices.iter().map(|it| it.bytes).collect::<Vec<_>>(),
        [report.bytes_total, report.bytes_total + all_reduce]
    );
}

#[test]
fn other_pins_are_kept_and_break_the_symmetry() {
    let report = compiled(4, Some("P0 r")).report;
    let choices = ask(&report, "h").unwrap().choices;
    assert_eq!(choices.len(), 9, "{choices:?}");
    let own = ask(&report, "dense.0.w").unwrap().choices;
    assert_eq!(own.len(), 6, "{own:?}");
    // Without its pin another tiling is cheaper.
    assert!(!own[0].is_chosen && own[0].bytes < report.bytes_total, "{own:?}");
}

#[test]
fn within_memory_all_plans_are_those_that_fit() {
    // The limit is below the memory of the cheapest plan of all, 10.0 kB.
    const MEMORY: u64 = 9300;
    let within = |pin: Option<&str>| {
        let mut recipe = recipe(4, pin);
        recipe.options.search.memory = Some(MEMORY);
        recipe
    };
    let recipe = within(None);
    let report = compile_again(&recipe).unwrap().report;
    let why = why(&report, &recipe.options.search, "dense.0.w").unwrap();
    expect![[r#"
        `dense.0.w` f32[12, 48] in the plan of `model` for 4 GPUs: its tilings, everything else searched anew within 9.3 kB of memory

          tiling   bytes    ratio
          [P1 P1]  10.4 kB  1.00 x  proved                the plan's
          [P0 P1]  12.7 kB  1.22 x  proved
          [P0 P0]  13.8 kB  1.33 x  proved
          [P1 r]   17.3 kB  1.67 x  at least 12.7 kB
          [P0 r]   19.6 kB  1.89 x  at least 15.0 kB
          [r r]    -                none found that fits
    "#]].assert_eq(&why.text(&report));
    // Each row has the cost of a plan with this tiling pinned.
    let pinned =
        |tiling: &Tiling| compile_again(&within(Some(tiling.to_string().trim_matches(['[', ']']))));
    for choice in &why.choices {
        let report = pinned(&choice.tiling).unwrap().report;
        assert!(report.peak_memory_bytes_per_gpu <= MEMORY);
        assert_eq!(choice.bytes, report.bytes_total, "{choice:?}");
    }
    for tiling in &why.unfit {
        let fault = pinned(tiling).unwrap_err();
        assert!(fault.contains("the leanest plan found needs"), "{tiling}: {fault}");
    }
}

#[test]
fn the_table_is_sorted_by_bytes() {
    let report = compiled(4, None).report;
    expect![[r#"
        `dense.1.w` f32[48, 18] in the plan of `model` for 4 GPUs: its tilings, everything else searched anew

          tiling   bytes    ratio
          [P0 P0]  10.4 kB  1.00 x  proved  the plan's
          [P0 r]   12.7 kB  1.22 x  proved
          [P0 P1]  13.2 kB  1.27 x  proved
          [P1 r]   16.6 kB  1.60 x  proved
          [r r]    19.0 kB  1.83 x  proved
    "#]].assert_eq(&ask(&report, "dense.1.w").unwrap().text(&report));
    let report = compiled(1, None).report;
    expect![[r#"
        `dense.1.w` f32[48, 18] in the plan of `model` for 1 GPU: its tilings, everything else searched anew

          tiling  bytes  ratio
          []      0 B           proved  the plan's
    "#]].assert_eq(&ask(&report, "dense.1.w").unwrap().text(&report));
}

#[test]
fn unknown_names_are_answered_with_near_ones() {
    let report = compiled(4, None).report;
    let fault = |name: &str| ask(&report, name).err().unwrap();
    expect![[r#"
        there is no tensor `dense.1.v`; names like it are dense.1.w, dense.0.w, dense.1.w', dense.0.w', dense.1.w.grad
        there is no tensor `dense`; names like it are dense.0.w, dense.1.w, dense.0.w', dense.1.w', dense.1.w.grad
        `sum` has no tiling: it is computed inside the operators that read it, and not stored"#]].assert_eq(&[fault("dense.1.v"), fault("dense"), fault("sum")].join("\n"));
}

#[test]
fn a_recipe_is_compiled_with_changes() {
    let text = recipe(4, None).to_string();
    let again = |changes: &Changes| compile_again(&changes.apply(&text).unwrap());
    let same = again(&Changes::default()).unwrap();
    assert!(same.program == compiled(4, None).program);
    let other = Changes {
        n_gpus: Some(2),
        strategy: Some(Strategy::Data),
        precision: Some(Precision::Bf16),
        ..Changes::default()
    };
    let report = again(&other).unwrap().report;
    assert_eq!(
        (report.n_gpus(), report.strategy(), report.precision()),
        (2, "data", Precision::Bf16)
    );
    let padding = Some(Padding::Off);
    let on = |n_gpus| Changes { n_gpus: Some(n_gpus), padding, ..Changes::default() };
    let fault = |n_gpus| again(&on(n_gpus)).err().unwrap();
    let padded = again(&Changes { padding: None, ..on(7) }).unwrap().program;
    assert!(padded.tables.parameters.iter().any(|it| it.tile.is_padded()));
    expect![[r#"
        `gpus` must lie between 1 and 4096, found 0
        no operator of this model can be split over 7 GPUs; the most is 1; use `gpus = 1`, or make the batch or a layer's width a multiple of 7"#]].assert_eq(&[fault(0), fault(7)].join("\n"));
    assert!(Changes::default().apply("").is_err());
}
