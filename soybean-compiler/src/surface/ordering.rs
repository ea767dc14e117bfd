//! Operators that order the elements along a dim. All are made of each element's place in the
//! order, by which elements are moved.

use soybean_plan::{DType, IndexingForm, RankingForm, Shape};

use super::{Arguments, Row, SampleArgument, along::MAX_CANDIDATES, conversion, map};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{index::Index, iota::Iota, rank::Rank},
    scalar,
    signature::factor_id,
    value::Value,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

const fn integer(value: i64) -> SampleArgument {
    SampleArgument::Integer(value)
}

const ASCENDING: SampleArgument = SampleArgument::Text("ascending");
const DESCENDING: SampleArgument = SampleArgument::Text("descending");

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "topk",
        doc: "The `k` largest elements along a dim, largest first, and their indices, `i32`: two tensors. Of equal elements the first comes first, and NaN is larger than all numbers. The dim is not split.",
        arguments: &["input", "k", "dim"],
        build: topk,
        samples: &[
            &[tensor(&[4, 6]), integer(2), integer(1)],
            &[tensor(&[6, 4]), integer(3), integer(0)],
            &[tensor(&[2, 5, 3]), integer(5), integer(-2)],
            &[tensor(&[7]), integer(1), integer(0)],
        ],
    },
    Row {
        name: "sort",
        doc: "The elements along a dim in `\"ascending\"` or `\"descending\"` order, and their indices, `i32`: two tensors. Equal elements keep their order, and NaN is larger than all numbers. The dim is not split.",
        arguments: &["input", "dim", "order"],
        build: sort,
        samples: &[
            &[tensor(&[4, 6]), integer(1), ASCENDING],
            &[tensor(&[2, 5, 3]), integer(-2), DESCENDING],
        ],
    },
    Row {
        name: "argsort",
        doc: "The indices of the elements along a dim in `\"ascending\"` or `\"descending\"` order, `i32`. No gradient flows through it.",
        arguments: &["input", "dim", "order"],
        build: argsort,
        samples: &[
            &[tensor(&[4, 6]), integer(0), DESCENDING],
            &[tensor(&[5, 2, 3]), integer(-1), ASCENDING],
        ],
    },
];

fn topk(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let (_, shape, dim) = operand(builder, arguments, 2)?;
    let k = arguments.size(1, 1)?;
    if k > shape[dim] {
        let message =
            format!("`k` is at most {}, the elements of dim {dim}, found {k}", shape[dim]);
        return Err(arguments.fault(1, message));
    }
    let order = Order::new(builder, arguments, 2, RankingForm::Descending)?;
    Ok(Argument::List(vec![order.values(builder, k), order.indices(builder, k)]))
}

fn sort(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let order = Order::new(builder, arguments, 1, form(arguments, 2)?)?;
    Ok(Argument::List(vec![
        order.values(builder, order.length),
        order.indices(builder, order.length),
    ]))
}

fn argsort(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let order = Order::new(builder, arguments, 1, form(arguments, 2)?)?;
    Ok(order.indices(builder, order.length))
}

fn form(arguments: &Arguments<'_>, position: usize) -> Result<RankingForm, CallDiagnostic> {
    match arguments.text(position)? {
        "ascending" => Ok(RankingForm::Ascending),
        "descending" => Ok(RankingForm::Descending),
        other => {
            let wanted = "`\"ascending\"` or `\"descending\"`";
            Err(arguments.expected_number(position, wanted, format!("{other:?}")))
        }
    }
}

/// Returns the tensor whose elements are ordered, its shape and the dim.
fn operand(
    builder: &Builder,
    arguments: &Arguments<'_>,
    position: usize,
) -> Result<(Value, Shape, usize), CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let shape = builder.shape(value);
    let dim = arguments.dim(position, shape.len())?;
    if shape[dim] > MAX_CANDIDATES {
        let message = format!(
            "dim {dim} has at most {MAX_CANDIDATES} elements, as many as f32 can number, found {}",
            shape[dim]
        );
        return Err(arguments.fault(position, message));
    }
    Ok((value, shape, dim))
}

/// A tensor with the place of each element along a dim.
struct Order {
    value: Value,
    places: Value,
    dim: usize,
    /// The elements along the dim.
    length: usize,
}

impl Order {
    fn new(
        builder: &mut Builder,
        arguments: &Arguments<'_>,
        position: usize,
        form: RankingForm,
    ) -> Result<Self, CallDiagnostic> {
        let (value, shape, dim) = operand(builder, arguments, position)?;
        let places = builder.graph.add(Rank { form, dim }.into(), &[value]);
        Ok(Self { value, places, dim, length: shape[dim] })
    }

    /// Returns the first `k` elements in order.
    fn values(&self, builder: &mut Builder, k: usize) -> Argument {
        Argument::Tensor(self.moved(builder, self.value, k))
    }

    /// Returns the indices of the first `k` elements in order.
    fn indices(&self, builder: &mut Builder, k: usize) -> Argument {
        let index = builder.graph.add(Iota::new(self.length).into(), &[]);
        let operands = [(index, vec![factor_id(self.dim)])];
        let shape = builder.shape(self.value);
        let numbers = map(builder, shape, &operands, &scalar::float());
        let moved = self.moved(builder, numbers, k);
        Argument::Tensor(conversion::converted(builder, moved, DType::I32))
    }

    /// Moves each number to its element's place. Those with places from `k` on are dropped.
    fn moved(&self, builder: &mut Builder, numbers: Value, k: usize) -> Value {
        let rows = builder.graph.add(Iota::new(k).into(), &[]);
        let index = Index { form: IndexingForm::ScatterAdd, dim: self.dim, extent: k };
        builder.graph.add(index.into(), &[self.places, numbers, rows])
    }
}
