//! `einsum` of two operands: a product for every point of an index space, summed over the letters
//! that the result lacks.

use soybean_plan::{Combine, MAX_RANK, Register, Shape};

use super::{Arguments, Row, SampleArgument, layout, map, reduction};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operator::Rules,
    operators::{contract::Contract, elementwise::all_dims, iota::Iota},
    scalar::ScalarBuilder,
    signature::{FactorId, factor_id},
    value::Value,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

macro_rules! sample {
    ($left:expr, $equation:literal, $right:expr) => {
        &[tensor(&$left), SampleArgument::Text($equation), tensor(&$right)]
    };
}

pub(super) const TABLE: &[Row] = &[Row {
    name: "einsum",
    doc: "The product of two tensors in index notation, `\"ij,jk->ik\"`.",
    arguments: &["left", "equation", "right"],
    build: einsum,
    samples: &[
        sample!([4, 6], "ik,kj->ij", [6, 3]),
        sample!([2, 4, 6], "bij, bjk -> bik", [2, 6, 3]),
        // Heads between other dims: batches of strided matrices.
        sample!([2, 3, 4, 5], "bnhd,bmhd->bhnm", [2, 6, 4, 5]),
        // Not a matrix product of the operands in this order.
        sample!([2, 3, 4], "ibj,bkj->bki", [3, 5, 4]),
        sample!([2, 3, 4, 5], "abij,jabk->kiab", [5, 2, 3, 2]),
        sample!([4, 3, 2], "iaj,aj->i", [3, 2]),
        sample!([2, 3, 4], "abc,cb->a", [4, 3]),
        // Sums over letters of one operand, and repeated letters.
        sample!([4, 6, 3], "ijs,jkt->ik", [6, 2, 5]),
        sample!([4, 4, 6], "iij,ij->ij", [4, 6]),
        sample!([3, 3, 3], "iii,i->", [3]),
        // No product of matrices.
        sample!([7], "i,i->", [7]),
        sample!([4], "i,j->ji", [6]),
        sample!([4, 6], "ij,ji->ij", [6, 4]),
        sample!([1, 5], "ij,ij->i", [1, 5]),
        sample!([3, 2], "ij,->ji", []),
        sample!([3, 2], "ij,kl->", [1, 4]),
    ],
}];

/// The letters of the operands and the result.
struct Equation {
    operands: [Vec<u8>; 2],
    result: Vec<u8>,
}

/// An operand and the letters of its dims.
#[derive(Clone)]
struct Lettered {
    value: Value,
    letters: Vec<u8>,
}

fn einsum(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let (left, right) = (arguments.tensor(builder, 0)?, arguments.tensor(builder, 2)?);
    let equation = Equation::parse(arguments)?;
    let shapes = [builder.shape(left), builder.shape(right)];
    equation.check(arguments, &shapes)?;
    let [of_left, of_right] = &equation.operands;
    let left = Lettered { value: left, letters: of_left.clone() }
        .without_repeats(builder)
        .kept(builder, |it| equation.result.contains(&it) || of_right.contains(&it));
    let right = Lettered { value: right, letters: of_right.clone() }
        .without_repeats(builder)
        .kept(builder, |it| equation.result.contains(&it) || of_left.contains(&it));
    let product = Product::new(left, right, &equation.result);
    let is_pointwise =
        product.depth.is_empty() || (product.rows.is_empty() && product.columns.is_empty());
    let result = if is_pointwise { product.multiply(builder) } else { product.contract(builder) };
    Ok(Argument::Tensor(result))
}

/// Returns the product of two tensors without repeated letters as a product of matrices. The
/// arguments are `(value, letters)` of each, and the letters of the result.
pub(super) fn product(
    builder: &mut Builder,
    left: (Value, Vec<u8>),
    right: (Value, Vec<u8>),
    result: &[u8],
) -> Value {
    let lettered = |(value, letters)| Lettered { value, letters };
    Product::new(lettered(left), lettered(right), result).contract(builder)
}

impl Equation {
    fn parse(arguments: &Arguments<'_>) -> Result<Self, CallDiagnostic> {
        const HELP: &str =
            "letters for the dims of both operands and of the result, as in `ij,jk->ik`";
        let text = arguments.text(1)?;
        let fault = |message: String| arguments.fault(1, message).with_help(HELP);
        let spaceless: String = text.chars().filter(|it| !it.is_whitespace()).collect();
        let Some((operands, result)) = spaceless.split_once("->") else {
            return Err(fault(format!(
                "the equation must have `->` and a result, found \"{text}\""
            )));
        };
        let n_operands = operands.split(',').count();
        let Some((left, right)) = operands.split_once(',').filter(|_| n_operands == 2) else {
            return Err(fault(format!("the equation must have 2 operands, found {n_operands}")));
        };
        let symbols = left.chars().chain(right.chars()).chain(result.chars());
        if let Some(other) = symbols.into_iter().find(|it| !it.is_ascii_alphabetic()) {
            return Err(fault(format!("dims are letters, found `{other}`")));
        }
        let letters = |text: &str| text.as_bytes().to_vec();
        Ok(Self { operands: [letters(left), letters(right)], result: letters(result) })
    }

