//! A training step of a perceptron with three layers, as the compiler emits it, in several memory
//! plans.

use std::collections::BTreeMap;

use soybean_plan::{
    BUFFER_ALIGNMENT, Binary, Buffer, BufferId, Combine, Contraction, DType, Entry, ImageLayout,
    Init, Input, Instruction, Kernel, Map, MatrixStrides, Mesh, Output, Parameter, Reduction, Rows,
    ScalarProgram, Shape, Step, Strides, Tables, Tile, Tiling, Unary, random::mixed,
};

use super::formulas::{binary, gelu, gelu_gradient, last};
use Instruction::{Constant, Input as X, Select};

const BATCH: usize = 64;
const WIDTHS: [usize; 4] = [32, 48, 40, 10];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Activation {
    Relu,
    Gelu,
}

pub(super) struct Perceptron {
    pub(super) steps: Vec<Step>,
    pub(super) kernels: Vec<Kernel>,
    pub(super) tables: Tables,
}

/// Elements and offsets of the buffers, from the compiler's plan for one GPU.
const BUFFERS: [(usize, usize); 31] = [
    (2048, 0),
    (64, 8192),
    (1536, 8448),
    (48, 14592),
    (1920, 14784),
    (40, 22464),
    (400, 22656),
    (10, 24256),
    (10, 24320),
    (3072, 24384),
    (3072, 36672),
    (2560, 48960),
    (2560, 59200),
    (640, 69440),
    (640, 69440),
    (64, 72000),
    (640, 79680),
    (64, 72256),
    (64, 72512),
    (1, 83840),
    (640, 79680),
    (10, 69440),
    (2560, 69440),
    (400, 82240),
    (2560, 69440),
    (40, 48960),
    (3072, 48960),
    (1920, 61248),
    (3072, 48960),
    (48, 24384),
    (1536, 24384),
];
/// Offsets that differ for relu.
const RELU_OFFSETS: [(BufferId, usize); 19] = [
    (10, 24384),
    (12, 48960),
    (13, 36672),
    (14, 36672),
    (15, 39232),
    (16, 59200),
    (17, 39488),
    (18, 39744),
    (19, 66880),
    (20, 59200),
    (21, 36672),
    (22, 36672),
    (23, 46912),
    (24, 48960),
    (25, 36672),
    (26, 36672),
    (27, 59200),
    (28, 24384),
    (29, 36672),
];

impl Perceptron {
    pub(super) fn new(activation: Activation, has_bias: bool) -> Self {
        let mut model = Self { steps: Vec::new(), kernels: Vec::new(), tables: tables(activation) };
        model.forward(activation, has_bias);
        let logits = if has_bias { 14 } else { 13 };
        model.reduce(&[BATCH, 10], &[X(0), binary(Binary::Multiply, 0, 0)], (logits, 19), [0, 0]);
        let scale = [X(0), Constant(0.01), binary(Binary::Multiply, 0, 1)];
        model.map(&[BATCH, 10], &[[10, 1]], &scale, &[logits], 20);
        model.backward(activation, has_bias);
        model
    }

    fn forward(&mut self, activation: Activation, has_bias: bool) {
        for layer in 0..3 {
            let (into, out) = (WIDTHS[layer], WIDTHS[layer + 1]);
            let (x, product) = ([0, 10, 12][layer], 9 + 2 * layer);
            self.contract([BATCH, into, out], [(into, 1), (out, 1)], [x, 2 + 2 * layer], product);
            let sum = [X(0), X(1), binary(Binary::Add, 0, 1)];
            let sum = if has_bias { &sum[..] } else { &sum[..1] };
            let function = match (activation, layer) {
                (_, 2) => sum.to_vec(),
                (Activation::Relu, _) => {
                    [sum, &[Instruction::Unary(Unary::Relu, last(sum))]].concat()
                }
                (Activation::Gelu, _) => gelu(sum),
            };
            if layer < 2 || has_bias {
                let (strides, inputs) = ([[out, 1], [0, 1]], [product, 3 + 2 * layer]);
                let n_inputs = 1 + usize::from(has_bias);
                self.map(
                    &[BATCH, out],
                    &strides[..n_inputs],
                    &function,
                    &inputs[..n_inputs],
                    product + 1,
                );
            }
        }
    }

