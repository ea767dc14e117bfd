//! Kernels of images whose channels are last: they run on copies in scratch memory whose channels
//! are first. The layout is for tensor cores, so the CPU has no loops for it.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use soybean_plan::{DType, Permutation, Shape, Strides};

use super::{
    kernel::{Arguments, CpuKernel},
    permutation::PermutationKernel,
    region::Region,
};
use crate::{Error, ErrorKind};

/// A kernel of images with channels first, with the copies before and after it.
pub(crate) struct ChannelsLastKernel {
    kernel: Box<dyn CpuKernel>,
    inputs: Vec<LayoutCopy>,
    result: LayoutCopy,
    /// The copies of the inputs, while the kernel runs.
    copies: Vec<Region>,
}

/// The extents of images with their channels last: images, pixels of each, channels.
#[derive(Clone, Copy)]
pub(crate) struct Images(pub(crate) [usize; 3]);

/// A copy to or from the scratch memory.
struct LayoutCopy {
    permutation: PermutationKernel,
    n_elements: usize,
}

impl Images {
    fn n_elements(self) -> usize {
        self.0.iter().product()
    }

    /// Returns the copy that puts channels first.
    fn to_first(self, n_threads: usize) -> LayoutCopy {
        let [images, pixels, channels] = self.0;
        let extents = Shape::new(&[images, channels, pixels]);
        let input = Strides::new(&[pixels * channels, 1, channels]);
        let permutation = PermutationKernel::new(&Permutation { extents, input }, n_threads);
        LayoutCopy { permutation, n_elements: self.n_elements() }
    }

    /// Returns the copy that puts channels last.
    fn to_last(self, n_threads: usize) -> LayoutCopy {
        let [images, pixels, channels] = self.0;
        let extents = Shape::new(&[images, pixels, channels]);
        let input = Strides::new(&[pixels * channels, 1, pixels]);
        let permutation = PermutationKernel::new(&Permutation { extents, input }, n_threads);
        LayoutCopy { permutation, n_elements: self.n_elements() }
    }
}

impl ChannelsLastKernel {
    /// Prepares the copies for a kernel with channels first.
    pub(crate) fn new(
        kernel: Box<dyn CpuKernel>,
        inputs: &[Images],
        result: Images,
        n_threads: usize,
    ) -> Self {
        Self {
            kernel,
            inputs: inputs.iter().map(|it| it.to_first(n_threads)).collect(),
            result: result.to_last(n_threads),
            copies: Vec::with_capacity(inputs.len()),
        }
    }
}

impl CpuKernel for ChannelsLastKernel {
    fn n_scratch(&self) -> usize {
        let copies = self.inputs.iter().chain([&self.result]).map(|it| it.n_elements);
        copies.sum::<usize>() + self.kernel.n_scratch()
    }

    unsafe fn launch(&mut self, arguments: Arguments<'_>) -> Result<(), Error> {
        let result = arguments.one_result()?;
        let Arguments { inputs, scalars, workspaces, mut scratch, .. } = arguments;
        if inputs.len() != self.inputs.len() {
            let (expected, found) = (self.inputs.len(), inputs.len());
            let message = format!("expected {expected} inputs, found {found}");
            return Err(Error::new(ErrorKind::Program, message));
        }
        self.copies.clear();
        for (input, copy) in inputs.iter().zip(&mut self.inputs) {
            let (own, rest) = scratch.split_at_mut(copy.n_elements);
            scratch = rest;
            let own = region(own);
            // SAFETY: the scratch memory is this kernel's, and nobody writes to the input.
            unsafe { copy.permutation.run(input, &own) }?;
            self.copies.push(own);
        }
        let (own, scratch) = scratch.split_at_mut(self.result.n_elements);
        let own = region(own);
        let (inputs, results) = (&self.copies[..], &[own][..]);
        let arguments = Arguments { inputs, results, scalars, workspaces, scratch };
        // SAFETY: all regions are parts of the scratch memory.
        unsafe { self.kernel.launch(arguments) }?;
        // SAFETY: required of the caller.
        unsafe { self.result.permutation.run(&own, &result) }
    }
}

