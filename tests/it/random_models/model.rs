//! Models of random operators.

use soybean_compiler::{Argument, Builder, Value};
use soybean_plan::{DType, Init, Shape};
use soybean_test_support::models::call;

/// The pinned tiling of parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pin {
    /// None: the search chooses.
    None,
    /// Partitioned over all devices.
    Parts,
    /// Replicated on every device.
    Whole,
}

/// A model under construction. Operators are chosen by number, and skipped where they do not fit.
pub(crate) struct Model {
    pub(crate) builder: Builder,
    pub(crate) here: Value,
    pub(crate) before: Vec<Value>,
    pub(crate) parameters: Vec<Value>,
}

impl Model {
    pub(crate) fn new(shape: &[usize]) -> Self {
        let mut builder = Builder::new();
        let here = builder.input("x", DType::F32, shape);
        Self { builder, here, before: vec![here], parameters: Vec::new() }
    }

    pub(crate) fn shape(&self) -> Shape {
        self.builder.shape(self.here)
    }

    pub(crate) fn parameter(&mut self, shape: &[usize]) -> Argument {
        let name = format!("p{}", self.parameters.len());
        let value = self.builder.parameter(&name, shape, Init::Uniform { low: -0.7, high: 0.7 });
        self.parameters.push(value);
        Argument::Tensor(value)
    }

    pub(crate) fn apply(&mut self, operator: &str, arguments: &[Argument]) {
        let all: Vec<Argument> =
            [Argument::Tensor(self.here)].into_iter().chain(arguments.iter().cloned()).collect();
        self.here = call(&mut self.builder, operator, &all);
        self.before.push(self.here);
    }

    pub(crate) fn add_operator(&mut self, choice: u8, detail: usize) {
        let shape = self.shape();
        let rank = shape.len();
        let last = *shape.last().unwrap_or(&1);
        let dim = || Argument::Integer(i64::try_from(detail % rank.max(1)).unwrap());
        let unary = ["relu", "tanh", "sigmoid", "gelu", "silu", "neg"];
        match choice {
            0..=2 if rank >= 2 => {
                let w = self.parameter(&[last, [1, 2, 3, 4, 6, 8][detail % 6]]);
                self.apply("matmul", &[w]);
            }
            3 if rank >= 1 => {
                let b = self.parameter(&[last]);
                self.apply("add", &[b]);
            }
            4 if rank >= 1 => {
                let mut column = vec![1; rank];
                column[0] = shape[0];
                let scale = self.parameter(&column);
                self.apply("mul", &[scale]);
            }
            5..=7 => self.apply(unary[detail % unary.len()], &[]),
            8 if rank >= 1 => self.apply("softmax", &[dim()]),
            11 if rank >= 2 => self.apply(["sum", "mean", "max"][detail % 3], &[dim()]),
            12 => {
                let same =
                    self.before.iter().copied().filter(|it| self.builder.shape(*it) == shape);
                let same: Vec<Value> = same.collect();
                self.apply(
                    ["add", "mul", "sub"][detail % 3],
                    &[Argument::Tensor(same[detail % same.len()])],
                );
            }
            14 if rank >= 2 => {
                // x x^T: one tensor is both operands.
                let transposed =
                    call(&mut self.builder, "transpose", &[Argument::Tensor(self.here)]);
                self.apply("matmul", &[Argument::Tensor(transposed)]);
            }
            15 if !self.parameters.is_empty() => {
                let used = self.parameters[detail % self.parameters.len()];
                if self.builder.shape(used)[..] == shape[..] {
                    self.apply("add", &[Argument::Tensor(used)]);
                }
            }
            20 if rank >= 2 => self.add_branches(detail),
            21 if rank >= 2 => self.gate(detail),
            22 if rank >= 2 => self.add_attention(detail),
            23 if rank >= 2 => self.combine(detail),
            _ => self.change_layout(choice, detail),
        }
    }

    /// Adds up products of one tensor, after an activation or at once.
    fn add_branches(&mut self, detail: usize) {
        let (here, last) = (self.here, self.shape()[self.shape().len() - 1]);
        let width = [2, 3, 8, 24][detail % 4];
        let branch = |model: &mut Self, at: usize| {
            model.here = here;
            if (detail >> at & 1) == 1 {
                model.apply("tanh", &[]);
            }
            let weight = model.parameter(&[last, width]);
            model.apply("matmul", &[weight]);
            if (detail >> 3 & 1) == 1 {
                model.apply("sigmoid", &[]);
            }
            Argument::Tensor(model.here)
        };
        let n_branches = 2 + (detail >> 4 & 1);
        let branches: Vec<Argument> = (0..n_branches).map(|it| branch(self, it)).collect();
        branches[..n_branches - 1]
            .iter()
            .for_each(|it| self.apply("add", std::slice::from_ref(it)));
    }

