//! The options of a compilation.

use soybean_plan::Precision;

use crate::{optimizer::Optimizer, tiling::SearchRequest};

/// The options of a compilation.
#[derive(Clone, Debug)]
pub struct Options {
    /// The model's name.
    pub name: String,
    /// The number of ranks.
    pub n_gpus: usize,
    /// The options of the search.
    pub search: SearchRequest,
    /// The precision in which products are computed.
    pub precision: Precision,
    /// The optimizer, which updates the parameters.
    pub optimizer: Optimizer,
}
