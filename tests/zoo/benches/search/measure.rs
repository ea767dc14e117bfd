//! A network compiled a few times.

use soybean_compiler::{Compiled, Options, Strategy, compile, optimizer};
use soybean_plan::Precision;
use soybean_zoo::{Entry, Model};

use crate::table::Row;

const N_RUNS: usize = 3;

/// What is measured of a network.
pub(crate) struct Measured {
    network: &'static str,
    n_gpus: usize,
    compiled: Compiled,
    /// The median time of the search alone.
    milliseconds: f64,
}

/// Compiles a network for a number of GPUs.
pub(crate) fn measure(entry: &Entry, n_gpus: usize) -> Result<Measured, String> {
    let mut milliseconds = Vec::new();
    let mut compiled = compiled(entry, n_gpus)?;
    milliseconds.push(compiled.report.milliseconds());
    while milliseconds.len() < N_RUNS {
        compiled = self::compiled(entry, n_gpus)?;
        milliseconds.push(compiled.report.milliseconds());
    }
    milliseconds.sort_unstable_by(f64::total_cmp);
    Ok(Measured { network: entry.name, n_gpus, compiled, milliseconds: milliseconds[N_RUNS / 2] })
}

fn compiled(entry: &Entry, n_gpus: usize) -> Result<Compiled, String> {
    let options = Options {
        name: entry.name.to_owned(),
        n_gpus,
        search: Strategy::Auto.into(),
        precision: Precision::F32,
        optimizer: optimizer(entry.optimizer, &[]).map_err(|fault| format!("{fault:?}"))?,
    };
    let Model { builder, loss, .. } = (entry.model)();
    compile(builder, loss, &[], &options, &milliseconds_of_processor)
        .map_err(|faults| format!("{} for {n_gpus} GPUs: {faults:?}", entry.name))
}

/// The time that this thread has run, which is all that the search uses.
#[cfg(unix)]
fn milliseconds_of_processor() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// The time of day, where a thread's own cannot be asked.
#[cfg(not(unix))]
fn milliseconds_of_processor() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0.0, |it| it.as_secs_f64() * 1e3)
}

impl Measured {
    /// The row of the table.
    pub(crate) fn row(&self) -> Row {
        let report = &self.compiled.report;
        let (bytes, search) = (report.bytes_total, report.search());
        let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
        let gap = 100.0 * (bytes as f64 / search.lower_bound_bytes as f64 - 1.0);
        let proof = match report.is_optimal() {
            true => "optimal".to_owned(),
            false => format!("within {gap:.2} %"),
        };
        let time = format!("{:.1}", self.milliseconds);
        let times = match cfg!(debug_assertions) {
            false => [time, String::new()],
            true => [String::new(), time],
        };
        let others = search.baselines;
        let found = [bytes, others.recursive, others.data, others.model].map(megabytes);
        let memory = megabytes(report.peak_memory_bytes_per_gpu);
        Row::new(self.network, self.n_gpus, &found, proof, &times, memory)
    }
}
