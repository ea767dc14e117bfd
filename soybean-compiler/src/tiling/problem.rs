//! The search problem of a network on a mesh: a variable for each tensor's tiling and for each operator's form, and the costs of their pairs.
//!
//! A cost is bytes that a training step moves over all ranks, times [`BYTE`], plus shares below that of the bytes that only evaluations move and of
//! memory, so that among plans of equal bytes the one that evaluates with fewer and stores the least wins. Tables are made for the states that a search wants, and once for all pairs that are alike: layers repeat.

use std::{collections::BTreeMap, rc::Rc};

use soybean_plan::{Mesh, Placement, Tiling};

use super::{
    dominance::worth_splitting,
    pairwise::{Edge, Numbers, Pairwise},
    space::{Space, Splits},
    tiled::Tiled,
};
use crate::{
    graph::{Phase, Value},
    network::Network,
    operator::{Operator, Rules},
    pin,
    signature::{Form, Signature, forms, repeating_forms},
};

/// The cost of one byte moved.
pub(super) const BYTE: i64 = 1 << 20;

/// The costs of all tilings of a network, and what its variables stand for.
pub(super) struct Problem<'a> {
    pub(super) network: &'a Network,
    pub(super) mesh: Mesh,
    n_ranks: u64,
    pub(super) meanings: Vec<Meaning>,
    /// Which operators read and make which tensors.
    pub(super) pairs: Vec<Pair>,
    pub(super) uses: Vec<Use>,
    use_numbers: BTreeMap<(usize, u64, usize, Option<usize>, bool), usize>,
    /// The cost of one byte that only an evaluation moves.
    evaluation_byte: f64,
    /// For each variable the cost of each of its states.
    unary: Vec<Vec<i64>>,
    spaces: Vec<Space>,
    space_numbers: BTreeMap<Vec<usize>, usize>,
    works: Vec<Work>,
    /// For each variable, and each dim of its tensor or factor of its operator, whether any search need split it.
    pub(super) worth_splitting: Vec<Vec<bool>>,
}

/// What a variable stands for.
pub(super) enum Meaning {
    /// The tiling of this tensor, and of its next value if it is updated.
    Tensor { value: Value, space: usize },
    /// The form in which this tensor is computed.
    Operator { value: Value, work: usize },
}

/// What operators with the same signature have in common.
pub(super) struct Work {
    pub(super) signature: Signature,
    /// Whether ranks may repeat each other's work.
    may_repeat: bool,
    pub(super) forms: Vec<Form>,
}

/// A tensor that an operator reads or makes.
pub(super) struct Pair {
    /// The tensor's variable.
    pub(super) tensor: usize,
    /// The operator's variable.
    pub(super) operator: usize,
    /// How it is used, by number: in more than one way where an operator reads a tensor twice, or a value and its next are one variable.
    pub(super) uses: Vec<usize>,
}

impl Pair {
    /// Where the entry of a state of the tensor and one of the operator stands in the pair's table.
    pub(super) fn position(
        &self,
        tiling: usize,
        form: usize,
        n_tilings: usize,
        n_forms: usize,
    ) -> usize {
        if self.tensor < self.operator {
            tiling * n_forms + form
        } else {
            form * n_tilings + tiling
        }
    }

    /// The edge with this table. Pairs with the same uses have their variables in the same order.
    pub(super) fn edge(&self, table: Rc<[i64]>) -> Edge {
        let (first, second) = (self.tensor.min(self.operator), self.tensor.max(self.operator));
        Edge { first, second, table }
    }
}

/// A way to use a tensor, shared by all pairs that are alike.
pub(super) struct Use {
    pub(super) space: usize,
    pub(super) bytes: u64,
    pub(super) work: usize,
    /// Which operand of the operator the tensor is; none if it is the result.
    pub(super) operand: Option<usize>,
    /// Whether a training step has it; otherwise an evaluation alone.
    pub(super) is_trained: bool,
    /// For each form, the position of the tiling that it needs or gives.
    positions: Vec<usize>,
}

