//! The training data and the held-out data of a run.

use std::{fmt, sync::Arc};

use soybean_runtime::data::Dataset;

/// Training and held-out data. The columns are the model's inputs in the order of its function's
/// arguments; a row is one sample.
#[derive(Clone)]
pub struct Split {
    /// The data that the parameters are fitted to.
    pub train: Arc<dyn Dataset>,
    /// The data of evaluations.
    pub held_out: Arc<dyn Dataset>,
}

impl Split {
    /// Returns data that come in two parts.
    #[must_use]
    pub fn new(train: impl Dataset + 'static, held_out: impl Dataset + 'static) -> Self {
        Self { train: Arc::new(train), held_out: Arc::new(held_out) }
    }

    /// Holds out this fraction (0 to 1) of a data set, at random by the seed. Another fraction is
    /// an error of the run.
    #[must_use]
    pub fn holding_out(fraction: f64, dataset: impl Dataset + 'static, seed: u64) -> Self {
        let (train, held_out) = dataset.split(fraction, seed);
        Self::new(train, held_out)
    }
}

impl fmt::Debug for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Split")
            .field("n_train", &self.train.n_rows())
            .field("n_held_out", &self.held_out.n_rows())
            .finish()
    }
}
