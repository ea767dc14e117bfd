//! Tests of collectives against their definition, element by element, for random legal tilings.

mod in_memory_transport;

use std::thread;

use soybean_plan::{
    BUFFER_ALIGNMENT, Buffer, Collective, CollectiveKind, Combine, DType, Entry, Executable, Halo,
    MAX_AXES, Mesh, Placement, Program, Shape, Tables, Tile, Tiling, bf16, may_split,
    splits_into_blocks,
};

use super::*;
use crate::cpu::Dice;
use in_memory_transport::InMemoryNetwork;

/// Returns a program with one bucket. Buffers `2 i` and `2 i + 1` are the input and the result of
/// collective `i`.
fn program(mesh: Mesh, collectives: &[Collective]) -> Executable {
    let mut arena_bytes = 0;
    let mut buffers = Vec::new();
    for collective in collectives {
        for shape in [collective.source().local_shape(&mesh), collective.result_shape(&mesh)] {
            let (n_elements, dtype) = (shape.n_elements(), collective.dtype);
            buffers.push(Buffer { offset: arena_bytes, n_elements, dtype });
            arena_bytes += (n_elements * dtype.bytes()).next_multiple_of(BUFFER_ALIGNMENT);
        }
    }
    let tables = Tables {
        arena_bytes,
        buffers: buffers.into(),
        entries: vec![Entry::only(0, 0, 0, 0).trained(0, 0)].into(),
        ..Tables::new("test", mesh)
    };
    let kernels = vec![Bucket { collectives: collectives.to_vec().into() }.into()].into();
    let (train, evaluate) = (vec![vec![]], vec![vec![]]);
    // SAFETY: each collective has buffers of the size of its parts.
    unsafe { Executable::new(Program { tables, kernels, train, accumulate: vec![], evaluate }) }
}

/// Returns the global coordinates of the elements of a rank's tile, in order.
fn elements(tile: &Tile, mesh: &Mesh, rank: usize) -> Vec<Vec<usize>> {
    let coordinates = mesh.coordinates(rank);
    let mut elements = vec![Vec::new()];
    for dim in 0..tile.shape.len() {
        let indices = tile.indices(dim, mesh, &coordinates);
        let longer = |it: &Vec<usize>| {
            let it = it.clone();
            indices.clone().into_iter().map(move |index| [&it[..], &[index]].concat())
        };
        elements = elements.iter().flat_map(longer).collect();
    }
    elements
}

/// Returns the value of an element on the ranks with these coordinates. Values are whole numbers,
/// so that sums are exact in any order. Values of `bf16` are below 256, and their sums are rounded.
fn value(tile: &Tile, dtype: DType, element: &[usize], coordinates: &[usize; MAX_AXES]) -> f32 {
    let tiling = &tile.tiling;
    let base = element.iter().fold(7, |value, index| (value * 31 + index) % 1009);
    let part: usize = tiling
        .partial_axes()
        .iter()
        .map(|axis| (coordinates[axis] + 1) * (axis + 3) % 11)
        .product();
    let n_values = if dtype == DType::Bf16 { 256 } else { 1000 };
    (base * part % n_values) as f32
}

/// # Safety
/// The region has this element, and nothing else uses it.
unsafe fn write(region: &Region, index: usize, value: f32) {
    let place = region.address(index);
    match region.dtype {
        // SAFETY: required of the caller.
        DType::F32 => unsafe { place.cast::<f32>().write(value) },
        #[expect(clippy::cast_possible_truncation, reason = "whole numbers")]
        // SAFETY: as above.
        DType::I32 => unsafe { place.cast::<i32>().write(value as i32) },
        // SAFETY: as above.
        DType::Bf16 => unsafe { place.cast::<u16>().write(bf16::from_f32(value)) },
    }
}

/// # Safety
/// The region has this element, and nothing writes there.
unsafe fn read(region: &Region, index: usize) -> f32 {
    let place = region.address(index);
    match region.dtype {
        // SAFETY: required of the caller.
        DType::F32 => unsafe { place.cast::<f32>().read() },
        // SAFETY: as above.
        DType::I32 => unsafe { place.cast::<i32>().read() as f32 },
        // SAFETY: as above.
        DType::Bf16 => bf16::to_f32(unsafe { place.cast::<u16>().read() }),
    }
}