impl<'a> Problem<'a> {
    pub(super) fn new(network: &'a Network, mesh: Mesh) -> Self {
        let mut this = Self {
            network,
            mesh,
            n_ranks: mesh.n_ranks() as u64,
            meanings: Vec::new(),
            pairs: Vec::new(),
            uses: Vec::new(),
            use_numbers: BTreeMap::new(),
            evaluation_byte: 0.0,
            unary: Vec::new(),
            spaces: Vec::new(),
            space_numbers: BTreeMap::new(),
            works: Vec::new(),
            worth_splitting: Vec::new(),
        };
        let source_of: BTreeMap<Value, Value> =
            network.updates.iter().map(|&(source, next)| (next, source)).collect();
        let total: u64 = network.graph.values().map(|it| this.bytes_of(it)).sum();
        let is_trained = network.trained();
        let mut evaluated = 0;
        let mut tensors = Vec::with_capacity(network.graph.n_values());
        for value in network.graph.values() {
            let operator = network.graph.operator(value).map(|it| this.add_operator(value, it));
            tensors.push(match source_of.get(&value) {
                Some(source) => tensors[source.index()],
                None => this.add_tensor(value, total),
            });
            if let Some(operator) = operator {
                let is_trained = is_trained[value.index()];
                let used = this.add_pairs(value, operator, &tensors, is_trained);
                evaluated += if is_trained { 0 } else { used };
            }
        }
        // No conversion of a tensor moves as much as two copies of it to every rank.
        let most = evaluated as f64 * 2.0 * mesh.n_ranks() as f64;
        this.evaluation_byte = (BYTE / 4) as f64 / most.max(1.0);
        this.worth_splitting = worth_splitting(&this);
        this
    }

    fn add_operator(&mut self, value: Value, operator: &Operator) -> usize {
        let signature = operator.signature(&self.network.graph.operand_shapes(value));
        let work = self.add_work(signature, operator.is_cast());
        self.meanings.push(Meaning::Operator { value, work });
        self.unary.push(vec![0; self.works[work].forms.len()]);
        self.unary.len() - 1
    }

    fn add_tensor(&mut self, value: Value, total_bytes: u64) -> usize {
        let space = self.add_space(value);
        // Memory counts for less than one byte moved, whatever its sum over all tensors.
        let share = |n_parts: u64| {
            (self.bytes_of(value) / n_parts) as f64 / total_bytes as f64 * (BYTE / 2) as f64
        };
        #[expect(clippy::cast_possible_truncation, reason = "shares lie in 0..=2^19")]
        let shares = (0..self.spaces[space].stored().len())
            .map(|it| share(self.spaces[space].n_parts(it)) as i64)
            .collect();
        self.unary.push(shares);
        self.meanings.push(Meaning::Tensor { value, space });
        self.unary.len() - 1
    }

    fn bytes_of(&self, value: Value) -> u64 {
        let node = self.network.graph.node(value);
        (node.shape.n_elements() * node.dtype.bytes()) as u64
    }

    fn add_space(&mut self, value: Value) -> usize {
        let shape = self.network.graph.shape(value).to_vec();
        if let Some(&space) = self.space_numbers.get(&shape) {
            return space;
        }
        let splits = Splits::new(&self.mesh, &self.network.graph.shape(value));
        let number =
            self.spaces.iter().position(|it| *it.splits() == splits).unwrap_or_else(|| {
                self.spaces.push(Space::new(splits));
                self.spaces.len() - 1
            });
        self.space_numbers.insert(shape, number);
        number
    }

    fn add_work(&mut self, signature: Signature, may_repeat: bool) -> usize {
        let is_same = |it: &Work| it.signature == signature && it.may_repeat == may_repeat;
        let forms_of = if may_repeat { repeating_forms } else { forms };
        self.works.iter().position(is_same).unwrap_or_else(|| {
            let forms = forms_of(&signature, &self.mesh);
            self.works.push(Work { signature, may_repeat, forms });
            self.works.len() - 1
        })
    }

