//! Tests of several processes with virtual GPUs: NCCL between them, the CPU's losses, the predicted
//! bytes, and a clean end after failures.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{self, Child, Command},
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use soybean_fake_cuda::virtual_gpus::put_on_virtual_gpus;
use soybean_test_support::run;

use crate::with_mpi::{
    ENDLESS, assert_before_timeout, fail_with, has_failed, mpirun, pid, print_line, printed_errors,
    program, signal,
};

/// Folder through which the virtual GPUs of a run communicate.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static N_MADE: AtomicUsize = AtomicUsize::new(0);
        let number = N_MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("soybean-nccl-{}-{number}", process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _never_made = fs::remove_dir_all(&self.0);
    }
}

/// Starts a program in several processes, if there are virtual GPUs. A shell script runs before
/// each process with its number in `$R`, and sets its environment.
fn start(
    folder: &Folder,
    n_processes: usize,
    program: &Path,
    script: &str,
    arguments: &[&str],
) -> Option<Command> {
    let script = format!("R=$OMPI_COMM_WORLD_RANK; {script} exec \"$0\" \"$@\"");
    let words = ["-c", &script, program.to_str().unwrap()];
    let mut command = mpirun(n_processes, Path::new("sh"), &[&words, arguments].concat());
    if let Err(why) = put_on_virtual_gpus(&mut command, &[]) {
        print_line(&format!("skipped: {why}"));
        return None;
    }
    command.env("SOYBEAN_FAKE_NCCL_FOLDER", &folder.0);
    Some(command)
}

/// Returns how often each process called a function of the virtual driver.
fn n_calls(folder: &Path, function: &str) -> Vec<u64> {
    let files = fs::read_dir(folder).unwrap().map(|it| fs::read_to_string(it.unwrap().path()));
    let count = |text: String| {
        let mut calls = text.lines().filter_map(|it| it.split_once(' '));
        calls.find(|it| it.0 == function).map_or(0, |it| it.1.parse().unwrap())
    };
    files.map(|it| count(it.unwrap())).collect()
}

/// Returns the output lines of a case.
fn lines_of<'a>(printed: &'a str, case: &str) -> Vec<&'a str> {
    let lines = printed.lines().skip_while(|it| !it.starts_with(&format!("{case}: "))).skip(1);
    lines.take_while(|it| !it.contains('/')).collect()
}

/// Returns everything that does not depend on the number of processes, as bits: losses, outputs,
/// parameters and the optimizer's state. NCCL does not promise this for sums.
fn bits_of<'a>(printed: &'a str, case: &str) -> Vec<&'a str> {
    let others = ["on ", "allocations "];
    let lines = lines_of(printed, case).into_iter();
    lines.filter(|it| !others.iter().any(|start| it.starts_with(start))).collect()
}

/// Returns the number after these words, which is printed as bits.
fn loss(lines: &[&str], start: &str) -> f32 {
    let line = lines.iter().find_map(|it| it.strip_prefix(start)).unwrap();
    f32::from_bits(u32::from_str_radix(&line[..8], 16).unwrap())
}

/// Compares losses with the CPU up to the order of sums, and bytes with the prediction.
fn compare(case: &str, found: &str, expected: &str, n_processes: usize) {
    let (found, expected) = (lines_of(found, case), lines_of(expected, case));
    let n_steps = expected.iter().filter(|it| it.starts_with("step ")).count();
    let mut starts: Vec<String> = (0..n_steps).map(|it| format!("step {it} loss ")).collect();
    starts.extend(["evaluation ", "traced ", "evaluation again "].map(str::to_owned));
    for start in starts {
        let (found, expected) = (loss(&found, &start), loss(&expected, &start));
        let is_near = (found - expected).abs() <= 1e-4 * expected.abs();
        assert!(
            is_near,
            "{case} in {n_processes} processes, {start}: expected {expected}, found {found}"
        );
    }
    assert_eq!(loss(&found, "evaluation again "), loss(&found, "evaluation "));
    let bytes = |lines: &[&str]| -> Vec<String> {
        let lines = lines.iter().filter_map(|it| Some(it.split_once("bytes ")?.1.to_owned()));
        lines.collect()
    };
    assert_eq!(bytes(&found), bytes(&expected), "{case} in {n_processes} processes");
    let predicted =
        found.iter().find_map(|it| it.strip_prefix("bytes predicted of a step ")).unwrap();
    let of_steps = found.iter().filter_map(|it| it.strip_prefix("step ")?.split_once("bytes "));
    assert!(
        of_steps.clone().count() == n_steps && of_steps.clone().all(|it| it.1 == predicted),
        "{found:?}"
    );
    let spans: Vec<&&str> = found.iter().filter(|it| it.starts_with("traced ")).collect();
    assert!(!spans[0].ends_with(" 0 spans"), "{spans:?}");
    let line = format!(
        "8 GPUs, virtual device with 1.1 GB each, which communicate through NCCL, in {n_processes} processes"
    );
    assert!(found.contains(&format!("on {line}").as_str()), "{found:?}");
}