    fn backward(&mut self, activation: Activation, has_bias: bool) {
        for layer in (0..3).rev() {
            let (into, out) = (WIDTHS[layer], WIDTHS[layer + 1]);
            let gradient = [28, 24, 20][layer];
            let (weight, bias) = (2 + 2 * layer, 3 + 2 * layer);
            if has_bias {
                let sum = [29, 25, 21][layer];
                self.reduce(&[BATCH, out], &[X(0)], (gradient, sum), [0, 1]);
                self.update(out, bias, sum);
            }
            let below = [0, 26, 22][layer];
            if layer > 0 {
                self.contract([BATCH, out, into], [(out, 1), (1, out)], [gradient, weight], below);
            }
            let (x, of_weight) = ([0, 10, 12][layer], [30, 27, 23][layer]);
            self.contract([into, BATCH, out], [(1, into), (out, 1)], [x, gradient], of_weight);
            self.update(into * out, weight, of_weight);
            if layer == 0 {
                continue;
            }
            let (result, argument) = (below + 2, 7 + 2 * layer);
            match activation {
                Activation::Relu => {
                    let positive = binary(Binary::Greater, 0, 2);
                    let instructions = [X(0), X(1), Constant(0.0), positive, Select(3, 1, 2)];
                    self.map(&[BATCH, into], &[[into, 1]; 2], &instructions, &[x, below], result);
                }
                Activation::Gelu => {
                    let inputs = [below, argument, 1 + 2 * layer];
                    let strides = [[into, 1], [into, 1], [0, 1]];
                    let n_inputs = 2 + usize::from(has_bias);
                    let instructions = gelu_gradient(has_bias);
                    self.map(
                        &[BATCH, into],
                        &strides[..n_inputs],
                        &instructions,
                        &inputs[..n_inputs],
                        result,
                    );
                }
            }
        }
    }

    fn step(&mut self, kernel: impl Into<Kernel>, inputs: &[BufferId], result: BufferId) {
        let (kernel, number) = (kernel.into(), self.kernels.len());
        self.kernels.push(kernel);
        self.steps.push(Step { kernel: number, inputs: inputs.to_vec(), results: vec![result] });
    }

    fn contract(
        &mut self,
        [rows, depth, columns]: [usize; 3],
        [left, right]: [(usize, usize); 2],
        inputs: [BufferId; 2],
        result: BufferId,
    ) {
        let strides_of = |(row, column)| MatrixStrides { batch: Strides::default(), row, column };
        let (left, right, result_strides) =
            (strides_of(left), strides_of(right), strides_of((columns, 1)));
        let batch = Shape::new(&[]);
        self.step(
            Contraction { batch, rows, columns, depth, left, right, result: result_strides },
            &inputs,
            result,
        );
    }

    fn map(
        &mut self,
        extents: &[usize],
        strides: &[[usize; 2]],
        instructions: &[Instruction],
        inputs: &[BufferId],
        result: BufferId,
    ) {
        let strides = strides.iter().map(|it| Strides::new(&it[2 - extents.len()..]));
        self.step(map(extents, strides.collect(), instructions), inputs, result);
    }

    fn reduce(
        &mut self,
        extents: &[usize],
        instructions: &[Instruction],
        (input, result): (BufferId, BufferId),
        strides: [usize; 2],
    ) {
        let map = map(extents, vec![Shape::new(extents).dense_strides()], instructions);
        let reduction = Reduction { map, combine: Combine::Sum, result: Strides::new(&strides) };
        self.step(reduction, &[input], result);
    }

    /// `p - 0.1 g`
    fn update(&mut self, n_elements: usize, parameter: BufferId, gradient: BufferId) {
        let [multiply, subtract] = [binary(Binary::Multiply, 1, 2), binary(Binary::Subtract, 0, 3)];
        let instructions = [X(0), X(1), Constant(0.1), multiply, subtract];
        self.map(&[n_elements], &[[0, 1]; 2], &instructions, &[parameter, gradient], parameter);
    }

    /// Keeps the compiler's offsets.
    pub(super) fn with_compiled_offsets(self) -> Self {
        self
    }

    /// Gives every buffer its own memory.
    pub(super) fn with_separate_buffers(mut self) -> Self {
        let mut buffers = self.tables.buffers.to_vec();
        let mut end = 0;
        for buffer in &mut buffers {
            buffer.offset = end;
            end += (buffer.n_elements * buffer.dtype.bytes()).next_multiple_of(BUFFER_ALIGNMENT);
        }
        self.tables.buffers = buffers.into();
        self.tables.arena_bytes = end;
        self
    }

    /// Makes products and their results `bf16`.
    pub(super) fn rounded(mut self) -> Self {
        let mut buffers = self.tables.buffers.to_vec();
        for number in [9, 10, 11, 12, 13, 14, 20, 22, 24, 26, 28] {
            buffers[number].dtype = DType::Bf16;
        }
        self.tables.buffers = buffers.into();
        self.with_separate_buffers()
    }

    /// Shuffles the steps subtract breaking dependencies.
    pub(super) fn shuffled(mut self, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut left = std::mem::take(&mut self.steps);
        while !left.is_empty() {
            let ready = |at: &usize| left[..*at].iter().all(|it| !depends(&left[*at], it));
            let ready: Vec<usize> = (0..left.len()).filter(ready).collect();
            // Mostly in order, as compilers emit steps.
            let at = if random.below(3) > 0 { 0 } else { random.below(ready.len()) };
            self.steps.push(left.remove(ready[at]));
        }
        self
    }

