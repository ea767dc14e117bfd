//! TOML files of settings. A key has the name of the flag of `train`, and its value is parsed as
//! the flag's value.

use std::{fmt::Write, path::Path};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use soybean_plan::{Tables, caught, nearest_names, read_text};
use soybean_runtime::Error;

use super::{
    Resume, TrainConfig, config_error,
    setting::{Key, Setting, Value},
    settings::settings,
};
use crate::run::{Curve, Metric, Schedule};

impl TrainConfig {
    /// Reads a TOML file, whose keys are the names of the flags of `train`.
    ///
    /// Settings that the file lacks are those of [`default`](Self::default).
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or has an unknown key or a wrong value; the error says where.
    pub fn from_toml(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::default().with_toml(path)
    }

    /// Replaces the settings that a TOML file has.
    ///
    /// # Errors
    ///
    /// As [`from_toml`](Self::from_toml).
    pub fn with_toml(self, path: impl AsRef<Path>) -> Result<Self, Error> {
        read(self, path.as_ref()).map_err(config_error)
    }

    /// Returns the settings as the text of a TOML file, which [`from_toml`](Self::from_toml) reads.
    ///
    /// Metrics of the user are left out.
    #[must_use]
    pub fn to_toml(&self) -> String {
        to_toml(self)
    }

    /// Checks that the flags would accept all values, and that the settings fit each other and the
    /// model.
    pub(crate) fn check(&self, tables: &Tables) -> Result<(), Error> {
        check(self).map_err(config_error)?;
        let needs = |what: &str, other: &str| {
            Err(config_error(format!("expected `{other}`, since `{what}` is given, found none")))
        };
        let Schedule { curve, decay_every, .. } = self.schedule;
        if curve == Curve::Step && decay_every.is_none() {
            return needs("schedule = \"step\"", "decay-every");
        }
        let (peak, floor) = (self.trainer.learning_rate, self.schedule.floor);
        if floor > peak {
            return Err(config_error(format!(
                "min-lr: expected a number from 0 to {peak}, the learning rate, found `{floor}`"
            )));
        }
        if !self.map.is_empty() && self.weights.is_none() {
            return needs("map", "weights");
        }
        match &self.resume {
            Resume::Auto if self.out.is_none() => return needs("resume = \"auto\"", "out"),
            Resume::Must if self.out.is_none() => return needs("resume = \"must\"", "out"),
            Resume::Auto | Resume::Must | Resume::Never | Resume::From(_) => {}
        }
        Metric::check_all(&self.metrics)?;
        one_entry(tables)?;
        if tables.is_updated_by_host() {
            let name = &tables.name;
            return Err(config_error(format!(
                "expected a model whose steps update parameters, found `{name}`, whose gradients a loop of your own uses (`optimizer = gradients()`)"
            )));
        }
        if self.evaluate_averages && tables.ema.is_none() {
            let name = &tables.name;
            return Err(config_error(format!(
                "evaluate-averages: expected a model that keeps averages of its parameters, such as `ema = 0.999`, found `{name}`, which keeps none"
            )));
        }
        Ok(())
    }
}

/// Checks that a model has one entry, which takes the columns of data.
pub(crate) fn one_entry(tables: &Tables) -> Result<(), Error> {
    if tables.entries.len() == 1 {
        return Ok(());
    }
    let names: Vec<&str> = tables.entries.iter().map(|it| it.name.as_ref()).collect();
    let (name, names) = (&tables.name, names.join(", "));
    Err(config_error(format!(
        "expected a model with one entry, found `{name}` with the entries {names}: call `Trainer::step` with their batches"
    )))
}

/// The most bytes of a file of settings.
const MAX_BYTES: u64 = 1 << 20;

/// Reads the settings of a file; settings that the file lacks keep their values.
pub(super) fn read(config: TrainConfig, path: &Path) -> Result<TrainConfig, String> {
    let text = read_text(path, MAX_BYTES)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let mut config = config;
    apply(&mut config, &text)
        .map_err(|(at, message)| format!("{}:{}: {message}", path.display(), line_of(&text, at)))?;
    Ok(config)
}

/// Returns the line of a byte, counted from 1.
fn line_of(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or(text);
    before.bytes().filter(|it| *it == b'\n').count() + 1
}

/// The byte at which an error is, and its message.
type ErrorAt = (usize, String);

fn apply(config: &mut TrainConfig, text: &str) -> Result<(), ErrorAt> {
    let table = caught(|| DeTable::parse(text)).map_err(|panic| (0, panic))?;
    let table = table
        .map_err(|error| (error.span().map_or(0, |it| it.start), error.message().to_owned()))?;
    // In the order of the file, so that its first error is reported.
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let setting = find(key.get_ref()).map_err(|message| (key.span().start, message))?;
        set(config, setting, value)?;
    }
    Ok(())
}

fn find(key: &str) -> Result<&'static Setting, String> {
    settings().find(|it| it.name == key).ok_or_else(|| {
        let nearest = nearest_names(key, settings().map(|it| it.name))[0].name;
        format!("unknown key `{key}`; the nearest is `{nearest}`")
    })
}

