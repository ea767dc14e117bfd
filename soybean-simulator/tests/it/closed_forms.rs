//! Compares simulated times with those computed by hand.

use crate::support::{Steps, cluster, level};
use soybean_plan::{
    Cluster, CollectiveKind, MeasuredCollective, MeasuredKernel, Measurements, Program, Topology,
};
use soybean_simulator::{Lanes, Settings, Simulation, Transport, simulate};

fn run(program: &Program, cluster: &Cluster) -> Simulation {
    simulate(program, cluster, &Settings::default()).unwrap()
}

fn run_in_rings(program: &Program, cluster: &Cluster) -> Simulation {
    let settings = Settings { transport: Transport::Rings, ..Settings::default() };
    simulate(program, cluster, &settings).unwrap()
}

/// The tolerance: sums and quotients of a simulation round at the sixteenth digit.
#[track_caller]
fn check(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9 * expected, "expected {expected}, found {found}");
}

/// Returns a program with one collective of this many floats on each rank.
fn alone(n_ranks: usize, kind: CollectiveKind, axes: &[usize], n_elements: usize) -> Program {
    let mut steps = Steps::new(n_ranks);
    let (input, result) = (steps.buffer(n_elements), steps.buffer(n_elements * n_ranks));
    steps.collective(kind, axes, input, result).program()
}

#[test]
fn a_gather_alone_takes_its_latency_and_its_bytes() {
    let two = cluster(&[level(2, 100.0, 1, 0.5)]);
    let simulation = run(&alone(2, CollectiveKind::AllGather, &[0], 64), &two);
    check(simulation.seconds, 0.5 + 256.0 / 100.0);
    assert_eq!(simulation.bytes_per_level, [512]);
    let carried: Vec<u64> = simulation.links.iter().map(|it| it.bytes).collect();
    assert_eq!(carried, [256; 4]);
    assert!(simulation.links.iter().all(|it| (it.busy_seconds - 2.56).abs() < 1e-9));
}

#[test]
fn a_rank_between_two_others_receives_both_sides_of_its_halo() {
    // Rows of 4 floats: 16 bytes from each neighbor, of which the first and the last rank have one.
    let four = cluster(&[level(4, 100.0, 1, 0.5)]);
    let simulation = run(&alone(4, CollectiveKind::HaloExchange, &[0, 1], 64), &four);
    check(simulation.seconds, 0.5 + 32.0 / 100.0);
    assert_eq!(simulation.bytes_per_level, [6 * 16]);
    let carried: u64 = simulation.links.iter().map(|it| it.bytes).sum();
    assert_eq!(carried, 2 * 6 * 16, "each transfer leaves one GPU and reaches another");
    // One of the three boundaries lies between two nodes.
    let two_by_two = cluster(&[level(2, 50.0, 1, 0.5), level(2, 100.0, 1, 0.25)]);
    let simulation = run(&alone(4, CollectiveKind::HaloExchange, &[0, 1], 64), &two_by_two);
    assert_eq!(simulation.bytes_per_level, [2 * 16, 4 * 16]);
}

#[test]
fn measured_times_replace_those_of_transfers_and_rooflines() {
    let measured = |kind, latency_seconds| MeasuredCollective {
        kind,
        n_ranks: 4,
        latency_seconds,
        bytes_per_second: 128.0,
    };
    let map = MeasuredKernel { name: "map".into(), operations: 0, bytes: 64 * 8, seconds: 0.25 };
    let (gather, reduce) = (CollectiveKind::AllGather, CollectiveKind::AllReduce);
    let measurements = Measurements {
        step_seconds: 0.0,
        kernels: vec![map].into(),
        collectives: vec![measured(gather, 0.5), measured(reduce, 1.5)].into(),
    };
    let four = Cluster { measurements, ..cluster(&[level(4, 100.0, 1, 7.0)]) };
    let mut steps = Steps::new(4);
    let [input, copy, partial] = [0; 3].map(|_| steps.buffer(64));
    let whole = steps.buffer(256);
    let program = steps
        .copy(input, copy)
        .collective(gather, &[0, 1], copy, whole)
        .collective(reduce, &[0, 1], copy, partial)
        .program();
    let settings = Settings { lanes: Lanes::One, ..Settings::default() };
    let simulation = simulate(&program, &four, &settings).unwrap();
    // A rank receives 3 times 256 bytes, and of the all-reduce 2 times 3 quarters of 256.
    check(simulation.seconds, 0.25 + (0.5 + 6.0) + (1.5 + 3.0));
    let topology = Topology::new(&four, 4).unwrap();
    check(simulation.seconds, topology.serial_seconds(&program, &program.train[0]));
    assert_eq!(simulation.bytes_per_level, [0]);
}

