//! Solves a problem in the format WCSP or UAI.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

#[path = "iopddl/command_line.rs"]
mod command_line;

use std::{fs, path::PathBuf, process::ExitCode, time::Instant};

use command_line::command_line;
use soybean_minsum::{Options, PairwiseProblem, solve};

const HELP: &str = "\
Solves a problem of functions of one and two variables, and proves a lower bound.

usage: solve FILE [--work N] [--scale N] [--out FILE]

  FILE        the problem: in the format UAI if its name ends in .uai, otherwise in WCSP
  --work N    the work of the search and of its proof each, in table entries (2^30)
  --scale N   for UAI: a factor p costs -ln(p) times this, rounded (1e6)
  --out FILE  writes the label of each variable, in one line
  --help      prints this text
";

struct Arguments {
    file: PathBuf,
    work: u64,
    scale: f64,
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    command_line(HELP, |arguments| run(&parse(arguments)?))
}

fn parse(arguments: Vec<String>) -> Result<Arguments, String> {
    let (mut file, mut work, mut scale, mut out) = (None, 1 << 30, 1e6, None);
    let mut arguments = arguments.into_iter();
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        let wrong = |text: &str| format!("{text} is not a number");
        match &name[..] {
            "--work" => work = value().and_then(|it| it.parse().map_err(|_| wrong(&it)))?,
            "--scale" => {
                scale = value().and_then(|it| it.parse().map_err(|_| wrong(&it)))?;
                if !(f64::is_finite(scale) && scale > 0.0) {
                    return Err(format!("--scale must be above 0 and finite, found {scale}"));
                }
            }
            "--out" => out = Some(value()?.into()),
            _ if name.starts_with('-') || file.is_some() => {
                return Err(format!("{name} is not known; see --help"));
            }
            _ => file = Some(name.into()),
        }
    }
    Ok(Arguments { file: file.ok_or("which problem? See --help")?, work, scale, out })
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let Arguments { file, work, scale, out } = arguments;
    let text = fs::read_to_string(file).map_err(|it| format!("{}: {it}", file.display()))?;
    let problem = match file.extension().is_some_and(|it| it == "uai") {
        true => PairwiseProblem::from_uai(&text, *scale),
        false => PairwiseProblem::from_wcsp(&text),
    };
    let problem = problem.map_err(|it| format!("{}: {it}", file.display()))?;
    let start = Instant::now();
    let options = Options { decomposition_work: *work, ..Options::with_work(*work) };
    let found = solve(&problem, None, options);
    println!("variables    {}", problem.unary.len());
    println!("functions    {}", problem.edges.len());
    println!("cost         {}", found.cost);
    println!("lower bound  {}", found.lower_bound);
    println!("seconds      {:.2}", start.elapsed().as_secs_f64());
    if let Some(out) = out {
        let labels: Vec<String> = found.labels.iter().map(usize::to_string).collect();
        let line = labels.join(" ") + "\n";
        fs::write(out, line).map_err(|it| format!("{}: {it}", out.display()))?;
    }
    Ok(())
}
