//! The differences of two plans of a model.

use std::collections::BTreeMap;

use soybean_compiler::rows::{aligned, rows};
use soybean_plan::readable_bytes;

use crate::saved::{SavedConversion, SavedOperator, SavedPlan};

/// The largest number of listed conversions of each plan.
const MAX_CONVERSIONS: usize = 12;

/// A plan with a name.
#[derive(Clone, Debug)]
pub struct Side {
    /// The name of a strategy or a file.
    pub title: String,
    /// The plan.
    pub plan: SavedPlan,
}

/// Returns the differences of two plans as tables in text form.
///
/// # Errors
/// If they are plans of different models or modes.
pub fn diff(left: &Side, right: &Side) -> Result<String, String> {
    check(left, right)?;
    let mut text =
        format!("plans of `{}`: {} and {}\n\n", left.plan.model, described(left), described(right));
    text.push_str(&totals(left, right));
    let pairs = Pairs::new(&left.plan, &right.plan);
    text.push_str(&tensors(left, right, &pairs));
    text.push_str(&forms(left, right, &pairs));
    text.push_str(&conversions(left, right, &pairs));
    Ok(text)
}

fn described(side: &Side) -> String {
    let SavedPlan { n_gpus, strategy, precision, .. } = &side.plan;
    format!("`{}` (strategy {strategy}, {n_gpus} GPUs, {precision})", side.title)
}

/// Returns whether two plans are of the same model: with the same inputs and parameters.
fn check(left: &Side, right: &Side) -> Result<(), String> {
    let (one, other) = (&left.plan.model, &right.plan.model);
    if one != other {
        return Err(format!(
            "`{}` is a plan of `{one}`, `{}` one of `{other}`",
            left.title, right.title
        ));
    }
    let (one_mode, other_mode) = (left.plan.mode, right.plan.mode);
    if one_mode != other_mode {
        return Err(format!(
            "`{}` is a plan for {one_mode}, `{}` one for {other_mode}",
            left.title, right.title
        ));
    }
    let sources = |side: &Side| -> BTreeMap<String, String> {
        let is_source = |kind: &str| matches!(kind, "input" | "param");
        let all = side.plan.tensors.values().filter(|it| is_source(&it.kind));
        let named = all.filter(|it| !it.name.ends_with('\''));
        named.map(|it| (it.name.clone(), it.shape.clone())).collect()
    };
    let (ours, theirs) = (sources(left), sources(right));
    let differs = |(name, shape): &(&String, &String)| theirs.get(*name) != Some(*shape);
    let missing = ours
        .iter()
        .find(differs)
        .or_else(|| theirs.iter().find(|(name, shape)| ours.get(*name) != Some(*shape)));
    let Some((name, _)) = missing else { return Ok(()) };
    let found =
        |of: &BTreeMap<String, String>| of.get(name).cloned().unwrap_or("missing".to_owned());
    Err(format!(
        "the plans are of different versions of `{one}`: `{name}` is {} in `{}`, but {} in `{}`",
        found(&ours),
        left.title,
        found(&theirs),
        right.title
    ))
}

fn totals(left: &Side, right: &Side) -> String {
    let row = |label: &str, bytes: fn(&SavedPlan) -> u64| {
        let (ours, theirs) = (bytes(&left.plan), bytes(&right.plan));
        let ratio = match ours {
            0 => String::new(),
            ours => format!("{:.2} x", theirs as f64 / ours as f64),
        };
        [label.to_owned(), readable_bytes(ours), readable_bytes(theirs), ratio]
    };
    let unit = match left.plan.accumulate == right.plan.accumulate {
        true => left.plan.mode.unit_of(left.plan.accumulate, left.plan.n_entries),
        false => "update".to_owned(),
    };
    let work = |side: &Side| format!("{:.2}", side.plan.work);
    aligned(&[
        [String::new(), left.title.clone(), right.title.clone(), String::new()],
        row(&format!("bytes moved in one {unit}"), |it| it.bytes_total),
        row("memory of each GPU", |it| it.peak_memory_bytes_per_gpu),
        ["work over that of one device".to_owned(), work(left), work(right), String::new()],
    ])
}

/// The correspondence of the tensors of two plans.
struct Pairs(BTreeMap<u64, u64>);

impl Pairs {
    /// Matches tensors by numbers if the graphs are equal, and by the user's names otherwise, as in
    /// another precision.
    fn new(left: &SavedPlan, right: &SavedPlan) -> Self {
        let (ours, theirs) = (&left.tensors, &right.tensors);
        let is_same = ours.len() == theirs.len()
            && ours.iter().zip(theirs).all(|(a, b)| a.0 == b.0 && a.1.shape == b.1.shape);
        if is_same {
            return Self(ours.keys().map(|&it| (it, it)).collect());
        }
        let by_name: BTreeMap<&str, u64> =
            theirs.iter().map(|(&id, it)| (it.name.as_str(), id)).collect();
        let named = ours.iter().filter(|(_, it)| !it.is_unnamed());
        let pair = |(&id, it): (&u64, &crate::saved::SavedTensor)| {
            Some((id, *by_name.get(it.name.as_str())?))
        };
        Self(named.filter_map(pair).collect())
    }

