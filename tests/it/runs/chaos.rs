//! A program that is killed at random moments, repeatedly, gives the same result.

use std::{
    fs,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use soybean_test_support::run;

use super::{
    signals::digits,
    small::{Random, checkpoints, folder, lines, newest, state},
};

const N_KILLS: u32 = 50;
const N_STEPS: usize = 350;

#[test]
fn fifty_kills_change_nothing() {
    let choices = format!("--steps {N_STEPS} --log-every 1");
    let expected = folder("chaos-undisturbed");
    let started = Instant::now();
    let (code, output, errors) = run(&mut digits(&expected, &choices));
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    let undisturbed = started.elapsed();
    let out = folder("chaos");
    let choices = format!("{choices} --checkpoint-every 3 --resume auto");
    let mut random = Random(50);
    // Maximum lifetime of a process. It adapts to the machine, so that few processes leave no
    // checkpoint.
    let mut longest = Duration::from_millis(400);
    let (mut n_kills, mut n_during_saves, mut n_idle) = (0, 0, 0);
    let started = Instant::now();
    let mut command = digits(&out, &choices);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    while n_kills < N_KILLS {
        let before = last_checkpoint(&out);
        let mut child = command.spawn().unwrap();
        thread::sleep(longest * u32::try_from(random.below(1000)).unwrap() / 1000);
        if child.try_wait().unwrap().is_some() {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        n_kills += 1;
        let is_saving = fs::read_dir(out.join("checkpoints")).is_ok_and(|mut it| {
            it.any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with(".tmp"))
        });
        n_during_saves += u32::from(is_saving);
        let n_steps = last_checkpoint(&out) - before;
        n_idle += u32::from(n_steps == 0);
        longest = match n_steps {
            0 => longest * 5 / 4,
            1..=8 => longest,
            _ => longest / 2,
        };
    }
    let killing = started.elapsed();
    let (code, output, errors) = run(&mut digits(&out, &choices));
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    println!(
        "undisturbed: {undisturbed:.1?}; {n_kills} kills: {killing:.1?}, {n_during_saves} of them during a save, {n_idle} before anything new was saved; to the end: {:.1?}",
        started.elapsed() - killing
    );
    assert_eq!(n_kills, N_KILLS, "the run ended before");
    assert!(state(&newest(&out)) == state(&newest(&expected)), "other weights");
    assert_eq!(lines(&out), lines(&expected));
    assert_eq!(checkpoints(&out.join("best")), checkpoints(&expected.join("best")));
}

/// Returns the step of the newest checkpoint.
fn last_checkpoint(out: &std::path::Path) -> usize {
    let names = checkpoints(&out.join("checkpoints"));
    names.last().map_or(0, |it| it.trim_start_matches("step-").parse().unwrap())
}
