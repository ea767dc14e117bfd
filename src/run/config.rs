//! The settings of a run.

mod changes;
mod device;
#[cfg(test)]
mod documentation;
mod file;
mod files;
#[cfg(test)]
mod hostile;
pub(crate) mod setting;
pub(crate) mod settings;
mod training;

use std::path::PathBuf;

use soybean_runtime::{Config, Error, ErrorKind};

use super::{Metric, Schedule, metric::ModelFacts};

#[cfg(test)]
pub(crate) use changes::set_setting;
pub(crate) use changes::setting_values;
pub(crate) use file::one_entry;
pub(crate) use setting::OnResume;

/// The configuration of a run: the flags of `train`, and the keys of its TOML files.
///
/// ```
/// use soybean::{Curve, Schedule, TrainConfig};
///
/// let schedule = Schedule { curve: Curve::Cosine, warm_up: 100, ..Schedule::default() };
/// let config = TrainConfig { schedule, patience: Some(3), ..TrainConfig::new(20, 0.05) };
/// assert_eq!((config.epochs, config.trainer.learning_rate), (20, 0.05));
/// ```
#[derive(Clone, Debug)]
pub struct TrainConfig {
    /// Device, threads, seed and peak learning rate.
    pub trainer: Config,
    /// The arguments of the function that loads the data.
    pub data: DataOptions,
    /// Passes over the training data, unless `steps` is given.
    pub epochs: u64,
    /// Training steps; the number of epochs follows from it.
    pub steps: Option<u64>,
    /// Maximum number of batches in an epoch.
    pub batch_limit: Option<u64>,
    /// The learning rate of each step.
    pub schedule: Schedule,
    /// Steps between evaluations, in addition to those at the ends of epochs.
    pub evaluate_every: Option<u64>,
    /// If true, evaluations use the moving averages of the parameters. The model must keep them
    /// (`ema = 0.999`).
    pub evaluate_averages: bool,
    /// Metrics of evaluations, in addition to the loss.
    pub metrics: Vec<Metric>,
    /// The metric that selects the best checkpoint and stops the run early. `loss` or `None` is the
    /// held-out loss.
    pub watch: Option<String>,
    /// The run ends after this many consecutive evaluations without improvement. 0 or `None`
    /// disables it.
    pub patience: Option<u64>,
    /// The minimum improvement that counts.
    pub min_delta: f64,
    /// If true, the run leaves the weights of its best evaluation in the trainer, instead of the
    /// last ones. The optimizer's state remains that of the last step. It is no setting of files,
    /// since the run's checkpoints do not depend on it.
    pub restore_best: bool,
    /// The folder for all output; `None` writes nothing.
    pub out: Option<PathBuf>,
    /// Steps between lines of `metrics.jsonl` and points of TensorBoard's curves.
    pub log_every: u64,
    /// If true, checkpoints are written at the ends of epochs, at the best evaluations and when the
    /// run is stopped.
    pub checkpoints: bool,
    /// Steps between additional checkpoints.
    pub checkpoint_every: Option<u64>,
    /// The number of checkpoints that are kept, in addition to the best one; 0 keeps all.
    pub keep: usize,
    /// If true, training continues while a checkpoint is written.
    pub async_checkpoint: bool,
    /// The checkpoint from which the run resumes.
    pub resume: Resume,
    /// The settings and facts that may differ from the run that is resumed, by name, although its
    /// results depend on them: `lr`, `batch-size` or `training-data`, for example.
    pub allowed_changes: Vec<String>,
    /// A safetensors file with initial weights.
    pub weights: Option<PathBuf>,
    /// Names of the weights in that file: `theirs = ours`, each.
    pub map: Vec<String>,
    /// Threads that prefetch batches.
    pub loader_threads: usize,
    /// The file for a trace of one of the first steps.
    pub trace: Option<PathBuf>,
}

/// The arguments of the function that loads the data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataOptions {
    /// The path given with `--data` or `--data-dir`.
    pub path: Option<PathBuf>,
    /// The seed given with `--seed`, for random data and random splits.
    pub seed: u64,
    /// True with `--augment`: the training data are to be augmented, if the function can do so.
    pub augment: bool,
}

/// The checkpoint from which a run resumes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Resume {
    /// None: the run starts from scratch. The output of an earlier run is moved aside.
    #[default]
    Never,
    /// The newest valid checkpoint of the run's folder, if there is one.
    Auto,
    /// The newest valid checkpoint of the run's folder. It is an error if there is none.
    Must,
    /// This checkpoint.
    From(PathBuf),
}

impl TrainConfig {
    /// Returns a run of `epochs` with this peak learning rate and defaults otherwise.
    #[must_use]
    pub fn new(epochs: u64, learning_rate: f32) -> Self {
        Self {
            trainer: Config { learning_rate, ..Config::default() },
            data: DataOptions::default(),
            epochs,
            steps: None,
            batch_limit: None,
            schedule: Schedule::default(),
            evaluate_every: None,
            evaluate_averages: false,
            metrics: Metric::usual(),
            watch: None,
            patience: None,
            min_delta: 0.0,
            restore_best: false,
            out: None,
            log_every: 10,
            checkpoints: true,
            checkpoint_every: None,
            keep: 3,
            async_checkpoint: false,
            resume: Resume::Never,
            allowed_changes: Vec::new(),
            weights: None,
            map: Vec::new(),
            loader_threads: 1,
            trace: None,
        }
    }

    /// Returns the watched metric, or `None` for the held-out loss. It is an error if the metric
    /// does not apply to the model.
    pub(crate) fn watched_metric(&self, facts: &ModelFacts<'_>) -> Result<Option<&Metric>, Error> {
        if self.watched() == LOSS {
            return Ok(None);
        }
        let applicable = || self.metrics.iter().filter(|it| it.applies_to(facts));
        let found = applicable().find(|it| it.name() == self.watched());
        found
            .map(Some)
            .ok_or_else(|| self.unknown_metric(&applicable().map(Metric::name).collect::<Vec<_>>()))
    }

    /// Returns the error for a watched metric that is not among these names.
    pub(crate) fn unknown_metric(&self, names: &[&str]) -> Error {
        let (names, found) = (names.join(", "), self.watched());
        config_error(format!(
            "watch: expected {LOSS} or a metric that applies to this model ({names}), found `{found}`"
        ))
    }

    /// Returns the name of the watched metric.
    pub(crate) fn watched(&self) -> &str {
        self.watch.as_deref().unwrap_or(LOSS)
    }

    /// Returns the watched metric and whether it is of averages: values of equal measures can be
    /// compared.
    pub(crate) fn measure(&self) -> String {
        let of = if self.evaluate_averages { " of averages" } else { "" };
        format!("{}{of}", self.watched())
    }
}

/// The name of the held-out loss among metrics.
pub(crate) const LOSS: &str = "loss";

impl Default for TrainConfig {
    fn default() -> Self {
        Self::new(10, 0.01)
    }
}

pub(crate) fn config_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Choice, message)
}
