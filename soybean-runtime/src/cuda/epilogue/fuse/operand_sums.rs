//! Fusion of products with sums of an operand along their depth.
//!
//! The gradient of a weight is such a product, and the sum is the gradient of the bias: cuBLASLt
//! adds up the operand while it multiplies it.

use soybean_plan::{BufferId, Combine, Contraction, Instruction, Kernel, Map, overlaps};

use super::{
    super::{
        Epilogue, Function,
        pattern::{is_along_columns, is_dense},
        steps::{FusedProduct, FusedStep, Location},
    },
    Fuser,
};

/// A sum of the rows of a dense matrix.
struct SumOfRows {
    step: usize,
    operand: BufferId,
    sum: BufferId,
    n_elements: usize,
}

impl Fuser<'_> {
    /// Fuses as many sums of operands as possible into the products that read the operands.
    pub(super) fn fuse_operand_sums(&mut self) {
        let mut at = 0;
        while at < self.fused.steps.len() {
            let is_fused = self.sum_of_operand(at).is_some_and(|it| self.fuse_sum(&it).is_some());
            // The step that moved to this place is examined too.
            at += usize::from(!is_fused);
        }
    }

    fn sum_of_operand(&self, step: usize) -> Option<SumOfRows> {
        let FusedStep::Plain(plain) = &self.fused.steps[step] else { return None };
        let Kernel::Reduce(reduction) = self.kernels.get(plain.kernel)? else { return None };
        let (&[operand], &[sum]) = (&plain.inputs[..], &plain.results[..]) else { return None };
        let Map { extents, inputs, program } = &reduction.map;
        let n_elements = self.tables.buffers[sum].n_elements;
        let is_sum = reduction.combine == Combine::Sum
            && program.instructions[usize::from(*program.results.first()?)]
                == Instruction::Input(0)
            && is_dense(extents, inputs.first()?)
            && is_along_columns(extents, &reduction.result, n_elements);
        is_sum.then_some(SumOfRows { step, operand, sum, n_elements })
    }

    /// Fuses a sum into a product that reads the same content of the operand.
    fn fuse_sum(&mut self, sum: &SumOfRows) -> Option<()> {
        // The search for a product comes first: it is the only one that looks at a step alone.
        let products = (0..self.fused.steps.len())
            .filter_map(|at| Some((at, self.product_with(at, sum)?)))
            .filter(|&(at, _)| {
                let between = at.min(sum.step) + 1..at.max(sum.step);
                self.is_unchanged(sum.operand, between)
            });
        let products: Vec<(usize, FusedProduct)> = products.collect();
        let (place, parts, product) = products.into_iter().find_map(|(at, product)| {
            let place = self.place_of_both(at, sum.step)?;
            (self.is_apart(&product) && self.can_compute(&product)).then_some((
                place,
                [at, sum.step],
                product,
            ))
        })?;
        self.replace(place, &parts, &[FusedStep::Product(product)]);
        Some(())
    }

    /// Returns the product at this step with the sum as its epilogue, if the sum is one of its
    /// operands along the depth.
    fn product_with(&self, at: usize, sum: &SumOfRows) -> Option<FusedProduct> {
        let FusedStep::Plain(step) = &self.fused.steps[at] else { return None };
        let Kernel::Contract(contraction) = self.kernels.get(step.kernel)? else { return None };
        let (&[left, right], &[result]) = (&step.inputs[..], &step.results[..]) else {
            return None;
        };
        let Contraction { batch, rows, columns, depth, left: of_left, right: of_right, .. } =
            contraction;
        let n_in_operand = self.tables.buffers[sum.operand].n_elements;
        // The rows of the summed matrix are along the depth.
        let is_sum = |n: usize, stride: usize, depth_stride: usize| {
            let is_transposed = stride == 1 && depth_stride == n;
            is_transposed && n == sum.n_elements && n_in_operand == n * depth
        };
        let function = if left == sum.operand && is_sum(*rows, of_left.row, of_left.column) {
            Function::LeftSums
        } else if right == sum.operand && is_sum(*columns, of_right.column, of_right.row) {
            Function::RightSums
        } else {
            return None;
        };
        let epilogue = Epilogue::new(function, Some(self.dtype(sum.sum)));
        let (kernel, inputs, bias) = (step.kernel, [left, right], Some(Location::Buffer(sum.sum)));
        (batch.n_elements() == 1).then_some(FusedProduct {
            kernel,
            inputs,
            result,
            epilogue,
            bias,
            aux: None,
        })
    }

    /// Returns the place of one of two steps to which the other can move.
    fn place_of_both(&self, one: usize, other: usize) -> Option<usize> {
        let (first, second) = (one.min(other), one.max(other));
        let crosses_nothing = |moved: usize| {
            let (inputs, results) =
                (self.fused.steps[moved].inputs(), self.fused.steps[moved].results());
            (first + 1..second).all(|at| {
                inputs.iter().all(|it| !self.writes(at, &self.range(*it)))
                    && results
                        .iter()
                        .map(|it| self.range(*it))
                        .all(|range| !self.reads(at, &range) && !self.writes(at, &range))
            })
        };
        if crosses_nothing(second) {
            return Some(first);
        }
        crosses_nothing(first).then_some(second)
    }

    /// Returns whether what a product writes is apart from all else that it writes or reads.
    fn is_apart(&self, product: &FusedProduct) -> bool {
        let step = FusedStep::Product(product.clone());
        let (reads, writes) = (step.inputs(), step.results());
        let range = |it: &BufferId| self.range(*it);
        writes.iter().enumerate().all(|(number, one)| {
            let others = writes[..number].iter().chain(&reads);
            others.map(range).all(|it| !overlaps(&range(one), &it))
        })
    }
}
