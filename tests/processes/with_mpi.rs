//! Tests of training in 1 to 8 processes on the CPU, and of failures of one process.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use soybean_test_support::{example, run};

/// Prints a line even if the test passes.
pub(crate) fn print_line(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Returns true if a program is installed, and says so if it is not.
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    let has = found.is_ok_and(|it| it.status.success());
    if !has {
        print_line(&format!("skipped: {program} is not installed"));
    }
    has
}

/// Returns the program to start, if `mpirun` is installed.
pub(crate) fn program() -> Option<PathBuf> {
    has("mpirun").then(|| example!("processes_program").get_program().into())
}

pub(crate) fn mpirun(n_processes: usize, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "-n", &n_processes.to_string()]);
    // In a container the user may be root, and there are few cores.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("RUST_BACKTRACE", "0").arg(program).args(arguments);
    command
}

/// Compares the output of a program in one process with that in several. Returns it.
fn check(program: &Path, cases: &[&str], n_processes: &[usize]) -> String {
    let (code, expected, errors) = run(Command::new(program).args(cases));
    assert_eq!(code, Some(0), "{errors}");
    for n_processes in n_processes {
        let started = Instant::now();
        let (code, found, errors) = run(&mut mpirun(*n_processes, program, cases));
        assert_eq!(code, Some(0), "{n_processes} processes: {errors}");
        assert_eq!(found, expected, "{n_processes} processes");
        print_line(&format!(
            "{n_processes} processes: the same in {:.1} s",
            started.elapsed().as_secs_f64()
        ));
    }
    expected
}

#[test]
fn any_number_of_processes_gives_the_same_bits() {
    let Some(program) = program() else { return };
    let cases = [
        "perceptron/8/auto/6",
        "perceptron/8/data/6",
        "perceptron/8/model/6",
        "rounded/8/auto/6",
        "clipped/8/auto/6",
    ];
    let printed = check(&program, &cases, &[2, 4, 8]);
    for kind in ["all-gather", "all-reduce", "all-to-all", "reduce-scatter"] {
        assert!(printed.contains(kind), "no plan has an {kind}");
    }
    assert!(!printed.contains("allocations in each step of any process true"), "{printed}");
    // Axes of size 3. With one process, MPI is not even started.
    check(&program, &["perceptron/6/model/4", "clipped/6/data/4"], &[1, 3, 6]);
}