#[test]
fn gpus_of_several_processes_train_like_the_cpu() {
    let Some(program) = program() else { return };
    let cases =
        ["perceptron/8/auto/5", "clipped/8/auto/5", "perceptron/8/data/5", "perceptron/8/model/5"];
    let (code, expected, errors) = run(Command::new(&program).args(cases));
    assert_eq!(code, Some(0), "{errors}");
    for kind in ["all-gather", "all-reduce", "all-to-all", "reduce-scatter"] {
        assert!(expected.contains(kind), "no plan has an {kind}");
    }
    // In the second run each process sees other GPUs.
    let own = "[ $R = 0 ] && own=0,1,2,3 || own=4,5,6,7; export CUDA_VISIBLE_DEVICES=$own;";
    let runs = [
        (2, "cuda", "", &cases[..]),
        (2, "auto", own, &cases[..1]),
        (4, "cuda", "", &cases),
        (8, "cuda", "", &cases[..2]),
    ];
    let mut first: Option<String> = None;
    for (seed, (n_processes, device, script, cases)) in runs.into_iter().enumerate() {
        let (folder, started) = (Folder::new(), Instant::now());
        let arguments = [&[device][..], cases].concat();
        let Some(mut command) = start(&folder, n_processes, &program, script, &arguments) else {
            return;
        };
        command.env("SOYBEAN_FAKE_SEED", seed.to_string());
        let calls = folder.0.join("calls");
        command.env("SOYBEAN_FAKE_CALLS", &calls);
        let (code, found, errors) = run(&mut command);
        assert_eq!(code, Some(0), "{n_processes} processes: {errors}");
        assert!(!errors.contains("fake CUDA"), "{errors}");
        // NCCL's documentation advises against graphs on several GPUs of a process.
        let n_graphs = n_calls(&calls, "cuGraphLaunch");
        assert_eq!(n_graphs.len(), n_processes);
        let are_used = |it: &u64| (*it > 0) == (n_processes == 8);
        assert!(n_graphs.iter().all(are_used), "{n_processes} processes: {n_graphs:?}");
        for case in cases {
            compare(case, &found, &expected, n_processes);
            let first = first.get_or_insert_with(|| found.clone());
            assert_eq!(bits_of(&found, case), bits_of(first, case), "{n_processes} processes");
        }
        print_line(&format!(
            "{n_processes} processes with {} virtual GPUs each: the CPU's losses in {:.1} s",
            8 / n_processes,
            started.elapsed().as_secs_f64()
        ));
    }
}

/// Returns the chosen algorithms in a cache folder, one in a line, without their times.
fn choices(cache: &Folder) -> Vec<String> {
    let files = fs::read_dir(&cache.0).unwrap().map(|it| it.unwrap().path());
    let mut files = files.filter(|it| it.extension().is_some_and(|it| it == "choices"));
    let text = fs::read(files.next().expect("choices are kept")).unwrap();
    let text = String::from_utf8_lossy(&text);
    let without_times = |line: &str| {
        let (number, rest) = line.split_once(" [").unwrap();
        format!("{number} {}", rest.split_once("] ").unwrap().1)
    };
    text.lines().filter(|it| it.contains("virtual device")).map(without_times).collect()
}

