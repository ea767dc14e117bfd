//! Rows in many files, of which few are in memory at a time.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use soybean_plan::random::mixed;

use crate::{
    ColumnSpec, Dataset, Error, Numbering, Pass, ViewMut,
    batch::lock,
    file::{named, unreadable},
    order::shuffle,
};

/// A function that opens one of the files, or the part of this number if files have several.
type OpenShard = dyn Fn(&Path, usize) -> Result<Arc<dyn Dataset>, Error> + Send + Sync;

/// The rows of many files, the *shards*, one file after the other.
///
/// A shuffled epoch visits the shards in a random order. It takes `n_buffered` of them at a time,
/// and visits their rows in a random order. Only shards that are needed are open or in memory, at
/// most twice `n_buffered`. The order depends on the seed and the epoch alone, so an epoch that is
/// resumed at a batch opens the shards from there on.
///
/// ```
/// use soybean_data::{Dataset, CsvSpec, Form, Shards, Table, files_matching};
///
/// # let folder = std::env::temp_dir().join(format!("soybean-shards-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// for number in 0..3 {
///     let name = folder.join(format!("part-{number}.csv"));
///     std::fs::write(name, "x,y\n1,2\n3,4\n").unwrap();
/// }
/// let spec = CsvSpec::named(["x"], "y", Form::Numbers { scale: 1.0 });
/// let files = files_matching(folder.join("part-*.csv"))?;
/// let shards = Shards::open(&files, 2, move |path| Table::from_csv(path, &spec))?;
/// assert_eq!(shards.n_rows(), 6);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), soybean_data::Error>(())
/// ```
///
/// Random changes such as [`Dataset::augment`] are made to the whole: a shard does not know the
/// pass.
pub struct Shards {
    shards: Vec<Shard>,
    n_rows: usize,
    layout: Layout,
    n_buffered: usize,
    open: Box<OpenShard>,
    /// The shards that were used last, the latest one at the end.
    held: Mutex<Vec<Held>>,
}

/// The columns that all files share, and what their integers mean.
#[derive(Default)]
struct Layout {
    columns: Vec<ColumnSpec>,
    numberings: Vec<Option<Numbering>>,
}

/// One of the files, or one of its parts.
struct Shard {
    path: PathBuf,
    part: usize,
    first_row: usize,
    n_rows: usize,
}

/// A shard in memory, or one that a thread opens. The other threads wait for it.
struct Held {
    number: usize,
    dataset: Arc<Mutex<Option<Arc<dyn Dataset>>>>,
}

