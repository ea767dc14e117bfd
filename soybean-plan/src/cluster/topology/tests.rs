//! Tests of topologies by hand-made clusters.

use std::borrow::Cow;

use super::*;
use crate::{
    Collective, Combine, DType, Halo, KernelWork, Placement, Precision, Shape, Tiling, WorkKind,
};

/// Two nodes of six GPUs, three of which share a network card, with numbers that give round
/// results.
fn cluster() -> Cluster {
    let level = |name, count, link_bytes_per_second, gpus_per_link, latency_seconds| Level {
        name: Cow::Borrowed(name),
        count,
        link_bytes_per_second,
        gpus_per_link,
        latency_seconds,
    };
    Cluster {
        name: Cow::Borrowed("small"),
        levels: vec![
            level("nodes", 2, 300.0, 3, 0.5),
            level("boards", 2, 100.0, 1, 0.25),
            level("gpus", 3, 1000.0, 1, 0.125),
        ]
        .into(),
        device: Device {
            name: Cow::Borrowed("abacus"),
            f32_flops: 10.0,
            tf32_flops: 20.0,
            bf16_flops: 40.0,
            memory_bytes_per_second: 8.0,
            memory_bytes: 1 << 20,
            launch_seconds: 0.5,
            efficiency: 0.5,
        },
        measurements: Measurements::default(),
    }
}

#[test]
fn fast_levels_are_filled_first() {
    let sizes = |n_gpus| Topology::new(&cluster(), n_gpus).map(|it| it.mesh().to_string());
    for (n_gpus, expected) in
        [(1, "[]"), (2, "[2]"), (3, "[3]"), (4, "[2, 2]"), (6, "[2, 3]"), (12, "[2, 2, 3]")]
    {
        assert_eq!(sizes(n_gpus).unwrap(), expected, "{n_gpus}");
    }
    let levels = |n_gpus: usize| -> Vec<usize> {
        let topology = Topology::new(&cluster(), n_gpus).unwrap();
        (0..topology.mesh().n_axes()).map(|it| topology.level(it)).collect()
    };
    assert_eq!((levels(2), levels(4), levels(8)), (vec![2], vec![1, 2], vec![0, 1, 2]));
}

#[test]
fn numbers_without_place_are_refused() {
    let error = Topology::new(&cluster(), 13).unwrap_err();
    assert_eq!(error.to_string(), "the cluster `small` has 12 GPUs, fewer than 13");
    assert_eq!(error.fitting(), 12);
}

#[test]
fn numbers_without_an_even_spread_stand_side_by_side() {
    let of = |n_gpus| Topology::new(&cluster(), n_gpus).unwrap();
    let levels = |it: &Topology| -> Vec<usize> {
        (0..it.mesh().n_axes()).map(|axis| it.level(axis)).collect()
    };
    // Five stand on one node, whose boards they cross; ten on both nodes.
    let (five, ten) = (of(5), of(10));
    assert_eq!((levels(&five), five.counts.clone()), (vec![1], vec![1, 2, 3]));
    assert_eq!((levels(&ten), ten.counts.clone()), (vec![0, 0], vec![2, 2, 3]));
    assert_eq!(ten.mesh().to_string(), "[2, 5]");
    assert!((ten.bytes_per_second(0) - 100.0).abs() < 1e-12);
}

#[test]
fn smaller_numbers_are_spread_evenly_or_fill_their_nodes() {
    for (n_gpus, expected) in [
        (1, vec![]),
        (3, vec![]),
        // Four GPUs fill one board and a third of another one.
        (4, vec![3]),
        (5, vec![4, 3]),
        (6, vec![]),
        (8, vec![6]),
        (11, vec![8, 6]),
        (12, vec![]),
    ] {
        assert_eq!(Topology::smaller_numbers(&cluster(), n_gpus), expected, "{n_gpus}");
    }
}

/// Returns a collective of a tensor of 1,200 floats that a mesh of twelve ranks splits along
/// all axes.
fn gather(axes: &[usize]) -> Bucket {
    let split = Tiling::new(&[Placement::Split(0); 3]);
    let to = axes.iter().fold(split, |it, &axis| it.with(axis, Placement::Replicated));
    Collective {
        kind: CollectiveKind::AllGather,
        dtype: DType::F32,
        combine: Combine::Sum,
        axes: axes.iter().copied().collect::<AxisSet>(),
        shape: Shape::new(&[1200]),
        from: split,
        to,
        halo: Halo::NONE,
    }
    .into()
}