#[test]
fn digits_trains_identically_in_eight_processes() {
    if program().is_none() {
        return;
    }
    let digits: PathBuf = example!("digits").get_program().into();
    let folder = std::env::temp_dir().join(format!("soybean-processes-{}", std::process::id()));
    let train = |name: &str, n_processes: usize, more: &[&str]| {
        let out = folder.join(name);
        let arguments = ["train", "--device", "cpu", "--out", out.to_str().unwrap()];
        let arguments = [&arguments[..], more].concat();
        let (code, printed, errors) = match n_processes {
            1 => run(Command::new(&digits).args(&arguments)),
            _ => run(&mut mpirun(n_processes, &digits, &arguments)),
        };
        assert_eq!(code, Some(0), "{errors}");
        assert_eq!(printed.matches("metrics in").count(), 1, "{printed}");
        let mut metrics = String::new();
        File::open(out.join("metrics.csv")).unwrap().read_to_string(&mut metrics).unwrap();
        // Everything but the speed.
        let rows = metrics.lines().map(|it| it.rsplit_once(',').unwrap().0.to_owned());
        rows.collect::<Vec<_>>()
    };
    let alone = train("alone", 1, &["--epochs", "3"]);
    train("eight", 8, &["--epochs", "1"]);
    // The checkpoint of eight processes resumes in two.
    train("eight", 2, &["--epochs", "2", "--resume", "auto"]);
    let resumed = train("eight", 4, &["--epochs", "3", "--resume", "auto"]);
    assert_eq!(resumed, alone);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn averages_evaluate_identically_in_several_processes() {
    if program().is_none() {
        return;
    }
    let program: PathBuf = example!("runs_program").get_program().into();
    let folder = std::env::temp_dir().join(format!("soybean-averages-{}", std::process::id()));
    let metrics = |n_processes: usize| {
        let out = folder.join(n_processes.to_string());
        let arguments =
            "train --device cpu --evaluate-averages --evaluate-every 3 --async-checkpoint --out";
        let mut arguments: Vec<&str> = arguments.split(' ').collect();
        arguments.push(out.to_str().unwrap());
        let (code, _, errors) = match n_processes {
            1 => run(Command::new(&program).args(&arguments)),
            _ => run(&mut mpirun(n_processes, &program, &arguments)),
        };
        assert_eq!(code, Some(0), "{errors}");
        let table = std::fs::read_to_string(out.join("metrics.csv")).unwrap();
        // Everything but the speed.
        let rows = table.lines().map(|it| it.rsplit_once(',').unwrap().0.to_owned());
        (rows.collect::<Vec<_>>(), last_state(&out))
    };
    let alone = metrics(1);
    assert!(metrics(2) == alone && metrics(4) == alone);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn ranks_are_divided_evenly() {
    let Some(program) = program() else { return };
    let (code, _, errors) = run(&mut mpirun(3, &program, &["perceptron/8/auto/6"]));
    assert_eq!(code, Some(1), "{errors}");
    let expected = "expected a number of processes that divides the model's 8 ranks, found 3";
    assert_eq!(printed_errors(&errors), [format!("process 0: error: {expected}")], "{errors}");
}

#[test]
fn requested_gpus_must_exist() {
    if program().is_none() {
        return;
    }
    let digits: PathBuf = example!("digits").get_program().into();
    let mut mpirun = mpirun(2, &digits, &["bench", "--device", "cuda"]);
    // No process sees a GPU, whatever the machine has.
    let (code, _, errors) = run(mpirun.env("CUDA_VISIBLE_DEVICES", ""));
    assert_eq!(code, Some(1), "{errors}");
    let printed = printed_errors(&errors);
    assert_eq!(printed.len(), 1, "{errors}");
    assert!(printed[0].contains("process 0: expected "), "{errors}");
}

#[test]
fn a_run_that_is_stopped_leaves_a_checkpoint() {
    if program().is_none() {
        return;
    }
    let digits: PathBuf = example!("digits").get_program().into();
    let out = std::env::temp_dir().join(format!("soybean-stopped-{}", std::process::id()));
    let arguments = ["train", "--device", "cpu", "--epochs", "1000", "--out"];
    let arguments = [&arguments[..], &[out.to_str().unwrap()]].concat();
    let mut command = mpirun(4, &digits, &arguments);
    // More time for the checkpoint than the default second of `mpirun`, which always waits that
    // long, twice.
    command.env("OMPI_MCA_odls_base_sigkill_timeout", "3");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut mpirun = command.spawn().expect("mpirun starts");
    let mut output = BufReader::new(mpirun.stdout.take().unwrap()).lines();
    assert!(output.any(|it| it.is_ok_and(|it| it.starts_with("epoch "))));
    let started = Instant::now();
    signal("TERM", mpirun.id());
    drop(thread::spawn(move || output.count()));
    let finished = mpirun.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&finished.stderr);
    assert!(!finished.status.success(), "{errors}");
    let printed = errors.lines().filter(|it| it.contains("stopped after step")).count();
    assert_eq!(printed, 1, "{errors}");
    let step = errors.split("stopped after step ").nth(1).unwrap();
    let step: u64 = step.split(';').next().unwrap().parse().unwrap();
    assert!(out.join(format!("checkpoints/step-{step:010}/run.json")).exists(), "{errors}");
    let took = started.elapsed();
    print_line(&format!(
        "SIGTERM of mpirun with a checkpoint: ended after {:.2} s",
        took.as_secs_f64()
    ));
    std::fs::remove_dir_all(out).unwrap();
}

/// Returns the errors that the processes have printed.
pub(crate) fn printed_errors(errors: &str) -> Vec<&str> {
    errors.lines().filter(|it| it.contains("error: ")).collect()
}

/// Runs until `end` has ended the run after some steps. Returns the exit code, the errors, and the
/// time since then.
fn fail(
    program: &Path,
    arguments: &[&str],
    end: impl FnOnce(&Child, &str),
) -> (Option<i32>, String, Duration) {
    fail_with(mpirun(4, program, arguments), end)
}

/// As [`fail`], for a command that starts four processes.
pub(crate) fn fail_with(
    mut command: Command,
    end: impl FnOnce(&Child, &str),
) -> (Option<i32>, String, Duration) {
    let mut mpirun =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mpirun starts");
    let mut output = BufReader::new(mpirun.stdout.take().unwrap()).lines();
    let mut errors = mpirun.stderr.take().unwrap();
    // The process ids come first, on standard error.
    let mut printed = Vec::new();
    while printed.iter().filter(|it| **it == b'\n').count() < 4 {
        let mut byte = [0];
        assert_eq!(errors.read(&mut byte).unwrap(), 1, "the processes start");
        printed.push(byte[0]);
    }
    let reader = thread::spawn(move || {
        let mut rest = String::new();
        errors.read_to_string(&mut rest).unwrap();
        rest
    });
    let running = output.find(|it| it.as_ref().is_ok_and(|it| it.starts_with("step 5 ")));
    let started = Instant::now();
    end(&mpirun, &String::from_utf8_lossy(&printed));
    drop(running);
    let rest_of_output = thread::spawn(move || output.count());
    let code = mpirun.wait().unwrap().code();
    let took = started.elapsed();
    rest_of_output.join().unwrap();
    (code, reader.join().unwrap(), took)
}

/// Returns true if `mpirun` ended with an error, which may be a signal: when all processes end at
/// once, it sometimes crashes itself.
pub(crate) fn has_failed(code: Option<i32>) -> bool {
    code != Some(0)
}

/// Sends a signal, given by its name.
pub(crate) fn signal(name: &str, process: u32) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(process.to_string()).status();
    assert!(status.unwrap().success());
}

