//! `train`: epochs over the training data, each followed by an evaluation on the held-out data.

use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    time::Instant,
};

use indicatif::{ProgressBar, ProgressStyle};
use soybean_plan::Input;
use soybean_runtime::{
    Array, Trace, Trainer, View,
    data::{Batch, DataLoader, LoaderOptions},
};

use super::{
    Failure, Split, Subject,
    batches::{batch_size, loader},
    flags::Options,
    metrics::{self, Epoch},
};

/// The steps before the one that is traced: the first ones of a run take longer than all later ones.
const N_UNTRACED: usize = 3;

pub(super) fn train(
    subject: &Subject,
    options: &Options,
    split: &Split,
    output: &mut dyn Write,
) -> Result<(), Failure> {
    let tables = subject.model.tables();
    let batch_size = batch_size(&tables.inputs)?;
    let training = LoaderOptions::training(batch_size, options.config.seed);
    let mut train = loader("training", &split.train, &tables.inputs, training)?;
    let evaluation = LoaderOptions::evaluation(batch_size);
    let mut held_out = loader("held-out", &split.held_out, &tables.inputs, evaluation)?;
    if train.n_batches() == 0 {
        let n_rows = split.train.n_rows();
        return Err(Failure::Work(format!(
            "expected at least {batch_size} rows of training data, one batch, found {n_rows}"
        )));
    }
    writeln!(output, "{}\n", subject.plan.text.trim_end())?;
    // The first start on a GPU compiles the kernels, which takes seconds.
    output.flush()?;
    let mut trainer = Trainer::new(subject.model, options.config.clone())?;
    writeln!(output, "{}", trainer.device_line())?;
    writeln!(
        output,
        "{} training and {} held-out samples in batches of {batch_size}",
        split.train.n_rows(),
        split.held_out.n_rows(),
    )?;
    let mut epochs: Vec<Epoch> = Vec::new();
    for number in 1..=options.n_epochs {
        let last_accuracy = epochs.last().and_then(|epoch| epoch.accuracy);
        let started = Instant::now();
        train.start(number as u64, 0);
        let n_batches = train.n_batches().min(options.batch_limit.unwrap_or(usize::MAX));
        let progress =
            Progress::new(n_batches, batch_size, (number, options.n_epochs), last_accuracy);
        let trace = options.trace.as_deref().filter(|_| number == 1);
        let train_loss = train_epoch(&mut trainer, &mut train, n_batches, trace, progress)?;
        let n_samples = (n_batches * batch_size) as f64;
        let samples_per_second = n_samples / started.elapsed().as_secs_f64();
        let (held_out_loss, accuracy) = evaluate(&mut trainer, &mut held_out, &tables.inputs)?;
        let epoch = Epoch { number, train_loss, held_out_loss, accuracy, samples_per_second };
        writeln!(output, "{}", line(&epoch, options.n_epochs))?;
        output.flush()?;
        epochs.push(epoch);
    }
    let folder = options.out.clone().unwrap_or_else(|| default_folder(&tables.name));
    finish(&epochs, &folder, output)
}

/// Steps over the next batches; the mean of their losses. Each batch is handed over while the step before it runs.
fn train_epoch(
    trainer: &mut Trainer,
    batches: &mut DataLoader,
    n_batches: usize,
    trace: Option<&Path>,
    progress: Progress,
) -> Result<f64, Failure> {
    let mut loss_sum = 0.0;
    let mut n_done = 0;
    if let Some(batch) = batches.next() {
        trainer.queue(&batch?.views())?;
    }
    while n_done < n_batches {
        let next = if n_done + 1 < n_batches { batches.next().transpose()? } else { None };
        let next = next.as_ref().map(Batch::views);
        let trace = trace.filter(|_| n_done == N_UNTRACED.min(n_batches - 1));
        let loss = match trace {
            Some(file) => traced(trainer, next.as_deref(), file)?.0,
            None => trainer.step_queued(next.as_deref())?,
        };
        loss_sum += f64::from(loss);
        n_done += 1;
        progress.show(n_done, loss_sum / n_done as f64);
    }
    progress.bar.finish_and_clear();
    Ok(loss_sum / n_batches as f64)
}