    /// Scales two products of one tensor, adds or subtracts them, and applies a linear operator.
    pub(crate) fn combine(&mut self, detail: usize) {
        let (here, last) = (self.here, self.shape()[self.shape().len() - 1]);
        let width = [3, 5, 7, 2][detail % 4];
        let is_set = |bit: usize| detail >> bit & 1 == 1;
        let mut products = [false, true].map(|is_second| {
            self.here = here;
            let weight = self.parameter(&[last, width]);
            self.apply("matmul", &[weight]);
            if is_set(2) && !is_second {
                let scale = self.parameter(&[width]);
                self.apply(if is_set(3) { "mul" } else { "add" }, &[scale]);
            }
            if is_set(4) && is_second {
                self.apply("mul", &[Argument::Float(-0.5)]);
            }
            self.here
        });
        products.rotate_left(usize::from(is_set(3)));
        self.here = products[0];
        self.apply(if is_set(5) { "sub" } else { "add" }, &[Argument::Tensor(products[1])]);
        match detail >> 6 & 3 {
            1 => {
                let Argument::List(range) = integers(&[self.shape().len() - 1, 0, width - 1])
                else {
                    unreachable!("integers are a list")
                };
                self.apply("slice", &range);
            }
            2 => self.apply("sum", &[integer(self.shape().len() - 2)]),
            3 => {
                let weight = self.column_of_input(width);
                self.apply("matmul", &[weight]);
            }
            _ => {}
        }
        if is_set(8) {
            self.apply("tanh", &[]);
        }
    }

    /// Returns a matrix of one column: numbers of the input, so that no gradient reads what is
    /// multiplied with it, or a parameter if the input has too few.
    fn column_of_input(&mut self, length: usize) -> Argument {
        let x = self.before[0];
        let shape = self.builder.shape(x);
        if shape.len() != 2 || shape[1] < length {
            return self.parameter(&[length, 1]);
        }
        let builder = &mut self.builder;
        let mut cut = |from: Value, dim: usize, length: usize| {
            let range = [dim, 0, length].map(integer);
            call(builder, "slice", &[&[Argument::Tensor(from)][..], &range].concat())
        };
        let row = cut(x, 0, 1);
        let row = cut(row, 1, length);
        let column = integers(&[length, 1]);
        Argument::Tensor(call(builder, "reshape", &[Argument::Tensor(row), column]))
    }

    /// Adds attention to products of one tensor, or from those to parameters, causal, in a
    /// window, or neither. All heads of queries, or pairs of them, may share parameters.
    fn add_attention(&mut self, detail: usize) {
        let (here, shape) = (self.here, self.shape());
        let (rank, last) = (shape.len(), shape[shape.len() - 1]);
        let is_causal = detail & 1 == 1;
        let mut operand = |width: usize, n_keys: Option<usize>| match n_keys {
            Some(n_keys) => {
                let mut leading = shape[..rank - 2].to_vec();
                if let Some(heads) = leading.last_mut().filter(|_| detail >> 6 & 1 == 1) {
                    let is_paired = detail >> 7 & 1 == 1 && *heads % 2 == 0;
                    *heads = if is_paired { *heads / 2 } else { 1 };
                }
                self.parameter(&[&leading[..], &[n_keys, width]].concat())
            }
            None => {
                self.here = here;
                let weight = self.parameter(&[last, width]);
                self.apply("matmul", &[weight]);
                Argument::Tensor(self.here)
            }
        };
        let n_keys = (detail >> 1 & 1 == 1).then_some([16, 33, 64][detail / 4 % 3]);
        // Sometimes the tensor itself is the query. If it is the input, it needs no gradient.
        let is_own = detail >> 5 & 1 == 1;
        let features = if is_own { last } else { 2 + detail / 12 % 2 };
        let query = if is_own { Argument::Tensor(here) } else { operand(features, None) };
        let [key, value] = [features, 3].map(|width| operand(width, n_keys));
        let Argument::Tensor(query) = query else { unreachable!("operands are tensors") };
        self.here = query;
        let n_queries = shape[rank - 2];
        let is_windowed = is_causal && detail >> 8 & 1 == 1;
        if is_windowed && n_keys.is_none_or(|it| n_queries <= it) {
            let window = Argument::Integer(i64::try_from(1 + detail % 40).unwrap());
            return self.apply("sliding_window_attention", &[key, value, window]);
        }
        self.apply("scaled_dot_product_attention", &[key, value, Argument::Boolean(is_causal)]);
    }

