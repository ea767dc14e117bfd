//! Operators that users define, by their own functions.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use std::{ops::Range, slice};

use soybean_plan::{Custom, CustomFunction, DType, IndexNotation, Shape, TensorMut, TensorRef};

use super::{
    kernel::{Arguments, CpuKernel, Prepare, Threads},
    parallel::parallel_for,
    region::Region,
};
use crate::{Error, ErrorKind};

/// A prepared [`Custom`] operator.
pub(crate) struct CustomKernel {
    custom: Custom,
    /// The extent of the dim that threads split: the first of the result and of each operand that
    /// has its letter. 1 if there is none.
    n_units: usize,
    /// True for each operand that has that dim.
    is_split: Vec<bool>,
    work: usize,
    parts: Vec<()>,
}

impl Prepare for Custom {
    fn prepare(&self, threads: &Threads<'_>) -> Box<dyn CpuKernel> {
        Box::new(CustomKernel::new(self, threads.len()))
    }
}

impl CpuKernel for CustomKernel {
    unsafe fn launch(&mut self, arguments: Arguments<'_>) -> Result<(), Error> {
        let result = arguments.one_result()?;
        // SAFETY: required of the caller.
        unsafe { self.run(arguments.inputs, &result) }
    }
}

impl CustomKernel {
    pub(crate) fn new(custom: &Custom, n_threads: usize) -> Self {
        let notation = custom.index_notation();
        let first = notation.result().first().copied().filter(|it| IndexNotation::is_split(*it));
        let is_first = |letters: &Vec<char>| letters.first().copied() == first;
        let has_letter = |letters: &Vec<char>| first.is_some_and(|it| letters.contains(&it));
        let can_split = notation.operands().iter().all(|it| !has_letter(it) || is_first(it));
        let is_shared = first.is_some() && can_split;
        Self {
            custom: custom.clone(),
            n_units: if is_shared { custom.result[0] } else { 1 },
            is_split: notation.operands().iter().map(|it| is_shared && has_letter(it)).collect(),
            work: usize::try_from(custom.n_points()).unwrap_or(usize::MAX),
            parts: vec![(); n_threads],
        }
    }

    /// Runs the kernel.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    pub(crate) unsafe fn run(&mut self, inputs: &[Region], result: &Region) -> Result<(), Error> {
        self.check(inputs, result)?;
        let Self { custom, n_units, is_split, work, parts } = self;
        let function = function(custom)?;
        parallel_for(parts, *n_units, *work, |(), units| {
            if units.is_empty() {
                return;
            }
            let mut shapes = [Shape::default(); IndexNotation::MAX_OPERANDS];
            for ((shape, whole), is_split) in
                shapes.iter_mut().zip(custom.operands.iter()).zip(is_split.iter())
            {
                *shape = if *is_split { whole.with(0, units.len()) } else { *whole };
            }
            let mut operands = [TensorRef { shape: &[], data: &[] }; IndexNotation::MAX_OPERANDS];
            let each = operands.iter_mut().zip(&shapes).zip(inputs).zip(is_split.iter());
            for (((operand, shape), region), is_split) in each {
                let start = if *is_split { start(&units, shape) } else { 0 };
                let n_elements = shape.n_elements();
                // SAFETY: the region was checked to have all elements; nobody writes there.
                let data = unsafe { slice::from_raw_parts(region.at(start), n_elements) };
                *operand = TensorRef { shape, data };
            }
            let mut shape = custom.result;
            if let Some(extent) = shape.first().copied()
                && extent == *n_units
            {
                shape = shape.with(0, units.len());
            }
            let (start, n_elements) = (start(&units, &shape), shape.n_elements());
            // SAFETY: the region was checked to have all elements; each part of the units has its
            // own.
            let data = unsafe { slice::from_raw_parts_mut(result.at(start), n_elements) };
            function(&operands[..inputs.len()], TensorMut { shape: &shape, data });
        });
        Ok(())
    }

    fn check(&self, inputs: &[Region], result: &Region) -> Result<(), Error> {
        let name = &self.custom.name;
        let fault = |message: String| {
            Err(Error::new(ErrorKind::Program, format!("operator `{name}`: {message}")))
        };
        let shapes = &self.custom.operands;
        if inputs.len() != shapes.len() {
            return fault(format!("expected {} inputs, found {}", shapes.len(), inputs.len()));
        }
        let inputs = inputs.iter().zip(shapes.iter()).enumerate();
        let inputs = inputs.map(|(at, (region, shape))| (format!("input {at}"), region, shape));
        for (what, region, shape) in
            inputs.chain([("result".to_owned(), result, &self.custom.result)])
        {
            let (expected, found) = (shape.n_elements(), region.n_elements);
            if found < expected {
                return fault(format!("{what}: expected {expected} elements, found {found}"));
            }
            if region.dtype != DType::F32 {
                let found = region.dtype;
                return fault(format!("{what}: expected elements of f32, found {found}"));
            }
            if what != "result" && region.overlaps(result) {
                return fault(format!("{what}: expected memory apart from the result"));
            }
        }
        Ok(())
    }
}

