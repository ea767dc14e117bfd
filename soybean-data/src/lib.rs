//! Datasets, their readers, and the loader that makes batches of them.
//!
//! A [`Dataset`] has rows that are read by number. A [`DataLoader`] puts them into batches. Nothing
//! here knows devices or models.
//!
//! ```
//! use soybean_data::{Column, DataLoader, Dataset, LoaderOptions, Table, Values};
//!
//! let values = Values::F32((0..20).map(|it| it as f32).collect());
//! let x = Column { name: "x".to_owned(), row: vec![2], values };
//! let values = Values::I32((0..10).collect());
//! let y = Column { name: "y".to_owned(), row: vec![], values };
//! let (train, held_out) = Table::new(vec![x, y])?.split(0.2, 7);
//! assert_eq!((train.n_rows(), held_out.n_rows()), (8, 2));
//! let mut loader = DataLoader::new(train, LoaderOptions::training(4, 7))?;
//! for epoch in 0..2 {
//!     loader.start(epoch, 0);
//!     for batch in &mut loader {
//!         let batch = batch?;
//!         assert_eq!(batch.f32s(0).len(), 8);
//!         assert_eq!(batch.i32s(1).len(), 4);
//!     }
//! }
//! # Ok::<(), soybean_data::Error>(())
//! ```

mod array;
mod augmentation;
mod batch;
mod cifar;
mod csv;
mod dataset;
mod element;
mod file;
mod idx;
#[cfg(feature = "image")]
mod images;
mod joined;
mod json_lines;
mod limited_reader;
mod loader;
mod mixed;
mod named_column;
mod npy;
mod numbering;
mod one_hot;
mod order;
#[cfg(feature = "parquet")]
mod parquet;
mod positioned;
mod random;
mod records;
mod selected;
mod shards;
mod standardization;
mod subset;
mod table;
mod token_origin;
mod tokenizer;
#[cfg(feature = "tokenizers")]
mod tokenizer_file;
mod tokens;
mod transformed;

pub use augmentation::Augmentation;
pub use batch::Batch;
pub use cifar::CifarLabel;
pub use csv::{CsvColumn, CsvFields, CsvSpec};
pub use dataset::{ColumnSpec, Dataset, ViewMut};
pub use element::{ByteOrder, Element, ElementKind, Form};
pub use file::read_file;
pub use idx::IdxSpec;
#[cfg(feature = "image")]
pub use images::{Color, Fit, ImageFolder, ImageSpec};
pub use joined::Joined;
pub use json_lines::tokenize_json_lines;
pub use loader::{DataLoader, Last, LoaderOptions};
pub use mixed::{Mixed, Mixing};
pub use named_column::{FieldNames, NamedColumn};
pub use numbering::{Classes, Numbering};
pub use one_hot::OneHot;
pub use order::RowOrder;
#[cfg(feature = "parquet")]
pub use parquet::tokenize_parquet;
pub use random::{Pass, RowRandom};
pub use records::{Field, Records};
pub use selected::Selected;
pub use shards::{Shards, files_matching};
pub use soybean_plan::{Error, ErrorKind, View};
pub use standardization::Standardization;
pub use subset::Subset;
pub use table::{Column, Table, Values};
pub use tokenizer::{
    ByteTokenizer, SpecialTokens, TextField, Tokenizer, Vocabulary, tokenize_file,
};
#[cfg(feature = "tokenizers")]
pub use tokenizer_file::TokenizerFile;
pub use tokens::{TokenSpec, TokenWidth, Tokens};
pub use transformed::Transformed;
