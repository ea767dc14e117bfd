//! Random small networks: operators chosen by a seeded generator, on the tensors present.

use soybean_compiler::{Argument, Builder, Value};
use soybean_plan::{
    DType, Init, Mode,
    random::{mixed, next_state},
};

/// A seeded generator of numbers.
struct Dice(u64);

impl Dice {
    /// Returns a number below `n`.
    fn below(&mut self, n: usize) -> usize {
        self.0 = next_state(self.0);
        usize::try_from(mixed(self.0) % n as u64).unwrap()
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// The parameters of random networks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// The number of operators of the forward graph, without those that make a loss.
    pub(crate) n_operators: usize,
    /// The extents of dims; the number of ranks divides some of them.
    pub(crate) extents: &'static [usize],
    /// True if operators take parameters, which the network trains.
    pub(crate) is_trained: bool,
}

/// Returns the model of a seed, and its loss.
pub(crate) fn random_model(seed: u64, sizes: &Sizes) -> (Builder, Value) {
    let mut it = Growth::grown(Mode::Training, seed, sizes);
    let loss = it.loss();
    (it.builder, loss)
}

/// Returns the model of a seed in mode inference, and its outputs: all tensors that nothing reads.
pub(crate) fn random_predictor(seed: u64, sizes: &Sizes) -> (Builder, Vec<(String, Value)>) {
    let it = Growth::grown(Mode::Inference, seed, sizes);
    let ends = it.ends().into_iter().map(|it| (it.to_string(), it)).collect();
    (it.builder, ends)
}

/// Returns the model of a seed in which two or three products read one activation, some in another
/// shape, and its loss.
pub(crate) fn branching_model(seed: u64, sizes: &Sizes) -> (Builder, Value) {
    let mut it = Growth::empty(Mode::Training, seed, sizes);
    let [rows, columns, hidden] = [1 + it.dice.below(3), it.extent(), it.extent()];
    let x = it.builder.input("x", DType::F32, &[rows, columns]);
    let weight = it.source(&[columns, hidden]);
    let product = it.add("matmul", &[Argument::Tensor(x), weight]);
    let h = it.add("tanh", &[Argument::Tensor(product)]);
    for _ in 0..2 + it.dice.below(2) {
        let width = it.extent();
        let operand = match it.dice.below(4) {
            0 => it.add("transpose", &[Argument::Tensor(h)]),
            1 => it.add("reshape", &[Argument::Tensor(h), reshaped(&[rows, hidden])]),
            _ => h,
        };
        let last = *it.shape(operand).last().unwrap();
        let weight = it.source(&[last, width]);
        let operand = match it.shape(operand).len() {
            1 => it.add("reshape", &[Argument::Tensor(operand), row_of(last)]),
            _ => operand,
        };
        let branch = it.add("matmul", &[Argument::Tensor(operand), weight]);
        it.add("tanh", &[Argument::Tensor(branch)]);
    }
    let loss = it.loss();
    (it.builder, loss)
}

/// Returns the model of a seed in which linear operators read products over a long dim, and its
/// loss.
pub(crate) fn combining_model(seed: u64, sizes: &Sizes) -> (Builder, Value) {
    let mut it = Growth::combined(Mode::Training, seed, sizes);
    let loss = it.loss();
    (it.builder, loss)
}

/// Returns the same in mode inference, and its outputs.
pub(crate) fn combining_predictor(seed: u64, sizes: &Sizes) -> (Builder, Vec<(String, Value)>) {
    let it = Growth::combined(Mode::Inference, seed, sizes);
    let ends = it.ends().into_iter().map(|it| (it.to_string(), it)).collect();
    (it.builder, ends)
}

/// Returns a model of a few convolutions and poolings of `batch` images, and its loss.
pub(crate) fn image_model(seed: u64, batch: usize) -> (Builder, Value) {
    let sizes = Sizes { n_operators: 0, extents: &[2, 4], is_trained: true };
    let mut it = Growth::empty(Mode::Training, seed, &sizes);
    let [rows, columns] = [0, 1].map(|_| it.dice.one_of(&[6, 8, 12, 24, 48]));
    let channels = it.extent();
    let mut x = it.builder.input("x", DType::F32, &[batch, channels, rows, columns]);
    for _ in 0..2 + it.dice.below(2) {
        let shape = it.shape(x);
        let padded = shape[2].min(shape[3]);
        let reach = it.dice.one_of(&[1, 2, 3, 3, 5]).min(padded);
        let padding = it.dice.one_of(&[0, (reach - 1) / 2, reach / 2]);
        let settings = [it.dice.one_of(&[1, 1, 2]), padding].map(integer);
        x = match it.dice.below(5) {
            0 => it.add("relu", &[Argument::Tensor(x)]),
            1 | 2 => {
                let pool = it.dice.one_of(&["max_pool2d", "avg_pool2d"]);
                it.add(pool, &[&[Argument::Tensor(x), integer(reach)][..], &settings].concat())
            }
            _ => {
                let filter = [it.extent(), shape[1], reach, reach];
                let filter = it.source(&filter);
                let rest = [integer(1), integer(1)];
                it.add("conv2d", &[&[Argument::Tensor(x), filter][..], &settings, &rest].concat())
            }
        };
    }
    it.tensors.retain(|tensor| tensor.0 == x);
    let loss = it.loss();
    (it.builder, loss)
}

/// Returns the shape of a matrix of one row.
fn row_of(extent: usize) -> Argument {
    Argument::List(vec![integer(1), integer(extent)])
}

/// A network under construction.
struct Growth {
    builder: Builder,
    dice: Dice,
    sizes: Sizes,
    /// The tensors that operators can read, and whether any does.
    tensors: Vec<(Value, bool)>,
    parameters: Vec<Value>,
    n_operators: usize,
}

impl Growth {
    fn grown(mode: Mode, seed: u64, sizes: &Sizes) -> Self {
        let mut it = Self::new(mode, seed, sizes);
        while it.n_operators < sizes.n_operators {
            it.grow();
        }
        it
    }

