//! The leftovers of a killed run are removed, also by a run that has nothing to do.

use std::fs;

use soybean::{End, Resume, TrainConfig};

use super::small::{config, data, folder, trainer};

// Guards: a half-written folder beside the best checkpoint that stays for ever.
#[test]
fn unfinished_folders_are_removed_by_a_run_that_is_complete() {
    let out = folder("leftovers");
    let config = TrainConfig { resume: Resume::Auto, ..config(&out) };
    let run = || trainer(&config).fit(&config, &data()).unwrap().end;
    assert_eq!(run(), End::Finished);
    for place in ["checkpoints", "best"] {
        let left = out.join(place).join(".tmp-step-0000000001");
        fs::create_dir_all(&left).unwrap();
        fs::write(left.join("model.safetensors"), "half").unwrap();
    }
    assert_eq!(run(), End::Finished);
    for place in ["checkpoints", "best"] {
        let names = fs::read_dir(out.join(place)).unwrap().map(|it| it.unwrap().file_name());
        let names: Vec<_> = names.filter(|it| it.to_string_lossy().starts_with('.')).collect();
        assert!(names.is_empty(), "{place}: {names:?}");
    }
}
