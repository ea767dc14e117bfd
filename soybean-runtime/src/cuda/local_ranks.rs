//! The ranks of a model that run in this process.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

use super::{
    collective::CommunicationBackend,
    gpu::Gpu,
    interconnect,
    peers::{NoPeers, Peers},
};
use crate::ranks::Report;

/// The ranks that this process runs, and their GPUs.
pub(crate) struct LocalRanks {
    /// Rank numbers.
    pub(crate) ranks: Range<usize>,
    /// Ordinals of their GPUs. There may be fewer GPUs than ranks.
    pub(crate) gpus: Range<usize>,
    /// One report for each rank of all processes.
    pub(crate) reports: Arc<[Mutex<Report>]>,
    pub(crate) peers: Arc<dyn Peers>,
}

impl LocalRanks {
    /// Returns all ranks, for a single process.
    pub(crate) fn all(n_ranks: usize) -> Self {
        let reports = (0..n_ranks).map(|_| Mutex::new(Report::default())).collect();
        Self { ranks: 0..n_ranks, gpus: 0..n_ranks, reports, peers: Arc::new(NoPeers) }
    }

    /// Returns the reports of the local ranks.
    pub(crate) fn reports_here(&self) -> &[Mutex<Report>] {
        &self.reports[self.ranks.clone()]
    }

    /// Describes the devices in one line.
    pub(crate) fn device_line(&self, gpus: &[Arc<Gpu>], backend: CommunicationBackend) -> String {
        let n_ranks = self.reports.len();
        // With several processes, each rank has its own GPU.
        let n_gpus = if self.peers.exist() { n_ranks } else { gpus.len() };
        interconnect::device_line(&gpus[0], (n_ranks, n_gpus), backend)
    }
}
