//! Evaluations: the loss and the metrics of held-out data.

use std::sync::Arc;

use soybean_plan::{Input, Tables};
use soybean_runtime::{
    Error, Evaluation, Trainer, View,
    data::{Batch, DataLoader, Dataset, LoaderOptions, Values},
};

use crate::non_finite::evaluation_error;

use super::{
    HeldOutBatch, Metric,
    batches::{batch_size, loader},
    config::one_entry,
    metric::{MetricAccumulator, ModelFacts},
    numberings::Numberings,
};

/// The result of the evaluation of a data set.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DatasetEvaluation {
    /// The mean loss over all samples. Where a number of the batch divides the loss, such as a
    /// count of labels, it is that of one batch with all samples.
    pub loss: f64,
    /// The metrics that apply to the model, by name.
    pub metrics: Vec<(String, f64)>,
}

impl DatasetEvaluation {
    /// Returns the metric of this name, if it has a value.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|it| it.0 == name).map(|it| it.1)
    }
}

/// Evaluates all rows of a data set, whose integers must mean what they meant in training.
pub(crate) fn evaluate_dataset(
    trainer: &mut Trainer,
    model: EvaluatedModel<'_>,
    dataset: &Arc<dyn Dataset>,
    numberings: &Numberings,
    metrics: &[Metric],
) -> Result<DatasetEvaluation, Error> {
    let tables = model.tables;
    trainer.together(one_entry(tables).and_then(|()| Metric::check_all(metrics)))?;
    let loader = batch_size(&tables.inputs).and_then(|batch_rows| {
        loader("evaluation", dataset, &tables.inputs, LoaderOptions::evaluation(batch_rows))
    });
    let mut loader = trainer.together(loader)?;
    let checked = numberings.check("evaluation", &**dataset, &tables.inputs);
    trainer.together(checked)?;
    let found = evaluate(trainer, &mut loader, model, metrics, &mut |_| false)?;
    Ok(found.expect("only `is_stopped` ends an evaluation"))
}

/// The parts of a model that an evaluation needs.
#[derive(Clone, Copy)]
pub(crate) struct EvaluatedModel<'a> {
    pub(crate) tables: &'a Tables,
    /// The model as text, from which errors name its tensors.
    pub(crate) recipe: &'a str,
}

/// Evaluates all batches of a loader. `is_stopped` receives the number of finished batches; if it
/// returns true, the result is `None`. A loss that is not finite is an error.
pub(crate) fn evaluate(
    trainer: &mut Trainer,
    loader: &mut DataLoader,
    EvaluatedModel { tables, recipe }: EvaluatedModel<'_>,
    metrics: &[Metric],
    is_stopped: &mut dyn FnMut(usize) -> bool,
) -> Result<Option<DatasetEvaluation>, Error> {
    let inputs = &tables.inputs;
    let mut sums = MetricAccumulator::new(metrics, &ModelFacts::new(tables));
    let mut total = WeighedLoss::default();
    loader.start(0, 0);
    for n_done in 0..loader.n_batches() {
        let batch = next_batch(loader);
        if trainer.any(is_stopped(n_done) || batch.is_err())? {
            return trainer.together(batch).map(|_| None);
        }
        let batch = batch?;
        let views = batch.views();
        let evaluation = trainer.evaluate(&views)?;
        if !evaluation.loss.is_finite() && evaluation.loss_weight != Some(0.0) {
            let error = evaluation_error(evaluation.loss, trainer, tables, recipe, &views);
            let message = format!("batch {} of an evaluation: {error}", n_done + 1);
            return Err(Error::new(error.kind(), message));
        }
        total.add(&WeighedLoss::of_samples(trainer, &batch, &evaluation, inputs)?);
        sums.add(&evaluation, &HeldOutBatch::new(inputs, &views, batch.n_valid));
    }
    let loss = total.mean()?;
    Ok(Some(DatasetEvaluation { loss, metrics: sums.values(loss) }))
}

