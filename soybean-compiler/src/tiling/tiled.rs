//! TiledNetwork networks: the result of the search, and the conversions that follow from it.

use std::fmt;

use soybean_plan::{Collective, Combine, Halo, Mesh, Tiling};

use super::conversion::{halo_exchange, route};
use crate::{
    network::Network,
    operator::Phase,
    signature::{Partitioning, Signature, TERMS, letter},
    value::Value,
};

/// A network with a tiling for every tensor and a partitioning for every operator.
#[derive(Clone, Debug)]
pub struct TiledNetwork {
    /// The network.
    pub network: Network,
    /// The mesh of ranks.
    pub mesh: Mesh,
    /// The tiling in which each tensor is stored, by its index.
    pub tilings: Vec<Tiling>,
    /// The partitioning in which each tensor is computed, by its index; `None` for tensors that no
    /// operator computes.
    pub forms: Vec<Option<Partitioning>>,
}

/// A conversion of a tensor's tiling, before or after an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// The tensor.
    pub value: Value,
    /// The tiling before.
    pub from: Tiling,
    /// The tiling after.
    pub to: Tiling,
    /// The elements around its part that a rank has after.
    pub halo: Halo,
    /// The combination of partial results; for a halo, the one whose identity lies outside.
    pub combine: Combine,
    /// The bytes moved between ranks, over all ranks.
    pub bytes: u64,
}

impl Conversion {
    /// Returns whether a rank has the same elements before and after.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.from == self.to && self.halo.is_none()
    }
}

impl TiledNetwork {
    /// Returns the signature and the partitioning of an operator.
    ///
    /// # Panics
    /// If no operator computes the tensor.
    #[must_use]
    pub fn signature(&self, value: Value) -> (Signature, &Partitioning) {
        let graph = &self.network.graph;
        let operator = graph.operator(value).expect("an operator computes the tensor");
        let partitioning =
            self.forms[value.index()].as_ref().expect("every operator has a partitioning");
        (operator.signature(&graph.operand_shapes(value)), partitioning)
    }

    /// Returns the conversions of an operator: of each operand, then of its result. Conversions
    /// that change nothing are included.
    ///
    /// # Panics
    /// If no operator computes the tensor.
    #[must_use]
    pub fn conversions(&self, value: Value) -> Vec<Conversion> {
        let (signature, partitioning) = self.signature(value);
        let operands = self.network.graph.operands(value);
        let operand = |(position, &operand): (usize, &Value)| {
            let to = signature.operand_tiling(position, partitioning);
            let halo = signature.halo(Some(position), &to);
            let outside = self.outside(value, position);
            self.conversion(operand, [self.tilings[operand.index()], to], halo, outside)
        };
        let mut conversions: Vec<Conversion> = operands.iter().enumerate().map(operand).collect();
        let from = signature.result_tiling(partitioning);
        let to = self.tilings[value.index()];
        conversions.push(self.conversion(value, [from, to], Halo::NONE, signature.combine));
        conversions
    }

    /// Returns the same as [`Self::conversions`], with no bytes for what only an evaluation during
    /// training needs. `is_measured` has the marks of [`Network::measured`].
    ///
    /// # Panics
    /// If no operator computes the tensor.
    #[must_use]
    pub fn conversions_of_step(&self, value: Value, is_measured: &[bool]) -> Vec<Conversion> {
        let mut conversions = self.conversions(value);
        // The last one is the result's.
        let result = conversions.len() - 1;
        let is_read = |at: usize| at == result || self.network.graph.reads(value, at, Phase::Train);
        for (at, conversion) in conversions.iter_mut().enumerate() {
            if !is_measured[value.index()] || !is_read(at) {
                conversion.bytes = 0;
            }
        }
        conversions
    }