    /// Multiplies parts of one product, as gates do, and joins them with others.
    fn gate(&mut self, detail: usize) {
        let last = self.shape()[self.shape().len() - 1];
        let (width, n_parts) = ([2, 6, 8, 24][detail % 4], 2 + (detail >> 2 & 1));
        let weight = self.parameter(&[last, n_parts * width]);
        self.apply("matmul", &[weight]);
        if (detail >> 4 & 1) == 1 {
            let bias = self.parameter(&[n_parts * width]);
            self.apply("add", &[bias]);
        }
        // The parts are ranges of columns, or have a dim of their own.
        let (mut dim, mut n_columns) = (self.shape().len() - 1, width);
        if (detail >> 5 & 1) == 1 {
            let extents = [&self.shape()[..dim], &[n_parts, width]].concat();
            self.apply("reshape", &[integers(&extents)]);
            n_columns = 1;
        }
        let product = self.here;
        let part = |model: &mut Self, at: usize| {
            let range = integers(&[dim, at * n_columns, (at + 1) * n_columns]);
            let Argument::List(range) = range else { unreachable!("integers are a list") };
            model.here = product;
            model.apply("slice", &range);
            Argument::Tensor(model.here)
        };
        let parts: Vec<Argument> = (0..n_parts).map(|it| part(self, it)).collect();
        self.apply("sigmoid", &[]);
        self.apply("mul", &parts[..1]);
        if (detail >> 3 & 1) == 1 {
            let joined = [&parts[..n_parts - 1], &[Argument::Tensor(self.here)]].concat();
            dim = self.shape().len() - 1;
            let dim = Argument::Integer(i64::try_from(dim).unwrap());
            self.here = call(&mut self.builder, "concat", &[Argument::List(joined), dim]);
            self.before.push(self.here);
        }
    }

    fn change_layout(&mut self, choice: u8, detail: usize) {
        let shape = self.shape();
        let rank = shape.len();
        let last = *shape.last().unwrap_or(&1);
        match choice {
            9 if rank >= 2 => self.apply(["transpose", "flatten"][detail % 2], &[]),
            10 if rank >= 1 => {
                let split = [2, 3, 4].into_iter().find(|it| last.is_multiple_of(*it) && rank < 4);
                let Some(split) = split else { return };
                let extents = shape[..rank - 1].iter().copied().chain([split, last / split]);
                let list =
                    extents.map(|it| Argument::Integer(i64::try_from(it).unwrap())).collect();
                self.apply("reshape", &[Argument::List(list)]);
            }
            13 if rank >= 3 => {
                let order =
                    (0..rank).map(|it| Argument::Integer(i64::try_from((it + 1) % rank).unwrap()));
                self.apply("permute", &[Argument::List(order.collect())]);
            }
            16 | 17 => self.apply("reshape", &[integers(&rearranged(&shape, detail))]),
            18 if rank >= 1 => {
                let around = (0..2 * rank).map(|it| (detail >> it & 3) % 3);
                let pads = integers(&around.collect::<Vec<_>>());
                self.apply("pad", &[pads, Argument::Float(0.5)]);
            }
            19 if rank >= 2 => {
                let order: Vec<usize> = (0..rank).rev().collect();
                self.apply("permute", &[integers(&order)]);
            }
            _ => {}
        }
    }

    /// Pins the parameters: partitioned along the first dim that all devices can split, or
    /// replicated.
    pub(crate) fn pin_parameters(&mut self, pin: Pin, n_gpus: usize) {
        for &parameter in &self.parameters {
            let shape = self.builder.shape(parameter);
            let dim = shape.iter().position(|extent| extent.is_multiple_of(n_gpus));
            let text = match (pin, dim) {
                (Pin::Parts, Some(dim)) => format!("P{dim}"),
                (Pin::Whole, _) => "r".to_owned(),
                (Pin::Parts, None) | (Pin::None, _) => continue,
            };
            let arguments = [Argument::Tensor(parameter), Argument::Text(text)];
            call(&mut self.builder, "tiled", &arguments);
        }
    }

    /// Returns the mean of the squares plus a direct term of every parameter, so that each has a
    /// gradient.
    pub(crate) fn loss(&mut self) -> Value {
        let scale = self.parameter(&[1]);
        self.apply("mul", &[scale]);
        let square =
            call(&mut self.builder, "powi", &[Argument::Tensor(self.here), Argument::Integer(2)]);
        let mut loss = call(&mut self.builder, "mean", &[Argument::Tensor(square), Argument::All]);
        for parameter in self.parameters.clone() {
            let mean =
                call(&mut self.builder, "mean", &[Argument::Tensor(parameter), Argument::All]);
            loss =
                call(&mut self.builder, "add", &[Argument::Tensor(loss), Argument::Tensor(mean)]);
        }
        loss
    }
}

fn integer(number: usize) -> Argument {
    Argument::Integer(i64::try_from(number).unwrap())
}

fn integers(numbers: &[usize]) -> Argument {
    Argument::List(numbers.iter().map(|it| integer(*it)).collect())
}

/// Returns another shape of as many elements: the primes of the extents in another order, in one to
/// four dims.
fn rearranged(shape: &[usize], detail: usize) -> Vec<usize> {
    let mut primes = Vec::new();
    for &extent in shape {
        let mut rest = extent;
        for prime in 2..=extent {
            while rest.is_multiple_of(prime) {
                primes.push(prime);
                rest /= prime;
            }
        }
    }
    let n_primes = primes.len().max(1);
    if !primes.is_empty() {
        primes.rotate_left(detail % n_primes);
    }
    let mut rearranged = vec![1; 1 + detail % 4];
    let n_dims = rearranged.len();
    for (at, prime) in primes.into_iter().enumerate() {
        rearranged[(at * n_dims / n_primes + detail / 7) % n_dims] *= prime;
    }
    rearranged
}
