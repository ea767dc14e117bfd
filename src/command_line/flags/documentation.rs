//! The keys in `docs/training.md`, written from the table of flags: a test fails when they are stale; `UPDATE_EXPECT=1` writes them anew.

use std::{env, fmt::Write, fs};

use super::{Key, file::keys};

const BEGIN: &str = "<!-- keys: written by a test of src/command_line/flags/documentation.rs -->\n";
const END: &str = "<!-- end of keys -->\n";

/// A row for each flag of `train` that is a key, with its default in parentheses.
fn table() -> String {
    let mut table = "| key | value | what it says |\n| --- | --- | --- |\n".to_owned();
    for flag in keys() {
        let value = match &flag.key {
            Key::Switch(_) => "`true` or `false`".to_owned(),
            Key::List { .. } => format!("list of `\"{}\"`", flag.value),
            Key::Value(_) | Key::None => format!("`{}`", flag.value),
        };
        writeln!(table, "| `{}` | {value} | {} |", flag.name, flag.help).unwrap();
    }
    table
}

#[test]
fn the_page_about_training_has_all_keys() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/training.md");
    let page = fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the keys");
    let (found, after) = rest.split_once(END).expect("the keys have an end");
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(path, [before, BEGIN, &table(), END, after].concat()).unwrap();
    } else {
        assert!(found == table(), "docs/training.md is stale; UPDATE_EXPECT=1 writes it anew");
    }
}
