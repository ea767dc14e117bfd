//! Folded drawings: of layers that repeat, the first is drawn.
//!
//! The calls of the user's functions are a sequence, and each tensor is made for one of them, also
//! gradients and next values. A stretch of calls repeats if all of its tensors have equal shapes,
//! tilings, operators and conversions, and if each repetition reads from the one before. Its layers
//! are then drawn once. Edges from and to other layers are kept, and all bytes are counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use super::{
    drawing::{Drawing, Edge, Tensor},
    repeat::{Repetition, Sequence},
};

/// A drawing in which repeated layers are one.
#[derive(Clone, Debug)]
pub(crate) struct Folded {
    pub(crate) drawing: Drawing,
    /// The tensor that is drawn for each tensor, by their indices in the graph.
    pub(crate) representatives: Vec<usize>,
}

impl Folded {
    /// Folds a drawing of all tensors.
    pub(crate) fn new(drawing: &Drawing) -> Self {
        let calls = Calls::new(drawing);
        let members = Members::new(&calls, &calls.repetitions(drawing), drawing.tensors.len());
        let folded = members.folded(drawing);
        // A layout needs a graph without cycles. There are none, unless later layers compute what
        // earlier ones read.
        if has_cycle(&folded) {
            let alone = (0..drawing.tensors.len()).collect();
            return Self { drawing: drawing.clone(), representatives: alone };
        }
        Self { drawing: folded, representatives: members.representatives }
    }
}

/// The user's calls with the tensors of each, in order.
struct Calls {
    tensors: Vec<Vec<usize>>,
}

impl Calls {
    fn new(drawing: &Drawing) -> Self {
        let n_calls = drawing.tensors.iter().filter_map(|it| it.call).max().map_or(0, |it| it + 1);
        let mut tensors = vec![Vec::new(); n_calls];
        for (at, tensor) in drawing.tensors.iter().enumerate() {
            if let Some(call) = tensor.call {
                tensors[call].push(at);
            }
        }
        Self { tensors }
    }

    /// Returns the stretches that repeat.
    fn repetitions(&self, drawing: &Drawing) -> Vec<Repetition> {
        let items = self.kinds(drawing);
        let weights: Vec<usize> = self.tensors.iter().map(Vec::len).collect();
        let reads = self.reads(drawing);
        let sequence =
            Sequence { items: &items, weights: &weights, cuts: &cuts(&reads, items.len()) };
        // Branches beside each other, such as the heads of a network, are no layers.
        let is_chain = |it: &Repetition| {
            let unit = |call: usize| (call - it.start) / it.period;
            let range = it.range();
            let inside =
                reads.iter().filter(|read| range.contains(&read.0) && range.contains(&read.1));
            let steps: BTreeSet<usize> =
                inside.filter(|it| unit(it.1) == unit(it.0) + 1).map(|it| unit(it.0)).collect();
            steps.len() + 1 == it.n_repetitions
        };
        sequence.repetitions(0..items.len(), &is_chain)
    }

    /// Returns a number for each call. Calls with the same one have equal tensors.
    fn kinds(&self, drawing: &Drawing) -> Vec<usize> {
        let mut texts: Vec<String> = drawing.tensors.iter().map(text).collect();
        for Edge { to, change, .. } in &drawing.edges {
            let _ = write!(texts[*to], " {change:?}");
        }
        let mut known: BTreeMap<Vec<&str>, usize> = BTreeMap::new();
        let kind = |tensors: &Vec<usize>| {
            let content = tensors.iter().map(|&it| texts[it].as_str()).collect();
            let n_known = known.len();
            *known.entry(content).or_insert(n_known)
        };
        self.tensors.iter().map(kind).collect()
    }

    /// Returns the pairs of a call and a later one that reads its results.
    fn reads(&self, drawing: &Drawing) -> BTreeSet<(usize, usize)> {
        let call = |it: usize| drawing.tensors[it].call.filter(|_| drawing.tensors[it].is_forward);
        let pairs = drawing.edges.iter().filter_map(|it| Some((call(it.from)?, call(it.to)?)));
        pairs.filter(|it| it.0 < it.1).collect()
    }
}

/// Describes what repeated tensors have in common.
fn text(tensor: &Tensor) -> String {
    let Tensor { kind, shape, tiling, operator, place, change, .. } = tensor;
    let operator = without_streams(operator);
    format!("{kind} {shape} {tiling} {operator} {place} {change:?}")
}

/// Returns an operator without the numbers of its streams of random numbers, in which repeated
/// dropouts differ: `noise(s0, 3)`.
fn without_streams(operator: &str) -> String {
    let mut parts = operator.split("noise(");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str("noise(");
        match part.split_once(", ") {
            Some((scalar, rest)) if scalar.starts_with('s') => {
                let is_number = |it: char| it.is_ascii_digit() || it == '.';
                text.push_str(rest.trim_start_matches(is_number));
            }
            _ => text.push_str(part),
        }
    }
    text
}

