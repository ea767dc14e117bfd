//! Program that `tests/processes` starts in several processes. It trains one model after another
//! and prints every loss as bits.
//!
//! `processes_program [DEVICE] [FAULT@PROCESS@STEP] MODEL/RANKS/STRATEGY/STEPS ..`

#![expect(clippy::print_stdout, reason = "the test reads the output")]

use std::{
    collections::BTreeSet,
    env,
    error::Error,
    io::{self, Write},
    ops::Range,
    process::{self, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use soybean::{
    Config, Device, Process,
    checkpoint::{Checkpoints, Progress},
    runtime::{Array, Model, Rank, Trainer, View},
};
use soybean_compiler::{Optimizer, Options, Strategy};
use soybean_plan::{Executable, Kernel, Precision, Tables};
use soybean_test_support::models::{BATCH, Batch, SEED, finish_with, perceptron_model, sgd};

/// The kind of failure, its process and its step.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    what: String,
    process: usize,
    step: usize,
}

impl Fault {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split('@');
        let what = words.next()?.to_owned();
        let mut number = || words.next()?.parse().ok();
        Some(Self { what, process: number()?, step: number()? })
    }
}

/// A program of which one rank panics in some step.
struct Faulty {
    program: Executable,
    /// The call at which a rank of this process panics.
    panics_at: Option<usize>,
    n_calls: AtomicUsize,
}

// SAFETY: a rank fails where it makes other calls than the program.
#[expect(unsafe_code, reason = "a model of a test")]
unsafe impl Model for Faulty {
    fn tables(&self) -> &Tables {
        &self.program.tables
    }

    fn kernels(&self) -> &[Kernel] {
        &self.program.kernels
    }

    fn train(&self, entry: usize, rank: &mut Rank<'_>) {
        let call = self.n_calls.fetch_add(1, Ordering::SeqCst);
        assert!(self.panics_at != Some(call), "tripped");
        self.program.train(entry, rank);
    }

    fn accumulate(&self, rank: &mut Rank<'_>) {
        self.program.accumulate(rank);
    }

    fn evaluate(&self, entry: usize, rank: &mut Rank<'_>) {
        self.program.evaluate(entry, rank);
    }
}

fn main() -> ExitCode {
    let process = match Process::start() {
        Ok(process) => process,
        Err(error) => {
            print_line(&format!("error: {error}"));
            return ExitCode::FAILURE;
        }
    };
    print_line(&format!("process {} has pid {}", process.number, process::id()));
    let arguments: Vec<String> = env::args().skip(1).collect();
    let device = arguments.first().and_then(|it| it.parse().ok());
    let arguments = &arguments[usize::from(device.is_some())..];
    let device: Device = device.unwrap_or(Device::Cpu);
    let fault = arguments.first().and_then(|it| Fault::read(it));
    let cases = &arguments[usize::from(fault.is_some())..];
    let mut trainers = Vec::new();
    let outcome = cases.iter().try_for_each(|case| {
        trainers.push(run((process, device), case, fault.as_ref())?);
        if trainers.len() == 2 {
            end(&mut trainers, process, fault.as_ref());
        }
        Ok::<(), Box<dyn Error>>(())
    });
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    let error = error.to_string();
    if process.fail(&error) {
        print_line(&format!("process {}: error: {error}", process.number));
    }
    ExitCode::FAILURE
}

/// Drops trainers, in an order that differs between processes.
fn end(trainers: &mut Vec<Trainer>, process: Process, fault: Option<&Fault>) {
    if process.number % 2 == 1 {
        trainers.reverse();
    }
    let keeps = |it: &Fault| (&*it.what, it.process) == ("keep", process.number);
    trainers.truncate(usize::from(fault.is_some_and(keeps)));
}

