//! The flags of `generate`.

use std::path::PathBuf;

use soybean_plan::NumberRange;
use soybean_runtime::data::SpecialTokens;

use super::{Command, Flag, Target};
use crate::{
    generation::Sampling,
    run::setting::{from_zero, number, positive, set, some_path, within},
};

/// The options of `generate`.
#[derive(Clone, Debug)]
pub(in crate::command_line) struct GenerateOptions {
    /// The file or folder of the weights, which are random otherwise.
    pub(in crate::command_line) weights: Option<PathBuf>,
    /// The file of the tokenizer, if it is not that of the program.
    pub(in crate::command_line) tokenizer: Option<PathBuf>,
    /// The tokens of the tokenizer's file that are added to prompts.
    pub(in crate::command_line) special_tokens: SpecialTokens,
    /// The names of the tokens after which texts end, if they are not those of the tokenizer.
    pub(in crate::command_line) ends: Vec<String>,
    /// How the texts begin.
    pub(in crate::command_line) prompts: Vec<String>,
    /// The most tokens that are added to each text.
    pub(in crate::command_line) n_new: usize,
    /// How tokens are chosen, but for the seed.
    pub(in crate::command_line) sampling: Sampling,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            weights: None,
            tokenizer: None,
            special_tokens: SpecialTokens::Start,
            ends: Vec::new(),
            prompts: Vec::new(),
            n_new: 50,
            sampling: Sampling::default(),
        }
    }
}

/// Defines a flag of `generate`.
const fn flag(
    name: &'static str,
    value: &'static str,
    help: &'static str,
    set: fn(&mut super::Options, &str) -> Result<(), String>,
) -> Flag {
    Flag { name, value, help, commands: &[Command::Generate], target: Target::Option(set) }
}

pub(super) const FLAGS: &[Flag] = &[
    flag(
        "weights",
        "PATH",
        "a .safetensors file, an index of several, or the folder of a checkpoint, run or model",
        |options, text| set(&mut options.generate.weights, some_path(text)),
    ),
    flag(
        "tokenizer",
        "FILE",
        "the tokenizer.json of the model, with the feature `tokenizers`",
        |options, text| set(&mut options.generate.tokenizer, some_path(text)),
    ),
    flag(
        "special-tokens",
        "WHICH",
        "the tokens that the file adds to prompts: start, all or none (start)",
        |options, text| set(&mut options.generate.special_tokens, special_tokens(text)),
    ),
    flag(
        "end",
        "TOKEN",
        "a token after which a text ends, instead of the tokenizer's; may be given several times",
        |options, text| {
            options.generate.ends.push(text.to_owned());
            Ok(())
        },
    ),
    flag(
        "prompt",
        "TEXT",
        "how a text begins; may be given several times, for several texts",
        |options, text| {
            options.generate.prompts.push(text.to_owned());
            Ok(())
        },
    ),
    flag("tokens", "N", "the most tokens that are added to each text (50)", |options, text| {
        set(&mut options.generate.n_new, number(text))
    }),
    flag(
        "temperature",
        "T",
        "below 1, probable tokens become more probable; 0 always takes the first (1)",
        |options, text| set(&mut options.generate.sampling.temperature, from_zero(text)),
    ),
    flag("top-k", "K", "draw one of the K most probable tokens (of all)", |options, text| {
        set(&mut options.generate.sampling.top_k, positive(text).map(Some))
    }),
    flag(
        "top-p",
        "P",
        "draw one of the most probable tokens that have probability P together (1)",
        |options, text| {
            set(&mut options.generate.sampling.top_p, within(text, NumberRange::POSITIVE_SHARE))
        },
    ),
];

fn special_tokens(text: &str) -> Result<SpecialTokens, String> {
    match text {
        "all" => Ok(SpecialTokens::All),
        "start" => Ok(SpecialTokens::Start),
        "none" => Ok(SpecialTokens::None),
        _ => Err(format!("expected start, all or none, found `{text}`")),
    }
}