fn set(
    config: &mut TrainConfig,
    setting: &Setting,
    value: &Spanned<DeValue<'_>>,
) -> Result<(), ErrorAt> {
    if let Key::List { clear, .. } = &setting.key {
        clear(config);
    }
    let name = setting.name;
    let at = |value: &Spanned<DeValue<'_>>, message: String| {
        (value.span().start, format!("{name}: {message}"))
    };
    let mut set = |value: &Spanned<DeValue<'_>>| {
        let text = plain(value.get_ref()).map_err(|message| at(value, message))?;
        (setting.set)(config, &text).map_err(|message| at(value, message))
    };
    match (&setting.key, value.get_ref()) {
        (Key::List { .. }, DeValue::Array(items)) => items.iter().try_for_each(set),
        (Key::List { .. }, _) => Err(at(value, "expected a list of strings".to_owned())),
        (Key::Switch(_), DeValue::Boolean(_)) | (Key::Value(_), _) => set(value),
        (Key::Switch(_), _) => Err(at(value, "expected true or false".to_owned())),
    }
}

/// Returns a value as written on a command line.
fn plain(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map(|it| it.to_string())
            .map_err(|_| format!("expected a smaller number, found {}", number.as_str())),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        DeValue::Boolean(value) => Ok(value.to_string()),
        DeValue::Datetime(date) => Err(format!("expected one value, found the date {date}")),
        DeValue::Array(_) => Err("expected one value, found a list".to_owned()),
        DeValue::Table(_) => Err("expected one value, found a table".to_owned()),
    }
}

/// Checks that the flags would accept all values.
pub(super) fn check(config: &TrainConfig) -> Result<(), String> {
    let mut parsed = config.clone();
    for setting in settings() {
        let values = match &setting.key {
            Key::Switch(_) => Vec::new(),
            Key::Value(value) => value(config).into_iter().map(Value::into_text).collect(),
            Key::List { values, .. } => values(config).to_vec(),
        };
        for value in values {
            (setting.set)(&mut parsed, &value)
                .map_err(|message| format!("{}: {message}", setting.name))?;
        }
    }
    Ok(())
}

/// Returns the settings as the text of a file.
pub(super) fn to_toml(config: &TrainConfig) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut text =
        format!("# The choices of a run of soybean {version}; `--config` takes them again.\n");
    for setting in settings() {
        if let Some(value) = value(&setting.key, config) {
            writeln!(text, "{} = {value}", setting.name)
                .expect("writing to a string does not fail");
        }
    }
    text
}

/// Returns the value of a key as TOML, or `None` if the file lacks the key.
pub(super) fn value(key: &Key, config: &TrainConfig) -> Option<String> {
    match key {
        Key::Switch(is_on) => Some(is_on(config).to_string()),
        Key::Value(value) => value(config).map(|value| match value {
            Value::Number(number) => number,
            Value::Text(text) => quoted(&text),
        }),
        Key::List { values, .. } => {
            let values: Vec<String> = values(config).iter().map(|it| quoted(it)).collect();
            Some(format!("[{}]", values.join(", ")))
        }
    }
}

