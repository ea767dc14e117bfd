//! The start of a run, new or resumed.

use std::{fs::File, path::Path};

use soybean_plan::{Input, Plan, Tables};
use soybean_runtime::{
    Error, ErrorKind, Process, Trainer,
    checkpoint::{Checkpoint, Checkpoints},
    data::{DataLoader, LoaderOptions},
    weights::{self, Mapping},
};

use super::{
    BestWeights, FitError, Observer, Run, Throughput,
    agreement::{check_data, open_checkpoint_of_first},
};
use crate::run::{
    Event, Flow, Metric, Resume, Split, Start, Summary, TrainConfig,
    batches::{batch_size, loader},
    checkpoint_manager::{self, CheckpointKind, CheckpointManager, leftover},
    columns::{check_order, note_on_order},
    config::config_error,
    evaluation::metrics_of_first_batch,
    folder,
    identity::{Noted, RunIdentity},
    metric::ModelFacts,
    numberings::Numberings,
    output::{self, OutputFiles, ResumePoint},
    progress::RunProgress,
};

/// Steps before the traced one: the first steps of a run are slower.
const N_UNTRACED: u64 = 3;

/// Trains as `config` says, and sends events to `observer`.
pub(crate) fn fit(
    trainer: &mut Trainer,
    plan: &Plan,
    tables: &Tables,
    config: &TrainConfig,
    split: &Split,
    observer: &mut Observer<'_>,
) -> Result<Summary, FitError> {
    config.check(tables)?;
    let metric = config.watched_metric(&ModelFacts::new(tables))?;
    let batch_rows = batch_size(&tables.inputs)?;
    let (train, mut held_out) = loaders(trainer, &tables.inputs, config, split, batch_rows)?;
    check_data(trainer, split, &tables.inputs, config.trainer.seed)?;
    let identity = identity(trainer, (plan, tables), config, split, observer)?;
    let n_batches = (train.n_batches() as u64).min(config.batch_limit.unwrap_or(u64::MAX));
    let n_steps = config.steps.unwrap_or_else(|| config.epochs.saturating_mul(n_batches));
    let warm_up = config.schedule.warm_up;
    if warm_up > n_steps && n_steps > 0 {
        let text = format!("the warm-up of {warm_up} steps is longer than the run of {n_steps}");
        note(observer, &text);
    }
    let custom = metric.filter(|it| it.is_custom());
    let initial = initialize(trainer, config, &identity, observer, |trainer| {
        custom.map_or(Ok(()), |it| check_custom_metric(it, trainer, &mut held_out, tables, config))
    })?;
    let (resumed, checkpoints) = (initial.checkpoint.as_ref(), initial.checkpoints.as_ref());
    let progress = in_epochs_of(n_batches, initial.progress, resumed, observer);
    let best_weights = BestWeights::before(trainer, config, &progress, resumed, checkpoints)?;
    let start = Start {
        n_done: progress.step,
        n_steps,
        n_batches,
        n_epochs: n_steps.div_ceil(n_batches),
        batch_rows,
        n_train: split.train.n_rows(),
        n_held_out: split.held_out.n_rows(),
        resumed: initial.checkpoint.as_ref().map(|it| it.path().to_owned()),
    };
    let is_stopped = observer(&Event::Start(&start)) == Flow::Stop;
    let n_left = n_steps.saturating_sub(progress.step);
    let mut run = Run {
        trainer,
        plan,
        tables,
        config,
        metric,
        train,
        held_out,
        n_batches,
        n_steps,
        batch_rows,
        progress,
        identity,
        checkpoints: initial.checkpoints,
        files: initial.files,
        observer,
        is_stopped,
        error: None,
        throughput: Throughput::default(),
        trace: config.trace.clone().map(|it| (it, N_UNTRACED.min(n_left.saturating_sub(1)))),
        last: None,
        best_weights,
        _lock: initial.lock,
    };
    run.complete()
}

