//! Resumed runs equal uninterrupted ones, bit for bit.

use std::{fs, path::Path};

use soybean::{End, Event, Flow, Resume, TrainConfig};

use super::small::{Random, checkpoints, config, data, folder, lines, newest, state, trainer};

/// Returns a run of 40 steps, evaluated every 3 steps and at the ends of epochs.
fn disturbed(out: &Path, is_async: bool) -> TrainConfig {
    TrainConfig {
        evaluate_every: Some(3),
        checkpoint_every: Some(4),
        async_checkpoint: is_async,
        resume: Resume::Auto,
        ..config(out)
    }
}

/// Runs until `stop` returns true; returns the end and the notes.
fn run(config: &TrainConfig, mut stop: impl FnMut(&Event<'_>) -> bool) -> (End, Vec<String>) {
    let mut notes = Vec::new();
    let summary = trainer(config)
        .fit_watched(config, &data(), |event| {
            if let Event::Note(note) = event {
                notes.push((*note).to_owned());
            }
            if stop(event) { Flow::Stop } else { Flow::Continue }
        })
        .unwrap();
    (summary.end, notes)
}

fn check_same(out: &Path, expected: &Path, what: &str) {
    assert!(state(&newest(out)) == state(&newest(expected)), "other weights: {what}");
    assert_eq!(lines(out), lines(expected), "{what}");
    assert_eq!(checkpoints(&out.join("best")), checkpoints(&expected.join("best")), "{what}");
}

#[test]
fn a_run_stopped_at_twenty_places_is_the_undisturbed_one() {
    let expected = folder("undisturbed");
    run(&disturbed(&expected, false), |_| false);
    let mut random = Random(7);
    for place in 0..20 {
        let out = folder("stopped");
        let config = disturbed(&out, place % 4 == 3);
        // A run can be stopped after each of 40 steps and before each of 3 * 17 batches of
        // evaluations.
        let mut left = 1 + random.below(90);
        let (end, _) = run(&config, |event| {
            let counts = matches!(event, Event::Step(_) | Event::Evaluating { .. });
            left = left.saturating_sub(u64::from(counts));
            left == 0
        });
        assert_eq!(end, End::Stopped, "place {place}");
        let stopped_at = newest(&out);
        assert_eq!(run(&config, |_| false).0, End::Finished);
        check_same(&out, &expected, &format!("stopped at {}", stopped_at.display()));
    }
}

/// A killed program writes no checkpoint; the lines after its last one are written again.
#[test]
fn a_run_that_ends_without_a_word_goes_on_at_its_last_checkpoint() {
    let expected = folder("undisturbed-too");
    run(&disturbed(&expected, false), |_| false);
    let out = folder("failed");
    let config = disturbed(&out, false);
    for step in [11, 22, 33] {
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(&config, |event| match event {
                Event::Step(record) => {
                    assert!(record.step < step, "the end");
                    false
                }
                _ => false,
            })
        }));
        assert!(failed.is_err());
    }
    run(&config, |_| false);
    check_same(&out, &expected, "failed at steps 11, 22 and 33");
}

#[test]
fn damaged_checkpoints_are_refused_by_name_and_the_one_before_is_taken() {
    let expected = folder("undisturbed-three");
    run(&disturbed(&expected, false), |_| false);
    let out = folder("damaged");
    let config = disturbed(&out, false);
    run(&config, |event| matches!(event, Event::Step(record) if record.step == 30));
    let all = checkpoints(&out.join("checkpoints"));
    assert_eq!(all, ["step-0000000027", "step-0000000028", "step-0000000030"]);
    damage(&out, &all[2]);
    fs::remove_file(out.join("checkpoints").join(&all[1]).join("optimizer.safetensors")).unwrap();
    let mut start = None;
    let (end, notes) = run(&config, |event| {
        if let Event::Start(it) = event {
            start = Some(it.to_string());
        }
        false
    });
    assert_eq!(end, End::Finished);
    assert_eq!(notes.len(), 3, "{notes:?}");
    for (note, name) in notes.iter().zip([&all[2], &all[1]]) {
        assert!(note.starts_with("a checkpoint is refused: ") && note.contains(name), "{note}");
    }
    assert!(notes[2].ends_with("/old"), "{notes:?}");
    let start = start.unwrap();
    assert!(start.contains("resuming after step 27 of 40, from "), "{start}");
    check_same(&out, &expected, "two damaged checkpoints");
}

