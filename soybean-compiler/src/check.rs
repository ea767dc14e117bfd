//! Checks of a model as a whole, before its passes.

use std::collections::BTreeSet;

use soybean_plan::{MAX_TRAINED_ENTRIES, Mesh, Mode, Pattern, Topology, TopologyError};

use crate::{
    builder::Builder,
    diagnostic::{ModelDiagnostic, ModelPart},
    graph::Graph,
    optimizer::Optimizer,
    options::Options,
    tiling::{TiledNetwork, is_max_work},
    value::Value,
};

/// The most ranks.
pub const MAX_GPUS: usize = 1 << 12;

/// Returns the mesh of the ranks.
///
/// # Errors
/// Returns a fault if the number of ranks is out of range, or the cluster has no place for them.
pub(crate) fn mesh(options: &Options) -> Result<Mesh, ModelDiagnostic> {
    let n_gpus = options.n_gpus;
    if n_gpus == 0 || n_gpus > MAX_GPUS {
        let message = format!("`gpus` must lie between 1 and {MAX_GPUS}, found {n_gpus}");
        return Err(ModelDiagnostic { at: ModelPart::Gpus, message, help: None });
    }
    let max_work = options.search.max_work;
    if !is_max_work(max_work) {
        let message = format!("`max_work` must be a number from 1, found {max_work}");
        return Err(ModelDiagnostic { at: ModelPart::Gpus, message, help: None });
    }
    let topology = topology(options)?;
    Ok(topology.as_ref().map_or_else(|| Mesh::new(n_gpus), Topology::mesh))
}

/// Returns the positions of the ranks on the cluster, if there is one.
fn topology(options: &Options) -> Result<Option<Topology>, ModelDiagnostic> {
    let fault = |error: TopologyError| ModelDiagnostic {
        at: ModelPart::Gpus,
        message: error.to_string(),
        help: Some(format!("use `gpus = {}`, or another cluster", error.fitting())),
    };
    options.search.topology(options.n_gpus).map_err(fault)
}

