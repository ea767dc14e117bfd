//! Texts of files and names in messages: on one line, without characters that a terminal obeys, and
//! of a length that can be read.

use std::fmt::{Display, Write};

/// The most characters of a word; most paths are shorter.
const MAX_WORD: usize = 512;

/// The characters that are shown of the start and of the end of a longer word.
const SHOWN_OF_WORD: (usize, usize) = (160, 64);

/// The most bytes of a text.
const MAX_BYTES: usize = 8192;

/// The bytes that are shown of the start and of the end of a longer text.
const SHOWN_BYTES: (usize, usize) = (6144, 1024);

/// Returns a text as it is shown in a message. Control characters and those that reorder text are
/// escaped. Of long words and long texts, the start and the end are shown.
///
/// ```
/// let shown = soybean_plan::printable("`\u{1b}[31mred`, `two\nlines`");
/// assert_eq!(shown, "`\\u{1b}[31mred`, `two\\nlines`");
/// ```
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(MAX_BYTES));
    if text.len() > MAX_BYTES {
        let (start, end) = SHOWN_BYTES;
        let (start, end) = (text.floor_char_boundary(start), text.len() - end);
        let end = text.ceil_char_boundary(end);
        push(&mut shown, &text[..start]);
        let _infallible = write!(shown, " … {} bytes … ", end - start);
        push(&mut shown, &text[end..]);
    } else {
        push(&mut shown, text);
    }
    shown
}

/// The most items of a list.
const MAX_ITEMS: usize = 20;

/// Joins the first items of a list, and counts the others.
///
/// ```
/// assert_eq!(soybean_plan::listed(["a", "b"], ", "), "a, b");
/// assert!(soybean_plan::listed(0..400_000, "; ").ends_with("18; 19; and 399980 others"));
/// ```
pub fn listed<T: Display>(items: impl IntoIterator<Item = T>, separator: &str) -> String {
    let mut items = items.into_iter();
    let mut shown: Vec<String> = items.by_ref().take(MAX_ITEMS).map(|it| it.to_string()).collect();
    match items.count() {
        0 => {}
        1 => shown.push("and another".to_owned()),
        n => shown.push(format!("and {n} others")),
    }
    shown.join(separator)
}

/// Appends the words of a text.
fn push(shown: &mut String, text: &str) {
    for word in text.split_inclusive(' ') {
        let n_characters = word.chars().count();
        if n_characters <= MAX_WORD {
            word.chars().for_each(|it| push_character(shown, it));
            continue;
        }
        let (start, end) = SHOWN_OF_WORD;
        word.chars().take(start).for_each(|it| push_character(shown, it));
        let _infallible = write!(shown, "…{} characters…", n_characters - start - end);
        word.chars().skip(n_characters - end).for_each(|it| push_character(shown, it));
    }
}

fn push_character(shown: &mut String, character: char) {
    if character.is_control() || reorders(character) {
        shown.extend(character.escape_default());
    } else {
        shown.push(character);
    }
}

/// Returns true for characters that change the direction of text, break lines or are invisible.
const fn reorders(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::printable;

    // Guards: escape sequences of file contents that reach a terminal.
    #[test]
    fn no_character_is_left_that_a_terminal_obeys() {
        let hostile: String = (0..0x3000).filter_map(char::from_u32).collect();
        for text in [hostile.as_str(), "\u{1b}]0;title\u{7}", "\u{9b}2J", "a\rb", "\u{202e}txt.exe"]
        {
            let shown = printable(text);
            assert!(!shown.chars().any(char::is_control), "{shown}");
            assert!(!shown.contains(['\u{202e}', '\u{2066}', '\u{2028}']), "{shown}");
            assert_eq!(printable(&shown), shown, "what is escaped stays");
        }
        for text in ["", "plain", "ä 日本語 👩\u{200d}💻", "C:\\folder\\x"] {
            assert_eq!(printable(text), text);
        }
    }

    // Guards: a message of 20 MB for a name of 20 MB.
    #[test]
    fn long_names_and_lists_are_shortened() {
        let name = "n".repeat(20_000_000);
        let shown = printable(&format!("`{name}`: expected shape [2]"));
        assert!(shown.len() < 8192 && shown.ends_with("expected shape [2]"), "{}", shown.len());
        let names: Vec<String> = (0..400_000).map(|it| format!("`layers.{it}`")).collect();
        let shown = printable(&format!("w.safetensors: unused {}", names.join(", ")));
        assert!(shown.len() < 8192 && shown.starts_with("w.safetensors: unused `layers.0`, "));
        assert!(shown.ends_with("`layers.399999`"), "{shown}");
        let shown = printable(&"é".repeat(513));
        assert_eq!(shown, "é".repeat(160) + "…289 characters…" + &"é".repeat(64));
        assert_eq!(printable(&"é".repeat(512)), "é".repeat(512));
    }
}
