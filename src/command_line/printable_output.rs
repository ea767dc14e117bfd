//! The output of a command, without the control characters of names and texts that it shows.

use std::{
    borrow::Cow,
    io::{self, Write},
};

/// A writer of lines and tabs, in which other control characters are escaped: a terminal would obey
/// them. No format that a command writes has any.
pub(super) struct PrintableOutput<W>(pub(super) W);

impl<W: Write> Write for PrintableOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(without_controls(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Returns a text of lines with escapes for control characters.
pub(super) fn without_controls(text: &str) -> Cow<'_, str> {
    let is_obeyed = |it: char| it.is_control() && it != '\n' && it != '\t';
    if !text.contains(is_obeyed) {
        return text.into();
    }
    let mut shown = String::new();
    for character in text.chars() {
        match is_obeyed(character) {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Guards: names and generated texts that control a terminal.
    #[test]
    fn lines_and_tabs_are_left_and_other_controls_escaped() {
        let mut output = PrintableOutput(Vec::new());
        writeln!(output, "epoch\t\u{1b}]0;x\u{7}\u{9b}2J\r\u{7f}ä").unwrap();
        let found = String::from_utf8(output.0).unwrap();
        assert_eq!(found, "epoch\t\\u{1b}]0;x\\u{7}\\u{9b}2J\\r\\u{7f}ä\n");
    }
}