    /// Adds the pairs of an operator with what it reads and makes; gives the bytes of all that.
    fn add_pairs(
        &mut self,
        user: Value,
        operator: usize,
        tensors: &[usize],
        is_trained: bool,
    ) -> u64 {
        let Meaning::Operator { work, .. } = self.meanings[operator] else {
            unreachable!("this variable is an operator's")
        };
        let operands = self.network.graph.operands(user).into_iter().enumerate();
        let mut uses: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut total = 0;
        for (value, operand) in operands.map(|(at, it)| (it, Some(at))).chain([(user, None)]) {
            let (tensor, bytes) = (tensors[value.index()], self.bytes_of(value));
            let is_read = operand.is_none_or(|at| self.network.graph.reads(user, at, Phase::Train));
            let usage = self.add_use(tensor, bytes, work, operand, is_trained && is_read);
            total += bytes;
            uses.entry(tensor).or_default().push(usage);
        }
        self.pairs.extend(uses.into_iter().map(|(tensor, uses)| Pair { tensor, operator, uses }));
        total
    }

    fn add_use(
        &mut self,
        tensor: usize,
        bytes: u64,
        work: usize,
        operand: Option<usize>,
        is_trained: bool,
    ) -> usize {
        let Meaning::Tensor { space, .. } = self.meanings[tensor] else {
            unreachable!("tensors come before operators")
        };
        let key = (space, bytes, work, operand, is_trained);
        if let Some(&number) = self.use_numbers.get(&key) {
            return number;
        }
        let Work { signature, forms, .. } = &self.works[work];
        let tiling = |form: &Form| match operand {
            Some(operand) => signature.operand_tiling(operand, form),
            None => signature.result_tiling(form),
        };
        let positions =
            forms.iter().map(|form| self.spaces[space].position(&tiling(form))).collect();
        self.uses.push(Use { space, bytes, work, operand, is_trained, positions });
        self.use_numbers.insert(key, self.uses.len() - 1);
        self.uses.len() - 1
    }

    /// The cost of converting between a tensor's tiling and the tiling that an operator's form needs or gives.
    fn cost_of_use(&self, usage: &Use, tiling: usize, form: usize) -> i64 {
        let other = usage.positions[form];
        let (from, to) = if usage.operand.is_some() { (tiling, other) } else { (other, tiling) };
        let units = self.spaces[usage.space].cost(from, to);
        if units == 0 {
            return 0;
        }
        let bytes = units * usage.bytes / self.n_ranks;
        #[expect(clippy::cast_possible_truncation, reason = "shares lie below 2^18")]
        if !usage.is_trained {
            return (bytes as f64 * self.evaluation_byte) as i64;
        }
        bytes as i64 * BYTE
    }

    /// The cost of one state for each variable.
    pub(super) fn cost(&self, states: &[usize]) -> i64 {
        let unary: i64 = self.unary.iter().zip(states).map(|(costs, &state)| costs[state]).sum();
        let of_pair = |pair: &Pair| -> i64 {
            let (tiling, form) = (states[pair.tensor], states[pair.operator]);
            pair.uses.iter().map(|&it| self.cost_of_use(&self.uses[it], tiling, form)).sum()
        };
        unary + self.pairs.iter().map(of_pair).sum::<i64>()
    }

    /// The entries of all tables over some of each variable's states.
    pub(super) fn n_entries(&self, kept: &[Vec<usize>]) -> usize {
        self.pairs.iter().map(|it| kept[it.tensor].len() * kept[it.operator].len()).sum()
    }

    /// The costs over some of each variable's states.
    pub(super) fn restricted(&self, kept: &[Vec<usize>]) -> Pairwise {
        let unary = self
            .unary
            .iter()
            .zip(kept)
            .map(|(costs, kept)| kept.iter().map(|&it| costs[it]).collect())
            .collect();
        let mut numbers = Numbers::default();
        let of_kept: Vec<usize> = kept.iter().map(|it| numbers.of(it)).collect();
        let mut known: BTreeMap<[usize; 3], Rc<[i64]>> = BTreeMap::new();
        let mut edges = Vec::with_capacity(self.pairs.len());
        for pair in &self.pairs {
            let key = [numbers.of(&pair.uses), of_kept[pair.tensor], of_kept[pair.operator]];
            let (rows, columns) = (&kept[pair.tensor][..], &kept[pair.operator][..]);
            let table = known.entry(key).or_insert_with(|| self.table(pair, rows, columns));
            edges.push(pair.edge(Rc::clone(table)));
        }
        Pairwise { unary, edges }
    }

