//! Choice of library algorithms by measurement.
//!
//! Libraries order their algorithms by estimates. At the first start on a kind of GPU, each of the
//! first few is timed on memory of its own, and the number of the fastest is kept on disk, by the
//! GPU, the version of the library and the kernel. Algorithms may differ in the last bits of their
//! results. So processes that work together choose together: each measures, and all take the
//! algorithm that is fastest on the slowest GPU. Trainers that start at the same time in one
//! process, or in processes that each run alone, measure one after another and find each other's
//! choices on disk.

mod requirement;

use std::{
    collections::BTreeMap,
    fs::File,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use soybean_plan::random::mixed;

pub(crate) use self::requirement::Requirement;
use super::{
    disk_cache,
    gpu::Gpu,
    memory::DeviceMemory,
    peers::Peers,
    stream::{Event, Priority, Stream},
};
use crate::{Error, abort::lock};

/// Repetitions of each candidate after the first run, which also loads its kernels.
const N_REPETITIONS: u8 = 3;
/// A candidate whose first run takes this many times the time of the fastest one, and
/// [`LOADING_MILLISECONDS`] besides, runs only once.
const HOPELESS: f32 = 4.0;
/// Most time that libraries take to load a kernel.
const LOADING_MILLISECONDS: f32 = 50.0;

/// Bytes of random numbers that are repeated in operands.
const PATTERN_BYTES: usize = 1 << 20;

/// Held while a trainer of this process measures.
static MEASURING: Mutex<()> = Mutex::new(());

/// The fastest candidate of each kernel that was measured, by a text about GPU and kernel.
pub(crate) struct Choices {
    chosen: BTreeMap<String, Choice>,
    file: Option<PathBuf>,
    peers: Arc<dyn Peers>,
}

/// The number of the fastest candidate, and the times of all in milliseconds on the GPU of this
/// process: infinity if the candidate was refused. Only the number is used; a reader of the file
/// sees from the times why it was chosen.
struct Choice {
    number: usize,
    milliseconds: Vec<f32>,
}

impl Choices {
    /// Reads the choices for these versions of driver and library. Returns `None` if the processes
    /// cannot choose together, because their versions or `kernels` differ, which describes the
    /// kernels and GPUs. All processes call this at the same time.
    pub(crate) fn read(
        versions: &str,
        kernels: &str,
        peers: &Arc<dyn Peers>,
    ) -> Result<Option<Self>, Error> {
        let own = disk_cache::fingerprint(&[versions, kernels]).to_le_bytes();
        if peers.all_gather(&own)?.as_chunks().0.iter().any(|it| *it != own) {
            return Ok(None);
        }
        let key = disk_cache::fingerprint(&["choices", versions]);
        let file = disk_cache::folder().map(|folder| folder.join(format!("{key:032x}.choices")));
        let mut this = Self { chosen: BTreeMap::new(), file, peers: Arc::clone(peers) };
        this.read_file();
        Ok(Some(this))
    }

    /// Locks the choices on disk, unless several processes measure together.
    fn lock_file(&self) -> Option<File> {
        let file = self.file.as_deref().filter(|_| !self.peers.exist());
        file.and_then(disk_cache::lock)
    }

    /// Adds the choices on disk.
    fn read_file(&mut self) {
        let bytes = self.file.as_deref().and_then(disk_cache::read).unwrap_or_default();
        for line in String::from_utf8_lossy(&bytes).lines() {
            if let Some((choice, key)) = Choice::parse(line) {
                self.chosen.entry(key.to_owned()).or_insert(choice);
            }
        }
    }

    /// Returns the choice of this process for a kernel, if all processes have the same.
    fn known(&self, key: &str, n_candidates: usize) -> Result<Option<usize>, Error> {
        let known = self.chosen.get(key).map(|it| it.number).filter(|it| *it < n_candidates);
        let own = known.map_or(u64::MAX, |it| it as u64).to_le_bytes();
        let all = self.peers.all_gather(&own)?;
        Ok(known.filter(|_| all.as_chunks().0.iter().all(|it| *it == own)))
    }

    /// Returns the number of the candidate whose longest time on any GPU is the shortest. `own` has
    /// the times on this GPU. Returns `None` if some GPU has measured none.
    fn fastest(&self, own: &[f32]) -> Result<Option<usize>, Error> {
        let bytes: Vec<u8> = own.iter().flat_map(|it| it.to_le_bytes()).collect();
        let all = self.peers.all_gather(&bytes)?;
        let all: Vec<f32> = all.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it)).collect();
        let mut longest = vec![0.0_f32; own.len()];
        for times in all.chunks_exact(own.len()) {
            longest.iter_mut().zip(times).for_each(|(longest, it)| *longest = longest.max(*it));
        }
        let fastest = longest.iter().enumerate().min_by(|one, other| one.1.total_cmp(other.1));
        Ok(fastest.filter(|it| it.1.is_finite()).map(|it| it.0))
    }

    /// Replaces all choices that are known.
    #[cfg(test)]
    pub(crate) fn replace(&mut self, number: usize) {
        self.chosen.values_mut().for_each(|it| it.number = number);
    }

    /// Returns all choices that are known.
    #[cfg(test)]
    pub(crate) fn known_numbers(&self) -> Vec<usize> {
        self.chosen.values().map(|it| it.number).collect()
    }

    /// Adds a choice to those on disk.
    fn keep(&mut self, key: String, choice: Choice) {
        self.chosen.insert(key, choice);
        // Processes that measure together hold no lock, so others may have kept some since.
        self.read_file();
        let line = |(key, choice): (&String, &Choice)| {
            format!("{} {:?} {key}\n", choice.number, choice.milliseconds)
        };
        let lines = self.chosen.iter().map(line);
        if let Some(file) = &self.file {
            // A failed write only makes the next start slower.
            let _not_kept = disk_cache::write(file, lines.collect::<String>().as_bytes());
        }
    }
}

