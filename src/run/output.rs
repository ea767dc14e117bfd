//! The files of a run besides checkpoints: `config.toml`, `metrics.jsonl`, TensorBoard's events,
//! `metrics.csv` and `metrics.svg`.

use std::{
    fmt::Display,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use soybean_plan::open_file;
use soybean_runtime::{Error, ErrorKind, checkpoint::sync_folder};

use super::{plot, record::Record, tensorboard::EventFile};

/// The point from which a run resumes; metrics of later steps are truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResumePoint {
    /// The completed steps.
    pub(crate) step: u64,
    /// True if the evaluation after the last step is still due.
    pub(crate) before_evaluation: bool,
}

/// The open files of a run.
pub(crate) struct OutputFiles {
    folder: PathBuf,
    lines: File,
    events: EventFile,
}

impl OutputFiles {
    /// Opens the files of a new run, or those of an existing run. `choices` is the text of
    /// `config.toml`.
    pub(crate) fn open(
        folder: &Path,
        cut: Option<ResumePoint>,
        choices: &str,
    ) -> Result<Self, Error> {
        let path = folder.join(METRICS);
        // Appending to a named pipe waits for a reader.
        let earlier = path.exists().then(|| open_file(&path)).transpose();
        earlier.map_err(|it| write_error(&path, &it))?;
        let lines = OpenOptions::new().create(true).append(true).open(&path);
        let lines = lines.map_err(|it| write_error(&path, &it))?;
        if let Some(cut) = cut {
            truncate(&path, &lines, cut).map_err(|it| write_error(&path, &it))?;
        }
        let events = EventFile::create(folder, cut.map_or(0, |it| it.step));
        let events = events.map_err(|it| write_error(folder, &it))?;
        write_atomically(&folder.join(CONFIG), choices.as_bytes())?;
        Ok(Self { folder: folder.to_owned(), lines, events })
    }

    /// Appends a line in one write.
    pub(crate) fn add(&mut self, record: &Record) -> Result<(), Error> {
        let line = record.line() + "\n";
        self.lines
            .write_all(line.as_bytes())
            .map_err(|it| write_error(&self.folder.join(METRICS), &it))?;
        self.events.add(record).map_err(|it| write_error(&self.folder, &it))
    }

    /// Flushes the lines to the disk, so that a checkpoint has all lines before it.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        self.lines.sync_data().map_err(|it| write_error(&self.folder.join(METRICS), &it))
    }

    /// Writes the table and the plots of all lines.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        let records = lines(&self.folder)?;
        write_atomically(&self.folder.join(TABLE), plot::csv(&records).as_bytes())?;
        write_atomically(&self.folder.join(PLOTS), plot::svg(&records).as_bytes())
    }
}

pub(crate) const CONFIG: &str = "config.toml";
const OLD_CONFIG: &str = "config.old";
pub(crate) const METRICS: &str = "metrics.jsonl";
const TABLE: &str = "metrics.csv";
const PLOTS: &str = "metrics.svg";

/// Returns the file with the settings of a run.
pub(crate) fn config_file(out: &Path) -> PathBuf {
    out.join(CONFIG)
}

/// Copies `config.toml` to the first of `config.old.toml`, `config.old.2.toml`, .. that does not
/// exist, and returns its path.
pub(crate) fn keep_config(folder: &Path) -> Result<PathBuf, Error> {
    let path = folder.join(CONFIG);
    let text = fs::read(&path).map_err(|it| write_error(&path, &it))?;
    let mut names = (1..).map(|number| match number {
        1 => format!("{OLD_CONFIG}.toml"),
        _ => format!("{OLD_CONFIG}.{number}.toml"),
    });
    let is_free = |it: &PathBuf| it.symlink_metadata().is_err();
    let kept = names.find_map(|it| Some(folder.join(it)).filter(is_free)).unwrap_or_default();
    write_atomically(&kept, &text)?;
    Ok(kept)
}

/// Returns true if a run writes a file of this name.
pub(crate) fn is_run_file(name: &str) -> bool {
    let is_events = name.starts_with("events.out.tfevents.") && name.ends_with(".soybean");
    let is_old_config = name.starts_with(OLD_CONFIG) && name.ends_with(".toml");
    is_events || is_old_config || [CONFIG, METRICS, TABLE, PLOTS].contains(&name)
}

/// Reads the records of a folder.
fn lines(folder: &Path) -> Result<Vec<Record>, Error> {
    let path = folder.join(METRICS);
    let text = fs::read(&path).map_err(|it| write_error(&path, &it))?;
    Ok(String::from_utf8_lossy(&text).lines().filter_map(Record::read).collect())
}

