//! The comparison of one network on a number of GPUs.

use std::{collections::BTreeSet, fmt, time::Instant};

use soybean_compiler::{Argument, Options, SearchEffort, compile};
use soybean_plan::Mesh;
use soybean_zoo::{Entry, Model};

use crate::formula::{self, Formula};

/// The columns.
pub(crate) const HEADS: [&str; 12] = [
    "network",
    "GPUs",
    "default, GB",
    "its bound",
    "thorough, GB",
    "its bound",
    "formula, GB",
    "which",
    "pinned, GB",
    "pin",
    "default / best",
    "search, ms",
];
/// The alignment of the columns.
pub(crate) const RULE: &str =
    " --- | ---: | ---: | --- | ---: | --- | ---: | --- | ---: | --- | ---: | ---: |";

/// A plan that a search found.
struct Plan {
    bytes: f64,
    /// The largest possible distance from the proved bound, in words.
    bound: String,
    milliseconds: f64,
}

/// The plans of a network.
pub(crate) struct Measured {
    network: &'static str,
    n_gpus: usize,
    default: Plan,
    thorough: Option<Plan>,
    formula: Option<Formula>,
    /// The best plan with pinned residual connections, and the pin.
    pinned: Option<(f64, String)>,
}

impl Measured {
    /// Searches a network for a number of GPUs by default, and thoroughly if that is the effort.
    ///
    /// # Errors
    /// If the default search finds no plan.
    pub(crate) fn new(
        entry: &'static Entry,
        n_gpus: usize,
        effort: SearchEffort,
    ) -> Result<Self, String> {
        let model = (entry.model)();
        let options = entry.options(n_gpus);
        let formula = formula::best(entry, &model, n_gpus);
        let default = plan(model.clone(), &options)?;
        let thorough = match effort {
            SearchEffort::Thorough => {
                let mut options = options.clone();
                options.search.effort = effort;
                Some(plan(model.clone(), &options)?)
            }
            SearchEffort::Standard | SearchEffort::Rough => None,
        };
        let pinned = pins(&model, n_gpus, formula.as_ref())
            .into_iter()
            .filter_map(|pin| Some((plan(pinned(&model, &pin)?, &options).ok()?.bytes, pin)))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        Ok(Self { network: entry.name, n_gpus, default, thorough, formula, pinned })
    }

    /// Returns the bytes of the default plan over those of the best known one.
    pub(crate) fn ratio(&self) -> f64 {
        let others = [
            self.thorough.as_ref().map(|it| it.bytes),
            self.formula.as_ref().map(|it| it.bytes),
            self.pinned.as_ref().map(|it| it.0),
        ];
        let bytes = self.default.bytes;
        bytes / others.into_iter().flatten().fold(bytes, f64::min)
    }
}

fn plan(model: Model, options: &Options) -> Result<Plan, String> {
    let start = Instant::now();
    let now = || start.elapsed().as_secs_f64() * 1e3;
    let compiled = compile(model.builder, model.loss, &[], options, &now)
        .map_err(|faults| faults[0].message.clone())?;
    let report = &compiled.report;
    let bound = match report.gap() {
        _ if report.is_optimal() => "optimal".to_owned(),
        Some(gap) => format!("within {:.2} %", 100.0 * gap),
        None => "unproved".to_owned(),
    };
    Ok(Plan { bytes: report.bytes_total as f64, bound, milliseconds: report.milliseconds() })
}

/// Returns the pins of residual connections that experts would try: the batch in as many parts as
/// it has, or in those of the formula, and tokens in the others (sequence parallelism, Korthikanti
/// et al. 2022).
fn pins(model: &Model, n_gpus: usize, formula: Option<&Formula>) -> BTreeSet<String> {
    let Some(&residual) = model.landmarks.residuals.first() else { return BTreeSet::new() };
    let batch = model.builder.shape(residual)[0];
    let most = (1..=n_gpus).rev().find(|n| n_gpus.is_multiple_of(*n) && batch.is_multiple_of(*n));
    let parts = most.into_iter().chain(formula.map(|it| it.n_data));
    parts.map(|n_parts| pin(&Mesh::new(n_gpus), n_parts)).collect()
}

fn pin(mesh: &Mesh, n_parts: usize) -> String {
    if n_parts == mesh.n_ranks() {
        return "P0".to_owned();
    }
    let mut left = n_parts;
    let mut entry = |extent: usize| match left.is_multiple_of(extent) {
        true => {
            left /= extent;
            "P0"
        }
        false => "P1",
    };
    let entries: Vec<&str> = mesh.sizes().map(&mut entry).collect();
    entries.join(" ")
}

/// Returns the network with pinned results of residual connections; `None` if a pin does not fit.
fn pinned(model: &Model, pin: &str) -> Option<Model> {
    let mut model = model.clone();
    for &residual in &model.landmarks.residuals {
        let arguments = [Argument::Tensor(residual), Argument::Text(pin.to_owned())];
        model.builder.call("tiled", &arguments).ok()?;
    }
    Some(model)
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gigabytes = |bytes: f64| format!("{:.3}", bytes / 1e9);
        let [thorough, bound] = match &self.thorough {
            Some(plan) => [gigabytes(plan.bytes), plan.bound.clone()],
            None => Default::default(),
        };
        let [formula, which] = match &self.formula {
            Some(it) => [gigabytes(it.bytes), it.name.clone()],
            None => Default::default(),
        };
        let [pinned, pin] = match &self.pinned {
            Some((bytes, pin)) => [gigabytes(*bytes), format!("`{pin}`")],
            None => Default::default(),
        };
        let cells = [
            self.network.to_owned(),
            self.n_gpus.to_string(),
            gigabytes(self.default.bytes),
            self.default.bound.clone(),
            thorough,
            bound,
            formula,
            which,
            pinned,
            pin,
            format!("{:.4}", self.ratio()),
            format!("{:.0}", self.default.milliseconds),
        ];
        write!(f, "| {} |", cells.join(" | "))
    }
}