    /// Lets buffers with disjoint lifetimes share memory at random.
    pub(super) fn with_random_offsets(mut self, seed: u64) -> Self {
        let mut random = Random(seed ^ 0x5EED);
        let lifetimes = self.lifetimes();
        let mut buffers = self.tables.buffers.to_vec();
        let size =
            |it: &Buffer| (it.n_elements * it.dtype.bytes()).next_multiple_of(BUFFER_ALIGNMENT);
        let mut placed: Vec<BufferId> = Vec::new();
        let mut arena_bytes = 0;
        let mut order: Vec<BufferId> = lifetimes.keys().copied().collect();
        order.sort_by_key(|it| (lifetimes[it].0, *it));
        for id in order {
            let (start, end) = lifetimes[&id];
            let is_map = start
                .checked_sub(1)
                .is_some_and(|at| matches!(self.kernels[self.steps[at].kernel], Kernel::Map(_)));
            let conflicts = |other: BufferId, offset: usize| {
                let (first, last) = lifetimes[&other];
                let (from, to) =
                    (buffers[other].offset, buffers[other].offset + size(&buffers[other]));
                let is_in_place = is_map
                    && last == start
                    && from == offset
                    && size(&buffers[other]) == size(&buffers[id]);
                first <= end
                    && start <= last
                    && !is_in_place
                    && from < offset + size(&buffers[id])
                    && offset < to
            };
            let edges = placed
                .iter()
                .flat_map(|&it| [buffers[it].offset, buffers[it].offset + size(&buffers[it])]);
            let free =
                edges.chain([0]).filter(|offset| placed.iter().all(|&it| !conflicts(it, *offset)));
            let free: Vec<usize> = free.collect();
            buffers[id].offset = free[random.below(free.len())];
            arena_bytes = arena_bytes.max(buffers[id].offset + size(&buffers[id]));
            placed.push(id);
        }
        self.tables.buffers = buffers.into();
        self.tables.arena_bytes = arena_bytes;
        self
    }

    /// Returns the first and the last step that needs each buffer, counted from 1.
    fn lifetimes(&self) -> BTreeMap<BufferId, (usize, usize)> {
        let mut lifetimes: BTreeMap<BufferId, (usize, usize)> = BTreeMap::new();
        for (at, step) in (1..).zip(&self.steps) {
            for &buffer in step.inputs.iter().chain(&step.results) {
                lifetimes.entry(buffer).or_insert((at, at)).1 = at;
            }
        }
        for buffer in (0..9).chain(self.tables.loss()) {
            let from = if Some(buffer) == self.tables.loss() { lifetimes[&buffer].0 } else { 0 };
            lifetimes.insert(buffer, (from, usize::MAX));
        }
        lifetimes
    }
}

/// Returns true if the later step depends on the earlier.
fn depends(later: &Step, earlier: &Step) -> bool {
    let overlaps = |one: &[BufferId], other: &[BufferId]| one.iter().any(|it| other.contains(it));
    overlaps(&later.inputs, &earlier.results)
        || overlaps(&later.results, &earlier.inputs)
        || overlaps(&later.results, &earlier.results)
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(1);
        usize::try_from(mixed(self.0) >> 33).unwrap() % n
    }
}

fn map(extents: &[usize], inputs: Vec<Strides>, instructions: &[Instruction]) -> Map {
    let results = vec![last(instructions)].into();
    let program = ScalarProgram { instructions: instructions.to_vec().into(), results };
    Map { extents: Shape::new(extents), inputs: inputs.into(), program }
}

fn tables(activation: Activation) -> Tables {
    let make =
        |&(n_elements, offset): &(usize, usize)| Buffer { offset, n_elements, dtype: DType::F32 };
    let mut buffers: Vec<Buffer> = BUFFERS.iter().map(make).collect();
    if activation == Activation::Relu {
        RELU_OFFSETS.iter().for_each(|&(buffer, offset)| buffers[buffer].offset = offset);
        buffers[30].offset = 36672;
    }
    let tile = |n: usize| Tile::new(Shape::new(&[n]), Tiling::replicated(0));
    let parameter = |buffer: BufferId| Parameter {
        name: format!("b{buffer}").into(),
        tile: tile(BUFFERS[buffer].0),
        layout: ImageLayout::ChannelsFirst,
        buffer,
        init: Init::Constant(0.0),
        is_trained: true,
        use_hash: 0,
    };
    let input = Input {
        name: "x".into(),
        dtype: DType::F32,
        tile: tile(2048),
        buffer: 0,
        n_classes: None,
        ignored_label: None,
        is_queried: true,
    };
    let output = Output {
        name: "logits".into(),
        dtype: DType::F32,
        tile: tile(640),
        buffer: 14,
        rows: Rows::Mixed,
    };
    Tables {
        arena_bytes: 84_096,
        buffers: buffers.into(),
        entries: vec![Entry::only(1, 1, 6, 0).trained(19, 0)].into(),
        inputs: vec![input].into(),
        parameters: (2..8).map(parameter).collect(),
        outputs: vec![output].into(),
        ..Tables::new("perceptron", Mesh::new(1))
    }
}