    fn empty(mode: Mode, seed: u64, sizes: &Sizes) -> Self {
        Self {
            builder: Builder::in_mode(mode),
            dice: Dice(seed),
            sizes: *sizes,
            tensors: Vec::new(),
            parameters: Vec::new(),
            n_operators: 0,
        }
    }

    fn combined(mode: Mode, seed: u64, sizes: &Sizes) -> Self {
        let mut it = Self::empty(mode, seed, sizes);
        let [rows, columns, depth] = [it.extent(), it.extent(), 48];
        let x = it.builder.input("x", DType::F32, &[rows, depth]);
        let mut sums = Vec::new();
        for _ in 0..1 + it.dice.below(3) {
            let weight = it.source(&[depth, columns]);
            sums.push(it.add("matmul", &[Argument::Tensor(x), weight]));
        }
        let mut sum = sums[0];
        for &other in &sums[1..] {
            let scaled = it.linear(sum);
            // Terms are added up where their shapes are still equal.
            sum = if it.shape(scaled) == it.shape(other) { scaled } else { sum };
            let operands = [sum, other].map(Argument::Tensor);
            let operator = it.dice.one_of(&["add", "sub", "add"]);
            sum = it.add(operator, &operands);
        }
        for _ in 0..1 + it.dice.below(2) {
            sum = it.linear(sum);
        }
        it.add("tanh", &[Argument::Tensor(sum)]);
        it
    }

    /// Adds a linear operator that reads a matrix.
    fn linear(&mut self, x: Value) -> Value {
        let here = Argument::Tensor(x);
        let shape = self.shape(x);
        let [rows, columns] = shape[..] else { return x };
        match self.dice.below(9) {
            0 => self.add("mul", &[here, Argument::Float(0.3)]),
            1 => {
                let scale = self.source(&[columns]);
                let operator = self.dice.one_of(&["mul", "div"]);
                self.add(operator, &[here, scale])
            }
            2 => self.add("neg", &[here]),
            3 => self.add("transpose", &[here]),
            4 if columns > 1 => {
                let range = [integer(1), integer(0), integer(columns - 1)];
                self.add("slice", &[&[here][..], &range].concat())
            }
            5 => {
                let pads = Argument::List([0, 0, 1, 2].map(integer).to_vec());
                self.add("pad", &[here, pads, Argument::Float(0.0)])
            }
            6 => {
                let dim = integer(self.dice.below(2));
                self.add("sum", &[here, dim])
            }
            7 => {
                let weight = self.source(&[columns, 1]);
                self.add("matmul", &[here, weight])
            }
            8 => {
                let weight = self.source(&[48, columns]);
                let source = self.source(&[rows, 48]);
                let other = self.add("matmul", &[source, weight]);
                let parts = Argument::List(vec![here, Argument::Tensor(other)]);
                self.add("concat", &[parts, integer(0)])
            }
            _ => x,
        }
    }

    fn new(mode: Mode, seed: u64, sizes: &Sizes) -> Self {
        let mut it = Self::empty(mode, seed, sizes);
        let rank = it.dice.one_of(&[1, 2, 2, 2, 2, 2, 3, 4]);
        let shape: Vec<usize> = (0..rank).map(|_| it.extent()).collect();
        if rank == 1 && sizes.is_trained {
            let words = it.builder.input("words", DType::I32, &shape);
            let rows = [it.extent(), it.extent()];
            let rows = it.source(&rows);
            it.add("embedding", &[Argument::Tensor(words), rows]);
        } else {
            let x = it.builder.input("x", DType::F32, &shape);
            it.tensors.push((x, false));
        }
        it
    }

    fn extent(&mut self) -> usize {
        self.dice.one_of(self.sizes.extents)
    }

    fn shape(&self, value: Value) -> Vec<usize> {
        self.builder.shape(value).to_vec()
    }

    /// Returns a tensor to read; recent ones are likelier.
    fn any(&mut self) -> Value {
        let n = self.tensors.len();
        let at = (n - 1).saturating_sub(self.dice.below(n).min(self.dice.below(n)));
        self.tensors[at].0
    }

