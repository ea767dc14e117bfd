//! The program that tests start. `--data` selects what its training data do besides returning rows.

#![expect(clippy::print_stdout, reason = "users' data sets may print")]

use std::{
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use soybean::{
    DataOptions, Error, Split, TrainConfig,
    data::{ColumnSpec, Dataset, ViewMut},
};
use soybean_test_support::averaged::learning;

/// Training data of eight batches.
struct Data {
    inner: Arc<dyn Dataset>,
    kind: Kind,
    n_reads: AtomicUsize,
}

#[derive(Clone, Copy)]
enum Kind {
    Plain,
    /// The fourth batch takes a minute, and prints a line.
    Sleeps,
    /// The first batch takes half a second, and there is no second epoch.
    Ends,
}

impl Dataset for Data {
    fn n_rows(&self) -> usize {
        self.inner.n_rows()
    }

    fn columns(&self) -> &[ColumnSpec] {
        self.inner.columns()
    }

    fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error> {
        // A run samples its data before the first batch.
        match (self.kind, self.n_reads.fetch_add(1, Ordering::SeqCst)) {
            (Kind::Sleeps, 4) => {
                println!("asleep");
                thread::sleep(Duration::from_secs(60));
            }
            (Kind::Ends, 1) => thread::sleep(Duration::from_millis(500)),
            (Kind::Ends, 9..) => return Err(Error::data("rows: expected more, found the end")),
            (Kind::Plain | Kind::Sleeps | Kind::Ends, _) => {}
        }
        self.inner.read(rows, into)
    }
}

fn load(options: &DataOptions) -> Result<Split, String> {
    let kind = match options.path.as_deref().and_then(Path::to_str) {
        None => Kind::Plain,
        Some("sleeps") => Kind::Sleeps,
        Some("ends") => Kind::Ends,
        Some(other) => return Err(format!("expected sleeps or ends, found {other}")),
    };
    let Split { train, held_out } = Split::random::<learning::Network>(70, 21, options.seed);
    let train = Data { inner: train, kind, n_reads: AtomicUsize::new(0) };
    Ok(Split { train: Arc::new(train), held_out })
}

fn main() -> ExitCode {
    learning::Trainer::command_line_with(TrainConfig::new(3, 0.02), load)
}
