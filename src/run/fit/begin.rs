//! How a run begins, or where it goes on.

use std::path::Path;

use soybean_plan::Input;
use soybean_runtime::{
    Error, Process, Trainer,
    checkpoint::{Checkpoint, Checkpoints},
    data::{DataLoader, LoaderOptions},
    weights::{self, Mapping},
};

use super::{Pace, Run, Watch};
use crate::run::{
    Event, Flow, Resume, Split, Start, Summary, TrainConfig,
    batches::{batch_size, loader},
    config::choice,
    files::{Cut, Files, write_whole},
    keeper::{self, Keeper, Rank},
    standing::Standing,
};

/// The steps before the one that is traced: the first ones of a run take longer than all later ones.
const N_UNTRACED: u64 = 3;

/// Trains as `config` says. `watch` is told what happens.
pub(crate) fn fit(
    trainer: &mut Trainer,
    inputs: &[Input],
    config: &TrainConfig,
    split: &Split,
    watch: &mut Watch<'_>,
) -> Result<Summary, Error> {
    config.check()?;
    let batch_rows = batch_size(inputs)?;
    let (train, held_out) = loaders(trainer, inputs, config, split, batch_rows)?;
    let n_batches = (train.n_batches() as u64).min(config.batch_limit.unwrap_or(u64::MAX));
    let n_steps = config.steps.unwrap_or_else(|| config.epochs.saturating_mul(n_batches));
    let begun = begin(trainer, config, watch)?;
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
    let mut run = Run {
        trainer,
        inputs,
        config,
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
        trace: config.trace.clone().map(|it| (it, N_UNTRACED.min(n_batches - 1))),
        last: None,
    };
    let end = run.run().and_then(|end| run.finish().map(|()| end));
    end.map(|end| run.summary(end)).map_err(|error| run.explained(&error))
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

/// How a run stands at its beginning.
struct Begun {
    standing: Standing,
    checkpoint: Option<Checkpoint>,
    keeper: Option<Keeper>,
    files: Option<Files>,
}

fn begin(
    trainer: &mut Trainer,
    config: &TrainConfig,
    watch: &mut Watch<'_>,
) -> Result<Begun, Error> {
    if let Some(out) = &config.out {
        Checkpoints::new(keeper::folder(out), config.keep).settle(trainer)?;
    }
    let checkpoint = checkpoint(config, watch);
    let checkpoint = trainer.together(checkpoint)?;
    let standing = match &checkpoint {
        Some(checkpoint) => restore(trainer, config, checkpoint)?,
        None => {
            load_weights(trainer, config, watch)?;
            Standing::default()
        }
    };
    let path = checkpoint.as_ref().map(Checkpoint::path);
    let mut begun = Begun { standing, checkpoint: None, keeper: None, files: None };
    if let Some(out) = &config.out {
        let files = if trainer.process().is_first() {
            open(config, out, path, &begun.standing, watch).map(Some)
        } else {
            Ok(None)
        };
        begun.files = trainer.together(files)?;
        begun.keeper = config.checkpoints.then(|| Keeper::new(out, config, trainer.process()));
    }
    if let (Some(keeper), Some(path)) = (&mut begun.keeper, path) {
        let is_best = begun.standing.best_step == Some(begun.standing.step);
        let kept = keeper.resumed(path, if is_best { Rank::Best } else { Rank::Further });
        trainer.together(kept)?;
    }
    Ok(Begun { checkpoint, ..begun })
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
    resumed: Option<&Path>,
    standing: &Standing,
    watch: &mut Watch<'_>,
) -> Result<Files, Error> {
    let is_ours = |path: &Path| {
        let (path, out) = (path.canonicalize().ok(), out.canonicalize().ok());
        path.zip(out).is_some_and(|(path, out)| path.starts_with(out))
    };
    let ours = resumed.filter(|path| is_ours(path));
    let Standing { step, is_pending: before_evaluation, .. } = *standing;
    for folder in keeper::move_aside(out, ours.map(|_| step))? {
        let folder = folder.display();
        note(watch, &format!("checkpoints that this run does not go on from are in {folder}"));
    }
    let files = Files::open(out, ours.map(|_| Cut { step, before_evaluation }))?;
    write_whole(&out.join("config.toml"), &config.to_toml())?;
    Ok(files)
}

fn note(watch: &mut Watch<'_>, text: &str) {
    // A wish to stop is heard at the start of the run.
    let _ = watch(&Event::Note(text));
}
