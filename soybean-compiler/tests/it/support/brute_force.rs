//! The least bytes of a network by brute force over every tiling of every tensor and every
//! partitioning of every operator.
//!
//! Operators are added one after another. For every combination of tilings of the tensors that
//! added and remaining operators share, the least bytes of the added operators are kept. Nothing is
//! ruled out by any other argument.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use soybean_compiler::{
    Network, Read, Value,
    graph::Source,
    operator::Phase,
    signature::{Dim, Partitioning, Signature},
    tiling::route,
};
use soybean_plan::{Combine, Mesh, Placement, Tile, Tiling};

use super::forms::{all_forms, may_be_stored_so};

/// Returns the least bytes of an update, or in inference of a prediction, or `None` if that takes
/// tables of more entries than `limit`. If halos are kept, it is the least of the plans in which
/// each operator that fetches one needs a given tiling, over all these tilings.
pub(crate) fn least_bytes(network: &Network, mesh: &Mesh, limit: usize) -> Option<u64> {
    let mut all = vec![Tensors::new(network, mesh)];
    let sources: BTreeSet<Read> = network.kept_halos.values().copied().collect();
    for (value, at) in sources {
        let signature = signature(&all[0], value);
        let tilings: BTreeSet<Tiling> = all_forms(network, value, mesh)
            .iter()
            .map(|it| signature.operand_tiling(at, it))
            .collect();
        let with = |one: &Tensors<'_>| {
            let extended = |&tiling: &Tiling| {
                let fetched = one.fetched.iter().map(|(&read, &it)| (read, it));
                Tensors {
                    fetched: fetched.chain([((value, at), tiling)]).collect(),
                    ..Tensors::new(network, mesh)
                }
            };
            tilings.iter().map(extended).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    all.iter().map(|it| least(it, limit)).collect::<Option<Vec<u64>>>()?.into_iter().min()
}

/// Returns the least bytes of the plans in which no operator works on partial sums.
pub(crate) fn least_bytes_without_terms(network: &Network, mesh: &Mesh) -> u64 {
    let all = Tensors { has_terms: false, ..Tensors::new(network, mesh) };
    least(&all, usize::MAX).expect("there is no limit")
}

/// Returns the least bytes of the plans whose first cut moves the least, among all ways to cut in
/// two. This is what the best of all greedy choices reaches, however ties are broken.
pub(crate) fn least_bytes_of_greedy_cuts(network: &Network, mesh: &Mesh) -> u64 {
    let all = Tensors { is_greedy: true, ..Tensors::new(network, mesh) };
    let least = least(&all, usize::MAX).expect("there is no limit");
    least % FIRST_CUT
}

/// The weight of a byte of the first cut, if cuts are greedy: more than the bytes of all cuts.
const FIRST_CUT: u64 = 1 << 32;

fn least(all: &Tensors<'_>, limit: usize) -> Option<u64> {
    let order = order(all, limit)?;
    let mut taken = Table { tensors: Vec::new(), least: vec![0] };
    for (at, &value) in order.iter().enumerate() {
        let is_needed =
            |tensor: &usize| order[at + 1..].iter().any(|&it| all.accessed_by(it).contains(tensor));
        taken = taken.with(&least_of_operator(all, value), all, &is_needed);
    }
    taken.least.first().copied()
}

/// Returns the operators of an update in an order that keeps tables small, or `None` if one
/// would be larger than `limit`.
fn order(all: &Tensors<'_>, limit: usize) -> Option<Vec<Value>> {
    let graph = &all.network.graph;
    let is_made = |it: &Value| all.phases.iter().any(|(_, _, is_made)| is_made[it.index()]);
    let is_work = |it: &Value| is_made(it) && graph.operator(*it).is_some();
    let mut left: Vec<Value> = graph.values().filter(is_work).collect();
    let (mut order, mut shared) = (Vec::new(), Vec::new());
    while !left.is_empty() {
        let n_entries = |&it: &Value| all.n_entries(&joined(&shared, &all.accessed_by(it)));
        let next = (0..left.len()).min_by_key(|&it| n_entries(&left[it])).unwrap();
        if n_entries(&left[next]) > limit {
            return None;
        }
        let value = left.swap_remove(next);
        shared = joined(&shared, &all.accessed_by(value));
        shared.retain(|tensor| left.iter().any(|&it| all.accessed_by(it).contains(tensor)));
        order.push(value);
    }
    Some(order)
}

fn joined(some: &[usize], others: &[usize]) -> Vec<usize> {
    let new = others.iter().filter(|it| !some.contains(it));
    some.iter().chain(new).copied().collect()
}

/// The tensors of a network with their tilings. An updated tensor and its next value are one.
struct Tensors<'a> {
    network: &'a Network,
    mesh: &'a Mesh,
    /// The tensor of each value, by index.
    tensor_of: Vec<usize>,
    tilings: Vec<Vec<Tiling>>,
    /// The results of [`Self::conversions`], by the shape and the number of tilings of the tensor,
    /// its pin, the tiling of the partitioning, and whether it is an operand or a result.
    known: RefCell<BTreeMap<Conversions, Rc<[u64]>>>,
    /// The kinds of steps of an update, with their number and a mark for what each computes.
    phases: Vec<(Phase, u64, Vec<bool>)>,
    /// True if the bytes along the first axis count before all others.
    is_greedy: bool,
    /// True if operators may work on partial sums.
    has_terms: bool,
    /// The tilings in which operators read what they fetch a halo of, if the halo is kept.
    fetched: BTreeMap<Read, Tiling>,
}

