//! Writes the min-sum problem of a network's plans for other solvers, and solves it as the search
//! does.
#![expect(clippy::print_stdout, reason = "it prints what it found")]

use std::{env, fs, time::Instant};

use soybean_compiler::{
    SearchRequest, build_network, optimizer, replicate,
    tiling::{min_sum_problem, search_alone},
};
use soybean_plan::Mesh;
use soybean_zoo::ZOO;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [name, n_gpus, path] = &arguments[..] else {
        return println!("usage: min_sum NETWORK GPUS FILE.wcsp");
    };
    let Some(entry) = ZOO.iter().find(|it| it.name == name) else {
        let names: Vec<&str> = ZOO.iter().map(|it| it.name).collect();
        return println!("{name} is unknown; the networks are {}", names.join(", "));
    };
    let mesh = Mesh::new(n_gpus.parse().expect("GPUS is a number"));
    let (model, request) = ((entry.model)(), SearchRequest::default());
    let optimizer = optimizer(entry.optimizer, &[]).expect("an optimizer of the compiler");
    let network = build_network(model.builder, model.loss, &[], &optimizer).expect("no faults");
    let network = replicate(&network);
    let (problem, cost_of_byte) = min_sum_problem(&network, mesh, &request);
    let (text, missing) = problem.to_wcsp(name);
    fs::write(path, text).expect("FILE can be written");
    let n_labels: usize = problem.unary.iter().map(Vec::len).sum();
    println!("{} variables, {n_labels} labels, {} edges", problem.unary.len(), problem.edges.len());
    println!("bytes are (cost + {missing}) / {cost_of_byte}");
    let start = Instant::now();
    let found = search_alone(&network, mesh, &request);
    let (bytes, bound) = (found.tiled.bytes(), found.lower_bound_bytes);
    println!("{bytes} bytes, at least {bound}, in {:.2} s", start.elapsed().as_secs_f64());
}
