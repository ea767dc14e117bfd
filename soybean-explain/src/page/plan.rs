//! The plan's JSON, of which the page has the tensors and operators that it draws.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};
use soybean_compiler::Report;

use super::json::{list, string};
use crate::picture::Folded;

/// The members of operators that the page shows.
const OF_OPERATORS: [&str; 6] = ["output", "name", "signature", "inputs", "form", "conversions"];
/// The members of tensors that the page shows.
const OF_TENSORS: [&str; 6] = ["id", "name", "kind", "dtype", "shape", "tiling"];

/// Returns the plan with the drawn tensors alone, each with its layer, its place in the source, and
/// the number of tensors for which it is drawn. Operands that are not drawn are replaced by those
/// that are drawn for them.
pub(super) fn json(report: &Report, folded: &Folded) -> String {
    let Folded { drawing, representatives } = folded;
    let mut plan: Json = serde_json::from_str(&report.json()).expect("a plan's JSON is valid");
    let is_drawn =
        |id: &Json| id.as_u64().is_some_and(|it| representatives[index(it)] == index(it));
    let lists = [("tensors", "id", &OF_TENSORS), ("ops", "output", &OF_OPERATORS)];
    for (list, id, members) in lists {
        let all = plan[list].as_array_mut().expect("a plan lists tensors and operators");
        all.retain(|it| is_drawn(&it[id]));
        all.iter_mut().filter_map(Json::as_object_mut).for_each(|it| keep(it, members));
    }
    let listed = plan["tensors"].as_array_mut().into_iter().flatten();
    for (object, tensor) in listed.zip(&drawing.tensors) {
        object["layer"] = tensor.layer.as_str().into();
        object["place"] = tensor.place.as_str().into();
        object["n_equal"] = tensor.n_equal.into();
    }
    for operator in plan["ops"].as_array_mut().into_iter().flatten() {
        for input in operator["inputs"].as_array_mut().into_iter().flatten() {
            replace(input, representatives);
        }
        for conversion in operator["conversions"].as_array_mut().into_iter().flatten() {
            replace(&mut conversion["tensor"], representatives);
        }
    }
    plan.to_string()
}

fn keep(object: &mut Map<String, Json>, members: &[&str]) {
    object.retain(|name, _| members.contains(&name.as_str()));
}

fn replace(id: &mut Json, representatives: &[usize]) {
    if let Some(found) = id.as_u64() {
        *id = representatives[index(found)].into();
    }
}

fn index(id: u64) -> usize {
    usize::try_from(id).expect("a tensor's number is an index")
}

/// Returns the tensors that are not drawn, for each drawn one that is equal to them: `[v, w, ..]`
/// after its number `d` in `[d, [v, w, ..]]`. Names follow by numbers, as far as users gave them.
pub(super) fn others(report: &Report, folded: &Folded) -> String {
    let mut groups: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    let mut names = Vec::new();
    for (value, name) in report.names() {
        let drawn = folded.representatives[value.index()];
        if drawn != value.index() {
            groups.entry(drawn).or_default().push(value.index().to_string());
            if name != value.to_string() {
                names.push(format!("[{},{}]", value.index(), string(&name)));
            }
        }
    }
    let groups =
        groups.into_iter().map(|(drawn, it)| format!("[{drawn},{}]", list(it.into_iter())));
    format!("{{\"groups\":{},\"names\":{}}}", list(groups), list(names.into_iter()))
}
