//! Folders that cannot be removed, files in the place of folders, and checkpoints that cannot be
//! read.

use std::{fs, path::Path, process::Command};

use soybean_checkpoint::{Checkpoints, ErrorKind, Progress};

use crate::memory_state::{MemoryState, folder};

fn save(checkpoints: &mut Checkpoints, n_steps: u64) {
    let mut state = MemoryState::linear(1);
    state.counters.n_steps = n_steps;
    let path = checkpoints.save(&mut state, &Progress::default()).unwrap();
    assert!(path.ends_with(format!("step-{n_steps:010}")));
}

fn steps(checkpoints: &Checkpoints) -> Vec<u64> {
    checkpoints.list().unwrap().into_iter().map(|it| it.0).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn files_with_names_of_checkpoints_end_no_save() {
    let folder = folder("stray_files");
    for name in ["step-0000000001", ".tmp-step-0000000003", ".old-step-0000000002"] {
        fs::write(folder.join(name), "not a checkpoint").unwrap();
    }
    let mut checkpoints = Checkpoints::new(&folder, 1);
    save(&mut checkpoints, 2);
    save(&mut checkpoints, 3);
    checkpoints.settle(&mut MemoryState::linear(1)).unwrap();
    assert_eq!(steps(&checkpoints), [3]);
    assert_eq!(checkpoints.take_warnings(), []);
    // The file is in the place of the new checkpoint.
    save(&mut Checkpoints::new(&folder, 0), 1);
    let left = [".old-step-0000000001", ".old-step-0000000002", ".tmp-step-0000000003"];
    assert_eq!(names(&folder), [&left[..], &["step-0000000001", "step-0000000003"]].concat());
}

/// Makes a file immutable, or not. Returns false where that is not possible.
fn set_immutable(path: &Path, flag: &str) -> bool {
    Command::new("chattr").arg(flag).arg(path).status().is_ok_and(|it| it.success())
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test should be visible in the output")]
fn a_checkpoint_that_cannot_be_removed_is_a_warning() {
    let folder = folder("immutable");
    let mut checkpoints = Checkpoints::new(&folder, 1);
    save(&mut checkpoints, 1);
    if !set_immutable(&folder.join("step-0000000001/model.safetensors"), "+i") {
        return eprintln!("skipped: no immutable files");
    }
    save(&mut checkpoints, 2);
    let warnings = checkpoints.take_warnings();
    let left = folder.join(".tmp-step-0000000001");
    let expected = format!("{}: expected to remove it, found: ", left.display());
    assert!(matches!(&warnings[..], [it] if it.to_string().starts_with(&expected)), "{warnings:?}");
    // Later saves try again, and say it once.
    save(&mut checkpoints, 3);
    assert_eq!(checkpoints.take_warnings(), []);
    let mut later = Checkpoints::new(&folder, 1);
    later.settle(&mut MemoryState::linear(1)).unwrap();
    assert_eq!(later.take_warnings(), warnings);
    // The same step again gets another temporary name.
    save(&mut Checkpoints::new(&folder, 0), 1);
    assert_eq!(steps(&checkpoints), [1, 3]);
    assert!(set_immutable(&left.join("model.safetensors"), "-i"));
    save(&mut checkpoints, 4);
    assert_eq!(names(&folder), ["step-0000000004"]);
}

#[test]
fn one_checkpoint_is_kept_in_another_folder() {
    let folder = folder("kept_elsewhere");
    let mut checkpoints = Checkpoints::new(folder.join("all"), 0);
    let mut best = Checkpoints::new(folder.join("best"), 1);
    for n_steps in [1, 2] {
        save(&mut checkpoints, n_steps);
        let path = checkpoints.path_after(n_steps);
        for _ in 0..2 {
            assert_eq!(best.keep_only(&path).unwrap(), best.path_after(n_steps));
            assert_eq!(steps(&best), [n_steps]);
        }
    }
    assert_eq!(best.keep_only(&best.path_after(2)).unwrap(), best.path_after(2));
    // A file is in its place.
    fs::remove_dir_all(best.folder()).unwrap();
    fs::create_dir(best.folder()).unwrap();
    fs::write(best.path_after(2), "not a checkpoint").unwrap();
    best.keep_only(&checkpoints.path_after(2)).unwrap();
    assert_eq!(best.latest().unwrap().checkpoint.unwrap().counters().n_steps, 2);
    assert_eq!(best.take_warnings().len(), 1);
    // The newest of both folders, where the others are damaged.
    fs::remove_file(checkpoints.path_after(2).join("run.json")).unwrap();
    let latest = checkpoints.latest_with(best.folder()).unwrap();
    assert_eq!(latest.checkpoint.unwrap().path(), best.path_after(2));
    assert_eq!(latest.refused.len(), 1);
}

/// A link to itself cannot be opened, and that says nothing of the contents.
#[cfg(unix)]
#[test]
fn a_checkpoint_that_cannot_be_read_is_not_taken_for_damaged() {
    let folder = folder("unreadable");
    let mut checkpoints = Checkpoints::new(&folder, 0);
    save(&mut checkpoints, 1);
    save(&mut checkpoints, 2);
    let newest = checkpoints.path_after(2);
    for name in ["run.json", "optimizer.safetensors"] {
        let (file, aside) = (newest.join(name), folder.join("aside"));
        fs::rename(&file, &aside).unwrap();
        std::os::unix::fs::symlink(name, &file).unwrap();
        let error = checkpoints.latest().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreadable);
        let (start, end) = (
            format!("{}: expected to read it, found: ", file.display()),
            format!(
                "; make it readable, or move {} away to resume from an earlier checkpoint",
                newest.display()
            ),
        );
        let text = error.to_string();
        assert!(text.starts_with(&start) && text.ends_with(&end), "{error}");
        fs::rename(&aside, &file).unwrap();
    }
    assert!(checkpoints.latest().unwrap().refused.is_empty());
}