fn damage(out: &Path, checkpoint: &str) {
    let path = out.join("checkpoints").join(checkpoint).join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 10;
    bytes[last] ^= 1;
    fs::write(&path, bytes).unwrap();
}

#[test]
fn without_a_whole_checkpoint_the_run_starts_anew() {
    let out = folder("anew");
    let config = TrainConfig { epochs: 1, resume: Resume::Auto, ..config(&out) };
    let (_, notes) = run(&config, |_| false);
    let folder = out.join("checkpoints");
    let anew = format!(
        "no checkpoint in {} to resume from: the run starts from scratch",
        folder.display()
    );
    assert_eq!(notes, std::slice::from_ref(&anew));
    damage(&out, "step-0000000008");
    let (_, notes) = run(&config, |_| false);
    // The best checkpoint has the same file.
    assert_eq!(notes.len(), 4, "the folder of the first run is moved aside: {notes:?}");
    assert!(notes[..2].iter().all(|it| it.contains("model.safetensors")), "{notes:?}");
    assert_eq!(notes[2], anew);
}

/// A link to itself cannot be opened, which says nothing of the contents.
#[cfg(unix)]
#[test]
fn a_checkpoint_that_cannot_be_read_ends_the_run() {
    let out = folder("unreadable");
    let config = TrainConfig { epochs: 2, resume: Resume::Auto, ..config(&out) };
    run(&config, |_| false);
    let newest = newest(&out);
    let (file, aside) = (newest.join("model.safetensors"), out.join("aside"));
    fs::rename(&file, &aside).unwrap();
    std::os::unix::fs::symlink("model.safetensors", &file).unwrap();
    let error = trainer(&config).fit(&config, &data()).unwrap_err().to_string();
    let advice = format!(
        "make it readable, or move {} away to resume from an earlier checkpoint",
        newest.display()
    );
    assert!(error.contains(&advice), "{error}");
    assert_eq!(checkpoints(&out.join("checkpoints")).len(), 2, "nothing is moved");
    fs::rename(&aside, &file).unwrap();
    assert_eq!(run(&config, |_| false).1, [""; 0]);
}

#[test]
fn the_best_checkpoint_is_tried_too() {
    let out = folder("from-best");
    let config = TrainConfig { epochs: 2, resume: Resume::Must, ..config(&out) };
    run(&TrainConfig { resume: Resume::Never, ..config.clone() }, |_| false);
    fs::remove_dir_all(out.join("checkpoints")).unwrap();
    let best = out.join("best").join(&checkpoints(&out.join("best"))[0]);
    let mut resumed = None;
    run(&config, |event| {
        if let Event::Start(start) = event {
            resumed.clone_from(&start.resumed);
        }
        false
    });
    assert_eq!(resumed, Some(best));
}

#[test]
fn a_run_that_must_resume_never_starts_anew() {
    let out = folder("must");
    let config = TrainConfig { epochs: 1, ..config(&out) };
    let must = TrainConfig { resume: Resume::Must, ..config.clone() };
    let fault = || trainer(&must).fit(&must, &data()).unwrap_err().to_string();
    let place = out.join("checkpoints");
    let expected = format!(
        "{}: expected an intact checkpoint, since `resume` is `must`, found none",
        place.display()
    );
    assert_eq!(fault(), expected);
    run(&config, |_| false);
    assert_eq!(run(&must, |_| false).1, [""; 0]);
    damage(&out, "step-0000000008");
    assert_eq!(fault(), expected);
    assert_eq!(checkpoints(&place), ["step-0000000008"]);
}

