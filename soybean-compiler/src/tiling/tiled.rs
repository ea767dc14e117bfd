//! TiledNetwork networks: the result of the search, and the conversions that follow from it.

use std::fmt;

use soybean_plan::{Collective, Combine, Halo, Mesh, Shape, Tile, Tiling};

use super::conversion::{halo_exchange, route};
use crate::{
    kept_halos::Read,
    network::Network,
    operator::Rules,
    operators::attend::Attend,
    signature::{Partitioning, Signature, set_of_terms},
    value::Value,
    weights::Weights,
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
    /// The elements around its part that a rank receives, without those that it kept.
    pub halo: Halo,
    /// The combination of partial results.
    pub combine: Combine,
    /// The function whose identity the halo holds outside the tensor.
    pub outside: Combine,
    /// The bytes moved between ranks, over all ranks.
    pub bytes: u64,
}

/// No halo, and what would lie outside the tensor.
const NO_HALO: (Halo, Combine) = (Halo::NONE, Combine::Sum);

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
        (operator.signature(&graph.operand_shapes(value)), self.partitioning(value))
    }

    /// Returns the partitioning of an operator.
    pub(crate) fn partitioning(&self, value: Value) -> &Partitioning {
        self.forms[value.index()].as_ref().expect("every operator has a partitioning")
    }

    /// Returns the conversions of an operator: of each operand, then of its result. Conversions
    /// that change nothing are included. What another operator's kernel computes has no
    /// conversions of operands of its own.
    ///
    /// # Panics
    /// If no operator computes the tensor.
    #[must_use]
    pub fn conversions(&self, value: Value) -> Vec<Conversion> {
        let (signature, partitioning) = self.signature(value);
        let operands = self.network.graph.operands(value);
        let is_computed_elsewhere = Attend::computed_with(&self.network.graph, value).is_some();
        let operand = |(position, &operand): (usize, &Value)| {
            let from = self.tilings[operand.index()];
            if is_computed_elsewhere {
                return self.conversion(operand, [from, from], Combine::Sum, NO_HALO);
            }
            let to = signature.operand_tiling(position, partitioning);
            let halo = signature.halo(Some(position), &to);
            let received = halo.without(&self.kept_halo((value, position)));
            let halo = (received, self.outside(value, position));
            // What is stored as partial results is a sum.
            self.conversion(operand, [from, to], Combine::Sum, halo)
        };
        let mut conversions: Vec<Conversion> = operands.iter().enumerate().map(operand).collect();
        let from = signature.result_tiling(partitioning);
        let to = self.tilings[value.index()];
        conversions.push(self.conversion(value, [from, to], signature.combine, NO_HALO));
        conversions
    }

    /// Returns the same as [`Self::conversions`], with the bytes of all steps of an update, or in
    /// inference of a prediction. What only an evaluation during training needs has none. `weights`
    /// are those of the network.
    ///
    /// # Panics
    /// If no operator computes the tensor.
    #[must_use]
    pub fn weighted_conversions(&self, value: Value, weights: &Weights) -> Vec<Conversion> {
        let mut conversions = self.conversions(value);
        // The last one is the result's.
        let result = conversions.len() - 1;
        for (at, conversion) in conversions.iter_mut().enumerate() {
            conversion.bytes *= match at == result {
                true => weights.of_value(value),
                false => weights.of_read(&self.network.graph, value, at),
            };
        }
        conversions
    }

    /// Returns the operations of all steps of an update, or in inference of one prediction, over
    /// all ranks: those of the busiest rank times the ranks.
    #[must_use]
    pub fn operations(&self) -> f64 {
        let weights = self.network.weights();
        let is_made = |it: &Value| self.forms[it.index()].is_some();
        let operations = |it: Value| weights.of_value(it) as f64 * self.operations_of(it);
        self.network.graph.values().filter(is_made).map(operations).sum()
    }

    /// Returns the operations of one operator over all ranks: those of the busiest rank times the
    /// ranks.
    pub(crate) fn operations_of(&self, value: Value) -> f64 {
        let graph = &self.network.graph;
        graph.flops(value) as f64 * self.n_copies(value) as f64 * self.imbalance(value)
    }

    /// Returns the work of the busiest rank at an operator over that of all ranks on average. It is
    /// above 1 if ranks have queries of attention that see more keys than others.
    pub(crate) fn imbalance(&self, value: Value) -> f64 {
        let graph = &self.network.graph;
        let attend: Option<&Attend> = graph.operator_as(value);
        let Some(attend) = attend.filter(|it| it.is_causal) else { return 1.0 };
        let (signature, form) = self.signature(value);
        let tile = |(position, operand): (usize, Value)| {
            let node = graph.node(operand);
            let tiling = signature.operand_tiling(position, form);
            Tile { shape: node.unpadded, padded: node.shape, tiling }
        };
        let tiles: Vec<Tile> = graph.operands(value).into_iter().enumerate().map(tile).collect();
        let shapes: Vec<Shape> = tiles.iter().map(|it| it.local_shape(&self.mesh)).collect();
        let kernel = attend.kernel(&shapes, &graph.shape(value)).expect("attention has a kernel");
        let busiest = attend.on_busiest_rank(kernel.clone(), &tiles, &self.mesh);
        busiest.n_operations() as f64 / (kernel.n_operations() as f64).max(1.0)
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
        let is_split = |axis: &usize| form.0[*axis].is_some_and(|it| set_of_terms(it).is_none());
        self.mesh.group_size((0..form.0.len()).filter(is_split).collect())
    }

    /// Returns the part of an operand's halo that ranks kept from the read of an earlier operator:
    /// see [`Network::kept_halos`].
    pub(crate) fn kept_halo(&self, read: Read) -> Halo {
        let Some(&source) = self.network.kept_halos.get(&read) else { return Halo::NONE };
        let needed = |(value, position): Read| {
            let (signature, partitioning) = self.signature(value);
            let tiling = signature.operand_tiling(position, partitioning);
            (tiling, signature.halo(Some(position), &tiling))
        };
        let ((tiling, halo), (of_source, wide)) = (needed(read), needed(source));
        if tiling == of_source { halo.within(&wide) } else { Halo::NONE }
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
        combine: Combine,
        (halo, outside): (Halo, Combine),
    ) -> Conversion {
        let conversion = Conversion { value, from, to, halo, combine, outside, bytes: 0 };
        let collectives = self.collectives(&conversion);
        Conversion { bytes: collectives.iter().map(|it| it.bytes(&self.mesh)).sum(), ..conversion }
    }

    /// Returns the collectives of a conversion, one after another.
    #[must_use]
    pub fn collectives(&self, conversion: &Conversion) -> Vec<Collective> {
        let &Conversion { value, from, to, halo, combine, outside, .. } = conversion;
        let node = self.network.graph.node(value);
        let mut collectives = route(&self.mesh, node.shape, node.dtype, combine, from, to);
        collectives.extend(halo_exchange(node.shape, node.dtype, outside, to, halo));
        collectives
    }

    /// Returns the bytes that one update, or in inference one prediction, moves between ranks, over
    /// all ranks. An update is one training step, or all the steps that share it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let weights = self.network.weights();
        let is_made = |it: &Value| self.forms[it.index()].is_some();
        let computed = self.network.graph.values().filter(is_made);
        let conversions = computed.flat_map(|it| self.weighted_conversions(it, &weights));
        conversions.map(|it| it.bytes).sum()
    }
}

