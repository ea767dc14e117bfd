//! The costs of a plan's conversions from its JSON alone, by counting elements one by one.
//!
//! Nothing of the compiler is used here. Signatures and partitionings determine the tilings of
//! operands and results. A conversion costs what its ranks must receive: elements that they lack,
//! and partial results that they add up.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use soybean_plan::{Mesh, Placement, Shape, Tile, Tiling};

/// The elements before and after a rank's part, by dim.
pub(crate) type Halo = BTreeMap<usize, [usize; 2]>;

/// A conversion of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conversion {
    pub(crate) tensor: u64,
    pub(crate) shape: Vec<usize>,
    pub(crate) element_bytes: u64,
    pub(crate) from: Vec<String>,
    pub(crate) to: Vec<String>,
    /// The elements before and after a rank's part that it receives, too, by dim.
    pub(crate) halo: Halo,
    /// How often the operator runs in the steps of an update.
    pub(crate) times: u64,
    /// The bytes of all these runs according to the plan.
    pub(crate) bytes: u64,
}

/// Returns the conversions that a plan lists, operator by operator.
pub(crate) fn listed(plan: &Value) -> Vec<Conversion> {
    let all = tensors(plan);
    let tensors = &all;
    let of_operator = |operator: &Value| {
        let times = operator.get("times").map_or(1, |it| it.as_u64().unwrap());
        let conversions = operator["conversions"].as_array().unwrap().clone();
        conversions.into_iter().map(move |it| {
            let tensor = it["tensor"].as_u64().unwrap();
            let known = &tensors[&tensor];
            Conversion {
                tensor,
                shape: known.shape.clone(),
                element_bytes: known.element_bytes,
                from: strings(&it["from"]),
                to: strings(&it["to"]),
                times,
                halo: halo_of_json(&it["halo"]),
                bytes: it["bytes"].as_u64().unwrap(),
            }
        })
    };
    plan["ops"].as_array().unwrap().iter().flat_map(of_operator).collect()
}

/// A read of a tensor with a halo.
struct HaloRead {
    tensor: u64,
    tiling: Vec<String>,
    /// The halo if all dims are split.
    widest: Halo,
    halo: Halo,
    /// True if minus infinity is outside the tensor.
    is_of_maxima: bool,
}

impl HaloRead {
    /// Returns the halo that ranks fetch. The first earlier read of the tensor with an equal halo
    /// serves this one in the same tiling, or else the first with a wider halo, or with one that is
    /// as wide on some side.
    fn fetched(&self, earlier: &[Self]) -> Halo {
        let is_alike =
            |it: &&Self| it.tensor == self.tensor && it.is_of_maxima == self.is_of_maxima;
        let alike: Vec<&Self> = earlier.iter().filter(is_alike).collect();
        let left = |it: &Self| rest(&self.widest, &it.widest);
        let is_wider = |it: &&&Self| left(it).values().all(|it| *it == [0; 2]);
        let has_side = |it: &&&Self| left(it) != self.widest;
        let equal = alike.iter().find(|it| it.widest == self.widest);
        let wider = || alike.iter().find(is_wider);
        let Some(source) = equal.or_else(wider).or_else(|| alike.iter().find(has_side)) else {
            return self.halo.clone();
        };
        let mut fetched = rest(&self.halo, &source.halo);
        fetched.retain(|_, sides| *sides != [0; 2]);
        let dims: BTreeSet<&usize> = self.halo.keys().chain(source.halo.keys()).collect();
        // Along several dims, corners would be missing.
        let is_possible = fetched.is_empty() || dims.len() == 1;
        if source.tiling == self.tiling && is_possible { fetched } else { self.halo.clone() }
    }
}

/// Returns the sides of a halo along which another one is not as wide.
fn rest(halo: &Halo, other: &Halo) -> Halo {
    let of_dim = |(dim, sides): (&usize, &[usize; 2])| {
        let had = other.get(dim).copied().unwrap_or_default();
        (*dim, [0, 1].map(|it| if sides[it] <= had[it] { 0 } else { sides[it] }))
    };
    halo.iter().map(of_dim).collect()
}

