//! Training steps at the sizes of papers, one line of JSON for each case: `cargo run --release
//! --example gpu_bench -- --model mlp512 --precision bf16 --ranks 1`.
//!
//! `--help` lists the flags; without flags, all cases of full size are measured.
//! `scripts/gpu-check.sh` alternates it with `benches/peers/torch_step.py`, which has the same
//! models.

#[path = "../networks/alexnet.rs"]
mod alexnet;
mod cases;
mod flags;
#[path = "../networks/gpt.rs"]
mod gpt;
mod losses;
mod measure;
#[path = "../networks/vgg16.rs"]
mod vgg16;

use std::{
    env,
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

use flags::Request;

fn main() -> ExitCode {
    match run(&mut io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // If standard error is closed too, the exit code remains.
            let _ = writeln!(io::stderr(), "error: {error} (--help lists all flags)");
            ExitCode::from(2)
        }
    }
}

/// Measures the selected cases; returns true if all succeeded.
fn run(output: &mut dyn Write) -> Result<bool, Box<dyn Error>> {
    let options = match flags::parse(env::args_os().skip(1))? {
        Request::Help(text) => {
            write!(output, "{text}")?;
            return Ok(true);
        }
        Request::Run(options) => options,
    };
    let cases: Vec<_> = cases::all().into_iter().filter(|it| options.wants(it)).collect();
    if cases.is_empty() {
        return Err("no case is as asked for; --list shows all of them".into());
    }
    let mut all_measured = true;
    for case in &cases {
        let line = if options.lists {
            case.description(measure::flops(case)?)
        } else {
            measure::line(case, &options).unwrap_or_else(|error| {
                all_measured = false;
                measure::failure(case, &*error)
            })
        };
        writeln!(output, "{line}")?;
        output.flush()?;
    }
    Ok(all_measured)
}
