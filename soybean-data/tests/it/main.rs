//! Tests of datasets and loaders from the outside.
#![expect(clippy::unwrap_used, reason = "tests")]

mod augmentation;
mod csv;
mod files;
mod fuzz;
mod hostile;
#[cfg(feature = "image")]
mod images;
mod json_lines;
mod loader;
mod numbering;
#[cfg(feature = "parquet")]
mod parquet;
mod shards;
#[cfg(feature = "tokenizers")]
mod tokenizers;
