//! The flags of the examples that continue a text.

use std::{ffi::OsString, path::PathBuf};

use lexopt::{Arg, Parser, ValueExt};
use soybean::generation::Sampling;

pub(crate) const HELP: &str = "\
Continues a text. Without --weights, a small network with random weights does so.

      --weights PATH     a .safetensors file, an index of several, or a folder with either
      --tokenizer FILE   the tokenizer.json of the same model
      --prompt TEXT      how the text begins
      --tokens N         the most tokens that are added, 50 by default
      --temperature T    below 1, probable tokens become more probable; 0 always takes the first
      --top-k K          draws one of the K most probable tokens
      --top-p P          draws one of the most probable tokens that have probability P together
      --seed N           the seed of random weights and of the drawn tokens, 0 by default
  -h, --help             shows this text
";

/// The values of the flags.
#[derive(Debug)]
pub(crate) struct Options {
    /// The weights and the tokenizer of a pretrained model, if they are given.
    pub(crate) pretrained: Option<Pretrained>,
    /// How the text begins.
    pub(crate) prompt: String,
    /// The most tokens that are added.
    pub(crate) n_new: usize,
    /// How tokens are chosen.
    pub(crate) sampling: Sampling,
}

/// The files of a pretrained model.
#[derive(Debug)]
pub(crate) struct Pretrained {
    pub(crate) weights: PathBuf,
    pub(crate) tokenizer: PathBuf,
}

impl Options {
    /// Reads the flags; returns `None` if they ask for help.
    pub(crate) fn parse(
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<Option<Self>, lexopt::Error> {
        let mut options = Self {
            pretrained: None,
            prompt: "It is a truth universally acknowledged, that".to_owned(),
            n_new: 50,
            sampling: Sampling::default(),
        };
        let (mut weights, mut tokenizer) = (None, None);
        let mut parser = Parser::from_args(arguments);
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Long("weights") => weights = Some(PathBuf::from(parser.value()?)),
                Arg::Long("tokenizer") => tokenizer = Some(PathBuf::from(parser.value()?)),
                Arg::Long("prompt") => options.prompt = parser.value()?.string()?,
                Arg::Long("tokens") => options.n_new = parser.value()?.parse()?,
                Arg::Long("temperature") => {
                    options.sampling.temperature = parser.value()?.parse()?;
                }
                Arg::Long("top-k") => options.sampling.top_k = Some(parser.value()?.parse()?),
                Arg::Long("top-p") => options.sampling.top_p = parser.value()?.parse()?,
                Arg::Long("seed") => options.sampling.seed = parser.value()?.parse()?,
                Arg::Short('h') | Arg::Long("help") => return Ok(None),
                Arg::Short(_) | Arg::Long(_) | Arg::Value(_) => return Err(argument.unexpected()),
            }
        }
        options.pretrained = match (weights, tokenizer) {
            (Some(weights), Some(tokenizer)) => Some(Pretrained { weights, tokenizer }),
            (None, None) => None,
            (Some(_), None) => return Err("`--weights` needs `--tokenizer`".into()),
            (None, Some(_)) => return Err("`--tokenizer` needs `--weights`".into()),
        };
        Ok(Some(options))
    }
}