    fn table(&self, pair: &Pair, rows: &[usize], columns: &[usize]) -> Rc<[i64]> {
        let mut table = vec![0; rows.len() * columns.len()];
        for usage in pair.uses.iter().map(|&it| &self.uses[it]) {
            for (row, &tiling) in rows.iter().enumerate() {
                for (column, &form) in columns.iter().enumerate() {
                    let at = pair.position(row, column, rows.len(), columns.len());
                    table[at] += self.cost_of_use(usage, tiling, form);
                }
            }
        }
        table.into()
    }

    /// The tiling to which a user pins the tensor of a variable, if it fits the mesh.
    pub(super) fn pin(&self, variable: usize) -> Option<Tiling> {
        let Meaning::Tensor { value, .. } = self.meanings[variable] else { return None };
        let node = self.network.graph.node(value);
        let tiling = node.pinned?.on(&self.mesh)?;
        pin::is_legal(&self.mesh, &node.shape, tiling).then_some(tiling)
    }

    /// The states of every variable that split nothing needlessly; of pinned tensors, the one that they are pinned to.
    pub(super) fn states_worth_it(&self) -> Vec<Vec<usize>> {
        let of_variable = |(variable, worth): (usize, &Vec<bool>)| {
            let is_worth_it = |split: u8| worth[split as usize];
            match self.meanings[variable] {
                Meaning::Tensor { space, .. } => {
                    let tilings = self.spaces[space].stored();
                    if let Some(pin) = self.pin(variable) {
                        return vec![self.spaces[space].position(&pin)];
                    }
                    states(tilings.len(), |it| {
                        tilings[it].placements().iter().all(|&it| match it {
                            Placement::Split(dim) => is_worth_it(dim),
                            Placement::Replicated | Placement::Partial => true,
                        })
                    })
                }
                Meaning::Operator { work, .. } => {
                    let forms = &self.works[work].forms;
                    states(forms.len(), |it| {
                        forms[it].0.iter().flatten().all(|&it| is_worth_it(it))
                    })
                }
            }
        };
        self.worth_splitting.iter().enumerate().map(of_variable).collect()
    }

    /// All states of every variable.
    #[cfg(test)]
    pub(super) fn all_states(&self) -> Vec<Vec<usize>> {
        self.unary.iter().map(|it| (0..it.len()).collect()).collect()
    }

    /// The tilings of a tensor variable.
    pub(super) fn space(&self, space: usize) -> &Space {
        &self.spaces[space]
    }

    /// What the operators of this work have in common.
    pub(super) fn work(&self, work: usize) -> &Work {
        &self.works[work]
    }

    /// Whether two states of a variable differ along this axis at most.
    pub(super) fn agree_off(&self, variable: usize, one: usize, other: usize, axis: usize) -> bool {
        let mut axes = (0..self.mesh.n_axes()).filter(|&it| it != axis);
        match self.meanings[variable] {
            Meaning::Tensor { space, .. } => {
                let tilings = self.spaces[space].stored();
                axes.all(|it| tilings[one].on(it) == tilings[other].on(it))
            }
            Meaning::Operator { work, .. } => {
                let forms = &self.works[work].forms;
                axes.all(|it| forms[one].0[it] == forms[other].0[it])
            }
        }
    }

    /// The plan that these states stand for.
    pub(super) fn tiled(&self, states: &[usize]) -> Tiled {
        let n_values = self.network.graph.n_values();
        let mut tilings = vec![Tiling::replicated(self.mesh.n_axes()); n_values];
        let mut forms = vec![None; n_values];
        for (meaning, &state) in self.meanings.iter().zip(states) {
            match *meaning {
                Meaning::Tensor { value, space } => {
                    tilings[value.index()] = self.spaces[space].stored()[state];
                }
                Meaning::Operator { value, work } => {
                    forms[value.index()] = Some(self.works[work].forms[state].clone());
                }
            }
        }
        for &(source, next) in &self.network.updates {
            tilings[next.index()] = tilings[source.index()];
        }
        Tiled { network: self.network.clone(), mesh: self.mesh, tilings, forms }
    }
}

/// The states for which this holds.
fn states(n_states: usize, condition: impl Fn(usize) -> bool) -> Vec<usize> {
    (0..n_states).filter(|&it| condition(it)).collect()
}
