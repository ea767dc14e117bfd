//! Tests of processes that read different bytes: checkpoints, weights and data.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use soybean_test_support::{example, run};

use crate::with_mpi::{has, mpirun, printed_errors};

/// Trains in one process, into a folder. Returns the arguments of the command.
fn train(digits: &Path, out: &Path, choices: &str) {
    let mut command = Command::new(digits);
    command.args(["train", "--device", "cpu", "--out"]).arg(out).args(choices.split(' '));
    let (code, _, errors) = run(&mut command);
    assert_eq!(code, Some(0), "{errors}");
}

/// Checks that two processes with other arguments end with one error, which names what differs.
fn check(digits: &Path, common: &str, own: [&str; 2], expected: &str) {
    let words = |own: &str| {
        let words = format!("train --device cpu {common} {own}");
        words.split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    let [first, second] = own.map(words);
    let first: Vec<&str> = first.iter().map(String::as_str).collect();
    let mut command = mpirun(1, digits, &first);
    command.args([":", "-n", "1"]).arg(digits).args(second);
    let (code, output, errors) = run(&mut command);
    assert_eq!(code, Some(1), "{output}{errors}");
    let printed = printed_errors(&errors);
    assert!(printed.len() == 1 && printed[0].contains(expected), "{expected} in {errors}");
    assert!(!output.contains("epoch 2"), "{output}");
}

#[test]
fn processes_that_read_other_bytes_end_with_an_error() {
    if !has("mpirun") {
        return;
    }
    let digits: PathBuf = example!("digits").get_program().into();
    let folder = env::temp_dir().join(format!("soybean-agreement-{}", std::process::id()));
    let [one, other, none] = ["one", "other", "none"].map(|it| folder.join(it));
    train(&digits, &one, "--epochs 1 --batch-limit 4 --lr 0.1");
    train(&digits, &other, "--epochs 1 --batch-limit 4 --lr 0.2");
    fs::create_dir_all(&none).unwrap();
    let out = |it: &Path| format!("--out {}", it.display());
    let [with_one, with_other, with_none] = [&one, &other, &none].map(|it| out(it));
    let step = "checkpoints/step-0000000004";
    // Folders that are not shared.
    let resume = "--epochs 2 --batch-limit 4 --lr 0.1 --resume auto --allow-change lr";
    let differ = "expected the same checkpoint in all processes, found step-0000000004 with the \
                  checksum ";
    check(&digits, resume, [&with_one, &with_other], differ);
    let named = format!("; the first process resumes from {step}, and all processes must read");
    check(&digits, resume, [&with_one, &with_none], &named);
    // Checkpoints that are named.
    let from = |it: &Path| format!("--resume {}", it.join(step).display());
    let common =
        format!("--epochs 2 --batch-limit 4 --allow-change lr {}", out(&folder.join("named")));
    check(&digits, &common, [&from(&one), &from(&other)], differ);
    // Weights.
    let common = format!("--epochs 1 --batch-limit 4 {}", out(&folder.join("weights")));
    let weights = |it: &Path| format!("--weights {}", it.join(step).display());
    let differ = "expected the same weights in all processes, found files with the checksums ";
    check(&digits, &common, [&weights(&one), &weights(&other)], differ);
    // Data of equal size.
    let data = |name: &str, shift: usize| {
        let path = folder.join(name);
        let row = |row: usize| {
            let pixels =
                (0..64).map(|it| ((row * 7 + it * (row % 10 + 1) + shift) % 17).to_string());
            pixels.chain([(row % 10).to_string()]).collect::<Vec<_>>().join(",") + "\n"
        };
        fs::write(&path, (0..200).map(row).collect::<String>()).unwrap();
        format!("--data {}", path.display())
    };
    let differ = "expected the same training data in all processes, found ";
    check(&digits, &common, [&data("one.csv", 0), &data("other.csv", 1)], differ);
    fs::remove_dir_all(folder).unwrap();
}
