//! Plans for several tests.

use soybean_compiler::{
    Argument, Compiled, Options, Report, SearchRequest, Strategy, compile, optimizer,
};
use soybean_plan::Precision;
use soybean_zoo::{GPT, Model, Transformer, perceptron, vgg16};

/// Compiles a network that is trained with momentum.
pub(crate) fn compiled(name: &str, n_gpus: usize, model: Model) -> Compiled {
    compiled_with(name, n_gpus, model, &[])
}

/// Compiles the same with further settings of updates.
pub(crate) fn compiled_with(
    name: &str,
    n_gpus: usize,
    model: Model,
    further: &[(&str, Argument)],
) -> Compiled {
    let momentum = ("momentum".to_owned(), Argument::Float(0.9));
    let mut optimizer = optimizer("sgd", &[momentum]).unwrap();
    further.iter().for_each(|(setting, value)| optimizer.set(setting, value).unwrap());
    let options = Options {
        name: name.to_owned(),
        n_gpus,
        search: SearchRequest::from(Strategy::Auto),
        precision: Precision::F32,
        optimizer,
    };
    compile(model.builder, model.loss, &[], &options, &|| 0.0).unwrap()
}

/// Returns the plans of a small network, a deep convolutional network, and a transformer.
pub(crate) fn plans() -> [(&'static str, Compiled); 3] {
    [
        ("digits", compiled("digits", 4, perceptron(96, &[64, 128, 10]))),
        ("vgg16", compiled("vgg16", 8, vgg16(64))),
        ("gpt", compiled("gpt", 8, Transformer { n_blocks: 2, ..GPT }.decoder())),
    ]
}

/// Counts the tensors of a plan.
pub(crate) fn n_tensors(report: &Report) -> usize {
    report.search().tiled.network.graph.n_values()
}

/// Counts the operands of all operators of a plan.
pub(crate) fn n_edges(report: &Report) -> usize {
    let graph = &report.search().tiled.network.graph;
    graph.values().map(|it| graph.operands(it).len()).sum()
}