/// Returns the names of the metrics that have a value for the first batch of a loader.
pub(crate) fn metrics_of_first_batch(
    trainer: &mut Trainer,
    loader: &mut DataLoader,
    tables: &Tables,
    metrics: &[Metric],
) -> Result<Vec<String>, Error> {
    let mut sums = MetricAccumulator::new(metrics, &ModelFacts::new(tables));
    loader.start(0, 0);
    let batch = next_batch(loader);
    let batch = trainer.together(batch)?;
    let views = batch.views();
    let evaluation = trainer.evaluate(&views)?;
    sums.add(&evaluation, &HeldOutBatch::new(&tables.inputs, &views, batch.n_valid));
    Ok(sums.values(f64::from(evaluation.loss)).into_iter().map(|it| it.0).collect())
}

fn next_batch(loader: &mut DataLoader) -> Result<Batch, Error> {
    loader.next().transpose().and_then(|batch| {
        batch.ok_or_else(|| Error::data("expected another batch, found the end of the data"))
    })
}

/// Runs `work` with the moving averages in place of the parameters, then restores the parameters
/// bit for bit, also after an error.
pub(crate) fn with_averages<T>(
    trainer: &mut Trainer,
    work: impl FnOnce(&mut Trainer) -> Result<T, Error>,
) -> Result<T, Error> {
    let plain = trainer.parameters()?;
    let averages = trainer.averaged_parameters()?;
    trainer.set_parameters(&averages)?;
    let outcome = work(trainer);
    let restored = trainer.set_parameters(&plain);
    // If both fail, the first error is the cause.
    outcome.and_then(|it| restored.map(|()| it))
}

/// The sum of losses of batches, each times its weight, and the sum of these weights.
#[derive(Clone, Copy, Debug, Default)]
struct WeighedLoss {
    sum: f64,
    weight: f64,
}

impl WeighedLoss {
    /// Returns that of a batch with this number of rows: the loss is a mean over what its weight
    /// counts, or over the rows.
    fn new(evaluation: &Evaluation, n_rows: usize) -> Self {
        let weight = evaluation.loss_weight.map_or(n_rows as f64, f64::from);
        // A mean over nothing is no number.
        let sum = if weight == 0.0 { 0.0 } else { f64::from(evaluation.loss) * weight };
        Self { sum, weight }
    }

    /// Returns that of the samples of a batch, without the padding rows.
    ///
    /// Padding rows repeat the last sample. What they add to the sum and to the weight is their
    /// part of a batch of the last sample alone, which takes one more evaluation. This also holds
    /// for sums over rows and for terms that do not depend on the batch. It does not hold for
    /// losses that compare the rows of a batch with each other.
    fn of_samples(
        trainer: &mut Trainer,
        batch: &Batch,
        evaluation: &Evaluation,
        inputs: &[Input],
    ) -> Result<Self, Error> {
        let n_rows = inputs.first().map_or(0, |it| it.tile.shape[0]);
        let of_rows = Self::new(evaluation, n_rows);
        if batch.n_valid == n_rows {
            return Ok(of_rows);
        }
        let columns = batch.views();
        let last = columns.iter().map(|it| repeated(it, n_rows, batch.n_valid - 1));
        let last: Vec<Values> = last.collect();
        let views: Vec<View<'_>> = last.iter().map(Values::view).collect();
        let of_last = Self::new(&trainer.evaluate(&views)?, n_rows);
        let share = (n_rows - batch.n_valid) as f64 / n_rows as f64;
        Ok(Self {
            sum: of_rows.sum - share * of_last.sum,
            weight: of_rows.weight - share * of_last.weight,
        })
    }

    fn add(&mut self, other: &Self) {
        self.sum += other.sum;
        self.weight += other.weight;
    }

    /// Returns the mean; it is an error if nothing counts.
    fn mean(&self) -> Result<f64, Error> {
        if self.weight == 0.0 {
            return Err(Error::data(
                "expected samples that count in the loss, found none: all labels are ignored, or all weights are 0",
            ));
        }
        Ok(self.sum / self.weight)
    }
}

/// Returns a column in which every row is this row.
fn repeated(column: &View<'_>, n_rows: usize, row: usize) -> Values {
    let n = column.n_elements() / n_rows;
    match column {
        View::F32(elements) => Values::F32(elements[row * n..(row + 1) * n].repeat(n_rows)),
        View::I32(elements) => Values::I32(elements[row * n..(row + 1) * n].repeat(n_rows)),
    }
}
