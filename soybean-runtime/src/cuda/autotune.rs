//! Choice of library algorithms by measurement.
//!
//! Libraries order their algorithms by estimates. At the first start on a kind of GPU, each of the
//! first few is timed on memory of its own, and the number of the fastest is kept on disk, by the
//! GPU, the version of the library and the kernel. Algorithms may differ in the last bits of their
//! results. So processes that work together do not measure: they might choose differently.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use super::{
    disk_cache,
    gpu::Gpu,
    memory::DeviceMemory,
    stream::{Event, Priority, Stream},
};
use crate::Error;

/// Timed repetitions of each candidate, after one that is not timed.
const N_REPETITIONS: usize = 3;

/// The fastest candidate of each kernel that was measured, by a text about GPU and kernel.
pub(crate) struct Choices {
    numbers: BTreeMap<String, usize>,
    file: Option<PathBuf>,
    has_new: bool,
}

impl Choices {
    /// Reads the choices for these versions of driver and library.
    pub(crate) fn read(versions: &str) -> Self {
        let key = disk_cache::fingerprint(&["choices", versions]);
        let file = disk_cache::folder().map(|folder| folder.join(format!("{key:032x}.choices")));
        let bytes = file.as_deref().and_then(disk_cache::read).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let line = |line: &str| {
            let (number, key) = line.split_once(' ')?;
            Some((key.to_owned(), number.parse().ok()?))
        };
        Self { numbers: text.lines().filter_map(line).collect(), file, has_new: false }
    }

    /// Writes the choices, if there are new ones.
    pub(crate) fn write(&self) {
        let lines = self.numbers.iter().map(|(key, number)| format!("{number} {key}\n"));
        if let Some(file) = self.file.as_ref().filter(|_| self.has_new) {
            // A failed write only makes the next start slower.
            let _not_kept = disk_cache::write(file, lines.collect::<String>().as_bytes());
        }
    }
}

/// The start of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    Queued,
    /// The library refused the candidate, which is not chosen.
    Refused,
}

/// Times candidates on a GPU.
pub(crate) struct Autotuner<'a> {
    gpu: Arc<Gpu>,
    stream: Stream,
    choices: &'a mut Choices,
}

impl<'a> Autotuner<'a> {
    /// Creates a stream for measurements.
    pub(crate) fn new(gpu: &Arc<Gpu>, choices: &'a mut Choices) -> Result<Self, Error> {
        let stream = Stream::new(gpu, Priority::Normal)?;
        Ok(Self { gpu: Arc::clone(gpu), stream, choices })
    }

    /// Returns the number of the fastest of these candidates. `run` queues one of them on a stream,
    /// on blocks of memory of these sizes. Without enough memory, and if all are refused, it is the
    /// first.
    ///
    /// # Errors
    /// If a candidate fails on the GPU.
    pub(crate) fn fastest(
        &mut self,
        kernel: &str,
        n_candidates: usize,
        block_bytes: &[usize],
        run: impl Fn(usize, &Stream, &[u64]) -> Result<Attempt, Error>,
    ) -> Result<usize, Error> {
        if n_candidates < 2 {
            return Ok(0);
        }
        let key = format!("{} {kernel}", self.gpu.name);
        if let Some(&known) = self.choices.numbers.get(&key).filter(|it| **it < n_candidates) {
            return Ok(known);
        }
        let block = |n_bytes: &usize| DeviceMemory::zeroed(&self.gpu, *n_bytes, "measuring");
        let Ok(blocks) = block_bytes.iter().map(block).collect::<Result<Vec<_>, _>>() else {
            return Ok(0);
        };
        let addresses: Vec<u64> = blocks.iter().map(|it| it.address(0)).collect();
        let mut fastest = (f32::INFINITY, 0);
        for number in 0..n_candidates {
            let milliseconds = self.milliseconds(|stream| run(number, stream, &addresses))?;
            if milliseconds < fastest.0 {
                fastest = (milliseconds, number);
            }
        }
        self.choices.numbers.insert(key, fastest.1);
        self.choices.has_new = true;
        Ok(fastest.1)
    }

    /// Returns the time of some repetitions, infinity if they are refused.
    fn milliseconds(&self, run: impl Fn(&Stream) -> Result<Attempt, Error>) -> Result<f32, Error> {
        let [start, end] = [Event::with_time(&self.gpu)?, Event::with_time(&self.gpu)?];
        if run(&self.stream)? == Attempt::Refused {
            return Ok(f32::INFINITY);
        }
        start.record(&self.stream)?;
        for _ in 0..N_REPETITIONS {
            run(&self.stream)?;
        }
        end.record(&self.stream)?;
        self.stream.synchronize()?;
        end.milliseconds_since(&start)
    }
}
