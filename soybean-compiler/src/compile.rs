//! The pipeline: from a built graph to a program and its report.
#![expect(unsafe_code, reason = "the compiler vouches for its programs")]

use soybean_plan::{Executable, Precision};

use crate::{
    bucket::bucket,
    builder::Builder,
    channels_last::channels_last,
    check,
    diagnostic::ModelDiagnostic,
    differentiate::differentiate,
    fuse::fuse,
    idle_gpus::choose_gpus,
    lower::lower,
    memory::plan_memory,
    model::Model,
    network::Network,
    optimizer::Optimizer,
    options::Options,
    order::order,
    overlap::overlap,
    pass::{Observer, Passes},
    program::lean_if_over,
    report::Report,
    simplify::simplify,
    size_limits,
    unplaced::Order,
    updates::add_updates,
    use_hash::{use_hashes, with_use_hashes},
    value::Value,
};

/// A compiled model.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The program that every rank runs.
    pub program: Executable,
    /// The report about the plan.
    pub report: Report,
}

/// Compiles a model for a number of GPUs, in the mode of its builder. `now` returns the time in
/// milliseconds, from any origin.
///
/// # Errors
/// Returns all faults of the model as a whole:
/// - a loss that is not a scalar, or parameters that do not reach it; in inference, a loss, or
///   parameters that reach no output;
/// - a number of GPUs that is not from 1 to [`MAX_GPUS`](crate::MAX_GPUS), or over which nothing
///   can be split;
/// - a cluster that has no place for that number;
/// - tensors that are too large together for the bytes of a step to be counted;
/// - pins that do not fit the mesh;
/// - two parameters, buffers or states of one name in an entry;
/// - patterns of names of parameters that match none;
/// - a memory limit that no plan found keeps.
pub fn compile(
    builder: Builder,
    loss: impl Into<Option<Value>>,
    outputs: &[(String, Value)],
    options: &Options,
    now: &dyn Fn() -> f64,
) -> Result<Compiled, Vec<ModelDiagnostic>> {
    let model = Model { builder, loss: loss.into(), outputs };
    compile_observed(model, options, now, &mut |_, _| {})
}

/// Compiles a model as [`compile`] does, and shows the result of each pass to an observer.
///
/// # Errors
/// As [`compile`].
pub fn compile_observed(
    model: Model<'_>,
    options: &Options,
    now: &dyn Fn() -> f64,
    observer: Observer<'_>,
) -> Result<Compiled, Vec<ModelDiagnostic>> {
    let Options { name, search: request, optimizer, .. } = options;
    let mesh = check::mesh(options).map_err(|fault| vec![fault])?;
    check::model(&model.builder, &mesh, optimizer)?;
    let largest = size_limits::largest_source(&model.builder);
    let mut passes = Passes { observer };

    let network = Network::from_model(model)?;
    let use_hashes = use_hashes(&network);
    let network = passes.after("differentiate", differentiate(network, optimizer)?);
    let network = passes.after("add-updates", add_updates(network, optimizer));
    let network = passes.after("simplify", simplify(&network));
    let network = passes.after("fuse", fuse(&network, options.precision));
    let network = passes.after("channels-last", channels_last(network, options.precision));
    let network = Network { keeps_images_whole: request.keeps_images_whole, ..network };
    size_limits::check_network(&network, &mesh, largest).map_err(|fault| vec![fault])?;
    let start = now();
    let (chosen, slower) = choose_gpus(&network, mesh, options).map_err(|it| vec![it])?;
    let milliseconds = now() - start;
    passes.after("pad", chosen.padded);
    passes.after("sparse-updates", chosen.sparse);
    passes.after("round", chosen.rounded);
    passes.after("replicate", chosen.replicated);
    let plan = passes.after("search", chosen.plan);
    let tasks = passes.after("order", order(&plan.tiled.network));
    let lowered = passes.after("lower", lower(name, &plan.tiled, &tasks, Order::Overlapped));
    let overlapped = passes.after("overlap", overlap(lowered, plan.topology.as_ref()));
    let bucketed = passes.after("bucket", bucket(overlapped));
    let placed = passes.after("plan-memory", plan_memory(bucketed));

    let topology = plan.topology.as_ref();
    let placed = lean_if_over(placed, name, &plan.tiled, topology, request.memory);
    let report = Report::new(plan, &placed, request, milliseconds, (chosen.facts, slower));
    // SAFETY: lowering takes extents, strides and buffers from one graph, whose sizes were checked,
    // and the memory plan gives buffers that live at the same time memory of their own.
    let program = unsafe { Executable::new(with_use_hashes(placed.program, &use_hashes)) };
    Ok(Compiled { program, report })
}

/// Returns a training step before simplification: the passes `differentiate` and `add-updates`
/// alone.
///
/// # Errors
/// Returns the faults of the loss, the outputs and the parameters, as [`compile`] does.
pub fn training_step(
    builder: Builder,
    loss: impl Into<Option<Value>>,
    outputs: &[(String, Value)],
    optimizer: &Optimizer,
) -> Result<Network, Vec<ModelDiagnostic>> {
    let network = Network::from_model(Model { builder, loss: loss.into(), outputs })?;
    Ok(add_updates(differentiate(network, optimizer)?, optimizer))
}

/// Returns the network that is replicated and searched in `f32`: the passes up to `fuse`.
///
/// # Errors
/// Returns the faults of the loss, the outputs and the parameters, as [`compile`] does.
pub fn build_network(
    builder: Builder,
    loss: impl Into<Option<Value>>,
    outputs: &[(String, Value)],
    optimizer: &Optimizer,
) -> Result<Network, Vec<ModelDiagnostic>> {
    let network = training_step(builder, loss, outputs, optimizer)?;
    Ok(fuse(&simplify(&network), Precision::F32))
}
