//! The command that resumes the run of this program.

use std::{env, path::Path};

use crate::run;

/// Returns this program's command line with `--resume`: `auto` if the checkpoint is in the run's
/// folder.
pub(super) fn command(checkpoint: &Path, out: &Path) -> String {
    let arguments = env::args_os().map(|it| it.to_string_lossy().into_owned());
    resuming(arguments, checkpoint, out)
}

fn resuming(arguments: impl Iterator<Item = String>, checkpoint: &Path, out: &Path) -> String {
    let mut kept = Vec::new();
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        if argument == "--resume" {
            arguments.next();
        } else if !argument.starts_with("--resume=") {
            kept.push(quoted(&argument));
        }
    }
    let folders = [run::checkpoints(out), run::best(out)];
    let place = match checkpoint.parent().is_some_and(|it| folders.iter().any(|own| own == it)) {
        true => "auto".to_owned(),
        false => quoted(&checkpoint.to_string_lossy()),
    };
    kept.push(format!("--resume {place}"));
    kept.join(" ")
}

/// Quotes an argument for a shell.
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
        let from = |line: &[&str], checkpoint: &str| {
            let line = line.iter().map(|it| (*it).to_owned());
            resuming(line, Path::new(checkpoint), Path::new("runs/digits"))
        };
        let resuming = |line: &[&str]| from(line, "runs/digits/checkpoints/step-0000000009");
        assert_eq!(resuming(&["./digits"]), "./digits --resume auto");
        assert_eq!(from(&["d"], "runs/digits/best/step-0000000005"), "d --resume auto");
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
        // A run that resumes from another run's checkpoint, before its first own one.
        assert_eq!(
            from(
                &["d", "--resume", "x", "--out=runs/digits"],
                "an other/checkpoints/step-0000000900"
            ),
            "d --out=runs/digits --resume 'an other/checkpoints/step-0000000900'"
        );
    }
}