    /// Returns the right plan's tensor that corresponds to the left plan's.
    fn of(&self, left: u64) -> Option<u64> {
        self.0.get(&left).copied()
    }
}

/// Lists the tensors with different tilings.
fn tensors(left: &Side, right: &Side, pairs: &Pairs) -> String {
    let differing = |(id, it): (&u64, &crate::saved::SavedTensor)| {
        let other = &right.plan.tensors[&pairs.of(*id)?];
        let tilings = [it.shape.clone(), it.placed(), other.placed()];
        (tilings[1] != tilings[2]).then(|| (left.plan.label(*id), tilings))
    };
    // The next value of a tensor has the tensor's tiling.
    let is_next = |id: &u64| left.plan.tensors[id].name.ends_with('\'');
    let shown = || left.plan.tensors.iter().filter(|(id, _)| !is_next(id));
    let items: Vec<_> = shown().filter_map(differing).collect();
    let n_alike = shown().filter(|(id, _)| pairs.of(**id).is_some()).count() - items.len();
    let heading = ["tensor", "shape", &left.title, &right.title];
    let table = rows(heading, items, |name, [shape, ours, theirs]| {
        [name, shape.clone(), ours.clone(), theirs.clone()]
    });
    section(&format!("tensors with different tilings ({n_alike} have equal ones)"), &table)
}

/// Lists the operators with different partitionings.
fn forms(left: &Side, right: &Side, pairs: &Pairs) -> String {
    let theirs: BTreeMap<u64, &SavedOperator> =
        right.plan.operators.iter().map(|it| (it.output, it)).collect();
    let differing = |it: &SavedOperator| {
        let other = theirs.get(&pairs.of(it.output)?)?;
        let (signature, ours) = it.form.split_once(" by ")?;
        let (other_signature, form) = other.form.split_once(" by ")?;
        let content = [it.pass.as_str(), signature, ours, form].map(str::to_owned);
        let is_alike = signature == other_signature && ours == form;
        (!is_alike).then(|| (it.path(), content))
    };
    let items: Vec<_> = left.plan.operators.iter().filter_map(differing).collect();
    let heading = ["operator", "pass", "signature", &left.title, &right.title];
    let table = rows(heading, items, |name, [pass, signature, ours, form]| {
        [name, pass.clone(), signature.clone(), ours.clone(), form.clone()]
    });
    section("operators that run in another form", &table)
}

/// Lists the conversions of only one of the plans.
fn conversions(left: &Side, right: &Side, pairs: &Pairs) -> String {
    let moved = |side: &Side| -> Vec<(SavedOperator, SavedConversion)> {
        let of_operator = |it: &SavedOperator| {
            let moving = it.conversions.iter().filter(|it| it.bytes > 0);
            moving.map(|conversion| (it.clone(), conversion.clone())).collect::<Vec<_>>()
        };
        side.plan.operators.iter().flat_map(of_operator).collect()
    };
    let (ours, mut theirs) = (moved(left), moved(right));
    let mut only_ours = Vec::new();
    for (operator, conversion) in ours {
        let twin = theirs.iter().position(|(other, it)| {
            pairs.of(operator.output) == Some(other.output)
                && pairs.of(conversion.tensor) == Some(it.tensor)
                && (&conversion.from, &conversion.to, conversion.bytes)
                    == (&it.from, &it.to, it.bytes)
        });
        match twin {
            Some(at) => drop(theirs.remove(at)),
            None => only_ours.push((operator, conversion)),
        }
    }
    of_one(left, only_ours) + &of_one(right, theirs)
}

fn of_one(side: &Side, mut conversions: Vec<(SavedOperator, SavedConversion)>) -> String {
    conversions.sort_by_key(|it| std::cmp::Reverse(it.1.bytes));
    let bytes: u64 = conversions.iter().map(|it| it.1.bytes).sum();
    let n_conversions = conversions.len();
    let mut table = Vec::new();
    for (operator, it) in conversions.iter().take(MAX_CONVERSIONS) {
        let place = match operator.source.is_empty() {
            true => String::new(),
            false => format!(", {}", operator.source),
        };
        let purpose = format!("for {}, {}{place}", operator.path(), operator.pass);
        let change = format!("{} {} -> {}", side.plan.label(it.tensor), it.from, it.to);
        table.push([readable_bytes(it.bytes), change, purpose]);
    }
    if n_conversions > MAX_CONVERSIONS {
        let rest: u64 = conversions[MAX_CONVERSIONS..].iter().map(|it| it.1.bytes).sum();
        let others = format!("{} others", n_conversions - MAX_CONVERSIONS);
        table.push([readable_bytes(rest), others, String::new()]);
    }
    let title =
        format!("only `{}` has {n_conversions} conversions, {}", side.title, readable_bytes(bytes));
    format!("\n{title}\n{}", aligned(&table))
}

/// Returns a table under a title, or nothing if it has only a heading.
fn section<const N: usize>(title: &str, table: &[[String; N]]) -> String {
    match table.len() {
        0 | 1 => String::new(),
        _ => format!("\n{title}\n{}", aligned(table)),
    }
}
