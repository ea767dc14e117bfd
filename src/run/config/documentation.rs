//! The table of keys in `docs/training.md`. A test fails if it is stale; `UPDATE_EXPECT=1` rewrites
//! it.

use std::{env, fmt::Write, fs};

use super::{
    TrainConfig,
    setting::{Key, Setting},
    settings::settings,
};

const BEGIN: &str = "<!-- keys: written by a test of src/run/config/documentation.rs -->\n";
const END: &str = "<!-- end of keys -->\n";

/// Returns the table, a row for each setting.
fn table() -> String {
    let mut table = "| key | value | meaning |\n| --- | --- | --- |\n".to_owned();
    for setting in settings() {
        let value = match &setting.key {
            Key::Switch(_) => "`true` or `false`".to_owned(),
            Key::List { .. } => format!("list of `\"{}\"`", setting.value),
            Key::Value(_) => expected(setting).unwrap_or_else(|| format!("`{}`", setting.value)),
        };
        // Markdown would take `<model>` for HTML.
        let help = setting.help.replace('<', "&lt;");
        writeln!(table, "| `{}` | {value} | {help} |", setting.name).unwrap();
    }
    table
}

/// Returns the values that a setting takes, as its parser says, unless it takes any text.
fn expected(setting: &Setting) -> Option<String> {
    let fault = (setting.set)(&mut TrainConfig::new(1, 0.1), "?").err()?;
    let (expected, _) = fault.strip_prefix("expected ")?.rsplit_once(", found")?;
    Some(expected.to_owned())
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
        assert!(found == table(), "docs/training.md is stale; UPDATE_EXPECT=1 rewrites it");
    }
}
