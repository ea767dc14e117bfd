//! Files of settings that are cut, damaged or made to harm, and empty paths.

use std::{fs, path::Path};

use super::{Resume, TrainConfig, settings::settings};
use crate::run::output::tests::folder;

fn refuse(path: &Path, what: &str) -> bool {
    let Err(error) = TrainConfig::from_toml(path) else { return false };
    let message = error.to_string();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    assert!(message.contains(&*name), "{what}: {message}");
    assert!(!message.chars().any(char::is_control), "{what}: {message:?}");
    assert!(message.len() < 9000, "{what}: {} bytes", message.len());
    true
}

#[test]
fn no_cut_and_no_damage_panics() {
    let folder = folder("hostile-config");
    let path = folder.join("config.toml");
    let (out, resume) = (Some("runs/x".into()), Resume::From("runs/x/best".into()));
    let whole =
        TrainConfig { out, resume, map: vec!["a.* = b.*".to_owned()], ..TrainConfig::default() };
    let whole = whole.to_toml();
    let mut n_refused = 0;
    let mut read = |text: &[u8], what: String| {
        fs::write(&path, text).unwrap();
        n_refused += usize::from(refuse(&path, &what));
    };
    (0..whole.len())
        .step_by(3)
        .for_each(|at| read(&whole.as_bytes()[..at], format!("cut at {at}")));
    let marks = b"\"'\\[]{}=.,#09-e\x1b\x9b\0\n";
    for seed in 0..400_usize {
        let mut text = whole.clone().into_bytes();
        let place = seed * 7919 % text.len();
        text[place] = marks[seed % marks.len()];
        read(&text, format!("damaged by {seed}"));
    }
    assert!(n_refused > 200, "{n_refused}");
}

#[test]
fn keys_values_and_nesting_give_short_messages() {
    let folder = folder("long-config");
    let path = folder.join("config.toml");
    let n = 200_000;
    for text in [
        format!("{} = 1", "k".repeat(n)),
        format!("epochs = '{}'", "v".repeat(n)),
        format!("epochs = {}1{}", "[".repeat(n), "]".repeat(n)),
        format!("{} = 1", vec!["a"; n].join(".")),
        "\"\\u001b]0;x\" = 1".to_owned(),
        "epochs = \"\\u001b]0;x\\u0007\"".to_owned(),
    ] {
        fs::write(&path, &text).unwrap();
        assert!(refuse(&path, &text[..12]));
    }
}

// Guards: `--config /dev/zero`, which never ends, and a named pipe, for whose writer it waits.
#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_refused() {
    let folder = folder("special-config");
    let pipe = folder.join("pipe.toml");
    let error = TrainConfig::from_toml("/dev/zero").unwrap_err().to_string();
    assert_eq!(error, "cannot read /dev/zero: a device, not a regular file");
    assert!(refuse(&folder, "a folder"));
    if std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|it| it.success()) {
        assert!(refuse(&pipe, "a named pipe"));
    }
}

// Guards: `--out ""`, which fails later with a message that names nothing.
#[test]
fn paths_are_not_empty() {
    let paths = ["trace", "data", "data-dir", "out", "weights", "resume"];
    let mut n_checked = 0;
    for setting in settings().filter(|it| paths.contains(&it.name)) {
        let error = (setting.set)(&mut TrainConfig::default(), "").unwrap_err();
        assert_eq!(error, "expected a path, found an empty text", "{}", setting.name);
        n_checked += 1;
    }
    assert_eq!(n_checked, paths.len());
}
