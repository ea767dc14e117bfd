//! The part of a model's ranks that is in this process.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

use super::{
    collective::Transport,
    connection,
    gpu::Gpu,
    others::{Nobody, Others},
};
use crate::ranks::Report;

/// Which of a model's ranks this process runs, and where.
pub(crate) struct Here {
    /// Their numbers.
    pub(crate) ranks: Range<usize>,
    /// The numbers of the GPUs that are theirs; there may be fewer.
    pub(crate) gpus: Range<usize>,
    /// One for each rank of all processes.
    pub(crate) reports: Arc<[Mutex<Report>]>,
    pub(crate) others: Arc<dyn Others>,
}

impl Here {
    /// All ranks.
    pub(crate) fn whole(n_ranks: usize) -> Self {
        let reports = (0..n_ranks).map(|_| Mutex::new(Report::default())).collect();
        Self { ranks: 0..n_ranks, gpus: 0..n_ranks, reports, others: Arc::new(Nobody) }
    }

    /// The reports of these ranks.
    pub(crate) fn own(&self) -> &[Mutex<Report>] {
        &self.reports[self.ranks.clone()]
    }

    /// What runs where, in one line.
    pub(crate) fn line(&self, gpus: &[Arc<Gpu>], transport: Transport) -> String {
        let n_ranks = self.reports.len();
        // In several processes each rank has its own.
        let n_gpus = if self.others.are_there() { n_ranks } else { gpus.len() };
        connection::line(&gpus[0], (n_ranks, n_gpus), transport)
    }
}