/// Prints a line in one write, so that other processes do not interleave.
fn print_line(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

fn run(
    (process, device): (Process, Device),
    case: &str,
    fault: Option<&Fault>,
) -> Result<Trainer, Box<dyn Error>> {
    let [model, n_ranks, strategy, n_steps] = case.split('/').collect::<Vec<_>>()[..] else {
        return Err(format!("expected MODEL/RANKS/STRATEGY/STEPS, found {case}").into());
    };
    let (n_ranks, n_steps) = (n_ranks.parse()?, n_steps.parse::<usize>()?);
    let program = program(model, n_ranks, strategy)?;
    let kinds: BTreeSet<&str> = program.kernels.iter().filter_map(collective).collect();
    let (predicted, of_steps) = (program.tables.entries[0].bytes, program.tables.train_bytes());
    let to_feed = program.tables.fed_bytes(0);
    let panics_at = fault.filter(|it| (&*it.what, it.process) == ("panic", process.number));
    let panics_at = panics_at.map(|it| it.step * n_ranks / process.count);
    let faulty = Faulty { program, panics_at, n_calls: AtomicUsize::new(0) };
    let seconds = env::var("SOYBEAN_TEST_STEP_TIMEOUT").ok().and_then(|it| it.parse().ok());
    let step_timeout = seconds.map(Duration::from_secs).or(Config::default().step_timeout);
    let config =
        Config { seed: SEED, learning_rate: 0.05, device, step_timeout, ..Config::default() };
    let model = Arc::new(faulty);
    let mut start = || Trainer::new_shared(Arc::clone(&model) as Arc<dyn Model>, config.clone());
    let mut trainer = start()?;
    let tell = |line: String| {
        if process.is_first() {
            println!("{line}");
        }
    };
    tell(format!("{case}: {}", kinds.into_iter().collect::<Vec<_>>().join(" ")));
    if device != Device::Cpu {
        tell(format!("on {}", trainer.device_line()));
    }
    tell(format!("bytes predicted of a step {of_steps}"));
    // All save, unless one cannot.
    let fault = fault.filter(|it| it.process == process.number || it.what == "save");
    let n_allocations = train(&mut trainer, &mut start, n_steps, fault)?;
    tell(format!("allocations in each step of any process {}", trainer.any(n_allocations > 0)?));
    let batches = [Batch::new(0), Batch::new(1)];
    let evaluation = trainer.evaluate(&batches[0].views())?;
    tell(format!("bytes of an evaluation {} of {predicted}", trainer.moved_bytes()));
    if trainer.fed_bytes() != to_feed {
        return Err(format!("expected to feed {to_feed} bytes: {}", trainer.fed_bytes()).into());
    }
    let outputs: Vec<String> = evaluation.outputs.iter().map(bits).collect();
    tell(format!("evaluation {:08x} {}", evaluation.loss.to_bits(), outputs.join(" ")));
    let parameters = trainer.parameters()?;
    for (name, array) in parameters.iter().chain(&trainer.optimizer_state()?) {
        tell(format!("{name} {}", bits(array)));
    }
    trainer.queue(&batches[1].views())?;
    let (loss, trace) = trainer.trace_queued(None)?;
    tell(format!("traced {:08x}, {} spans", loss.to_bits(), trace.n_spans()));
    trainer.set_parameters(&parameters)?;
    let again = trainer.evaluate(&batches[0].views())?;
    tell(format!("evaluation again {:08x}", again.loss.to_bits()));
    let yes = trainer.any(process.number + 1 == process.count)?;
    tell(format!("any {yes} {}", trainer.any(false)?));
    tell(format!("profiled {}", trainer.profile().iter().filter(|it| it.n_steps > 0).count()));
    Ok(trainer)
}

/// Trains and prints each step. Returns the smallest number of allocations in a step after the
/// first ones. A step that waits for a second sends a control message, which allocates.
fn train(
    trainer: &mut Trainer,
    start: &mut dyn FnMut() -> Result<Trainer, soybean::Error>,
    n_steps: usize,
    fault: Option<&Fault>,
) -> Result<usize, Box<dyn Error>> {
    let needed = trainer.rows_needed();
    let batches: Vec<Batch> = (0..4).map(|it| partial(Batch::new(it), &needed)).collect();
    let mut n_allocations = None;
    for step in 0..n_steps {
        let mut views = batches[step % batches.len()].views();
        match fault.filter(|it| it.step == step).map(|it| it.what.as_str()) {
            Some("bad-batch") => {
                views[1] = View::I32(&[99; BATCH]);
                let _refused = trainer.step(&views);
                trainer.any(false)?;
            }
            Some("start") => drop(start()?),
            Some("exit") => process::exit(5),
            Some("end") => return Ok(0),
            Some("evaluate") => drop(trainer.evaluate(&views)?),
            Some("rate") => trainer.set_learning_rate(0.5),
            Some("save") => {
                let mut nowhere = Checkpoints::new("/dev/null/checkpoints", 1);
                nowhere.save(trainer, &Progress::default())?;
                print_line("found that a checkpoint is saved");
            }
            _ => {}
        }
        let (loss, n_here) = soybean_counting_allocator::count_during(|| trainer.step(&views));
        let loss = loss?;
        if step >= 3 {
            n_allocations = Some(n_allocations.map_or(n_here, |least: usize| least.min(n_here)));
        }
        if trainer.process().is_first() {
            println!("step {step} loss {:08x} bytes {}", loss.to_bits(), trainer.moved_bytes());
        }
    }
    Ok(n_allocations.unwrap_or(0))
}

/// Returns a batch with garbage in rows that no rank of this process needs.
fn partial(mut batch: Batch, needed: &[Range<usize>]) -> Batch {
    for row in (0..BATCH).filter(|row| !needed.iter().any(|it| it.contains(row))) {
        let n_each = batch.x.len() / BATCH;
        batch.x[row * n_each..(row + 1) * n_each].fill(f32::NAN);
        batch.y[row] = -1;
    }
    batch
}

fn program(model: &str, n_gpus: usize, strategy: &str) -> Result<Executable, Box<dyn Error>> {
    let (builder, loss, outputs) = match model {
        "perceptron" | "rounded" | "clipped" => perceptron_model(),
        _ => return Err(format!("expected a model, found `{model}`").into()),
    };
    let precision = if model == "rounded" { Precision::Bf16 } else { Precision::F32 };
    let search = strategy.parse::<Strategy>()?.into();
    let clip_norm = (model == "clipped").then_some(0.5);
    let (name, optimizer) = (model.to_owned(), Optimizer { clip_norm, ..sgd(0.9) });
    let options = Options { name, n_gpus, search, precision, optimizer };
    Ok(finish_with(builder, loss, &outputs, &options).program)
}

fn collective(kernel: &Kernel) -> Option<&'static str> {
    match kernel {
        Kernel::Communicate(bucket) => Some(bucket.kind().name()),
        _ => None,
    }
}

/// Returns a hash of all bits of an array.
fn bits(array: &Array) -> String {
    let mixed = |hash: u64, value: &f32| {
        (hash ^ u64::from(value.to_bits())).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
    };
    format!("{:016x}", array.data.iter().fold(7, mixed))
}
