//! Tests of runs of the example `digits` in several processes that fail or are killed during
//! training.

use std::{
    env, fs,
    io::{BufRead, BufReader, Lines},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use soybean_test_support::{example, run};

use crate::with_mpi::{
    assert_before_timeout, has, last_state, mpirun, print_line, printed_errors, signal,
};

/// Returns the example and a folder for its runs, if `mpirun` is installed.
fn digits(name: &str) -> Option<(PathBuf, PathBuf)> {
    let folder = env::temp_dir().join(format!("soybean-{name}-{}", std::process::id()));
    has("mpirun").then(|| (example!("digits").get_program().into(), folder))
}

/// Returns the arguments of a command that trains into a folder.
fn train(choices: &str, out: &Path) -> Vec<String> {
    let words = ["train", "--device", "cpu"].into_iter().chain(choices.split_whitespace());
    words.chain(["--out", out.to_str().unwrap()]).map(str::to_owned).collect()
}

#[test]
fn one_process_shows_the_plan() {
    let Some((digits, _)) = digits("plan") else { return };
    let words = ["plan", "-o", "/dev/stdout"];
    let expected = run(Command::new(&digits).args(words));
    assert_eq!((expected.0, expected.2.as_str()), (Some(0), ""));
    let found = run(&mut mpirun(2, &digits, &words));
    assert_eq!((found.0, found.1), (Some(0), expected.1), "{}", found.2);
}

/// A library whose first `fsync` of a checkpoint takes longer than processes wait for each other
/// after a failure.
const SLOW_DISK: &str = "
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int file) {
    static int n_calls;
    char link[64], path[4096] = {0};
    snprintf(link, sizeof link, \"/proc/self/fd/%d\", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > 0 && strstr(path, \"/checkpoints/\") && n_calls++ == 0) {
        fprintf(stderr, \"slow disk\\n\");
        sleep(3);
    }
    return syscall(SYS_fsync, file);
}
";

#[test]
fn a_checkpoint_in_progress_is_completed_after_a_failure() {
    let Some((digits, folder)) = digits("slow-disk") else { return };
    if !has("cc") {
        return;
    }
    fs::create_dir_all(&folder).unwrap();
    let [source, library] = ["disk.c", "libdisk.so"].map(|it| folder.join(it));
    fs::write(&source, SLOW_DISK).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o"]).args([&library, &source]);
    assert!(compile.status().unwrap().success());
    // The first step is good, and the loss of the second or third is not finite.
    let words = train("--lr 1e30 --checkpoint-every 1 --async-checkpoint", &folder.join("out"));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let started = Instant::now();
    let (code, _, errors) = run(mpirun(4, &digits, &words).env("LD_PRELOAD", &library));
    assert_eq!(code, Some(1), "{errors}");
    let printed = printed_errors(&errors);
    assert_eq!(printed.len(), 1, "{errors}");
    assert_eq!(errors.matches("slow disk").count(), 1, "{errors}");
    let found = printed[0].strip_prefix("process 0: error: expected a finite loss, found ");
    let last = found.and_then(|it| it.split("; the last checkpoint is ").nth(1)?.split(';').next());
    let is_complete = last.is_some_and(|it| Path::new(it).join("run.json").exists());
    assert!(is_complete, "{errors}");
    assert_before_timeout("a failure while a checkpoint is written", started.elapsed());
    fs::remove_dir_all(folder).unwrap();
}

/// Pseudo-random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        // Linear congruential generator (Knuth), whose high bits are good.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

const N_KILLS: usize = 50;
/// Approximate number of steps between kills.
const N_BETWEEN: usize = if cfg!(debug_assertions) { 4 } else { 60 };

#[test]
fn repeatedly_killed_runs_end_with_the_same_weights() {
    let Some((digits, folder)) = digits("kills") else { return };
    let n_steps = (N_KILLS + 3) * N_BETWEEN;
    let choices = format!("--steps {n_steps} --log-every 1");
    let (expected, out) = (folder.join("alone"), folder.join("killed"));
    let started = Instant::now();
    assert_eq!(run(Command::new(&digits).args(train(&choices, &expected))).0, Some(0));
    let undisturbed = started.elapsed();
    let words = train(&format!("{choices} --checkpoint-every 3 --resume auto"), &out);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut command = mpirun(2, &digits, &words);
    // Otherwise `mpirun` gives the other process a second after SIGTERM.
    command.env("OMPI_MCA_odls_base_sigkill_timeout", "0");
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut random = Random(24);
    let (started, mut ending) = (Instant::now(), Duration::ZERO);
    for kill in 0..N_KILLS {
        let mut mpirun = command.spawn().unwrap();
        let until = kill * N_BETWEEN + random.below(2 * N_BETWEEN);
        let _output = await_steps(&mut mpirun, &out, until);
        thread::sleep(Duration::from_millis(random.below(20) as u64));
        let children = format!("/proc/{0}/task/{0}/children", mpirun.id());
        let children = fs::read_to_string(children).unwrap();
        let process = children.split_whitespace().nth(random.below(2)).unwrap();
        let killed = Instant::now();
        signal("KILL", process.parse().unwrap());
        let code = mpirun.wait().unwrap().code();
        assert_eq!(code, Some(137), "kill {kill} after {} steps", n_written(&out));
        ending += killed.elapsed();
    }
    let killing = started.elapsed();
    assert_eq!(run(&mut command).0, Some(0));
    let took = [undisturbed, killing, ending, started.elapsed() - killing];
    let [undisturbed, killing, ending, rest] = took.map(|it| it.as_secs_f64());
    print_line(&format!(
        "undisturbed: {undisturbed:.1} s; {N_KILLS} kills: {killing:.1} s, of which processes ended for {ending:.1} s; to the end: {rest:.1} s"
    ));
    assert!(last_state(&out) == last_state(&expected), "other weights");
    fs::remove_dir_all(folder).unwrap();
}

/// Waits until a run has made a step of its own, and `until` steps in all. Returns its output,
/// which must stay open.
fn await_steps(mpirun: &mut Child, out: &Path, until: usize) -> Lines<BufReader<ChildStdout>> {
    let mut output = BufReader::new(mpirun.stdout.take().unwrap()).lines();
    let is_start = |it: &str| it.contains(" held-out samples in batches of ");
    assert!(output.any(|it| is_start(&it.unwrap())), "the run does not begin");
    let (began, started) = (n_written(out), Instant::now());
    while n_written(out) < until.max(began + 1) {
        assert!(started.elapsed() < Duration::from_secs(60), "no {until} steps");
        thread::sleep(Duration::from_millis(1));
    }
    output
}

/// Returns the number of steps in a run's metrics.
fn n_written(out: &Path) -> usize {
    let text = fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default();
    text.matches("\"kind\":\"step\"").count()
}