/// Quotes a text as a basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = "\"".to_owned();
    for it in text.chars() {
        match it {
            '"' | '\\' => quoted.extend(['\\', it]),
            it if it.is_control() => {
                write!(quoted, "\\U{:08X}", u32::from(it)).expect("a string can be written");
            }
            it => quoted.push(it),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TrainConfig, String> {
        let mut config = TrainConfig::default();
        apply(&mut config, text)
            .map_err(|(at, message)| format!("{}: {message}", line_of(text, at)))?;
        Ok(config)
    }

    #[test]
    fn keys_are_set_as_flags_are() {
        let run = parse(
            "# a run\nepochs = 1_000\nlr = 1e-3\nschedule = 'cosine'\nwarmup = 0x10\nmap = [\"a = b\", 'c = \\d']\n\
             async-checkpoint = true\nno-graph = false\nresume = \"auto\"\nseed = 7",
        )
        .unwrap();
        assert_eq!((run.epochs, run.trainer.learning_rate, run.schedule.warm_up), (1000, 1e-3, 16));
        assert_eq!((run.schedule.curve, run.resume), (Curve::Cosine, Resume::Auto));
        assert_eq!(run.map, ["a = b", "c = \\d"]);
        assert!(run.async_checkpoint && run.trainer.uses_graphs);
        assert_eq!((run.trainer.seed, run.data.seed), (7, 7));
    }

    #[test]
    fn faults_are_told_with_their_lines() {
        for (text, message) in [
            ("epochs = 3\nepoch = 3", "2: unknown key `epoch`; the nearest is `epochs`"),
            ("learning_rate = 3", "1: unknown key `learning_rate`; the nearest is `weights`"),
            ("config = 'x.toml'", "1: unknown key `config`; the nearest is `out`"),
            ("gpus = 3", "1: unknown key `gpus`; the nearest is `out`"),
            ("\n\nepochs = -1", "3: epochs: expected a whole number from 0, found `-1`"),
            ("epochs = 2.5", "1: epochs: expected a whole number from 0, found `2.5`"),
            ("epochs = [1, 2]", "1: epochs: expected one value, found a list"),
            ("epochs = { n = 1 }", "1: epochs: expected one value, found a table"),
            ("seed = 2000-01-01", "1: seed: expected one value, found the date 2000-01-01"),
            ("steps = 0", "1: steps: expected a whole number from 1, found `0`"),
            ("lr = inf", "1: lr: expected a number from 0 to 3.4e38, found `inf`"),
            ("lr = true", "1: lr: expected a number from 0 to 3.4e38, found `true`"),
            ("no-graph = 1", "1: no-graph: expected true or false"),
            ("map = 'a = b'", "1: map: expected a list of strings"),
            ("map = [\n'a = b',\n[]]", "3: map: expected one value, found a list"),
            ("device = 'tpu'", "1: device: expected auto, cpu or cuda, found `tpu`"),
            (
                "schedule = 'sine'",
                "1: schedule: expected one of constant, step, linear, cosine, one-cycle, found `sine`",
            ),
        ] {
            assert_eq!(parse(text).err().as_deref(), Some(message), "{text}");
        }
        for text in ["epochs", "epochs = 1\nepochs = 2", "lr = 'x", "[[a]"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text = "epochs = 3\nsteps = 9\nbatch-limit = 2\nlr = 0.1\nschedule = 'step'\nwarmup = 4\nmin-lr = 1e-9\n\
            decay-every = 5\ndecay = 0.25\nevaluate-every = 6\nevaluate-averages = true\nwatch = 'accuracy'\npatience = 7\nmin-delta = 0.001\n\
            out = '/a b/\"c\"\\d'\nlog-every = 8\nno-checkpoints = true\ncheckpoint-every = 10\nkeep = 11\n\
            async-checkpoint = true\nresume = 'x/step-3'\nallow-change = ['lr', 'classes']\nweights = 'w.safetensors'\nmap = ['x = y', 'z = \"']\n\
            loader-threads = 12\nseed = 13\ndevice = 'cpu'\nthreads = 14\npeer-timeout = 15\nstep-timeout = 16\nno-graph = true\nno-autotune = true\ntrace = 't'\ndata = 'd'\naugment = true";
        let written = to_toml(&parse(text).unwrap());
        let again = to_toml(&parse(&written).unwrap());
        assert_eq!(written, again);
        // All keys except `data-dir`, an alias of `data`, and the comment.
        assert_eq!(written.lines().count(), settings().count(), "{written}");
        let plain = |text: &str| text.replace(['\'', '"', '\\'], "");
        for line in text.lines() {
            let line = line.trim_start();
            assert!(plain(&written).contains(&plain(line)), "{line} in {written}");
        }
    }

    #[test]
    fn large_seeds_are_read_again() {
        let config = TrainConfig {
            trainer: soybean_runtime::Config { seed: u64::MAX, ..Default::default() },
            ..TrainConfig::default()
        };
        assert_eq!(parse(&to_toml(&config)).unwrap().trainer.seed, u64::MAX);
        let error = parse("seed = 18446744073709551616").unwrap_err();
        assert_eq!(error, "1: seed: expected a whole number from 0, found `18446744073709551616`");
    }

    #[test]
    fn choices_of_programs_are_those_that_flags_can_make() {
        let new = TrainConfig::default;
        for (config, message) in [
            (
                TrainConfig { steps: Some(0), ..new() },
                "steps: expected a whole number from 1, found `0`",
            ),
            (
                TrainConfig { batch_limit: Some(0), ..new() },
                "batch-limit: expected a whole number from 1, found `0`",
            ),
            (
                TrainConfig { log_every: 0, ..new() },
                "log-every: expected a whole number from 1, found `0`",
            ),
            (
                TrainConfig { min_delta: f64::NAN, ..new() },
                "min-delta: expected a number from 0 to 3.4e38, found `NaN`",
            ),
            (TrainConfig::new(1, -0.5), "lr: expected a number from 0 to 3.4e38, found `-0.5`"),
        ] {
            assert_eq!(check(&config).unwrap_err(), message);
        }
        let schedule = Schedule { decay_every: Some(0), ..Schedule::default() };
        assert!(
            check(&TrainConfig { schedule, ..new() }).unwrap_err().starts_with("decay-every: ")
        );
        assert!(check(&TrainConfig { map: vec!["x".to_owned()], ..new() }).is_err());
        // 0 means never.
        check(&TrainConfig { patience: Some(0), evaluate_every: Some(0), ..new() }).unwrap();
    }

    #[test]
    fn strings_are_written_so_that_toml_reads_them() {
        for text in [" ", "a\"b\\c", "tab\tline\nbell\u{7}", "\u{7f}é\u{1f600}"] {
            let out = parse(&format!("out = {}", quoted(text))).unwrap().out.unwrap();
            assert_eq!(out.to_str(), Some(text));
        }
    }
}