/// Returns the process id of a process, from the output at the start.
pub(crate) fn pid(started: &str, number: usize) -> u32 {
    let start = format!("process {number} has pid ");
    let line = started.lines().find_map(|it| it.strip_prefix(&start)).unwrap();
    line.parse().unwrap()
}

pub(crate) const ENDLESS: &str = "perceptron/8/auto/1000000";

/// Checks that processes have not waited for the peer timeout, which is 300 s by default.
pub(crate) fn assert_before_timeout(what: &str, took: Duration) {
    print_line(&format!("{what}: ended after {:.2} s", took.as_secs_f64()));
    assert!(took < Duration::from_secs(150), "{what}: {took:?}");
}

#[test]
fn a_process_that_fails_ends_all_with_one_error() {
    let Some(program) = program() else { return };
    let left = "expected all processes to do the same, found that process 3 has ended its work";
    let differ = "expected all processes to do the same, found ";
    let faults = [
        ("panic@2@6", "process 2: error: rank 4: panicked: tripped"),
        (
            "bad-batch@1@6",
            "process 1: error: the trainer has stopped after an earlier failure: input `y`, row ",
        ),
        ("exit@3@6", left),
        ("end@2@6", differ),
        ("start@1@6", differ),
        ("evaluate@1@6", differ),
        ("rate@0@6", differ),
        ("save@0@6", "process 0: error: checkpoint step-0000000006 is not saved: "),
    ];
    for (fault, expected) in faults {
        let (code, errors, took) = fail(&program, &[fault, ENDLESS], |_, _| {});
        assert!(has_failed(code), "{fault}: {errors}");
        let printed = printed_errors(&errors);
        assert_eq!(printed.len(), 1, "{fault}: {errors}");
        let found = printed[0].replace("rank 5", "rank 4");
        assert!(found.contains(expected), "{fault}: {errors}");
        assert!(!errors.contains("is saved"), "{fault}: {errors}");
        assert_before_timeout(fault, took);
    }
}

#[test]
fn processes_must_end_the_same_trainers() {
    let Some(program) = program() else { return };
    let case = "perceptron/8/auto/1";
    let started = Instant::now();
    let (code, _, errors) = run(&mut mpirun(4, &program, &["keep@2@0", case, case, case]));
    assert_eq!(code, Some(1), "{errors}");
    let expected = "expected all processes to do the same, found the start of a trainer";
    let printed = printed_errors(&errors);
    assert!(printed.len() == 1 && printed[0].contains(expected), "{errors}");
    assert!(
        printed[0].contains("communicator 1)") && printed[0].contains("communicator 2)"),
        "{errors}"
    );
    assert_before_timeout("a trainer that one process keeps", started.elapsed());
}

