//! Tests of datasets and loaders from the outside.
#![expect(clippy::unwrap_used, reason = "tests")]

mod augmentation;
mod csv;
mod files;
mod fuzz;
#[cfg(feature = "image")]
mod images;
mod loader;
mod shards;
