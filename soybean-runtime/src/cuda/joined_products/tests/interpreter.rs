//! Interpreter of steps in double precision, over the bytes of the arena.

use std::ops::Range;

use soybean_plan::{BufferId, Kernel, KernelDescriptor, Strides};

use super::{Contraction, FusedProduct, FusedStep, Model, WIDTH, buffer};

/// Memory of a rank: one number for each word of four bytes.
struct Memory<'a> {
    model: &'a Model,
    words: Vec<f64>,
}

/// Returns the contents of inputs and parameters after two rounds of a model's steps; the second
/// round shows what the first one leaves.
pub(super) fn lasting_values(model: &Model) -> Vec<Vec<f64>> {
    let words = vec![f64::NAN; model.tables.arena_bytes.div_ceil(4)];
    let mut memory = Memory { model, words };
    let inputs = model.tables.inputs.iter().map(|it| it.buffer);
    let lasting: Vec<BufferId> =
        inputs.chain(model.tables.parameters.iter().map(|it| it.buffer)).collect();
    for &buffer in &lasting {
        let n_elements = model.tables.buffers[buffer].n_elements;
        let value = |at: usize| ((at * 7 + buffer * 3) as f64 * 0.618_034).fract() - 0.5;
        memory.write(buffer, &(0..n_elements).map(value).collect::<Vec<_>>());
    }
    (0..2).for_each(|_| model.steps.iter().for_each(|it| memory.run(it)));
    lasting.iter().map(|it| memory.read(*it).to_vec()).collect()
}

impl Memory<'_> {
    fn range(&self, buffer: BufferId) -> Range<usize> {
        let range = self.model.tables.range(buffer);
        range.start / 4..range.end / 4
    }

    fn read(&self, buffer: BufferId) -> &[f64] {
        &self.words[self.range(buffer)]
    }

    fn write(&mut self, buffer: BufferId, values: &[f64]) {
        let range = self.range(buffer);
        self.words[range].copy_from_slice(values);
    }

    fn run(&mut self, step: &FusedStep) {
        match step {
            FusedStep::Plain(step) => {
                let inputs: Vec<&[f64]> = step.inputs.iter().map(|it| self.read(*it)).collect();
                let kernel = self.model.kernels[step.kernel].local().expect("no collectives");
                let values = kernel.evaluate(&inputs, &[]);
                self.write(step.results[0], &values[0]);
            }
            FusedStep::Product(it) => {
                let Kernel::Contract(one) = &self.model.kernels[it.kernel] else {
                    unreachable!("a product")
                };
                self.multiply(one, it, 0, &[it]);
            }
            FusedStep::Joined(it) => {
                let Kernel::Contract(batch) = &self.model.kernels[it.kernel] else {
                    unreachable!("a product")
                };
                let products: Vec<&FusedProduct> = it.products.iter().collect();
                assert_eq!(batch.batch[..], [products.len()]);
                self.multiply(batch, products[0], it.epilogue.bias_stride, &products);
            }
            FusedStep::Round { .. } => unreachable!("no roundings"),
        }
    }

    /// Computes a product or a batch from the places of the first one. The products tell what is
    /// written.
    fn multiply(
        &mut self,
        contraction: &Contraction,
        first: &FusedProduct,
        bias_stride: usize,
        products: &[&FusedProduct],
    ) {
        // A device may write parts of the results before it has read all operands.
        for product in products {
            let n_elements = self.range(product.result).len();
            self.write(product.result, &vec![f64::NAN; n_elements]);
        }
        let from = |buffer: BufferId| &self.words[self.range(buffer).start..];
        let [left, right] = first.inputs.map(from);
        // Results are found one after another, and written at their distances.
        let n_results = contraction.rows * contraction.columns;
        let mut side_by_side = *contraction;
        side_by_side.result.batch = match contraction.batch.is_empty() {
            true => Strides::new(&[]),
            false => Strides::new(&[n_results]),
        };
        let mut values = side_by_side.evaluate(&[left, right], &[]).remove(0);
        if let Some(bias) = buffer(first.bias) {
            for (at, value) in values.iter_mut().enumerate() {
                *value += from(bias)[at / n_results * bias_stride + at % WIDTH];
            }
        }
        let start = self.range(first.result).start;
        let points = contraction.batch.points();
        for (point, values) in points.into_iter().zip(values.chunks(n_results)) {
            let at = start + contraction.result.batch.offset(&point);
            self.words[at..at + n_results].copy_from_slice(values);
        }
    }
}
