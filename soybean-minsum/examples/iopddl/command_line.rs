//! The frame of the command lines of examples.

use std::process::ExitCode;

/// Runs a program with its arguments, prints its help if they ask for it, and its error.
pub(crate) fn command_line(
    help: &str,
    run: impl FnOnce(Vec<String>) -> Result<(), String>,
) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|it| it == "--help") {
        print!("{help}");
        return ExitCode::SUCCESS;
    }
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
