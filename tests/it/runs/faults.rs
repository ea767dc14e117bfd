//! Failures end a run soon, with one clear error.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use soybean::{
    Error, Event, Flow, Split, TrainConfig,
    data::{ColumnSpec, Dataset, ViewMut},
    runtime::ErrorKind,
};

use soybean_test_support::{example, run};

use super::{
    signals::digits,
    small::{checkpoints, config, data, folder, newest, state, trainer},
};

/// Runs a command that must fail; returns its only line of errors.
fn fault(command: &mut Command, what: &str) -> String {
    let started = Instant::now();
    let (code, output, errors) = run(command);
    assert_eq!(code, Some(1), "{what}: {output}{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    println!("{what}: a clean end after {} ms: {}", started.elapsed().as_millis(), errors.trim());
    errors
}

#[test]
fn a_loss_that_is_not_finite_ends_the_run() {
    let out = folder("nan");
    let error = fault(&mut digits(&out, "--lr 1e30"), "NaN at once");
    assert!(error.starts_with("error: expected a finite loss, found that the loss is "), "{error}");
    assert!(error.ends_with("; no checkpoint was written before\n"), "{error}");
    // After some good steps.
    assert_eq!(run(&mut digits(&out, "--epochs 1")).0, Some(0));
    let error = fault(
        &mut digits(&out, "--epochs 9 --lr 1e30 --resume auto --allow-change lr"),
        "NaN later",
    );
    let last = format!("; the last checkpoint is {}", newest(&out).display());
    assert!(error.contains(&last), "{error}");
    assert!(
        error.contains("resume from it with --allow-change lr and a lower --lr than 1e30: "),
        "{error}"
    );
    assert!(error.contains("in step 7 ") || error.contains("in step 8 "), "{error}");
}

/// The run can only resume from the checkpoint of the other folder until it has its own.
#[test]
fn the_advice_names_a_checkpoint_of_another_folder() {
    let (out, other) = (folder("advice"), folder("advice-other"));
    assert_eq!(run(&mut digits(&out, "--epochs 1")).0, Some(0));
    let from = newest(&out);
    let choices = format!("--epochs 9 --lr 1e30 --allow-change lr --resume {}", from.display());
    let error = fault(&mut digits(&other, &choices), "NaN in another folder");
    assert!(error.ends_with(&format!(" --resume {}\n", from.display())), "{error}");
}

#[test]
fn an_error_is_told_though_nobody_reads_the_output() {
    let out = folder("closed");
    let mut command = example!("runs_program");
    command.args(["train", "--data", "ends", "--out"]).arg(&out);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(output.any(|it| it.unwrap().contains("training and")), "the run begins");
    drop(output);
    let ended = child.wait_with_output().unwrap();
    let errors = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{errors}");
    assert!(errors.starts_with("error: rows: expected more, found the end; "), "{errors}");
}

#[test]
fn a_full_disk_ends_the_run_and_leaves_the_last_checkpoint() {
    if cfg!(not(unix)) {
        println!("skipped: no limits of files");
        return;
    }
    let out = folder("full");
    assert_eq!(run(&mut digits(&out, "--epochs 1")).0, Some(0));
    let last = newest(&out);
    let before = state(&last);
    // Files of at most 32 KiB, where a checkpoint has a hundred. Without the signal the write
    // itself fails.
    let inner = digits(&out, "--epochs 2 --resume auto");
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\""]);
    limited.arg(inner.get_program()).args(inner.get_args());
    let error = fault(&mut limited, "full disk");
    assert!(error.contains("checkpoint step-0000000010 is not saved: "), "{error}");
    assert!(error.contains(&format!("; the last checkpoint is {}", last.display())), "{error}");
    assert_eq!(checkpoints(&out.join("checkpoints")), ["step-0000000005"]);
    assert!(state(&last) == before, "it is as it was");
    let (code, output, _) = run(&mut digits(&out, "--epochs 2 --resume auto"));
    assert_eq!(code, Some(0), "with room it goes on");
    assert!(output.contains("resuming after step 5 of 10"), "{output}");
}

#[test]
fn a_damaged_checkpoint_is_said_and_the_one_before_is_taken() {
    let out = folder("damaged-digits");
    assert_eq!(run(&mut digits(&out, "--epochs 2")).0, Some(0));
    let path = newest(&out).join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    bytes.truncate(bytes.len() / 2);
    fs::write(&path, bytes).unwrap();
    let (code, output, errors) = run(&mut digits(&out, "--epochs 2 --resume auto"));
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    let line = output.lines().find(|it| it.starts_with("a checkpoint is refused: ")).unwrap();
    assert!(line.contains("step-0000000010"), "{line}");
    assert!(output.contains("resuming after step 5 of 10"), "{output}");
    let explicit =
        format!("--epochs 2 --resume {}", out.join("checkpoints/step-0000000099").display());
    let error = fault(&mut digits(&out, &explicit), "a checkpoint that is not there");
    assert!(error.contains("step-0000000099"), "{error}");
}

