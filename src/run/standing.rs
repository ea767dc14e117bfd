//! How a run stands between two steps: what a checkpoint keeps of it, beside the trainer's state.

use serde_json::{Map, Value};
use soybean_runtime::checkpoint::Progress;

use super::metric::Better;

/// How a run stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Standing {
    /// The number of the epoch, from 0.
    pub(crate) epoch: u64,
    /// The steps that were made in it.
    pub(crate) batch: u64,
    /// The steps that were made.
    pub(crate) step: u64,
    /// The steps of an epoch.
    pub(crate) n_batches: u64,
    /// The sum of the losses of this epoch's steps, and their number.
    pub(crate) loss_sum: f64,
    pub(crate) n_losses: u64,
    /// The updates that were left out.
    pub(crate) n_skipped: u64,
    /// By what the best is chosen; empty where a checkpoint does not say it.
    pub(crate) watch: String,
    pub(crate) best: Option<f64>,
    pub(crate) best_step: Option<u64>,
    /// The evaluations since the best one.
    pub(crate) n_worse: u64,
    /// Whether the run was stopped before what is to be done behind its last step.
    pub(crate) is_pending: bool,
}

impl Standing {
    /// What a checkpoint keeps.
    pub(crate) fn progress(&self, seed: u64) -> Progress {
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

    /// How the run stood that wrote a checkpoint after this many steps. What other programs' checkpoints do not say is as at the start of an epoch.
    pub(crate) fn of(progress: &Progress, n_steps: u64) -> Self {
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

    /// Says by what the best is chosen from here on. If it was something else, what was best counts no more; gives what that was.
    pub(crate) fn watch(&mut self, what: &str) -> Option<String> {
        let before = std::mem::replace(&mut self.watch, what.to_owned());
        if before.is_empty() || before == what {
            return None;
        }
        (self.best, self.best_step, self.n_worse) = (None, None, 0);
        Some(before)
    }

    /// Takes note of an evaluation; whether it is the best so far.
    pub(crate) fn judge(&mut self, value: f64, better: Better, min_delta: f64) -> bool {
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

    /// The mean loss of this epoch's steps so far.
    pub(crate) fn mean_loss(&self) -> f64 {
        self.loss_sum / self.n_losses as f64
    }

    /// Goes over to the next epoch.
    pub(crate) const fn end_epoch(&mut self) {
        self.epoch += 1;
        (self.batch, self.loss_sum, self.n_losses) = (0, 0.0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_keep_how_a_run_stands() {
        let standing = Standing {
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
        let progress = standing.progress(5);
        let text = Value::Object(progress.extra.clone()).to_string();
        let extra = serde_json::from_str(&text).unwrap();
        let again = Progress { extra, ..progress.clone() };
        assert_eq!(Standing::of(&again, 0), standing, "{text}");
        assert_eq!((progress.epoch, progress.batch, progress.seed), (3, 7, 5));
        let foreign = Progress { epoch: 2, ..Progress::default() };
        assert_eq!(
            Standing::of(&foreign, 90),
            Standing { epoch: 2, step: 90, ..Standing::default() }
        );
    }

    #[test]
    fn what_was_best_by_another_metric_counts_no_more() {
        let mut standing = Standing { best: Some(0.5), n_worse: 2, ..Standing::default() };
        assert_eq!((standing.watch("loss"), standing.watch("loss")), (None, None));
        assert_eq!((standing.best, standing.n_worse), (Some(0.5), 2));
        assert_eq!(standing.watch("accuracy").as_deref(), Some("loss"));
        assert_eq!((standing.best, standing.n_worse), (None, 0));
    }

    #[test]
    fn evaluations_are_compared_with_the_best() {
        let mut standing = Standing::default();
        let mut judge = |value| {
            standing.step += 1;
            standing.judge(value, Better::Lower, 0.1)
        };
        let better = [0.9, 0.85, 0.79, 0.8, f64::NAN, 0.5].map(&mut judge);
        assert_eq!(better, [true, false, true, false, false, true]);
        assert_eq!((standing.best, standing.best_step, standing.n_worse), (Some(0.5), Some(6), 0));
        let mut standing = Standing::default();
        let better = [0.5, 0.7, 0.7].map(|value| standing.judge(value, Better::Higher, 0.0));
        assert_eq!((better, standing.n_worse), ([true, true, false], 1));
    }
}
