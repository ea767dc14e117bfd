//! Ctrl-C and SIGTERM, sent to the program of a user.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use soybean_test_support::{example, run};

use super::small::{checkpoints, folder, lines, newest, state};

/// Few samples, so that the program starts quickly.
pub(crate) fn digits(out: &Path, arguments: &str) -> Command {
    let mut command = example!("digits");
    command.arg("train").arg("--data").arg(few_digits());
    command.args(arguments.split_whitespace()).arg("--out").arg(out);
    command
}

/// Writes a file of 200 digits.
pub(crate) fn few_digits() -> std::path::PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("few_digits.csv");
    let mut text = String::new();
    for row in 0..200 {
        let pixels = (0..64).map(|pixel| ((row * 7 + pixel * (row % 10 + 1)) % 17).to_string());
        text += &pixels.chain([(row % 10).to_string()]).collect::<Vec<_>>().join(",");
        text.push('\n');
    }
    // Tests run concurrently: the file is replaced atomically.
    let own = path.with_extension(format!("{:?}", std::thread::current().id()));
    fs::write(&own, text).unwrap();
    fs::rename(own, &path).unwrap();
    path
}

/// Waits until the metrics have this many lines.
pub(crate) fn wait_for_lines(out: &Path, n: usize) {
    let started = Instant::now();
    while fs::read_to_string(out.join("metrics.jsonl")).map_or(0, |it| it.lines().count()) < n {
        assert!(started.elapsed() < Duration::from_secs(60), "no {n} lines of metrics");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn send(child: &Child, signal: &str) {
    let status = Command::new("kill").arg(signal).arg(child.id().to_string()).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_signal_ends_the_run_with_a_checkpoint_and_the_command_that_goes_on() {
    if cfg!(not(unix)) {
        println!("skipped: no signals");
        return;
    }
    let expected = folder("signals-undisturbed");
    let choices = "--epochs 12 --log-every 1";
    assert_eq!(run(&mut digits(&expected, choices)).0, Some(0));
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let out = folder(&format!("signals{signal}"));
        let mut child =
            digits(&out, choices).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for_lines(&out, 3);
        let started = Instant::now();
        send(&child, signal);
        let errors = BufReader::new(child.stderr.take().unwrap());
        let errors: Vec<String> = errors.lines().map(Result::unwrap).collect();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{errors:?}");
        println!("{signal}: a clean end after {} ms", started.elapsed().as_millis());
        let [line] = &errors[..] else { panic!("expected one line, found {errors:?}") };
        let step = lines(&out).iter().filter(|it| it["kind"] == "step").count();
        let begin = format!("stopped after step {step}; the checkpoint is ");
        assert!(line.starts_with(&begin), "{line}");
        let (_, command) = line.split_once("; resume with: ").expect(line);
        let (code, output, errors) = run(Command::new("sh").args(["-c", command]));
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
        assert!(output.contains(&format!("resuming after step {step} of 60, from ")), "{output}");
        assert!(state(&newest(&out)) == state(&newest(&expected)), "{signal}");
        assert_eq!(lines(&out), lines(&expected), "{signal}");
    }
}

/// The search takes minutes in a debug build. The tilings tried so far are shown.
#[test]
fn an_interrupt_ends_a_search_for_a_plan() {
    if cfg!(not(unix)) {
        println!("skipped: no signals");
        return;
    }
    let mut command = example!("digits");
    command.args(["plan", "--gpus", "4096", "--why", "dense.0.w"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The signal is caught as soon as the search begins.
    std::thread::sleep(Duration::from_secs(2));
    let started = Instant::now();
    send(&child, "-INT");
    let ended = child.wait_with_output().unwrap();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let [output, errors] = [ended.stdout, ended.stderr].map(|it| String::from_utf8(it).unwrap());
    match ended.status.code() {
        Some(0) => assert!(output.contains("further tilings were not tried"), "{output}"),
        code => {
            assert_eq!((code, output.as_str()), (Some(130), ""), "{errors}");
            assert!(errors.contains("stopped after "), "{errors}");
        }
    }
}

/// The second Ctrl-C does not wait for the end of a step, whose batch would take a minute here.
#[test]
fn a_second_interrupt_ends_the_run_at_once() {
    if cfg!(not(unix)) {
        println!("skipped: no signals");
        return;
    }
    let out = folder("signals-twice");
    let mut command = example!("runs_program");
    command.args(["train", "--data", "sleeps", "--log-every", "1", "--out"]).arg(&out);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The data set prints, in a thread of the loader.
    let output = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || output.map_while(Result::ok).for_each(|it| drop(sender.send(it))));
    let started = Instant::now();
    while receiver.recv_timeout(Duration::from_secs(30)).expect("a data set may print") != "asleep"
    {
    }
    wait_for_lines(&out, 2);
    println!("asleep after {} ms", started.elapsed().as_millis());
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(started.elapsed() < Duration::from_secs(20), "the second interrupt is not heard");
        send(&child, "-INT");
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("ended after {} ms", started.elapsed().as_millis());
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr), (Some(130), Vec::new()));
    assert_eq!(checkpoints(&out.join("checkpoints")), [""; 0]);
}
