//! Why a tensor lies as it does: what every other tiling of it would cost, everything else searched anew.

use std::{
    num::NonZero,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use soybean_compiler::{
    Network, Objective, Report, Request, Strategy, graph::Value, readable_bytes, readable_seconds,
    rows::aligned, tiling::search_alone,
};
use soybean_plan::{Mesh, Placement, Tiling};

use crate::near::nearest;

/// The most names that are offered in place of an unknown one.
const MAX_NAMES: usize = 5;

/// The plans with one tensor in each of its tilings, those that move fewest bytes first.
#[derive(Clone, Debug)]
pub struct Why {
    /// The tensor.
    pub tensor: Value,
    /// What the user calls it.
    pub name: String,
    /// The tilings; of those that differ by an exchange of axes of one size, one.
    pub choices: Vec<Choice>,
}

/// What a tiling of a tensor costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The tiling.
    pub tiling: Tiling,
    /// The bytes that the best plan found moves in a training step.
    pub bytes: u64,
    /// A number of bytes below which no plan with this tiling comes; 0 where bytes are not what was minimised.
    pub lower_bound_bytes: u64,
    /// The time of the best plan found and one below which none comes, in seconds, where that was minimised.
    pub seconds: Option<(f64, f64)>,
    /// Whether no plan with this tiling is better.
    pub is_optimal: bool,
    /// Whether the plan has this tiling.
    pub is_chosen: bool,
}

impl Choice {
    /// What was minimised.
    fn cost(&self) -> f64 {
        self.seconds.map_or(self.bytes as f64, |it| it.0)
    }
}

/// Tries every tiling of the tensor with this name. `request` is what was asked of the plan's search; a limit of its memory is not kept.
///
/// # Errors
/// If there is no such tensor, or it is not stored.
pub fn why(report: &Report, request: &Request, name: &str) -> Result<Why, String> {
    let tiled = &report.search().tiled;
    let tensor = find(report, name)?;
    let chosen = tiled.tilings[tensor.index()];
    let network = &tiled.network;
    let sizes: Vec<usize> = tiled.mesh.sizes().collect();
    // Axes of one size can be exchanged in a plan as a whole, which changes no byte.
    let has_symmetry =
        network.pins().iter().all(|&it| it == tensor) && request.objective == Objective::Bytes;
    let mut tilings = tilings(&tiled.mesh, network.graph.shape(tensor).len(), has_symmetry);
    tilings.retain(|it| match has_symmetry {
        true => sorted(&tiled.mesh, it) != sorted(&tiled.mesh, &chosen),
        false => *it != chosen,
    });
    tilings.push(chosen);
    let pinned: Vec<(Tiling, Network)> =
        tilings.iter().filter_map(|it| stored_so(network, tensor, *it, &tiled.mesh)).collect();
    let request = Request { strategy: Strategy::Auto, ..request.clone() };
    let mut choices = in_parallel(&pinned, |(tiling, network)| {
        let shared = if request.shares { &network.shared() } else { network };
        let found = search_alone(shared, Mesh::of(&sizes), &request);
        Choice {
            tiling: *tiling,
            bytes: found.tiled.bytes(),
            lower_bound_bytes: found.lower_bound_bytes,
            seconds: found.times.map(|it| (it.plan, it.lower_bound)),
            is_optimal: found.is_optimal,
            is_chosen: *tiling == chosen,
        }
    });
    choices.sort_by(|a, b| {
        let order = a.cost().total_cmp(&b.cost()).then(b.is_chosen.cmp(&a.is_chosen));
        order.then(a.tiling.cmp(&b.tiling))
    });
    Ok(Why { tensor, name: name.to_owned(), choices })
}

/// The network with the tensor in this tiling, or in one that differs by an exchange of axes where only that is legal: not any two axes can split a dim of few factors.
fn stored_so(
    network: &Network,
    tensor: Value,
    tiling: Tiling,
    mesh: &Mesh,
) -> Option<(Tiling, Network)> {
    let legal = |it: Tiling| Some((it, network.clone().pinned(tensor, it, mesh).ok()?));
    let rotated = |n: usize| {
        let mut placements = tiling.placements().to_vec();
        for axes in mesh.sizes().collect::<Vec<_>>().chunk_by(PartialEq::eq).scan(0, |at, axes| {
            *at += axes.len();
            Some(*at - axes.len()..*at)
        }) {
            let n = n % axes.len();
            placements[axes].rotate_left(n);
        }
        Tiling::new(&placements)
    };
    // Without turns axes are alike.
    let n_tried = if mesh.turns().next().is_some() { mesh.n_axes() } else { 1 };
    (0..n_tried).find_map(|n| legal(rotated(n)))
}