#[test]
fn processes_choose_algorithms_together() {
    let Some(program) = program() else { return };
    // Each process has a cache of its own, as on a machine of its own.
    let caches = [Folder::new(), Folder::new()];
    let [first, second] = caches.each_ref().map(|it| it.0.display());
    let script = format!(
        "[ $R = 0 ] && cache={first} || cache={second}; \
         export SOYBEAN_FAKE_ALGORITHMS=3 SOYBEAN_CACHE_DIR=$cache;"
    );
    let n_products = || {
        let folder = Folder::new();
        let arguments = ["cuda", "perceptron/8/auto/3"];
        let mut command = start(&folder, 2, &program, &script, &arguments)?;
        let calls = folder.0.join("calls");
        let (code, _, errors) = run(command.env("SOYBEAN_FAKE_CALLS", &calls));
        assert_eq!(code, Some(0), "{errors}");
        Some(n_calls(&calls, "cublasLtMatmul"))
    };
    let Some(measured) = n_products() else { return };
    let [chosen, by_another] = caches.each_ref().map(choices);
    assert!(!chosen.is_empty());
    assert_eq!(chosen, by_another);
    let known = n_products().unwrap();
    // Three algorithms for each kind of product: each four times, and once on NaN before ReLU. As
    // many again where a kernel may add up an operand.
    let n_of_each = chosen.iter().map(|it| match it.ends_with("keeps NaN") {
        true => 5,
        false => 4 + 4 * u64::from(it.contains("Sums")),
    });
    let n_runs = 3 * n_of_each.sum::<u64>();
    assert_eq!(measured, known.iter().map(|it| it + n_runs).collect::<Vec<_>>());
    // If one of them knows no choice, all measure again.
    fs::remove_dir_all(&caches[1].0).unwrap();
    assert_eq!(n_products().unwrap(), measured);
    let [chosen, by_another] = caches.each_ref().map(choices);
    assert_eq!(chosen, by_another);
}

/// Starts two processes with four ranks each. Returns the exit code, the output and the errors.
fn start_two(
    program: &Path,
    script: &str,
    arguments: &[&str],
) -> Option<(Option<i32>, String, String)> {
    let folder = Folder::new();
    let mut command = start(&folder, 2, program, script, arguments)?;
    Some(run(&mut command))
}

#[test]
fn each_rank_needs_a_gpu() {
    let Some(program) = program() else { return };
    let case = "perceptron/8/auto/3";
    let faults = [
        (
            "export SOYBEAN_FAKE_DEVICES=4;",
            "process 0: expected 8 GPUs, one for each rank of each of 2 processes with 4 ranks, found 4",
        ),
        (
            "export SOYBEAN_FAKE_DEVICES=$((8 - 5 * R));",
            "process 1: expected 4 GPUs, one for each rank of 4 ranks, found 3",
        ),
    ];
    for (script, expected) in faults {
        let Some((code, _, errors)) = start_two(&program, script, &["cuda", case]) else { return };
        assert_eq!(code, Some(1), "{errors}");
        let printed = printed_errors(&errors);
        assert_eq!(printed.len(), 1, "{errors}");
        assert!(printed[0].contains(expected), "{errors}");
    }
    // With `auto`, all processes use the CPU and print the reason.
    let (_, expected, _) = run(Command::new(&program).arg(case));
    let Some((code, found, errors)) = start_two(&program, faults[1].0, &["auto", case]) else {
        return;
    };
    assert_eq!(code, Some(0), "{errors}");
    let (on, found): (Vec<&str>, Vec<&str>) = found.lines().partition(|it| it.starts_with("on "));
    assert_eq!(found, expected.lines().collect::<Vec<_>>());
    let obstacle = format!("; GPUs are not used: {}, in 2 processes", faults[1].1);
    assert!(on.len() == 1 && on[0].ends_with(&obstacle), "{on:?}");
    let script = "[ $R = 0 ] || set -- cpu \"$2\";";
    let Some((code, _, errors)) = start_two(&program, script, &["cuda", case]) else { return };
    assert_eq!(code, Some(1), "{errors}");
    let expected = "expected the same device in all processes, found --device cuda in process 0, and cpu in process 1";
    // Process 0, unless it is so slow that another one does not wait for it.
    let printed = printed_errors(&errors);
    assert!(printed.len() == 1 && printed[0].ends_with(expected), "{errors}");
}

/// Lets a run in several processes fail.
fn fail_on_gpus(
    (program, n_processes): (&Path, usize),
    script: &str,
    arguments: &[&str],
    end: impl FnOnce(&Child, &str),
) -> Option<(Option<i32>, String)> {
    let folder = Folder::new();
    let command = start(&folder, n_processes, program, script, &[&["cuda"], arguments].concat())?;
    let (code, errors, took) = fail_with(command, end);
    assert_before_timeout(&format!("on virtual GPUs, {script} {}", arguments[0]), took);
    Some((code, errors))
}

