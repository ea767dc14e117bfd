//! Plans that leave GPUs idle, where a step is predicted to be faster without them.
//!
//! GPUs that cannot be spread evenly over nodes communicate at the speed of the links between nodes
//! even where most of them share a node, and a number that a dim is not long enough for wastes
//! their work.

use soybean_plan::{Mesh, Topology};

use crate::{
    check,
    diagnostic::ModelDiagnostic,
    fastest::fastest,
    network::Network,
    options::Options,
    padding::{Chosen, choose_padding},
    tiling::{Objective, SearchRequest, Strategy},
};

/// The plan for all GPUs, which is slower than the chosen one for some of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowerPlan {
    /// The number of GPUs.
    pub(crate) n_gpus: usize,
    /// The predicted time of its step, one kernel or collective after another, in seconds.
    pub(crate) seconds: f64,
    /// That of the chosen plan.
    pub(crate) chosen_seconds: f64,
}

/// Chooses the padding and the plan. If time counts, the numbers of
/// [`Topology::smaller_numbers`] are tried too, and the fastest plan is chosen.
pub(crate) fn choose_gpus(
    fused: &Network,
    mesh: Mesh,
    options: &Options,
) -> Result<(Chosen, Option<SlowerPlan>), ModelDiagnostic> {
    let Options { n_gpus, precision, search: request, .. } = options;
    let on_all = choose_padding(fused, mesh, *precision, request)?;
    let all = seconds(&on_all);
    let numbers = match (request.cluster(*n_gpus), request.objective, request.strategy) {
        (Some(cluster), Objective::Time, Strategy::Auto) => {
            Topology::smaller_numbers(&cluster, *n_gpus)
        }
        _ => Vec::new(),
    };
    let mut best = on_all;
    for number in numbers {
        let Ok(Some(topology)) = request.topology(number) else { continue };
        let fits = check::pins(&fused.graph, &topology.mesh()).is_empty();
        let found = fits.then(|| choose_padding(fused, topology.mesh(), *precision, request));
        if let Some(Ok(found)) = found
            && seconds(&found) < seconds(&best)
        {
            best = found;
        }
    }
    let chosen_seconds = seconds(&best);
    let slower = SlowerPlan { n_gpus: *n_gpus, seconds: all, chosen_seconds };
    let best = fastest_padding(best, request);
    Ok((best, (chosen_seconds < all).then_some(slower)))
}

/// Returns the fastest plan as time passes, with the chosen padding or without any: paddings are
/// compared by the sum of all times, of which collectives beside kernels take a part away.
fn fastest_padding(mut chosen: Chosen, request: &SearchRequest) -> Chosen {
    let as_time_passes = |mut it: Chosen| {
        it.plan = fastest(&it.rounded, it.replicated.as_ref(), request, it.plan);
        it
    };
    let unpadded = chosen.unpadded.take().filter(|_| request.strategy == Strategy::Auto);
    let chosen = as_time_passes(chosen);
    match unpadded.map(|it| as_time_passes(*it)) {
        Some(unpadded) if seconds(&unpadded) < seconds(&chosen) => unpadded,
        Some(_) | None => chosen,
    }
}

/// Returns the predicted time of a plan, if time counts.
fn seconds(chosen: &Chosen) -> f64 {
    chosen.plan.times.map_or(0.0, |it| it.plan)
}