/// The tensor that the user calls so.
fn find(report: &Report, name: &str) -> Result<Value, String> {
    let network = &report.search().tiled.network;
    let names = report.names();
    if let Some((value, _)) = names.iter().find(|(_, it)| *it == name) {
        return Ok(*value);
    }
    let given = network.names.iter().find(|(it, _)| it == name);
    match given {
        Some((_, Some(value))) => return Ok(*value),
        Some((_, None)) => {
            return Err(format!(
                "`{name}` has no tiling: it is computed inside the operators that read it, and not stored"
            ));
        }
        None => {}
    }
    let by_number = |value: &Value| value.to_string() == name;
    if let Some(value) = network.graph.values().find(by_number) {
        return Ok(value);
    }
    let is_stored = |(name, value): &'_ (String, Option<Value>)| value.map(|_| name.clone());
    let known: Vec<String> =
        names.into_values().chain(network.names.iter().filter_map(is_stored)).collect();
    let near = nearest(name, known.iter().map(String::as_str));
    let near: Vec<&str> = near.into_iter().take(MAX_NAMES).collect();
    Err(format!("there is no tensor `{name}`; names like it are {}", near.join(", ")))
}

/// All tilings of a tensor with so many dims, legal or not; if axes of one size can be exchanged, one of those that differ by that.
fn tilings(mesh: &Mesh, n_dims: usize, has_symmetry: bool) -> Vec<Tiling> {
    let dims = (0..n_dims).filter_map(|dim| u8::try_from(dim).ok().map(Placement::Split));
    let placements: Vec<Placement> = dims.chain([Placement::Replicated]).collect();
    let mut tilings: Vec<Vec<usize>> = vec![Vec::new()];
    for axis in 0..mesh.n_axes() {
        let is_like_last = has_symmetry && axis > 0 && mesh.size(axis) == mesh.size(axis - 1);
        let with = |tiling: &Vec<usize>| {
            let least = tiling.last().copied().filter(|_| is_like_last).unwrap_or(0);
            let more = (least..placements.len()).map(|it| [&tiling[..], &[it]].concat());
            more.collect::<Vec<_>>()
        };
        tilings = tilings.iter().flat_map(with).collect();
    }
    let tiling =
        |it: Vec<usize>| Tiling::new(&it.into_iter().map(|at| placements[at]).collect::<Vec<_>>());
    tilings.into_iter().map(tiling).collect()
}

/// The tiling with its placements along axes of one size in order, splits first.
fn sorted(mesh: &Mesh, tiling: &Tiling) -> Tiling {
    let mut sorted: Vec<(usize, Placement)> =
        mesh.sizes().zip(tiling.placements().to_vec()).collect();
    sorted.sort_by_key(|&(size, it)| (size, it == Placement::Replicated, it));
    Tiling::new(&sorted.into_iter().map(|it| it.1).collect::<Vec<_>>())
}

/// The results in the order of the items, on all cores.
fn in_parallel<T: Sync, R: Send>(items: &[T], result: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let n_threads = thread::available_parallelism().map_or(1, NonZero::get).min(items.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((at, item)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            items.get(at).map(|item| (at, item))
        } {
            done.push((at, result(item)));
        }
        done
    };
    let mut results: Vec<(usize, R)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(work)).collect();
        let join = |it: thread::ScopedJoinHandle<'_, Vec<(usize, R)>>| {
            it.join().expect("a search does not panic")
        };
        threads.into_iter().flat_map(join).collect()
    });
    results.sort_by_key(|it| it.0);
    results.into_iter().map(|it| it.1).collect()
}

impl Why {
    /// The tilings as a table for people.
    #[must_use]
    pub fn text(&self, report: &Report) -> String {
        let node = report.search().tiled.network.graph.node(self.tensor);
        let plural = if report.n_gpus() == 1 { "" } else { "s" };
        let heading = format!(
            "`{}` {}{} in the plan of `{}` for {} GPU{plural}: its tilings, everything else searched anew\n\n",
            self.name,
            node.dtype,
            node.shape,
            report.model(),
            report.n_gpus(),
        );
        let best = self.choices.first().map_or(0.0, Choice::cost);
        let row = |it: &Choice| {
            let (cost, bound) = match it.seconds {
                Some((plan, bound)) => (readable_seconds(plan), readable_seconds(bound)),
                None => (readable_bytes(it.bytes), readable_bytes(it.lower_bound_bytes)),
            };
            let proof =
                if it.is_optimal { "proved".to_owned() } else { format!("at least {bound}") };
            let ratio =
                if best > 0.0 { format!("{:.2} x", it.cost() / best) } else { String::new() };
            let chosen = if it.is_chosen { "the plan's" } else { "" };
            [it.tiling.to_string(), cost, ratio, proof, chosen.to_owned()]
        };
        let unit = match report.objective() {
            Objective::Bytes => "bytes",
            Objective::Time => "time",
        };
        let heads = ["tiling", unit, "ratio", "", ""].map(str::to_owned);
        let rows: Vec<[String; 5]> =
            [heads].into_iter().chain(self.choices.iter().map(row)).collect();
        heading + &aligned(&rows)
    }
}
