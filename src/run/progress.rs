//! The progress of a run between two steps, which a checkpoint stores in addition to the trainer's
//! state.

use serde_json::{Map, Value};
use soybean_runtime::checkpoint::Progress;

use super::metric::Better;

/// The progress of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RunProgress {
    /// The number of the epoch, from 0.
    pub(crate) epoch: u64,
    /// Steps completed in the epoch.
    pub(crate) batch: u64,
    /// Steps completed.
    pub(crate) step: u64,
    /// Steps of an epoch.
    pub(crate) n_batches: u64,
    /// The sum of the losses of this epoch's steps, and their number.
    pub(crate) loss_sum: f64,
    pub(crate) n_losses: u64,
    /// Skipped updates.
    pub(crate) n_skipped: u64,
    /// The metric that selects the best checkpoint; empty if a checkpoint does not have it.
    pub(crate) watch: String,
    pub(crate) best: Option<f64>,
    pub(crate) best_step: Option<u64>,
    /// Evaluations since the best one.
    pub(crate) n_worse: u64,
    /// True if the run was stopped before the end of its last step: the evaluation and the
    /// checkpoint after it are still due.
    pub(crate) is_pending: bool,
}

impl RunProgress {
    /// Returns the progress as a checkpoint stores it.
    pub(crate) fn to_checkpoint(&self, seed: u64) -> Progress {
        let mut extra = Map::new();
        let mut put = |key: &str, value: Value| {
            extra.insert(key.to_owned(), value);
        };
        put("step", self.step.into());
        put("n_batches", self.n_batches.into());
        put("loss_sum", self.loss_sum.into());
        put("n_losses", self.n_losses.into());
        put("n_skipped", self.n_skipped.into());
        put("n_worse", self.n_worse.into());
        put("is_pending", self.is_pending.into());
        put("watch", self.watch.clone().into());
        if let (Some(best), Some(step)) = (self.best, self.best_step) {
            put("best", best.into());
            put("best_step", step.into());
        }
        Progress { epoch: self.epoch, batch: self.batch, seed, extra }
    }

    /// Restores the progress from a checkpoint after `n_steps` steps. Values that other programs do
    /// not write are those at the start of an epoch.
    pub(crate) fn from_checkpoint(progress: &Progress, n_steps: u64) -> Self {
        let whole = |key: &str| progress.extra.get(key).and_then(Value::as_u64);
        let number = |key: &str| progress.extra.get(key).and_then(Value::as_f64);
        let text = |key: &str| progress.extra.get(key).and_then(Value::as_str);
        let is = |key: &str| progress.extra.get(key).and_then(Value::as_bool).unwrap_or_default();
        Self {
            epoch: progress.epoch,
            batch: progress.batch,
            step: whole("step").unwrap_or(n_steps),
            n_batches: whole("n_batches").unwrap_or_default(),
            loss_sum: number("loss_sum").unwrap_or_default(),
            n_losses: whole("n_losses").unwrap_or_default(),
            n_skipped: whole("n_skipped").unwrap_or_default(),
            watch: text("watch").unwrap_or_default().to_owned(),
            best: number("best"),
            best_step: whole("best_step"),
            n_worse: whole("n_worse").unwrap_or_default(),
            is_pending: is("is_pending"),
        }
    }

    /// Sets the metric that selects the best checkpoint. If it was another one, the best value is
    /// reset and the earlier metric is returned.
    pub(crate) fn set_monitored(&mut self, what: &str) -> Option<String> {
        let before = std::mem::replace(&mut self.watch, what.to_owned());
        if before.is_empty() || before == what {
            return None;
        }
        (self.best, self.best_step, self.n_worse) = (None, None, 0);
        Some(before)
    }

    /// Records an evaluation. Returns true if it is the best so far.
    pub(crate) fn update_best(&mut self, value: f64, better: Better, min_delta: f64) -> bool {
        let is_better = value.is_finite()
            && self.best.is_none_or(|best| match better {
                Better::Higher => value > best + min_delta,
                Better::Lower => value < best - min_delta,
            });
        if is_better {
            (self.best, self.best_step, self.n_worse) = (Some(value), Some(self.step), 0);
        } else {
            self.n_worse += 1;
        }
        is_better
    }

    /// Returns the mean loss of this epoch's steps so far.
    pub(crate) fn mean_loss(&self) -> f64 {
        self.loss_sum / self.n_losses as f64
    }

    /// Starts the next epoch.
    pub(crate) const fn end_epoch(&mut self) {
        self.epoch += 1;
        (self.batch, self.loss_sum, self.n_losses) = (0, 0.0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_store_the_progress() {
        let progress = RunProgress {
            epoch: 3,
            batch: 7,
            step: 142,
            n_batches: 45,
            loss_sum: 0.1 + 0.2,
            n_losses: 7,
            n_skipped: 1,
            watch: "accuracy".to_owned(),
            best: Some(1.0 / 3.0),
            best_step: Some(135),
            n_worse: 2,
            is_pending: true,
        };
        let saved = progress.to_checkpoint(5);
        let text = Value::Object(saved.extra.clone()).to_string();
        let extra = serde_json::from_str(&text).unwrap();
        let again = Progress { extra, ..saved.clone() };
        assert_eq!(RunProgress::from_checkpoint(&again, 0), progress, "{text}");
        assert_eq!((saved.epoch, saved.batch, saved.seed), (3, 7, 5));
        let foreign = Progress { epoch: 2, ..Progress::default() };
        assert_eq!(
            RunProgress::from_checkpoint(&foreign, 90),
            RunProgress { epoch: 2, step: 90, ..RunProgress::default() }
        );
    }

    #[test]
    fn another_metric_resets_the_best() {
        let mut progress = RunProgress { best: Some(0.5), n_worse: 2, ..RunProgress::default() };
        assert_eq!((progress.set_monitored("loss"), progress.set_monitored("loss")), (None, None));
        assert_eq!((progress.best, progress.n_worse), (Some(0.5), 2));
        assert_eq!(progress.set_monitored("accuracy").as_deref(), Some("loss"));
        assert_eq!((progress.best, progress.n_worse), (None, 0));
    }

    #[test]
    fn evaluations_are_compared_with_the_best() {
        let mut progress = RunProgress::default();
        let mut update = |value| {
            progress.step += 1;
            progress.update_best(value, Better::Lower, 0.1)
        };
        let better = [0.9, 0.85, 0.79, 0.8, f64::NAN, 0.5].map(&mut update);
        assert_eq!(better, [true, false, true, false, false, true]);
        assert_eq!((progress.best, progress.best_step, progress.n_worse), (Some(0.5), Some(6), 0));
        let mut progress = RunProgress::default();
        let better = [0.5, 0.7, 0.7].map(|value| progress.update_best(value, Better::Higher, 0.0));
        assert_eq!((better, progress.n_worse), ([true, true, false], 1));
    }
}
