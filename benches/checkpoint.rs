//! The cost of checkpoints: saving about 1 GiB against plain writes of as many bytes to the same
//! disk, and the pause of a background save.
//!
//! `cargo bench --bench checkpoint [-- FOLDER]` works in a new subfolder of FOLDER, by default
//! `target/tmp`, and removes it at the end.

#![expect(clippy::unwrap_used, reason = "a benchmark panics on errors")]
#![expect(clippy::print_stdout, reason = "a benchmark reports what it measured")]

use std::{
    env,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process,
    time::Instant,
};

use soybean::{
    checkpoint::{Checkpoint, Checkpoints, Progress},
    runtime::{Trainer, View},
};
use soybean_compiler::{Argument, Builder, Strategy, optimizer};
use soybean_plan::DType;
use soybean_test_support::models::{call, dense, finish, trainer};

const ROUNDS: usize = 7;
const RANKS: usize = 2;
const BATCH: usize = 64;
/// The rows and columns of two matrices, three times with Adam's means: 1.01 GiB.
const WIDTH: usize = 6720;

fn main() {
    let folder = env::args().skip(1).find(|it| !it.starts_with("--"));
    let folder = PathBuf::from(folder.unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").to_owned()));
    let folder = folder.join(format!("soybean-checkpoint-bench-{}", process::id()));
    fs::create_dir(&folder).unwrap();
    let mut trainer = network();
    let (mut plain, mut saves, mut opens, mut restores) = (vec![], vec![], vec![], vec![]);
    let mut fetches = vec![];
    // All are kept, so that no save removes an earlier one; removing takes as long for plain files.
    let mut checkpoints = Checkpoints::new(folder.join("checkpoints"), 0);
    let progress = Progress::default();
    // The first writes of a process are slower.
    let first = checkpoints.save(&mut trainer, &progress).unwrap();
    let n_bytes = n_bytes(&first);
    let (gib, bytes) = (n_bytes as f64 / f64::from(1 << 30), vec![7; n_bytes]);
    println!("{gib:.2} GiB of state on {RANKS} ranks, in {}", folder.display());
    for _ in 0..ROUNDS {
        plain.push(seconds(|| write_plainly(&folder.join("plain"), &bytes)));
        fs::remove_file(folder.join("plain")).unwrap();
        fs::remove_dir_all(&first).unwrap();
        saves.push(seconds(|| checkpoints.save(&mut trainer, &progress).unwrap()));
        fetches
            .push(seconds(|| (trainer.parameters().unwrap(), trainer.optimizer_state().unwrap())));
        opens.push(seconds(|| Checkpoint::open(&first).unwrap()));
        let checkpoint = Checkpoint::open(&first).unwrap();
        restores.push(seconds(|| trainer.restore(&checkpoint).unwrap()));
    }
    report("plain writes of 1 MiB and fsync", &plain);
    report("save", &saves);
    let ratios: Vec<f64> = saves.iter().zip(&plain).map(|(save, plain)| save / plain).collect();
    println!(
        "save / plain: {:.2} by medians, {ratios:.2?} by rounds",
        median(&saves) / median(&plain)
    );
    report("fetch alone", &fetches);
    report("open, with all checksums", &opens);
    report("restore", &restores);
    in_background(&mut trainer, &mut checkpoints);
    drop(checkpoints);
    fs::remove_dir_all(folder).unwrap();
}

fn in_background(trainer: &mut Trainer, checkpoints: &mut Checkpoints) {
    let x = vec![0.5; BATCH * WIDTH];
    let y = [3; BATCH];
    let step =
        |trainer: &mut Trainer| seconds(|| trainer.step(&[View::F32(&x), View::I32(&y)]).unwrap());
    let alone: Vec<f64> = (0..6).map(|_| step(trainer)).skip(1).collect();
    let (mut pauses, mut meanwhile) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        pauses.push(seconds(|| {
            checkpoints.save_in_background(trainer, &Progress::default()).unwrap();
        }));
        while checkpoints.is_saving() {
            meanwhile.push(step(trainer));
        }
        checkpoints.wait().unwrap();
    }
    report("step", &alone);
    report("pause of a save in the background", &pauses);
    report("step meanwhile", &meanwhile);
}

fn network() -> Trainer {
    let mut builder = Builder::new();
    let x = builder.input("x", DType::F32, &[BATCH, WIDTH]);
    let y = builder.input("y", DType::I32, &[BATCH]);
    let mut h = x;
    for layer in ["first", "second"] {
        let sum = dense(&mut builder, h, layer, WIDTH);
        h = call(&mut builder, "relu", &[Argument::Tensor(sum)]);
    }
    let loss = call(&mut builder, "cross_entropy", &[Argument::Tensor(h), Argument::Tensor(y)]);
    let adam = optimizer("adam", &[]).unwrap();
    trainer(&finish(builder, loss, &[], RANKS, Strategy::Auto, adam), 1e-4)
}

fn n_bytes(folder: &Path) -> usize {
    let n_bytes = |it: std::io::Result<fs::DirEntry>| it.unwrap().metadata().unwrap().len();
    usize::try_from(fs::read_dir(folder).unwrap().map(n_bytes).sum::<u64>()).unwrap()
}

fn write_plainly(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).unwrap();
    bytes.chunks(1 << 20).for_each(|it| file.write_all(it).unwrap());
    file.sync_all().unwrap();
}

fn seconds<T>(work: impl FnOnce() -> T) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64()
}

fn median(seconds: &[f64]) -> f64 {
    let mut sorted = seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn report(what: &str, seconds: &[f64]) {
    let best = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    println!("{what}: median {:.3} s, best {best:.3} s, of {}", median(seconds), seconds.len());
}