/// An access of a value: as an operand at a position, or as a result, and how often an update has
/// it.
type Access = (Value, Option<usize>, u64);

/// Returns the kinds of steps of an update: one step that updates, and those that add up gradients
/// before it. Each entry counts as often as it is called.
fn phases(network: &Network) -> Vec<(Phase, u64, Vec<bool>)> {
    let graph = &network.graph;
    let entries = network.entries.iter().enumerate();
    let mut phases: Vec<(Phase, u64, Vec<bool>)> = entries
        .map(|(number, entry)| {
            let next = network.updates[entry.updates.clone()].iter().map(|it| it.1);
            let outputs = network.outputs[entry.outputs.clone()].iter().map(|it| it.1);
            let (phase, left): (Phase, Vec<Value>) = match entry.loss {
                None => (Phase::Evaluate(number), outputs.chain(next).collect()),
                Some(_) => {
                    let loss = network.loss_of(Phase::Train(number)).into_iter();
                    let left = loss.chain(next).chain(entry.gradient_norm);
                    (Phase::Train(number), left.collect())
                }
            };
            (phase, entry.n_calls, graph.ancestors_in(phase, &left))
        })
        .collect();
    let n_accumulated = network.optimizer.accumulate - 1;
    if let Some(loss) = network.loss_of(Phase::Accumulate).filter(|_| n_accumulated > 0) {
        let is_buffer = |it: Value| matches!(graph.node(it).source, Source::Buffer(_));
        let buffers = network.updates.iter().filter(|it| is_buffer(it.0)).map(|it| it.1);
        let sums = network.gradient_sums.iter().map(|it| it.next);
        let left: Vec<Value> = [loss].into_iter().chain(buffers).chain(sums).collect();
        let phase = Phase::Accumulate;
        phases.push((phase, n_accumulated, graph.ancestors_in(phase, &left)));
    }
    phases
}

type Conversions = (Vec<usize>, usize, usize, Option<Tiling>, Tiling, bool);

impl<'a> Tensors<'a> {
    fn new(network: &'a Network, mesh: &'a Mesh) -> Self {
        let sums = network.gradient_sums.iter().map(|it| (it.next, it.state));
        let source_of: BTreeMap<Value, Value> =
            network.updates.iter().map(|&(source, next)| (next, source)).chain(sums).collect();
        let values: Vec<Value> = network.graph.values().collect();
        let tensor_of = values.iter().map(|it| source_of.get(it).unwrap_or(it).index()).collect();
        let tilings = values.iter().map(|&it| all_tilings(network, mesh, it)).collect();
        let (known, phases) = (RefCell::default(), phases(network));
        let (is_greedy, has_terms, fetched) = (false, true, BTreeMap::new());
        Self { network, mesh, tensor_of, tilings, known, phases, is_greedy, has_terms, fetched }
    }