#[test]
fn collectives_over_one_level_take_what_the_topology_says() {
    let clusters = [
        cluster(&[level(8, 100.0, 1, 0.5)]),
        cluster(&[level(2, 100.0, 4, 0.5), level(4, 1000.0, 1, 0.25)]),
        cluster(&[level(2, 100.0, 1, 0.5), level(2, 50.0, 2, 0.25), level(2, 70.0, 1, 0.125)]),
    ];
    let kinds = [
        CollectiveKind::AllGather,
        CollectiveKind::AllToAll,
        CollectiveKind::AllReduce,
        CollectiveKind::ReduceScatter,
    ];
    let mut n_checked = 0;
    for (cluster, kind) in clusters.iter().flat_map(|it| kinds.map(|kind| (it, kind))) {
        let topology = Topology::new(cluster, 8).unwrap();
        for axes in [&[0][..], &[1], &[2], &[1, 2], &[0, 1, 2]] {
            let is_one_level = axes.iter().all(|it| topology.level(*it) == topology.level(axes[0]));
            // Four pieces cannot be sent to eight ranks.
            if !is_one_level || kind == CollectiveKind::AllToAll && axes.len() > 2 {
                continue;
            }
            // Enough elements that two ranks share the work of an all-reduce in equal parts.
            let n_elements = if kind == CollectiveKind::AllReduce { 1 << 15 } else { 1 << 10 };
            let program = alone(8, kind, axes, n_elements);
            let formula = topology.step_seconds(&program, &program.train[0][0]);
            check(run(&program, cluster).seconds, formula);
            n_checked += 1;
        }
    }
    assert_eq!(n_checked, 19 + 16 + 12);
}

#[test]
fn a_bucket_takes_one_latency_and_the_bytes_of_all() {
    let two = cluster(&[level(2, 100.0, 1, 0.5)]);
    let gathers = |sizes: &[usize]| {
        let mut steps = Steps::new(2);
        for n_elements in sizes {
            let (input, result) = (steps.buffer(*n_elements), steps.buffer(n_elements * 2));
            steps = steps.collective(CollectiveKind::AllGather, &[0], input, result);
        }
        steps
    };
    let sizes = [64, 16, 48];
    let (alone, joined) = (gathers(&sizes).program(), gathers(&sizes).in_one_bucket().program());
    for simulate in [run, run_in_rings] {
        check(simulate(&alone, &two).seconds, 3.0 * 0.5 + 512.0 / 100.0);
        let simulation = simulate(&joined, &two);
        check(simulation.seconds, 0.5 + 512.0 / 100.0);
        assert_eq!(simulation.bytes_per_level, [1024]);
        assert_eq!(simulation.spans[0].len(), 1);
    }
    let topology = Topology::new(&two, 2).unwrap();
    check(topology.step_seconds(&joined, &joined.train[0][0]), 0.5 + 5.12);
}

