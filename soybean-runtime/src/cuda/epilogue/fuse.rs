//! Fusion of products with the maps that follow them. Convolutions whose channels come last are
//! products here: each pixel of their result is a row.
//!
//! A fused step runs in one place of the program, where its parts ran in several, and buffers share
//! memory over time. A product is therefore fused only under two conditions. Nothing else reads its
//! own result before it is overwritten. And there is a place at which its operands are still valid,
//! and the bytes that it writes are unused.

mod liveness;
mod operand_sums;

use std::{collections::BTreeMap, ops::Range};

use soybean_plan::{
    BufferId, Combine, Contraction, ConvolutionForm, DType, ImageLayout, Instruction, Kernel, Map,
    Step, Tables, overlaps,
};

use super::{
    Epilogue, Function,
    pattern::{Pattern, is_along_columns, is_dense, pattern},
    steps::{Fused, FusedProduct, FusedStep, Location, buffer},
};

/// Returns true if a product by this kernel with these types and this epilogue is supported.
pub(crate) type CanFuse<'a> = &'a dyn Fn(&Kernel, [DType; 3], Epilogue) -> bool;

/// The buffers of parameters, each with a buffer that holds the same, rounded to `bf16`.
pub(crate) type Rounded = BTreeMap<BufferId, BufferId>;

/// Fuses as many maps of a phase as possible into the products before them, and then as many sums
/// of operands.
pub(crate) fn fuse(
    steps: &[Step],
    kernels: &[Kernel],
    tables: &Tables,
    rounded: &Rounded,
    can: CanFuse<'_>,
) -> Fused {
    let steps = steps.iter().cloned().map(FusedStep::Plain).collect();
    let fused = Fused { steps, slots: Vec::new() };
    let mut fuser = Fuser { kernels, tables, rounded, can, fused };
    let mut at = 0;
    while at < fuser.fused.steps.len() {
        let chain = fuser.chain(at);
        let is_fused = chain.is_some_and(|chain| fuser.fuse_chain(&chain).is_some());
        // The step that moved to this place is examined too.
        at += usize::from(!is_fused);
    }
    fuser.fuse_operand_sums();
    fuser.fused
}

struct Fuser<'a> {
    kernels: &'a [Kernel],
    tables: &'a Tables,
    rounded: &'a Rounded,
    can: CanFuse<'a>,
    fused: Fused,
}

/// A product and the first map that reads it, by their offsets.
#[derive(Clone)]
struct Chain {
    product: usize,
    map: usize,
    kernel: usize,
    inputs: [BufferId; 2],
    /// Result of the product without its epilogue.
    intermediate: BufferId,
    result: BufferId,
    rows: usize,
    columns: usize,
    pattern: Pattern,
    /// Inputs of the map.
    map_inputs: Vec<BufferId>,
    /// All steps that read it.
    readers: Vec<usize>,
}