#[test]
fn changed_settings_are_said_and_the_earlier_ones_are_kept() {
    let out = folder("changed");
    let config = TrainConfig { epochs: 1, resume: Resume::Auto, ..config(&out) };
    run(&config, |_| false);
    let first = fs::read_to_string(out.join("config.toml")).unwrap();
    let changed = |epochs| TrainConfig { epochs, patience: Some(9), ..config.clone() };
    let note = |changes: &str, file: &str| {
        let file = out.join(file);
        format!("changed settings: {changes}; the earlier ones are in {}", file.display())
    };
    let changes = "epochs = 2 (was 1), patience = 9 (was none)";
    assert_eq!(run(&changed(2), |_| false).1, [note(changes, "config.old.toml")]);
    assert_eq!(run(&changed(2), |_| false).1, [""; 0], "they are those of the run now");
    assert_eq!(run(&changed(3), |_| false).1, [note("epochs = 3 (was 2)", "config.old.2.toml")]);
    assert_eq!(fs::read_to_string(out.join("config.old.toml")).unwrap(), first);
    run(&TrainConfig { resume: Resume::Never, ..config.clone() }, |_| false);
    assert_eq!(fs::read_to_string(out.join("old/config.old.toml")).unwrap(), first);
    assert!(!out.join("config.old.toml").exists());
}

#[test]
fn a_new_run_moves_the_old_one_aside_from_where_it_can_go_on() {
    let out = folder("twice");
    let config = TrainConfig { epochs: 1, ..config(&out) };
    run(&config, |_| false);
    let note = |name: &str| {
        let folder = out.join(name);
        format!("earlier output that this run does not resume from is in {}", folder.display())
    };
    assert_eq!(run(&config, |_| false).1, [note("old")]);
    assert_eq!(lines(&out), lines(&out.join("old")));
    // From its checkpoint, in the folder of the new run.
    let from = out.join("old/checkpoints/step-0000000008");
    let before = state(&from);
    let again = TrainConfig { epochs: 2, resume: Resume::From(from.clone()), ..config.clone() };
    let longer = format!("other than in {}: expected epochs = 1, found 2", from.display());
    assert_eq!(run(&again, |_| false).1, [longer, note("old.2")]);
    assert!(state(&from) == before);
    assert!(checkpoints(&out.join("old.2/checkpoints")) == ["step-0000000008"]);
    // As a separate run in its own folder.
    let old = out.join("old");
    let own = TrainConfig { resume: Resume::Auto, out: Some(old.clone()), ..again };
    let [changes] = &run(&own, |_| false).1[..] else { panic!("expected one note") };
    assert!(changes.starts_with("changed settings: epochs = 2 (was 1); "), "{changes}");
    assert!(state(&newest(&old)) == state(&newest(&out)));
    assert_eq!(lines(&old).iter().filter(|it| it["kind"] == "step").count(), 16);
}

/// The trainer's steps continue; those of the run start from 0.
#[test]
fn the_second_run_of_a_trainer_can_go_on() {
    let (first, out) = (folder("first-of-two"), folder("second-of-two"));
    let mut trainer = trainer(&config(&out));
    for out in [&first, &out] {
        let config = TrainConfig { epochs: 2, ..config(out) };
        trainer.fit(&config, &data()).unwrap();
    }
    assert_eq!(newest(&out), out.join("checkpoints/step-0000000032"));
    let config = TrainConfig { epochs: 3, resume: Resume::Auto, ..config(&out) };
    let mut n_steps = 0;
    let (_, notes) = run(&config, |event| {
        n_steps += u32::from(matches!(event, Event::Step(_)));
        false
    });
    assert_eq!((n_steps, notes.len()), (8, 1));
    assert!(notes[0].starts_with("changed settings: epochs = 3 (was 2); "), "{notes:?}");
    assert_eq!(lines(&out).iter().filter(|it| it["kind"] == "step").count(), 24);
}

#[test]
fn what_is_best_by_another_metric_is_chosen_anew() {
    let out = folder("watch");
    let config = TrainConfig { epochs: 3, ..config(&out) };
    let by_loss = trainer(&config).fit(&config, &data()).unwrap();
    let watch = Some("accuracy".to_owned());
    let config = TrainConfig { epochs: 4, watch, resume: Resume::Auto, ..config };
    let mut notes = Vec::new();
    let by_accuracy = trainer(&config).fit_watched(&config, &data(), |event| {
        if let Event::Note(note) = event {
            notes.push((*note).to_owned());
        }
        Flow::Continue
    });
    let by_accuracy = by_accuracy.unwrap();
    assert_eq!(notes[0], "the best checkpoint is selected by accuracy from here on, not by loss");
    let changes = "changed settings: epochs = 4 (was 3), watch = \"accuracy\" (was \"loss\"); ";
    assert!(notes.len() == 2 && notes[1].starts_with(changes), "{notes:?}");
    assert!(by_loss.best.is_some() && by_loss.best_step <= Some(24));
    assert_eq!(by_accuracy.best, by_accuracy.last.unwrap().metric("accuracy"));
    assert_eq!(by_accuracy.best_step, Some(32));
    assert_eq!(checkpoints(&out.join("best")), ["step-0000000032"]);
}

