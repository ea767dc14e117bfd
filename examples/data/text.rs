//! A novel as a sequence of characters, for the example of text generation.

use std::path::{Path, PathBuf};

use soybean::{
    DataOptions, Error, Split,
    data::{TokenSpec, Tokens, Vocabulary, read_file},
};

/// The characters of the novel, in the order of their numbers.
pub(crate) const LETTERS: &str =
    "\n !\"'()*,-.0123456789:;?ABCDEFGHIJKLMNOPRSTUVWYZ_abcdefghijklmnopqrstuvwxyz";

/// The length of a training text.
pub(crate) const LENGTH: usize = 64;

/// Converts a text to numbers, without characters that the novel lacks.
pub(crate) fn numbers(text: &str) -> Vec<i32> {
    let number = |letter: char| LETTERS.chars().position(|it| it == letter);
    text.chars().filter_map(number).map(|it| i32::try_from(it).expect("letters are few")).collect()
}

/// Loads "Pride and Prejudice", or the file given with `--data`; returns the training text and the
/// held-out last tenth.
pub(crate) fn text(options: &DataOptions) -> Result<(Vec<i32>, Vec<i32>), Error> {
    let ours = || file("examples/data/pride_and_prejudice.txt.gz");
    let bytes = read_file(options.path.clone().unwrap_or_else(ours))?;
    let mut learnt = numbers(&String::from_utf8_lossy(&bytes));
    let held_out = learnt.split_off(learnt.len() - learnt.len() / 10);
    Ok((learnt, held_out))
}

/// Returns overlapping windows of the text: characters, and the next character of each.
pub(crate) fn load(options: &DataOptions) -> Result<Split, Error> {
    let (learnt, held_out) = text(options)?;
    Ok(Split::new(windows(learnt, LENGTH / 2)?, windows(held_out, LENGTH)?))
}

fn windows(text: Vec<i32>, stride: usize) -> Result<Tokens, Error> {
    let vocabulary = LETTERS.chars().count();
    let tokens = Tokens::new(text, TokenSpec { length: LENGTH, stride, vocabulary })?;
    Ok(tokens.with_tokenizer(&Vocabulary::of_characters(LETTERS)))
}

/// Returns the mean loss on one text of a bigram model of another, with add-one smoothing.
pub(crate) fn bigram_loss(learnt: &[i32], held_out: &[i32]) -> f64 {
    let n = LETTERS.chars().count();
    let mut counts = vec![vec![1.0; n]; n];
    let at = |letter: i32| usize::try_from(letter).expect("letters have numbers");
    for pair in learnt.windows(2) {
        counts[at(pair[0])][at(pair[1])] += 1.0;
    }
    let loss = |pair: &[i32]| {
        let row = &counts[at(pair[0])];
        -(row[at(pair[1])] / row.iter().sum::<f64>()).ln()
    };
    held_out.windows(2).map(loss).sum::<f64>() / (held_out.len() - 1) as f64
}

/// Returns a file of the sources, or of the current folder if the program was built elsewhere.
fn file(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if source.exists() { source } else { name.into() }
}
