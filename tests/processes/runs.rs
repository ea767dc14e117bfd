//! Runs of the example `digits` in several processes, which fail or are killed while they train.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use crate::{
    example::{example, run},
    with_mpi::{alone, assert_quick, has, mpirun, said},
};

/// The example, where `mpirun` is there, and a folder for its runs.
fn digits(name: &str) -> Option<(PathBuf, PathBuf)> {
    let folder = env::temp_dir().join(format!("soybean-{name}-{}", std::process::id()));
    has("mpirun").then(|| (example("digits").get_program().into(), folder))
}

/// The words of a command that trains into a folder.
fn train(choices: &str, out: &Path) -> Vec<String> {
    let words = ["train", "--device", "cpu"].into_iter().chain(choices.split_whitespace());
    words.chain(["--out", out.to_str().unwrap()]).map(str::to_owned).collect()
}

#[test]
fn one_process_shows_the_plan() {
    let (_alone, Some((digits, _))) = (alone(), digits("plan")) else { return };
    let words = ["plan", "-o", "/dev/stdout"];
    let expected = run(Command::new(&digits).args(words));
    assert_eq!((expected.0, expected.2.as_str()), (Some(0), ""));
    let found = run(&mut mpirun(2, &digits, &words));
    assert_eq!((found.0, found.1), (Some(0), expected.1), "{}", found.2);
}

/// A library in which a program's first `fsync` takes longer than processes wait for each other after a failure.
const SLOW_DISK: &str = "
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int file) {
    static int n_calls;
    if (n_calls++ == 0) sleep(3);
    return syscall(SYS_fsync, file);
}
";

#[test]
fn a_checkpoint_that_is_being_written_is_finished_after_a_failure() {
    let (_alone, Some((digits, folder))) = (alone(), digits("slow-disk")) else { return };
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
    let said = said(&errors);
    assert_eq!(said.len(), 1, "{errors}");
    let found = said[0].strip_prefix("process 0: error: expected a finite loss, found ").unwrap();
    let last = found.split("; the last checkpoint is ").nth(1).unwrap().split(';').next().unwrap();
    assert!(Path::new(last).join("run.json").exists(), "{errors}");
    assert_quick("a failure while a checkpoint is written", started.elapsed());
    fs::remove_dir_all(folder).unwrap();
}