/// A step whose trace goes into a file.
pub(super) fn traced(
    trainer: &mut Trainer,
    next: Option<&[View<'_>]>,
    file: &Path,
) -> Result<(f32, Trace), Failure> {
    let (loss, trace) = trainer.trace_queued(next)?;
    fs::write(file, trace.to_json()).map_err(|error| {
        Failure::Work(format!("cannot write the trace into {}: {error}", file.display()))
    })?;
    Ok((loss, trace))
}

/// The mean loss over the batches of the held-out data and, if the model gives logits, the share of labels that have the largest.
///
/// The last batch is padded; the padding counts towards the loss, but not towards the accuracy.
fn evaluate(
    trainer: &mut Trainer,
    batches: &mut DataLoader,
    inputs: &[Input],
) -> Result<(f64, Option<f64>), Failure> {
    let labels = labels(inputs);
    let (mut loss_sum, mut n_labels, mut n_correct) = (0.0, 0, Some(0));
    batches.start(0, 0);
    for batch in &mut *batches {
        let batch = batch?;
        let evaluation = trainer.evaluate(&batch.views())?;
        loss_sum += f64::from(evaluation.loss);
        n_labels += batch.n_valid * labels.map_or(1, |it| it.1);
        let labels = labels.map(|(column, n)| &batch.i32s(column)[..batch.n_valid * n]);
        let correct = evaluation.outputs.first().zip(labels);
        let correct = correct.and_then(|(logits, labels)| count_correct(logits, labels));
        n_correct = n_correct.zip(correct).map(|(sum, correct)| sum + correct);
    }
    let accuracy = n_correct.map(|n_correct| n_correct as f64 / n_labels as f64);
    Ok((loss_sum / batches.n_batches() as f64, accuracy))
}

/// The input that is the last with classes, which losses compare with, and the number of its labels for each sample.
fn labels(inputs: &[Input]) -> Option<(usize, usize)> {
    let column = inputs.iter().rposition(|input| input.n_classes.is_some())?;
    Some((column, inputs[column].tile.shape[1..].iter().product()))
}

/// The number of labels that have the largest of their logits, `[.., classes]`; nothing if there are not as many rows of these.
fn count_correct(logits: &Array, labels: &[i32]) -> Option<usize> {
    let (n_classes, rows) = logits.shape.split_last()?;
    let (n_classes, n_rows) = (*n_classes, rows.iter().product::<usize>());
    let is_correct = |(row, label): &(&[f32], &i32)| {
        let label = usize::try_from(**label).ok().and_then(|label| row.get(label));
        label.is_some_and(|label| row.iter().all(|logit| logit <= label))
    };
    let rows = logits.data.chunks_exact(n_classes.max(1));
    (labels.len() <= n_rows).then(|| rows.zip(labels).filter(is_correct).count())
}

/// The bar of one epoch. It goes to standard error; where that is no terminal, the lines for whole epochs are enough.
struct Progress {
    bar: ProgressBar,
    started: Instant,
    batch_size: usize,
    accuracy: String,
}

impl Progress {
    fn new(
        n_batches: usize,
        batch_size: usize,
        (number, n_epochs): (usize, usize),
        last_accuracy: Option<f64>,
    ) -> Self {
        let style = ProgressStyle::with_template("{prefix} {bar:24} {pos}/{len}  {msg}")
            .expect("the template is well formed");
        let bar = if io::stderr().is_terminal() {
            ProgressBar::new(n_batches as u64)
        } else {
            ProgressBar::hidden()
        };
        let bar = bar.with_style(style).with_prefix(format!("epoch {number}/{n_epochs}"));
        let accuracy = last_accuracy.map(|it| format!("  accuracy {it:.4}")).unwrap_or_default();
        Self { bar, started: Instant::now(), batch_size, accuracy }
    }

    fn show(&self, n_done: usize, loss: f64) {
        let rate = (n_done * self.batch_size) as f64 / self.started.elapsed().as_secs_f64();
        self.bar.set_message(format!("loss {loss:.4}{}  {rate:.0} samples/s", self.accuracy));
        self.bar.set_position(n_done as u64);
    }
}

fn line(epoch: &Epoch, n_epochs: usize) -> String {
    let Epoch { number, train_loss, held_out_loss, samples_per_second, .. } = epoch;
    let width = n_epochs.to_string().len();
    let accuracy = epoch.accuracy.map(|it| format!("  accuracy {it:.4}")).unwrap_or_default();
    format!(
        "epoch {number:width$}/{n_epochs}  loss {train_loss:.4}  held-out loss {held_out_loss:.4}{accuracy}  {samples_per_second:.0} samples/s"
    )
}

fn default_folder(model: &str) -> PathBuf {
    Path::new("runs").join(model)
}

fn finish(epochs: &[Epoch], folder: &Path, output: &mut dyn Write) -> Result<(), Failure> {
    let Some(last) = epochs.last() else { return Ok(()) };
    metrics::save(epochs, folder)?;
    writeln!(output, "metrics in {}", folder.display())?;
    if let Some(accuracy) = last.accuracy {
        writeln!(output, "accuracy {accuracy:.4}")?;
    }
    Ok(())
}
