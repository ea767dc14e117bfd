//! The parallelism of each layer and the largest transfers, as rows of two tables.

use soybean_compiler::{Parallelism, Report, Transfer, rows::rows};

use super::json::{list, string};

/// The largest number of rows of transfers.
const MAX_TRANSFERS: usize = 40;

/// Returns for each layer its name, and the parallelism of its forward work, its gradients and its
/// weights. Layers that repeat have one row.
pub(super) fn layers(report: &Report) -> String {
    let row = |name: String, it: &Parallelism| {
        let name = if name.is_empty() { "the model itself".to_owned() } else { name };
        [name, it.forward.clone(), it.backward.clone(), it.weights.clone()]
    };
    let rows = rows(["layer", "forward", "gradients", "weights"], report.parallelism(), row);
    list(rows.into_iter().skip(1).map(|it| list(it.iter().map(|it| string(it)))))
}

/// Returns the conversions that move the most bytes.
pub(super) fn transfers(report: &Report, representatives: &[usize]) -> String {
    let transfer = |it: &Transfer| transfer(it, representatives[it.tensor.index()]);
    list(report.transfers().iter().take(MAX_TRANSFERS).map(transfer))
}

fn transfer(it: &Transfer, drawn: usize) -> String {
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
    let (bytes, n) = (it.bytes, it.n_conversions);
    format!("{{\"bytes\":{bytes},\"n\":{n},\"tensor\":{drawn},{}}}", texts.join(","))
}
