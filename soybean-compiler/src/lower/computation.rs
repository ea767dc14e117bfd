//! The steps that compute tensors: conversions of operands, a kernel, and what it computes besides.

use soybean_plan::{BufferId, Halo, Kernel, Padding, Shape, Tile};

use super::Lowering;
use crate::{
    operator::Operator,
    operators::{attend::Attend, phase_select::PhaseSelect},
    tiling::halo_exchange,
    value::Value,
};

impl Lowering<'_> {
    /// Converts the operands and runs the kernel; where the result is.
    pub(super) fn run(&mut self, value: Value) -> BufferId {
        if self.tiled.network.graph.operator_as::<PhaseSelect>(value).is_some() {
            return self.operand_of_phase(value);
        }
        if let Some(joined) = self.joined.remove(&value) {
            return joined;
        }
        if let Some(gradients) = Attend::gradients(&self.tiled.network.graph, value) {
            debug_assert_eq!(value, gradients[0], "the gradient of queries comes first");
            return self.run_gradients(gradients);
        }
        let (signature, form) = self.tiled.signature(value);
        let tile = self.tile(value, signature.result_tiling(form));
        let operator =
            self.tiled.network.graph.operator(value).expect("only computed tensors are run");
        let (operands, parts) = self.operands(value);
        let Some(kernel) = self.kernel(operator, &parts, &tile) else { return operands[0] };
        let halo = signature.halo(None, &tile.tiling);
        let result = self.buffer_with_halo(value, tile.tiling, halo);
        self.step(kernel, operands, vec![result]);
        self.own_part(value, tile, halo, result)
    }

    /// Returns the rank's own part of a result that a kernel computed with a halo, if there is one.
    fn own_part(&mut self, value: Value, tile: Tile, halo: Halo, computed: BufferId) -> BufferId {
        if halo.is_none() {
            return computed;
        }
        let mesh = &self.tiled.mesh;
        let (input, result) = (halo.local_shape(&tile, mesh), tile.local_shape(mesh));
        let low = halo.before.map(|it| -i32::try_from(it).expect("a halo is a part of a dim"));
        let own = self.buffer(value, tile.tiling, false);
        let crop = Padding { input, result, low, fill: 0.0 };
        self.step(crop.into(), vec![computed], vec![own]);
        own
    }

    /// Returns the kernel for these parts of the operands, with their shapes, and of the result.
    fn kernel(
        &self,
        operator: &Operator,
        operands: &[(Tile, Shape)],
        result: &Tile,
    ) -> Option<Kernel> {
        let mesh = &self.tiled.mesh;
        let (tiles, shapes): (Vec<Tile>, Vec<Shape>) = operands.iter().copied().unzip();
        let kernel = operator.kernel(&shapes, &result.local_shape(mesh))?;
        Some(operator.on_busiest_rank(kernel, &tiles, mesh))
    }

    /// Computes the gradients of attention by one kernel, and returns where that of queries is,
    /// which is the first that is computed.
    fn run_gradients(&mut self, gradients: [Value; 3]) -> BufferId {
        let value = gradients[0];
        let attend: Option<&Attend> = self.tiled.network.graph.operator_as(value);
        let operator = attend.expect("attention has these gradients").joined().into();
        let (operands, parts) = self.operands(value);
        let tiles = gradients.map(|value| {
            let (signature, form) = self.tiled.signature(value);
            let tile = self.tile(value, signature.result_tiling(form));
            (tile, signature.halo(None, &tile.tiling))
        });
        let kernel = self.kernel(&operator, &parts, &tiles[0].0);
        let computed = [0, 1, 2].map(|it| {
            let (tile, halo) = tiles[it];
            self.buffer_with_halo(gradients[it], tile.tiling, halo)
        });
        self.step(kernel.expect("attention has a kernel"), operands, computed.to_vec());
        let results = [0, 1, 2].map(|it| {
            let (tile, halo) = tiles[it];
            self.own_part(gradients[it], tile, halo, computed[it])
        });
        self.joined.extend(gradients.into_iter().zip(results).skip(1));
        results[0]
    }

    /// Returns the operand that this phase selects, in the tiling of the partitioning.
    fn operand_of_phase(&mut self, value: Value) -> BufferId {
        let (signature, form) = self.tiled.signature(value);
        let position = PhaseSelect::operand(self.phase);
        let operand = self.tiled.network.graph.operands(value)[position];
        self.in_tiling(operand, signature.operand_tiling(position, form))
    }

    /// Returns the operands in the tilings and with the halos of the partitioning, and the tile of
    /// each and the shape of the rank's part with its halo.
    fn operands(&mut self, value: Value) -> (Vec<BufferId>, Vec<(Tile, Shape)>) {
        let (signature, form) = self.tiled.signature(value);
        let operands = self.tiled.network.graph.operands(value).into_iter().enumerate();
        operands
            .map(|(position, operand)| {
                let tiling = signature.operand_tiling(position, form);
                let halo = signature.halo(Some(position), &tiling);
                let node = self.tiled.network.graph.node(operand);
                let tile = self.tile(operand, tiling);
                let shape = halo.local_shape(&tile, &self.tiled.mesh);
                let part = self.in_tiling(operand, tiling);
                let outside = self.tiled.outside(value, position);
                let read = (value, position);
                let received = halo.without(&self.tiled.kept_halo(read));
                let exchange = halo_exchange(node.shape, node.dtype, outside, tiling, received);
                let part = self.communicate(operand, exchange.as_slice(), part, None);
                let with_received = received.local_shape(&tile, &self.tiled.mesh);
                let part = self.with_borders(read, with_received, part);
                self.keep_borders(read, tiling, halo, part);
                (part, (tile, shape))
            })
            .unzip()
    }
}
