//! Calibration: measures kernels and collectives on the devices of a program's ranks, and describes
//! these devices as a cluster.
//!
//! All ranks run each measured kernel at once. So the times of ranks that share cores or memory
//! bandwidth, as on the CPU, hold for programs with as many ranks.

mod collectives;
mod program;
mod suite;
mod timer;
mod trial;

use soybean_plan::{
    Cluster, CollectiveKind, Device, Level, MeasuredCollective, MeasuredKernel, Measurements, Mesh,
    Precision, measured_names,
};
use soybean_runtime::{Config, Error};

use collectives::{CollectiveTrials, groups};
pub(crate) use program::CalibratingProgram;
use suite::suite;
use timer::{Measured, Timer};
use trial::Trial;

/// The kinds of collectives that move data between ranks.
const MOVING: [CollectiveKind; 4] = [
    CollectiveKind::AllGather,
    CollectiveKind::ReduceScatter,
    CollectiveKind::AllReduce,
    CollectiveKind::AllToAll,
];

/// The measurements of each kernel. Those of a round are far apart in time, so that other programs
/// of the machine hardly disturb all of them. The median counts.
const N_ROUNDS: usize = 3;

/// The devices to calibrate.
pub(crate) struct Calibration<'a> {
    /// The mesh of ranks.
    pub(crate) mesh: Mesh,
    /// The precision of products.
    pub(crate) precision: Precision,
    /// The device, and its settings.
    pub(crate) config: &'a Config,
    /// The most bytes that a measured kernel reads and writes on a rank.
    pub(crate) max_bytes: u64,
    /// The memory of the program on each rank, in bytes. Its kernels find as much of their tensors
    /// in caches as trials do that use as much memory in turn.
    pub(crate) program_bytes: u64,
}

/// The most bytes that a trial uses in turn: more than any cache.
const MAX_FOOTPRINT: u64 = 256 << 20;

impl Calibration<'_> {
    /// Measures the devices, and the program itself. `progress` is called with a line before each
    /// part.
    ///
    /// # Errors
    /// If the devices cannot be used, or a rank fails.
    pub(crate) fn run(
        &self,
        program: &mut CalibratingProgram,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Cluster, Error> {
        let footprint = self.program_bytes.min(MAX_FOOTPRINT);
        let mut timer = Timer::new(self.mesh, self.precision, self.config.clone(), footprint)?;
        let mut kernels: Vec<Measured> = self.kernels().into_iter().map(Measured::new).collect();
        let mut collectives = self.collectives();
        for round in 1..=N_ROUNDS {
            let of_all = format!("(round {round} of {N_ROUNDS})");
            timer.measure_step()?;
            progress(&format!("the program {of_all}"));
            program.measure(self.config)?;
            for kind in kernels.chunk_by_mut(|one, next| one.kind() == next.kind()) {
                progress(&format!("{}, {} kernels {of_all}", kind[0].kind(), kind.len()));
                kind.iter_mut().try_for_each(|it| timer.measure(it))?;
            }
            for collective in &mut collectives {
                let (name, n_ranks) = (collective.kind.name(), collective.n_ranks);
                progress(&format!("{name} of {n_ranks} ranks {of_all}"));
                collective.times.iter_mut().try_for_each(|it| timer.measure(&mut it.0))?;
            }
        }
        let collectives: Vec<_> = collectives.iter().map(CollectiveTrials::fit).collect();
        let mut cluster = self.cluster(&timer, &kernels, collectives);
        program.add_to(&mut cluster);
        Ok(cluster)
    }

    /// Returns the trials of kernels, and of slices, which copy on each rank, in the order of the
    /// file.
    fn kernels(&self) -> Vec<Trial> {
        let mut trials = suite();
        if let Some(&axes) = groups(&self.mesh).last() {
            let slices = CollectiveTrials::new(&self.mesh, CollectiveKind::Slice, axes);
            trials.extend(slices.times.into_iter().map(|it| it.0.trial));
        }
        trials.retain(|it| it.work().bytes <= self.max_bytes);
        trials.sort_by_key(|it| measured_names().position(|name| name == it.work().name));
        trials
    }

    fn collectives(&self) -> Vec<CollectiveTrials> {
        let of_kind = |kind: CollectiveKind| {
            groups(&self.mesh).into_iter().map(move |axes| (kind, axes)).collect::<Vec<_>>()
        };
        let all = MOVING.into_iter().flat_map(of_kind);
        let mut all: Vec<_> =
            all.map(|(kind, axes)| CollectiveTrials::new(&self.mesh, kind, axes)).collect();
        for it in &mut all {
            it.keep(self.max_bytes);
        }
        all
    }

    fn cluster(
        &self,
        timer: &Timer,
        kernels: &[Measured],
        collectives: Vec<MeasuredCollective>,
    ) -> Cluster {
        let kernel = |it: &Measured| {
            let work = it.trial.work();
            let (operations, bytes, seconds) = (work.operations, work.bytes, it.seconds());
            MeasuredKernel { name: work.name.into(), operations, bytes, seconds }
        };
        let kernels: Vec<MeasuredKernel> = kernels.iter().map(kernel).collect();
        Cluster {
            name: timer.device_line.clone().into(),
            levels: level(&self.mesh, &collectives).into_iter().collect::<Vec<_>>().into(),
            device: device(timer, &kernels),
            measurements: Measurements {
                step_seconds: timer.step_seconds(),
                kernels: kernels.into(),
                collectives: collectives.into(),
            },
        }
    }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns a calibration by small kernels.
    fn small(mesh: Mesh, config: &Config) -> Calibration<'_> {
        let precision = Precision::F32;
        Calibration { mesh, precision, config, max_bytes: 64_000, program_bytes: 1 << 20 }
    }

    #[test]
    fn the_suite_has_every_kernel_in_small_sizes() {
        let config = Config::default();
        let calibration = small(Mesh::new(4), &config);
        let measured: BTreeSet<&str> =
            calibration.kernels().iter().map(|it| it.work().name).collect();
        assert_eq!(measured, measured_names().collect());
        let collectives = calibration.collectives();
        assert_eq!(collectives.len(), 2 * MOVING.len());
        assert!(collectives.iter().all(|it| it.times.len() >= 2));
    }

    #[test]
    fn programs_of_trials_have_buffers_of_the_size_of_their_work() {
        let config = Config::default();
        let calibration = small(Mesh::new(2), &config);
        let Calibration { mesh, precision, .. } = calibration;
        for trial in calibration.kernels() {
            let (program, batch) = trial.program(mesh, precision, 1 << 20, 3);
            assert_eq!((program.train[0].len(), batch.len()), (3, program.tables.inputs.len()));
            let bytes = |buffers: &[usize]| -> u64 {
                let buffers = buffers.iter().map(|&it| program.tables.buffers[it]);
                buffers.map(|it| (it.n_elements * it.dtype.bytes()) as u64).sum()
            };
            let step = &program.train[0][0];
            let written = bytes(&step.results);
            let is_slice = trial.work().name == CollectiveKind::Slice.name();
            let read = if is_slice { written } else { bytes(&step.inputs) };
            assert_eq!(trial.work().bytes, read + written, "{}", trial.kernel);
        }
    }
}