/// The schedule of the first command would otherwise become constant.
#[test]
fn a_resumed_run_has_its_own_settings_and_flags_override_them() {
    let out = folder("own-settings");
    let (code, _, errors) = run(&mut digits(&out, "--steps 10 --schedule cosine --lr 0.05"));
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let (code, output, errors) = run(&mut digits(&out, "--epochs 3 --resume auto"));
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let config = out.join("config.toml");
    let lines = [
        format!("settings of {}", config.display()),
        format!(
            "changed settings: epochs = 3 (was 30), steps = none (was 10); the earlier ones are in {}",
            out.join("config.old.toml").display()
        ),
    ];
    for line in lines {
        assert!(output.lines().any(|it| it == line), "{line} in {output}");
    }
    assert!(output.contains("resuming after step 10 of 15"), "{output}");
    let written = fs::read_to_string(&config).unwrap();
    for line in ["schedule = \"cosine\"", "lr = 0.05", "epochs = 3"] {
        assert!(written.lines().any(|it| it == line), "{line} in {written}");
    }
    // A file is between the settings of the run and flags.
    let file = out.join("more.toml");
    fs::write(&file, "epochs = 4\nlr = 0.01\n").unwrap();
    let mut command = digits(&out, "--epochs 5 --resume must --allow-change lr");
    let (code, output, errors) = run(command.arg("--config").arg(&file));
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let changes = "changed settings: epochs = 5 (was 3), lr = 0.01 (was 0.05); ";
    assert!(output.contains(changes), "{output}");
}

#[test]
fn too_many_threads_are_refused() {
    for (flag, number) in [
        ("--threads", "4294967296"),
        ("--threads", "18446744073709551615"),
        ("--loader-threads", "18446744073709551615"),
    ] {
        let out = folder("threads");
        let error = fault(&mut digits(&out, &format!("{flag} {number}")), "threads");
        assert!(error.contains("expected at most 4096") && error.contains(number), "{error}");
    }
}

#[test]
fn a_data_file_that_ends_early_is_named() {
    let out = folder("short");
    let whole = fs::read("examples/data/digits.csv.gz").unwrap();
    let short = out.join("short.csv.gz");
    fs::write(&short, &whole[..whole.len() / 2]).unwrap();
    let mut command = digits(&out, "--epochs 1");
    command.arg("--data").arg(&short);
    let error = fault(&mut command, "a data file that ends early");
    assert!(error.contains("short.csv.gz: ") && error.contains("line "), "{error}");
}

/// The rows of a file that became shorter after the start of the run.
pub(crate) struct Shrunk {
    pub(crate) inner: Arc<dyn Dataset>,
    pub(crate) n_left: usize,
}

impl Dataset for Shrunk {
    fn n_rows(&self) -> usize {
        self.inner.n_rows()
    }

    fn columns(&self) -> &[ColumnSpec] {
        self.inner.columns()
    }

    fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error> {
        match rows.iter().find(|it| **it >= self.n_left) {
            Some(row) => {
                Err(Error::data(format!("rows.bin: expected row {row}, found the end of the file")))
            }
            None => self.inner.read(rows, into),
        }
    }
}

#[test]
fn data_that_end_within_an_epoch_end_the_run() {
    let out = folder("shrunk");
    let config = TrainConfig { checkpoint_every: Some(1), ..config(&out) };
    let Split { train, held_out } = data();
    for n_left in [69, 40] {
        let train = Shrunk { inner: Arc::clone(&train), n_left };
        let split = Split { train: Arc::new(train), held_out: Arc::clone(&held_out) };
        let started = Instant::now();
        let mut n_steps = 0;
        let watch = |event: &Event<'_>| {
            n_steps += u64::from(matches!(event, Event::Step(_)));
            Flow::Continue
        };
        let error = trainer(&config).fit_watched(&config, &split, watch).unwrap_err();
        println!("data that end: {} ms: {error}", started.elapsed().as_millis());
        assert!(started.elapsed() < Duration::from_secs(20));
        assert_eq!(error.kind(), ErrorKind::Data);
        let error = error.to_string();
        assert!(error.starts_with("rows.bin: expected row "), "{error}");
        match n_steps {
            0 => assert!(error.ends_with("; no checkpoint was written before"), "{error}"),
            _ => assert!(error.ends_with(&newest(&out).display().to_string()), "{error}"),
        }
    }
}

#[test]
fn files_of_choices_are_refused_where_they_are_wrong() {
    let out = folder("choices");
    let file = out.join("run.toml");
    let digits = |text: &str, arguments: &str| {
        fs::write(&file, text).unwrap();
        run(digits(&out, arguments).arg("--config").arg(&file))
    };
    for (text, message) in [
        (
            "epochs = 1\nlearning-rate = 0.1",
            "run.toml:2: unknown key `learning-rate`; the nearest is `",
        ),
        ("epochs = 'many'", "run.toml:1: epochs: expected a whole number from 0, found `many`"),
        ("epochs = ", "run.toml:1: "),
    ] {
        let (code, output, errors) = digits(text, "");
        assert_eq!((code, output.as_str()), (Some(2), ""), "{text}");
        assert!(errors.contains(message), "{errors}");
    }
    // Flags override the file in any position.
    let (code, output, errors) = digits("epochs = 3\nbatch-limit = 2\nwarmup = 2", "--epochs 2");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(output.contains("epoch 2/2") && !output.contains("epoch 3"), "{output}");
    let written = fs::read_to_string(out.join("config.toml")).unwrap();
    for line in ["epochs = 2", "batch-limit = 2", "warmup = 2", "schedule = \"constant\""] {
        assert!(written.lines().any(|it| it == line), "{line} in {written}");
    }
    // The written `config.toml` can be read as well.
    let (code, again, errors) = digits(&written, "");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(again.contains("epoch 2/2"), "{again}");
    assert_eq!(fs::read_to_string(out.join("config.toml")).unwrap(), written);
}
