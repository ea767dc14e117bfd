//! How the search problem of a network is made: what is alike is found, and counted once.

use std::{collections::BTreeMap, sync::Arc};

use soybean_plan::Mesh;

use super::{Meaning, Pair, Problem, UNIT, Use, Work, bytes_of};
use crate::{
    network::Network,
    operator::Phase,
    tiling::{
        charge::Charges,
        dominance::Variable,
        forms::{Repeating, Sets, Splittable},
        number,
        price::Pricing,
        space::Splits,
    },
    value::Value,
};

/// The most that plans may cost.
const MOST_COST: f64 = (1_u64 << 61) as f64;

impl<'a> Problem<'a> {
    /// The problem without these splits: for each variable, marks for each dim of its tensor or factor of its operator.
    pub(in crate::tiling) fn without(
        network: &'a Network,
        mesh: Mesh,
        is_needless: &[Vec<bool>],
    ) -> Self {
        let mut maker = Maker {
            problem: Self {
                network,
                mesh,
                meanings: Vec::new(),
                pairs: Vec::new(),
                uses: Vec::new(),
                kinds: Vec::new(),
                works: Vec::new(),
                pricing: Arc::new(Pricing::Bytes),
                unit: UNIT,
                evaluation_byte: 0.0,
                charges: Charges::default(),
                total_bytes: network.graph.values().map(|it| bytes_of(network, it)).sum(),
            },
            sets: Sets::new(&mesh),
            may_repeat: network.may_repeat(),
            is_summand: network.summands(),
            uses: BTreeMap::new(),
            kinds: BTreeMap::new(),
        };
        let is_measured = network.measured();
        let (mut measured, mut evaluated) = (0, 0);
        let (variables, tensors) = variables(network);
        for (variable, is_needless) in variables.into_iter().zip(is_needless) {
            maker.add_variable(variable, is_needless);
        }
        for (at, variable) in maker.problem.meanings.clone().into_iter().enumerate() {
            let Meaning::Operator { value, work } = variable else { continue };
            let is_measured = is_measured[value.index()];
            let used = maker.add_pairs(value, at, work, &tensors, is_measured);
            *(if is_measured { &mut measured } else { &mut evaluated }) += used;
        }
        // No conversion of a tensor moves as much as two copies of it to every rank.
        let most = |used: u64| used as f64 * 2.0 * mesh.n_ranks() as f64;
        maker.problem.evaluation_byte = 0.25 / most(evaluated).max(1.0);
        while most(measured) * maker.problem.unit as f64 > MOST_COST && maker.problem.unit > 1 {
            maker.problem.unit /= 2;
        }
        maker.problem
    }
}

/// A problem in the making.
struct Maker<'a> {
    problem: Problem<'a>,
    sets: Sets,
    /// The marks of [`Network::may_repeat`].
    may_repeat: Vec<bool>,
    /// The marks of [`Network::summands`].
    is_summand: Vec<bool>,
    uses: BTreeMap<Use, usize>,
    kinds: BTreeMap<(Vec<usize>, Vec<bool>, bool), usize>,
}

impl Maker<'_> {
    fn add_variable(&mut self, variable: Variable, is_needless: &[bool]) {
        let meaning = match variable {
            Variable::Tensor(value) => {
                Meaning::Tensor { value, kind: self.add_kind(value, is_needless) }
            }
            Variable::Operator(value) => {
                Meaning::Operator { value, work: self.add_work(value, is_needless) }
            }
        };
        self.problem.meanings.push(meaning);
    }

    fn add_kind(&mut self, value: Value, is_needless: &[bool]) -> usize {
        let shape = self.problem.network.graph.shape(value);
        let is_summand = self.is_summand[value.index()];
        let key = (shape.to_vec(), is_needless.to_vec(), is_summand);
        if let Some(&kind) = self.kinds.get(&key) {
            return kind;
        }
        let splits = Splits::looked_up(&mut self.sets, &self.problem.mesh, &shape);
        let splits = splits.without(is_needless);
        let splits = if is_summand { splits.of_summand() } else { splits };
        let number = number(&mut self.problem.kinds, splits);
        self.kinds.insert(key, number);
        number
    }

    fn add_work(&mut self, value: Value, is_needless: &[bool]) -> usize {
        let graph = &self.problem.network.graph;
        let operator = graph.operator(value).expect("an operator computes the tensor");
        let signature = operator.signature(&graph.operand_shapes(value));
        let repeating = match self.may_repeat[value.index()] {
            true => Repeating::Free,
            false => Repeating::Needed,
        };
        let is_same = |it: &Work| {
            it.signature == signature && it.repeating == repeating && it.is_needless == is_needless
        };
        let works = &mut self.problem.works;
        works.iter().position(is_same).unwrap_or_else(|| {
            let splittable = Splittable::new(&signature, &mut self.sets).without(is_needless);
            let is_needless = is_needless.to_vec();
            works.push(Work { signature, splittable, repeating, is_needless });
            works.len() - 1
        })
    }

    /// Adds the pairs of an operator with what it reads and makes; gives the bytes of all that.
    fn add_pairs(
        &mut self,
        user: Value,
        operator: usize,
        work: usize,
        tensors: &[usize],
        is_measured: bool,
    ) -> u64 {
        let network = self.problem.network;
        let is_copy = network.graph.is_copy(user);
        let operands = network.graph.operands(user).into_iter().enumerate();
        let mut uses: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut total = 0;
        for (value, operand) in operands.map(|(at, it)| (it, Some(at))).chain([(user, None)]) {
            let (tensor, bytes) = (tensors[value.index()], bytes_of(network, value));
            let is_read = operand.is_none_or(|at| network.graph.reads(user, at, Phase::Train));
            let Meaning::Tensor { kind, .. } = self.problem.meanings[tensor] else {
                unreachable!("the variable of a tensor")
            };
            let is_measured = is_measured && is_read;
            let usage = self.add_use(Use { kind, bytes, work, operand, is_measured, is_copy });
            total += bytes;
            uses.entry(tensor).or_default().push(usage);
        }
        let pair = |(tensor, uses)| Pair { tensor, operator, uses };
        self.problem.pairs.extend(uses.into_iter().map(pair));
        total
    }

    fn add_use(&mut self, usage: Use) -> usize {
        let uses = &mut self.problem.uses;
        *self.uses.entry(usage).or_insert_with(|| {
            uses.push(usage);
            uses.len() - 1
        })
    }
}

/// The variables of a network; and the variable of each tensor, which a value and its next have in common.
pub(in crate::tiling) fn variables(network: &Network) -> (Vec<Variable>, Vec<usize>) {
    let source_of: BTreeMap<Value, Value> =
        network.updates.iter().map(|&(source, next)| (next, source)).collect();
    let mut variables = Vec::new();
    let mut tensors = Vec::with_capacity(network.graph.n_values());
    for value in network.graph.values() {
        if network.graph.operator(value).is_some() {
            variables.push(Variable::Operator(value));
        }
        tensors.push(source_of.get(&value).map_or(variables.len(), |it| tensors[it.index()]));
        if !source_of.contains_key(&value) {
            variables.push(Variable::Tensor(value));
        }
    }
    (variables, tensors)
}
