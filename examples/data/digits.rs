//! The handwritten digits for the examples.

use std::path::{Path, PathBuf};

use soybean::{
    DataOptions, Error, Split,
    data::{CsvColumn, CsvSpec, Form, Table},
};

/// Loads the digits, or another file in the same format: 64 pixels from 0 to 16 and a class in each
/// line.
pub(crate) fn load(options: &DataOptions) -> Result<Split, Error> {
    let ours = || file("examples/data/digits.csv.gz");
    let form = CsvSpec {
        has_header: false,
        columns: vec![
            CsvColumn::new("features", 0..64, Form::Numbers { scale: 1.0 / 16.0 }),
            CsvColumn::new("label", 64, Form::Labels { n_classes: 10 }),
        ],
    };
    let table = Table::from_csv(options.path.clone().unwrap_or_else(ours), &form)?;
    Ok(Split::holding_out(0.2, table, options.seed))
}

/// Returns a file of the sources, or of the current folder if the program was built elsewhere.
fn file(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if source.exists() { source } else { name.into() }
}
