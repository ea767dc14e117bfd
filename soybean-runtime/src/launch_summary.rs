//! Launches of a training step on a GPU by kind of kernel, with a roofline estimate of their time.

use std::{collections::BTreeMap, fmt};

use soybean_plan::{Device, KernelWork, Precision};

use crate::QueuedTask;

/// The launches of a training step on each rank, by kind of kernel.
#[derive(Clone, Debug)]
pub struct LaunchSummary {
    /// The kinds of kernels, that with the longest time first.
    pub rows: Vec<LaunchRow>,
}

/// All kernels of one kind.
#[derive(Clone, Debug, Default)]
pub struct LaunchRow {
    /// The name of the computation, such as `contraction`; `feed` and `report` for the copies from
    /// and to the host.
    pub kernel: String,
    /// The number of kernels, fills and calls of libraries.
    pub n_launches: usize,
    /// Floating-point operations; a multiplication and an addition are two.
    pub operations: u64,
    /// Bytes read and written, each operand and each result of a kernel once.
    pub bytes: u64,
    /// The time in seconds, by [`Device::seconds`].
    pub seconds: f64,
}

impl LaunchSummary {
    /// Returns the summary of these tasks on a device.
    #[must_use]
    pub fn new(tasks: &[QueuedTask], device: &Device, precision: Precision) -> Self {
        let mut rows: BTreeMap<&str, LaunchRow> = BTreeMap::new();
        for task in tasks {
            let work = task.kernel.as_ref().map(|it| KernelWork::new(it, task.n_bytes));
            let name = work.map_or(task.name, |it| it.name);
            let row = rows.entry(name).or_default();
            row.kernel = name.to_owned();
            row.n_launches += task.n_launches;
            row.operations += work.map_or(0, |it| it.operations);
            row.bytes += task.n_bytes;
            row.seconds += work.map_or(0.0, |it| device.seconds(it, precision));
            row.seconds += task.n_launches.saturating_sub(1) as f64 * device.launch_seconds;
        }
        let mut rows: Vec<LaunchRow> = rows.into_values().collect();
        rows.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
        Self { rows }
    }

    /// Returns the sum of all rows.
    #[must_use]
    pub fn total(&self) -> LaunchRow {
        let mut total = LaunchRow { kernel: "total".to_owned(), ..LaunchRow::default() };
        for row in &self.rows {
            total.n_launches += row.n_launches;
            total.operations += row.operations;
            total.bytes += row.bytes;
            total.seconds += row.seconds;
        }
        total
    }
}

impl fmt::Display for LaunchSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<24} {:>8} {:>10} {:>10} {:>9}", "kernel", "launches", "GFLOP", "MB", "ms")?;
        for row in self.rows.iter().chain([&self.total()]) {
            let LaunchRow { kernel, n_launches, operations, bytes, seconds } = row;
            let (billions, megabytes) = (*operations as f64 / 1e9, *bytes as f64 / 1e6);
            let milliseconds = seconds * 1e3;
            writeln!(
                f,
                "{kernel:<24} {n_launches:>8} {billions:>10.1} {megabytes:>10.1} {milliseconds:>9.3}"
            )?;
        }
        Ok(())
    }
}
