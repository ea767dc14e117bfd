//! Index notation of user-defined operators: `bk,jk->bj`.

use std::fmt;

use crate::MAX_RANK;

/// The dims of an operator's operands and of its result, one letter each.
///
/// Dims with one letter have one extent. A lower-case letter can be split over ranks: the operator
/// computes each part of the result from the same parts of its operands. If the result lacks the
/// letter, the results of the parts add up to the whole. A dim with a capital letter is never
/// split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexNotation {
    operands: Vec<Vec<char>>,
    result: Vec<char>,
}

impl IndexNotation {
    /// The most operands of an operator.
    pub const MAX_OPERANDS: usize = 8;

    /// Parses the text form; white space has no meaning.
    ///
    /// # Errors
    /// If the text has no `->`, a dim is not a letter, a tensor has a letter twice or more than
    /// [`MAX_RANK`] dims, the result has a letter that no operand has, or there are too many
    /// operands.
    pub fn parse(text: &str) -> Result<Self, String> {
        let spaceless: String = text.chars().filter(|it| !it.is_whitespace()).collect();
        let Some((operands, result)) = spaceless.split_once("->") else {
            return Err(format!("the notation must have `->` and a result, found \"{text}\""));
        };
        let letters = |text: &str| text.chars().collect::<Vec<char>>();
        let notation =
            Self { operands: operands.split(',').map(letters).collect(), result: letters(result) };
        for tensor in notation.operands.iter().chain([&notation.result]) {
            if let Some(other) = tensor.iter().find(|it| !it.is_ascii_alphabetic()) {
                return Err(format!("dims are letters, found `{other}`"));
            }
            let is_twice = |it: &&char| tensor.iter().filter(|other| other == it).count() > 1;
            if let Some(letter) = tensor.iter().find(is_twice) {
                return Err(format!("a tensor has each letter once, found `{letter}` twice"));
            }
            if tensor.len() > MAX_RANK {
                let found = tensor.len();
                return Err(format!("a tensor has at most {MAX_RANK} dims, found {found}"));
            }
        }
        if notation.operands.len() > Self::MAX_OPERANDS {
            let (most, found) = (Self::MAX_OPERANDS, notation.operands.len());
            return Err(format!("an operator has at most {most} operands, found {found}"));
        }
        let is_new = |it: &&char| !notation.operands.iter().flatten().any(|other| other == *it);
        match notation.result.iter().find(is_new) {
            Some(letter) => Err(format!("no operand has `{letter}`, a dim of the result")),
            None => Ok(notation),
        }
    }

    /// Returns the letters of each operand.
    #[must_use]
    pub fn operands(&self) -> &[Vec<char>] {
        &self.operands
    }

    /// Returns the letters of the result.
    #[must_use]
    pub fn result(&self) -> &[char] {
        &self.result
    }

    /// Returns all letters, in the order in which they are first written.
    #[must_use]
    pub fn letters(&self) -> Vec<char> {
        let mut letters = Vec::new();
        for letter in self.operands.iter().flatten() {
            if !letters.contains(letter) {
                letters.push(*letter);
            }
        }
        letters
    }

    /// Returns the extent of a letter, given the shapes of the operands.
    ///
    /// # Panics
    /// If no operand has the letter.
    #[must_use]
    pub fn extent<S: AsRef<[usize]>>(&self, letter: char, shapes: &[S]) -> usize {
        let mut dims = self.operands.iter().zip(shapes).flat_map(|(letters, shape)| {
            letters.iter().copied().zip(shape.as_ref().iter().copied())
        });
        dims.find(|(it, _)| *it == letter).expect("letters are those of operands").1
    }

    /// Checks that shapes fit: one for each operand, with its number of dims, and one extent for
    /// each letter.
    ///
    /// # Errors
    /// If they do not, with the number of the operand that is wrong.
    pub fn check<S: AsRef<[usize]>>(&self, shapes: &[S]) -> Result<(), (usize, String)> {
        for (number, (letters, shape)) in self.operands.iter().zip(shapes).enumerate() {
            let shape = shape.as_ref();
            if letters.len() != shape.len() {
                let text: String = letters.iter().collect();
                let (expected, found) = (letters.len(), shape.len());
                return Err((number, format!("\"{text}\" has {expected} dims, found {found}")));
            }
            for (letter, found) in letters.iter().zip(shape) {
                let expected = self.extent(*letter, shapes);
                if expected != *found {
                    let message = format!("`{letter}` is {expected} above, but {found} here");
                    return Err((number, message));
                }
            }
        }
        Ok(())
    }

    /// Returns whether ranks may split a dim with this letter.
    #[must_use]
    pub const fn is_split(letter: char) -> bool {
        letter.is_ascii_lowercase()
    }
}

impl fmt::Display for IndexNotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |letters: &[char]| letters.iter().collect::<String>();
        let operands: Vec<String> = self.operands.iter().map(|it| text(it)).collect();
        write!(f, "{}->{}", operands.join(","), text(&self.result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_notation_has_its_text_form() {
        for (text, expected) in [
            ("bk, jk -> bj", Ok("bk,jk->bj")),
            ("K->K", Ok("K->K")),
            ("i,->", Ok("i,->")),
            ("ij", Err("the notation must have `->` and a result, found \"ij\"")),
            ("i1->i", Err("dims are letters, found `1`")),
            ("ii->i", Err("a tensor has each letter once, found `i` twice")),
            ("i->ij", Err("no operand has `j`, a dim of the result")),
            ("abcdefghi->a", Err("a tensor has at most 8 dims, found 9")),
        ] {
            let found = IndexNotation::parse(text).map(|it| it.to_string());
            assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn shapes_are_checked_by_letters() {
        let notation = IndexNotation::parse("bk,jk->bj").unwrap();
        let check = |shapes: [&[usize]; 2]| notation.check(&shapes).map_err(|(_, it)| it);
        assert_eq!(check([&[2, 3], &[5, 3]]), Ok(()));
        assert_eq!(check([&[2, 3], &[5, 4]]), Err("`k` is 3 above, but 4 here".to_owned()));
        assert_eq!(check([&[2, 3], &[5]]), Err("\"jk\" has 2 dims, found 1".to_owned()));
        assert_eq!(notation.letters(), ['b', 'k', 'j']);
        assert_eq!(notation.extent('j', &[&[2, 3], &[5, 3]]), 5);
    }
}
