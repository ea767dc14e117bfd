//! Metrics of evaluations: the built-in ones, and custom ones.

use std::{borrow::Cow, fmt, sync::Arc};

use soybean_plan::{Input, Tables};
use soybean_runtime::{Array, Error, ErrorKind, Evaluation, View};

/// A number that each evaluation computes.
///
/// ```
/// use soybean::Metric;
///
/// // The mean absolute error of the first output against the column `y`.
/// let error = Metric::new("absolute error", |evaluation, batch| {
///     let pairs = evaluation.outputs[0].data.iter().zip(batch.f32s("y")?);
///     let differences: Vec<f64> = pairs.map(|(a, b)| f64::from((a - b).abs())).collect();
///     Some(differences.iter().sum::<f64>() / differences.len() as f64)
/// });
/// assert_eq!(error.lower_is_better().name(), "absolute error");
/// ```
#[derive(Clone)]
pub struct Metric {
    name: Cow<'static, str>,
    better: Better,
    kind: MetricKind,
}

/// The direction of improvement of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Higher,
    Lower,
}

/// A custom function of one batch.
type BatchMetric = dyn Fn(&Evaluation, &HeldOutBatch<'_>) -> Option<f64> + Send + Sync;

#[derive(Clone)]
enum MetricKind {
    /// The fraction of labels among the `n` largest logits, for models with at least
    /// `least_classes`.
    Top { n: usize, least_classes: usize },
    /// The exponential of the loss, for samples with at least `least_labels`.
    Perplexity { least_labels: usize },
    /// The mean over the samples.
    Mean(Arc<BatchMetric>),
}

/// The samples of a batch of an evaluation, without padding.
#[derive(Clone, Copy, Debug)]
pub struct HeldOutBatch<'b> {
    /// The number of samples. Rows after these are padding.
    pub n_valid: usize,
    inputs: &'b [Input],
    views: &'b [View<'b>],
}

impl Metric {
    /// Returns a custom metric. The function returns the mean over the samples of a batch
    /// (`n_valid`), or `None` if there is no value. The metric is the mean over all samples; it has
    /// no value if a batch has none. A watched metric must have a value for the first batch and the
    /// initial parameters.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        batch_metric: impl Fn(&Evaluation, &HeldOutBatch<'_>) -> Option<f64> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            better: Better::Higher,
            kind: MetricKind::Mean(Arc::new(batch_metric)),
        }
    }

    /// Makes lower values better.
    #[must_use]
    pub fn lower_is_better(self) -> Self {
        Self { better: Better::Lower, ..self }
    }

    /// Returns the metric `accuracy`: the fraction of labels with the largest logit. The model's
    /// first output after the loss must be logits `[.., classes]`, and an input must have a label
    /// for each row of them.
    #[must_use]
    pub const fn accuracy() -> Self {
        let kind = MetricKind::Top { n: 1, least_classes: 0 };
        Self { name: Cow::Borrowed("accuracy"), better: Better::Higher, kind }
    }

    /// Returns the metric `top-n`: the fraction of labels among the `n` largest logits.
    #[must_use]
    pub fn top(n: usize) -> Self {
        let kind = MetricKind::Top { n, least_classes: 0 };
        Self { name: Cow::Owned(format!("top-{n}")), better: Better::Higher, kind }
    }

    /// Returns the metric `perplexity`: the exponential of the held-out loss, for losses that are
    /// mean cross-entropies.
    #[must_use]
    pub const fn perplexity() -> Self {
        let kind = MetricKind::Perplexity { least_labels: 0 };
        Self { name: Cow::Borrowed("perplexity"), better: Better::Lower, kind }
    }

    /// Returns the default metrics: `accuracy`, `top-5` for more than 20 classes, and `perplexity`
    /// for samples with several labels, such as texts.
    #[must_use]
    pub fn usual() -> Vec<Self> {
        let top = Self { kind: MetricKind::Top { n: 5, least_classes: 21 }, ..Self::top(5) };
        let perplexity = MetricKind::Perplexity { least_labels: 2 };
        vec![Self::accuracy(), top, Self { kind: perplexity, ..Self::perplexity() }]
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn better(&self) -> Better {
        self.better
    }

    /// Returns true if only the user's function decides whether there is a value.
    pub(crate) const fn is_custom(&self) -> bool {
        matches!(self.kind, MetricKind::Mean(_))
    }

    /// Checks the numbers of metrics.
    pub(crate) fn check_all(metrics: &[Self]) -> Result<(), Error> {
        let is_empty = |it: &&Self| matches!(it.kind, MetricKind::Top { n: 0, .. });
        match metrics.iter().find(is_empty) {
            Some(metric) => {
                let message = format!("metric `{}`: `n` must be at least 1, found 0", metric.name);
                Err(Error::new(ErrorKind::Choice, message))
            }
            None => Ok(()),
        }
    }

    /// Returns true if the metric applies to a model, as far as is known without an evaluation.
    pub(crate) fn applies_to(&self, facts: &ModelFacts<'_>) -> bool {
        match self.kind {
            MetricKind::Top { least_classes, .. } => {
                facts.labels.is_some_and(|it| it.n_classes >= least_classes)
            }
            MetricKind::Perplexity { least_labels } => {
                facts.labels_of_row().is_some_and(|it| it >= least_labels)
            }
            MetricKind::Mean(_) => true,
        }
    }
}

