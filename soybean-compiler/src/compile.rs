//! The whole line, from a built graph to a program and its report.

use soybean_plan::{Mesh, Precision, Program};

use crate::{
    builder::Builder,
    fault::{At, ModelFault},
    graph::Value,
    lower::lower,
    network::Network,
    optimizer::Optimizer,
    pin,
    report::Report,
    tiling::{Request, Tiled, search},
};

/// What is asked of the compiler besides the model itself.
#[derive(Clone, Debug)]
pub struct Options {
    /// The model's name.
    pub name: String,
    /// The number of ranks.
    pub n_gpus: usize,
    /// What is asked of the search.
    pub search: Request,
    /// With which numbers products are computed.
    pub precision: Precision,
    /// How parameters are updated.
    pub optimizer: Optimizer,
}

/// A compiled model.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// What every rank does.
    pub program: Program,
    /// What is known of the plan.
    pub report: Report,
}

/// The most axes of a mesh for which all tilings of a tensor are enumerated.
const MAX_AXES: usize = 4;

/// Compiles a model for a number of GPUs. `now` gives the time in milliseconds, from any origin.
///
/// # Errors
/// All faults of the model as a whole: a loss that is not a scalar, parameters that do not reach it, a number of GPUs over which nothing can be split, pins that do not
/// fit the mesh.
pub fn compile(
    builder: Builder,
    loss: Value,
    outputs: &[(String, Value)],
    options: &Options,
    now: &dyn Fn() -> f64,
) -> Result<Compiled, Vec<ModelFault>> {
    check_n_gpus(options.n_gpus).map_err(|fault| vec![fault])?;
    let mesh = Mesh::new(options.n_gpus);
    let faults = pin::faults(builder.graph(), &mesh);
    if !faults.is_empty() {
        return Err(faults);
    }
    let network = Network::new(builder, loss, outputs, &options.optimizer)?;
    let network = network.in_precision(options.precision);
    let start = now();
    let found = search(&network, mesh, &options.search);
    let milliseconds = now() - start;
    let most = most_ranks_at_work(&found.tiled);
    if most < options.n_gpus {
        return Err(vec![too_many_gpus(options.n_gpus, most)]);
    }
    let program = lower(&options.name, &found.tiled);
    let report = Report::new(found, &program, options.search.strategy, milliseconds);
    Ok(Compiled { program, report })
}

fn check_n_gpus(n_gpus: usize) -> Result<(), ModelFault> {
    let fault = |message: String| Err(ModelFault { at: At::Gpus, message, help: None });
    if n_gpus == 0 || n_gpus > 1 << 12 {
        return fault(format!("`gpus` must lie between 1 and 4096, found {n_gpus}"));
    }
    let n_axes = Mesh::new(n_gpus).n_axes();
    if n_axes > MAX_AXES {
        return fault(format!(
            "`gpus = {n_gpus}` has {n_axes} prime factors; the search handles at most {MAX_AXES}, as 16 has"
        ));
    }
    Ok(())
}

/// The most ranks over which the work of any operator is split.
fn most_ranks_at_work(tiled: &Tiled) -> usize {
    let ranks = |form: &crate::signature::Form| {
        let axes = (0..form.0.len()).filter(|&axis| form.0[axis].is_some()).collect();
        tiled.mesh.group_size(axes)
    };
    tiled.forms.iter().flatten().map(ranks).max().unwrap_or(1)
}

fn too_many_gpus(n_gpus: usize, most: usize) -> ModelFault {
    let message =
        format!("no operator of this model can be split over {n_gpus} GPUs; the most is {most}");
    let help =
        format!("use `gpus = {most}`, or make the batch or a layer's width a multiple of {n_gpus}");
    ModelFault { at: At::Gpus, message, help: Some(help) }
}
