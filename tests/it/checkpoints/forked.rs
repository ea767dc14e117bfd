//! A process that forks: the copy has none of the threads of a trainer, a loader or a checkpoint.

#![expect(unsafe_code, reason = "the standard library cannot fork")]

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::{Duration, Instant},
};

use soybean::{
    checkpoint::Checkpoints,
    data::{DataLoader, LoaderOptions, Records},
};
use soybean_test_support::models::Batch;

use super::{
    environment::folder,
    network::{progress, trainer},
};

/// Runs a function in a forked process. Returns whether it returned true within some seconds.
fn in_fork(function: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child uses memory and the functions of this test alone, and ends without
    // unwinding into the harness.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process can be forked");
    if child == 0 {
        let outcome = catch_unwind(AssertUnwindSafe(function));
        let code = i32::from(!outcome.unwrap_or(false));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    let started = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: `status` outlives the call.
        if unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child {
            return libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
        }
        if started.elapsed() > Duration::from_secs(30) {
            // SAFETY: the child has not been waited for, so the number is still its own.
            unsafe { libc::kill(child, libc::SIGKILL) };
            // SAFETY: as above.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

// Guards: a child that waits for ever for threads that it does not have.
#[test]
fn threads_of_another_process_are_not_waited_for() {
    let batch = Batch::new(0);
    let mut old = trainer(2);
    old.step(&batch.views()).unwrap();
    let is_told = |error: soybean::Error| error.to_string().contains("make it after the fork");
    assert!(in_fork(|| old.step(&batch.views()).is_err_and(is_told)), "a step ends");
    assert!(in_fork(|| old.evaluate(&batch.views()).is_err_and(is_told)), "an evaluation ends");
    let folder = folder("forked");
    let mut checkpoints = Checkpoints::new(&folder, 1);
    checkpoints.save_in_background(&mut old, &progress(1)).unwrap();
    assert!(in_fork(|| checkpoints.wait().is_err_and(is_told)), "a checkpoint ends");
    checkpoints.wait().unwrap();
    let path = folder.join("images.bin");
    fs::write(&path, vec![1; 3073 * 64]).unwrap();
    let loader = || {
        let records = Records::cifar10(&[&path], 1.0).unwrap();
        DataLoader::new(records, LoaderOptions::training(4, 0)).unwrap()
    };
    let mut old_loader = loader();
    old_loader.next().unwrap().unwrap();
    assert!(in_fork(|| old_loader.next().unwrap().is_err_and(is_told)), "a batch ends");
    assert!(in_fork(move || {
        drop((old, old_loader));
        // What is made after the fork works.
        trainer(2).step(&batch.views()).is_ok() && loader().next().unwrap().is_ok()
    }));
}
