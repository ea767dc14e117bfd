//! The program that calibrates: the time of its updates, and of its kernels and collectives where
//! they run.
//!
//! A kernel in a program takes longer than one that is repeated alone: others have filled the
//! caches, and threads may have to wake up. So what is measured here replaces trials.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use soybean_plan::{Cluster, Executable, KernelWork, MeasuredKernel, Measurements, Step, Topology};
use soybean_runtime::{
    Config, Error, Predictor, Trainer,
    data::{Values, View},
};

use super::timer::{N_WARM_UP, Times};

/// Measured updates or predictions in each round.
const N_STEPS: usize = 10;

/// A program on one batch, and its measured times.
pub(crate) struct CalibratingProgram {
    program: Arc<Executable>,
    batch: Vec<Values>,
    /// The times of updates or of predictions.
    times: Times,
    /// Other updates, with their parts; none in inference.
    traced: Vec<TracedUpdate>,
}

/// An update and its parts, in seconds.
#[derive(Clone, Default)]
struct TracedUpdate {
    whole: f64,
    /// All calls of a kernel or collective, by its number.
    kernels: BTreeMap<usize, f64>,
    /// One step besides kernels and collectives: its start and its batch.
    rest: f64,
}

impl TracedUpdate {
    /// Returns the mean of updates.
    fn mean(updates: &[Self]) -> Self {
        let mut mean = Self::default();
        let n_updates = updates.len() as f64;
        for Self { whole, kernels, rest } in updates {
            mean.whole += whole / n_updates;
            mean.rest += rest / n_updates;
            for (kernel, seconds) in kernels {
                *mean.kernels.entry(*kernel).or_default() += seconds / n_updates;
            }
        }
        mean
    }
}

impl CalibratingProgram {
    pub(crate) fn new(program: Executable, batch: Vec<Values>) -> Self {
        let (times, traced) = (Times::default(), Vec::new());
        Self { program: Arc::new(program), batch, times, traced }
    }

    fn is_inference(&self) -> bool {
        self.program.tables.loss().is_none()
    }

