//! No update: the host reads the gradients, and may compute updates by itself.

use crate::optimizer::method::{GRADIENT, Method, State};

pub(super) static GRADIENTS: Method = Method {
    name: "gradients",
    summary: "gradients without updates: `Trainer::gradients` returns them for a loop of one's own",
    source: "the caller's loop",
    keeps_parameters: true,
    states: |_, _| vec![State::full(GRADIENT)],
    // p = p; g is kept
    update: |_, it| vec![it.parameter, it.gradient],
    ..Method::PLAIN
};
