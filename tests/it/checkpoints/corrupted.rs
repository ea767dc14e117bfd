//! Damaged checkpoints: each is rejected with a reason, and none panics.

use std::{fs, path::Path};

use soybean::{
    checkpoint::{Checkpoint, Checkpoints},
    runtime::ErrorKind,
    weights::{self, Mapping},
};
use soybean_plan::random::mixed;

use super::{
    environment::{files, folder, names},
    network::{progress, train, trainer},
};

/// The files of a checkpoint by name.
type Files = Vec<(String, Vec<u8>)>;

/// Pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 += 1;
        usize::try_from(mixed(self.0) >> 1).unwrap() % limit
    }
}

/// Damages one file; returns a description.
fn damage(files: &mut Files, dice: &mut Dice) -> String {
    let (at, other) = (dice.below(files.len()), dice.below(files.len()));
    let name = files[at].0.clone();
    let n_bytes = files[at].1.len();
    let place = dice.below(n_bytes);
    match dice.below(8) {
        0..=3 => {
            files[at].1[place] ^= u8::try_from(dice.below(255) + 1).unwrap();
            format!("{name}: byte {place} changed")
        }
        4 => {
            files[at].1.truncate(place);
            format!("{name}: cut to {place} bytes")
        }
        5 => {
            let more = (0..=dice.below(20)).map(|_| b'}');
            files[at].1.extend(more);
            format!("{name}: longer")
        }
        6 if at != other => {
            let taken = files[other].1.clone();
            files[other].1 = std::mem::replace(&mut files[at].1, taken);
            format!("{name} and {} exchanged", files[other].0)
        }
        _ => {
            files.remove(at);
            format!("{name} is missing")
        }
    }
}

fn write(folder: &Path, files: &Files) {
    let _not_there = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).unwrap();
    files.iter().for_each(|(name, bytes)| fs::write(folder.join(name), bytes).unwrap());
}

#[test]
fn three_hundred_damaged_checkpoints_are_refused() {
    let folder = folder("damaged");
    let mut checkpoints = Checkpoints::new(&folder, 0).with_shard_bytes(1500);
    let mut trainer = trainer(2);
    train(&mut trainer, 1);
    checkpoints.save(&mut trainer, &progress(1)).unwrap();
    train(&mut trainer, 1);
    let newest = checkpoints.save(&mut trainer, &progress(2)).unwrap();
    let whole = files(&newest);
    assert!(whole.len() > 6, "{:?}", names(&newest));
    let mut dice = Dice(7);
    for number in 0..300 {
        let mut files = whole.clone();
        let what = damage(&mut files, &mut dice);
        if files == whole {
            continue;
        }
        write(&newest, &files);
        let error = Checkpoint::open(&newest).map(|_| ()).expect_err(&what);
        assert_eq!(error.kind(), ErrorKind::Checkpoint);
        assert!(error.to_string().contains(newest.to_str().unwrap()), "{what}: {error}");
        if number % 20 == 0 {
            let latest = checkpoints.latest().unwrap();
            assert_eq!(latest.checkpoint.unwrap().counters().n_steps, 1, "{what}");
            assert_eq!(latest.refused, [(newest.clone(), error)], "{what}");
        }
        // Weight files have no checksum, but must not panic either.
        let _loaded = weights::load(
            &mut trainer,
            newest.join("model.safetensors.index.json"),
            &Mapping::new(),
        );
    }
    write(&newest, &whole);
    assert_eq!(checkpoints.latest().unwrap().checkpoint.unwrap().counters().n_steps, 2);
}

#[track_caller]
fn check_header(header: &[u8], elements: usize, message: &str) {
    let path = folder("headers").join("file.safetensors");
    let length = (header.len() as u64).to_le_bytes();
    fs::write(&path, [&length[..], header, &vec![0; elements]].concat()).unwrap();
    let error = weights::load(&mut trainer(1), &path, &Mapping::new()).unwrap_err().to_string();
    let found = error.strip_prefix(path.to_str().unwrap()).unwrap();
    assert!(found.starts_with(message), "{found}");
}

#[test]
fn headers_that_lie_are_refused() {
    let start = ": expected the header of tensors at offset 8: ";
    check_header(b"[]", 0, start);
    check_header(b"{", 0, start);
    check_header(&[0xff; 4], 0, start);
    check_header(&b"[".repeat(100_000), 0, start);
    check_header(
        br#"{"a":{"dtype":"F32","shape":[18446744073709551615,2],"data_offsets":[0,8]}}"#,
        8,
        start,
    );
    check_header(br#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#, 8, start);
    check_header(br#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#, 12, start);
    check_header(br#"{"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}}"#, 8, start);
    check_header(
        br#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#,
        7,
        ": expected a header of 8 + 54 bytes and 8 bytes of elements, found a file of 69 bytes",
    );
}

#[test]
fn lengths_that_lie_are_refused_before_anything_is_allocated() {
    let path = folder("lengths").join("file.safetensors");
    for length in [3, 1 << 20, 1 << 40, u64::MAX] {
        fs::write(&path, length.to_le_bytes()).unwrap();
        let error = weights::load(&mut trainer(1), &path, &Mapping::new()).unwrap_err().to_string();
        let expected =
            format!(": expected a header of at most 0 bytes at offset 8, found one of {length}");
        assert_eq!(error, format!("{}{expected}", path.display()));
    }
    fs::write(&path, [0; 3]).unwrap();
    let error = weights::load(&mut trainer(1), &path, &Mapping::new()).unwrap_err().to_string();
    assert!(error.ends_with("expected a file of tensors (safetensors), found 3 bytes"), "{error}");
}