/// Returns the value that a rank must have after the collective.
fn expected(collective: &Collective, mesh: &Mesh, element: &[usize], rank: usize) -> f32 {
    let coordinates = mesh.coordinates(rank);
    let (source, dtype) = (collective.source(), collective.dtype);
    let holds = |peer: &usize| value(&source, dtype, element, &mesh.coordinates(*peer));
    let group = mesh.group(rank, collective.axes);
    let exact = match (collective.kind, collective.combine) {
        (CollectiveKind::AllReduce | CollectiveKind::ReduceScatter, Combine::Sum) => {
            group.iter().map(holds).sum()
        }
        (CollectiveKind::AllReduce | CollectiveKind::ReduceScatter, Combine::Max) => {
            group.iter().map(holds).fold(f32::NEG_INFINITY, f32::max)
        }
        (
            CollectiveKind::Slice
            | CollectiveKind::AllToAll
            | CollectiveKind::AllGather
            | CollectiveKind::HaloExchange,
            _,
        ) => value(&source, dtype, element, &coordinates),
    };
    match dtype {
        DType::F32 | DType::I32 => exact,
        DType::Bf16 => bf16::to_f32(bf16::from_f32(exact)),
    }
}

/// Returns the number of bytes that one group receives.
fn group_bytes(collective: &Collective, mesh: &Mesh) -> usize {
    let n_bytes = collective.dtype.bytes() * collective.source().local_shape(mesh).n_elements();
    let size = mesh.group_size(collective.axes);
    match collective.kind {
        CollectiveKind::Slice => 0,
        CollectiveKind::ReduceScatter | CollectiveKind::AllToAll => (size - 1) * n_bytes,
        CollectiveKind::AllReduce => 2 * (size - 1) * n_bytes,
        CollectiveKind::AllGather => size * (size - 1) * n_bytes,
        CollectiveKind::HaloExchange => {
            let is_inside = |rank: &usize| {
                let all = elements_with_halo(collective, mesh, *rank);
                all.iter().filter(|it| it.is_some()).count() * collective.dtype.bytes() - n_bytes
            };
            mesh.group(0, collective.axes).iter().map(is_inside).sum()
        }
    }
}

/// Returns the global coordinates of the elements of a rank's part after a collective, in order;
/// `None` for those of a halo outside the tensor.
fn elements_with_halo(
    collective: &Collective,
    mesh: &Mesh,
    rank: usize,
) -> Vec<Option<Vec<usize>>> {
    let (tile, coordinates) = (collective.destination(), mesh.coordinates(rank));
    let mut elements = vec![Some(Vec::new())];
    for dim in 0..tile.shape.len() {
        let indices = tile.indices(dim, mesh, &coordinates);
        let (before, after) = (collective.halo.before[dim], collective.halo.after[dim]);
        let (first, last) = (indices[0], indices[indices.len() - 1]);
        let above = (0..before).rev().map(|it| first.checked_sub(it + 1));
        let below = (1..=after).map(|it| Some(last + it).filter(|it| *it < tile.shape[dim]));
        let all: Vec<Option<usize>> =
            above.chain(indices.into_iter().map(Some)).chain(below).collect();
        let longer = |it: &Option<Vec<usize>>| {
            let with = |index: &Option<usize>| Some([&it.clone()?[..], &[(*index)?]].concat());
            all.iter().map(with).collect::<Vec<_>>()
        };
        elements = elements.iter().flat_map(longer).collect();
    }
    elements
}

/// Returns what lies outside the tensor.
fn outside(collective: &Collective) -> f32 {
    match (collective.dtype, collective.combine) {
        (DType::I32, Combine::Max) => i32::MIN as f32,
        (_, Combine::Sum) => 0.0,
        (_, Combine::Max) => f32::NEG_INFINITY,
    }
}

/// Returns a random kind of collective, and axes of the mesh.
fn random_class(dice: &mut Dice, mesh: &Mesh) -> (CollectiveKind, AxisSet) {
    let axes = AxisSet(u16::try_from(1 + dice.below((1 << mesh.n_axes()) - 1)).unwrap());
    let kind = dice.pick(&[
        CollectiveKind::Slice,
        CollectiveKind::ReduceScatter,
        CollectiveKind::AllReduce,
        CollectiveKind::AllToAll,
        CollectiveKind::AllGather,
        CollectiveKind::HaloExchange,
    ]);
    (kind, axes)
}