/// Returns for each call the number of earlier calls whose results it or later ones read.
fn cuts(reads: &BTreeSet<(usize, usize)>, n_calls: usize) -> Vec<usize> {
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    last.extend(reads.iter().copied());
    let mut cuts = vec![0; n_calls];
    for (call, last) in last {
        cuts[call + 1..=last].iter_mut().for_each(|it| *it += 1);
    }
    cuts
}

/// The tensors of repetitions.
struct Members {
    /// The tensor of the first repetition that is equal to each tensor; others have themselves.
    representatives: Vec<usize>,
    /// The repetition to which each tensor belongs: the number of the stretch, and the one within
    /// it.
    repetitions: Vec<Option<(usize, usize)>>,
}

impl Members {
    fn new(calls: &Calls, found: &[Repetition], n_tensors: usize) -> Self {
        let mut members =
            Self { representatives: (0..n_tensors).collect(), repetitions: vec![None; n_tensors] };
        for (stretch, it) in found.iter().enumerate() {
            for call in it.range() {
                let (number, offset) =
                    ((call - it.start) / it.period, (call - it.start) % it.period);
                let firsts = &calls.tensors[it.start + offset];
                for (&tensor, &first) in calls.tensors[call].iter().zip(firsts) {
                    members.representatives[tensor] = first;
                    members.repetitions[tensor] = Some((stretch, number));
                }
            }
        }
        members
    }

    /// Returns true if an edge leads from one repetition to another one of the same stretch.
    fn is_between(&self, edge: &Edge) -> bool {
        match (self.repetitions[edge.from], self.repetitions[edge.to]) {
            (Some(from), Some(to)) => from.0 == to.0 && from.1 != to.1,
            (None, _) | (_, None) => false,
        }
    }

    fn folded(&self, drawing: &Drawing) -> Drawing {
        let mut folded = drawing.clone();
        folded.tensors.iter_mut().for_each(|it| (it.n_equal, it.change.bytes) = (0, 0));
        for (at, tensor) in drawing.tensors.iter().enumerate() {
            let first = &mut folded.tensors[self.representatives[at]];
            first.n_equal += 1;
            first.change.bytes += tensor.change.bytes;
        }
        let (between, others): (Vec<&Edge>, Vec<&Edge>) =
            drawing.edges.iter().partition(|it| self.is_between(it));
        let mut edges: Vec<Edge> = Vec::new();
        // The edges that are drawn to each tensor.
        let mut drawn: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for edge in others {
            let (from, to) = (self.representatives[edge.from], self.representatives[edge.to]);
            // A total of all layers reads each of them.
            let is_of_layers = self.repetitions[edge.from].is_some()
                && self.repetitions[edge.from] != self.repetitions[edge.to];
            let to_it = drawn.entry(to).or_default();
            let is_known = |it: &&usize| {
                let known = &edges[**it];
                known.from == from && (is_of_layers || known.operand == edge.operand)
            };
            match to_it.iter().find(is_known) {
                Some(&it) => edges[it].change.bytes += edge.change.bytes,
                None => {
                    to_it.push(edges.len());
                    edges.push(Edge { from, to, ..edge.clone() });
                }
            }
        }
        // The bytes of edges between repetitions count for those that lead into the drawn one.
        for edge in between {
            let to = self.representatives[edge.to];
            let is_alike = |it: &&usize| edges[**it].operand == edge.operand;
            match drawn.get(&to).and_then(|it| it.iter().find(is_alike)) {
                Some(&it) => edges[it].change.bytes += edge.change.bytes,
                None => folded.tensors[to].change.bytes += edge.change.bytes,
            }
        }
        folded.edges = edges;
        folded.only(|it| it.n_equal > 0)
    }
}

/// Returns true if the edges, those of gradients in reverse, form a cycle.
fn has_cycle(drawing: &Drawing) -> bool {
    let n_tensors = drawing.tensors.len();
    let mut below = vec![Vec::new(); n_tensors];
    let mut n_above = vec![0; n_tensors];
    for line in drawing.lines() {
        below[line.upper].push(line.lower);
        n_above[line.lower] += 1;
    }
    let mut ready: Vec<usize> = (0..n_tensors).filter(|&it| n_above[it] == 0).collect();
    let mut n_ordered = 0;
    while let Some(tensor) = ready.pop() {
        n_ordered += 1;
        for &lower in &below[tensor] {
            n_above[lower] -= 1;
            if n_above[lower] == 0 {
                ready.push(lower);
            }
        }
    }
    n_ordered < n_tensors
}

#[cfg(test)]
mod tests {
    use super::without_streams;

    #[test]
    fn equal_dropouts_differ_in_their_stream_alone() {
        let dropout = |n: usize| {
            format!("map {{select(gt(0.1, noise(noise(noise(s0, {n}), x1), x2)), 0, x0)}} ij->ij")
        };
        assert_eq!(without_streams(&dropout(3)), without_streams(&dropout(12)));
        assert_ne!(without_streams(&dropout(3)), without_streams("map {relu(x0)} ij->ij"));
        assert!(without_streams(&dropout(3)).contains("x1), x2)), 0, x0)"));
    }
}