/// Returns the progress of a run whose epochs have so many batches.
fn in_epochs_of(
    n_batches: u64,
    progress: RunProgress,
    resumed: Option<&Checkpoint>,
    observer: &mut Observer<'_>,
) -> RunProgress {
    let found = progress.n_batches;
    if resumed.is_some() && found != n_batches {
        note(observer, &format!("an epoch has {n_batches} batches now, and had {found} before"));
    }
    let mut progress = RunProgress { n_batches, ..progress };
    if progress.batch >= n_batches && !progress.is_pending {
        progress.end_epoch();
    }
    progress
}

/// Returns what a resumed run compares, and notes how the columns of the data are taken.
fn identity(
    trainer: &mut Trainer,
    (plan, tables): (&Plan, &Tables),
    config: &TrainConfig,
    split: &Split,
    observer: &mut Observer<'_>,
) -> Result<RunIdentity, Error> {
    let order = note_on_order(&tables.inputs, split.train.columns());
    order.iter().for_each(|it| note(observer, it));
    trainer.together(RunIdentity::of(plan, tables, config, split))
}

/// Returns the loaders of the training data and of the held-out data.
fn loaders(
    trainer: &Trainer,
    inputs: &[Input],
    config: &TrainConfig,
    split: &Split,
    batch_rows: usize,
) -> Result<(DataLoader, DataLoader), Error> {
    // Metrics need all rows of an evaluation in every process.
    let rows = (trainer.process() != Process::ONLY).then(|| trainer.rows_needed());
    let (n_threads, n_ahead) =
        (config.loader_threads, config.loader_threads.saturating_mul(2).max(4));
    let training = LoaderOptions::training(batch_rows, config.trainer.seed);
    let training = LoaderOptions { n_threads, n_ahead, rows, ..training };
    let evaluation = LoaderOptions { n_threads, n_ahead, ..LoaderOptions::evaluation(batch_rows) };
    let train = loader("training", &split.train, inputs, training)?;
    if train.n_batches() == 0 {
        let n_rows = split.train.n_rows();
        return Err(Error::data(format!(
            "expected at least {batch_rows} rows of training data, one batch, found {n_rows}"
        )));
    }
    let held_out = loader("held-out", &split.held_out, inputs, evaluation)?;
    check_order(train.dataset().columns(), held_out.dataset().columns())
        .map_err(|message| Error::data(format!("the held-out data: {message}")))?;
    let numberings = Numberings::of("training", &*split.train, inputs)?;
    numberings.check("held-out", &*split.held_out, inputs)?;
    Ok((train, held_out))
}

/// Returns an error if a watched custom metric has no value for the first held-out batch. The run
/// would otherwise fail after an epoch.
fn check_custom_metric(
    metric: &Metric,
    trainer: &mut Trainer,
    held_out: &mut DataLoader,
    tables: &Tables,
    config: &TrainConfig,
) -> Result<(), Error> {
    let found = metrics_of_first_batch(trainer, held_out, tables, &config.metrics)?;
    let names: Vec<&str> = found.iter().map(String::as_str).collect();
    let is_known = names.contains(&metric.name());
    trainer.together(if is_known { Ok(()) } else { Err(config.unknown_metric(&names)) })
}

/// The state of a run at its start.
struct InitialState {
    progress: RunProgress,
    checkpoint: Option<Checkpoint>,
    checkpoints: Option<CheckpointManager>,
    files: Option<OutputFiles>,
    /// The lock of the folder, in the first process.
    lock: Option<File>,
}