impl Choice {
    /// Reads `2 [0.25, inf, 0.125] key`, and returns the key too.
    fn parse(line: &str) -> Option<(Self, &str)> {
        let (number, rest) = line.split_once(" [")?;
        let (milliseconds, key) = rest.split_once("] ")?;
        let milliseconds =
            milliseconds.split(", ").map(|it| it.parse().ok()).collect::<Option<_>>()?;
        Some((Self { number: number.parse().ok()?, milliseconds }, key))
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

    /// Returns the number of the fastest of these candidates that meet the requirements. `run`
    /// queues one of them on a stream, on blocks of memory of the sizes in bytes that `block_bytes`
    /// returns, which is called only to measure. Without enough memory, and if all are refused, it
    /// is the first. All processes call this at the same time.
    ///
    /// # Errors
    /// If a candidate fails on the GPU.
    pub(crate) fn fastest(
        &mut self,
        kernel: &str,
        n_candidates: usize,
        (block_bytes, requirements): (impl FnOnce() -> Vec<usize>, &[Requirement]),
        run: impl Fn(usize, &Stream, &[u64]) -> Result<Attempt, Error>,
    ) -> Result<usize, Error> {
        if n_candidates < 2 {
            return Ok(0);
        }
        let required: String = requirements.iter().map(|it| it.key()).collect();
        let key = format!("{} {kernel}{required}", self.gpu.name);
        if let Some(known) = self.choices.known(&key, n_candidates)? {
            return Ok(known);
        }
        let _alone = (lock(&MEASURING), self.choices.lock_file());
        self.choices.read_file();
        if let Some(known) = self.choices.known(&key, n_candidates)? {
            return Ok(known);
        }
        let mut times = vec![f32::INFINITY; n_candidates];
        let block = |n_bytes: &usize| DeviceMemory::zeroed(&self.gpu, *n_bytes, "measuring");
        if let Ok(blocks) = block_bytes().iter().map(block).collect::<Result<Vec<_>, _>>() {
            let addresses: Vec<u64> = blocks.iter().map(|it| it.address(0)).collect();
            let mut best = f32::INFINITY;
            let run = |number: usize, stream: &Stream| run(number, stream, &addresses);
            let is_allowed = self.allowed(&blocks, requirements, n_candidates, run)?;
            let numbers = random_numbers();
            blocks.iter().try_for_each(|it| it.repeat(&numbers))?;
            for (number, time) in times.iter_mut().enumerate().filter(|it| is_allowed[it.0]) {
                *time = self.milliseconds(best, |stream| run(number, stream))?;
                best = best.min(*time);
            }
        }
        let Some(fastest) = self.choices.fastest(&times)? else { return Ok(0) };
        self.choices.keep(key, Choice { number: fastest, milliseconds: times });
        Ok(fastest)
    }

    /// Returns for each candidate whether it meets the requirements. Those that are refused do not.
    fn allowed(
        &self,
        blocks: &[DeviceMemory],
        requirements: &[Requirement],
        n_candidates: usize,
        run: impl Fn(usize, &Stream) -> Result<Attempt, Error>,
    ) -> Result<Vec<bool>, Error> {
        let mut is_allowed = vec![true; n_candidates];
        for requirement in requirements {
            requirement.prepare(blocks)?;
            for (number, is_allowed) in is_allowed.iter_mut().enumerate().filter(|it| *it.1) {
                let attempt = run(number, &self.stream)?;
                self.stream.synchronize()?;
                *is_allowed = attempt == Attempt::Queued && requirement.is_met(blocks)?;
            }
        }
        Ok(is_allowed)
    }

    /// Returns the mean time of some repetitions, infinity if they are refused. `best` is the
    /// shortest time so far.
    fn milliseconds(
        &self,
        best: f32,
        run: impl Fn(&Stream) -> Result<Attempt, Error>,
    ) -> Result<f32, Error> {
        let [start, end] = [Event::with_time(&self.gpu)?, Event::with_time(&self.gpu)?];
        let repeated = |n: u8| {
            start.record(&self.stream)?;
            for _ in 0..n {
                if run(&self.stream)? == Attempt::Refused {
                    return Ok(f32::INFINITY);
                }
            }
            end.record(&self.stream)?;
            self.stream.synchronize()?;
            Ok(end.milliseconds_since(&start)? / f32::from(n))
        };
        let first = repeated(1)?;
        match first > HOPELESS * best + LOADING_MILLISECONDS {
            true => Ok(first),
            false => repeated(N_REPETITIONS),
        }
    }
}

/// Returns the bytes of random numbers from 0.5 to 1 and from -1 to -0.5, in `bf16` and in `f32`.
/// GPUs multiply zeros with less power, and so at higher clock rates.
fn random_numbers() -> Vec<u8> {
    let halves = (0..PATTERN_BYTES as u64 / 2).map(|it| (mixed(it) >> 48) as u16 & 0x807f | 0x3f00);
    halves.flat_map(u16::to_le_bytes).collect()
}
