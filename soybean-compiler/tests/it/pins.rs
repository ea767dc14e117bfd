//! Pins: tensors that are stored in the tilings that users choose.

use soybean_compiler::{
    Argument, Builder, Compiled, ModelDiagnostic, ModelPart, Network, Optimizer, Options,
    SearchRequest, Strategy, Value, build_network, compile, round,
    tiling::{SearchResult, search},
};
use soybean_plan::{DType, Init, Mesh, Placement, Precision, Tiling};

fn call(builder: &mut Builder, operator: &str, operands: &[Argument]) -> Value {
    let Argument::Tensor(value) = builder.call(operator, operands).unwrap() else {
        panic!("`{operator}` gives a tensor")
    };
    value
}

fn pin(builder: &mut Builder, value: Value, text: &str) -> Value {
    let operands = [Argument::Tensor(value), Argument::Text(text.to_owned())];
    call(builder, "tiled", &operands)
}

/// Returns a perceptron of two layers with these pins of its first weight, its hidden layer and its
/// logits.
fn perceptron(pins: [Option<&str>; 3]) -> (Builder, Value) {
    let mut it = Builder::new();
    let x = it.input("x", DType::F32, &[8, 16]);
    let [first, second] = [[16, 32], [32, 8]].map(|shape| {
        let name = format!("w{}", shape[0]);
        it.parameter(&name, &shape, Init::Constant(0.1))
    });
    let hidden = call(&mut it, "matmul", &[x, first].map(Argument::Tensor));
    let hidden = call(&mut it, "relu", &[Argument::Tensor(hidden)]);
    let logits = call(&mut it, "matmul", &[hidden, second].map(Argument::Tensor));
    for (value, text) in [first, hidden, logits].into_iter().zip(pins) {
        if let Some(text) = text {
            assert_eq!(pin(&mut it, value, text), value);
        }
    }
    let loss = call(&mut it, "mean", &[Argument::Tensor(logits), Argument::All]);
    (it, loss)
}

fn network(pins: [Option<&str>; 3]) -> Network {
    let (builder, loss) = perceptron(pins);
    build_network(builder, loss, &[], &Optimizer::default()).unwrap()
}

fn searched(network: &Network, n_ranks: usize, strategy: Strategy) -> SearchResult {
    search(network, Mesh::new(n_ranks), &strategy.into())
}

#[test]
fn pinned_tensors_are_stored_so_under_every_strategy() {
    for pins in [
        [Some("P0"), None, None],
        [Some("r"), Some("P1"), None],
        [Some("P1 r"), Some("r P0"), Some("P1 P0")],
    ] {
        let network = network(pins);
        let pinned = network.pins();
        assert_eq!(pinned.len(), pins.iter().flatten().count(), "{}", network.graph);
        for (_, strategy) in Strategy::NAMES {
            let mesh = Mesh::new(4);
            let found = searched(&network, 4, strategy);
            for &value in &pinned {
                let wanted = network.graph.node(value).pinned.unwrap().on(&mesh).unwrap();
                assert_eq!(found.tiled.tilings[value.index()], wanted, "{strategy:?}");
            }
            for (source, next) in &network.updates {
                let tilings = &found.tiled.tilings;
                assert_eq!(tilings[source.index()], tilings[next.index()]);
            }
        }
    }
}

#[test]
fn the_best_pin_costs_nothing_and_no_pin_is_better() {
    let free = network([None; 3]);
    let found = searched(&free, 4, Strategy::Auto).tiled;
    let best = found.bytes();
    let mut n_partial = 0;
    let mesh = Mesh::new(4);
    for value in free.graph.values() {
        let rank = u8::try_from(free.graph.shape(value).len()).unwrap();
        let placements: Vec<Placement> =
            [Placement::Replicated].into_iter().chain((0..rank).map(Placement::Split)).collect();
        let mut least = u64::MAX;
        for &first in &placements {
            for &second in &placements {
                let tiling = Tiling::new(&[first, second]);
                let Ok(pinned) = free.clone().pinned(value, tiling, &mesh) else { continue };
                let found = searched(&pinned, 4, Strategy::Auto);
                assert!(found.is_optimal);
                assert_eq!(found.tiled.tilings[value.index()], tiling);
                assert_eq!(found.unpinned_bytes, Some(best));
                least = least.min(found.tiled.bytes());
            }
        }
        // A pinned tensor is no partial sum.
        let is_partial = !found.tilings[value.index()].partial_axes().is_empty();
        n_partial += usize::from(is_partial);
        assert!(least == best || is_partial && least > best, "{value}: {least}, {best}");
    }
    assert_eq!(n_partial, 1, "{found}");
}

// Guards: pins only take plans away, so no pins of any tensors give fewer bytes than none.
#[test]
fn no_random_pins_give_a_cheaper_plan_than_none() {
    let free = network([None; 3]);
    let values: Vec<Value> = free.graph.values().collect();
    let of_free = [2, 4, 6, 8].map(|n| (n, searched(&free, n, Strategy::Auto).tiled.bytes()));
    let mut number = numbers(7);
    let (mut n_tried, mut n_equal) = (0, 0);
    while n_tried < 1000 {
        let (n_ranks, least) = of_free[number(of_free.len())];
        let mesh = Mesh::new(n_ranks);
        let mut pinned = free.clone();
        for _ in 0..=number(3) {
            let value = values[number(values.len())];
            let rank = free.graph.shape(value).len();
            let placement = |at: usize| match at {
                0 => Placement::Replicated,
                dim => Placement::Split(u8::try_from(dim - 1).unwrap()),
            };
            let placements = (0..mesh.n_axes()).map(|_| placement(number(rank + 1)));
            let tiling = Tiling::new(&placements.collect::<Vec<Placement>>());
            if let Ok(network) = pinned.clone().pinned(value, tiling, &mesh) {
                pinned = network;
            }
        }
        if pinned.pins().is_empty() {
            continue;
        }
        n_tried += 1;
        let found = searched(&pinned, n_ranks, Strategy::Auto);
        assert!(found.tiled.bytes() >= least, "{n_ranks} ranks: {}", found.tiled);
        assert_eq!(found.unpinned_bytes, Some(least));
        n_equal += usize::from(found.tiled.bytes() == least);
    }
    assert!(n_equal > 10 && n_equal < 900, "{n_equal}");
}