fn region(memory: &mut [f32]) -> Region {
    Region { pointer: memory.as_mut_ptr(), n_elements: memory.len(), dtype: DType::F32 }
}

#[cfg(test)]
mod tests {
    use soybean_plan::{
        Convolution, ConvolutionForm, ImageLayout, KernelDescriptor, Pooling, PoolingForm,
    };

    use crate::cpu::{
        isa::Isa,
        kernel::{Arguments, Prepare, Threads},
        product::Workspace,
        random_data::{Dice, in_pool, region},
    };
    use soybean_plan::DType;

    /// Compares a kernel with its reference on inputs of these lengths.
    fn check<K: KernelDescriptor + Prepare + Sync>(kernel: &K, lengths: &[usize], seed: u64) {
        let mut dice = Dice(seed);
        let mut inputs: Vec<Vec<f32>> =
            lengths.iter().map(|n| dice.buffer(*n, DType::F32)).collect();
        let wide: Vec<Vec<f64>> =
            inputs.iter().map(|it| it.iter().copied().map(f64::from).collect()).collect();
        let expected =
            kernel.evaluate(&wide.iter().map(|it| &it[..]).collect::<Vec<_>>(), &[]).remove(0);
        let mut workspaces = vec![Workspace::new(Isa::detect()), Workspace::new(Isa::detect())];
        let mut prepared = kernel.prepare(&Threads { isa: Isa::detect(), workspaces: &workspaces });
        let mut scratch = vec![f32::NAN; prepared.n_scratch()];
        let mut found = vec![f32::NAN; expected.len()];
        let regions: Vec<_> = inputs.iter_mut().map(|it| region(it, DType::F32)).collect();
        let results = [region(&mut found, DType::F32)];
        let arguments = Arguments {
            inputs: &regions,
            results: &results,
            scalars: &[],
            workspaces: &mut workspaces,
            scratch: &mut scratch,
        };
        // SAFETY: the buffers are this test's.
        in_pool(|| unsafe { prepared.launch(arguments) }.unwrap());
        for (found, expected) in found.iter().zip(expected) {
            // Sums of at most a hundred products of numbers near 1, each rounded to 6e-8.
            assert!((f64::from(*found) - expected).abs() <= 1e-4, "{kernel}: {found}, {expected}");
        }
    }

    #[test]
    fn convolutions_agree_with_their_reference() {
        for form in [ConvolutionForm::Forward, ConvolutionForm::Data, ConvolutionForm::Filter] {
            for (groups, stride) in [(1, 1), (1, 2), (2, 1), (3, 2)] {
                let it = Convolution {
                    form,
                    batch: 2,
                    groups,
                    channels: 3,
                    filters: 4,
                    image: [6, 8],
                    window: [3, 3],
                    result: [5 / stride + 1, 7 / stride + 1],
                    stride: [stride; 2],
                    padding: [1, 1],
                    dilation: [1, 1],
                    layout: ImageLayout::ChannelsLast,
                };
                let images = 2 * groups * 3 * 48;
                let results = 2 * groups * 4 * it.result[0] * it.result[1];
                let lengths = match form {
                    ConvolutionForm::Forward => [images, groups * 4 * 3 * 9],
                    ConvolutionForm::Data => [results, groups * 4 * 3 * 9],
                    ConvolutionForm::Filter => [images, results],
                };
                check(&it, &lengths, 7);
            }
        }
    }

    #[test]
    fn poolings_agree_with_their_reference() {
        use PoolingForm::{Max, MaxGradient, Sum, SumGradient};
        for form in [Max, MaxGradient, Sum, SumGradient] {
            let it = Pooling {
                form,
                planes: 2,
                channels: 5,
                image: [7, 6],
                window: [3, 2],
                result: [4, 3],
                stride: [2, 2],
                padding: [1, 0],
            };
            let (image, result) = (2 * 42 * 5, 2 * 12 * 5);
            let lengths = match form {
                Max | Sum => vec![image],
                MaxGradient => vec![image, result],
                SumGradient => vec![result],
            };
            check(&it, &lengths, 8);
        }
    }
}