/// Returns a random collective over the mesh, or `None` if it is not legal or does not change the
/// placements of all axes.
fn random(
    dice: &mut Dice,
    mesh: &Mesh,
    (kind, axes): (CollectiveKind, AxisSet),
) -> Option<Collective> {
    let n_dims = 1 + dice.below(3);
    let shape: Shape =
        (0..n_dims).map(|_| dice.pick(&[1, 2, 3, 4, 6, 8, 12, 20, 24, 48])).collect();
    let mut split = || Placement::Split(u8::try_from(dice.below(n_dims)).unwrap());
    let (mut from, mut to) = (Vec::new(), Vec::new());
    for axis in 0..mesh.n_axes() {
        let (first, second) = (split(), split());
        let (before, after) = match kind {
            CollectiveKind::Slice => (Placement::Replicated, second),
            CollectiveKind::ReduceScatter => (Placement::Partial, second),
            CollectiveKind::AllReduce => (Placement::Partial, Placement::Replicated),
            CollectiveKind::AllToAll => (first, second),
            CollectiveKind::AllGather => (first, Placement::Replicated),
            CollectiveKind::HaloExchange => (first, first),
        };
        from.push(before);
        to.push(after);
        if !axes.contains(axis) {
            let same = [first, Placement::Replicated, Placement::Partial][axis % 3];
            (from[axis], to[axis]) = (same, same);
        }
    }
    let dtype = dice.pick(&[DType::F32, DType::Bf16, DType::I32]);
    let combine = dice.pick(&[Combine::Sum, Combine::Max]);
    let (from, to) = (Tiling::new(&from), Tiling::new(&to));
    let halo = Halo::NONE;
    let collective = Collective { kind, dtype, combine, axes, shape, from, to, halo };
    let is_change = axes.iter().all(|axis| from.on(axis) != to.on(axis));
    let is_legal = collective.source().is_legal(mesh) && collective.destination().is_legal(mesh);
    // Otherwise ranks exchange unequal parts, as no program does.
    let is_even = (0..n_dims)
        .all(|dim| may_split(shape[dim], mesh, AxisSet(from.axes_of(dim).0 | to.axes_of(dim).0)));
    match kind {
        CollectiveKind::HaloExchange if is_legal => with_halo(dice, mesh, collective),
        CollectiveKind::AllToAll if !is_even => None,
        _ => (is_legal && is_change).then_some(collective),
    }
}

/// Returns the exchange of a random halo, or `None` if it does not belong to the same axes, or some
/// dims are not split into blocks.
fn with_halo(dice: &mut Dice, mesh: &Mesh, collective: Collective) -> Option<Collective> {
    let halo = (0..collective.shape.len()).fold(Halo::NONE, |halo, dim| {
        let axes = collective.to.axes_of(dim);
        let is_along = axes.iter().any(|axis| collective.axes.contains(axis));
        let mut some = || dice.pick(&[0, 1, 2, 3, 7]);
        if is_along { halo.with(dim, [some(), some()]) } else { halo }
    });
    let are_blocks = (0..collective.shape.len()).all(|dim| {
        !halo.is_along(dim)
            || splits_into_blocks(collective.shape[dim], mesh, collective.to.axes_of(dim))
    });
    let is_exchange = halo.axes(&collective.destination()) == collective.axes;
    (are_blocks && is_exchange).then_some(Collective { halo, ..collective })
}

/// Writes the elements of all inputs of a rank.
fn write_inputs(collectives: &[Collective], tables: &Tables, rank: usize, arenas: &Arenas) {
    let coordinates = tables.mesh.coordinates(rank);
    for (at, collective) in collectives.iter().enumerate() {
        let source = cpu::region(tables, &arenas[rank], 2 * at).unwrap();
        let elements = elements(&collective.source(), &tables.mesh, rank);
        for (index, element) in elements.iter().enumerate() {
            let held = value(&collective.source(), collective.dtype, element, &coordinates);
            // SAFETY: the buffer has an element for each of the tile, and no rank is running yet.
            unsafe { write(&source, index, held) };
        }
    }
}

/// Checks the elements of all results of a rank.
fn check_results(collectives: &[Collective], tables: &Tables, rank: usize, arenas: &Arenas) {
    for (at, collective) in collectives.iter().enumerate() {
        let result = cpu::region(tables, &arenas[rank], 2 * at + 1).unwrap();
        let elements = elements_with_halo(collective, &tables.mesh, rank);
        assert_eq!(elements.len(), result.n_elements);
        for (index, element) in elements.iter().enumerate() {
            // SAFETY: the buffer has an element for each of the tile, and no rank is running any
            // more.
            let found = unsafe { read(&result, index) };
            let expected = match element {
                Some(element) => expected(collective, &tables.mesh, element, rank),
                None => outside(collective),
            };
            assert_eq!(found, expected, "{collectives:?}: {at}, rank {rank}, element {element:?}");
        }
    }
}