impl Fuser<'_> {
    /// Returns the chain that starts with the product at this place, if a map follows that a
    /// product can compute.
    fn chain(&self, product: usize) -> Option<Chain> {
        let FusedStep::Plain(step) = &self.fused.steps[product] else { return None };
        let (rows, columns) = dense_matrix(self.kernels.get(step.kernel)?)?;
        let (&[left, right], &[intermediate]) = (&step.inputs[..], &step.results[..]) else {
            return None;
        };
        let range = self.range(intermediate);
        // A step that overwrites the result ends the search, unless it reads it before.
        let map_at = (product + 1..self.fused.steps.len())
            .find(|&at| self.reads(at, &range) || self.writes(at, &range))?;
        let FusedStep::Plain(map_step) = &self.fused.steps[map_at] else { return None };
        let Kernel::Map(map) = self.kernels.get(map_step.kernel)? else { return None };
        let &[result] = &map_step.results[..] else { return None };
        let place = map_step.inputs.iter().position(|it| *it == intermediate)?;
        let is_once = map_step.inputs.iter().filter(|it| **it == intermediate).count() == 1;
        let pattern =
            pattern(map, place).filter(|it| is_once && has_layout(map, place, it, columns))?;
        let readers = self.readers(product, intermediate)?;
        let is_whole = map.extents.n_elements() == rows * columns;
        (is_whole && readers.first() == Some(&map_at)).then(|| Chain {
            product,
            map: map_at,
            kernel: step.kernel,
            inputs: [left, right],
            intermediate,
            result,
            rows,
            columns,
            pattern,
            map_inputs: map_step.inputs.clone(),
            readers,
        })
    }

    /// Fuses a chain: gelu together with its gradient if there is one, and the gradient of relu if
    /// its result may be read.
    fn fuse_chain(&mut self, chain: &Chain) -> Option<()> {
        let (function, bias) = match chain.pattern {
            Pattern::Forward { function, bias } => (function, bias),
            Pattern::ReluGradient { result } => return self.fuse_relu_gradient(chain, result),
            Pattern::GeluGradient { .. } => return None,
        };
        let product = chain.product(function, bias.map(|it| chain.map_inputs[it]), self.tables);
        if function == Function::Gelu
            && let Some(gradient) = self.gradient(chain)
            && self.fuse_both(chain, &product, &gradient).is_some()
        {
            return Some(());
        }
        if chain.readers != [chain.map] {
            return None;
        }
        let supported_variant = self.supported_variant(&product)?;
        let place = self.place(chain, &product)?;
        self.insert_forward(place, chain, supported_variant);
        Some(())
    }

    /// Fuses a gradient of relu that reads relu's result, the map's input of this number.
    fn fuse_relu_gradient(&mut self, chain: &Chain, result: usize) -> Option<()> {
        let mut product = chain.product(Function::ReluGradient, None, self.tables);
        let of_relu = chain.map_inputs[result];
        product.aux = Some(of_relu);
        let has_types = self.dtype(of_relu) == self.dtype(product.result);
        if chain.readers != [chain.map] || !has_types || !self.can_compute(&product) {
            return None;
        }
        let place = self.place(chain, &product)?;
        self.replace(place, &[chain.product, chain.map], &[FusedStep::Product(product)]);
        Some(())
    }

    /// Returns the product in a supported form: unchanged, or with a rounded bias.
    fn supported_variant(&mut self, product: &FusedProduct) -> Option<FusedProduct> {
        if self.can_compute(product) {
            return Some(product.clone());
        }
        let is_rounded =
            product.epilogue.bias == Some(DType::F32) && self.dtype(product.result) == DType::Bf16;
        let mut rounded = product.clone();
        rounded.epilogue.bias = Some(DType::Bf16);
        (is_rounded && self.can_compute(&rounded)).then_some(rounded)
    }

    /// Inserts a forward product, after the rounding of its bias if there is no rounded copy.
    fn insert_forward(&mut self, place: usize, chain: &Chain, mut product: FusedProduct) {
        let mut round = None;
        if let Some(input) = buffer(product.bias)
            && product.epilogue.bias != Some(self.dtype(input))
        {
            if let Some(copy) = self.rounded.get(&input) {
                product.bias = Some(Location::Buffer(*copy));
            } else {
                let slot = self.slot(chain.columns * DType::Bf16.bytes());
                product.bias = Some(Location::Slot(slot));
                round = Some(FusedStep::Round { input, slot });
            }
        }
        let steps: Vec<FusedStep> =
            round.into_iter().chain([FusedStep::Product(product)]).collect();
        self.replace(place, &[chain.product, chain.map], &steps);
    }

    /// Adds a slot and returns its number.
    fn slot(&mut self, n_bytes: usize) -> usize {
        self.fused.slots.push(n_bytes);
        self.fused.slots.len() - 1
    }

    /// Returns the chain that computes the gradient of this chain's gelu.
    fn gradient(&self, forward: &Chain) -> Option<Chain> {
        let later = forward.map + 1..self.fused.steps.len();
        let chains = later.filter_map(|at| self.chain(at));
        let mut chains =
            chains.filter(|it| (it.rows, it.columns) == (forward.rows, forward.columns));
        chains.find(|it| match &it.pattern {
            Pattern::Forward { .. } | Pattern::ReluGradient { .. } => false,
            Pattern::GeluGradient { argument } => {
                let mut argument: Vec<BufferId> =
                    argument.iter().map(|&at| it.map_inputs[at]).collect();
                argument.sort_unstable();
                let mut expected: Vec<BufferId> =
                    forward.bias().into_iter().chain([forward.intermediate]).collect();
                expected.sort_unstable();
                argument == expected
                    && forward.readers == [forward.map, it.map]
                    && expected
                        .iter()
                        .all(|&buffer| self.is_unchanged(buffer, forward.product + 1..it.map))
            }
        })
    }

    /// Fuses gelu and its gradient, which share an auxiliary buffer.
    fn fuse_both(&mut self, forward: &Chain, product: &FusedProduct, chain: &Chain) -> Option<()> {
        // The auxiliary output replaces the product, which nothing else reads then.
        if chain.readers != [chain.map] {
            return None;
        }
        let aux = Some(forward.intermediate);
        let mut product = FusedProduct { aux, ..product.clone() };
        product.epilogue.function = Function::GeluAux;
        let mut back = chain.product(Function::GeluGradient, None, self.tables);
        back.aux = aux;
        let [dtype, of_gradient, intermediate] =
            [product.result, back.result, forward.intermediate].map(|it| self.dtype(it));
        let size = product.epilogue.aux(forward.rows, forward.columns, dtype)?;
        // The program's own buffer has exactly the size of its original content.
        let has_room = dtype == intermediate && size.row == forward.columns;
        if !has_room || dtype != of_gradient || !self.can_compute(&back) {
            return None;
        }
        let supported_variant = self.supported_variant(&product)?;
        let place = self.place(forward, &product)?;
        let place_back = self.place(chain, &back)?;
        let mut parts = vec![chain.product, chain.map];
        if let Some((at, sum)) = self.bias_gradient(chain, &back, place_back) {
            (back.bias, back.epilogue.bias) = (Some(Location::Buffer(sum)), Some(self.dtype(sum)));
            parts.push(at);
        }
        // The later product first, so that the place of the earlier one does not change.
        self.replace(place_back, &parts, &[FusedStep::Product(back)]);
        self.insert_forward(place, forward, supported_variant);
        Some(())
    }

    /// Returns the place and the buffer of a bias gradient that the product can compute too: the
    /// sum of all rows of its result.
    fn bias_gradient(
        &mut self,
        chain: &Chain,
        product: &FusedProduct,
        place: usize,
    ) -> Option<(usize, BufferId)> {
        let later = chain.map + 1..self.fused.steps.len();
        let found = later.into_iter().find_map(|at| Some((at, self.sum_of_rows(at, chain)?)));
        let (at, buffer) = found?;
        let (sum, result) = (self.range(buffer), self.range(product.result));
        let is_apart = FusedStep::Product(product.clone())
            .inputs()
            .iter()
            .all(|it| !overlaps(&sum, &self.range(*it)));
        let crossed = |it: usize| it != chain.product && it != chain.map;
        let is_free = (place..at)
            .filter(|&it| crossed(it))
            .all(|it| !self.reads(it, &sum) && !self.writes(it, &sum));
        let is_unchanged = self.is_unchanged(product.result, chain.map + 1..at);
        let mut with = product.clone();
        (with.bias, with.epilogue.bias) =
            (Some(Location::Buffer(buffer)), Some(self.dtype(buffer)));
        let has_layout = is_apart && is_free && is_unchanged && !overlaps(&sum, &result);
        (has_layout && self.can_compute(&with)).then_some((at, buffer))
    }

    /// Returns the buffer that the step writes, if it is the sum of the rows of the chain's result.
    fn sum_of_rows(&self, at: usize, chain: &Chain) -> Option<BufferId> {
        let FusedStep::Plain(step) = &self.fused.steps[at] else { return None };
        let Kernel::Reduce(reduction) = self.kernels.get(step.kernel)? else { return None };
        let (&[input], &[sum]) = (&step.inputs[..], &step.results[..]) else { return None };
        let Map { extents, inputs, program } = &reduction.map;
        let result = *program.results.first()?;
        let is_sum = reduction.combine == Combine::Sum
            && input == chain.result
            && program.instructions[usize::from(result)] == Instruction::Input(0)
            && extents.n_elements() == chain.rows * chain.columns
            && is_dense(extents, inputs.first()?)
            && is_along_columns(extents, &reduction.result, chain.columns);
        is_sum.then_some(sum)
    }

    fn can_compute(&self, product: &FusedProduct) -> bool {
        let [left, right] = product.inputs;
        let types = [left, right, product.result].map(|it| self.dtype(it));
        let kernel = self.kernels.get(product.kernel);
        kernel.is_some_and(|it| (self.can)(it, types, product.epilogue))
    }

    /// Returns a place between the product and the map at which the fused product is
    /// equivalent to both.
    fn place(&self, chain: &Chain, product: &FusedProduct) -> Option<usize> {
        let step = FusedStep::Product(product.clone());
        let ranges = |buffers: Vec<BufferId>| -> Vec<Range<usize>> {
            buffers.into_iter().map(|it| self.range(it)).collect()
        };
        let (reads, writes) = (ranges(step.inputs()), ranges(step.results()));
        let (operands, extra) = (ranges(product.inputs.to_vec()), ranges(product.extra_inputs()));
        let is_apart = writes.iter().enumerate().all(|(number, one)| {
            let others = writes[..number].iter().chain(&reads);
            others.into_iter().all(|it| !overlaps(one, it))
        });
        let is_free = |place: &usize| {
            let earlier = chain.product + 1..*place;
            let mut later = (*place..chain.map).filter(|it| *it != chain.product);
            earlier.into_iter().all(|it| operands.iter().all(|range| !self.writes(it, range)))
                && later.all(|it| {
                    writes.iter().all(|range| !self.reads(it, range) && !self.writes(it, range))
                        && extra.iter().all(|range| !self.writes(it, range))
                })
        };
        (chain.product..=chain.map).find(is_free).filter(|_| is_apart)
    }

    /// Inserts new steps before a place, and removes their parts.
    fn replace(&mut self, place: usize, parts: &[usize], new: &[FusedStep]) {
        let old = std::mem::take(&mut self.fused.steps);
        for (at, step) in old.into_iter().enumerate() {
            if at == place {
                self.fused.steps.extend_from_slice(new);
            }
            if !parts.contains(&at) {
                self.fused.steps.push(step);
            }
        }
    }
}

