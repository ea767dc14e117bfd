//! `plan`: shows what was decided at build time.

use std::io::Write;

use soybean_plan::Plan;

use super::{Failure, flags::Format};

pub(super) fn plan(plan: &Plan, format: Format, output: &mut dyn Write) -> Result<(), Failure> {
    let text = match format {
        Format::Text => plan.text,
        Format::Json => plan.json,
        Format::Dot => plan.dot,
    };
    Ok(writeln!(output, "{}", text.trim_end())?)
}
