//! How fast steps are.

use std::time::Duration;

/// How fast steps are: since the last line, and since the epoch began or went on.
#[derive(Debug, Default)]
pub(super) struct Pace {
    pub(super) since_line: Stretch,
    pub(super) of_epoch: Stretch,
}

/// Steps, and the time that they took.
#[derive(Debug, Default)]
pub(super) struct Stretch {
    n_samples: usize,
    busy: Duration,
    waited: Duration,
}

impl Pace {
    pub(super) fn add(&mut self, n_samples: usize, busy: Duration, waited: Duration) {
        for stretch in [&mut self.since_line, &mut self.of_epoch] {
            stretch.n_samples += n_samples;
            stretch.busy += busy;
            stretch.waited += waited;
        }
    }
}

impl Stretch {
    pub(super) fn samples_per_second(&self) -> f64 {
        self.n_samples as f64 / self.busy.as_secs_f64().max(1e-9)
    }

    pub(super) fn data_wait(&self) -> f64 {
        self.waited.as_secs_f64() / self.busy.as_secs_f64().max(1e-9)
    }
}
