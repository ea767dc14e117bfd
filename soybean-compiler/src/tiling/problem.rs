//! The search problem of a network on a mesh: a variable for each tensor's tiling and for each operator's form, and the pairs of them that cost something.
//!
//! A cost is bytes that a training step, or in inference a prediction, moves over all ranks, times [`UNIT`], plus shares below that of the bytes that only evaluations move and of
//! memory, so that among plans of equal bytes the one that evaluates with fewer and stores the least wins. What variables can be chosen is another
//! matter: see [`super::view`].

pub(super) mod maker;

use std::sync::Arc;

use soybean_plan::{Mesh, Tiling, Topology};

use super::{
    charge::Charges,
    dominance::needless_splits,
    forms::{Repeating, Splittable, completed},
    price::{Price, Pricing},
    space::Splits,
    tiled::Tiled,
};
use crate::{
    graph::Value,
    network::Network,
    operator::Operator,
    signature::{Form, Signature},
};

/// The cost of one whole unit, of one byte moved or of one tick, unless a plan might then cost more than a number can say.
pub(super) const UNIT: i64 = 1 << 20;
/// The most of it beside charges for memory, which have to fit into a number too.
const UNIT_WHERE_CHARGED: i64 = 1 << 8;

/// The work of a search that is to prove its optimum for up to 8 ranks, in table entries: about a
/// second in an unoptimised build.
pub(super) const WORK: u64 = 1 << 27;
/// The number of variables for which work is stated.
const N_VARIABLES: u64 = 1 << 12;

/// The variables of a network on a mesh, and which of them depend on each other.
pub(super) struct Problem<'a> {
    pub(super) network: &'a Network,
    pub(super) mesh: Mesh,
    pub(super) meanings: Vec<Meaning>,
    /// Which operators read and make which tensors.
    pub(super) pairs: Vec<Pair>,
    pub(super) uses: Vec<Use>,
    /// The tensors that are alike in what can split them.
    pub(super) kinds: Vec<Splits>,
    pub(super) works: Vec<Work>,
    /// What is counted.
    pub(super) pricing: Arc<Pricing>,
    /// The cost of one whole unit where memory costs nothing.
    unit: i64,
    /// What one byte that only an evaluation moves counts, in units.
    evaluation_byte: f64,
    /// The bytes of all tensors together.
    pub(super) total_bytes: u64,
    /// What memory costs.
    pub(super) charges: Charges,
}

/// What a variable stands for.
#[derive(Clone, Copy)]
pub(super) enum Meaning {
    /// The tiling of this tensor, and of its next value if it is updated.
    Tensor { value: Value, kind: usize },
    /// The form in which this tensor is computed.
    Operator { value: Value, work: usize },
}

/// What is chosen for a variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Choice {
    Tensor(Tiling),
    Operator(Form),
}

/// A choice for every variable.
pub(super) type Plan = Vec<Choice>;

/// What operators with the same signature have in common.
pub(super) struct Work {
    pub(super) signature: Signature,
    pub(super) splittable: Splittable,
    /// Whether ranks may repeat each other's work.
    pub(super) repeating: Repeating,
    is_needless: Vec<bool>,
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

/// A way to use a tensor, shared by all pairs that are alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    pub(super) kind: usize,
    pub(super) bytes: u64,
    pub(super) work: usize,
    /// Which operand of the operator the tensor is; none if it is the result.
    pub(super) operand: Option<usize>,
    /// Whether plans are measured by it; otherwise an evaluation beside training has it alone.
    pub(super) is_measured: bool,
    /// Whether the operator makes a working copy.
    pub(super) is_copy: bool,
}

impl<'a> Problem<'a> {
    pub(super) fn new(network: &'a Network, mesh: Mesh) -> Self {
        let is_needless = needless_splits(network, &mesh);
        Self::without(network, mesh, &is_needless)
    }

    /// The same with times on this machine as costs.
    pub(super) fn timed(self, topology: &Topology) -> Self {
        Self { pricing: Arc::new(Pricing::time(self.network, topology)), ..self }
    }