    fn check(&self, arguments: &Arguments<'_>, shapes: &[Shape; 2]) -> Result<(), CallDiagnostic> {
        for (position, letters, shape) in
            [(0, &self.operands[0], &shapes[0]), (2, &self.operands[1], &shapes[1])]
        {
            if letters.len() != shape.len() {
                let text = String::from_utf8_lossy(letters);
                let message = format!("\"{text}\" has {} dims, the operand {shape}", letters.len());
                return Err(arguments.fault(position, message));
            }
        }
        let dims = || {
            let of = |operand: usize| self.operands[operand].iter().zip(&shapes[operand][..]);
            of(0).map(|it| (0, it)).chain(of(1).map(|it| (2, it)))
        };
        for (position, (letter, extent)) in dims() {
            let (_, (_, first)) = dims().find(|it| it.1.0 == letter).expect("itself, if no other");
            if extent != first {
                let letter = char::from(*letter);
                let message = format!("`{letter}` is {first}, but here {extent}");
                return Err(arguments.fault(position, message));
            }
        }
        if self.result.len() > MAX_RANK {
            return Err(layout::too_many_dims(arguments, 1, self.result.len()));
        }
        for (at, letter) in self.result.iter().enumerate() {
            let text = char::from(*letter);
            if !dims().any(|it| it.1.0 == letter) {
                let message = format!("`{text}` of the result is in no operand");
                return Err(arguments.fault(1, message));
            }
            if self.result[..at].contains(letter) {
                return Err(arguments.fault(1, format!("`{text}` stands twice in the result")));
            }
        }
        Ok(())
    }
}

impl Lettered {
    /// Returns the diagonal along dims with the same letter: the elements whose indices along both
    /// are equal, summed along the second.
    fn without_repeats(self, builder: &mut Builder) -> Self {
        let repeat = (1..self.letters.len()).find_map(|dim| {
            let first = self.letters[..dim].iter().position(|it| *it == self.letters[dim])?;
            Some((first, dim))
        });
        let Some((first, second)) = repeat else { return self };
        let shape = builder.shape(self.value);
        let index = builder.graph.add(Iota::new(shape[first]).into(), &[]);
        let mut it = ScalarBuilder::default();
        let (x, row, column, zero) = (it.input(0), it.integer(1), it.integer(2), it.constant(0.0));
        let is_diagonal = it.equal(row, column);
        let result = it.select(is_diagonal, x, zero);
        let operands = [
            (self.value, all_dims(&shape)),
            (index, vec![factor_id(first)]),
            (index, vec![factor_id(second)]),
        ];
        let masked = map(builder, shape, &operands, &it.finish(result));
        let kept: Vec<FactorId> =
            (0..shape.len()).filter(|dim| *dim != second).map(factor_id).collect();
        let value = reduction::reduce(builder, masked, Combine::Sum, &kept);
        let mut letters = self.letters;
        letters.remove(second);
        Self { value, letters }.without_repeats(builder)
    }

    /// Sums over the other letters.
    fn kept(self, builder: &mut Builder, is_kept: impl Fn(u8) -> bool) -> Self {
        let dims: Vec<usize> =
            (0..self.letters.len()).filter(|&dim| is_kept(self.letters[dim])).collect();
        if dims.len() == self.letters.len() {
            return self;
        }
        let kept: Vec<FactorId> = dims.iter().copied().map(factor_id).collect();
        let value = reduction::reduce(builder, self.value, Combine::Sum, &kept);
        Self { value, letters: dims.into_iter().map(|dim| self.letters[dim]).collect() }
    }

    /// Permutes the dims into this order.
    fn ordered(&self, builder: &mut Builder, letters: &[u8]) -> Self {
        if self.letters == letters {
            return self.clone();
        }
        let order = letters.iter().filter_map(|it| position(&self.letters, *it)).collect();
        let value = layout::permuted(builder, self.value, order);
        Self { value, letters: letters.to_vec() }
    }
}

fn position(letters: &[u8], letter: u8) -> Option<usize> {
    letters.iter().position(|it| *it == letter)
}

/// A product of two tensors without repeated letters, in which each letter occurs in at least two
/// of operands and result.
struct Product<'a> {
    left: Lettered,
    right: Lettered,
    result: &'a [u8],
    batch: Vec<u8>,
    rows: Vec<u8>,
    columns: Vec<u8>,
    depth: Vec<u8>,
}