    /// Returns a tensor of this shape to read, which may be the given one.
    fn alike(&mut self, value: Value) -> Argument {
        let shape = self.shape(value);
        let all: Vec<Value> =
            self.tensors.iter().map(|it| it.0).filter(|&it| self.shape(it) == shape).collect();
        Argument::Tensor(self.dice.one_of(&all))
    }

    /// Returns a tensor to multiply with or to add: a new or present parameter, or an input.
    fn source(&mut self, shape: &[usize]) -> Argument {
        let name = format!("s{}", self.builder.graph().n_values());
        if !self.sizes.is_trained {
            return Argument::Tensor(self.builder.input(&name, DType::F32, shape));
        }
        let known = self.parameters.iter().copied().find(|&it| self.shape(it) == shape);
        if let Some(known) = known.filter(|_| self.dice.below(2) == 0) {
            return Argument::Tensor(known);
        }
        let parameter = self.builder.parameter(&name, shape, Init::Constant(0.1));
        self.parameters.push(parameter);
        Argument::Tensor(parameter)
    }

    fn add(&mut self, operator: &str, arguments: &[Argument]) -> Value {
        let is_read = |value: Value| {
            let holds = |argument: &Argument| *argument == Argument::Tensor(value);
            arguments.iter().any(|argument| match argument {
                Argument::List(parts) => parts.iter().any(holds),
                other => holds(other),
            })
        };
        for tensor in &mut self.tensors {
            tensor.1 |= is_read(tensor.0);
        }
        let Ok(Argument::Tensor(result)) = self.builder.call(operator, arguments) else {
            unreachable!("{operator} fits {arguments:?}")
        };
        self.tensors.push((result, false));
        self.n_operators += 1;
        result
    }

    /// Adds an operator, or none if the choices do not fit.
    fn grow(&mut self) {
        let x = self.any();
        let shape = self.shape(x);
        let rank = shape.len();
        let (here, last) = (Argument::Tensor(x), shape.last().copied().unwrap_or(1));
        let choice = self.dice.below(13);
        let (operator, others) = match choice {
            0..3 if rank >= 2 => {
                let width = self.extent();
                ("matmul", vec![self.source(&[last, width])])
            }
            3 if rank >= 1 => ("add", vec![self.source(&[last])]),
            4 => (self.dice.one_of(&["add", "mul", "sub", "maximum"]), vec![self.alike(x)]),
            5 if self.dice.below(3) == 0 => ("dropout", vec![Argument::Float(0.5)]),
            5 => (self.dice.one_of(&["relu", "tanh"]), vec![]),
            6 if rank >= 1 => {
                (self.dice.one_of(&["sum", "mean", "max", "softmax"]), vec![self.dim(rank)])
            }
            7 if rank == 2 => ("transpose", vec![]),
            8 | 9 if rank == 2 => {
                let equation = self.dice.one_of(&["ij,kj->ik", "ij,ik->jk", "ij,ij->i"]);
                ("einsum", vec![Argument::Text(equation.to_owned()), self.alike(x)])
            }
            10 if rank >= 1 => {
                let parts = Argument::List(vec![here, self.alike(x)]);
                let dim = self.dim(rank);
                self.add("concat", &[parts, dim]);
                return;
            }
            11 if rank >= 1 => ("reshape", vec![reshaped(&shape)]),
            12 if rank == 4 => {
                let filter = [self.extent(), shape[1], 3, 3];
                let settings = [1, 1, 1, 1].map(Argument::Integer).to_vec();
                ("conv2d", [vec![self.source(&filter)], settings].concat())
            }
            _ => return,
        };
        self.add(operator, &[vec![here], others].concat());
    }

    fn dim(&mut self, rank: usize) -> Argument {
        integer(self.dice.below(rank))
    }

    /// Returns the tensors that nothing reads.
    fn ends(&self) -> Vec<Value> {
        self.tensors.iter().filter(|it| !it.1).map(|it| it.0).collect()
    }

    /// Returns the sum of the means of all tensors that nothing reads.
    fn loss(&mut self) -> Value {
        let ends = self.ends();
        let means: Vec<Value> = ends
            .iter()
            .map(|&it| self.add("mean", &[Argument::Tensor(it), Argument::All]))
            .collect();
        let (first, others) = means.split_first().unwrap();
        let sum = |sum, &mean: &Value| self.add("add", &[sum, mean].map(Argument::Tensor));
        others.iter().fold(*first, sum)
    }
}

/// Returns another shape of as many elements: one dim in two parts, or all dims in one.
fn reshaped(shape: &[usize]) -> Argument {
    let even = shape.iter().position(|it| it.is_multiple_of(2) && *it > 2);
    let shape: Vec<usize> = match even.filter(|_| shape.len() < 3) {
        Some(dim) => [&shape[..dim], &[2, shape[dim] / 2], &shape[dim + 1..]].concat(),
        None => vec![shape.iter().product()],
    };
    Argument::List(shape.into_iter().map(integer).collect())
}

fn integer(number: usize) -> Argument {
    Argument::Integer(i64::try_from(number).unwrap())
}