#[test]
fn the_slowest_level_decides() {
    let topology = Topology::new(&cluster(), 12).unwrap();
    // A rank has 400 bytes. Over the last axis it receives twice as many, at 1,000 bytes per
    // second.
    assert!((topology.bucket_seconds(&gather(&[2])) - (0.125 + 0.8)).abs() < 1e-12);
    // Over the last two axes it receives 800 bytes from its board, and 1,200 from the other
    // one, at 100 bytes per second.
    assert_eq!(topology.bytes_per_level(&gather(&[1, 2])), [0, 14_400, 9600]);
    assert!((topology.bucket_seconds(&gather(&[1, 2])) - 12.25).abs() < 1e-12);
    // Three GPUs share a card of 300 bytes per second.
    assert!((topology.bucket_seconds(&gather(&[0])) - (0.5 + 4.0)).abs() < 1e-12);
}

#[test]
fn measured_collectives_take_the_time_of_their_fit() {
    let measured = |n_ranks, latency_seconds, bytes_per_second| MeasuredCollective {
        kind: CollectiveKind::AllGather,
        n_ranks,
        latency_seconds,
        bytes_per_second,
    };
    let measurements = Measurements {
        step_seconds: 8.0,
        collectives: vec![measured(3, 0.5, 400.0), measured(12, 2.0, 100.0)].into(),
        ..Measurements::default()
    };
    let topology = Topology::new(&Cluster { measurements, ..cluster() }, 12).unwrap();
    // A rank has 400 bytes, and receives those of two others, or of eleven.
    assert!((topology.bucket_seconds(&gather(&[2])) - (0.5 + 2.0)).abs() < 1e-12);
    assert!((topology.bucket_seconds(&gather(&[0, 1, 2])) - (2.0 + 44.0)).abs() < 1e-12);
    let gathered = gather(&[2]).collectives[0];
    let reduce: Bucket = Collective { kind: CollectiveKind::AllReduce, ..gathered }.into();
    let plain = Topology::new(&cluster(), 12).unwrap();
    let [seconds, expected] = [&topology, &plain].map(|it| it.bucket_seconds(&reduce));
    assert!((seconds - expected).abs() < 1e-12, "no all-reduce was measured");
}

#[test]
fn a_bucket_has_one_latency() {
    let topology = Topology::new(&cluster(), 12).unwrap();
    let one = gather(&[2]);
    let collectives = vec![one.collectives[0]; 3].into();
    let three = Bucket { collectives };
    assert_eq!(three.bytes(&topology.mesh()), 3 * one.bytes(&topology.mesh()));
    assert!((topology.bucket_seconds(&three) - (0.125 + 3.0 * 0.8)).abs() < 1e-12);
}

#[test]
fn unused_neighbors_leave_the_link_to_others() {
    let topology = Topology::new(&cluster(), 8).unwrap();
    assert_eq!(topology.mesh().to_string(), "[2, 2, 2]");
    assert!((topology.bytes_per_second(0) - 100.0).abs() < 1e-12);
    let alone =
        Topology::new(&Cluster { levels: cluster().levels[..1].to_vec().into(), ..cluster() }, 2);
    assert!((alone.unwrap().bytes_per_second(0) - 300.0).abs() < 1e-12);
}

#[test]
fn kernels_are_bound_by_arithmetic_or_memory() {
    let device = cluster().device;
    let work = |kind, operations, bytes| KernelWork { name: "any", kind, operations, bytes };
    let seconds = |work| device.seconds(work, Precision::Bf16);
    assert!((seconds(work(WorkKind::Product, 80, 8)) - (0.5 + 4.0)).abs() < 1e-12);
    assert!((seconds(work(WorkKind::Other, 80, 8)) - (0.5 + 16.0)).abs() < 1e-12);
    assert!((seconds(work(WorkKind::Other, 0, 40)) - (0.5 + 10.0)).abs() < 1e-12);
}
