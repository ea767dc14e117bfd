//! The tasks of products.

use std::ops::Range;

use soybean_plan::{BufferId, DType, Kernel, Map, ScalarProgram, Shape};

use super::{
    super::{
        epilogue::{Epilogue, FusedProduct, FusedStep, JoinedProducts, Location, buffer},
        source::KernelCall,
    },
    Action, PhaseBuilder, TaskQueue, compute,
};
use crate::Error;

impl PhaseBuilder<'_> {
    pub(super) fn queue_product(
        &mut self,
        product: &FusedProduct,
        slots: &[Range<usize>],
        queue: &mut TaskQueue,
    ) -> Result<(), Error> {
        let find = |location: Option<Location>| {
            location
                .map(|location| match location {
                    Location::Slot(slot) => Ok(slots[slot].clone()),
                    Location::Buffer(buffer) => self.range(buffer),
                })
                .transpose()
        };
        let mut bias = find(product.bias)?;
        let mut aux = product.aux.map(|it| self.range(it)).transpose()?;
        let (mut inputs, mut results) =
            (self.ranges(&product.inputs)?, vec![self.range(product.result)?]);
        let mut types = self.types(&product.inputs);
        if matches!(self.kernels[product.kernel], Kernel::Convolve(_)) {
            // Convolutions only read their bias or the result of ReLU, as a third operand.
            inputs.extend(bias.take().or(aux.take()));
            types.extend(product.epilogue.bias);
            types.extend(self.types(product.aux.as_slice()));
        }
        let mut result_types = self.types(&[product.result]);
        if product.epilogue.summed_operand().is_some() {
            // Sums of an operand are a second result.
            results.extend(bias.take());
            result_types.extend(product.epilogue.bias);
        }
        let call = KernelCall {
            kernel: product.kernel,
            inputs: types,
            results: result_types,
            epilogue: product.epilogue,
            checked: Vec::new(),
        };
        let mut run = self.run(call, &inputs, &results);
        run.bias = bias.as_ref().map(|it| it.start);
        run.aux = aux.as_ref().map(|it| it.start);
        // Bias and auxiliary buffer of a matrix product are read or written depending on the
        // epilogue. Both count as both.
        let besides = || bias.iter().chain(&aux).cloned();
        let reads = inputs.into_iter().chain(besides()).collect();
        let writes = results.into_iter().chain(besides()).collect();
        let label = self.label(product.kernel, Some(product.result))?;
        queue.push(label, compute(reads, writes), Action::Kernel(run));
        self.check_later(&[product.result], queue)
    }

    /// Queues the rounding of an `f32` vector into a slot.
    pub(super) fn queue_rounding(
        &mut self,
        input: BufferId,
        slot: &Range<usize>,
        queue: &mut TaskQueue,
    ) -> Result<(), Error> {
        let extents = Shape::new(&[self.tables.buffers[input].n_elements]);
        let (inputs, program) = (vec![extents.dense_strides()], ScalarProgram::identity());
        let map = Map { extents, inputs: inputs.into(), program };
        let kernel = Kernel::Map(map).number_in(&mut self.kernels);
        let (reads, writes) = (vec![self.range(input)?], vec![slot.clone()]);
        let call = KernelCall {
            kernel,
            inputs: vec![DType::F32],
            results: vec![DType::Bf16],
            epilogue: Epilogue::default(),
            checked: Vec::new(),
        };
        let run = self.run(call, &reads, &writes);
        let label = self.label(kernel, Some(input))?;
        queue.push(label, compute(reads, writes), Action::Kernel(run));
        Ok(())
    }

    /// Queues the call of joined products, which finds all buffers by the places of the first.
    pub(super) fn queue_joined(
        &mut self,
        joined: &JoinedProducts,
        queue: &mut TaskQueue,
    ) -> Result<(), Error> {
        let JoinedProducts { kernel, epilogue, products } = joined;
        let first = &products[0];
        let step = FusedStep::Joined(joined.clone());
        let (reads, writes) = (self.ranges(&step.inputs())?, self.ranges(&step.results())?);
        let bias = buffer(first.bias);
        // Sums of an operand are a second result.
        let sums = bias.filter(|_| epilogue.summed_operand().is_some());
        let of_first: Vec<BufferId> = [first.result].into_iter().chain(sums).collect();
        let call = KernelCall {
            kernel: *kernel,
            inputs: self.types(&first.inputs),
            results: self.types(&of_first),
            epilogue: *epilogue,
            checked: Vec::new(),
        };
        let (inputs, results) = (self.ranges(&first.inputs)?, self.ranges(&of_first)?);
        let mut run = self.run(call, &inputs, &results);
        if sums.is_none() {
            run.bias = bias.map(|it| self.range(it)).transpose()?.map(|it| it.start);
        }
        let label = self.label(*kernel, Some(first.result))?;
        queue.push(label, compute(reads, writes), Action::Kernel(run));
        self.check_later(&step.results(), queue)
    }
}
