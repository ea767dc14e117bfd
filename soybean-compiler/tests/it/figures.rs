//! The bytes of well-known networks, proved for up to eight ranks. No mixture of other strategies
//! is below them.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use soybean_compiler::{
    Network, Strategy, Value, build_network, optimizer,
    signature::Partitioning,
    tiling::{SearchResult, TiledNetwork, search},
};
use soybean_plan::{Mesh, Placement, Tile, Tiling};
use soybean_zoo::{Model, ZOO};

use crate::support::forms::all_forms;

fn network(name: &str) -> Network {
    let entry = ZOO.iter().find(|it| it.name == name).unwrap();
    let Model { builder, loss, .. } = (entry.model)();
    build_network(builder, loss, &[], &optimizer(entry.optimizer, &[]).unwrap()).unwrap()
}

fn searched(network: &Network, n_ranks: usize, strategy: Strategy) -> SearchResult {
    search(network, Mesh::new(n_ranks), &strategy.into())
}

/// Checks the bytes of networks on these numbers of ranks, all of them proved.
fn check(names: &[&str], n_ranks: &[usize], expected: Expect) {
    let mut text = String::new();
    for name in names {
        let network = network(name);
        write!(text, "{name}").unwrap();
        for &n_ranks in n_ranks {
            let found = searched(&network, n_ranks, Strategy::Auto);
            let bytes = found.tiled.bytes();
            assert!(found.is_optimal, "{name} on {n_ranks}: {bytes}, {}", found.lower_bound_bytes);
            assert_eq!(found.lower_bound_bytes, bytes, "{name} on {n_ranks}");
            let others = found.baselines;
            assert!(bytes <= others.data.min(others.model).min(others.recursive), "{name}");
            write!(text, " {bytes}").unwrap();
        }
        writeln!(text).unwrap();
    }
    expected.assert_eq(&text);
}

#[test]
fn perceptrons_and_convolutions() {
    let names = ["mlp", "mlp-10", "cnn5-wide", "cnn5-large", "alexnet", "vgg16"];
    check(
        &names,
        &[2, 4, 8],
        expect![[r#"
        mlp 100673544 201357336 402716728
        mlp-10 302000136 604010520 1208023096
        cnn5-wide 603979784 1207959576 2415919160
        cnn5-large 94371848 283115544 660602936
        alexnet 48022952 118901176 244400408
        vgg16 162234792 439777720 975593752
    "#]],
    );
}

#[test]
fn networks_with_branches() {
    check(
        &["resnet20", "resnet50", "inception-v3"],
        &[2, 4, 8],
        expect![[r#"
            resnet20 2200984 6602952 15406888
            resnet50 192926376 574680248 1334941720
            inception-v3 178915752 532648376 1236867352
        "#]],
    );
}

#[test]
fn transformers() {
    check(
        &["encoder", "gpt-12", "experts"],
        &[2, 4, 8],
        expect![[r#"
            encoder 14751024 41045944 74970312
            gpt-12 756109320 2230579224 4555337784
            experts 353411080 1035067416 2379368504
        "#]],
    );
}

/// Plans that combine two strategies, one along some axes and the other along the rest, are no
/// better. An example is data parallelism between nodes and model parallelism within nodes.
#[test]
fn no_hybrid_moves_fewer_bytes() {
    for name in ["mlp", "alexnet", "encoder"] {
        let network = network(name);
        let [auto, recursive, data, model] =
            Strategy::NAMES.map(|(_, strategy)| searched(&network, 8, strategy).tiled);
        let least = auto.bytes();
        for (one, other) in [(&data, &model), (&data, &recursive), (&model, &recursive)] {
            for mask in 0..8 {
                let parts = [0, 1, 2].map(|axis| if mask >> axis & 1 == 0 { one } else { other });
                let bytes = hybrid(&parts).bytes();
                assert!(bytes >= least, "{name}: {bytes} bytes by {mask:b}, {least} of auto");
            }
        }
    }
}

/// Returns the plan that has along each axis the placements of the plan given for it, with the best
/// partitioning of every operator.
fn hybrid(parts: &[&TiledNetwork]) -> TiledNetwork {
    let mut hybrid = parts[0].clone();
    let values: Vec<Value> = hybrid.network.graph.values().collect();
    for &value in &values {
        hybrid.tilings[value.index()] = hybrid_tiling(parts, value);
    }
    for value in values.into_iter().filter(|it| parts[0].forms[it.index()].is_some()) {
        let all = all_forms(&hybrid.network, value, &hybrid.mesh);
        let mut bytes = |form: &Partitioning| {
            hybrid.forms[value.index()] = Some(form.clone());
            hybrid.conversions(value).iter().map(|it| it.bytes).sum::<u64>()
        };
        let best = all.into_iter().min_by_key(&mut bytes).unwrap();
        hybrid.forms[value.index()] = Some(best);
    }
    hybrid
}

/// Returns a tensor's tiling in a hybrid, or that of the first plan if the extents lack the
/// factors.
fn hybrid_tiling(parts: &[&TiledNetwork], value: Value) -> Tiling {
    let of_part = |it: &TiledNetwork| it.tilings[value.index()];
    let placements: Vec<Placement> =
        parts.iter().enumerate().map(|(axis, it)| of_part(it).on(axis)).collect();
    let tile = Tile::new(parts[0].network.graph.shape(value), Tiling::new(&placements));
    if tile.is_legal(&parts[0].mesh) { tile.tiling } else { of_part(parts[0]) }
}
