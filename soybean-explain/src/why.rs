//! Explains the tiling of a tensor by the costs of every other tiling of it. Each is a new search
//! of everything else, within the plan's memory limit if it has one.

mod parallel;

use soybean_compiler::{
    Network, Objective, Report, SearchRequest, Strategy, Value, best_plan, readable_seconds,
    rows::aligned, tiling::SearchResult,
};
use soybean_plan::{AxisSet, Mesh, Placement, Tiling, nearest_names, readable_bytes};

pub use self::parallel::Watch;
use self::parallel::in_parallel;

/// The largest number of suggestions for an unknown name.
const MAX_NAMES: usize = 5;

/// The largest number of tilings to try, each by a search of its own.
const MAX_TILINGS: usize = 1 << 10;

/// The plans with one tensor in each of its tilings, cheapest first.
#[derive(Clone, Debug)]
pub struct Why {
    /// The tensor.
    pub tensor: Value,
    /// The user's name for it.
    pub name: String,
    /// The tilings, one of those that differ only by an exchange of equivalent axes.
    pub choices: Vec<Choice>,
    /// The tilings for which no plan was found that fits into the memory.
    pub unfit: Vec<Tiling>,
    /// The number of tilings that were not tried because the caller stopped.
    pub n_untried: usize,
}

/// The cost of a tiling of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The tiling.
    pub tiling: Tiling,
    /// The bytes that the best plan found moves in a training step or, in inference, in a
    /// prediction.
    pub bytes: u64,
    /// A lower bound of the bytes of all plans with this tiling; 0 if bytes are not the objective.
    pub lower_bound_bytes: u64,
    /// The time of the best plan found and a lower bound, in seconds, if time is the objective.
    pub seconds: Option<(f64, f64)>,
    /// True if no plan with this tiling is better.
    pub is_optimal: bool,
    /// True if the plan has this tiling.
    pub is_chosen: bool,
}

impl Choice {
    fn new(tiling: Tiling, found: &SearchResult, is_chosen: bool) -> Self {
        Self {
            tiling,
            bytes: found.tiled.bytes(),
            lower_bound_bytes: found.lower_bound_bytes,
            seconds: found.times.map(|it| (it.plan, it.lower_bound)),
            is_optimal: found.is_optimal,
            is_chosen,
        }
    }

    /// Returns the value of the objective.
    fn cost(&self) -> f64 {
        self.seconds.map_or(self.bytes as f64, |it| it.0)
    }
}

/// Tries every tiling of the tensor with this name. `request` is the request of the plan's search.
///
/// # Errors
/// If there is no such tensor, it is not stored, or it has more tilings than can be tried.
pub fn why(report: &Report, request: &SearchRequest, name: &str) -> Result<Why, String> {
    why_watched(report, request, name, &mut |_, _| true)
}

/// Does the same as [`why`], and calls `watch` several times per second with the number of tilings
/// that have been tried, and of all. If it returns false, the result has those tried so far.
///
/// # Errors
/// As [`why`].
pub fn why_watched(
    report: &Report,
    request: &SearchRequest,
    name: &str,
    watch: &mut Watch<'_>,
) -> Result<Why, String> {
    let tiled = &report.search().tiled;
    let tensor = find(report, name)?;
    let chosen = tiled.tilings[tensor.index()];
    let network = &tiled.network;
    let kinds = kinds(report, request.objective, tensor);
    let mut tilings = tilings(&kinds, network.graph.shape(tensor).len())
        .map_err(|n_tilings| too_many(name, n_tilings))?;
    tilings.retain(|it| sorted(&kinds, it) != sorted(&kinds, &chosen));
    tilings.push(chosen);
    let pinned: Vec<(Tiling, Network)> = tilings
        .iter()
        .filter_map(|it| stored_so(network, tensor, *it, &tiled.mesh, &kinds))
        .collect();
    let request = SearchRequest { strategy: Strategy::Auto, ..request.clone() };
    let (n_tilings, mesh) = (pinned.len(), tiled.mesh);
    let own = Choice::new(chosen, report.search(), true);
    let search = move |(tiling, network): &(Tiling, Network)| {
        let is_chosen = *tiling == chosen;
        let choice = |found: &SearchResult| Choice::new(*tiling, found, is_chosen);
        let found = best_plan(network, mesh, &request).as_ref().map(choice);
        // Searches within a memory limit are not exact, so another may be worse than the plan's
        // own.
        let own = is_chosen.then_some(own);
        found.into_iter().chain(own).min_by(|a, b| a.cost().total_cmp(&b.cost())).ok_or(*tiling)
    };
    let found = in_parallel(pinned, search, watch);
    let n_untried = n_tilings - found.len();
    let (found, unfit): (Vec<_>, Vec<_>) = found.into_iter().partition(Result::is_ok);
    let mut choices: Vec<Choice> = found.into_iter().flatten().collect();
    if n_untried > 0 && choices.iter().all(|it| !it.is_chosen) {
        choices.push(own);
    }
    choices.sort_by(|a, b| {
        let order = a.cost().total_cmp(&b.cost()).then(b.is_chosen.cmp(&a.is_chosen));
        order.then(a.tiling.cmp(&b.tiling))
    });
    let unfit = unfit.into_iter().filter_map(Result::err).collect();
    Ok(Why { tensor, name: name.to_owned(), choices, unfit, n_untried })
}

