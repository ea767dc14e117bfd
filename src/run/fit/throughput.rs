//! Throughput of training steps.

use std::time::Duration;

/// Throughput since the last line, and since the start of the epoch or of the resumed run.
#[derive(Debug, Default)]
pub(super) struct Throughput {
    pub(super) since_line: ThroughputWindow,
    pub(super) of_epoch: ThroughputWindow,
}

/// Samples, and the time that they took.
#[derive(Debug, Default)]
pub(super) struct ThroughputWindow {
    n_samples: usize,
    busy: Duration,
    waited: Duration,
}

impl Throughput {
    pub(super) fn add(&mut self, n_samples: usize, busy: Duration, waited: Duration) {
        for stretch in [&mut self.since_line, &mut self.of_epoch] {
            stretch.n_samples += n_samples;
            stretch.busy += busy;
            stretch.waited += waited;
        }
    }
}

impl ThroughputWindow {
    pub(super) fn samples_per_second(&self) -> f64 {
        self.n_samples as f64 / self.busy.as_secs_f64().max(1e-9)
    }

    pub(super) fn data_wait(&self) -> f64 {
        self.waited.as_secs_f64() / self.busy.as_secs_f64().max(1e-9)
    }
}
