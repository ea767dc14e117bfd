//! `contract`: the product of two tensors, summed over the factors that the result lacks; an einsum
//! of two operands.

use std::fmt;

use soybean_plan::{Combine, Contraction, Kernel, MatrixStrides, Shape, Strides};

use crate::{
    operator::{GradientBuilder, OperatorCall, Rounding, Rules},
    signature::{FactorId, Signature},
    value::Value,
};

/// Index notation of a product: the factor of each dim. Every factor occurs in at least two of the
/// three lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contract {
    /// The factors of the left operand.
    pub left: Vec<FactorId>,
    /// The factors of the right operand.
    pub right: Vec<FactorId>,
    /// The factors of the result.
    pub result: Vec<FactorId>,
}

impl Contract {
    fn extents(&self, left: &[usize], right: &[usize]) -> Vec<usize> {
        let dims = || self.left.iter().zip(left).chain(self.right.iter().zip(right));
        let n_factors = dims().map(|(&id, _)| id as usize + 1).max().unwrap_or(0);
        let extent = |factor| {
            dims().find(|&(&id, _)| id as usize == factor).map_or(1, |(_, &extent)| extent)
        };
        (0..n_factors).map(extent).collect()
    }

    /// Returns the kernel, if rows, columns and depth each have one stride in all operands. With
    /// batch dims it is a loop over matrices.
    #[must_use]
    pub fn as_matrices(&self, left: &Shape, right: &Shape, result: &Shape) -> Option<Contraction> {
        let extents = self.extents(left, right);
        let all = |ids: &[FactorId], condition: &dyn Fn(&FactorId) -> bool| -> Vec<FactorId> {
            ids.iter().copied().filter(condition).collect()
        };
        let (in_left, in_right, in_result) = (
            |id: &FactorId| self.left.contains(id),
            |id: &FactorId| self.right.contains(id),
            |id: &FactorId| self.result.contains(id),
        );
        let batch = all(&self.result, &|id| in_left(id) && in_right(id));
        let rows = all(&self.result, &|id| in_left(id) && !in_right(id));
        let columns = all(&self.result, &|id| !in_left(id) && in_right(id));
        let depth = all(&self.left, &|id| !in_result(id));
        let (left, right, result) = (
            Lie::new(&self.left, left),
            Lie::new(&self.right, right),
            Lie::new(&self.result, result),
        );
        let matrices = |lie: &Lie<'_>, row: &[FactorId], column: &[FactorId]| {
            let batch = Strides::new(&batch.iter().map(|&id| lie.stride(id)).collect::<Vec<_>>());
            Some(MatrixStrides {
                batch,
                row: lie.common_stride(row)?,
                column: lie.common_stride(column)?,
            })
        };
        let product = |ids: &[FactorId]| ids.iter().map(|&id| extents[id as usize]).product();
        Some(Contraction {
            batch: batch.iter().map(|&id| extents[id as usize]).collect(),
            rows: product(&rows),
            columns: product(&columns),
            depth: product(&depth),
            left: matrices(&left, &rows, &depth)?,
            right: matrices(&right, &depth, &columns)?,
            result: matrices(&result, &rows, &columns)?,
        })
    }
}

/// The memory layout of the factors of one dense tensor.
struct Lie<'a> {
    ids: &'a [FactorId],
    shape: &'a Shape,
    strides: Strides,
}

impl<'a> Lie<'a> {
    fn new(ids: &'a [FactorId], shape: &'a Shape) -> Self {
        Self { ids, shape, strides: shape.dense_strides() }
    }

    fn dim(&self, id: FactorId) -> usize {
        self.ids.iter().position(|&it| it == id).expect("the factor is one of this operand's")
    }

    fn stride(&self, id: FactorId) -> usize {
        self.strides.0[self.dim(id)]
    }

    /// Returns the one stride of these factors, outermost first; `None` if they are not adjacent in
    /// this order.
    fn common_stride(&self, ids: &[FactorId]) -> Option<usize> {
        let follows = |pair: &[FactorId]| {
            self.stride(pair[0]) == self.stride(pair[1]) * self.shape[self.dim(pair[1])]
        };
        ids.windows(2).all(follows).then(|| ids.last().map_or(1, |&id| self.stride(id)))
    }
}

impl Rules for Contract {
    fn signature(&self, operands: &[Shape]) -> Signature {
        let extents = self.extents(&operands[0], &operands[1]);
        Signature::plain(
            extents,
            &[self.left.clone(), self.right.clone()],
            &self.result,
            Combine::Sum,
        )
        .linear_in(vec![vec![0], vec![1]])
    }

    // d left = gradient * right, d right = left * gradient, each summed over what the operand lacks
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        let by_left = Self {
            left: self.result.clone(),
            right: self.right.clone(),
            result: self.left.clone(),
        };
        let by_right = Self {
            left: self.left.clone(),
            right: self.result.clone(),
            result: self.right.clone(),
        };
        let (left, right) = (call.operands[0], call.operands[1]);
        vec![
            builder
                .needs_gradient(left)
                .then(|| builder.add(by_left.into(), &[call.gradient, right])),
            builder
                .needs_gradient(right)
                .then(|| builder.add(by_right.into(), &[left, call.gradient])),
        ]
    }

    fn flops_per_point(&self) -> u64 {
        2
    }

    fn rounding(&self) -> Rounding {
        Rounding::Product
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        let matrices = self.as_matrices(&operands[0], &operands[1], result);
        let matrices = matrices
            .expect("checked where the operator is made: splits do not change the order of dims");
        Some(matrices.into())
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("contract")
    }
}