#[test]
fn a_process_that_is_killed_ends_all() {
    let Some(program) = program() else { return };
    // Process 0 prints.
    for (name, number, code) in [("KILL", 2, 137), ("KILL", 0, 137), ("TERM", 3, 143)] {
        let end = |_: &Child, started: &str| signal(name, pid(started, number));
        let (found, errors, took) = fail(&program, &[ENDLESS], end);
        assert_eq!(found, Some(code), "{errors}");
        assert!(printed_errors(&errors).is_empty(), "{errors}");
        let expected = format!("mpirun noticed that process rank {number} ");
        assert!(errors.contains(&expected), "{errors}");
        assert_before_timeout(&format!("SIG{name} of process {number}"), took);
    }
}

#[test]
fn signals_to_mpirun_end_all() {
    let Some(program) = program() else { return };
    for name in ["TERM", "INT"] {
        let end = |mpirun: &Child, _: &str| signal(name, mpirun.id());
        let (code, errors, took) = fail(&program, &[ENDLESS], end);
        assert_ne!(code, Some(0), "{errors}");
        assert_before_timeout(&format!("SIG{name} of mpirun"), took);
    }
}

/// Returns the bytes of the tensors in a run's last checkpoint.
pub(crate) fn last_state(out: &Path) -> [Vec<u8>; 2] {
    let checkpoints = std::fs::read_dir(out.join("checkpoints")).unwrap();
    let last = checkpoints.map(|it| it.unwrap().path()).max().unwrap();
    ["model.safetensors", "optimizer.safetensors"]
        .map(|name| std::fs::read(last.join(name)).unwrap())
}

#[test]
fn a_run_resumes_in_any_number_of_processes() {
    if program().is_none() {
        return;
    }
    let digits: PathBuf = example!("digits").get_program().into();
    let folder = std::env::temp_dir().join(format!("soybean-goes-on-{}", std::process::id()));
    let (expected, out) = (folder.join("alone"), folder.join("several"));
    let arguments = |out: &Path| {
        let choices = "train --device cpu --epochs 3 --batch-limit 30 --log-every 1 --checkpoint-every 4 --resume auto --out";
        let words = choices.split(' ').map(str::to_owned);
        words.chain([out.to_str().unwrap().to_owned()]).collect::<Vec<_>>()
    };
    assert_eq!(run(Command::new(&digits).args(arguments(&expected))).0, Some(0));
    let steps =
        || std::fs::read_to_string(out.join("metrics.jsonl")).map_or(0, |it| it.lines().count());
    for (n_processes, name, code) in [(4, "KILL", 137), (2, "TERM", 143), (8, "INT", 130)] {
        let words = arguments(&out);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let before = steps();
        let mut mpirun = mpirun(n_processes, &digits, &words);
        let mut mpirun = mpirun.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let started = Instant::now();
        while steps() < before.max(1) + 5 {
            assert!(started.elapsed() < Duration::from_secs(60), "no steps");
            thread::sleep(Duration::from_millis(5));
        }
        let children = format!("/proc/{0}/task/{0}/children", mpirun.id());
        let children = std::fs::read_to_string(children).unwrap();
        let started = Instant::now();
        signal(name, children.split_whitespace().last().unwrap().parse().unwrap());
        let found = mpirun.wait().unwrap().code();
        let mut errors = String::new();
        mpirun.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        // After a process has ended, `mpirun` sends SIGTERM to the others, and may report the code
        // of one of them.
        assert!(found.is_some_and(|it| it == code || it == 143), "SIG{name}: {found:?} {errors}");
        assert_before_timeout(&format!("SIG{name} of a process that trains"), started.elapsed());
        if name != "KILL" {
            assert_eq!(errors.matches("; resume with: ").count(), 1, "{errors}");
        }
    }
    assert_eq!(run(Command::new(&digits).args(arguments(&out))).0, Some(0));
    assert!(last_state(&out) == last_state(&expected), "other weights");
    std::fs::remove_dir_all(folder).unwrap();
}
