//! The command `generate`, with tiny models whose files `transformers` wrote: it continues texts by
//! the tokens that `transformers` found most probable.

use std::{
    fs,
    path::{Path, PathBuf},
};

use soybean_test_support::{example, run};

const N_GIVEN: usize = 3;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/transformers").join(name)
}

/// Three tokens, and those that `transformers` found most probable after them, as letters.
fn expected(name: &str) -> String {
    let text = fs::read_to_string(folder(name).join("continued.txt")).unwrap();
    let letter = |it: &str| char::from(b'a' + it.parse::<u8>().unwrap());
    text.split_whitespace().map(letter).collect()
}

/// Runs the program of tests with one of its networks.
fn generate(network: &str, flags: &[&str]) -> (Option<i32>, String, String) {
    run(example!("texts_program").env("SOYBEAN_TEST_NETWORK", network).args(flags))
}

/// Returns the texts that are written by the weights in a folder, or the mistake.
fn texts(network: &str, weights: &str, flags: &[&str]) -> Result<Vec<String>, String> {
    let folder = folder(weights);
    let weights = ["--weights", folder.to_str().unwrap()];
    let (code, output, errors) = generate(network, &[&weights[..], flags].concat());
    if code != Some(0) {
        return Err(errors);
    }
    assert!(output.contains("tokens per second"), "{output}");
    let is_text = |it: &&str| !it.is_empty() && it.chars().all(|it| ('a'..='t').contains(&it));
    Ok(output.lines().filter(is_text).map(str::to_owned).collect())
}

#[test]
fn networks_continue_texts_as_transformers_does() {
    for (network, weights) in [("gpt2", "gpt2"), ("gpt2", "gpt2/published"), ("llama", "llama")] {
        let expected = expected(network);
        let n_new = (expected.len() - N_GIVEN).to_string();
        let flags = ["--tokens", &n_new, "--temperature", "0", "--prompt", &expected[..N_GIVEN]];
        assert_eq!(texts(network, weights, &flags).unwrap(), [expected]);
    }
}

/// The program takes two texts at a time, and reads four tokens of each at once.
#[test]
fn texts_of_several_lengths_are_continued_together() {
    let greedy = ["--tokens", "4", "--temperature", "0"];
    let prompts = ["d", "dbeca", "abcdefghi"];
    let mut alone = Vec::new();
    for prompt in prompts {
        alone
            .extend(texts("gpt2", "gpt2", &[&greedy[..], &["--prompt", prompt]].concat()).unwrap());
    }
    let flags: Vec<&str> = prompts.iter().flat_map(|it| ["--prompt", it]).collect();
    let together = texts("gpt2", "gpt2", &[&greedy[..], &flags].concat()).unwrap();
    assert_eq!(together, alone);
    for (text, prompt) in together.iter().zip(prompts) {
        assert!(text.starts_with(prompt) && text.len() == prompt.len() + 4, "{together:?}");
    }
}

