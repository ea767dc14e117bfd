//! A novel, letter by letter, for the example that learns to write.

use std::path::{Path, PathBuf};

use soybean::{
    DataOptions, Error, Split,
    data::{TokenSpec, Tokens, read_file},
};

/// All that the novel is written with, in the order of their numbers.
pub(crate) const LETTERS: &str =
    "\n !\"'()*,-.0123456789:;?ABCDEFGHIJKLMNOPRSTUVWYZ_abcdefghijklmnopqrstuvwxyz";

/// The letters that a step sees.
pub(crate) const LENGTH: usize = 64;

/// The letters of a text by their numbers; those that the novel has not are left out.
pub(crate) fn numbers(text: &str) -> Vec<i32> {
    let number = |letter: char| LETTERS.chars().position(|it| it == letter);
    text.chars().filter_map(number).map(|it| i32::try_from(it).expect("letters are few")).collect()
}

/// "Pride and Prejudice", or the text file given with `--data`: what is learnt, and the last tenth.
pub(crate) fn text(options: &DataOptions) -> Result<(Vec<i32>, Vec<i32>), Error> {
    let ours = || file("examples/data/pride_and_prejudice.txt.gz");
    let bytes = read_file(options.path.clone().unwrap_or_else(ours))?;
    let mut learnt = numbers(&String::from_utf8_lossy(&bytes));
    let held_out = learnt.split_off(learnt.len() - learnt.len() / 10);
    Ok((learnt, held_out))
}

/// The text in overlapping windows: letters, and for each the one that follows it.
pub(crate) fn load(options: &DataOptions) -> Result<Split, Error> {
    let (learnt, held_out) = text(options)?;
    Ok(Split::new(windows(learnt, LENGTH / 2)?, windows(held_out, LENGTH)?))
}

fn windows(text: Vec<i32>, stride: usize) -> Result<Tokens, Error> {
    Tokens::new(text, TokenSpec { length: LENGTH, stride, vocabulary: LETTERS.chars().count() })
}

/// The mean loss on one text of a bigram model of another, in which every pair has been seen once more than it has.
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

/// A file of the sources, or of the current folder where the program runs elsewhere than it was built.
fn file(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if source.exists() { source } else { name.into() }
}