fn is_before(record: &Record, cut: ResumePoint) -> bool {
    match record {
        Record::Evaluation(it) if it.step == cut.step => !cut.before_evaluation,
        Record::Step(_) | Record::Evaluation(_) => record.step() <= cut.step,
    }
}

/// Truncates the file at the first line after the resume point, or at a partial line. Earlier lines
/// stay, also those of other programs.
fn truncate(path: &Path, file: &File, cut: ResumePoint) -> io::Result<()> {
    let text = fs::read(path)?;
    let stays = |line: &&[u8]| {
        let record = Record::read(&String::from_utf8_lossy(line));
        line.ends_with(b"\n") && record.is_none_or(|it| is_before(&it, cut))
    };
    let n_bytes: usize =
        text.split_inclusive(|it| *it == b'\n').take_while(stays).map(<[u8]>::len).sum();
    file.set_len(n_bytes as u64)?;
    file.sync_all()
}

/// Replaces a file atomically.
fn write_atomically(path: &Path, text: &[u8]) -> Result<(), Error> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let write = || {
        // A killed run may have left it. Only a new file is certainly not another's, or a link.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        path.parent().map_or(Ok(()), sync_folder)
    };
    write().map_err(|it: io::Error| {
        // A partial file is useless, and the disk may be full.
        let _ = fs::remove_file(&temporary);
        write_error(path, &it)
    })
}

pub(crate) fn write_error(path: &Path, found: &dyn Display) -> Error {
    Error::new(ErrorKind::Output, format!("cannot write {}: {found}", path.display()))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ops::Deref;

    use super::*;
    use crate::run::record::tests::{evaluation, step};

    /// A folder that is removed when a test ends.
    pub(crate) struct TestFolder(PathBuf);

    impl Deref for TestFolder {
        type Target = Path;
        fn deref(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for TestFolder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Returns an empty folder for a test.
    pub(crate) fn folder(name: &str) -> TestFolder {
        let folder = std::env::temp_dir().join(format!("soybean-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
        TestFolder(folder)
    }

    fn written(folder: &Path) -> Vec<(u64, bool)> {
        let is_step = |it: &Record| matches!(it, Record::Step(_));
        lines(folder).unwrap().iter().map(|it| (it.step(), is_step(it))).collect()
    }

    #[test]
    fn lines_behind_the_checkpoint_are_cut_off() {
        let folder = folder("lines");
        let mut files = OutputFiles::open(&folder, None, "").unwrap();
        for number in 1..=4 {
            files.add(&Record::Step(step(number))).unwrap();
            files.add(&Record::Evaluation(evaluation(number, Some(0.5)))).unwrap();
        }
        drop(files);
        // A partial line, as left by a killed program.
        let torn = Record::Step(step(5)).line();
        let mut file = OpenOptions::new().append(true).open(folder.join(METRICS)).unwrap();
        file.write_all(&torn.as_bytes()[..20]).unwrap();
        let all = |n| (1..=n).flat_map(|it| [(it, true), (it, false)]).collect::<Vec<_>>();
        assert_eq!(written(&folder), all(4));
        let open = |step, before_evaluation| {
            OutputFiles::open(&folder, Some(ResumePoint { step, before_evaluation }), "").unwrap()
        };
        drop(open(4, false));
        let text = fs::read_to_string(folder.join(METRICS)).unwrap();
        assert!(
            text.ends_with('\n') && written(&folder) == all(4),
            "the torn line is gone: {text}"
        );
        let mut files = open(3, false);
        assert_eq!(written(&folder), all(3));
        files.add(&Record::Step(step(4))).unwrap();
        open(3, true);
        assert_eq!(written(&folder), all(3)[..5]);
        files.finish().unwrap();
        assert!(folder.join(TABLE).exists() && folder.join(PLOTS).exists());
    }

    /// Lines of other programs and versions are not rewritten.
    #[test]
    fn lines_before_the_checkpoint_stay_as_they_are() {
        let folder = folder("other-lines");
        let (first, second) = (Record::Step(step(1)).line(), Record::Step(step(2)).line());
        let kept = format!("{{\"kind\": \"note\"}}\n  {first} \n\n");
        fs::write(folder.join(METRICS), format!("{kept}{second}\n{{\"kind\": \"note\"}}\n"))
            .unwrap();
        OutputFiles::open(&folder, Some(ResumePoint { step: 1, before_evaluation: false }), "")
            .unwrap();
        assert_eq!(fs::read_to_string(folder.join(METRICS)).unwrap(), kept);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let folder = folder("blocked");
        fs::write(folder.join("file"), "").unwrap();
        let error = OutputFiles::open(&folder.join("file"), None, "").err().unwrap().to_string();
        assert!(error.starts_with("cannot write ") && error.contains("blocked"), "{error}");
    }
}