#[test]
fn a_bucket_of_all_reduces_has_two_phases() {
    let two = cluster(&[level(2, 100.0, 1, 0.5)]);
    let mut steps = Steps::new(2);
    // Two ranks share the work of the larger one only.
    for n_elements in [1 << 15, 64] {
        let (input, result) = (steps.buffer(n_elements), steps.buffer(n_elements));
        steps = steps.collective(CollectiveKind::AllReduce, &[0], input, result);
    }
    let simulation = run(&steps.in_one_bucket().program(), &two);
    let bytes = (4.0 * f64::from(1 << 15)) + 256.0;
    check(simulation.seconds, 2.0 * 0.5 + bytes / 100.0);
    assert_eq!(simulation.spans[0].len(), 2);
}

#[test]
fn a_ring_takes_a_latency_for_each_hop() {
    let eight = cluster(&[level(8, 100.0, 1, 0.5)]);
    for (kind, n_hops, n_pieces) in [
        (CollectiveKind::AllGather, 7.0, 7.0),
        (CollectiveKind::ReduceScatter, 7.0, 7.0 / 8.0),
        (CollectiveKind::AllReduce, 14.0, 14.0 / 8.0),
    ] {
        let simulation = run_in_rings(&alone(8, kind, &[0, 1, 2], 64), &eight);
        check(simulation.seconds, n_hops * 0.5 + n_pieces * 256.0 / 100.0);
    }
}

#[test]
fn a_ring_crosses_between_groups_once_each_way() {
    let levels = [level(2, 100.0, 4, 0.0), level(4, 100.0, 1, 0.0)];
    let program = alone(8, CollectiveKind::AllReduce, &[0, 1, 2], 64);
    let (ring, direct) =
        (run_in_rings(&program, &cluster(&levels)), run(&program, &cluster(&levels)));
    // Each hop carries two times 7/8 of the tensor; directly, each of four ranks takes an eighth
    // from each of four others, twice.
    check(ring.seconds, 2.0 * 7.0 / 8.0 * 2.56);
    check(direct.seconds, 4.0 * 2.56);
    let sum = |it: &Simulation| it.bytes_per_level.iter().sum::<u64>();
    assert_eq!((ring.bytes_per_level[0], sum(&ring)), (2 * 448, sum(&direct)));
}

#[test]
fn a_ring_is_as_fast_as_its_slowest_hop() {
    // All gather with their partners in the other group, then all four in a ring with two hops
    // between the groups.
    let levels = [level(2, 100.0, 1, 0.0), level(2, 1000.0, 1, 0.0)];
    let mut steps = Steps::new(4);
    let (input, half, whole) = (steps.buffer(64), steps.buffer(128), steps.buffer(512));
    let program = steps
        .collective(CollectiveKind::AllGather, &[0], input, half)
        .collective(CollectiveKind::AllGather, &[0, 1], half, whole)
        .program();
    let simulation = run_in_rings(&program, &cluster(&levels));
    for spans in &simulation.spans {
        check(spans[0].end, 2.56);
        check(spans[1].start, 2.56);
        check(spans[1].end, 2.56 + 3.0 * 5.12);
    }
}

#[test]
fn a_shared_link_takes_twice_as_long() {
    let time = |gpus_per_link| {
        let levels = [level(2, 100.0, gpus_per_link, 0.5), level(2, 1e6, 1, 0.0)];
        run(&alone(4, CollectiveKind::AllGather, &[0], 64), &cluster(&levels)).seconds
    };
    check(time(1), 0.5 + 256.0 / 100.0);
    check(time(2), 0.5 + 2.0 * 256.0 / 100.0);
}

#[test]
fn a_collective_over_two_levels_fills_the_slow_one_first() {
    // Each GPU reads 256 bytes from its neighbor and from both others. Four transfers from the
    // others share one link between the groups, which is their bottleneck.
    let levels = [level(2, 100.0, 2, 0.0), level(2, 500.0, 1, 0.0)];
    let simulation = run(&alone(4, CollectiveKind::AllGather, &[0, 1], 64), &cluster(&levels));
    check(simulation.seconds, 256.0 / 25.0);
    let own = simulation.links.iter().filter(|it| it.level == 1);
    assert!(own.into_iter().all(|it| it.bytes == 3 * 256 && it.busy_seconds > 10.0));
}

