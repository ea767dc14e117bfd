//! Tests of processes that are stopped while others wait for them.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use soybean_test_support::{example, run};

use crate::with_mpi::{has, has_failed, last_state, mpirun, print_line, printed_errors, signal};

/// A training run in four processes.
struct Training {
    mpirun: Child,
    /// The lines of its standard error, as they come.
    errors: Receiver<String>,
}

impl Training {
    /// Starts a run and waits for some steps.
    fn start(digits: &Path, out: &Path, choices: &str) -> Self {
        let words: Vec<&str> = ["train", "--device", "cpu", "--log-every", "1", "--out"]
            .into_iter()
            .chain([out.to_str().unwrap()])
            .chain(choices.split(' '))
            .collect();
        let mut command = mpirun(4, digits, &words);
        let mut mpirun = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(mpirun.stderr.take().unwrap()).lines();
        let (sender, errors) = mpsc::channel();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|it| sender.send(it)));
        let started = Instant::now();
        let n_steps = || {
            let text = fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default();
            text.lines().count()
        };
        while n_steps() < 5 {
            assert!(started.elapsed() < Duration::from_secs(60), "no steps");
            thread::sleep(Duration::from_millis(5));
        }
        Self { mpirun, errors }
    }

    /// Returns the process with this number.
    fn process(&self, number: usize) -> u32 {
        let children = format!("/proc/{0}/task/{0}/children", self.mpirun.id());
        let children = fs::read_to_string(children).unwrap();
        let mut children: Vec<u32> =
            children.split_whitespace().map(|it| it.parse().unwrap()).collect();
        children.sort_unstable();
        children[number]
    }

    /// Waits for a line of standard error.
    fn await_line(&self, text: &str) {
        let timeout = Duration::from_secs(30);
        while !self.errors.recv_timeout(timeout).expect("a line of errors").contains(text) {}
    }

    /// Waits for the end. Returns the exit code and the remaining lines of standard error.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.mpirun.wait().unwrap().code();
        (code, self.errors.iter().map(|it| it + "\n").collect())
    }
}

fn digits(name: &str) -> Option<(PathBuf, PathBuf)> {
    let folder = env::temp_dir().join(format!("soybean-{name}-{}", std::process::id()));
    has("mpirun").then(|| (example!("digits").get_program().into(), folder))
}

#[test]
fn a_process_that_stays_silent_is_named_and_ends_all() {
    let Some((digits, out)) = digits("silent") else { return };
    for silent in [2, 0] {
        let choices = "--steps 1000000 --checkpoint-every 2 --peer-timeout 10";
        let run = Training::start(&digits, &out, choices);
        let started = Instant::now();
        signal("STOP", run.process(silent));
        run.await_line(&format!(": process {silent} has been silent for 1 s, since "));
        let said = started.elapsed();
        let (code, errors) = run.end();
        assert!(has_failed(code), "{errors}");
        let printed = printed_errors(&errors);
        assert_eq!(printed.len(), 1, "{errors}");
        let expected = format!(
            "error: expected all processes to answer, found that process {silent} has been silent \
             for 10 s, the peer timeout; the last checkpoint is "
        );
        assert!(printed[0].contains(&expected), "{errors}");
        assert!(printed[0].contains("; resume from it with: "), "{errors}");
        print_line(&format!(
            "process {silent} is stopped: named after {:.1} s, all ended after {:.1} s",
            said.as_secs_f64(),
            started.elapsed().as_secs_f64()
        ));
        fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn a_pause_of_a_process_changes_nothing() {
    let Some((digits, folder)) = digits("paused") else { return };
    let (expected, out) = (folder.join("alone"), folder.join("paused"));
    let choices = "--steps 60 --batch-limit 20";
    let mut alone = Command::new(&digits);
    alone.args(["train", "--device", "cpu", "--out"]).arg(&expected).args(choices.split(' '));
    assert_eq!(run(&mut alone).0, Some(0));
    let run = Training::start(&digits, &out, &format!("{choices} --peer-timeout 20"));
    let paused = run.process(1);
    signal("STOP", paused);
    run.await_line(": process 1 has been silent for 2 s, since ");
    signal("CONT", paused);
    let (code, errors) = run.end();
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains(": process 1 is back after "), "{errors}");
    assert!(last_state(&out) == last_state(&expected), "other weights");
    fs::remove_dir_all(folder).unwrap();
}

/// The first signal waits for the end of the step, which does not come.
#[test]
fn a_second_sigterm_ends_a_process_that_waits() {
    let Some((digits, out)) = digits("terminated") else { return };
    let run = Training::start(&digits, &out, "--steps 1000000 --peer-timeout 10");
    let [waiting, silent] = [1, 3].map(|it| run.process(it));
    signal("STOP", silent);
    run.await_line(": process 3 has been silent for 1 s, since ");
    signal("TERM", waiting);
    thread::sleep(Duration::from_millis(500));
    assert!(Path::new(&format!("/proc/{waiting}")).exists(), "the first signal is deferred");
    signal("TERM", waiting);
    let (code, errors) = run.end();
    assert!(!errors.contains("the peer timeout"), "{errors}");
    assert_eq!(code, Some(143), "{errors}");
    fs::remove_dir_all(out).unwrap();
}