impl Shards {
    /// Opens each file once, to count its rows.
    ///
    /// # Errors
    /// - If there is no file or `n_buffered` is 0.
    /// - If a file cannot be opened or has other columns than the first one.
    pub fn open<D: Dataset + 'static>(
        files: &[PathBuf],
        n_buffered: usize,
        open: impl Fn(&Path) -> Result<D, Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let mut layout: Option<Layout> = None;
        let count = |path: &PathBuf| {
            let dataset = open(path)?;
            layout.get_or_insert_with(|| Layout::of(&dataset)).check(path, &dataset)?;
            Ok((path.clone(), 0, dataset.n_rows()))
        };
        let counted = files.iter().map(count).collect::<Result<Vec<_>, Error>>()?;
        Self::new(counted, layout.unwrap_or_default(), n_buffered, move |path, _| open(path))
    }

    /// Takes files with known numbers of rows, as [`counts`](Self::counts) returns them. Only the
    /// first file is opened. The others are compared with these numbers when they are.
    ///
    /// # Errors
    /// - If there is no file or `n_buffered` is 0.
    /// - If the first file cannot be opened or has another number of rows.
    pub fn with_counts<D: Dataset + 'static>(
        counts: &[(PathBuf, usize)],
        n_buffered: usize,
        open: impl Fn(&Path) -> Result<D, Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let counted = counts.iter().map(|(path, n_rows)| (path.clone(), 0, *n_rows)).collect();
        Self::of_parts(counted, n_buffered, move |path, _| open(path))
    }

    /// Takes files and numbers of parts, each with its number of rows. Only the first part is
    /// opened.
    pub(super) fn of_parts<D: Dataset + 'static>(
        counted: Vec<(PathBuf, usize, usize)>,
        n_buffered: usize,
        open: impl Fn(&Path, usize) -> Result<D, Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let layout = match counted.first() {
            Some((path, part, _)) => Layout::of(&open(path, *part)?),
            None => Layout::default(),
        };
        let shards = Self::new(counted, layout, n_buffered, open)?;
        shards.shard(0)?;
        Ok(shards)
    }

    fn new<D: Dataset + 'static>(
        counted: Vec<(PathBuf, usize, usize)>,
        layout: Layout,
        n_buffered: usize,
        open: impl Fn(&Path, usize) -> Result<D, Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        if counted.is_empty() || n_buffered == 0 {
            let n = counted.len();
            return Err(Error::data(format!(
                "expected at least one file and one that is buffered, found {n} and {n_buffered}"
            )));
        }
        let (mut shards, mut first_row) = (Vec::new(), 0_usize);
        for (path, part, n_rows) in counted {
            let end = first_row.checked_add(n_rows).ok_or_else(|| {
                named(&path, "expected fewer rows than a program can count, found more")
            })?;
            shards.push(Shard { path, part, first_row, n_rows });
            first_row = end;
        }
        let open = move |path: &Path, part| -> Result<Arc<dyn Dataset>, Error> {
            Ok(Arc::new(open(path, part)?))
        };
        let (open, held) = (Box::new(open), Mutex::default());
        Ok(Self { shards, n_rows: first_row, layout, n_buffered, open, held })
    }

    /// Returns the files and their numbers of rows, for [`with_counts`](Self::with_counts).
    #[must_use]
    pub fn counts(&self) -> Vec<(PathBuf, usize)> {
        let files = self.shards.chunk_by(|one, next| one.path == next.path);
        files.map(|it| (it[0].path.clone(), it.iter().map(|it| it.n_rows).sum())).collect()
    }

    /// Returns a shard, from memory if it is there.
    fn shard(&self, number: usize) -> Result<Arc<dyn Dataset>, Error> {
        let mut held = lock(&self.held);
        let latest = match held.iter().position(|it| it.number == number) {
            Some(place) => held.remove(place),
            None => Held { number, dataset: Arc::default() },
        };
        let dataset = Arc::clone(&latest.dataset);
        held.push(latest);
        let n_most = self.n_buffered.saturating_mul(2);
        if held.len() > n_most {
            held.remove(0);
        }
        // Other shards can be opened while this one is.
        drop(held);
        let mut dataset = lock(&dataset);
        if let Some(dataset) = &*dataset {
            return Ok(Arc::clone(dataset));
        }
        let Shard { path, part, n_rows, .. } = &self.shards[number];
        let opened = (self.open)(path, *part)?;
        self.layout.check(path, &*opened)?;
        let found = opened.n_rows();
        if found != *n_rows {
            let message = format!("expected {n_rows} rows, as were counted, found {found}");
            return Err(named(path, &message));
        }
        Ok(Arc::clone(dataset.insert(opened)))
    }
}

impl Layout {
    fn of(dataset: &dyn Dataset) -> Self {
        let columns = dataset.columns().to_vec();
        Self { numberings: (0..columns.len()).map(|it| dataset.numbering(it)).collect(), columns }
    }

    /// Checks that another file has the same.
    fn check(&self, path: &Path, dataset: &dyn Dataset) -> Result<(), Error> {
        let (expected, found) = (self, Self::of(dataset));
        if expected.columns != found.columns {
            let text = |columns: &[ColumnSpec]| {
                let column =
                    |it: &ColumnSpec| format!("`{}` of {} {:?}", it.name, it.dtype, it.row);
                columns.iter().map(column).collect::<Vec<_>>().join(", ")
            };
            let (expected, found) = (text(&expected.columns), text(&found.columns));
            return Err(named(
                path,
                &format!("expected the columns of the first file, {expected}, found {found}"),
            ));
        }
        let numberings = expected.numberings.iter().zip(&found.numberings).zip(&self.columns);
        for ((expected, found), ColumnSpec { name, .. }) in numberings {
            let message = match (expected, found) {
                (Some(expected), Some(found)) => expected.difference(found),
                (None, None) => None,
                (Some(_), None) => Some("expected numbers with a meaning, found none".to_owned()),
                (None, Some(_)) => Some("expected numbers without a meaning, found one".to_owned()),
            };
            if let Some(message) = message {
                let message = format!("`{name}`: {message}, unlike in the first file");
                return Err(named(path, &message));
            }
        }
        Ok(())
    }
}

