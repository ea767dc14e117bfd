//! The places of elements in the order of their sizes, by a sort of each line.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use soybean_plan::{DType, Ranking};

use super::{
    kernel::{Arguments, CpuKernel, Prepare, Threads},
    parallel::parallel_for,
    region::Region,
};
use crate::{Error, ErrorKind};

/// A prepared [`Ranking`].
pub(crate) struct RankingKernel {
    ranking: Ranking,
    /// For each thread, the rows of a line in the order of their elements.
    orders: Vec<Vec<u32>>,
}

impl Prepare for Ranking {
    fn prepare(&self, threads: &Threads<'_>) -> Box<dyn CpuKernel> {
        Box::new(RankingKernel::new(self, threads.len()))
    }
}

impl CpuKernel for RankingKernel {
    unsafe fn launch(&mut self, arguments: Arguments<'_>) -> Result<(), Error> {
        let ([input], result) = arguments.regions()?;
        // SAFETY: required of the caller.
        unsafe { self.run(&input, &result) }
    }
}

impl RankingKernel {
    pub(crate) fn new(ranking: &Ranking, n_threads: usize) -> Self {
        Self { ranking: *ranking, orders: vec![vec![0; ranking.length]; n_threads] }
    }

    /// Runs the kernel.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    pub(crate) unsafe fn run(&mut self, input: &Region, result: &Region) -> Result<(), Error> {
        self.check(input, result)?;
        let Ranking { form, outer, length, inner } = self.ranking;
        let n_lines = outer * inner;
        parallel_for(&mut self.orders, n_lines, n_lines * length * 8, |order, lines| {
            for line in lines {
                let at = |row: u32| (line / inner * length + row as usize) * inner + line % inner;
                for (row, slot) in (0..).zip(order.iter_mut()) {
                    *slot = row;
                }
                // SAFETY: the input was checked to have all lines; nobody writes there.
                let element = |row: u32| f64::from(unsafe { input.at(at(row)).read() });
                order.sort_unstable_by(|one, other| {
                    form.compare(element(*one), element(*other)).then(one.cmp(other))
                });
                for (place, row) in (0_i32..).zip(order.iter()) {
                    // SAFETY: the result was checked to have all lines; each is written once.
                    unsafe { result.at(at(*row)).cast::<i32>().write(place) };
                }
            }
        });
        Ok(())
    }

    fn check(&self, input: &Region, result: &Region) -> Result<(), Error> {
        let fault = |message: String| Err(Error::new(ErrorKind::Program, message));
        let Ranking { outer, length, inner, .. } = self.ranking;
        let n_elements = outer * length * inner;
        for (name, region, dtype) in
            [("input 0", input, DType::F32), ("result", result, DType::I32)]
        {
            if region.n_elements < n_elements {
                let found = region.n_elements;
                return fault(format!("{name}: expected {n_elements} elements, found {found}"));
            }
            if region.dtype != dtype {
                let found = region.dtype;
                return fault(format!("{name}: expected elements of {dtype}, found {found}"));
            }
        }
        if input.overlaps(result) {
            return fault("input 0: expected memory apart from the result".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use soybean_plan::{KernelDescriptor as _, RankingForm};

    use super::*;
    use crate::cpu::random_data::{Dice, in_pool, region};

    #[test]
    fn random_rankings_agree_with_the_reference() {
        for seed in 0..300 {
            let mut dice = Dice(seed);
            let form = dice.pick(RankingForm::ALL);
            let [outer, length, inner] = [(); 3].map(|()| dice.pick(&[1, 2, 3, 8, 50]));
            let ranking = Ranking { form, outer, length, inner };
            let mut kernel = RankingKernel::new(&ranking, 1 + dice.below(3));
            // Few numbers, so that many are equal, and some that are none.
            let numbers = [0.5, -0.0, 0.0, 3.0, -2.0, f32::INFINITY, f32::NAN, -f32::NAN];
            let mut input: Vec<f32> =
                (0..outer * length * inner).map(|_| dice.pick(&numbers)).collect();
            let mut result = vec![f32::NAN; input.len()];
            let regions = (region(&mut input, DType::F32), region(&mut result, DType::I32));
            // SAFETY: the buffers are this test's.
            in_pool(|| unsafe { kernel.run(&regions.0, &regions.1) }.unwrap());
            let wide: Vec<f64> = input.iter().map(|it| f64::from(*it)).collect();
            let expected = &ranking.evaluate(&[&wide], &[])[0];
            let found: Vec<f64> = result.iter().map(|it| f64::from(it.to_bits())).collect();
            assert_eq!(&found, expected, "{ranking:?}");
        }
    }
}