/// Returns the conversions that follow from the tilings of tensors and the partitionings of
/// operators: tensor, from, to and the halo that is fetched. All operators are those of a step.
pub(crate) fn implied(plan: &Value) -> Vec<(u64, Vec<String>, Vec<String>, Halo)> {
    let tensors = tensors(plan);
    let (mut all, mut earlier) = (Vec::new(), Vec::new());
    for operator in plan["ops"].as_array().unwrap() {
        let signature = operator["signature"].as_str().unwrap();
        let form = strings(&operator["form"]);
        let (operands, result) = signature.split_once("->").unwrap();
        let inputs: Vec<u64> =
            operator["inputs"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).collect();
        let parts = if inputs.is_empty() { vec![] } else { operands.split(',').collect() };
        let mut reads = Vec::new();
        for (at, (input, dims)) in inputs.iter().zip(parts).enumerate() {
            let (dims, widest) = without_halos(dims);
            let to = tiling(&dims, &form, Some(at));
            let mut halo = widest.clone();
            halo.retain(|dim, _| to.contains(&format!("P{dim}")));
            let is_of_maxima =
                at == 0 && operator["name"].as_str().unwrap().starts_with("max-pool");
            let (tensor, tiling) = (*input, to.clone());
            let read = HaloRead { tensor, tiling, widest, halo, is_of_maxima };
            let halo = read.fetched(&earlier);
            all.push((*input, tensors[input].tiling.clone(), to, halo));
            reads.push(read);
        }
        reads.retain(|it| !it.widest.is_empty());
        earlier.append(&mut reads);
        let output = operator["output"].as_u64().unwrap();
        let from = tiling(&without_halos(result).0, &form, None);
        all.push((output, from, tensors[&output].tiling.clone(), Halo::new()));
    }
    all.retain(|(_, from, to, halo)| from != to || !halo.is_empty());
    all
}

fn halo_of_json(halo: &Value) -> Halo {
    let Some(dims) = halo.as_object() else { return Halo::new() };
    let number = |it: &Value| usize::try_from(it.as_u64().unwrap()).unwrap();
    let dim =
        |(dim, it): (&String, &Value)| (dim.parse().unwrap(), [0, 1].map(|at| number(&it[at])));
    dims.iter().map(dim).collect()
}

/// Returns dims such as `ij(k_){1|0}` without their halos, and the halos.
fn without_halos(dims: &str) -> (String, Halo) {
    let (mut letters, mut halo) = (String::new(), Halo::new());
    for (at, part) in dims.split('{').enumerate() {
        let Some((numbers, rest)) = part.split_once('}').filter(|_| at > 0) else {
            letters.push_str(part);
            continue;
        };
        // A dim in brackets has two letters.
        let n_dims = letters.chars().filter(|it| !"()".contains(*it)).count();
        let dim = n_dims - letters.matches('(').count() - 1;
        let (before, after) = numbers.split_once('|').unwrap();
        halo.insert(dim, [before, after].map(|it| it.parse().unwrap()));
        letters.push_str(rest);
    }
    (letters, halo)
}

struct Tensor {
    shape: Vec<usize>,
    element_bytes: u64,
    tiling: Vec<String>,
}

fn tensors(plan: &Value) -> BTreeMap<u64, Tensor> {
    let tensor = |it: &Value| {
        let extents = it["shape"].as_array().unwrap().iter();
        let shape = extents.map(|it| usize::try_from(it.as_u64().unwrap()).unwrap()).collect();
        let element_bytes = if it["dtype"] == "bf16" { 2 } else { 4 };
        let tensor = Tensor { shape, element_bytes, tiling: strings(&it["tiling"]) };
        (it["id"].as_u64().unwrap(), tensor)
    };
    plan["tensors"].as_array().unwrap().iter().map(tensor).collect()
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect()
}

/// Returns the tiling of dims such as `i(j_)(_k)_` of an operand or the result in a partitioning.
/// Along axes whose factor they lack, an operand is replicated, and a result a partial sum. A text
/// that ends in `+` is stored as partial sums along axes without a factor. Along axes of terms, the
/// result is a partial sum, and so are all operands of `+`, and the first and third ones of `+0,2`.
fn tiling(dims: &str, form: &[String], operand: Option<usize>) -> Vec<String> {
    let absent = if operand.is_some() { "r" } else { "red" };
    let idle = if dims.ends_with('+') { "red" } else { "r" };
    let mut letters: Vec<char> = Vec::new();
    let mut is_in_brackets = false;
    for character in dims.chars() {
        match character {
            '(' => is_in_brackets = true,
            ')' => is_in_brackets = false,
            // The rest of a dim of which a factor is a part.
            '_' if is_in_brackets => {}
            it => letters.push(it),
        }
    }
    let placement = |factor: &String| {
        let dim = letters.iter().position(|it| factor.starts_with(*it));
        match (factor.as_str(), dim) {
            ("-", _) => idle.to_owned(),
            (terms, _) if terms.starts_with('+') => {
                let is_of = |at: usize| terms[1..].split(',').any(|it| it == at.to_string());
                let is_term = terms == "+" || operand.is_none_or(is_of);
                (if is_term { "red" } else { "r" }).to_owned()
            }
            (_, Some(dim)) => format!("P{dim}"),
            (_, None) => absent.to_owned(),
        }
    };
    form.iter().map(placement).collect()
}

