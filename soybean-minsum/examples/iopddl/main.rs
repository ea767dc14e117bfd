//! Solves an instance of the contest on intra-operator parallelism (ASPLOS/EuroSys 2025).
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod command_line;
mod instance;

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use command_line::command_line;
use instance::Instance;
use soybean_minsum::{Effort, UsageProgress, solve_within_usage};

const HELP: &str = "\
Solves an instance of the ASPLOS/EuroSys 2025 contest on intra-operator parallelism.

usage: iopddl FILE [--seconds N | --work N] [--threads N] [--out FILE] [--wcsp FILE]

  FILE          the instance: JSON, or compressed with gzip if its name ends in .gz
  --seconds N   the time from the start of the program until the search ends (60)
  --work N      instead: the work in table entries; two runs give the same result
  --threads N   the number of threads with --seconds (2)
  --out FILE    writes the strategy of each node as a JSON list
  --wcsp FILE   instead of a search, writes the costs without the limit in the format WCSP
  --help        prints this text
";

struct Arguments {
    file: PathBuf,
    seconds: u64,
    work: Option<u64>,
    threads: usize,
    out: Option<PathBuf>,
    wcsp: Option<PathBuf>,
}

fn main() -> ExitCode {
    command_line(HELP, |arguments| run(&parse(arguments)?))
}

fn parse(arguments: Vec<String>) -> Result<Arguments, String> {
    let mut file = None;
    let (mut seconds, mut work, mut threads) = (60, None, 2);
    let (mut out, mut wcsp) = (None, None);
    let mut arguments = arguments.into_iter();
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{text} is not a number"));
        match &name[..] {
            "--seconds" => seconds = number(value()?)?,
            "--work" => work = Some(number(value()?)?),
            "--threads" => threads = number(value()?)?.clamp(1, 64) as usize,
            "--out" => out = Some(value()?.into()),
            "--wcsp" => wcsp = Some(PathBuf::from(value()?)),
            _ if name.starts_with('-') || file.is_some() => {
                return Err(format!("{name} is not known; see --help"));
            }
            _ => file = Some(name.into()),
        }
    }
    let file = file.ok_or("which instance? See --help")?;
    Ok(Arguments { file, seconds: seconds.min(1 << 30), work, threads, out, wcsp })
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let start = Instant::now();
    let instance = Instance::read(&arguments.file)
        .map_err(|it| format!("{}: {it}", arguments.file.display()))?;
    let problem = instance.usage_problem()?;
    if let Some(path) = &arguments.wcsp {
        let (text, missing) = problem.problem.to_wcsp("iopddl");
        println!("assignments cost {missing} more than in {}", path.display());
        return std::fs::write(path, text).map_err(|it| format!("{}: {it}", path.display()));
    }
    let end = start + Duration::from_secs(arguments.seconds);
    let effort = arguments.work.map_or(Effort::Until(end, arguments.threads), Effort::Work);
    println!("{:>9} {:>16} {:>16}", "seconds", "cost", "lower bound");
    let line = |UsageProgress { cost, lower_bound }| {
        let cost = cost.map_or_else(|| String::from("-"), |it: i64| it.to_string());
        println!("{:>9.2} {cost:>16} {lower_bound:>16}", start.elapsed().as_secs_f64());
    };
    let (mut last, mut latest) = (None::<Instant>, None);
    let found = solve_within_usage(&problem, effort, &mut |progress| {
        latest = Some(progress);
        if last.is_none_or(|it| it.elapsed() >= Duration::from_secs(1)) {
            last = Some(Instant::now());
            line(progress);
        }
    });
    latest.into_iter().for_each(line);
    let labels = found.labels.ok_or("no strategies within the limit were found")?;
    let cost = instance.evaluate(&labels)?;
    println!("checked: cost {cost}, within the usage limit at every time");
    if let Some(out) = &arguments.out {
        let text = serde_json::to_string(&labels).map_err(|it| it.to_string())?;
        std::fs::write(out, text).map_err(|it| format!("{}: {it}", out.display()))?;
    }
    Ok(())
}
