//! Full disks, and locations that cannot be written.

use std::{fs, path::Path, process::Command};

use soybean::checkpoint::{Checkpoints, Progress};

use super::{
    environment::{folder, given_folder, names, rerun},
    network::{progress, train, trainer},
};

/// Saves one checkpoint that fits and one that does not. Either `ballast` bytes leave too little
/// space, or the size of `large` exceeds the limit of a file.
fn save_where_little_fits(folder: &Path, ballast: usize, large: &Progress, why: &str) {
    let mut checkpoints = Checkpoints::new(folder, 1);
    let mut trainer = trainer(2);
    let first = checkpoints.save(&mut trainer, &progress(1)).unwrap();
    fs::write(folder.join("ballast"), vec![0; ballast]).unwrap();
    train(&mut trainer, 1);
    let error = checkpoints.save(&mut trainer, large).unwrap_err().to_string();
    println!("{error}");
    let start = format!(
        "checkpoint step-0000000001 is not saved: {}/.tmp-step-0000000001/",
        folder.display()
    );
    let rest = error.strip_prefix(&start).unwrap();
    assert!(rest.contains(": expected to write ") && rest.contains(" bytes of "), "{error}");
    assert!(rest.contains(why), "{error}");
    let is_known = ["No space left on device", "File too large"].iter().any(|it| rest.contains(it));
    assert!(is_known, "{error}");
    assert!(rest.ends_with("; the earlier checkpoints are intact"), "{error}");
    assert_eq!(names(folder), ["ballast", "step-0000000000"]);
    // A background error is returned by the next call, which saves nothing.
    checkpoints.save_in_background(&mut trainer, large).unwrap();
    let later = checkpoints.save(&mut trainer, large).unwrap_err().to_string();
    assert_eq!(later, error);
    checkpoints.save_in_background(&mut trainer, large).unwrap();
    assert_eq!(checkpoints.wait().unwrap_err().to_string(), error);
    // An error that no call returns is printed.
    let mut dropped = Checkpoints::new(folder, 1);
    dropped.save_in_background(&mut trainer, large).unwrap();
    drop(dropped);
    let latest = checkpoints.latest().unwrap();
    assert!(latest.refused.is_empty());
    assert_eq!(latest.checkpoint.unwrap().path(), first);
    fs::remove_file(folder.join("ballast")).unwrap();
    checkpoints.save(&mut trainer, &progress(2)).unwrap();
    assert_eq!(names(folder), ["step-0000000001"]);
}

fn run(mut command: Command) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}\n{stderr}");
    assert!(stderr.contains("checkpoint step-0000000001 is not saved: "), "{stderr}");
    println!("{stdout}");
}

/// A shell command that runs another with files of at most 40 KiB; a larger file is an error, not a
/// signal.
const LIMITED: [&str; 3] = ["sh", "-c", "trap '' XFSZ; ulimit -f 80; exec \"$0\" \"$@\""];

fn limited(folder: &Path) {
    let mut large = progress(2);
    large.extra.insert("large".to_owned(), "x".repeat(64 << 10).into());
    save_where_little_fits(folder, 0, &large, "File too large");
}

#[test]
fn a_file_that_may_not_grow_is_named() {
    match given_folder() {
        Some(folder) => limited(&folder),
        None if cfg!(unix) => {
            run(rerun(
                &LIMITED,
                "checkpoints::disk::a_file_that_may_not_grow_is_named",
                &folder("limited"),
            ));
        }
        None => println!("skipped: no limits of files"),
    }
}

#[test]
fn a_full_disk_is_named() {
    if let Some(folder) = given_folder() {
        // With 96 KiB in total, ballast and the first checkpoint leave too little for the second.
        let why = ".safetensors: expected to write ";
        return save_where_little_fits(&folder, 76 << 10, &progress(2), why);
    }
    let folder = folder("full");
    let mount = format!("mount -t tmpfs -o size=96k tmpfs '{}'", folder.display());
    // A mount namespace in which the user is root.
    let may_mount = |arguments: &[&str]| {
        let tried = Command::new("unshare").args(arguments).args(["sh", "-c", &mount]).output();
        tried.is_ok_and(|it| it.status.success())
    };
    let Some(unshared) = [["-m"].as_slice(), &["-rm"]].into_iter().find(|it| may_mount(it)) else {
        println!("skipped: no file system can be mounted");
        return;
    };
    let script = format!("{mount} && exec \"$0\" \"$@\"");
    let before: Vec<&str> = ["unshare"]
        .into_iter()
        .chain(unshared.iter().copied())
        .chain(["sh", "-c", &script])
        .collect();
    run(rerun(&before, "checkpoints::disk::a_full_disk_is_named", &folder));
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = folder("no_folder");
    fs::write(folder.join("file"), "in the way").unwrap();
    let place = folder.join("file/checkpoints");
    let error = Checkpoints::new(&place, 1).save(&mut trainer(1), &progress(0)).unwrap_err();
    let start = format!(
        "checkpoint step-0000000000 is not saved: {}: expected to make the folder, found: ",
        place.display()
    );
    assert!(error.to_string().starts_with(&start), "{error}");
}
