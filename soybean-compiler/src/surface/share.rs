//! The call that asks once more for a parameter, buffer or state, which calls of one scope share.
//!
//! Models do not write it. The builder makes it, and recipes contain it.

use super::{Arguments, Row};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
};

/// The name of the call.
pub(crate) const SHARE: &str = "share";

pub(super) const TABLE: &[Row] = &[Row {
    name: SHARE,
    doc: "The parameter, buffer or state itself.",
    arguments: &["input"],
    build: share,
    samples: &[],
}];

fn share(_: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    Ok(Argument::Tensor(arguments.any_tensor(0)?))
}
