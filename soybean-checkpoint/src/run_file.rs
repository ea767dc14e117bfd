//! The file `run.json`: the counters, the progress, and the lengths and checksums of all files.
//!
//! The last member, on the last line but one, is the file's own checksum: the CRC-32 of all text
//! before that line.

use std::path::Path;

use serde::{Deserialize, Serialize};
use soybean_plan::caught;

use crate::{
    Counters, Error, Progress,
    naming::RUN_FILE,
    tensor_file::{Sum, checkpoint_error, text},
};

/// The value of `format`.
const FORMAT: &str = "soybean checkpoint 1";

/// The text before and after the eight digits of the checksum.
const CHECKSUM: (&str, &str) = ("  \"crc32\": \"", "\"\n}\n");

/// The contents of `run.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunFile {
    format: String,
    /// The name of the model.
    pub(crate) model: String,
    /// The counters of the trainer.
    pub(crate) counters: Counters,
    /// The progress of the run.
    pub(crate) progress: Progress,
    /// All other files.
    pub(crate) files: Vec<FileSum>,
    crc32: String,
}

/// The length and the checksum of a file of the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileSum {
    /// The name of the file within the folder.
    pub(crate) name: String,
    /// The length of the file.
    pub(crate) bytes: u64,
    /// The CRC-32 of the bytes, as eight hexadecimal digits.
    pub(crate) crc32: String,
}

impl FileSum {
    pub(crate) fn new(name: &str, sum: Sum) -> Self {
        Self { name: name.to_owned(), bytes: sum.n_bytes, crc32: digits(sum.crc32) }
    }

    /// Checks the length and the checksum of a file that was read.
    pub(crate) fn check(&self, path: &Path, found: Sum) -> Result<(), Error> {
        let (path, expected) = (path.display(), self);
        if found.n_bytes != expected.bytes {
            let (expected, found) = (expected.bytes, found.n_bytes);
            return Err(checkpoint_error(format!(
                "{path}: expected {expected} bytes, found {found}"
            )));
        }
        let (expected, found) = (&expected.crc32, digits(found.crc32));
        if *expected != found {
            return Err(checkpoint_error(format!(
                "{path}: expected bytes with the CRC-32 {expected}, found {found}"
            )));
        }
        Ok(())
    }
}

impl RunFile {
    pub(crate) fn new(model: &str, counters: Counters, progress: &Progress) -> Self {
        Self {
            format: FORMAT.to_owned(),
            model: model.to_owned(),
            counters,
            progress: progress.clone(),
            files: Vec::new(),
            crc32: digits(0),
        }
    }

    /// Returns the checksum of the file, which contains those of all other files.
    pub(crate) fn checksum(&self) -> &str {
        &self.crc32
    }

    /// Returns the text of the file.
    pub(crate) fn to_text(&self) -> Result<String, Error> {
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|error| checkpoint_error(format!("{RUN_FILE}: {error}")))?;
        text.push('\n');
        text.truncate(text.len() - CHECKSUM.0.len() - 8 - CHECKSUM.1.len());
        let sum = digits(crc32fast::hash(text.as_bytes()));
        Ok(format!("{text}{}{sum}{}", CHECKSUM.0, CHECKSUM.1))
    }

    /// Reads the file of a checkpoint's folder.
    pub(crate) fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(RUN_FILE);
        let text = text(&path)?;
        Self::parse(&text)
            .map_err(|message| checkpoint_error(format!("{}: {message}", path.display())))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let last = CHECKSUM.0.len() + 8 + CHECKSUM.1.len();
        let (summed, rest) = text
            .len()
            .checked_sub(last)
            .and_then(|at| text.split_at_checked(at))
            .ok_or_else(|| format!("expected a run, found {} bytes", text.len()))?;
        let found = rest.strip_prefix(CHECKSUM.0).and_then(|it| it.strip_suffix(CHECKSUM.1));
        let expected = digits(crc32fast::hash(summed.as_bytes()));
        if found != Some(expected.as_str()) {
            return Err(format!(
                "expected the checksum `crc32` of all text before it as the last member, {expected}, \
                 found {rest:?}"
            ));
        }
        let run = caught(|| serde_json::from_str(text).map_err(|it| it.to_string()));
        let run: Self = run.flatten()?;
        if run.format != FORMAT {
            return Err(format!("expected the format `{FORMAT}`, found `{}`", run.format));
        }
        Ok(run)
    }
}

fn digits(crc32: u32) -> String {
    format!("{crc32:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> RunFile {
        let mut progress = Progress { epoch: 3, batch: 5, seed: u64::MAX, ..Progress::default() };
        progress.extra.insert("best \"metric\"".to_owned(), (0.1_f64 + 0.2).into());
        RunFile::new("mlp", Counters { n_steps: 7, ..Counters::default() }, &progress)
    }

    #[test]
    fn what_was_written_is_read() {
        let text = run().to_text().unwrap();
        let read = RunFile::parse(&text).unwrap();
        let expected = RunFile { crc32: read.crc32.clone(), ..run() };
        assert_eq!(read, expected);
        assert!(text.ends_with(&format!("  \"crc32\": \"{}\"\n}}\n", read.crc32)));
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_refused() {
        let text = run().to_text().unwrap();
        for at in 0..text.len() {
            assert!(RunFile::parse(&text[..at]).is_err(), "{at}");
            for bit in 0..7 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let text = String::from_utf8(bytes).unwrap();
                assert!(RunFile::parse(&text).is_err(), "{at}, bit {bit}");
            }
        }
        assert!(RunFile::parse(&format!("{text}\n")).is_err());
    }

    #[test]
    fn other_formats_are_named() {
        let other = RunFile { format: "soybean checkpoint 2".to_owned(), ..run() };
        let error = RunFile::parse(&other.to_text().unwrap()).unwrap_err();
        assert_eq!(
            error,
            "expected the format `soybean checkpoint 1`, found `soybean checkpoint 2`"
        );
    }
}