#[test]
fn a_failure_ends_all_processes_with_gpus() {
    let Some(program) = program() else { return };
    let differ = "expected all processes to do the same, found ";
    let left = "expected all processes to do the same, found that process 3 has ended its work";
    let launch = "[ $R != 2 ] || export SOYBEAN_FAKE_FAIL_LAUNCH=1000;";
    let faults = [
        (4, "", "bad-batch@1@6", "expected a label in 0..12, found 99"),
        (4, "", "exit@3@6", left),
        (4, "", "evaluate@1@6", differ),
        (4, launch, ENDLESS, "CUDA_ERROR_LAUNCH_FAILED"),
        // Each process has one GPU, and so a graph of each step.
        (8, launch, ENDLESS, "CUDA_ERROR_LAUNCH_FAILED"),
        (8, "", "evaluate@1@6", differ),
    ];
    for (n_processes, script, fault, expected) in faults {
        let (program, arguments) = ((program.as_path(), n_processes), [fault, ENDLESS]);
        let Some((code, errors)) = fail_on_gpus(program, script, &arguments, |_, _| {}) else {
            return;
        };
        assert!(!errors.contains("a communicator ends before"), "{errors}");
        assert!(has_failed(code), "{fault}: {errors}");
        let printed = printed_errors(&errors);
        assert_eq!(printed.len(), 1, "{fault}: {errors}");
        assert!(printed[0].contains(expected), "{fault}: {errors}");
    }
}

#[test]
fn a_gpu_that_hangs_ends_all_processes() {
    let Some(program) = program() else { return };
    let script = "export SOYBEAN_TEST_STEP_TIMEOUT=10; \
                  [ $R != 2 ] || export SOYBEAN_FAKE_HANG_LAUNCH=1000;";
    let expected = "a step: expected its end within 10s, found unfinished: ";
    // With one GPU in each process, the step is a graph.
    for (n_processes, unfinished) in [(4, "communication "), (8, "the graph of the step")] {
        let program = (program.as_path(), n_processes);
        let Some((code, errors)) = fail_on_gpus(program, script, &[ENDLESS], |_, _| {}) else {
            return;
        };
        assert!(has_failed(code), "{errors}");
        assert!(!errors.contains("fake CUDA"), "{errors}");
        // Several processes may reach the time limit before they hear of another.
        let printed = printed_errors(&errors);
        print_line(&printed.join("\n"));
        assert!(!printed.is_empty() && printed.iter().all(|it| it.contains(expected)), "{errors}");
        assert!(printed[0].contains(unfinished), "{errors}");
    }
}

#[test]
fn a_process_with_gpus_that_is_killed_ends_all() {
    let Some(program) = program() else { return };
    let end = |_: &Child, started: &str| signal("KILL", pid(started, 2));
    let Some((code, errors)) = fail_on_gpus((&program, 4), "", &[ENDLESS], end) else { return };
    assert_eq!(code, Some(137), "{errors}");
    assert!(printed_errors(&errors).is_empty(), "{errors}");
    assert!(errors.contains("mpirun noticed that process rank 2 "), "{errors}");
}

#[test]
fn processes_do_not_wait_for_one_that_cannot_connect() {
    let Some(program) = program() else { return };
    // Three failures: too little memory in all processes; an error while ranks connect through NCCL
    // and the others wait; a process that never connects.
    let faults = [
        ("export SOYBEAN_FAKE_MEMORY=10000;", "rank 0: expected"),
        ("[ $R = 0 ] || export SOYBEAN_FAKE_NCCL_FOLDER=/dev/null;", "connecting [GPU 4"),
        (
            "[ $R = 0 ] || set -- \"$1\";",
            "found that process 1 has ended its work before the start of a trainer",
        ),
    ];
    for (script, expected) in faults {
        let started = Instant::now();
        let Some((code, _, errors)) = start_two(&program, script, &["cuda", "perceptron/8/auto/3"])
        else {
            return;
        };
        assert!(has_failed(code), "{errors}");
        let printed = printed_errors(&errors);
        assert_eq!(printed.len(), 1, "{errors}");
        assert!(printed[0].contains(expected), "{errors}");
        assert_before_timeout(script, started.elapsed());
    }
}
