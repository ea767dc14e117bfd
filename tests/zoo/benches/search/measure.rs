//! Repeated compilations of one network.

use std::time::Instant;

use soybean_compiler::{
    Compiled, Optimizer, Options, SearchEffort, SearchRequest, compile, optimizer,
};
use soybean_plan::{NonFinite, Precision};
use soybean_zoo::{Entry, Model};

use crate::table::Row;

const N_RUNS: usize = 3;

/// The measurements of a network.
pub(crate) struct Measured {
    network: &'static str,
    n_gpus: usize,
    compiled: Compiled,
    /// The minimum wall time of the search alone.
    milliseconds: f64,
}

/// Compiles a network for a number of GPUs, with its own optimizer or with all settings of updates.
pub(crate) fn measure(
    entry: &Entry,
    n_gpus: usize,
    with_updates: bool,
    effort: SearchEffort,
) -> Result<Measured, String> {
    let name = if with_updates { "adamw" } else { entry.optimizer };
    let mut optimizer = optimizer(name, &[]).map_err(|fault| format!("{fault:?}"))?;
    if with_updates {
        optimizer.clip_norm = Some(1.0);
        optimizer.accumulate = 4;
        optimizer.ema = Some(0.999);
        optimizer.non_finite = NonFinite::Scale;
    }
    let mut compiled = compiled(entry, n_gpus, &optimizer, effort)?;
    let mut milliseconds = compiled.report.milliseconds();
    for _ in 1..N_RUNS {
        compiled = self::compiled(entry, n_gpus, &optimizer, effort)?;
        milliseconds = milliseconds.min(compiled.report.milliseconds());
    }
    Ok(Measured { network: entry.name, n_gpus, compiled, milliseconds })
}

fn compiled(
    entry: &Entry,
    n_gpus: usize,
    optimizer: &Optimizer,
    effort: SearchEffort,
) -> Result<Compiled, String> {
    let options = Options {
        name: entry.name.to_owned(),
        n_gpus,
        search: SearchRequest { effort, ..SearchRequest::default() },
        precision: Precision::F32,
        optimizer: optimizer.clone(),
    };
    let Model { builder, loss, .. } = (entry.model)();
    let start = Instant::now();
    let milliseconds = || start.elapsed().as_secs_f64() * 1e3;
    compile(builder, loss, &[], &options, &milliseconds)
        .map_err(|faults| format!("{} for {n_gpus} GPUs: {faults:?}", entry.name))
}

impl Measured {
    /// Returns the row of the table.
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
        let work = format!("{:.2}", report.work);
        Row::new(self.network, self.n_gpus, &found, proof, &times, [memory, work])
    }
}
