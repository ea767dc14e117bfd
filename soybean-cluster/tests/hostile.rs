//! Cluster files that are cut, damaged or made to harm: an error names the file and a line, and can
//! be shown by a terminal.

use soybean_cluster::{preset, read, text_of, write};
use soybean_plan::random::mixed;

fn check(text: &str, what: &str) -> bool {
    let Err(error) = read("mine", "mine.toml", text) else { return false };
    let message = error.to_string();
    assert!(message.starts_with("mine.toml:"), "{what}: {message}");
    assert!(!message.chars().any(char::is_control), "{what}: {message:?}");
    assert!(message.len() < 9000, "{what}: {} bytes", message.len());
    true
}

#[test]
fn no_cut_and_no_damage_panics() {
    let whole = write(&preset("dgx-h100").unwrap(), "a comment");
    assert!(!check(&whole, "whole"));
    let cuts = (0..whole.len()).filter(|at| whole.is_char_boundary(*at));
    let n_refused = cuts.filter(|at| check(&whole[..*at], &format!("cut at {at}"))).count();
    assert!(n_refused > whole.len() / 2, "{n_refused}");
    let mut n_refused = 0;
    for seed in 0..2000_u64 {
        let mut text: Vec<char> = whole.chars().collect();
        let place = usize::try_from(mixed(seed)).unwrap() % text.len();
        let marks: Vec<char> = "\"'\\[]{}=.,#09-e\u{1b}\u{9b}\0\n".chars().collect();
        text[place] = marks[usize::try_from(mixed(!seed)).unwrap() % marks.len()];
        let text: String = text.into_iter().collect();
        n_refused += usize::from(check(&text, &format!("damaged by {seed}")));
    }
    assert!(n_refused > 500, "{n_refused}");
}

// Guards: a stack that overflows.
#[test]
fn deep_nesting_is_refused() {
    let n = 200_000;
    let (open, close) = ("[".repeat(n), "]".repeat(n));
    let dotted = vec!["a"; n].join(".");
    for text in [
        format!("x = {open}1{close}"),
        format!("x = {}1{}", "{a=".repeat(n), "}".repeat(n)),
        format!("{dotted} = 1"),
        format!("[{dotted}]"),
        format!("[[{dotted}]]"),
        open,
    ] {
        assert!(check(&text, &text[..20]));
    }
}

#[test]
fn values_are_escaped() {
    for text in ["\"\u{1b}]0;x\" = 1", "gpu = \"\\u001b]0;x\"", "gpu = '\u{9b}2J'", "\u{1b} = 2"] {
        assert!(check(text, text));
    }
}

// Guards: a device that never ends.
#[cfg(unix)]
#[test]
fn devices_are_no_cluster_files() {
    let error = text_of(std::path::Path::new("/dev/zero")).unwrap_err();
    assert_eq!(error.to_string(), "a device, not a regular file");
}