/// Restores or initializes the run. `check` runs with the initial parameters, before the output of
/// an earlier run is moved aside.
fn initialize(
    trainer: &mut Trainer,
    config: &TrainConfig,
    identity: &RunIdentity,
    observer: &mut Observer<'_>,
    check: impl FnOnce(&mut Trainer) -> Result<(), Error>,
) -> Result<InitialState, Error> {
    let process = trainer.process();
    let ours = config.out.as_deref().filter(|_| process.is_first());
    let lock = ours.map(folder::lock).transpose();
    let lock = trainer.together(lock)?;
    if let Some(out) = &config.out {
        for folder in [checkpoint_manager::folder(out), checkpoint_manager::best(out)] {
            let mut checkpoints = Checkpoints::new(folder, config.keep);
            checkpoints.settle(trainer)?;
            let warnings = checkpoints.take_warnings();
            warnings.iter().for_each(|it| note(observer, &leftover(it)));
        }
    }
    let checkpoint = checkpoint(trainer, config, observer)?;
    let mut progress = match &checkpoint {
        Some(checkpoint) => {
            let checked = check_identity(config, identity, checkpoint, observer);
            trainer.together(checked)?;
            restore(trainer, config, checkpoint)?
        }
        None => {
            load_weights(trainer, config, observer)?;
            RunProgress::default()
        }
    };
    check(trainer)?;
    if let Some(before) = progress.set_monitored(&config.measure()) {
        let now = &progress.watch;
        note(
            observer,
            &format!("the best checkpoint is selected by {now} from here on, not by {before}"),
        );
    }
    let files = ours.map(|out| open_output(config, out, checkpoint.as_ref(), &progress, observer));
    let files = trainer.together(files.transpose())?;
    let out = config.out.as_deref().filter(|_| config.checkpoints);
    let mut checkpoints = out.map(|out| CheckpointManager::new(out, config, process));
    if let (Some(checkpoints), Some(checkpoint)) = (&mut checkpoints, &checkpoint) {
        let is_best = progress.best_step == Some(progress.step);
        let kind = if is_best { CheckpointKind::Best } else { CheckpointKind::Regular };
        let kept = checkpoints.set_resumed(checkpoint.path(), kind);
        trainer.together(kept)?;
    }
    Ok(InitialState { progress, checkpoint, checkpoints, files, lock })
}

/// Returns the checkpoint from which the run resumes. Of several processes, the first finds the
/// newest one.
fn checkpoint(
    trainer: &mut Trainer,
    config: &TrainConfig,
    observer: &mut Observer<'_>,
) -> Result<Option<Checkpoint>, Error> {
    let is_first = trainer.process().is_first();
    match (&config.resume, &config.out) {
        (Resume::From(path), _) => {
            let opened = Checkpoint::open(path);
            trainer.together(opened).map(Some)
        }
        (Resume::Auto | Resume::Must, Some(out)) => {
            let found = match is_first {
                true => newest_checkpoint(out, &config.resume, observer),
                false => Ok(None),
            };
            open_checkpoint_of_first(trainer, out, found)
        }
        (Resume::Auto | Resume::Must | Resume::Never, _) => Ok(None),
    }
}

/// Returns the newest intact checkpoint of a run.
fn newest_checkpoint(
    out: &Path,
    resume: &Resume,
    observer: &mut Observer<'_>,
) -> Result<Option<Checkpoint>, Error> {
    let latest = checkpoint_manager::latest(out)?;
    // The errors name the files.
    for (_, why) in &latest.refused {
        note(observer, &format!("a checkpoint is refused: {why}"));
    }
    if latest.checkpoint.is_none() {
        let folder = checkpoint_manager::folder(out);
        let folder = folder.display();
        if *resume == Resume::Must {
            let message = format!(
                "{folder}: expected an intact checkpoint, since `resume` is `must`, found none"
            );
            return Err(Error::new(ErrorKind::Checkpoint, message));
        }
        note(
            observer,
            &format!("no checkpoint in {folder} to resume from: the run starts from scratch"),
        );
    }
    Ok(latest.checkpoint)
}

