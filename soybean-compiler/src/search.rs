//! The pass `search`: the best plan of a network, with replicas if they are of use, within the
//! memory of each rank.

use soybean_plan::Mesh;

use crate::{
    additions::without_idle_additions,
    check::{MAX_GPUS, most_ranks_at_work, ranks_at_work, too_many_gpus},
    diagnostic::ModelDiagnostic,
    fastest::fastest,
    limit::{self, OutOfMemory},
    network::Network,
    peak::Peak,
    replicate::{replicate, without_idle_replicas},
    tiling::{self, SearchRequest, SearchResult, Strategy, search_alone},
};

/// The function that searches a tiling without a memory limit.
type SearchTiling = fn(&Network, Mesh, &SearchRequest) -> SearchResult;

/// A plan that was not found: the leanest one needs more memory than there is.
struct OverLimit {
    /// The bytes of memory of each rank.
    memory: u64,
    /// The largest number of ranks at work in the best of all plans.
    most_at_work: usize,
    /// The contents of memory in the leanest plan found.
    peak: Peak,
}

/// Searches the best plan of a network that fits into the memory of each rank. The network with
/// replicas is searched first, if there is one.
pub(crate) fn search(
    network: &Network,
    replicated: Option<&Network>,
    mesh: Mesh,
    request: &SearchRequest,
) -> Result<SearchResult, ModelDiagnostic> {
    let found = search_with(tiling::search, network, replicated, mesh, request);
    let found = found.map_err(|it| shortage(network, mesh, request.strategy, &it))?;
    ranks_at_work(&found.tiled)?;
    Ok(found)
}

/// Returns the plan that [`compile`](crate::compile) lowers; `None` if no plan fits into the memory
/// that the request names.
///
/// # Panics
/// Where [`tiling::search`] does.
#[must_use]
pub fn best_plan(network: &Network, mesh: Mesh, request: &SearchRequest) -> Option<SearchResult> {
    let replicated = request.shares.then(|| replicate(network));
    let found = search_with(search_alone, network, replicated.as_ref(), mesh, request).ok()?;
    Some(fastest(network, replicated.as_ref(), request, found))
}

fn search_with(
    search: SearchTiling,
    network: &Network,
    replicated: Option<&Network>,
    mesh: Mesh,
    request: &SearchRequest,
) -> Result<SearchResult, OverLimit> {
    if let Some(replicated) = replicated {
        let found = search_replicated(search, replicated, mesh, request);
        if let Ok(found) = found {
            return Ok(found);
        }
    }
    let found = search(network, mesh, request);
    let Some(memory) = request.memory else { return Ok(without_additions(found)) };
    let most_at_work = most_ranks_at_work(&found.tiled);
    let fitting = match request.strategy {
        Strategy::Auto => limit::fitting(network, found, memory, request.effort),
        Strategy::Recursive | Strategy::Data | Strategy::Model => limit::checked(found, memory),
    };
    let fitting = fitting.and_then(|it| checked_without_additions(it, memory));
    fitting.map_err(|peak| OverLimit { memory, most_at_work, peak })
}

fn without_additions(found: SearchResult) -> SearchResult {
    SearchResult { tiled: without_idle_additions(&found.tiled), ..found }
}

/// Returns a plan that fits, without idle additions if it fits so. Terms live longer than their
/// sum, which may take memory.
fn checked_without_additions(found: SearchResult, memory: u64) -> Result<SearchResult, Peak> {
    limit::checked(without_additions(found.clone()), memory)
        .or_else(|_| limit::checked(found, memory))
}

/// Searches a plan of a network with replicas.
fn search_replicated(
    search: SearchTiling,
    replicated: &Network,
    mesh: Mesh,
    request: &SearchRequest,
) -> Result<SearchResult, Peak> {
    let settled =
        |found: SearchResult| SearchResult { tiled: without_idle_replicas(&found.tiled), ..found };
    let found = search(replicated, mesh, request);
    match request.memory {
        None => Ok(without_additions(settled(found))),
        // Replicas live from their first reader to their last, which costs memory; under a limit,
        // only pinned tensors gain by them. Strategies other than `auto` have one plan, which fits
        // or does not.
        Some(memory) if replicated.pins().is_empty() || request.strategy != Strategy::Auto => {
            checked_without_additions(settled(found), memory)
        }
        Some(memory) => limit::fitting(replicated, found, memory, request.effort)
            .and_then(|found| checked_without_additions(settled(found), memory)),
    }
}

fn shortage(
    network: &Network,
    mesh: Mesh,
    strategy: Strategy,
    over: &OverLimit,
) -> ModelDiagnostic {
    let &OverLimit { memory, most_at_work, ref peak } = over;
    match most_at_work < mesh.n_ranks() {
        true => too_many_gpus(mesh.n_ranks(), most_at_work),
        false => OutOfMemory { network, mesh, memory, strategy, peak }.fault(MAX_GPUS),
    }
}