impl Dataset for Shards {
    fn n_rows(&self) -> usize {
        self.n_rows
    }

    fn columns(&self) -> &[ColumnSpec] {
        &self.layout.columns
    }

    fn numbering(&self, column: usize) -> Option<Numbering> {
        self.layout.numberings[column].clone()
    }

    fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error> {
        let of_row = |row: usize| self.shards.partition_point(|it| it.first_row <= row) - 1;
        let mut start = 0;
        for rows in rows.chunk_by(|one, next| of_row(*one) == of_row(*next)) {
            let number = of_row(rows[0]);
            let own: Vec<usize> =
                rows.iter().map(|it| it - self.shards[number].first_row).collect();
            let end = start + rows.len();
            let columns = into.iter_mut().zip(&self.layout.columns);
            let mut columns: Vec<ViewMut<'_>> = columns
                .map(|(view, it)| view.part(start * it.row_elements()..end * it.row_elements()))
                .collect();
            self.shard(number)?.read(&own, &mut columns)?;
            start = end;
        }
        Ok(())
    }

    fn shuffled(&self, pass: Pass) -> Option<Vec<usize>> {
        let key = mixed(mixed(pass.seed).wrapping_add(pass.epoch));
        let mut shards: Vec<usize> = (0..self.shards.len()).collect();
        shuffle(&mut shards, key);
        let mut order = Vec::with_capacity(self.n_rows);
        for buffered in shards.chunks(self.n_buffered) {
            let first = order.len();
            for Shard { first_row, n_rows, .. } in buffered.iter().map(|it| &self.shards[*it]) {
                order.extend(*first_row..first_row + n_rows);
            }
            shuffle(&mut order[first..], mixed(key ^ mixed(first as u64)));
        }
        Some(order)
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards")
            .field("n_files", &self.shards.len())
            .field("n_rows", &self.n_rows)
            .field("n_buffered", &self.n_buffered)
            .finish_non_exhaustive()
    }
}

/// Lists the files whose names match a pattern, sorted by name. In the last part of the path, `*`
/// matches any characters, and `?` one.
///
/// # Errors
/// If the folder cannot be read, or no file matches.
pub fn files_matching(pattern: impl AsRef<Path>) -> Result<Vec<PathBuf>, Error> {
    let pattern = pattern.as_ref();
    let folder = match pattern.parent() {
        Some(parent) if parent != Path::new("") => parent,
        Some(_) | None => Path::new("."),
    };
    let name: Vec<char> =
        pattern.file_name().unwrap_or_default().to_string_lossy().chars().collect();
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| unreadable(folder, &error))? {
        let path = entry.map_err(|error| unreadable(folder, &error))?.path();
        let file: Vec<char> =
            path.file_name().unwrap_or_default().to_string_lossy().chars().collect();
        if path.is_file() && matches(&name, &file) {
            found.push(path);
        }
    }
    found.sort_unstable();
    if found.is_empty() {
        return Err(named(pattern, "expected files whose names match, found none"));
    }
    Ok(found)
}

/// Returns whether a name matches a pattern.
fn matches(pattern: &[char], name: &[char]) -> bool {
    // The places after the last `*`, from which the rest is tried again.
    let (mut at, mut place, mut star) = (0, 0, None);
    while place < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, place));
                at += 1;
            }
            Some(it) if *it == '?' || *it == name[place] => (at, place) = (at + 1, place + 1),
            Some(_) | None => match star {
                Some((after, start)) => {
                    (at, place) = (after, start + 1);
                    star = Some((after, start + 1));
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|it| *it == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names() {
        let matches = |pattern: &str, name: &str| {
            matches(&pattern.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>())
        };
        for (pattern, name) in
            [("a*.u16", "a-01.u16"), ("*", ""), ("**", "x"), ("?-*-?", "a-b-c-d"), ("é?", "éa")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a*.u16", "a.u16.gz"), ("?", ""), ("", "x"), ("a?", "a")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
