//! The program of the examples `gpt2` and `llama`, with tiny models whose files `transformers`
//! wrote: it continues texts by the tokens that `transformers` found most probable.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use program::{Decoder, options::Options, write_text, write_tokens};
use soybean::{
    Config, Network, Predictor,
    generation::{Generation, GenerationConfig, Sampling},
};

use crate::example_networks;

#[path = "../../examples/text/program.rs"]
#[expect(dead_code, reason = "`run` reads the flags of the process")]
mod program;

#[soybean::model(gpus = 2, mode = "inference")]
mod gpt2 {
    use soybean::prelude::*;

    use super::example_networks::gpt2::cached;

    pub(crate) fn forward(tokens: Tensor<i32, 1, 1>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::gpt2(tokens, n_before, 20, 10, 16, 4, 2)
    }
}

#[soybean::model(gpus = 2, mode = "inference")]
mod llama {
    use soybean::prelude::*;

    use super::example_networks::llama::cached;

    pub(crate) fn forward(tokens: Tensor<i32, 1, 1>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::llama(tokens, n_before, 20, 16, 24, 4, 2, 2, 500.0, 1e-5, 10)
    }
}

const VOCABULARY: usize = 20;
const CAPACITY: usize = 10;
const N_GIVEN: usize = 3;
const GPT2: &str = example_networks::gpt2::HUGGING_FACE;
const LLAMA: &str = example_networks::llama::HUGGING_FACE;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/transformers").join(name)
}

/// Three tokens, and those that `transformers` found most probable after them.
fn expected(name: &str) -> Vec<i32> {
    let text = fs::read_to_string(folder(name).join("continued.txt")).unwrap();
    text.split_whitespace().map(|it| it.parse().unwrap()).collect()
}

/// Compares the continuation by the weights in a folder with that of the model of this name.
fn check_tokens<N: Network>(weights: &str, name: &str, names: &str) {
    let expected = expected(name);
    let mut predictor = Predictor::<N>::new(Config::default()).unwrap();
    predictor.load_weights(folder(weights), &names.parse().unwrap()).unwrap();
    let n_new = expected.len() - N_GIVEN;
    let config =
        GenerationConfig { sampling: Sampling::greedy(), ..GenerationConfig::new(n_new, CAPACITY) };
    let mut generation = Generation::new(&[&expected[..N_GIVEN]], config).unwrap();
    let mut lengths = Vec::new();
    let n_found = write_tokens(&mut predictor, &mut generation, |text| {
        lengths.push(text.len());
        Ok(())
    });
    assert_eq!(n_found.unwrap(), n_new);
    assert_eq!(lengths, (N_GIVEN + 1..=expected.len()).collect::<Vec<usize>>());
    assert_eq!(generation.text(0), expected);
}

#[test]
fn networks_continue_texts_as_transformers_does() {
    check_tokens::<gpt2::Network>("gpt2", "gpt2", GPT2);
    check_tokens::<gpt2::Network>("gpt2/published", "gpt2", GPT2);
    check_tokens::<llama::Network>("llama", "llama", LLAMA);
}

/// Runs the program with these flags, and returns what it writes or its mistake.
fn output<N: Network>(names: &'static str, flags: &[&str]) -> Result<String, String> {
    let options = Options::parse(flags.iter().map(OsString::from)).map_err(|it| it.to_string())?;
    let decoder = Decoder { names, vocabulary: VOCABULARY, capacity: CAPACITY };
    let mut output = Vec::new();
    let options = options.expect("no flag asks for help");
    write_text::<N>(decoder, &options, &mut output).map_err(|it| it.to_string())?;
    Ok(String::from_utf8(output).unwrap())
}

/// A tokenizer of the letters from `a` to `t`, and of `u`, which the networks do not know.
fn tokenizer() -> String {
    let entry = |(number, letter): (usize, char)| format!(r#""{letter}": {number}"#);
    let entries: Vec<String> = ('a'..='u').enumerate().map(entry).collect();
    let text = format!(
        r#"{{"version": "1.0", "added_tokens": [], "decoder": {{"type": "Fuse"}},
            "model": {{"type": "BPE", "vocab": {{{}}}, "merges": []}}}}"#,
        entries.join(", ")
    );
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("letters.json");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[cfg(feature = "tokenizers")]
#[test]
fn programs_continue_texts() {
    let check = |found: String, name: &str| {
        let letter = |it: &i32| char::from(b'a' + u8::try_from(*it).unwrap());
        let expected: String = expected(name).iter().map(letter).collect();
        let lines: Vec<&str> = found.lines().collect();
        assert_eq!(lines[2], expected, "{found}");
        assert!(lines[4].starts_with("first of 7 tokens after"), "{found}");
    };
    let tokenizer = tokenizer();
    let flags = |folder: &str| -> Vec<String> {
        let flags = ["--tokenizer", &tokenizer, "--prompt", "dbe", "--tokens", "7"];
        let greedy = ["--temperature", "0", "--weights", folder];
        flags.iter().chain(&greedy).map(|it| (*it).to_owned()).collect()
    };
    for (name, found) in [
        ("gpt2", output::<gpt2::Network> as fn(&'static str, &[&str]) -> Result<String, String>),
        ("llama", output::<llama::Network>),
    ] {
        let names = if name == "gpt2" { GPT2 } else { LLAMA };
        let flags = flags(folder(name).to_str().unwrap());
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        check(found(names, &flags).unwrap(), name);
    }
    let weights = folder("gpt2");
    let fault = |weights: &Path, prompt: &str| {
        let weights = weights.to_str().unwrap();
        let flags = ["--weights", weights, "--tokenizer", &tokenizer, "--prompt", prompt];
        output::<gpt2::Network>(GPT2, &flags).unwrap_err()
    };
    let found = fault(&weights, "au");
    assert!(found.contains("the network has 20 tokens, but the prompt has token 20"), "{found}");
    assert_eq!(fault(&weights, ""), "`--prompt` must have a token, found none");
    let found = fault(Path::new("missing.safetensors"), "a");
    assert!(found.contains("missing.safetensors"), "{found}");
    // The weights of another network.
    let found = fault(&folder("llama"), "a");
    assert!(found.contains("model.embed_tokens.weight"), "{found}");
}

#[cfg(not(feature = "tokenizers"))]
#[test]
fn programs_without_tokenizers_say_so() {
    let weights = folder("gpt2");
    let tokenizer = tokenizer();
    let flags = ["--weights", weights.to_str().unwrap(), "--tokenizer", &tokenizer];
    let found = output::<gpt2::Network>(GPT2, &flags).unwrap_err();
    assert!(found.ends_with("build with `--features tokenizers` to read tokenizers"), "{found}");
}

#[test]
fn mistakes_in_flags_are_errors() {
    let fault = |flags: &[&str]| output::<gpt2::Network>(GPT2, flags).unwrap_err();
    assert_eq!(fault(&["--weights", "a"]), "`--weights` needs `--tokenizer`");
    assert_eq!(fault(&["--tokenizer", "a"]), "`--tokenizer` needs `--weights`");
    assert_eq!(fault(&["--top"]), "invalid option '--top'");
    // Tokens are bytes without a tokenizer.
    assert!(fault(&["--prompt", "a"]).contains("but the prompt has token 97"));
    assert_eq!(
        fault(&["--prompt", "\u{1}", "--top-p", "2"]),
        "`top_p` must be above 0 and at most 1, found 2"
    );
    let found = fault(&["--weights", "a", "--tokenizer", "missing.json"]);
    assert!(found.starts_with("missing.json: "), "{found}");
}
