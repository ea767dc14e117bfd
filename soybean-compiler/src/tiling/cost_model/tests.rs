//! The scale of times: no conversion takes more than the time by which ticks are chosen.

use std::borrow::Cow;

use soybean_plan::{Cluster, Halo, MeasuredCollective, Mesh, Placement, Tiling};

use super::*;
use crate::{
    assumed_cluster::assumed_cluster,
    tiling::{conversion::Splits, splittable::SplittingSets},
};

/// Returns all tilings of a tensor that are legal.
fn tilings(splits: &LegalSplits) -> Vec<Tiling> {
    let dims = (0..4).map(Placement::Split);
    let placements: Vec<Placement> =
        dims.chain([Placement::Replicated, Placement::Partial]).collect();
    let mut all = vec![Tiling::replicated(splits.n_axes())];
    for axis in 0..splits.n_axes() {
        let on_axis = |it: &Tiling| placements.iter().map(|to| it.with(axis, *to)).collect();
        all = all.iter().flat_map(|it| -> Vec<Tiling> { on_axis(it) }).collect();
    }
    all.retain(|it| splits.are_legal(it));
    all
}

/// Returns a cluster whose collectives were measured to be much slower than its links.
fn measured() -> Cluster {
    let kinds = [
        CollectiveKind::ReduceScatter,
        CollectiveKind::AllReduce,
        CollectiveKind::AllToAll,
        CollectiveKind::AllGather,
    ];
    let speed = |kind| MeasuredCollective {
        kind,
        n_ranks: 8,
        latency_seconds: 1e-3,
        bytes_per_second: 1e6,
    };
    let mut cluster = assumed_cluster(8);
    cluster.measurements.collectives = Cow::Owned(kinds.map(speed).to_vec());
    cluster
}

#[test]
fn no_conversion_with_a_halo_exceeds_the_time_of_the_scale() {
    // Halos of windows that reach over a few rows and columns, and over whole images.
    let halos = [[1, 1], [3, 2], [16, 16]]
        .map(|it| [Halo::NONE.with(2, it), Halo::NONE.with(2, it).with(3, it)]);
    let mut nearest: f64 = 0.0;
    for (cluster, n_gpus) in [(assumed_cluster(8), 8), (assumed_cluster(16), 16), (measured(), 8)] {
        let topology = Topology::new(&cluster, n_gpus).unwrap();
        let mesh: Mesh = topology.mesh();
        let shape = Shape::new(&[8, 4, 16, 8]);
        let splits = LegalSplits::new(&mut SplittingSets::new(&mesh), &mesh, &shape);
        let times = TimeModel {
            topology: topology.clone(),
            ticks_per_second: 1.0,
            evaluation_tick: 1.0,
            tasks: Vec::new(),
            weights: Vec::new(),
            shares: ExposedShares::ALL,
        };
        let model = CostModel::Time(Box::new(times));
        let CostModel::Time(times) = &model else { unreachable!("it has times") };
        let all = tilings(&splits);
        let bytes = 4 * shape.n_elements();
        let most = most_seconds(&topology, bytes);
        let of_halo = |to: &Tiling, halo: &Halo| {
            let tile = Tile::new(shape, *to);
            let axes = halo.axes(&tile);
            match axes.is_empty() {
                true => 0.0,
                false => times.halo_seconds(axes, 4 * halo.moved(&tile, &mesh)),
            }
        };
        for to in &all {
            let halo = halos.iter().flatten().map(|it| of_halo(to, it)).fold(0.0, f64::max);
            for from in &all {
                let price = splits.conversion_cost(&model, *from, *to);
                let seconds = times.seconds(price, bytes as u64) + halo;
                assert!(seconds <= most, "{from} -> {to}: {seconds} s, at most {most} s");
                nearest = nearest.max(seconds / most);
            }
        }
    }
    assert!(nearest > 0.3, "{nearest}");
}