/// Returns the first element of a part, given the part's shape.
fn start(units: &Range<usize>, shape: &Shape) -> usize {
    units.start * shape.iter().skip(1).product::<usize>()
}

fn function(custom: &Custom) -> Result<CustomFunction<f32>, Error> {
    custom.function.function.ok_or_else(|| {
        let name = &custom.name;
        let message = format!(
            "operator `{name}`: a program that was compiled at run time has no functions of the user"
        );
        Error::new(ErrorKind::Program, message)
    })
}

#[cfg(test)]
mod tests {
    use soybean_plan::{HostFunction, KernelDescriptor as _};

    use super::*;
    use crate::cpu::random_data::{Dice, in_pool, region};

    /// The product of `bk` and `jk`, transposed.
    fn product(operands: &[TensorRef<'_, f32>], result: TensorMut<'_, f32>) {
        let (&[n_rows, depth], &[n_columns, _]) = (operands[0].shape, operands[1].shape) else {
            panic!("both operands are matrices")
        };
        assert_eq!(result.shape, [n_rows, n_columns]);
        for (at, element) in result.data.iter_mut().enumerate() {
            let (row, column) = (at / n_columns, at % n_columns);
            let left = &operands[0].data[row * depth..][..depth];
            let right = &operands[1].data[column * depth..][..depth];
            *element = left.iter().zip(right).map(|(x, y)| x * y).sum();
        }
    }

    fn custom(n_rows: usize, n_columns: usize, depth: usize) -> Custom {
        Custom {
            name: "product".into(),
            notation: "bk,jk->bj".into(),
            names: vec!["x".into(), "y".into()].into(),
            function: HostFunction { symbol: "product".into(), function: Some(product) },
            cuda: None,
            operands: vec![Shape::new(&[n_rows, depth]), Shape::new(&[n_columns, depth])].into(),
            result: Shape::new(&[n_rows, n_columns]),
        }
    }

    #[test]
    fn threads_split_the_first_letter() {
        for seed in 0..200 {
            let mut dice = Dice(seed);
            let [n_rows, n_columns, depth] = [(); 3].map(|()| dice.pick(&[1, 2, 3, 33, 64]));
            let custom = custom(n_rows, n_columns, depth);
            let mut kernel = CustomKernel::new(&custom, 1 + dice.below(3));
            let mut inputs: Vec<Vec<f32>> =
                custom.operands.iter().map(|it| dice.buffer(it.n_elements(), DType::F32)).collect();
            let mut result = vec![f32::NAN; n_rows * n_columns];
            let to = region(&mut result, DType::F32);
            let regions: Vec<Region> = inputs.iter_mut().map(|it| region(it, DType::F32)).collect();
            // SAFETY: the buffers are this test's.
            in_pool(|| unsafe { kernel.run(&regions, &to) }.unwrap());
            let wide: Vec<Vec<f64>> =
                inputs.iter().map(|it| it.iter().map(|it| f64::from(*it)).collect()).collect();
            let expected = &custom.evaluate(&[&wide[0], &wide[1]], &[])[0];
            let found: Vec<f64> = result.iter().map(|it| f64::from(*it)).collect();
            assert_eq!(&found, expected, "{custom}");
        }
    }

    #[test]
    fn programs_without_the_function_are_an_error() {
        let function = HostFunction { symbol: "product".into(), function: None };
        let mut kernel = CustomKernel::new(&Custom { function, ..custom(1, 1, 1) }, 1);
        let (mut input, mut result) = (vec![1.0], vec![0.0]);
        let from = region(&mut input, DType::F32);
        let to = region(&mut result, DType::F32);
        // SAFETY: the buffers are this test's.
        let error = unsafe { kernel.run(&[from, from], &to) }.unwrap_err();
        assert!(error.to_string().starts_with("operator `product`: a program"), "{error}");
    }
}