/// Returns for each axis the first equivalent one. An exchange of the two in a whole plan changes
/// no cost.
fn kinds(report: &Report, objective: Objective, tensor: Value) -> Vec<usize> {
    let found = report.search();
    let (network, mesh) = (&found.tiled.network, &found.tiled.mesh);
    // Pins of other tensors distinguish axes.
    let is_free = network.pins().iter().all(|&it| it == tensor);
    let level = |axis: usize| match objective {
        Objective::Bytes => None,
        Objective::Time => found.topology.as_ref().map(|it| it.level(axis)),
    };
    let of_first_digits: Vec<AxisSet> =
        mesh.digit_orders().map(|(extent, _)| mesh.axes_with_digits(extent)).collect();
    let is_alike = |one: usize, other: usize| {
        is_free
            && mesh.size(one) == mesh.size(other)
            && level(one) == level(other)
            && of_first_digits.iter().all(|it| it.contains(one) == it.contains(other))
    };
    let first = |axis: usize| (0..axis).find(|&it| is_alike(it, axis)).unwrap_or(axis);
    (0..mesh.n_axes()).map(first).collect()
}

/// Pins the tensor to this tiling, or to one that differs by an exchange of axes if only that is
/// legal. Not every two axes can split a dim with few factors.
fn stored_so(
    network: &Network,
    tensor: Value,
    tiling: Tiling,
    mesh: &Mesh,
    kinds: &[usize],
) -> Option<(Tiling, Network)> {
    if !tiling.partial_axes().is_empty() {
        // Terms of sums are stored as partial sums by themselves.
        return Some((tiling, network.clone()));
    }
    let legal = |it: Tiling| Some((it, network.clone().pinned(tensor, it, mesh).ok()?));
    let rotated = |n: usize| {
        let placement = |axis: usize| {
            let alike: Vec<usize> =
                (0..kinds.len()).filter(|&it| kinds[it] == kinds[axis]).collect();
            let at = alike.iter().take_while(|it| **it < axis).count();
            tiling.on(alike[(at + n) % alike.len()])
        };
        Tiling::new(&(0..kinds.len()).map(placement).collect::<Vec<_>>())
    };
    (0..kinds.len().max(1)).find_map(|n| legal(rotated(n)))
}

fn too_many(name: &str, n_tilings: usize) -> String {
    format!(
        "`{name}` has {n_tilings} tilings, each of which would be a search; at most {MAX_TILINGS} are tried"
    )
}

/// Returns the tensor with this name.
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
    let near = nearest_names(name, known.iter().map(String::as_str));
    let near: Vec<&str> = near.iter().take(MAX_NAMES).map(|it| it.name).collect();
    Err(format!("there is no tensor `{name}`; names like it are {}", near.join(", ")))
}