    /// The work of a search that is stated for a network of common size: larger ones get as many times as much.
    pub(super) fn work(&self, stated: u64) -> u64 {
        stated * (self.meanings.len() as u64).div_ceil(N_VARIABLES).max(1)
    }

    /// The tiling to which a user pins the tensor of a variable, if it fits the mesh.
    pub(super) fn pin(&self, variable: usize) -> Option<Tiling> {
        let Meaning::Tensor { value, .. } = self.meanings[variable] else { return None };
        self.network.pin(value, &self.mesh)
    }

    /// Whether plans cost the same with these two axes exchanged, and users pin no tensor differently along them.
    pub(super) fn are_alike(&self, one: usize, other: usize) -> bool {
        let is_pinned_alike =
            |variable| self.pin(variable).is_none_or(|it| it.on(one) == it.on(other));
        self.mesh.size(one) == self.mesh.size(other)
            && self.pricing.level(one) == self.pricing.level(other)
            && (0..self.meanings.len()).all(is_pinned_alike)
    }

    /// The cost of a use, given [`Splits::price`].
    pub(super) fn cost_of_use(&self, usage: &Use, price: Price) -> i64 {
        self.cost_of_use_by(&self.pricing, usage, price)
    }

    fn cost_of_use_by(&self, pricing: &Pricing, usage: &Use, price: Price) -> i64 {
        if price == Price::NONE {
            return 0;
        }
        let n_ranks = self.mesh.n_ranks() as u64;
        if usage.is_measured {
            return pricing.measured(price, usage.bytes, n_ranks) * self.unit();
        }
        let part = pricing.evaluated(price, usage.bytes, n_ranks, self.evaluation_byte);
        self.part_of_unit(part)
    }

    /// The cost of one whole unit.
    pub(super) fn unit(&self) -> i64 {
        if self.charges.are_none() { self.unit } else { self.unit.min(UNIT_WHERE_CHARGED) }
    }

    /// The cost of less than a unit.
    #[expect(clippy::cast_possible_truncation, reason = "a unit is at most 2^20")]
    pub(super) fn part_of_unit(&self, part: f64) -> i64 {
        (part * self.unit() as f64) as i64
    }

    /// The whole units of a cost, without what decides ties.
    pub(super) fn whole(&self, cost: i64) -> u64 {
        u64::try_from(cost / self.unit()).expect("costs are not negative")
    }

    /// The tiling that an operator's form needs or gives where it uses a tensor.
    pub(super) fn tiling_of_use(&self, usage: &Use, form: &Form) -> Tiling {
        let signature = &self.works[usage.work].signature;
        match usage.operand {
            Some(operand) => signature.operand_tiling(operand, form),
            None => signature.result_tiling(form),
        }
    }

    /// The cost of a plan.
    pub(super) fn cost(&self, plan: &[Choice]) -> i64 {
        self.cost_by(&self.pricing, plan)
    }

    /// The bytes that a plan moves, whatever is counted.
    pub(super) fn bytes(&self, plan: &[Choice]) -> u64 {
        self.whole(self.cost_by(&Pricing::Bytes, plan))
    }

    fn cost_by(&self, pricing: &Pricing, plan: &[Choice]) -> i64 {
        let of_choice =
            |(variable, it): (usize, &Choice)| self.cost_of_choice(pricing, variable, it);
        let of_pair = |pair: &Pair| {
            let (tiling, form) = (plan[pair.tensor].tiling(), plan[pair.operator].form());
            self.cost_of_pair(pricing, pair, tiling, form)
        };
        plan.iter().enumerate().map(of_choice).sum::<i64>()
            + self.pairs.iter().map(of_pair).sum::<i64>()
    }

    /// What a variable's choice costs, whatever the others are.
    pub(super) fn cost_of_choice(
        &self,
        pricing: &Pricing,
        variable: usize,
        choice: &Choice,
    ) -> i64 {
        match self.meanings[variable] {
            Meaning::Tensor { value, kind } => {
                let n_parts = self.kinds[kind].n_parts(&choice.tiling());
                self.cost_of_storage(value, n_parts) + self.charge_of_storage(value, n_parts)
            }
            Meaning::Operator { value, work } => {
                self.unit() * pricing.kernel(self.network, value, choice.form())
                    + self.charge_of_form(value, work, choice.form())
            }
        }
    }

