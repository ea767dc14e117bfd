//! The flags of the benchmark.

use std::{error::Error, ffi::OsString, path::PathBuf};

use lexopt::{Arg, Parser, ValueExt};
use soybean::{Config, Device};

use super::cases::{Case, Feed, Size};

/// The request of a command line.
pub(crate) enum Request {
    /// Show this text.
    Help(&'static str),
    /// Measure.
    Run(Options),
}

/// The selected cases and the measurement.
pub(crate) struct Options {
    models: Vec<String>,
    precisions: Vec<String>,
    ranks: Vec<usize>,
    feed: Option<String>,
    size: Size,
    pub(crate) lists: bool,
    pub(crate) n_steps: usize,
    pub(crate) config: Config,
    pub(crate) trace: Option<PathBuf>,
    /// True if the last loss is compared with that of the CPU.
    pub(crate) checks: bool,
}

/// Labels are random, so nothing can be learned; a small learning rate keeps weights and losses
/// stable.
const LEARNING_RATE: f32 = 1e-5;
/// The learning rate of small models is large enough for wrong gradients to show in later losses.
const SMALL_LEARNING_RATE: f32 = 0.02;

const HELP: &str = "Usage: gpu_bench [flags]

Measures training steps; prints one line of JSON for each case. Flags that choose cases may be given several times.

  --model NAME      mlp512, mlp2048, alexnet, vgg16, gpt, peak (products of 8192 x 8192 matrices), launch (a step with next to no work)
  --peak            as --model peak
  --precision NAME  f32, tf32 or bf16
  --ranks N         1 or 8
  --feed NAME       kept (inputs stay on the devices) or fed (the host hands them over in every step)
  --small           small shapes, to try the benchmark on a CPU
  --list            show the cases instead of measuring them
  --steps N         the number of steps to measure (30)
  --device NAME     cpu, cuda or auto (auto)
  --no-graph        queue each kernel anew in every step
  --check           compare the last loss with that of the same steps on the CPU; a difference is an error
  --trace FILE      write what each rank did when in one step; of the last case, if there are several
";

impl Options {
    /// Returns true if this case is selected.
    pub(crate) fn wants(&self, case: &Case) -> bool {
        let is_named =
            |names: &[String], name: &str| names.is_empty() || names.iter().any(|it| it == name);
        is_named(&self.models, case.model)
            && is_named(&self.precisions, case.precision().name())
            && (self.ranks.is_empty() || self.ranks.contains(&case.plan.n_gpus))
            && self.feed.as_ref().is_none_or(|it| it == case.feed.name())
            && self.size == case.size
    }
}

/// Parses the arguments after the program's name.
pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Request, Box<dyn Error>> {
    let mut options = Options {
        models: Vec::new(),
        precisions: Vec::new(),
        ranks: Vec::new(),
        feed: None,
        size: Size::Full,
        lists: false,
        n_steps: 30,
        config: Config { learning_rate: LEARNING_RATE, ..Config::default() },
        trace: None,
        checks: false,
    };
    let mut parser = Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("help") | Arg::Short('h') => return Ok(Request::Help(HELP)),
            Arg::Long("model") => options.models.push(parser.value()?.string()?),
            Arg::Long("peak") => options.models.push("peak".to_owned()),
            Arg::Long("precision") => options.precisions.push(parser.value()?.string()?),
            Arg::Long("ranks") => options.ranks.push(parser.value()?.parse()?),
            Arg::Long("feed") => options.feed = Some(feed(&parser.value()?.string()?)?),
            Arg::Long("small") => {
                options.size = Size::Small;
                options.config.learning_rate = SMALL_LEARNING_RATE;
            }
            Arg::Long("list") => options.lists = true,
            Arg::Long("steps") => options.n_steps = parser.value()?.parse::<usize>()?.max(1),
            Arg::Long("device") => {
                options.config.device = parser.value()?.string()?.parse::<Device>()?;
            }
            Arg::Long("check") => options.checks = true,
            Arg::Long("no-graph") => options.config.uses_graphs = false,
            Arg::Long("trace") => options.trace = Some(parser.value()?.into()),
            Arg::Long(_) | Arg::Short(_) | Arg::Value(_) => {
                return Err(argument.unexpected().into());
            }
        }
    }
    Ok(Request::Run(options))
}

fn feed(name: &str) -> Result<String, String> {
    let known = [Feed::Kept, Feed::Fed].map(Feed::name);
    if known.contains(&name) {
        Ok(name.to_owned())
    } else {
        Err(format!("--feed: expected kept or fed, found `{name}`"))
    }
}