/// The properties of a model that decide which metrics apply.
#[derive(Clone, Copy)]
pub(crate) struct ModelFacts<'m> {
    inputs: &'m [Input],
    labels: Option<Labels>,
}

/// The input with the labels of the logits.
#[derive(Clone, Copy)]
struct Labels {
    column: usize,
    n_classes: usize,
    /// Labels that are not counted.
    ignored: Option<i32>,
}

impl<'m> ModelFacts<'m> {
    pub(crate) fn new(tables: &'m Tables) -> Self {
        let output = tables.predictions(0).first();
        Self::of(&tables.inputs, output.map_or(&[], |it| &it.tile.shape))
    }

    /// Returns the properties of a model whose first output after the loss has this shape.
    fn of(inputs: &'m [Input], output: &[usize]) -> Self {
        let labels = output.split_last().and_then(|(n_classes, rows)| {
            let n_rows: usize = rows.iter().product();
            let is_labels = |input: &Input| {
                input.n_classes == Some(*n_classes) && input.tile.shape.n_elements() == n_rows
            };
            let column = inputs.iter().rposition(is_labels)?;
            let ignored = inputs[column].ignored_label;
            Some(Labels { column, n_classes: *n_classes, ignored })
        });
        Self { inputs, labels }
    }

    /// Returns the number of labels of a sample: the elements of the last input with classes.
    fn labels_of_row(&self) -> Option<usize> {
        let labels = self.inputs.iter().rfind(|input| input.n_classes.is_some())?;
        Some(labels.tile.shape[1..].iter().product())
    }
}

impl fmt::Debug for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metric").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<'b> HeldOutBatch<'b> {
    pub(crate) const fn new(inputs: &'b [Input], views: &'b [View<'b>], n_valid: usize) -> Self {
        Self { n_valid, inputs, views }
    }

    /// Returns the elements of an `f32` input without padding, or `None` if there is no such input.
    #[must_use]
    pub fn f32s(&self, input: &str) -> Option<&'b [f32]> {
        let column = self.inputs.iter().position(|it| it.name == input)?;
        match self.views[column] {
            View::F32(elements) => Some(&elements[..self.n_valid * self.n_of_row(column)]),
            View::I32(_) => None,
        }
    }

    /// Returns the elements of an `i32` input without padding, or `None` if there is no such input.
    #[must_use]
    pub fn i32s(&self, input: &str) -> Option<&'b [i32]> {
        self.i32_column(self.inputs.iter().position(|it| it.name == input)?)
    }

    fn i32_column(&self, column: usize) -> Option<&'b [i32]> {
        match self.views[column] {
            View::I32(elements) => Some(&elements[..self.n_valid * self.n_of_row(column)]),
            View::F32(_) => None,
        }
    }

    fn n_of_row(&self, column: usize) -> usize {
        self.inputs[column].tile.shape[1..].iter().product()
    }
}

/// Sums of metrics over the batches of an evaluation.
pub(crate) struct MetricAccumulator<'m> {
    metrics: &'m [Metric],
    labels: Option<Labels>,
    /// The sum and the weight of each metric; `None` if it has no value.
    sums: Vec<Option<(f64, f64)>>,
}

impl<'m> MetricAccumulator<'m> {
    pub(crate) fn new(metrics: &'m [Metric], facts: &ModelFacts<'_>) -> Self {
        let sum = |it: &Metric| it.applies_to(facts).then_some((0.0, 0.0));
        Self { metrics, labels: facts.labels, sums: metrics.iter().map(sum).collect() }
    }

    pub(crate) fn add(&mut self, evaluation: &Evaluation, batch: &HeldOutBatch<'_>) {
        for (metric, sum) in self.metrics.iter().zip(&mut self.sums) {
            let Some(so_far) = *sum else { continue };
            let part = match &metric.kind {
                MetricKind::Top { n, .. } => {
                    self.labels.and_then(|it| top(evaluation, batch, it, *n))
                }
                MetricKind::Perplexity { .. } => Some((0.0, 0.0)),
                MetricKind::Mean(batch_metric) => batch_metric(evaluation, batch)
                    .map(|mean| (mean * batch.n_valid as f64, batch.n_valid as f64)),
            };
            *sum = part.map(|part| (so_far.0 + part.0, so_far.1 + part.1));
        }
    }