/// Checks a model's pins against the mesh, the names of its tensors, and its optimizer's patterns
/// against its parameters.
pub(crate) fn model(
    builder: &Builder,
    mesh: &Mesh,
    optimizer: &Optimizer,
) -> Result<(), Vec<ModelDiagnostic>> {
    let mut faults = pins(builder.graph(), mesh);
    faults.extend(repeated_names(builder));
    faults.extend(optimizer.faults(builder.graph()));
    faults.extend(entries(builder, optimizer));
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Returns a fault for each parameter, buffer or state with the name of an earlier one in the same
/// entry: states of optimizers, checkpoints and files of weights find them by their names.
fn repeated_names(builder: &Builder) -> Vec<ModelDiagnostic> {
    let graph = builder.graph();
    let entry_of =
        |it: Value| builder.entries.partition_point(|start| start.first_value <= it.index());
    let mut seen = BTreeSet::new();
    let fault = |value: Value| {
        let node = graph.node(value);
        let is_new = !node.source.is_kept() || seen.insert((entry_of(value), node.name.as_str()));
        let message = format!("the name `{}` stands for two tensors", node.name);
        let help = Some("give one of them another name".to_owned());
        (!is_new).then_some(ModelDiagnostic { at: ModelPart::Value(value), message, help })
    };
    graph.values().filter_map(fault).collect()
}

/// Returns the faults of the entries of a trained model: patterns that match no parameter, and
/// settings that need a single entry.
fn entries(builder: &Builder, optimizer: &Optimizer) -> Vec<ModelDiagnostic> {
    let graph = builder.graph();
    let mut faults = Vec::new();
    for (number, entry) in builder.entries.iter().enumerate() {
        let names: Vec<&str> = graph.parameters().map(|it| graph.node(it).name.as_str()).collect();
        for pattern in &entry.freeze {
            let matches = Pattern::new(pattern);
            if !names.iter().any(|it| matches.is_match(it)) {
                let message = format!("`freeze`: no parameter has a name like `{pattern}`");
                faults.push(ModelDiagnostic { at: ModelPart::Entry(number), message, help: None });
            }
        }
    }
    if builder.mode() == Mode::Inference || builder.entries.len() < 2 {
        return faults;
    }
    if builder.entries.len() > MAX_TRAINED_ENTRIES {
        let found = builder.entries.len();
        let message = format!(
            "a model that is trained has at most {MAX_TRAINED_ENTRIES} entries, found {found}"
        );
        faults.push(ModelDiagnostic {
            at: ModelPart::Entry(MAX_TRAINED_ENTRIES),
            message,
            help: None,
        });
    }
    let settings = [
        ("accumulate", optimizer.accumulate > 1),
        ("ema", optimizer.ema.is_some()),
        ("input_gradients", !optimizer.input_gradients.is_empty()),
    ];
    faults.extend(settings.into_iter().filter(|it| it.1).map(|(name, _)| ModelDiagnostic {
        at: ModelPart::Setting(name),
        message: format!("a model with several entries cannot be trained with `{name}`"),
        help: Some("remove it, or train the entries as models of their own".to_owned()),
    }));
    faults
}

/// Returns a fault for each pin of a graph that does not fit a mesh.
pub(crate) fn pins(graph: &Graph, mesh: &Mesh) -> Vec<ModelDiagnostic> {
    let fault = |value: Value| {
        let node = graph.node(value);
        let (message, help) = node.pinned?.fault_on(mesh, &node.shape)?;
        Some(ModelDiagnostic { at: ModelPart::Pin(value), message, help: Some(help) })
    };
    graph.values().filter_map(fault).collect()
}

/// Checks that a model has losses or outputs, as its mode requires.
pub(crate) fn results(
    builder: &Builder,
    loss: Option<Value>,
    outputs: &[(String, Value)],
) -> Result<(), Vec<ModelDiagnostic>> {
    let losses: Vec<Option<Value>> = match &builder.entries[..] {
        [] => vec![loss],
        entries => entries.iter().map(|it| it.loss).collect(),
    };
    let has_all = losses.iter().all(Option::is_some);
    let has_none = losses.iter().all(Option::is_none);
    let message = match builder.mode() {
        Mode::Training if has_all => return Ok(()),
        Mode::Training => "a model that is trained must have a loss, found none",
        Mode::Inference if !has_none => "a model of mode inference has no loss, found one",
        Mode::Inference if !outputs.is_empty() => return Ok(()),
        Mode::Inference => "a model of mode inference must have an output, found none",
    };
    Err(vec![ModelDiagnostic { at: ModelPart::Loss, message: message.to_owned(), help: None }])
}

/// Checks that the work of some operator is split over all ranks.
pub(crate) fn ranks_at_work(tiled: &TiledNetwork) -> Result<(), ModelDiagnostic> {
    let n_ranks = tiled.mesh.n_ranks();
    let most = most_ranks_at_work(tiled);
    if most < n_ranks { Err(too_many_gpus(n_ranks, most)) } else { Ok(()) }
}

/// Returns the largest number of ranks over which the work of any operator is split.
pub(crate) fn most_ranks_at_work(tiled: &TiledNetwork) -> usize {
    tiled.forms.iter().flatten().map(|it| tiled.ranks_at_work(it)).max().unwrap_or(1)
}

/// Returns the fault of a model that cannot be split over so many ranks.
pub(crate) fn too_many_gpus(n_gpus: usize, most: usize) -> ModelDiagnostic {
    let message =
        format!("no operator of this model can be split over {n_gpus} GPUs; the most is {most}");
    let help =
        format!("use `gpus = {most}`, or make the batch or a layer's width a multiple of {n_gpus}");
    ModelDiagnostic { at: ModelPart::Gpus, message, help: Some(help) }
}
