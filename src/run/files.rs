//! What a run leaves in its folder beside checkpoints: `metrics.jsonl`, TensorBoard's events, `metrics.csv` and `metrics.svg`.

use std::{
    fmt::Display,
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use soybean_runtime::{Error, ErrorKind};

use super::{events::Events, plot, record::Record};

/// The place of a run that goes on: what the files say of later steps is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The steps that were made.
    pub(crate) step: u64,
    /// Whether the evaluation behind the last of them, if there was to be one, is still to be made.
    pub(crate) before_evaluation: bool,
}

/// The files of a run that is under way.
pub(crate) struct Files {
    folder: PathBuf,
    lines: File,
    events: Events,
}

impl Files {
    /// Begins the files of a new run, or goes on with those of an old one.
    pub(crate) fn open(folder: &Path, cut: Option<Cut>) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(|it| fault(folder, &it))?;
        let path = folder.join(LINES);
        let kept = match cut {
            Some(cut) => lines(folder)?.into_iter().filter(|it| is_before(it, cut)).collect(),
            None => {
                remove_events(folder).map_err(|it| fault(folder, &it))?;
                Vec::new()
            }
        };
        let text: String = kept.iter().map(|it| it.line() + "\n").collect();
        write_whole(&path, &text)?;
        let open = || OpenOptions::new().append(true).open(&path);
        let events = Events::create(folder, cut.map_or(0, |it| it.step));
        Ok(Self {
            folder: folder.to_owned(),
            lines: open().map_err(|it| fault(&path, &it))?,
            events: events.map_err(|it| fault(folder, &it))?,
        })
    }

    /// Adds a line, in one piece.
    pub(crate) fn add(&mut self, record: &Record) -> Result<(), Error> {
        let line = record.line() + "\n";
        self.lines.write_all(line.as_bytes()).map_err(|it| fault(&self.folder.join(LINES), &it))?;
        self.events.add(record).map_err(|it| fault(&self.folder, &it))
    }

    /// Waits until the lines are on the disk, so that a checkpoint has all lines before it.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        self.lines.sync_data().map_err(|it| fault(&self.folder.join(LINES), &it))
    }

    /// Writes the table and the plots of all lines.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        let records = lines(&self.folder)?;
        write_whole(&self.folder.join("metrics.csv"), &plot::csv(&records))?;
        let path = self.folder.join("metrics.svg");
        let drawing = plot::svg(&records).map_err(|it| fault(&path, &it))?;
        write_whole(&path, &drawing)
    }
}

const LINES: &str = "metrics.jsonl";

/// The records of a folder. A line that is not whole was being written when a run ended.
fn lines(folder: &Path) -> Result<Vec<Record>, Error> {
    let path = folder.join(LINES);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read(&path).map_err(|it| fault(&path, &it))?;
    Ok(String::from_utf8_lossy(&text).lines().filter_map(Record::read).collect())
}

fn is_before(record: &Record, cut: Cut) -> bool {
    match record {
        Record::Evaluation(it) if it.step == cut.step => !cut.before_evaluation,
        Record::Step(_) | Record::Evaluation(_) => record.step() <= cut.step,
    }
}

/// Removes the events of an earlier run, whose curves would mix with those of this one.
fn remove_events(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("events.out.tfevents.") && name.ends_with(".soybean") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Writes a file so that it is there as a whole, or as it was before.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<(), Error> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let write = || {
        fs::write(&temporary, text)?;
        fs::rename(&temporary, path)
    };
    write().map_err(|it: std::io::Error| {
        // What is left of it is of no use, on a full disk least of all.
        let _ = fs::remove_file(&temporary);
        fault(path, &it)
    })
}

fn fault(path: &Path, found: &dyn Display) -> Error {
    Error::new(ErrorKind::Output, format!("cannot write {}: {found}", path.display()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::run::record::tests::{evaluation, step};

    /// An empty folder for a test.
    pub(crate) fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("soybean-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
        folder
    }

    fn written(folder: &Path) -> Vec<(u64, bool)> {
        let is_step = |it: &Record| matches!(it, Record::Step(_));
        lines(folder).unwrap().iter().map(|it| (it.step(), is_step(it))).collect()
    }

    #[test]
    fn lines_behind_the_checkpoint_are_cut_off() {
        let folder = folder("lines");
        let mut files = Files::open(&folder, None).unwrap();
        for number in 1..=4 {
            files.add(&Record::Step(step(number))).unwrap();
            files.add(&Record::Evaluation(evaluation(number, Some(0.5)))).unwrap();
        }
        drop(files);
        // A line that was cut off by the end of the program.
        let torn = Record::Step(step(5)).line();
        let mut file = OpenOptions::new().append(true).open(folder.join(LINES)).unwrap();
        file.write_all(&torn.as_bytes()[..20]).unwrap();
        let all = |n| (1..=n).flat_map(|it| [(it, true), (it, false)]).collect::<Vec<_>>();
        assert_eq!(written(&folder), all(4));
        let mut files =
            Files::open(&folder, Some(Cut { step: 3, before_evaluation: false })).unwrap();
        assert_eq!(written(&folder), all(3));
        files.add(&Record::Step(step(4))).unwrap();
        Files::open(&folder, Some(Cut { step: 3, before_evaluation: true })).unwrap();
        assert_eq!(written(&folder), all(3)[..5]);
        files.finish().unwrap();
        assert!(folder.join("metrics.csv").exists() && folder.join("metrics.svg").exists());
        Files::open(&folder, None).unwrap();
        assert_eq!(written(&folder), []);
        let n_events = fs::read_dir(&folder)
            .unwrap()
            .filter(|it| it.as_ref().unwrap().file_name().to_string_lossy().contains("tfevents"));
        assert_eq!(n_events.count(), 1, "a new run has no events of an earlier one");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let folder = folder("blocked");
        fs::write(folder.join("file"), "").unwrap();
        let error = Files::open(&folder.join("file"), None).err().unwrap().to_string();
        assert!(error.starts_with("cannot write ") && error.contains("blocked"), "{error}");
    }
}