impl<'a> Product<'a> {
    fn new(left: Lettered, right: Lettered, result: &'a [u8]) -> Self {
        let choose = |letters: &[u8], is_chosen: &dyn Fn(&u8) -> bool| -> Vec<u8> {
            letters.iter().copied().filter(|it| is_chosen(it)).collect()
        };
        let (of_left, of_right) = (&left.letters, &right.letters);
        let batch = choose(result, &|it| of_left.contains(it) && of_right.contains(it));
        let rows = choose(result, &|it| !of_right.contains(it));
        let columns = choose(result, &|it| !of_left.contains(it));
        let depth = choose(of_left, &|it| !result.contains(it));
        Self { left, right, result, batch, rows, columns, depth }
    }

    /// Builds a product of matrices, with as few tensors permuted as possible.
    fn contract(&self, builder: &mut Builder) -> Value {
        let orders = [
            (&self.left.letters, [&self.batch[..], &self.rows, &self.depth].concat()),
            (&self.right.letters, [&self.batch[..], &self.depth, &self.columns].concat()),
            (&self.result.to_vec(), [&self.batch[..], &self.rows, &self.columns].concat()),
        ]
        .map(|(as_it_lies, canonical)| [as_it_lies.clone(), canonical]);
        let mut choices: Vec<usize> = (0..8).collect();
        choices.sort_by_key(|choice| choice.count_ones());
        let order = |choice: usize, tensor: usize| orders[tensor][choice >> tensor & 1].clone();
        let fitting = choices.into_iter().find(|&choice| {
            let [left, right, result] = [0, 1, 2].map(|tensor| order(choice, tensor));
            self.is_matrix_product(builder, &left, &right, &result)
        });
        let choice = fitting.expect("the canonical orders are those of a matrix product");
        let left = self.left.ordered(builder, &order(choice, 0));
        let right = self.right.ordered(builder, &order(choice, 1));
        let letters = order(choice, 2);
        let contract = self.contraction(&left.letters, &right.letters, &letters);
        let value = builder.graph.add(contract.into(), &[left.value, right.value]);
        Lettered { value, letters }.ordered(builder, self.result).value
    }

    fn is_matrix_product(
        &self,
        builder: &Builder,
        left: &[u8],
        right: &[u8],
        result: &[u8],
    ) -> bool {
        let shape = |operand: &Lettered, letters: &[u8]| -> Shape {
            let from = builder.shape(operand.value);
            letters
                .iter()
                .filter_map(|it| position(&operand.letters, *it))
                .map(|dim| from[dim])
                .collect()
        };
        let shapes = [shape(&self.left, left), shape(&self.right, right)];
        let contract = self.contraction(left, right, result);
        let of_result = contract.signature(&shapes).result_shape();
        contract.as_matrices(&shapes[0], &shapes[1], &of_result).is_some()
    }

    /// Factors: a plain product is written ik,kj->ij.
    fn contraction(&self, left: &[u8], right: &[u8], result: &[u8]) -> Contract {
        let all = [&self.rows[..], &self.columns, &self.depth, &self.batch].concat();
        let ids = |letters: &[u8]| -> Vec<FactorId> {
            letters.iter().filter_map(|it| position(&all, *it)).map(factor_id).collect()
        };
        Contract { left: ids(left), right: ids(right), result: ids(result) }
    }

    /// Point by point, then summed: for products without rows and columns, or without depth.
    fn multiply(&self, builder: &mut Builder) -> Value {
        let space = [self.result, &self.depth].concat();
        let mut operands = Vec::new();
        let mut extents = vec![1; space.len()];
        for operand in [&self.left, &self.right] {
            let letters: Vec<u8> =
                space.iter().copied().filter(|it| operand.letters.contains(it)).collect();
            let ordered = operand.ordered(builder, &letters);
            let dims: Vec<usize> = letters.iter().filter_map(|it| position(&space, *it)).collect();
            for (&dim, &extent) in dims.iter().zip(&builder.shape(ordered.value)[..]) {
                extents[dim] = extent;
            }
            operands.push((ordered.value, dims.into_iter().map(factor_id).collect()));
        }
        let mut it = ScalarBuilder::default();
        let (x, y): (Register, Register) = (it.input(0), it.input(1));
        let product = it.mul(x, y);
        let products = map(builder, Shape::new(&extents), &operands, &it.finish(product));
        let kept: Vec<FactorId> = (0..self.result.len()).map(factor_id).collect();
        match self.depth.is_empty() {
            true => products,
            false => reduction::reduce(builder, products, Combine::Sum, &kept),
        }
    }
}