    /// What the choices of a pair cost together.
    pub(super) fn cost_of_pair(
        &self,
        pricing: &Pricing,
        pair: &Pair,
        tiling: Tiling,
        form: &Form,
    ) -> i64 {
        let of_use = |usage: &Use| {
            self.cost_of_conversion(pricing, usage, tiling, self.tiling_of_use(usage, form))
        };
        pair.uses.iter().map(|&it| of_use(&self.uses[it])).sum::<i64>()
            + self.charge_of_choices(pair, tiling, form)
    }

    /// What it costs to have a tensor in this tiling where a use of it needs or gives another.
    pub(super) fn cost_of_conversion(
        &self,
        pricing: &Pricing,
        usage: &Use,
        tiling: Tiling,
        other: Tiling,
    ) -> i64 {
        if tiling == other {
            return 0;
        }
        let (from, to) = if usage.operand.is_some() { (tiling, other) } else { (other, tiling) };
        let price = self.kinds[usage.kind].price(pricing, from, to);
        let n_parts = self.kinds[usage.kind].n_parts(&to);
        self.cost_of_use_by(pricing, usage, price) + self.cost_of_copy(usage, n_parts)
    }

    /// What the choices of a pair cost together in memory.
    pub(super) fn charge_of_choices(&self, pair: &Pair, tiling: Tiling, form: &Form) -> i64 {
        let n_parts = |usage: usize| {
            let Use { kind, operand, .. } = self.uses[usage];
            let other = self.tiling_of_use(&self.uses[usage], form);
            let to = if operand.is_some() { other } else { tiling };
            (other != tiling).then(|| self.kinds[kind].n_parts(&to))
        };
        self.charge_of_pair(pair, n_parts)
    }

    /// The plan without work that is repeated needlessly.
    pub(super) fn completed(&self, mut plan: Plan) -> Plan {
        for (meaning, choice) in self.meanings.iter().zip(&mut plan) {
            if let (Meaning::Operator { work, .. }, Choice::Operator(form)) = (meaning, choice)
                && self.works[*work].repeating == Repeating::Needed
            {
                *form = completed(&self.works[*work].splittable, form);
            }
        }
        plan
    }

    /// The tiled network that a plan stands for.
    pub(super) fn tiled(&self, plan: &[Choice]) -> Tiled {
        let n_values = self.network.graph.n_values();
        let mut tilings = vec![Tiling::replicated(self.mesh.n_axes()); n_values];
        let mut forms = vec![None; n_values];
        for (meaning, choice) in self.meanings.iter().zip(plan) {
            match *meaning {
                Meaning::Tensor { value, .. } => tilings[value.index()] = choice.tiling(),
                Meaning::Operator { value, .. } => {
                    forms[value.index()] = Some(choice.form().clone());
                }
            }
        }
        for &(source, next) in &self.network.updates {
            tilings[next.index()] = tilings[source.index()];
        }
        Tiled { network: self.network.clone(), mesh: self.mesh, tilings, forms }
    }
}

impl Choice {
    /// What was chosen for a tensor.
    pub(super) fn tiling(&self) -> Tiling {
        match self {
            Self::Tensor(tiling) => *tiling,
            Self::Operator(_) => unreachable!("only tensors have tilings"),
        }
    }

    /// What was chosen for an operator.
    pub(super) fn form(&self) -> &Form {
        match self {
            Self::Operator(form) => form,
            Self::Tensor(_) => unreachable!("only operators have forms"),
        }
    }
}

pub(super) fn bytes_of(network: &Network, value: Value) -> u64 {
    let node = network.graph.node(value);
    (node.shape.n_elements() * node.dtype.bytes()) as u64
}

/// The operator of a value that one computes.
pub(super) fn operator_of(network: &Network, value: Value) -> &Operator {
    network.graph.operator(value).expect("an operator computes the tensor")
}
