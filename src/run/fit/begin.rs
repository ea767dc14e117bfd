//! How a run begins, or where it goes on.

use std::{fs::File, path::Path};

use soybean_plan::{Input, Tables};
use soybean_runtime::{
    Error, Process, Trainer,
    checkpoint::{Checkpoint, Checkpoints},
    data::{DataLoader, LoaderOptions},
    weights::{self, Mapping},
};

use super::{Broken, Pace, Run, Watch};
use crate::run::{
    Event, Flow, Metric, Resume, Split, Start, Summary, TrainConfig,
    batches::{batch_size, loader},
    config::choice,
    evaluation::known_of_first_batch,
    files::{Cut, Files},
    folder,
    keeper::{self, Keeper, Merit},
    metric::Facts,
    standing::Standing,
};

/// The steps before the one that is traced: the first ones of a run take longer than all later ones.
const N_UNTRACED: u64 = 3;

/// Trains as `config` says. `watch` is told what happens.
pub(crate) fn fit(
    trainer: &mut Trainer,
    tables: &Tables,
    config: &TrainConfig,
    split: &Split,
    watch: &mut Watch<'_>,
) -> Result<Summary, Broken> {
    config.check(tables)?;
    let metric = config.watched_metric(&Facts::new(tables))?;
    let batch_rows = batch_size(&tables.inputs)?;
    let (train, mut held_out) = loaders(trainer, &tables.inputs, config, split, batch_rows)?;
    let n_batches = (train.n_batches() as u64).min(config.batch_limit.unwrap_or(u64::MAX));
    let n_steps = config.steps.unwrap_or_else(|| config.epochs.saturating_mul(n_batches));
    let asked = metric.filter(|it| it.is_users());
    let begun = begin(trainer, config, watch, |trainer| {
        asked.map_or(Ok(()), |it| ask(it, trainer, &mut held_out, tables, config))
    })?;
    let mut standing = begun.standing;
    if begun.checkpoint.is_some() && standing.n_batches != n_batches {
        let found = standing.n_batches;
        note(watch, &format!("an epoch has {n_batches} batches now, and had {found} before"));
    }
    standing.n_batches = n_batches;
    if standing.batch >= n_batches && !standing.is_pending {
        standing.end_epoch();
    }
    let start = Start {
        n_done: standing.step,
        n_steps,
        n_batches,
        n_epochs: n_steps.div_ceil(n_batches),
        batch_rows,
        n_train: split.train.n_rows(),
        n_held_out: split.held_out.n_rows(),
        resumed: begun.checkpoint.as_ref().map(|it| it.path().to_owned()),
    };
    let is_stopped = watch(&Event::Start(&start)) == Flow::Stop;
    let n_left = n_steps.saturating_sub(standing.step);
    let mut run = Run {
        trainer,
        tables,
        config,
        metric,
        train,
        held_out,
        n_batches,
        n_steps,
        batch_rows,
        standing,
        keeper: begun.keeper,
        files: begun.files,
        watch,
        is_stopped,
        fault: None,
        pace: Pace::default(),
        trace: config.trace.clone().map(|it| (it, N_UNTRACED.min(n_left.saturating_sub(1)))),
        last: None,
        _lock: begun.lock,
    };
    let end = run.run().and_then(|end| run.finish().map(|()| end));
    end.map(|end| run.summary(end)).map_err(|error| run.broken(&error))
}

/// The loaders of both parts of the data.
fn loaders(
    trainer: &Trainer,
    inputs: &[Input],
    config: &TrainConfig,
    split: &Split,
    batch_rows: usize,
) -> Result<(DataLoader, DataLoader), Error> {
    // Metrics look at all rows of an evaluation, in every process.
    let rows = (trainer.process() != Process::ONLY).then(|| trainer.rows_needed());
    let (n_threads, n_ahead) = (config.loader_threads, 4.max(2 * config.loader_threads));
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
    Ok((train, loader("held-out", &split.held_out, inputs, evaluation)?))
}

/// An error if a user's metric, which is watched, says nothing of the first held-out batch: it would be found after an epoch otherwise.
fn ask(
    metric: &Metric,
    trainer: &mut Trainer,
    held_out: &mut DataLoader,
    tables: &Tables,
    config: &TrainConfig,
) -> Result<(), Error> {
    let found = known_of_first_batch(trainer, held_out, tables, &config.metrics)?;
    let names: Vec<&str> = found.iter().map(String::as_str).collect();
    let is_known = names.contains(&metric.name());
    trainer.together(if is_known { Ok(()) } else { Err(config.unwatched(&names)) })
}

/// How a run stands at its beginning.
struct Begun {
    standing: Standing,
    checkpoint: Option<Checkpoint>,
    keeper: Option<Keeper>,
    files: Option<Files>,
    /// Of the first process, which writes.
    lock: Option<File>,
}