/// Returns all tilings of a tensor with this number of dims, legal or not, one of those that differ
/// only by an exchange of equivalent axes. Returns their number instead, if there are too many.
fn tilings(kinds: &[usize], n_dims: usize) -> Result<Vec<Tiling>, usize> {
    let dims = (0..n_dims).filter_map(|dim| u8::try_from(dim).ok().map(Placement::Split));
    let placements: Vec<Placement> = dims.chain([Placement::Replicated]).collect();
    let n_tilings = n_tilings(kinds, placements.len());
    if n_tilings > MAX_TILINGS {
        return Err(n_tilings);
    }
    let mut tilings: Vec<Vec<usize>> = vec![Vec::new()];
    for axis in 0..kinds.len() {
        let alike = (0..axis).rev().find(|&it| kinds[it] == kinds[axis]);
        let with = |tiling: &Vec<usize>| {
            let least = alike.map_or(0, |it| tiling[it]);
            let more = (least..placements.len()).map(|it| [&tiling[..], &[it]].concat());
            more.collect::<Vec<_>>()
        };
        tilings = tilings.iter().flat_map(with).collect();
    }
    let tiling =
        |it: Vec<usize>| Tiling::new(&it.into_iter().map(|at| placements[at]).collect::<Vec<_>>());
    Ok(tilings.into_iter().map(tiling).collect())
}

/// Returns the number of ways to give each axis one of so many placements, where only the number of
/// each counts among axes of one kind.
fn n_tilings(kinds: &[usize], n_placements: usize) -> usize {
    // The nth axis of a kind makes C(p + n - 2, n - 1) ways C(p + n - 1, n), with p placements.
    let with = |n_ways: usize, axis: usize| {
        let nth = kinds[..=axis].iter().filter(|it| **it == kinds[axis]).count();
        n_ways.saturating_mul(n_placements + nth - 1) / nth
    };
    (0..kinds.len()).fold(1, with)
}

/// Returns the tiling's placements with the kinds of their axes, in an order in which exchanges of
/// axes of one kind do not show.
fn sorted(kinds: &[usize], tiling: &Tiling) -> Vec<(usize, Placement)> {
    let mut sorted: Vec<(usize, Placement)> =
        kinds.iter().copied().zip(tiling.placements().iter().copied()).collect();
    sorted.sort_unstable();
    sorted
}

impl Why {
    /// Formats the tilings as a table.
    #[must_use]
    pub fn text(&self, report: &Report) -> String {
        let node = report.search().tiled.network.graph.node(self.tensor);
        let plural = if report.n_gpus() == 1 { "" } else { "s" };
        let limit = |it| format!(" within {} of memory", readable_bytes(it));
        let limit = report.memory_limit().map_or_else(String::new, limit);
        let heading = format!(
            "`{}` {}{} in the plan of `{}` for {} GPU{plural}: its tilings, everything else searched anew{limit}\n\n",
            self.name,
            node.dtype,
            node.shape_with_padding(),
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
        let unfit =
            |it: &Tiling| [&it.to_string(), "-", "", "none found that fits", ""].map(str::to_owned);
        let rows: Vec<[String; 5]> = [heads]
            .into_iter()
            .chain(self.choices.iter().map(row))
            .chain(self.unfit.iter().map(unfit))
            .collect();
        let untried = match self.n_untried {
            0 => String::new(),
            n => format!("\nstopped: {n} further tilings were not tried\n"),
        };
        heading + &aligned(&rows) + &untried
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_TILINGS, tilings};

    #[test]
    fn tilings_are_counted_before_they_are_made() {
        for (kinds, n_dims, n_tilings) in [
            (&[][..], 2, 1),
            (&[0, 0, 0], 2, 10),
            (&[0, 1, 2], 2, 27),
            (&[0, 1, 1], 2, 18),
            (&[0, 1, 0], 3, 40),
            (&[0; 10], 2, 66),
        ] {
            assert_eq!(tilings(kinds, n_dims).map(|it| it.len()), Ok(n_tilings), "{kinds:?}");
        }
        let many: Vec<usize> = (0..16).collect();
        assert_eq!(tilings(&many[..10], 1).map(|it| it.len()), Ok(MAX_TILINGS));
        assert_eq!(tilings(&many, 4), Err(5_usize.pow(16)));
    }
}