    /// Returns the operands that an operator reads in training, by position, and the value that it
    /// makes.
    fn accesses(&self, value: Value) -> Vec<Access> {
        let graph = &self.network.graph;
        let n_times = |position: Option<usize>| -> u64 {
            let reads = |phase| position.is_none_or(|at| graph.reads(value, at, phase));
            let made = self.phases.iter().filter(|it| it.2[value.index()] && reads(it.0));
            made.map(|it| it.1).sum()
        };
        let operands = graph.operands(value).into_iter().enumerate();
        let read = operands.map(|(at, it)| (it, Some(at), n_times(Some(at))));
        read.filter(|it| it.2 > 0).chain([(value, None, n_times(None))]).collect()
    }

    /// Returns the tensors that an operator reads or writes.
    fn accessed_by(&self, value: Value) -> Vec<usize> {
        let of_uses = self.accesses(value).into_iter().map(|it| self.tensor_of[it.0.index()]);
        of_uses.fold(Vec::new(), |tensors, it| joined(&tensors, &[it]))
    }

    fn n_entries(&self, tensors: &[usize]) -> usize {
        tensors.iter().fold(1, |product: usize, &it| product.saturating_mul(self.tilings[it].len()))
    }

    /// Returns the bytes of every conversion of a value between its tilings and the one that a
    /// partitioning needs or, for the result, gives.
    fn conversions(&self, value: Value, of_form: Tiling, is_result: bool) -> Rc<[u64]> {
        let node = self.network.graph.node(value);
        let cost = |&stored: &Tiling| {
            let (from, to) = if is_result { (of_form, stored) } else { (stored, of_form) };
            // The combination of partial results does not change what moves.
            let bytes = |mesh: &Mesh, from, to| -> u64 {
                let steps = route(mesh, node.shape, node.dtype, Combine::Sum, from, to);
                steps.iter().map(|it| it.bytes(mesh)).sum()
            };
            let first_cut = || {
                let [from, to] = [from, to].map(|it: Tiling| Tiling::new(&it.placements()[..1]));
                FIRST_CUT * bytes(&Mesh::new(self.mesh.size(0)), from, to)
            };
            bytes(self.mesh, from, to) + if self.is_greedy { first_cut() } else { 0 }
        };
        let tilings = &self.tilings[self.tensor_of[value.index()]];
        let source = self.network.graph.values().nth(self.tensor_of[value.index()]).unwrap();
        let pin = self.network.pin(source, self.mesh);
        let (shape, n_tilings) = (node.shape.to_vec(), tilings.len());
        let key = (shape, n_tilings, node.dtype.bytes(), pin, of_form, is_result);
        let all = || tilings.iter().map(cost).collect();
        Rc::clone(self.known.borrow_mut().entry(key).or_insert_with(all))
    }
}

fn all_tilings(network: &Network, mesh: &Mesh, value: Value) -> Vec<Tiling> {
    if let Some(pin) = network.pin(value, mesh) {
        return vec![pin];
    }
    let shape = network.graph.shape(value);
    let rank = u8::try_from(shape.len()).unwrap();
    let splits = (0..rank).map(Placement::Split);
    let may_be_sums = is_of_totals(network, value) || may_be_stored_so(network, mesh, value);
    let sums = may_be_sums.then_some(Placement::Partial);
    let placements: Vec<Placement> =
        [Placement::Replicated].into_iter().chain(splits).chain(sums).collect();
    let mut tilings = vec![Tiling::replicated(mesh.n_axes())];
    for axis in 0..mesh.n_axes() {
        let with = |it: &Tiling| placements.iter().map(|&to| it.with(axis, to)).collect::<Vec<_>>();
        tilings = tilings.iter().flat_map(with).collect();
    }
    tilings.retain(|&tiling| Tile::new(shape, tiling).is_legal(mesh));
    tilings
}

