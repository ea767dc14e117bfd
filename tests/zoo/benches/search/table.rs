//! The table of `docs/planner.md`, with rows in Markdown that are rewritten one by one.

use std::{collections::BTreeMap, error::Error, fmt, fs, path::Path};

use soybean_zoo::{Entry, ZOO};

/// The columns.
pub(crate) const HEADS: [&str; N_CELLS] = [
    "network",
    "GPUs",
    "auto, MB",
    "recursive, MB",
    "data, MB",
    "model, MB",
    "proof",
    "search, ms",
    "unoptimized, ms",
    "memory, MB",
    "work",
];
const N_CELLS: usize = 11;
/// The columns of times: each build measures one of them.
const TIMES: [usize; 2] = [7, 8];
/// The marks around the rewritten parts of the file.
const NETWORKS: [&str; 2] = ["<!-- networks -->", "<!-- end of networks -->"];
const TABLE: [&str; 2] = ["<!-- table -->", "<!-- end of table -->"];

/// A network on a number of GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row([String; N_CELLS]);

impl Row {
    pub(crate) fn new(
        network: &str,
        n_gpus: usize,
        found: &[String; 4],
        proof: String,
        times: &[String; 2],
        [memory, work]: [String; 2],
    ) -> Self {
        let [auto, recursive, data, model] = found.clone();
        let [optimized, unoptimized] = times.clone();
        Self([
            network.to_owned(),
            n_gpus.to_string(),
            auto,
            recursive,
            data,
            model,
            proof,
            optimized,
            unoptimized,
            memory,
            work,
        ])
    }

    fn parse(line: &str) -> Option<Self> {
        let cells: Vec<String> =
            line.trim().trim_matches('|').split('|').map(|it| it.trim().to_owned()).collect();
        cells.try_into().ok().map(Self)
    }

    /// Returns the position of the row: networks in the order of the zoo, then by GPUs. `None` if
    /// the line is not a row of a network.
    fn place(&self) -> Option<(usize, usize)> {
        let network = ZOO.iter().position(|it| it.name == self.0[0])?;
        Some((network, self.0[1].parse().ok()?))
    }

    /// Returns this row with the time that only the earlier row has, if both have the same result.
    fn with_times_of(mut self, earlier: &Self) -> Self {
        let is_time = |column: &usize| TIMES.contains(column);
        if (0..N_CELLS).filter(|it| !is_time(it)).any(|it| self.0[it] != earlier.0[it]) {
            return self;
        }
        for column in TIMES {
            if self.0[column].is_empty() {
                self.0[column].clone_from(&earlier.0[column]);
            }
        }
        self
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| {} |", self.0.join(" | "))
    }
}

/// Replaces the rows of a file's table with the same networks and GPUs, and the list of networks.
pub(crate) fn update(path: &Path, rows: &[Row]) -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(path)?;
    let text = replaced(&text, NETWORKS, |_| networks())?;
    let text = replaced(&text, TABLE, |table| updated(table, rows))?;
    fs::write(path, text)?;
    Ok(())
}

/// Replaces the text between two marks.
fn replaced(
    text: &str,
    [begin, end]: [&str; 2],
    part: impl Fn(&str) -> String,
) -> Result<String, String> {
    let marks = || format!("the file has no lines `{begin}` and `{end}`");
    let (before, rest) = text.split_once(begin).ok_or_else(marks)?;
    let (between, after) = rest.split_once(end).ok_or_else(marks)?;
    Ok(format!("{before}{begin}\n\n{}\n{end}{after}", part(between)))
}

fn networks() -> String {
    let row = |it: &Entry| format!("| {} | {} | {} |\n", it.name, it.sizes, it.optimizer);
    let rows: String = ZOO.iter().map(row).collect();
    format!("| network | sizes | optimizer |\n| --- | --- | --- |\n{rows}")
}

fn updated(table: &str, rows: &[Row]) -> String {
    let mut all: BTreeMap<(usize, usize), Row> =
        table.lines().filter_map(Row::parse).filter_map(|it| Some((it.place()?, it))).collect();
    for row in rows {
        let Some(place) = row.place() else { continue };
        let row = match all.get(&place) {
            Some(earlier) => row.clone().with_times_of(earlier),
            None => row.clone(),
        };
        all.insert(place, row);
    }
    let rule = HEADS.map(|it| if it == "network" || it == "proof" { "---" } else { "---:" });
    let mut text = format!("| {} |\n| {} |\n", HEADS.join(" | "), rule.join(" | "));
    for row in all.values() {
        text.push_str(&format!("{row}\n"));
    }
    text
}