/// Checks the values and the number of bytes that all ranks receive from the collectives of a
/// bucket, however the ranks are divided among processes. Every axis of the group must change its
/// placement, otherwise the formula for the bytes does not hold.
fn check(collectives: &[Collective], mesh: Mesh, n_processes: usize) {
    let model = AnyModel::Shared(Arc::new(program(mesh, collectives)));
    let n_ranks = mesh.n_ranks();
    let n_here = n_ranks / n_processes;
    let tables = model.get().tables();
    let abort = Arc::new(Abort::default());
    let network = Arc::new(InMemoryNetwork::default());
    let mut communicators = Vec::new();
    let mut arenas_of_ranks = Vec::new();
    for process in 0..n_processes {
        let ranks = process * n_here..(process + 1) * n_here;
        let arenas = Arenas::new(ranks.clone(), tables.arena_bytes).unwrap();
        let shared_memory = SharedMemoryGroup::new(&model, &arenas, &abort, true);
        for rank in ranks {
            arenas_of_ranks.push(arenas.clone());
            communicators
                .push(shared_memory.communicator(rank, Some(network.transport(rank))).unwrap());
        }
    }
    for (rank, arenas) in arenas_of_ranks.iter().enumerate() {
        write_inputs(collectives, tables, rank, arenas);
    }
    let (inputs, results): (Vec<BufferId>, Vec<BufferId>) =
        (0..collectives.len()).map(|at| (2 * at, 2 * at + 1)).unzip();
    let run = &|mut communicator: SharedMemoryCommunicator| {
        // The second run must not disturb the results of the first.
        let first = communicator.communicate(0, &inputs, &results).unwrap();
        assert_eq!(communicator.communicate(0, &inputs, &results).unwrap(), first);
        first
    };
    let received: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> =
            communicators.into_iter().map(|it| scope.spawn(move || run(it))).collect();
        threads.into_iter().map(|it| it.join().unwrap()).collect()
    });
    for (rank, arenas) in arenas_of_ranks.iter().enumerate() {
        check_results(collectives, tables, rank, arenas);
    }
    let n_groups = n_ranks / mesh.group_size(collectives[0].axes);
    let of_group: usize = collectives.iter().map(|it| group_bytes(it, &mesh)).sum();
    let what = format!("{collectives:?} on {mesh} in {n_processes} processes");
    assert_eq!(received.iter().sum::<u64>(), (n_groups * of_group) as u64, "{what}");
    assert!(network.is_empty(), "{what}: messages that nobody took");
}

#[test]
fn random_buckets_match_their_definition() {
    for n_ranks in [2, 3, 4, 6, 8, 12] {
        let mesh = Mesh::new(n_ranks);
        let parts: Vec<usize> = (2..=n_ranks).filter(|it| n_ranks % it == 0).collect();
        let mut n_checked = 0;
        for seed in 0.. {
            let mut dice = Dice(seed);
            let class = random_class(&mut dice, &mesh);
            let Some(first) = random(&mut dice, &mesh, class) else { continue };
            let mut collectives = vec![first];
            let n_collectives = 1 + n_checked % 4;
            while collectives.len() < n_collectives {
                collectives.extend(random(&mut dice, &mesh, class));
            }
            check(&collectives, mesh, 1);
            check(&collectives, mesh, parts[n_checked % parts.len()]);
            n_checked += 1;
            if n_checked == 80 {
                break;
            }
        }
    }
}

#[test]
fn large_reductions_are_divided_among_ranks() {
    let cases = [(2, 1, DType::F32), (3, 3, DType::Bf16), (8, 2, DType::F32), (8, 8, DType::Bf16)];
    for (n_ranks, n_processes, dtype) in cases {
        let mesh = Mesh::new(n_ranks);
        let axes: AxisSet = (0..mesh.n_axes()).collect();
        let collective = Collective {
            kind: CollectiveKind::AllReduce,
            dtype,
            combine: Combine::Sum,
            axes,
            shape: Shape::new(&[257, 301]),
            from: Tiling::new(&vec![Placement::Partial; mesh.n_axes()]),
            to: Tiling::replicated(mesh.n_axes()),
            halo: Halo::NONE,
        };
        check(&[collective], mesh, n_processes);
        // Ranks combine the smaller one each for themselves if there are two.
        let smaller = Collective { shape: Shape::new(&[5, 7]), ..collective };
        check(&[smaller, collective], mesh, n_processes);
    }
}

#[test]
fn a_failed_run_wakes_waiting_ranks() {
    let mesh = Mesh::new(3);
    let collective = Collective {
        kind: CollectiveKind::AllReduce,
        dtype: DType::F32,
        combine: Combine::Sum,
        axes: AxisSet(1),
        shape: Shape::new(&[4]),
        from: Tiling::new(&[Placement::Partial]),
        to: Tiling::replicated(1),
        halo: Halo::NONE,
    };
    let model = AnyModel::Shared(Arc::new(program(mesh, &[collective])));
    let arenas = Arenas::new(0..3, 1024).unwrap();
    let abort = Arc::new(Abort::default());
    let shared_memory = SharedMemoryGroup::new(&model, &arenas, &abort, false);
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..2)
            .map(|rank| {
                let mut communicator = shared_memory.communicator(rank, None).unwrap();
                scope.spawn(move || communicator.communicate(0, &[0], &[1]))
            })
            .collect();
        thread::sleep(std::time::Duration::from_millis(20));
        abort.fail(Error::new(ErrorKind::Rank, "rank 2: tripped"));
        for waiting in waiting {
            let error = waiting.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Rank);
        }
    });
}
