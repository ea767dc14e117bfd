//! The digits, for the examples that learn them.

use std::path::{Path, PathBuf};

use soybean::{
    DataOptions, Error, Split,
    data::{CsvSpec, Table},
};

/// The digits, or another file of the same form: 64 pixels from 0 to 16 and a class in each line.
pub(crate) fn load(options: &DataOptions) -> Result<Split, Error> {
    let ours = || file("examples/data/digits.csv.gz");
    let form = CsvSpec {
        has_header: false,
        n_fields: 65,
        features: 0..64,
        scale: 1.0 / 16.0,
        label: 64,
        n_classes: 10,
    };
    let table = Table::from_csv(options.path.clone().unwrap_or_else(ours), &form)?;
    Ok(Split::holding_out(0.2, table, options.seed))
}

/// A file of the sources, or of the current folder where the program runs elsewhere than it was built.
fn file(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if source.exists() { source } else { name.into() }
}
