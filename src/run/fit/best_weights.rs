//! The weights of the best evaluation, which a run may leave in its trainer.

use soybean_runtime::{Array, Error, Trainer, checkpoint::Checkpoint};

use crate::run::{TrainConfig, checkpoint_manager::CheckpointManager, progress::RunProgress};

/// The weights of the best evaluation so far, if the run restores them.
#[derive(Default)]
pub(super) struct BestWeights(Option<Vec<(String, Array)>>);

impl BestWeights {
    /// Returns the best weights of a run before it resumes from `resumed`, if its best checkpoint
    /// is kept.
    pub(super) fn before(
        trainer: &mut Trainer,
        config: &TrainConfig,
        progress: &RunProgress,
        resumed: Option<&Checkpoint>,
        checkpoints: Option<&CheckpointManager>,
    ) -> Result<Self, Error> {
        let mut best_weights = Self::default();
        let (Some(best_step), Some(resumed)) = (progress.best_step, resumed) else {
            return Ok(best_weights);
        };
        if !config.restore_best {
            return Ok(best_weights);
        }
        if best_step == progress.step {
            best_weights.keep(trainer, config)?;
            return Ok(best_weights);
        }
        let best = checkpoints.and_then(CheckpointManager::best).map(Checkpoint::open);
        let best = trainer.together(best.transpose())?;
        if let Some(best) = best {
            let of_best = trainer.restore(&best)?;
            if RunProgress::from_checkpoint(&of_best, trainer.n_steps()).step == best_step {
                best_weights.keep(trainer, config)?;
            }
            trainer.restore(resumed)?;
        }
        Ok(best_weights)
    }

    /// Copies the weights of the last evaluation: the parameters and buffers, or their averages.
    pub(super) fn keep(
        &mut self,
        trainer: &mut Trainer,
        config: &TrainConfig,
    ) -> Result<(), Error> {
        if config.restore_best {
            self.0 = Some(match config.evaluate_averages {
                true => trainer.averaged_parameters()?,
                false => trainer.parameters()?,
            });
        }
        Ok(())
    }

    /// Leaves the best weights in the trainer, if there are any.
    pub(super) fn restore(&mut self, trainer: &mut Trainer) -> Result<(), Error> {
        self.0.take().map_or(Ok(()), |weights| trainer.set_parameters(&weights))
    }
}
