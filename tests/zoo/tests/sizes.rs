//! The numbers of parameters of large networks, against those that were published.
#![expect(clippy::unwrap_used, reason = "tests")]

use soybean_compiler::graph::Source;
use soybean_zoo::LARGE;

/// Checks the parameters of a network, in millions, to a thousandth. Stable Diffusion has no biases
/// in attention.
fn check(name: &str, expected: f64) {
    let entry = LARGE.iter().find(|it| it.name == name).unwrap();
    let builder = (entry.model)().builder;
    let graph = builder.graph();
    let is_parameter = |it: &_| matches!(graph.node(*it).source, Source::Parameter(_));
    let count = |it| builder.shape(it).iter().product::<usize>();
    let n = graph.values().filter(is_parameter).map(count).sum::<usize>() as f64 / 1e6;
    assert!((n / expected - 1.0).abs() < 1e-3, "{name} has {n} million parameters");
}

#[test]
fn networks_have_the_published_numbers_of_parameters() {
    check("llama3-8b", 8030.3);
    check("llama3-70b", 70_553.7);
    check("mistral-7b", 7241.7);
    check("t5-base", 222.9);
    check("vit-large", 304.3);
    check("clip-base", 149.6);
    check("diffusion-unet", 859.5);
    // Embedding and head, and 4 of 48 blocks.
    check("qwen3-moe", 622.3 + (30_532.1 - 622.3) / 12.0);
}