    /// Returns the metrics with a value, for this held-out loss.
    pub(crate) fn values(&self, loss: f64) -> Vec<(String, f64)> {
        let value = |(metric, sum): (&Metric, &Option<(f64, f64)>)| {
            let (sum, weight) = (*sum)?;
            let value = match metric.kind {
                MetricKind::Perplexity { .. } => libm::exp(loss),
                MetricKind::Top { .. } | MetricKind::Mean(_) => {
                    Some(sum / weight).filter(|_| weight > 0.0)?
                }
            };
            Some((metric.name().to_owned(), value))
        };
        self.metrics.iter().zip(&self.sums).filter_map(value).collect()
    }
}

/// A label that is among the largest logits of no row.
const NO_CLASS: i32 = -1;

/// Returns the number of labels among the `n` largest logits, and the number of labels.
fn top(
    evaluation: &Evaluation,
    batch: &HeldOutBatch<'_>,
    labels: Labels,
    n: usize,
) -> Option<(f64, f64)> {
    let (logits, of_rows) = (evaluation.outputs.first()?, batch.i32_column(labels.column)?);
    let counted: Vec<i32> =
        of_rows.iter().map(|it| if labels.ignored == Some(*it) { NO_CLASS } else { *it }).collect();
    let n_counted = counted.iter().filter(|it| **it != NO_CLASS).count();
    Some((count_top(logits, labels.n_classes, &counted, n) as f64, n_counted as f64))
}

/// Counts the labels with fewer than `n` larger logits in their row; `logits: [.., classes]`.
fn count_top(logits: &Array, n_classes: usize, labels: &[i32], n: usize) -> usize {
    let is_top = |(row, label): &(&[f32], &i32)| {
        let label = usize::try_from(**label).ok().and_then(|label| row.get(label));
        // NaN is never a hit, and no label of its row is one.
        let is_above =
            |label: f32, it: &f32| it.partial_cmp(&label).is_none_or(std::cmp::Ordering::is_gt);
        label.is_some_and(|label| row.iter().filter(|it| is_above(*label, it)).count() < n)
    };
    logits.data.chunks_exact(n_classes.max(1)).zip(labels).filter(is_top).count()
}

#[cfg(test)]
mod tests {
    use soybean_plan::{DType, Shape, Tile, Tiling};

    use super::*;