    /// Returns the operations of one training step, or in inference of one prediction, over all
    /// ranks. All ranks compute equally much, so this is that of the busiest rank times the ranks.
    #[must_use]
    pub fn operations(&self) -> f64 {
        let is_measured = self.network.measured();
        let is_made = |it: &Value| is_measured[it.index()] && self.forms[it.index()].is_some();
        self.network.graph.values().filter(is_made).map(|it| self.operations_of(it)).sum()
    }

    /// Returns the operations of one operator over all ranks.
    pub(crate) fn operations_of(&self, value: Value) -> f64 {
        self.network.graph.flops(value) as f64 * self.n_copies(value) as f64
    }

    /// Returns the largest number of parts into which dim 0 of an input is split.
    pub(crate) fn parts_of_batch(&self) -> usize {
        let parts = |it: &Value| self.mesh.group_size(self.tilings[it.index()].axes_of(0));
        self.network.inputs.iter().map(parts).max().unwrap_or(1)
    }

    /// Returns the number of ranks that compute the same elements of a tensor.
    pub(crate) fn n_copies(&self, value: Value) -> usize {
        let form = self.forms[value.index()].as_ref();
        self.mesh.n_ranks() / form.map_or(1, |it| self.ranks_at_work(it))
    }

    /// Returns the number of ranks over which a partitioning splits an operator's work.
    pub(crate) fn ranks_at_work(&self, form: &Partitioning) -> usize {
        let is_split = |axis: &usize| form.0[*axis].is_some_and(|it| it != TERMS);
        self.mesh.group_size((0..form.0.len()).filter(is_split).collect())
    }

    /// Returns the function whose identity an operand's halo holds outside the tensor.
    pub(crate) fn outside(&self, value: Value, position: usize) -> Combine {
        let operator = self.network.graph.operator(value);
        operator.map_or(Combine::Sum, |it| it.outside(position))
    }

    fn conversion(
        &self,
        value: Value,
        [from, to]: [Tiling; 2],
        halo: Halo,
        combine: Combine,
    ) -> Conversion {
        let conversion = Conversion { value, from, to, halo, combine, bytes: 0 };
        let collectives = self.collectives(&conversion);
        Conversion { bytes: collectives.iter().map(|it| it.bytes(&self.mesh)).sum(), ..conversion }
    }

    /// Returns the collectives of a conversion, one after another.
    #[must_use]
    pub fn collectives(&self, conversion: &Conversion) -> Vec<Collective> {
        let &Conversion { value, from, to, halo, combine, .. } = conversion;
        let node = self.network.graph.node(value);
        let mut collectives = route(&self.mesh, node.shape, node.dtype, combine, from, to);
        collectives.extend(halo_exchange(node.shape, node.dtype, combine, to, halo));
        collectives
    }

    /// Returns the bytes that one training step, or in inference one prediction, moves between
    /// ranks, over all ranks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let is_measured = self.network.measured();
        let is_made = |it: &Value| is_measured[it.index()] && self.forms[it.index()].is_some();
        let computed = self.network.graph.values().filter(is_made);
        let conversions = computed.flat_map(|it| self.conversions_of_step(it, &is_measured));
        conversions.map(|it| it.bytes).sum()
    }
}

impl fmt::Display for TiledNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "mesh {}", self.mesh)?;
        for value in self.network.graph.values() {
            write!(f, "{} {}", self.network.graph.line(value), self.tilings[value.index()])?;
            if let Some(partitioning) = &self.forms[value.index()] {
                let text: Vec<String> = partitioning
                    .0
                    .iter()
                    .map(|it| it.map_or("-".to_owned(), |factor| letter(factor).to_string()))
                    .collect();
                write!(f, " by [{}]", text.join(" "))?;
                for it in self.conversions(value).iter().filter(|it| !it.is_identity()) {
                    let with = if it.halo.is_none() { "" } else { &format!(" with {}", it.halo) };
                    write!(f, "; {} {} -> {}{with}: {} bytes", it.value, it.from, it.to, it.bytes)?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