    /// Returns what is measured.
    pub(crate) fn name(&self) -> &'static str {
        if self.is_inference() { "prediction" } else { "update" }
    }

    /// Returns the time of an update or a prediction in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.times.seconds()
    }

    /// Measures updates in turn with the kernels of other updates; in inference, predictions.
    pub(super) fn measure(&mut self, config: &Config) -> Result<(), Error> {
        let batch = self.batch.clone();
        let views: Vec<View<'_>> = batch.iter().map(Values::view).collect();
        let program = Arc::clone(&self.program);
        if self.is_inference() {
            let mut predictor = Predictor::new_shared(program, config.clone())?;
            let entries = &self.program.tables.entries;
            return self.times.measure(N_STEPS, || {
                for (number, entry) in entries.iter().enumerate() {
                    let batch = &views[entry.inputs.clone()];
                    for _ in 0..entry.n_calls {
                        predictor.predict(number, batch)?;
                    }
                }
                Ok(())
            });
        }
        let mut trainer = Trainer::new_shared(program, config.clone())?;
        let n_steps = self.program.tables.accumulate;
        let update = |trainer: &mut Trainer, times: &mut Times| -> Result<(), Error> {
            times.measure_once(|| (0..n_steps).try_for_each(|_| trainer.step(&views).map(drop)))
        };
        for _ in 0..N_WARM_UP {
            update(&mut trainer, &mut Times::default())?;
        }
        for _ in 0..N_STEPS {
            update(&mut trainer, &mut self.times)?;
            self.trace_update(&mut trainer, &views)?;
        }
        Ok(())
    }

    /// Measures each kernel of an update.
    fn trace_update(&mut self, trainer: &mut Trainer, batch: &[View<'_>]) -> Result<(), Error> {
        let mut update = TracedUpdate::default();
        let n_steps = self.program.tables.accumulate;
        for _ in 0..n_steps {
            let started = Instant::now();
            trainer.queue(batch)?;
            let (_, trace) = trainer.trace_queued(None)?;
            update.whole += started.elapsed().as_secs_f64();
            for (kernel, seconds) in trace.kernel_seconds() {
                *update.kernels.entry(kernel).or_default() += seconds;
            }
        }
        let in_kernels: f64 = update.kernels.values().sum();
        update.rest = (update.whole - in_kernels) / n_steps as f64;
        self.traced.push(update);
        Ok(())
    }

    /// Returns a typical update: the mean of the middle half of updates, from short to long ones.
    fn typical_update(&self) -> TracedUpdate {
        let mut sorted = self.traced.clone();
        sorted.sort_by(|one, other| one.whole.total_cmp(&other.whole));
        let quarter = sorted.len() / 4;
        TracedUpdate::mean(&sorted[quarter..sorted.len() - quarter])
    }

    /// Puts the times of the program's kernels in the place of those of trials, and scales the
    /// speeds of collectives so that those of the program take as long together as measured. A step
    /// besides them takes its measured time, and at least that of a step without kernels: on GPUs,
    /// kernels and collectives overlap.
    pub(super) fn add_to(&self, cluster: &mut Cluster) {
        let n_ranks = self.program.tables.mesh.n_ranks();
        let Ok(topology) = Topology::new(cluster, n_ranks) else { return };
        let typical = self.typical_update();
        let (mut kernels, mut collectives) = (BTreeMap::new(), BTreeMap::new());
        for (&kernel, &seconds) in &typical.kernels {
            let (n_calls, Some(step)) = self.calls(kernel) else { continue };
            let Some(bucket) = self.program.kernels[kernel].transfer() else {
                let KernelWork { name, operations, bytes, .. } = self.program.work(step);
                let spent: &mut Spent = kernels.entry((name, operations, bytes)).or_default();
                spent.add(seconds, n_calls);
                continue;
            };
            let Some(fit) = topology.measured(bucket.kind(), bucket.axes()) else { continue };
            let spent: &mut Spent = collectives.entry((fit.kind, fit.n_ranks)).or_default();
            spent.add(seconds, n_calls * topology.bucket_seconds(bucket));
        }
        let Measurements { step_seconds, kernels: of_kernels, collectives: of_collectives } =
            &mut cluster.measurements;
        *step_seconds = step_seconds.max(typical.rest);
        let of_kernels = of_kernels.to_mut();
        of_kernels.retain(|it| !kernels.contains_key(&(&*it.name, it.operations, it.bytes)));
        of_kernels.extend(kernels.into_iter().map(|((name, operations, bytes), spent)| {
            MeasuredKernel { name: name.into(), operations, bytes, seconds: spent.ratio() }
        }));
        for fit in of_collectives.to_mut() {
            let ratio = collectives.get(&(fit.kind, fit.n_ranks)).map_or(1.0, Spent::ratio);
            fit.latency_seconds *= ratio;
            fit.bytes_per_second /= ratio;
        }
    }

    /// Returns how often an update calls a kernel, and one of its steps.
    fn calls(&self, kernel: usize) -> (f64, Option<&Step>) {
        let (mut n_calls, mut found) = (0.0, None);
        for (n_times, steps) in self.program.measured() {
            for step in steps.iter().filter(|it| it.kernel == kernel) {
                n_calls += n_times as f64;
                found = Some(step);
            }
        }
        (n_calls, found)
    }
}

/// Seconds that were spent, and what they were spent for: calls, or predicted seconds.
#[derive(Default)]
struct Spent {
    seconds: f64,
    on: f64,
}

impl Spent {
    fn add(&mut self, seconds: f64, on: f64) {
        self.seconds += seconds;
        self.on += on;
    }

    fn ratio(&self) -> f64 {
        self.seconds / self.on
    }
}

#[cfg(test)]
mod tests {
    use soybean_plan::{CollectiveKind, Device, Level, MeasuredCollective, Mesh, Precision};

