//! The command that goes on with the run of this program.

use std::env;

/// This program's own command line, resuming at its newest checkpoint.
pub(super) fn command() -> String {
    let arguments = env::args_os().map(|it| it.to_string_lossy().into_owned());
    resuming(arguments)
}

fn resuming(arguments: impl Iterator<Item = String>) -> String {
    let mut kept = Vec::new();
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        if argument == "--resume" {
            arguments.next();
        } else if !argument.starts_with("--resume=") {
            kept.push(quoted(&argument));
        }
    }
    kept.push("--resume auto".to_owned());
    kept.join(" ")
}

/// An argument as a shell takes it.
fn quoted(argument: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "_-./=:,@%+".contains(it);
    match !argument.is_empty() && argument.chars().all(is_plain) {
        true => argument.to_owned(),
        false => format!("'{}'", argument.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_resumes_in_the_place_of_what_it_did() {
        let resuming = |line: &[&str]| resuming(line.iter().map(|it| (*it).to_owned()));
        assert_eq!(resuming(&["./digits"]), "./digits --resume auto");
        assert_eq!(
            resuming(&[
                "digits",
                "train",
                "--resume",
                "never",
                "--out",
                "a b",
                "--lr=0.1",
                "--resume=x"
            ]),
            "digits train --out 'a b' --lr=0.1 --resume auto"
        );
        assert_eq!(
            resuming(&["d", "--map", "it's = ours"]),
            r"d --map 'it'\''s = ours' --resume auto"
        );
    }
}