/// A copy of 1,000 floats, which takes 8 seconds, and a gather of 64 floats, which takes 3.06.
fn copy_and_gather(is_read: bool) -> Program {
    let mut steps = Steps::new(2);
    let (source, copied) = (steps.buffer(1000), steps.buffer(1000));
    let (input, gathered) = (steps.buffer(64), steps.buffer(128));
    let steps = steps.copy(source, copied);
    let input = if is_read { copied } else { input };
    steps.collective(CollectiveKind::AllGather, &[0], input, gathered).program()
}

#[test]
fn independent_work_overlaps_fully() {
    let two = cluster(&[level(2, 100.0, 1, 0.5)]);
    let simulation = run(&copy_and_gather(false), &two);
    check(simulation.seconds, 8.0);
    for rank in &simulation.ranks {
        check(rank.compute_seconds, 8.0);
        check(rank.communication_seconds, 3.06);
        assert!(rank.exposed_seconds.abs() < 1e-9);
    }
    check(simulation.seconds, simulation.compute_seconds());
    let settings = Settings { lanes: Lanes::One, ..Settings::default() };
    check(simulate(&copy_and_gather(false), &two, &settings).unwrap().seconds, 8.0 + 3.06);
}

#[test]
fn dependent_work_does_not_overlap_at_all() {
    let two = cluster(&[level(2, 100.0, 1, 0.5)]);
    let simulation = run(&copy_and_gather(true), &two);
    check(simulation.seconds, 8.0 + 0.5 + 4000.0 / 100.0);
    for rank in &simulation.ranks {
        check(rank.exposed_seconds, rank.communication_seconds);
    }
    check(simulation.overhead_seconds(), 40.5);
}

#[test]
fn a_collective_waits_for_all_ranks_of_its_group_only() {
    // Both groups gather along the last axis, then all along the first. The slow level determines
    // when the next kernel can run.
    let levels = [level(2, 10.0, 1, 0.0), level(2, 1000.0, 1, 0.0)];
    let mut steps = Steps::new(4);
    let (input, half) = (steps.buffer(64), steps.buffer(128));
    let (whole, copied) = (steps.buffer(256), steps.buffer(256));
    let program = steps
        .collective(CollectiveKind::AllGather, &[1], input, half)
        .collective(CollectiveKind::AllGather, &[0], half, whole)
        .copy(whole, copied)
        .program();
    let simulation = run(&program, &cluster(&levels));
    check(simulation.seconds, 0.256 + 51.2 + 2.048);
    assert_eq!(simulation.bytes_per_level, [4 * 512, 4 * 256]);
}

#[test]
fn memory_that_is_written_again_is_waited_for() {
    // The copy overwrites elements that the other rank still reads.
    let two = cluster(&[level(2, 100.0, 1, 0.5)]);
    let mut steps = Steps::new(2);
    let (input, gathered, other) = (steps.buffer(64), steps.buffer(128), steps.buffer(64));
    let program = steps
        .collective(CollectiveKind::AllGather, &[0], input, gathered)
        .copy(other, input)
        .program();
    check(run(&program, &two).seconds, 3.06 + 0.512);
}

#[test]
fn a_program_without_steps_takes_no_time() {
    let simulation = run(&Steps::new(2).program(), &cluster(&[level(2, 100.0, 1, 0.5)]));
    assert!(simulation.seconds.abs() < f64::EPSILON && simulation.spans.iter().all(Vec::is_empty));
}

#[test]
fn too_small_a_cluster_is_refused() {
    let program = alone(4, CollectiveKind::AllGather, &[0], 64);
    let fault = simulate(&program, &cluster(&[level(2, 100.0, 1, 0.5)]), &Settings::default());
    assert_eq!(fault.unwrap_err().to_string(), "the cluster `small` has 2 GPUs, fewer than 4");
}