/// Checks that the run goes on with the run of a checkpoint, and notes what differs.
fn check_identity(
    config: &TrainConfig,
    identity: &RunIdentity,
    checkpoint: &Checkpoint,
    observer: &mut Observer<'_>,
) -> Result<(), Error> {
    // The settings of a run in this folder are compared with its `config.toml`.
    let is_ours =
        |out: &Path| folder::contains(out, checkpoint.path()) && output::config_file(out).exists();
    let noted = match config.out.as_deref().is_some_and(is_ours) {
        true => Noted::ExceptSettings,
        false => Noted::All,
    };
    let (path, progress) = (checkpoint.path(), checkpoint.progress());
    let told = identity.check(path, progress, &config.allowed_changes, noted)?;
    told.iter().for_each(|it| note(observer, it));
    Ok(())
}

fn restore(
    trainer: &mut Trainer,
    config: &TrainConfig,
    checkpoint: &Checkpoint,
) -> Result<RunProgress, Error> {
    let (expected, found) = (checkpoint.progress().seed, config.trainer.seed);
    if expected != found && !config.allowed_changes.iter().any(|it| it == "seed") {
        let path = checkpoint.path().display();
        return Err(config_error(format!(
            "{path}: expected the seed of its run, {expected}, found {found}"
        )));
    }
    let progress = trainer.restore(checkpoint)?;
    Ok(RunProgress::from_checkpoint(&progress, trainer.n_steps()))
}

fn load_weights(
    trainer: &mut Trainer,
    config: &TrainConfig,
    observer: &mut Observer<'_>,
) -> Result<(), Error> {
    let Some(path) = &config.weights else { return Ok(()) };
    let mapping: Mapping = config.map.join("\n").parse()?;
    let loaded = weights::load(trainer, path, &mapping)?;
    let left = |what: &str, names: &[String]| match names {
        [] => String::new(),
        names => format!("; {what}: {}", names.join(", ")),
    };
    let (missing, unused) =
        (left("not in the file", &loaded.missing), left("unused", &loaded.unused));
    let (n_tensors, path) = (loaded.n_tensors, path.display());
    note(observer, &format!("{n_tensors} tensors from {path}{missing}{unused}"));
    Ok(())
}

/// Opens the files of the run's folder, after moving the output of other runs aside.
fn open_output(
    config: &TrainConfig,
    out: &Path,
    resumed: Option<&Checkpoint>,
    progress: &RunProgress,
    observer: &mut Observer<'_>,
) -> Result<OutputFiles, Error> {
    let ours = resumed.filter(|it| folder::contains(out, it.path()));
    let aside = match ours {
        // Folders are named by the trainer's steps, which may include steps before the run.
        Some(checkpoint) => folder::archive_later_checkpoints(out, checkpoint.counters().n_steps)?,
        None => folder::archive_run(out)?,
    };
    if let Some(aside) = aside {
        let aside = aside.display();
        note(observer, &format!("earlier output that this run does not resume from is in {aside}"));
    }
    if ours.is_some()
        && let Some(text) = keep_changed_settings(config, out)?
    {
        note(observer, &text);
    }
    let RunProgress { step, is_pending: before_evaluation, .. } = *progress;
    OutputFiles::open(out, ours.map(|_| ResumePoint { step, before_evaluation }), &config.to_toml())
}

/// If the settings differ from those of the run so far, keeps its `config.toml` under another name,
/// and returns a note on the differences.
fn keep_changed_settings(config: &TrainConfig, out: &Path) -> Result<Option<String>, Error> {
    let earlier = out.join(output::CONFIG);
    if !earlier.exists() {
        return Ok(None);
    }
    let what = match TrainConfig::from_toml(&earlier).map(|it| config.changes_since(&it)) {
        Ok(changes) if changes.is_empty() => return Ok(None),
        Ok(changes) => format!("changed settings: {}", changes.join(", ")),
        Err(error) => format!("the settings of the run so far are not known: {error}"),
    };
    let kept = output::keep_config(out)?;
    Ok(Some(format!("{what}; the earlier ones are in {}", kept.display())))
}

fn note(observer: &mut Observer<'_>, text: &str) {
    // A request to stop is handled at the start of the run.
    let _ = observer(&Event::Note(text));
}