/// Returns whether a tensor may be stored as partial sums along any axes: all its readers add them
/// up.
fn is_of_totals(network: &Network, value: Value) -> bool {
    let graph = &network.graph;
    let users = graph.users(value);
    let is_total = |it: &Value| graph.operator(*it).unwrap().to_string() == "total";
    !users.is_empty() && users.iter().all(is_total) && !network.roots().contains(&value)
}

/// The least bytes for every combination of tilings of some tensors. The last tensor's tilings
/// change fastest.
struct Table {
    tensors: Vec<usize>,
    least: Vec<u64>,
}

impl Table {
    /// Returns the stride of a tensor's tilings; 0 for a tensor that the table lacks.
    fn stride(&self, tensor: usize, all: &Tensors<'_>) -> usize {
        match self.tensors.iter().position(|&it| it == tensor) {
            Some(at) => all.n_entries(&self.tensors[at + 1..]),
            None => 0,
        }
    }

    /// Returns the sum of two tables, minimized over the tensors that are not needed any more.
    fn with(&self, other: &Self, all: &Tensors<'_>, is_needed: &dyn Fn(&usize) -> bool) -> Self {
        let (kept, dropped): (Vec<usize>, Vec<usize>) =
            joined(&self.tensors, &other.tensors).into_iter().partition(is_needed);
        let mut result = Self { least: vec![u64::MAX; all.n_entries(&kept)], tensors: kept };
        let order = joined(&result.tensors, &dropped);
        let n_dropped = all.n_entries(&dropped);
        // The position of the current combination in each table, and its stride along the tilings
        // of each tensor.
        let strides: Vec<[usize; 2]> =
            order.iter().map(|&it| [self.stride(it, all), other.stride(it, all)]).collect();
        let mut digits = vec![0; order.len()];
        let [mut here, mut there] = [0; 2];
        for entry in 0..all.n_entries(&order) {
            let least = &mut result.least[entry / n_dropped];
            *least = (*least).min(self.least[here] + other.least[there]);
            for at in (0..order.len()).rev() {
                let n_tilings = all.tilings[order[at]].len();
                digits[at] += 1;
                here += strides[at][0];
                there += strides[at][1];
                if digits[at] < n_tilings {
                    break;
                }
                digits[at] = 0;
                here -= strides[at][0] * n_tilings;
                there -= strides[at][1] * n_tilings;
            }
        }
        result
    }
}

/// Returns the bytes of an operator's conversions in the best partitioning, for every combination
/// of tilings of its operands and its result.
fn least_of_operator(all: &Tensors<'_>, value: Value) -> Table {
    let tensors = all.accessed_by(value);
    let mut table = Table { least: vec![u64::MAX; all.n_entries(&tensors)], tensors };
    let mut forms = all_forms(all.network, value, all.mesh);
    forms.retain(|it| all.has_terms || !it.has_terms());
    for (&(_, at), tiling) in all.fetched.iter().filter(|it| it.0.0 == value) {
        forms.retain(|it| signature(all, value).operand_tiling(at, it) == *tiling);
    }
    for form in forms {
        let nothing = Table { tensors: Vec::new(), least: vec![0] };
        let of_tensors = table.tensors.iter().map(|&it| of_tensor(all, value, &form, it));
        let sum = of_tensors.fold(nothing, |sum, it| sum.with(&it, all, &|_| true));
        for (least, bytes) in table.least.iter_mut().zip(sum.least) {
            *least = (*least).min(bytes);
        }
    }
    table
}

