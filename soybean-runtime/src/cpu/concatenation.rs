//! Concatenation of tensors.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use soybean_plan::Concatenation;

use super::{
    kernel::{Arguments, CpuKernel, Prepare, Threads},
    parallel::parallel_for,
    region::Region,
};
use crate::{Error, ErrorKind};

/// The elements of the result of a unit of work.
const BLOCK: usize = 1024;

/// A prepared [`Concatenation`].
pub(crate) struct ConcatenationKernel {
    concatenation: Concatenation,
    /// The elements of the result for one step of the outer dims.
    stride: usize,
    parts: Vec<()>,
}

impl Prepare for Concatenation {
    fn prepare(&self, threads: &Threads<'_>) -> Box<dyn CpuKernel> {
        Box::new(ConcatenationKernel::new(self, threads.len()))
    }
}

impl CpuKernel for ConcatenationKernel {
    unsafe fn launch(&mut self, arguments: Arguments<'_>) -> Result<(), Error> {
        let result = arguments.one_result()?;
        // SAFETY: required of the caller.
        unsafe { self.run(arguments.inputs, &result) }
    }
}

impl ConcatenationKernel {
    pub(crate) fn new(concatenation: &Concatenation, n_threads: usize) -> Self {
        Self {
            concatenation: concatenation.clone(),
            stride: concatenation.lengths.iter().sum(),
            parts: vec![(); n_threads],
        }
    }

    /// Runs the kernel.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    pub(crate) unsafe fn run(&mut self, inputs: &[Region], result: &Region) -> Result<(), Error> {
        self.check(inputs, result)?;
        let Self { concatenation: Concatenation { outer, lengths }, stride, parts } = self;
        let n_elements = *outer * *stride;
        parallel_for(parts, n_elements.div_ceil(BLOCK), n_elements, |(), blocks| {
            let (mut at, end) = (blocks.start * BLOCK, n_elements.min(blocks.end * BLOCK));
            while at < end {
                let (row, mut rest) = (at / *stride, at % *stride);
                for (input, length) in inputs.iter().zip(lengths.iter()) {
                    let n = length.saturating_sub(rest).min(end - at);
                    let from = input.at(row * length + rest.min(*length));
                    // SAFETY: all regions were checked to have the elements that are needed; units
                    // write different ones.
                    unsafe { result.at(at).copy_from_nonoverlapping(from, n) };
                    at += n;
                    rest = rest.saturating_sub(*length);
                }
            }
        });
        Ok(())
    }

    fn check(&self, inputs: &[Region], result: &Region) -> Result<(), Error> {
        let fault = |message: String| Err(Error::new(ErrorKind::Program, message));
        let Concatenation { outer, lengths } = &self.concatenation;
        if inputs.len() != lengths.len() {
            let (expected, found) = (lengths.len(), inputs.len());
            return fault(format!("expected {expected} inputs, found {found}"));
        }
        for (number, (input, length)) in inputs.iter().zip(lengths.iter()).enumerate() {
            let (expected, found) = (outer * length, input.n_elements);
            if found < expected {
                return fault(format!(
                    "input {number}: expected {expected} elements, found {found}"
                ));
            }
            if input.overlaps(result) {
                return fault(format!("input {number}: expected memory apart from the result"));
            }
        }
        let (expected, found) = (outer * self.stride, result.n_elements);
        if found < expected {
            return fault(format!("result: expected {expected} elements, found {found}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use soybean_plan::DType;

    use super::*;
    use crate::cpu::random_data::{Dice, in_pool, region};

    #[test]
    fn random_concatenations_agree_with_plain_loops() {
        for seed in 0..300 {
            let mut dice = Dice(seed);
            let n_parts = 1 + dice.below(5);
            let lengths: Vec<usize> =
                (0..n_parts).map(|_| dice.pick(&[0, 1, 3, 64, 1000])).collect();
            let outer = dice.pick(&[0, 1, 2, 33, 130]);
            let concatenation = Concatenation { outer, lengths: lengths.clone().into() };
            let mut kernel = ConcatenationKernel::new(&concatenation, 1 + dice.below(3));
            let mut inputs: Vec<Vec<f32>> =
                lengths.iter().map(|it| dice.buffer(outer * it, DType::F32)).collect();
            let mut result = vec![f32::NAN; outer * lengths.iter().sum::<usize>()];
            let to = region(&mut result, DType::F32);
            let regions: Vec<Region> = inputs.iter_mut().map(|it| region(it, DType::F32)).collect();
            // SAFETY: the buffers are this test's.
            in_pool(|| unsafe { kernel.run(&regions, &to) }.unwrap());
            let row = |row: usize| {
                let part = move |(input, length): (&Vec<f32>, &usize)| {
                    input[row * length..(row + 1) * length].to_vec()
                };
                inputs.iter().zip(&lengths).flat_map(part).collect::<Vec<f32>>()
            };
            let expected: Vec<f32> = (0..outer).flat_map(row).collect();
            assert_eq!(result, expected, "{concatenation:?}");
        }
    }
}