#[test]
fn tokens_are_drawn_by_seed_and_limits() {
    let drawn = |flags: &[&str]| {
        let flags = [&["--tokens", "30", "--prompt", "ab"], flags].concat();
        texts("gpt2", "gpt2", &flags).unwrap().remove(0)
    };
    let one = drawn(&["--seed", "1"]);
    assert_eq!(one, drawn(&["--seed", "1"]));
    assert_ne!(one, drawn(&["--seed", "2"]));
    let greedy = drawn(&["--temperature", "0"]);
    assert_eq!(greedy, drawn(&["--top-k", "1"]));
    assert_eq!(greedy, drawn(&["--top-p", "0.0001", "--temperature", "2"]));
    assert_ne!(greedy, one);
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
fn tokenizers_are_read_from_files() {
    let tokenizer = tokenizer();
    for name in ["gpt2", "llama"] {
        let flags = ["--tokenizer", &tokenizer, "--prompt", "dbe", "--tokens", "7"];
        let greedy = [&flags[..], &["--temperature", "0"]].concat();
        assert_eq!(texts(name, name, &greedy).unwrap(), [expected(name)]);
    }
    let fault = texts("gpt2", "gpt2", &["--tokenizer", "missing.json"]).unwrap_err();
    let expected = "error: missing.json: expected a file that can be read, found: ";
    assert!(fault.starts_with(expected), "{fault}");
}

// Guards: texts that go on behind an end, and prompts that end with one.
#[cfg(feature = "tokenizers")]
#[test]
fn texts_end_at_any_token_of_a_set() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ends");
    fs::create_dir_all(&folder).unwrap();
    let whole = expected("gpt2");
    let greedy = |flags: &[&str]| {
        let prompt = &whole[..N_GIVEN];
        let flags = [flags, &["--tokens", "7", "--temperature", "0", "--prompt", prompt]].concat();
        texts("gpt2", "gpt2", &flags).unwrap().remove(0)
    };
    // The tokens that are new, in the order in which they come, and a text that ends at the first.
    let new: Vec<char> = whole.chars().skip(N_GIVEN).collect();
    let until = |ends: &[char]| {
        let n_new = new.iter().position(|it| ends.contains(it)).map_or(new.len(), |it| it + 1);
        whole[..N_GIVEN + n_new].to_owned()
    };
    let (one, other) = (new[1], new[4]);
    let names = [one, other].map(|it| it.to_string());
    assert_eq!(greedy(&["--end", &names[0]]), until(&[one]));
    assert_eq!(greedy(&["--end", &names[1], "--end", &names[0]]), until(&[one, other]));
    let file = folder.join("tokenizer.json");
    fs::copy(tokenizer(), &file).unwrap();
    let number = |it: char| u32::from(it) - u32::from('a');
    let config = format!("{{\"eos_token_id\": [{}, {}]}}", number(other), number('t'));
    fs::write(folder.join("generation_config.json"), config).unwrap();
    let file = ["--tokenizer", file.to_str().unwrap()];
    assert_eq!(greedy(&file), until(&[other, 't']));
    assert_eq!(greedy(&[file[0], file[1], "--end", "u"]), whole, "the flag comes first");
    // The file adds the letter `a` before a prompt, and an end after it.
    let text = fs::read_to_string(file[1]).unwrap();
    let special = |name: &str, id: u32| {
        format!("\"{name}\": {{\"id\": \"{name}\", \"ids\": [{id}], \"tokens\": [\"{name}\"]}}")
    };
    let around = format!(
        "\"post_processor\": {{\"type\": \"TemplateProcessing\", \"single\": [
            {{\"SpecialToken\": {{\"id\": \"a\", \"type_id\": 0}}}}, {{\"Sequence\": {{\"id\": \"A\", \"type_id\": 0}}}},
            {{\"SpecialToken\": {{\"id\": \"t\", \"type_id\": 0}}}}], \"pair\": [
            {{\"Sequence\": {{\"id\": \"A\", \"type_id\": 0}}}}, {{\"Sequence\": {{\"id\": \"B\", \"type_id\": 0}}}}],
            \"special_tokens\": {{{}, {}}}}}, \"model\"",
        special("a", 0), special("t", 19)
    );
    fs::write(file[1], text.replacen("\"model\"", &around, 1)).unwrap();
    let n_given = |choice: &[&str]| {
        let flags = [&file[..], &["--tokens", "0", "--prompt", "dbe"], choice].concat();
        texts("gpt2", "gpt2", &flags).unwrap().remove(0)
    };
    assert_eq!(n_given(&[]), "adbe");
    assert_eq!(n_given(&["--special-tokens", "start"]), "adbe");
    assert_eq!(n_given(&["--special-tokens", "all"]), "adbet");
    assert_eq!(n_given(&["--special-tokens", "none"]), "dbe");
}

#[cfg(not(feature = "tokenizers"))]
#[test]
fn programs_without_tokenizers_say_so() {
    let fault = texts("gpt2", "gpt2", &["--tokenizer", &tokenizer()]).unwrap_err();
    assert!(fault.contains("build with `--features tokenizers` to read tokenizers"), "{fault}");
}

#[test]
fn mistakes_are_errors() {
    let fault = |weights: &str, flags: &[&str]| texts("gpt2", weights, flags).unwrap_err();
    let found = fault("gpt2", &["--prompt", "au"]);
    assert!(found.contains("--prompt: the model has 20 tokens, found token 20"), "{found}");
    let found = fault("gpt2", &["--prompt", "a!"]);
    assert!(found.contains("--prompt: byte 1: expected a token of the vocabulary"), "{found}");
    let found = fault("gpt2", &["--prompt", ""]);
    assert!(found.contains("expected a text of at least one token, found none"), "{found}");
    let found = fault("gpt2", &["--top-p", "2"]);
    let expected = "--top-p: expected a number above 0 and at most 1, found `2`";
    assert!(found.contains(expected), "{found}");
    let found = fault("gpt2", &["--end", "ab"]);
    assert!(found.contains("--end: expected a token of the tokenizer, found `ab`"), "{found}");
    let found = fault("gpt2", &["--special-tokens", "some"]);
    assert!(found.contains("--special-tokens: expected start, all or none, found `some`"));
    let found = fault("gpt2", &["--top", "2"]);
    assert!(found.contains("unknown flag --top; the nearest is --top-k"), "{found}");
    let found = fault("missing", &[]);
    assert!(found.contains("transformers/missing"), "{found}");
    // The weights of another network.
    let found = fault("llama", &[]);
    assert!(found.contains("model.embed_tokens.weight"), "{found}");
}

/// Without weights they are random. The other commands of a predictor remain.
#[test]
fn generating_is_one_of_the_commands() {
    let (code, output, errors) = generate("llama", &["--tokens", "2"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    assert!(output.contains("random weights"), "{output}");
    assert!(output.contains("first of 2 tokens after"), "{output}");
    let (code, output, errors) = generate("gpt2", &["check"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    assert!(output.contains("by `prefill`"), "{output}");
    let (code, output, _) = generate("gpt2", &["--help"]);
    assert_eq!(code, Some(0));
    assert!(output.contains("generate") && output.contains("--temperature"), "{output}");
}