/// `check` sees the trainer with the parameters with which the run goes on, before anything of an earlier run is moved aside.
fn begin(
    trainer: &mut Trainer,
    config: &TrainConfig,
    watch: &mut Watch<'_>,
    check: impl FnOnce(&mut Trainer) -> Result<(), Error>,
) -> Result<Begun, Error> {
    let process = trainer.process();
    let ours = config.out.as_deref().filter(|_| process.is_first());
    let lock = ours.map(folder::lock).transpose();
    let lock = trainer.together(lock)?;
    if let Some(out) = &config.out {
        Checkpoints::new(keeper::folder(out), config.keep).settle(trainer)?;
    }
    let checkpoint = checkpoint(config, watch);
    let checkpoint = trainer.together(checkpoint)?;
    let mut standing = match &checkpoint {
        Some(checkpoint) => restore(trainer, config, checkpoint)?,
        None => {
            load_weights(trainer, config, watch)?;
            Standing::default()
        }
    };
    check(trainer)?;
    if let Some(before) = standing.watch(&config.measure()) {
        let now = &standing.watch;
        note(watch, &format!("the best is chosen anew, by {now}: it was by {before} before"));
    }
    let files = ours.map(|out| open(config, out, checkpoint.as_ref(), &standing, watch));
    let files = trainer.together(files.transpose())?;
    let out = config.out.as_deref().filter(|_| config.checkpoints);
    let mut keeper = out.map(|out| Keeper::new(out, config, process));
    if let (Some(keeper), Some(checkpoint)) = (&mut keeper, &checkpoint) {
        let is_best = standing.best_step == Some(standing.step);
        let merit = if is_best { Merit::Best } else { Merit::Further };
        let kept = keeper.resumed(checkpoint.path(), merit);
        trainer.together(kept)?;
    }
    Ok(Begun { standing, checkpoint, keeper, files, lock })
}

/// The checkpoint at which the run goes on.
fn checkpoint(config: &TrainConfig, watch: &mut Watch<'_>) -> Result<Option<Checkpoint>, Error> {
    match (&config.resume, &config.out) {
        (Resume::From(path), _) => Checkpoint::open(path).map(Some),
        (Resume::Auto, Some(out)) => {
            let folder = keeper::folder(out);
            let latest = Checkpoints::new(&folder, config.keep).latest()?;
            // The errors name the files.
            for (_, why) in &latest.refused {
                note(watch, &format!("a checkpoint is refused: {why}"));
            }
            if latest.checkpoint.is_none() {
                let folder = folder.display();
                note(
                    watch,
                    &format!("no checkpoint in {folder} to go on from: the run starts anew"),
                );
            }
            Ok(latest.checkpoint)
        }
        (Resume::Auto | Resume::Never, _) => Ok(None),
    }
}

fn restore(
    trainer: &mut Trainer,
    config: &TrainConfig,
    checkpoint: &Checkpoint,
) -> Result<Standing, Error> {
    let (expected, found) = (checkpoint.progress().seed, config.trainer.seed);
    if expected != found {
        let path = checkpoint.path().display();
        return Err(choice(format!(
            "{path}: expected the seed of its run, {expected}, found {found}"
        )));
    }
    let progress = trainer.restore(checkpoint)?;
    Ok(Standing::of(&progress, trainer.n_steps()))
}

fn load_weights(
    trainer: &mut Trainer,
    config: &TrainConfig,
    watch: &mut Watch<'_>,
) -> Result<(), Error> {
    let Some(path) = &config.weights else { return Ok(()) };
    let mapping: Mapping = config.map.join("\n").parse()?;
    let loaded = weights::load(trainer, path, &mapping)?;
    let left = |what: &str, names: &[String]| match names {
        [] => String::new(),
        names => format!("; {what}: {}", names.join(", ")),
    };
    let (missing, unused) =
        (left("left as they were", &loaded.missing), left("unused", &loaded.unused));
    let (n_tensors, path) = (loaded.n_tensors, path.display());
    note(watch, &format!("{n_tensors} tensors from {path}{missing}{unused}"));
    Ok(())
}

/// The files of the run's folder, where nothing of other runs is left then.
fn open(
    config: &TrainConfig,
    out: &Path,
    resumed: Option<&Checkpoint>,
    standing: &Standing,
    watch: &mut Watch<'_>,
) -> Result<Files, Error> {
    let ours = resumed.filter(|it| folder::has(out, it.path()));
    let aside = match ours {
        // Folders are named by the steps of the trainer, which may have made others before those of the run.
        Some(checkpoint) => folder::move_later(out, checkpoint.counters().n_steps)?,
        None => folder::move_run(out)?,
    };
    if let Some(aside) = aside {
        let aside = aside.display();
        note(watch, &format!("what this run does not go on from is in {aside}"));
    }
    let Standing { step, is_pending: before_evaluation, .. } = *standing;
    Files::open(out, ours.map(|_| Cut { step, before_evaluation }), &config.to_toml())
}

fn note(watch: &mut Watch<'_>, text: &str) {
    // A wish to stop is heard at the start of the run.
    let _ = watch(&Event::Note(text));
}
