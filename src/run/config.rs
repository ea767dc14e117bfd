//! The settings of a run.

mod device;
#[cfg(test)]
mod documentation;
mod file;
mod files;
pub(crate) mod setting;
pub(crate) mod settings;
mod training;

use std::path::PathBuf;

use soybean_runtime::{Config, Error, ErrorKind};

use super::{Metric, Schedule, metric::Facts};

/// All choices of a run: what the flags of `train` set, and the keys of its files.
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
    /// What the trainer is made with: device, threads, the seed, and the learning rate, of which schedules are a part.
    pub trainer: Config,
    /// What the loading function of a command line is told.
    pub data: DataOptions,
    /// The number of passes over the training data, unless `steps` says something else.
    pub epochs: u64,
    /// The number of training steps; the epochs are as many as these take.
    pub steps: Option<u64>,
    /// At most this many batches in each epoch.
    pub batch_limit: Option<u64>,
    /// The learning rate of each step.
    pub schedule: Schedule,
    /// Steps between evaluations, beside those at the ends of epochs.
    pub evaluate_every: Option<u64>,
    /// Whether evaluations take the moving averages of the parameters, which the model has to keep (`ema = 0.999`), instead of the parameters.
    pub evaluate_averages: bool,
    /// What evaluations measure beside the loss.
    pub metrics: Vec<Metric>,
    /// The name of the metric by which the best checkpoint is chosen and the run stopped early; the held-out loss if it is `loss` or `None`.
    pub watch: Option<String>,
    /// The run ends after this many evaluations in a row that are no better than the best before them; never if it is 0.
    pub patience: Option<u64>,
    /// By how much an evaluation has to be better to count as better.
    pub min_delta: f64,
    /// The folder of all that the run writes; nothing is written if `None`.
    pub out: Option<PathBuf>,
    /// Steps between lines of `metrics.jsonl` and points of TensorBoard's curves.
    pub log_every: u64,
    /// Whether checkpoints are written: at the ends of epochs, at the best evaluations and where the run is stopped.
    pub checkpoints: bool,
    /// Steps between further checkpoints.
    pub checkpoint_every: Option<u64>,
    /// The number of checkpoints that are kept; all if it is 0. The best one is kept beside them.
    pub keep: usize,
    /// Whether training goes on while a checkpoint is written.
    pub async_checkpoint: bool,
    /// Where the run goes on.
    pub resume: Resume,
    /// A safetensors file whose weights the run starts with.
    pub weights: Option<PathBuf>,
    /// What the weights of that file are called here: `theirs = ours`, each.
    pub map: Vec<String>,
    /// The number of threads that read batches ahead.
    pub loader_threads: usize,
    /// Where a trace of one of the first steps goes.
    pub trace: Option<PathBuf>,
}

/// The arguments of the function that loads the data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataOptions {
    /// The file given with `--data`, or the folder given with `--data-dir`.
    pub path: Option<PathBuf>,
    /// The seed given with `--seed`, for data that are drawn or split at random.
    pub seed: u64,
}

/// Where a run goes on.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Resume {
    /// It starts anew. What an earlier run left in its folder is moved aside.
    #[default]
    Never,
    /// At the newest checkpoint of its folder that is whole; it starts anew if there is none.
    Auto,
    /// At this checkpoint.
    From(PathBuf),
}

impl TrainConfig {
    /// A run of so many epochs with this learning rate, and the usual choices otherwise.
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
            out: None,
            log_every: 10,
            checkpoints: true,
            checkpoint_every: None,
            keep: 3,
            async_checkpoint: false,
            resume: Resume::Never,
            weights: None,
            map: Vec::new(),
            loader_threads: 1,
            trace: None,
        }
    }

    /// The metric that is watched, which must say something of the model; none if it is the held-out loss.
    pub(crate) fn watched_metric(&self, facts: &Facts<'_>) -> Result<Option<&Metric>, Error> {
        if self.watched() == LOSS {
            return Ok(None);
        }
        let suited = || self.metrics.iter().filter(|it| it.suits(facts));
        let found = suited().find(|it| it.name() == self.watched());
        found
            .map(Some)
            .ok_or_else(|| self.unwatched(&suited().map(Metric::name).collect::<Vec<_>>()))
    }

    /// The error where not the metric that is watched says something of the model, but these do.
    pub(crate) fn unwatched(&self, names: &[&str]) -> Error {
        let (names, found) = (names.join(", "), self.watched());
        choice(format!(
            "watch: expected {LOSS} or a metric that says something of this model ({names}), found `{found}`"
        ))
    }

    /// The name of what is watched.
    pub(crate) fn watched(&self) -> &str {
        self.watch.as_deref().unwrap_or(LOSS)
    }

    /// What is watched, and of which parameters: numbers of the same measure can be compared.
    pub(crate) fn measure(&self) -> String {
        let of = if self.evaluate_averages { " of averages" } else { "" };
        format!("{}{of}", self.watched())
    }
}

/// The name of the held-out loss where metrics have theirs.
pub(crate) const LOSS: &str = "loss";

impl Default for TrainConfig {
    fn default() -> Self {
        Self::new(10, 0.01)
    }
}

pub(crate) fn choice(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Choice, message)
}
