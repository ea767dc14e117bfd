//! The parallelism of each layer and the largest transfers, as rows of two tables.

use soybean_compiler::{Report, Transfer};

use super::json::{list, string};

/// The largest number of rows of transfers.
const MAX_TRANSFERS: usize = 40;

/// Returns for each layer its name, and the parallelism of its forward work, its gradients and its
/// weights.
pub(super) fn layers(report: &Report) -> String {
    let row = |(name, it): (String, soybean_compiler::Parallelism)| {
        list([name, it.forward, it.backward, it.weights].iter().map(|it| string(it)))
    };
    list(report.parallelism().into_iter().map(row))
}

/// Returns the conversions that move the most bytes.
pub(super) fn transfers(report: &Report) -> String {
    list(report.transfers().iter().take(MAX_TRANSFERS).map(transfer))
}

fn transfer(it: &Transfer) -> String {
    let texts = [
        ("name", &it.name),
        ("from", &it.from.to_string()),
        ("to", &it.to.to_string()),
        ("collectives", &it.collectives),
        ("operator", &it.operator),
        ("place", &it.place),
        ("layer", &it.layer),
        ("pass", &it.pass.to_string()),
    ];
    let texts: Vec<String> =
        texts.iter().map(|(name, text)| format!("\"{name}\":{}", string(text))).collect();
    let (bytes, n, tensor) = (it.bytes, it.n_conversions, it.tensor.index());
    format!("{{\"bytes\":{bytes},\"n\":{n},\"tensor\":{tensor},{}}}", texts.join(","))
}