impl fmt::Display for TiledNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "mesh {}", self.mesh)?;
        for value in self.network.graph.values() {
            write!(f, "{} {}", self.network.graph.line(value), self.tilings[value.index()])?;
            if let Some(partitioning) = &self.forms[value.index()] {
                let (signature, _) = self.signature(value);
                let text: Vec<String> =
                    partitioning.0.iter().map(|it| signature.entry(*it)).collect();
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

#[cfg(test)]
mod tests {
    use soybean_plan::{CollectiveKind, DType, Init, Placement, Shape};

    use super::*;
    use crate::{Argument, Builder, Optimizer, build_network, operators::pool::Pool};

    /// Terms of a sum are added up before a maximum over windows reads their borders.
    #[test]
    fn partial_sums_with_a_halo_of_maxima_are_sums() {
        let mut it = Builder::new();
        let x = Argument::Tensor(it.input("x", DType::F32, &[2, 1, 8, 8]));
        let w = Argument::Tensor(it.parameter("w", &[1, 1, 8, 8], Init::Constant(1.0)));
        let h = it.call("mul", &[x, w]).unwrap();
        let settings = [3, 1, 1].map(Argument::Integer);
        let pooled = it.call("max_pool2d", &[&[h][..], &settings].concat()).unwrap();
        let Argument::Tensor(loss) = it.call("mean", &[pooled, Argument::All]).unwrap() else {
            unreachable!("a mean is a tensor")
        };
        let network = build_network(it, loss, &[], &Optimizer::default()).unwrap();
        let graph = &network.graph;
        let is_pool = |it: &Value| graph.operator_as::<Pool>(*it).is_some();
        let value = graph.values().find(is_pool).expect("the model has a pooling");
        let stored = graph.operands(value)[0];
        let tilings = graph.values().map(|it| match it == stored {
            true => Tiling::new(&[Placement::Partial]),
            false => Tiling::replicated(1),
        });
        let tilings: Vec<Tiling> = tilings.collect();
        let shapes: Vec<Shape> = graph.operand_shapes(value);
        let signature = graph.operator(value).expect("a pooling").signature(&shapes);
        let rows = signature.operands[0][2].factor;
        let forms = graph.values().map(|it| (it == value).then(|| Partitioning(vec![rows])));
        let forms = forms.collect();
        let mesh = Mesh::new(2);
        let tiled = TiledNetwork { network: network.clone(), mesh, tilings, forms };
        let conversion = tiled.conversions(value)[0];
        let collectives = tiled.collectives(&conversion);
        let found: Vec<_> = collectives.iter().map(|it| (it.kind, it.combine)).collect();
        let scatter = (CollectiveKind::ReduceScatter, Combine::Sum);
        assert_eq!(found, [scatter, (CollectiveKind::HaloExchange, Combine::Max)]);
    }
}