impl Chain {
    fn bias(&self) -> Option<BufferId> {
        match self.pattern {
            Pattern::Forward { bias, .. } => bias.map(|it| self.map_inputs[it]),
            Pattern::ReluGradient { .. } | Pattern::GeluGradient { .. } => None,
        }
    }

    fn product(&self, function: Function, bias: Option<BufferId>, tables: &Tables) -> FusedProduct {
        let dtype = bias.map(|it| tables.buffers[it].dtype);
        let epilogue = Epilogue::new(function, dtype);
        let (kernel, inputs, result) = (self.kernel, self.inputs, self.result);
        let bias = bias.map(Location::Buffer);
        FusedProduct { kernel, inputs, result, epilogue, bias, aux: None }
    }
}

/// Returns rows and columns of a product whose result is one dense row-major matrix.
fn dense_matrix(kernel: &Kernel) -> Option<(usize, usize)> {
    match kernel {
        Kernel::Contract(Contraction { batch, rows, columns, result, .. }) => {
            let is_dense =
                (*rows == 1 || result.row == *columns) && (*columns == 1 || result.column == 1);
            (batch.n_elements() == 1 && is_dense).then_some((*rows, *columns))
        }
        Kernel::Convolve(it) => {
            let ([height, width], channels) = match it.form {
                ConvolutionForm::Forward => (it.result, it.filters),
                ConvolutionForm::Data => (it.image, it.channels),
                ConvolutionForm::Filter => return None,
            };
            let is_matrix = it.layout == ImageLayout::ChannelsLast;
            is_matrix.then_some((it.batch * height * width, it.groups * channels))
        }
        _ => None,
    }
}

/// Returns true if the map's inputs have the layout of the pattern: dense matrices, and a bias
/// along the columns.
fn has_layout(map: &Map, product: usize, pattern: &Pattern, columns: usize) -> bool {
    let is_dense = |at: usize| is_dense(&map.extents, &map.inputs[at]);
    let is_vector = |at: usize| is_along_columns(&map.extents, &map.inputs[at], columns);
    is_dense(product)
        && match pattern {
            Pattern::Forward { bias, .. } => bias.is_none_or(is_vector),
            Pattern::ReluGradient { result } => is_dense(*result),
            Pattern::GeluGradient { argument } => match argument[..] {
                [one] => is_dense(one),
                [one, other] => {
                    is_dense(one) && is_vector(other) || is_vector(one) && is_dense(other)
                }
                _ => false,
            },
        }
}

#[cfg(test)]
mod tests;