/// Returns the elements of each rank's tile, as positions in the whole tensor.
fn tiles(mesh: &Mesh, shape: &[usize], tiling: &[String]) -> Vec<BTreeSet<usize>> {
    let placement = |text: &String| match text.strip_prefix('P') {
        Some(dim) => Placement::Split(dim.parse().unwrap()),
        // Every rank has a number for each element, whether a result or a part of one.
        None => Placement::Replicated,
    };
    let tiling = Tiling::new(&tiling.iter().map(placement).collect::<Vec<_>>());
    let tile = Tile::new(Shape::new(shape), tiling);
    let of_rank = |rank: usize| {
        let coordinates = mesh.coordinates(rank);
        (0..shape.len()).fold(BTreeSet::from([0]), |elements, dim| {
            let held = tile.indices(dim, mesh, &coordinates);
            let with = |&at: &usize| held.iter().map(move |it| at * shape[dim] + it);
            elements.iter().flat_map(with).collect()
        })
    };
    (0..mesh.n_ranks()).map(of_rank).collect()
}

/// Returns the fewest bytes that a conversion can move over all ranks. It counts element by
/// element, in each group of ranks that differ only along axes whose placement changes.
///
/// Along axes where a replicated tensor becomes a partial sum, ranks keep shares of what they have.
/// A split tensor is replicated first: ranks know no zeros in place of what they lack.
/// Along axes where a tensor becomes split, they first drop what they will not keep. Of the ranks
/// that then hold an element or a part of it, all but one send it towards a sum. Then each rank
/// that wants the element and lacks it receives it once.
pub(crate) fn fewest_bytes(mesh: &Mesh, it: &Conversion) -> u64 {
    let kept = |(from, to): (&String, &String)| if from == "r" { to } else { from }.clone();
    let kept: Vec<String> = it.from.iter().zip(&it.to).map(kept).collect();
    let (before, after) = (tiles(mesh, &it.shape, &kept), tiles(mesh, &it.shape, &it.to));
    let is_shared = |axis: usize| it.from[axis] == "r" && it.to[axis] == "red";
    let moves = |&axis: &usize| it.from[axis] != it.to[axis] && !is_shared(axis);
    let changed = (0..mesh.n_axes()).filter(moves).collect();
    let groups: BTreeSet<Vec<usize>> =
        (0..mesh.n_ranks()).map(|rank| mesh.group(rank, changed)).collect();
    let mut n_received = 0;
    for group in groups {
        let elements: BTreeSet<&usize> = group.iter().flat_map(|&it| &after[it]).collect();
        for element in elements {
            let holds = |it: &&usize| before[**it].contains(element);
            let wants = |it: &&usize| after[**it].contains(element);
            let (n_parts, n_wanted) =
                (group.iter().filter(holds).count(), group.iter().filter(wants).count());
            let is_there = group.iter().any(|it| holds(&it) && wants(&it));
            n_received += n_parts - 1 + n_wanted - usize::from(is_there);
        }
    }
    n_received as u64 * it.element_bytes + bytes_of_halo(mesh, it)
}

/// Returns the bytes of the elements around its part of a tensor that each rank lacks.
fn bytes_of_halo(mesh: &Mesh, it: &Conversion) -> u64 {
    if it.halo.is_empty() {
        return 0;
    }
    let position = |mut at: usize| -> Vec<usize> {
        let mut place = Vec::new();
        for extent in it.shape.iter().rev() {
            place.insert(0, at % extent);
            at /= extent;
        }
        place
    };
    let mut n_received = 0;
    for part in tiles(mesh, &it.shape, &it.to) {
        let places: Vec<Vec<usize>> = part.iter().map(|&at| position(at)).collect();
        let range = |dim: usize| {
            let along = || places.iter().map(|place| place[dim]);
            let [before, after] = it.halo.get(&dim).copied().unwrap_or_default();
            (along().min().unwrap().saturating_sub(before), along().max().unwrap() + after)
        };
        let ranges: Vec<(usize, usize)> = (0..it.shape.len()).map(range).collect();
        // Along a dim without a halo, the part need not be a block.
        let held: Vec<BTreeSet<usize>> = (0..it.shape.len())
            .map(|dim| places.iter().map(|place| place[dim]).collect())
            .collect();
        let is_read = |at: &usize| {
            position(*at).iter().enumerate().all(|(dim, index)| match it.halo.contains_key(&dim) {
                true => (ranges[dim].0..=ranges[dim].1).contains(index),
                false => held[dim].contains(index),
            })
        };
        let n_read = (0..it.shape.iter().product()).filter(is_read).count();
        n_received += n_read - part.len();
    }
    n_received as u64 * it.element_bytes
}