/// Returns the bytes of the conversions of a tensor for an operator in this partitioning.
fn of_tensor(all: &Tensors<'_>, value: Value, form: &Partitioning, tensor: usize) -> Table {
    let signature = signature(all, value);
    let mut least = vec![0; all.tilings[tensor].len()];
    for (used, operand, n_times) in all.accesses(value) {
        if all.tensor_of[used.index()] != tensor {
            continue;
        }
        let bytes = match operand {
            Some(at) => all.conversions(used, signature.operand_tiling(at, form), false),
            None => all.conversions(used, signature.result_tiling(form), true),
        };
        let of_halo = operand.map_or(0, |at| {
            let tiling = signature.operand_tiling(at, form);
            bytes_of_halo(all, used, &without_kept(all, (value, at), tiling), form)
        });
        least.iter_mut().zip(bytes.iter()).for_each(|(sum, it)| *sum += n_times * (it + of_halo));
    }
    Table { tensors: vec![tensor], least }
}

/// Returns the dims of an operand with the halos that ranks fetch, in this tiling. If the source of
/// the halo needs the same tiling, ranks have its halo. Of several dims, they have all or nothing,
/// because corners would be missing.
fn without_kept(all: &Tensors<'_>, read: Read, tiling: Tiling) -> Vec<Dim> {
    let dims = |(value, at): Read| signature(all, value).operands[at].clone();
    let needed = dims(read);
    let Some(source) = all.network.kept_halos.get(&read) else { return needed };
    if all.fetched.get(source) != Some(&tiling) {
        return needed;
    }
    let is_split = |dim: &usize| !tiling.axes_of(*dim).is_empty();
    let split: Vec<usize> = (0..needed.len()).filter(is_split).collect();
    let (sides, had) = (|dims: &[Dim], at: usize| dims[at].halo.unwrap_or_default(), dims(*source));
    let rest = |&at: &usize| {
        let [own, had] = [sides(&needed, at), sides(&had, at)];
        [0, 1].map(|side| if own[side] <= had[side] { 0 } else { own[side] })
    };
    let rests: Vec<[usize; 2]> = split.iter().map(rest).collect();
    let has_halo = |at: &usize| sides(&needed, *at) != [0; 2] || sides(&had, *at) != [0; 2];
    let is_one = split.iter().filter(|it| has_halo(it)).count() == 1;
    let mut fetched = needed.clone();
    if is_one || rests.iter().all(|it| *it == [0; 2]) {
        split.iter().zip(rests).for_each(|(&at, rest)| fetched[at].halo = Some(rest));
    }
    fetched
}

/// Returns the bytes of the elements within an operand that ranks read around their parts of it.
fn bytes_of_halo(all: &Tensors<'_>, operand: Value, dims: &[Dim], form: &Partitioning) -> u64 {
    let node = all.network.graph.node(operand);
    let parts =
        |dim: &Dim| dim.factor.map_or(1, |factor| all.mesh.group_size(form.axes_of(factor)));
    let n_ranks: usize = dims.iter().map(parts).product();
    // Each rank's range of a dim, with and without the halo.
    let ranges = |dim: &Dim| -> Vec<[usize; 2]> {
        let (n, length) = (parts(dim), dim.extent / parts(dim));
        let [before, after] = dim.halo.filter(|_| n > 1).unwrap_or_default();
        let of_part = |part: usize| {
            let wanted = part * length..(part + 1) * length;
            let is_read = |it: &usize| it + before >= wanted.start && *it < wanted.end + after;
            [(0..dim.extent).filter(is_read).count(), length]
        };
        (0..n).map(of_part).collect()
    };
    let totals = dims.iter().map(ranges).fold([1, 1], |totals: [usize; 2], ranges| {
        [0, 1].map(|at| totals[at] * ranges.iter().map(|it| it[at]).sum::<usize>())
    });
    // Ranks that differ along other axes read as many.
    let n_copies = all.mesh.n_ranks() / n_ranks;
    ((totals[0] - totals[1]) * n_copies * node.dtype.bytes()) as u64
}

fn signature(all: &Tensors<'_>, value: Value) -> Signature {
    let graph = &all.network.graph;
    graph.operator(value).unwrap().signature(&graph.operand_shapes(value))
}
