//! Runs that are killed while they save.

use std::{
    fs,
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use soybean::checkpoint::{Checkpoint, Checkpoints};
use soybean_plan::random::mixed;

use super::{
    environment::{folder, given_folder, names, rerun},
    network::{progress, train, trainer},
};

const N_KILLS: u64 = 20;

/// Saves one checkpoint after another, and ends only on an error.
fn save_for_ever(folder: &Path) {
    let mut checkpoints = Checkpoints::new(folder, 2).with_shard_bytes(1000);
    let mut trainer = trainer(1);
    if let Some(checkpoint) = checkpoints.latest().unwrap().checkpoint {
        trainer.restore(&checkpoint).unwrap();
    }
    let deadline = Instant::now() + Duration::from_mins(1);
    while Instant::now() < deadline {
        train(&mut trainer, 1);
        let n_steps = trainer.n_steps();
        if n_steps.is_multiple_of(3) {
            checkpoints.save_in_background(&mut trainer, &progress(n_steps)).unwrap();
        } else {
            checkpoints.save(&mut trainer, &progress(n_steps)).unwrap();
        }
        // The same step again, so that one checkpoint replaces another.
        checkpoints.save(&mut trainer, &progress(n_steps)).unwrap();
    }
}

#[test]
fn after_every_kill_the_latest_checkpoint_is_whole() {
    if let Some(folder) = given_folder() {
        return save_for_ever(&folder);
    }
    let folder = folder("killed");
    let (mut n_steps, mut n_interrupted) = (0, 0);
    for kill in 0..N_KILLS {
        let mut child = rerun(
            &[],
            "checkpoints::killed::after_every_kill_the_latest_checkpoint_is_whole",
            &folder,
        )
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
        let newest = || names(&folder).into_iter().rfind(|it| it.starts_with("step-"));
        let before = newest();
        let started = Instant::now();
        while newest() == before {
            assert!(started.elapsed() < Duration::from_secs(50), "nothing is saved");
            assert!(child.try_wait().unwrap().is_none(), "the run that saves has ended");
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_micros(mixed(kill) % 120_000));
        child.kill().unwrap();
        child.wait().unwrap();
        n_interrupted += usize::from(names(&folder).iter().any(|it| it.starts_with(".tmp-")));
        let latest = Checkpoints::new(&folder, 2).latest().unwrap();
        assert!(latest.refused.is_empty(), "{:?}", latest.refused);
        let latest = latest.checkpoint.unwrap();
        assert!(latest.counters().n_steps > n_steps);
        n_steps = latest.counters().n_steps;
        assert_eq!(latest.progress(), &progress(n_steps));
        for name in names(&folder).iter().filter(|it| it.starts_with("step-")) {
            Checkpoint::open(folder.join(name)).unwrap();
        }
    }
    println!(
        "{N_KILLS} kills, {n_interrupted} of them in the middle of a checkpoint, {n_steps} steps"
    );
    assert!(n_interrupted > 0);
    fs::remove_dir_all(folder).unwrap();
}
