//! Traces of single steps, with the names of layers. If the model's cluster is known, the predicted
//! step stands beside the measured one.

use std::{fs, path::Path};

use soybean_explain::{Changes, Compiled, compile_again};
use soybean_plan::{Cluster, Lane, Plan};
use soybean_runtime::{Error, ErrorKind, Process, Trace, TraceEvent};
use soybean_simulator::{Settings, Span, simulate};

/// Writes a trace into a file, in the first process.
pub(crate) fn write(
    trace: &Trace,
    plan: &Plan,
    process: Process,
    file: &Path,
) -> Result<(), Error> {
    if !process.is_first() {
        return Ok(());
    }
    let mut trace = trace.clone();
    let explained = explain(&mut trace, plan);
    fs::write(file, trace.to_json()).map_err(|error| {
        let file = file.display();
        Error::new(ErrorKind::Output, format!("cannot write the trace into {file}: {error}"))
    })?;
    explained.map_err(|it| Error::new(ErrorKind::Program, format!("the trace's layers: {it}")))
}

/// Names the layers, and adds the predicted step. The program itself does not know layers, so the
/// model is compiled again, with the same result as in the build.
fn explain(trace: &mut Trace, plan: &Plan) -> Result<(), String> {
    let recipe = Changes::default().apply(plan.recipe)?;
    let compiled = compile_again(&recipe)?;
    let names = compiled.report.names_of_buffers();
    trace.name_buffers(&names);
    match &recipe.options.search.cluster {
        Some(cluster) => predict(trace, &compiled, cluster, &names),
        None => Ok(()),
    }
}

fn predict(
    trace: &mut Trace,
    compiled: &Compiled,
    cluster: &Cluster,
    names: &[String],
) -> Result<(), String> {
    let simulation = simulate(&compiled.program, cluster, &Settings::default())
        .map_err(|error| error.to_string())?;
    for (rank, spans) in simulation.spans.iter().enumerate() {
        let event = |Span { name, buffer, lane, start, end }: &Span| {
            let layer = buffer.and_then(|it| names.get(it)).filter(|it| !it.is_empty());
            TraceEvent {
                name: layer.map_or_else(|| name.clone(), |layer| format!("{layer}, {name}")),
                row: row(*lane),
                start: start * 1e6,
                duration: (end - start) * 1e6,
            }
        };
        trace.add(rank, spans.iter().map(event));
    }
    Ok(())
}

/// Returns the row of a lane's predicted work.
const fn row(lane: Lane) -> &'static str {
    match lane {
        Lane::Compute => "predicted compute",
        Lane::Communication => "predicted communication",
    }
}
