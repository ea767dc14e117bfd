//! The folders of checkpoints over time.

use std::fs;

use soybean::checkpoint::Checkpoints;

use super::{
    environment::{files, folder, names},
    network::{progress, state, train, trainer},
};

#[test]
fn the_newest_whole_ones_stay() {
    let folder = folder("kept");
    let mut checkpoints = Checkpoints::new(&folder, 2);
    let mut trainer = trainer(1);
    assert!(checkpoints.latest().unwrap().checkpoint.is_none());
    for _ in 0..3 {
        train(&mut trainer, 1);
        checkpoints.save(&mut trainer, &progress(0)).unwrap();
    }
    assert_eq!(names(&folder), ["step-0000000002", "step-0000000003"]);
    // An incomplete checkpoint does not count.
    fs::remove_file(folder.join("step-0000000003/model.safetensors")).unwrap();
    train(&mut trainer, 1);
    checkpoints.save(&mut trainer, &progress(0)).unwrap();
    assert_eq!(names(&folder), ["step-0000000002", "step-0000000003", "step-0000000004"]);
    train(&mut trainer, 1);
    checkpoints.save(&mut trainer, &progress(0)).unwrap();
    assert_eq!(names(&folder), ["step-0000000004", "step-0000000005"]);
}

#[test]
fn what_was_just_written_stays_even_if_it_is_not_the_newest() {
    let folder = folder("went_back");
    let mut checkpoints = Checkpoints::new(&folder, 1);
    let mut ahead = trainer(1);
    train(&mut ahead, 5);
    checkpoints.save(&mut ahead, &progress(0)).unwrap();
    let mut behind = trainer(1);
    train(&mut behind, 2);
    checkpoints.save(&mut behind, &progress(0)).unwrap();
    // It does not displace the newer one either.
    assert_eq!(names(&folder), ["step-0000000002", "step-0000000005"]);
    train(&mut behind, 1);
    checkpoints.save(&mut behind, &progress(0)).unwrap();
    assert_eq!(names(&folder), ["step-0000000003", "step-0000000005"]);
}

#[test]
fn the_same_step_again_takes_the_place_of_the_first() {
    let folder = folder("again");
    let mut checkpoints = Checkpoints::new(&folder, 0);
    let mut trainer = trainer(2);
    checkpoints.save(&mut trainer, &progress(1)).unwrap();
    checkpoints.save(&mut trainer, &progress(2)).unwrap();
    assert_eq!(names(&folder), ["step-0000000000"]);
    let latest = checkpoints.latest().unwrap().checkpoint.unwrap();
    assert_eq!(latest.progress(), &progress(2));
    assert_eq!((latest.model_name(), latest.counters().n_steps), ("model", 0));
}

#[test]
fn what_killed_runs_leave_does_no_harm_and_goes() {
    let folder = folder("left");
    let mut checkpoints = Checkpoints::new(&folder, 0);
    let mut trainer = trainer(2);
    let path = checkpoints.save(&mut trainer, &progress(1)).unwrap();
    fs::create_dir(folder.join(".tmp-step-0000000007")).unwrap();
    fs::write(folder.join(".tmp-step-0000000007/model.safetensors"), "half").unwrap();
    // Killed while a second checkpoint of a step replaced the first.
    fs::rename(&path, folder.join(".old-step-0000000000")).unwrap();
    let latest = checkpoints.latest().unwrap();
    assert_eq!(latest.checkpoint.unwrap().progress(), &progress(1));
    checkpoints.settle(&mut trainer).unwrap();
    assert_eq!(checkpoints.list().unwrap(), [(0, path.clone())]);
    assert_eq!(names(&folder), ["step-0000000000"]);
    // Killed before the replaced checkpoint was removed.
    fs::create_dir(folder.join(".old-step-0000000000")).unwrap();
    train(&mut trainer, 1);
    checkpoints.save(&mut trainer, &progress(2)).unwrap();
    assert_eq!(names(&folder), ["step-0000000000", "step-0000000001"]);
}

#[test]
fn what_is_not_of_checkpoints_stays_as_it_is() {
    let folder = folder("not_ours");
    let theirs = [".old-notes", ".old-step-1", ".tmp-average.safetensors", ".tmp-step-notes"];
    for name in theirs {
        match name {
            ".tmp-average.safetensors" => fs::write(folder.join(name), "being written").unwrap(),
            _ => fs::create_dir(folder.join(name)).unwrap(),
        }
    }
    let mut checkpoints = Checkpoints::new(&folder, 1);
    let mut trainer = trainer(1);
    checkpoints.save(&mut trainer, &progress(0)).unwrap();
    train(&mut trainer, 1);
    checkpoints.save(&mut trainer, &progress(0)).unwrap();
    assert_eq!(names(&folder), [&theirs[..], &["step-0000000001"]].concat());
}

#[test]
fn a_checkpoint_that_is_in_its_place_is_saved_whatever_stays_beside_it() {
    let folder = folder("in_the_way");
    // An entry that is not a folder is not ours, and stays under another name.
    fs::write(folder.join("step-0000000000"), "a file").unwrap();
    let mut checkpoints = Checkpoints::new(&folder, 1);
    checkpoints.save(&mut trainer(1), &progress(1)).unwrap();
    let [warning] = &checkpoints.take_warnings()[..] else { panic!("expected a warning") };
    let start =
        format!("{}/.old-step-0000000000: expected to remove it, found: ", folder.display());
    assert!(warning.to_string().starts_with(&start), "{warning}");
    assert_eq!(checkpoints.latest().unwrap().checkpoint.unwrap().progress(), &progress(1));
    assert_eq!(names(&folder), [".old-step-0000000000", "step-0000000000"]);
}

#[test]
fn a_checkpoint_under_the_name_of_another_step_is_refused() {
    let folder = folder("renamed");
    let mut checkpoints = Checkpoints::new(&folder, 0);
    let mut trainer = trainer(1);
    let path = checkpoints.save(&mut trainer, &progress(1)).unwrap();
    train(&mut trainer, 1);
    checkpoints.save(&mut trainer, &progress(2)).unwrap();
    fs::rename(path, folder.join("step-0000000009")).unwrap();
    let latest = checkpoints.latest().unwrap();
    assert_eq!(latest.checkpoint.unwrap().counters().n_steps, 1);
    let why = latest.refused[0].1.to_string();
    assert!(why.ends_with("expected a checkpoint after 9 steps, found one after 0"), "{why}");
}

#[test]
fn large_files_are_split_and_come_with_an_index() {
    let folder = folder("shards");
    let mut trainer = trainer(4);
    train(&mut trainer, 1);
    let mut checkpoints = Checkpoints::new(&folder, 0).with_shard_bytes(2000);
    let path = checkpoints.save(&mut trainer, &progress(1)).unwrap();
    let names = names(&path);
    for name in [
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "optimizer.safetensors.index.json",
    ] {
        assert!(names.iter().any(|it| it == name), "{names:?}");
    }
    let of_tensors = |it: &&(String, Vec<u8>)| it.0.ends_with(".safetensors");
    let files = files(&path);
    let long: Vec<_> = files.iter().filter(of_tensors).filter(|it| it.1.len() > 4000).collect();
    assert!(long.is_empty());
    let expected = state(&mut trainer);
    train(&mut trainer, 1);
    trainer.restore(&checkpoints.latest().unwrap().checkpoint.unwrap()).unwrap();
    assert_eq!(state(&mut trainer), expected);
}
