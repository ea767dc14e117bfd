//! Calibration: measures kernels and collectives on the devices of a program's ranks, and describes
//! these devices as a cluster.
//!
//! All ranks run each measured kernel at once. So the times of ranks that share cores or memory
//! bandwidth, as on the CPU, hold for programs with as many ranks.

mod collectives;
mod suite;
mod timer;
mod trial;

use soybean_plan::{
    Cluster, CollectiveKind, Device, Level, MeasuredCollective, MeasuredKernel, Measurements, Mesh,
    Precision,
};
use soybean_runtime::{Config, Error};

use timer::Timer;

/// The kinds of collectives that move data between ranks.
const MOVING: [CollectiveKind; 4] = [
    CollectiveKind::AllGather,
    CollectiveKind::ReduceScatter,
    CollectiveKind::AllReduce,
    CollectiveKind::AllToAll,
];

/// Measures the devices of a mesh. `progress` is called with a line before each part.
///
/// # Errors
/// If the devices cannot be used, or a rank fails.
pub(crate) fn calibrate(
    mesh: Mesh,
    precision: Precision,
    config: &Config,
    progress: &mut dyn FnMut(&str),
) -> Result<Cluster, Error> {
    let mut timer = Timer::new(mesh, precision, config.clone())?;
    let kernels = kernels(&mut timer, &mesh, progress)?;
    let collectives = collectives(&mut timer, &mesh, progress)?;
    let name = timer.device_line.clone();
    let levels = level(&mesh, &collectives).into_iter().collect::<Vec<_>>().into();
    let device = device(&timer, &kernels);
    let measurements = Measurements {
        step_seconds: timer.step_seconds,
        kernels: kernels.into(),
        collectives: collectives.into(),
    };
    Ok(Cluster { name: name.into(), levels, device, measurements })
}

/// Measures kernels, and slices, which copy on each rank.
fn kernels(
    timer: &mut Timer,
    mesh: &Mesh,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<MeasuredKernel>, Error> {
    let mut trials = suite::suite();
    if let Some(&axes) = collectives::groups(mesh).last() {
        let slices = collectives::trials(mesh, CollectiveKind::Slice, axes);
        trials.extend(slices.into_iter().map(|it| it.0));
    }
    let mut kernels: Vec<MeasuredKernel> = Vec::new();
    for trial in &trials {
        let work = trial.work();
        if kernels.last().is_none_or(|it| it.name != work.name) {
            progress(work.name);
        }
        let seconds = timer.seconds(trial)?;
        let (operations, bytes) = (work.operations, work.bytes);
        kernels.push(MeasuredKernel { name: work.name.into(), operations, bytes, seconds });
    }
    Ok(kernels)
}

fn collectives(
    timer: &mut Timer,
    mesh: &Mesh,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<MeasuredCollective>, Error> {
    let mut measured = Vec::new();
    for kind in MOVING {
        for axes in collectives::groups(mesh) {
            let n_ranks = mesh.group_size(axes);
            progress(&format!("{} of {n_ranks} ranks", kind.name()));
            let mut times = Vec::new();
            for (trial, bytes) in collectives::trials(mesh, kind, axes) {
                times.push([bytes, timer.seconds(&trial)?]);
            }
            measured.push(collectives::fit(kind, n_ranks, &times));
        }
    }
    Ok(measured)
}

/// Returns the level between the ranks: that of the all-gather of all ranks.
fn level(mesh: &Mesh, collectives: &[MeasuredCollective]) -> Option<Level> {
    let all = collectives.iter().rfind(|it| it.kind == CollectiveKind::AllGather)?;
    Some(Level {
        name: "ranks".into(),
        count: mesh.n_ranks(),
        link_bytes_per_second: all.bytes_per_second,
        gpus_per_link: 1,
        latency_seconds: all.latency_seconds,
    })
}

/// Returns the fastest speeds that were measured.
fn device(timer: &Timer, kernels: &[MeasuredKernel]) -> Device {
    let fastest = |name: &str, speed: &dyn Fn(&MeasuredKernel) -> f64| {
        kernels.iter().filter(|it| it.name == name).map(speed).fold(0.0, f64::max)
    };
    let flops = fastest("contraction", &|it| it.operations as f64 / it.seconds);
    Device {
        name: timer.device_line.clone().into(),
        f32_flops: flops,
        tf32_flops: flops,
        bf16_flops: flops,
        memory_bytes_per_second: fastest("map", &|it| it.bytes as f64 / it.seconds),
        memory_bytes: timer.memory_bytes as u64,
        launch_seconds: kernels.iter().map(|it| it.seconds).fold(f64::INFINITY, f64::min),
        efficiency: 1.0,
    }
}