    use super::*;
    use crate::calibration::{
        collectives::{CollectiveTrials, groups},
        suite::suite,
        trial::Trial,
    };

    /// Returns a cluster in which each of these trials takes a second, and so does an all-gather.
    fn slow(mesh: Mesh, trials: &[&Trial]) -> Cluster {
        let kernel = |trial: &&Trial| {
            let KernelWork { name, operations, bytes, .. } = trial.work();
            MeasuredKernel { name: name.into(), operations, bytes, seconds: 1.0 }
        };
        let all_gather = MeasuredCollective {
            kind: CollectiveKind::AllGather,
            n_ranks: mesh.n_ranks(),
            latency_seconds: 0.5,
            bytes_per_second: 512.0,
        };
        Cluster {
            name: "slow".into(),
            levels: vec![Level {
                name: "ranks".into(),
                count: mesh.n_ranks(),
                link_bytes_per_second: 1e9,
                gpus_per_link: 1,
                latency_seconds: 0.0,
            }]
            .into(),
            device: Device {
                name: "slow".into(),
                f32_flops: 1e9,
                tf32_flops: 1e9,
                bf16_flops: 1e9,
                memory_bytes_per_second: 1e9,
                memory_bytes: 1 << 30,
                launch_seconds: 1e-6,
                efficiency: 1.0,
            },
            measurements: Measurements {
                step_seconds: 1e-9,
                kernels: trials.iter().map(kernel).collect::<Vec<_>>().into(),
                collectives: vec![all_gather].into(),
            },
        }
    }

    fn measured(trial: &Trial, mesh: Mesh) -> CalibratingProgram {
        let (program, batch) = trial.program(mesh, Precision::F32, 1 << 20, 3);
        assert!(batch.is_empty(), "the trial reads no indices");
        let mut found = CalibratingProgram::new(program, Vec::new());
        found.measure(&Config::default()).unwrap();
        found
    }

    #[test]
    fn kernels_of_the_program_replace_trials() {
        let mesh = Mesh::new(2);
        let products: Vec<Trial> =
            suite().into_iter().filter(|it| it.work().name == "contraction").collect();
        let (trial, other) = (&products[0], products.last().unwrap());
        let mut cluster = slow(mesh, &[trial, other]);
        measured(trial, mesh).add_to(&mut cluster);
        let [kept, own] = &*cluster.measurements.kernels else { panic!("{cluster:?}") };
        assert_eq!(
            (kept.operations, kept.seconds.to_bits()),
            (other.work().operations, 1_f64.to_bits())
        );
        assert_eq!((own.operations, own.bytes), (trial.work().operations, trial.work().bytes));
        assert!(own.seconds < 1.0, "{own:?}");
        assert!(cluster.measurements.step_seconds > 1e-9);
        assert_eq!(
            cluster.measurements.collectives[0].latency_seconds.to_bits(),
            0.5_f64.to_bits()
        );
    }

    #[test]
    fn collectives_of_the_program_take_their_measured_time_together() {
        let mesh = Mesh::new(2);
        let axes = groups(&mesh)[0];
        let trials = CollectiveTrials::new(&mesh, CollectiveKind::AllGather, axes);
        let trial = &trials.times[1].0.trial;
        let mut cluster = slow(mesh, &[]);
        let program = measured(trial, mesh);
        program.add_to(&mut cluster);
        let topology = Topology::new(&cluster, 2).unwrap();
        let steps = &program.program.train[0];
        let predicted: f64 =
            steps.iter().map(|it| topology.step_seconds(&program.program, it)).sum();
        let spent = program.typical_update().kernels[&0];
        assert!((predicted / spent - 1.0).abs() < 1e-9, "{predicted} {spent}");
        // Latency and bytes per second are scaled alike.
        let [fit] = &*cluster.measurements.collectives else { panic!("{cluster:?}") };
        assert!((fit.latency_seconds * fit.bytes_per_second / 256.0 - 1.0).abs() < 1e-9, "{fit:?}");
    }
}