    fn inputs(labels_of_row: &[usize], n_classes: usize) -> [Input; 2] {
        let input = |name: &'static str, row: &[usize], dtype, n_classes| Input {
            name: name.into(),
            dtype,
            tile: Tile::new(Shape::new(&[&[3], row].concat()), Tiling::new(&[])),
            buffer: 0,
            n_classes,
            ignored_label: None,
            is_queried: name == "x",
        };
        [input("x", &[2], DType::F32, None), input("y", labels_of_row, DType::I32, Some(n_classes))]
    }

    #[test]
    fn ignored_labels_are_not_counted() {
        let mut inputs = inputs(&[], 3);
        inputs[1].ignored_label = Some(0);
        let metrics = [Metric::accuracy()];
        let mut accumulator = MetricAccumulator::new(&metrics, &ModelFacts::of(&inputs, &[3, 3]));
        // The labels are a hit, ignored though it would be one, and a miss.
        let logits = vec![0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0];
        let outputs = vec![Array { shape: vec![3, 3], data: logits, ..Array::default() }];
        let views = [View::F32(&[0.0; 6]), View::I32(&[1, 0, 2])];
        accumulator.add(
            &Evaluation { loss: 0.0, loss_weight: None, outputs },
            &HeldOutBatch::new(&inputs, &views, 3),
        );
        assert_eq!(accumulator.values(0.0), [("accuracy".to_owned(), 0.5)]);
    }

    /// Evaluates two batches of three rows; the second has one sample and padding.
    fn values(metrics: &[Metric]) -> Vec<(String, f64)> {
        let inputs = inputs(&[], 4);
        let mut accumulator = MetricAccumulator::new(metrics, &ModelFacts::of(&inputs, &[3, 4]));
        #[rustfmt::skip]
        let logits = [
            vec![0.1, 0.2, 0.4, 0.3,   0.4, 0.3, 0.2, 0.1,   0.0, 0.0, 0.0, 1.0],
            vec![0.5, 0.6, 0.7, 0.8,   9.0, 0.0, 0.0, 0.0,   9.0, 0.0, 0.0, 0.0],
        ];
        let batches = [([2, 1, 0], 3), ([1, 0, 0], 1)];
        let x = [1.0, 10.0, 2.0, 20.0, 6.0, 60.0];
        for (logits, (labels, n_valid)) in logits.into_iter().zip(batches) {
            let outputs = vec![Array { shape: vec![3, 4], data: logits, ..Array::default() }];
            let views = [View::F32(&x), View::I32(&labels)];
            let batch = HeldOutBatch::new(&inputs, &views, n_valid);
            accumulator.add(&Evaluation { loss: 0.0, loss_weight: None, outputs }, &batch);
        }
        accumulator.values(2.0)
    }

    #[test]
    fn metrics_are_those_computed_by_hand() {
        let mean_x = Metric::new("x", |_, batch| {
            let x = batch.f32s("x")?;
            Some(x.iter().step_by(2).map(|it| f64::from(*it)).sum::<f64>() / (x.len() / 2) as f64)
        });
        let metrics = [
            // Hits: the first row of four.
            Metric::accuracy(),
            // Also the second row: its label has the second largest logit.
            Metric::top(2),
            // The third label of the first batch ties with two others for the second place.
            Metric::top(3),
            Metric::perplexity(),
            mean_x,
            Metric::new("nothing", |_, batch| batch.i32s("x").map(|_| 0.0)),
        ];
        let expected = [
            ("accuracy", 0.25),
            ("top-2", 0.75),
            ("top-3", 1.0),
            ("perplexity", std::f64::consts::E * std::f64::consts::E),
            // (1 + 2 + 6 + 1) / 4
            ("x", 2.5),
        ];
        for ((name, found), (expected_name, expected)) in values(&metrics).iter().zip(expected) {
            assert_eq!(name, expected_name);
            assert!((found - expected).abs() < 1e-12, "{name}: {found}");
        }
        assert_eq!(values(&metrics).len(), expected.len());
    }

    #[test]
    fn usual_metrics_say_what_suits_the_model() {
        let names = |inputs: &[Input], output: &[usize]| {
            let metrics = Metric::usual();
            let mut accumulator = MetricAccumulator::new(&metrics, &ModelFacts::of(inputs, output));
            let data = vec![0.0; output.iter().product()];
            let outputs = vec![Array { shape: output.to_vec(), data, ..Array::default() }];
            let (x, y) = (vec![0.0; 6], vec![0; 3 * 7]);
            let views = [View::F32(&x), View::I32(&y)];
            accumulator.add(
                &Evaluation { loss: 0.0, loss_weight: None, outputs },
                &HeldOutBatch::new(inputs, &views, 3),
            );
            accumulator.values(0.0).into_iter().map(|it| it.0).collect::<Vec<_>>()
        };
        assert_eq!(names(&inputs(&[], 10), &[3, 10]), ["accuracy"]);
        assert_eq!(names(&inputs(&[], 21), &[3, 21]), ["accuracy", "top-5"]);
        assert_eq!(names(&inputs(&[7], 20), &[3, 7, 20]), ["accuracy", "perplexity"]);
        assert_eq!(names(&inputs(&[7], 20), &[21, 20]), ["accuracy", "perplexity"]);
        assert_eq!(names(&inputs(&[], 10)[..1], &[3, 10]), [""; 0]);
        // Features of samples are no logits, whatever their number; nor is one number for all
        // samples.
        assert_eq!(names(&inputs(&[], 10), &[3, 16]), [""; 0]);
        assert_eq!(names(&inputs(&[], 10), &[6, 10]), [""; 0]);
        assert_eq!(names(&inputs(&[7], 10), &[]), ["perplexity"]);
    }

    #[test]
    fn labels_are_among_the_largest_logits() {
        let count = |logits: &[f32], labels: &[i32], n| {
            let shape = vec![logits.len() / 3, 3];
            count_top(&Array { shape, data: logits.to_vec(), ..Array::default() }, 3, labels, n)
        };
        assert_eq!(count(&[0.0, 1.0, 2.0], &[2], 1), 1);
        assert_eq!(count(&[0.0, 1.0, 2.0], &[1], 1), 0);
        assert_eq!(count(&[0.0, 1.0, 2.0], &[1], 2), 1);
        assert_eq!(count(&[2.0, 2.0, 2.0], &[1], 1), 1, "none is larger");
        assert_eq!(count(&[0.0, f32::NAN, 2.0], &[2], 1), 0);
        assert_eq!(count(&[0.0, f32::NAN, 2.0], &[1], 1), 0);
        assert_eq!(count(&[0.0, 1.0, 2.0], &[7], 3), 0, "no such class");
    }
}