/// Returns numbers below a limit that follow no pattern.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    }
}

#[test]
fn pinned_tensors_are_neither_fused_away_nor_merged() {
    let mut it = Builder::new();
    let x = it.input("x", DType::F32, &[8, 16]);
    let w = it.parameter("w", &[16], Init::Constant(0.1));
    let product = |it: &mut Builder| call(it, "mul", &[x, w].map(Argument::Tensor));
    let (one, other) = (product(&mut it), product(&mut it));
    let one = call(&mut it, "square", &[Argument::Tensor(one)]);
    let other = call(&mut it, "square", &[Argument::Tensor(other)]);
    pin(&mut it, one, "P1");
    let sum = call(&mut it, "add", &[one, other].map(Argument::Tensor));
    let loss = call(&mut it, "mean", &[Argument::Tensor(sum), Argument::All]);
    let network = build_network(it, loss, &[], &Optimizer::default()).unwrap();
    for network in [network.clone(), round(network, Precision::Bf16)] {
        let [pinned] = network.pins()[..] else { panic!("one tensor is pinned") };
        assert_eq!(network.graph.shape(pinned).to_vec(), [8, 16]);
        assert_eq!(network.graph.node(pinned).pinned.unwrap().to_string(), "[P1]");
    }
}

fn compiled(
    pins: [Option<&str>; 3],
    n_gpus: usize,
    search: SearchRequest,
) -> Result<Compiled, Vec<ModelDiagnostic>> {
    let (builder, loss) = perceptron(pins);
    let (name, precision) = ("perceptron".to_owned(), Precision::F32);
    let options = Options { name, n_gpus, search, precision, optimizer: Optimizer::default() };
    compile(builder, loss, &[], &options, &|| 0.0)
}

/// Returns the diagnostics of `compile` for these pins, with the tensor's name or number.
fn faults(pins: [Option<&str>; 3], n_gpus: usize) -> Vec<String> {
    let Err(faults) = compiled(pins, n_gpus, SearchRequest::default()) else { return Vec::new() };
    let text = |fault: ModelDiagnostic| match fault.at {
        ModelPart::Pin(value) => {
            format!("{value}: {}; help: {}", fault.message, fault.help.unwrap())
        }
        other => panic!("{other:?}"),
    };
    faults.into_iter().map(text).collect()
}

#[test]
fn pins_that_do_not_fit_the_mesh_are_faults() {
    assert_eq!(
        faults([Some("P0 r"), None, Some("P1")], 8),
        [
            "v1: `tiled`: 8 GPUs are a mesh of 3 axes, [2, 2, 2], found 2 entries; help: write an entry for each axis, or a single one for all axes"
        ]
    );
    assert_eq!(
        faults([None, Some("P0 P1"), Some("P1 P0")], 6),
        [
            "v4: `tiled`: [P0 P1] splits dim 1 of [8, 32] over 3 GPUs, which its extent 32 does not allow; help: replicate the tensor along an axis (`r`), or make dim 1 a multiple of 3",
            "v5: `tiled`: [P1 P0] splits dim 0 of [8, 8] over 3 GPUs, which its extent 8 does not allow; help: replicate the tensor along an axis (`r`), or make dim 0 a multiple of 3",
        ]
    );
    assert_eq!(faults([Some("P0"), Some("P1"), Some("r")], 1), Vec::<String>::new());
}

/// Returns the first line and the help of the diagnostic when memory is short.
fn shortage(pins: [Option<&str>; 3], search: SearchRequest) -> [String; 2] {
    let faults = compiled(pins, 4, search).unwrap_err();
    let [ModelDiagnostic { at: ModelPart::Memory, message, help: Some(help) }] = &faults[..] else {
        panic!("one fault, at the memory: {faults:?}")
    };
    [message.lines().next().unwrap().to_owned(), help.clone()]
}

#[test]
fn a_strategy_keeps_its_plan_where_memory_is_short() {
    let pins = [None, None, Some("r")];
    let free = compiled(pins, 4, Strategy::Data.into()).unwrap();
    let memory = Some(free.report.peak_memory_bytes_per_gpu / 2);
    let within = |strategy: Strategy| SearchRequest { memory, ..strategy.into() };
    assert!(compiled(pins, 4, within(Strategy::Auto)).is_ok(), "another plan fits");
    let [message, help] = shortage(pins, within(Strategy::Data));
    assert!(message.starts_with("the plan of strategy `data` needs "), "{message}");
    assert_eq!(help, "strategy `auto` looks for plans that fit");
}

#[test]
fn numbers_of_gpus_that_pins_do_not_fit_do_not_help() {
    let within = SearchRequest { memory: Some(2300), ..SearchRequest::default() };
    let help = |pin| shortage([Some(pin), None, None], within.clone())[1].clone();
    assert_eq!(help("P0"), "it fits on 8 GPUs");
    // Eight GPUs form a mesh of three axes.
    assert_eq!(help("P0 P0"), "it needs at least 5 GPUs, or a smaller batch");
}