#[test]
fn two_runs_do_not_write_into_one_folder() {
    let out = folder("shared");
    let config = TrainConfig { epochs: 1, ..config(&out) };
    let mut errors = Vec::new();
    run(&config, |event| {
        if let Event::Evaluation(_) = event {
            let again = TrainConfig { resume: Resume::Auto, ..config.clone() };
            errors.push(trainer(&again).fit(&again, &data()).unwrap_err().to_string());
        }
        false
    });
    assert_eq!(errors, [format!("cannot write {}: another run is writing there", out.display())]);
    assert_eq!(lines(&out).len(), 9, "the first run is as it was");
    run(&config, |_| false);
}

#[test]
fn a_run_goes_on_from_any_checkpoint() {
    let out = folder("branch");
    let config = TrainConfig { keep: 0, ..disturbed(&out, false) };
    run(&config, |_| false);
    let expected = state(&newest(&out));
    // From an earlier checkpoint: later ones are moved aside.
    let from = out.join("checkpoints/step-0000000012");
    let again = TrainConfig { resume: Resume::From(from.clone()), ..config.clone() };
    run(&again, |_| false);
    assert!(state(&newest(&out)) == expected);
    assert_eq!(lines(&out).iter().filter(|it| it["kind"] == "step").count(), 40);
    // In another folder the metrics start with the first step of the new run.
    let other = folder("other");
    run(&TrainConfig { out: Some(other.clone()), ..again.clone() }, |_| false);
    assert!(state(&newest(&other)) == expected);
    assert_eq!(lines(&other).iter().filter(|it| it["kind"] == "step").count(), 28);
    let seeded = soybean::Config { seed: 3, ..config.trainer.clone() };
    let error = trainer(&again)
        .fit(&TrainConfig { trainer: seeded, ..again }, &data())
        .unwrap_err()
        .to_string();
    assert!(error.contains(": expected seed = 0, found 3; "), "{error}");
    assert!(error.starts_with(&from.display().to_string()), "{error}");
}

#[test]
fn a_run_that_was_killed_while_one_checkpoint_took_the_place_of_another_keeps_their_name() {
    let out = folder("giving_way");
    let config = TrainConfig { epochs: 1, resume: Resume::Auto, ..config(&out) };
    run(&config, |_| false);
    let newest = newest(&out);
    let kill = || fs::rename(&newest, newest.with_file_name(".old-step-0000000008")).unwrap();
    kill();
    fs::remove_dir_all(out.join("best")).unwrap();
    let summary = trainer(&config).fit(&config, &data()).unwrap();
    assert_eq!(summary.checkpoint.as_ref(), Some(&newest));
    assert_eq!(summary.best_checkpoint, Some(out.join("best/step-0000000008")));
    kill();
    run(&TrainConfig { resume: Resume::Never, ..config }, |_| false);
    assert_eq!(checkpoints(&out.join("old/checkpoints")), ["step-0000000008"]);
}

/// A finished run does not start again, but continues if there are more steps.
#[test]
fn a_finished_run_can_be_made_longer() {
    let out = folder("longer");
    let config = TrainConfig { epochs: 2, resume: Resume::Auto, ..config(&out) };
    run(&config, |_| false);
    let count = |events: &mut u32, event: &Event<'_>| {
        *events += u32::from(matches!(event, Event::Step(_)));
        false
    };
    let mut n_steps = 0;
    run(&config, |event| count(&mut n_steps, event));
    assert_eq!(n_steps, 0);
    run(&TrainConfig { epochs: 3, ..config }, |event| count(&mut n_steps, event));
    assert_eq!(n_steps, 8);
    assert_eq!(lines(&out).iter().filter(|it| it["kind"] == "evaluation").count(), 3);
}
