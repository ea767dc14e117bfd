//! `map`: a scalar program at every point of an index space, over operands that may lack some of
//! its dims.

use std::{borrow::Cow, fmt};

use soybean_plan::{
    Binary, Combine, DType, ImageLayout, Kernel, Map, ScalarProgram, Shape, Strides,
};

use crate::{
    graph::Graph,
    operator::{ChannelsLast, GradientBuilder, Operator, OperatorCall, Rounding, Rules},
    scalar,
    signature::{FactorId, Signature, factor_id},
    value::Value,
};

/// A map. Its factors are the dims of the index space.
#[derive(Clone, Debug, PartialEq)]
pub struct Elementwise {
    /// The extents of the index space.
    pub extents: Shape,
    /// Which dims of the index space each operand has, in its own order.
    pub operands: Vec<Vec<FactorId>>,
    /// The program at each point; it has one result.
    pub program: ScalarProgram,
    /// The type in which results are stored: `i32` if they are integers. Conversion of numbers to
    /// integers truncates towards zero.
    pub dtype: DType,
}

impl Elementwise {
    /// Returns whether the map leaves its operand as it is, which has elements of this type.
    #[must_use]
    pub fn is_identity(&self, dtype: DType) -> bool {
        self.program == scalar::identity()
            && self.dtype == dtype
            && self.operands == [all_dims(&self.extents)]
    }

    /// Returns the map of this program over operands of this same shape.
    #[must_use]
    pub fn same(shape: Shape, n_operands: usize, program: ScalarProgram) -> Self {
        let operands = vec![all_dims(&shape); n_operands];
        Self { extents: shape, operands, program, dtype: DType::F32 }
    }

    /// Returns the map that leaves numbers as they are, but not the order of their dims.
    pub(crate) fn permutation(shape: &Shape, order: &[usize]) -> Self {
        let extents = order.iter().map(|&dim| shape[dim]).collect();
        let place = |dim| order.iter().position(|it| *it == dim).expect("the order has every dim");
        let dims = (0..order.len()).map(|dim| factor_id(place(dim))).collect();
        Self { operands: vec![dims], ..Self::same(extents, 1, scalar::identity()) }
    }

    /// Returns whether the results are the elements of one operand, perhaps rounded or with their
    /// dims in another order.
    pub(crate) fn is_copy(&self) -> bool {
        let has_all_dims = |it: &Vec<FactorId>| it.len() == self.extents.len();
        self.program == scalar::identity() && self.operands.iter().all(has_all_dims)
    }

    /// Returns the map over an index space with the channels last; `None` if it has too few dims.
    pub(crate) fn with_channels_last(&self) -> Option<Self> {
        let layout = ImageLayout::ChannelsLast;
        (self.extents.len() > 2).then(|| self.in_layout(layout, &vec![layout; self.operands.len()]))
    }

    /// Marks the operands that such a map reads with their channels last.
    pub(crate) fn read_channels_last(&self) -> Vec<bool> {
        self.operands.iter().map(|ids| has_channels(ids)).collect()
    }

    /// Returns the map over an index space in this layout, which reads each operand that has its
    /// channels in a layout of its own.
    pub(crate) fn in_layout(&self, layout: ImageLayout, operands: &[ImageLayout]) -> Self {
        let n_dims = self.extents.len();
        let all = self.operands.iter().zip(operands);
        let operands = all.map(|(ids, of_ids)| dims_in(ids, *of_ids, layout, n_dims)).collect();
        let extents = layout.order(n_dims).into_iter().map(|dim| self.extents[dim]).collect();
        Self { extents, operands, ..self.clone() }
    }

    /// Returns the map's kernel, given the shapes of one rank's parts.
    #[must_use]
    pub fn local(&self, operands: &[Shape], extents: Shape) -> Map {
        let strides = |(ids, shape): (&Vec<FactorId>, &Shape)| {
            let dense = shape.dense_strides();
            let mut strides = Strides::default();
            for (dim, &id) in ids.iter().enumerate() {
                strides.0[id as usize] = dense.0[dim];
            }
            strides
        };
        let inputs: Vec<Strides> = self.operands.iter().zip(operands).map(strides).collect();
        Map { extents, inputs: Cow::Owned(inputs), program: self.program.clone() }
    }
}

/// Returns whether these dims of an index space begin with its first two, and there are more: those
/// of a tensor whose channels are the channels of the space.
pub(crate) fn has_channels(dims: &[FactorId]) -> bool {
    dims.len() > 2 && dims[1] == 1
}

/// Returns dims of an index space of `n_dims` dims in the space with the channels last, in the
/// order of a tensor with its channels last if it has those of the space.
pub(crate) fn with_channels_last(dims: &[FactorId], n_dims: usize) -> Vec<FactorId> {
    dims_in(dims, ImageLayout::ChannelsLast, ImageLayout::ChannelsLast, n_dims)
}

/// Returns dims of an index space of `n_dims` dims in the space of a layout, in the order of a
/// tensor of another layout if it has the channels of the space.
fn dims_in(
    dims: &[FactorId],
    layout: ImageLayout,
    of_space: ImageLayout,
    n_dims: usize,
) -> Vec<FactorId> {
    let renumbered = |id: FactorId| match of_space {
        ImageLayout::ChannelsFirst => id,
        ImageLayout::ChannelsLast => factor_id(ChannelsLast::place(usize::from(id), n_dims)),
    };
    let layout = if has_channels(dims) { layout } else { ImageLayout::ChannelsFirst };
    layout.order(dims.len()).into_iter().map(|at| renumbered(dims[at])).collect()
}

/// Returns all dims of a shape as factors.
#[must_use]
pub fn all_dims(shape: &Shape) -> Vec<FactorId> {
    (0..shape.len()).map(factor_id).collect()
}

/// Adds a map over those of the given operands that its program reads. A value is read once for
/// each way in which it is indexed.
pub(crate) fn add_elementwise(
    graph: &mut Graph,
    extents: Shape,
    operands: &[Vec<FactorId>],
    program: &ScalarProgram,
    values: &[Value],
) -> Value {
    let mut kept: Vec<(Value, &Vec<FactorId>)> = Vec::new();
    let mut renumbered = vec![0; operands.len()];
    for input in scalar::inputs(program) {
        let operand = (values[input as usize], &operands[input as usize]);
        let position = kept.iter().position(|it| *it == operand).unwrap_or_else(|| {
            kept.push(operand);
            kept.len() - 1
        });
        renumbered[input as usize] = u8::try_from(position).expect("maps have few inputs");
    }
    let program = scalar::renumber(program, &renumbered);
    let (values, operands): (Vec<Value>, Vec<Vec<FactorId>>) =
        kept.into_iter().map(|(value, ids)| (value, ids.clone())).unzip();
    let dtype = if program.integer_results()[0] { DType::I32 } else { DType::F32 };
    graph.add(Elementwise { extents, operands, program, dtype }.into(), &values)
}

/// Returns the sum of two tensors of one shape, both of numbers or both of integers.
pub(crate) fn add(graph: &mut Graph, x: Value, y: Value) -> Value {
    let function = match graph.node(x).dtype {
        DType::F32 | DType::Bf16 => Binary::Add,
        DType::I32 => Binary::AddIntegers,
    };
    add_binary(graph, function, x, y)
}

/// Returns the difference of two tensors of one shape.
pub(crate) fn sub(graph: &mut Graph, x: Value, y: Value) -> Value {
    add_binary(graph, Binary::Subtract, x, y)
}

fn add_binary(graph: &mut Graph, function: Binary, x: Value, y: Value) -> Value {
    let shape = graph.shape(x);
    let space = all_dims(&shape);
    add_elementwise(graph, shape, &[space.clone(), space], &scalar::binary(function), &[x, y])
}

impl Rules for Elementwise {
    fn signature(&self, _operands: &[Shape]) -> Signature {
        Signature::plain(
            self.extents.to_vec(),
            &self.operands,
            &all_dims(&self.extents),
            Combine::Sum,
        )
        .linear_in(scalar::linear_inputs(&self.program))
    }

    // The chain rule through the scalar program, then the sum over the dims along which the operand
    // was broadcast. Integers have no gradient.
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        let by_operand = |(operand, &value): (usize, &Value)| {
            if self.dtype == DType::I32 || !builder.needs_gradient(value) {
                return None;
            }
            let derivative =
                scalar::derivative(&self.program, factor_id(operand), self.operands.len())?;
            let space = all_dims(&self.extents);
            let mut operands = self.operands.clone();
            operands.extend([space.clone(), space]);
            let values: Vec<Value> =
                call.operands.iter().copied().chain([call.result, call.gradient]).collect();
            let full = builder.add_elementwise(self.extents, &operands, derivative, &values);
            Some(builder.sum_to(full, &self.operands[operand]))
        };
        call.operands.iter().enumerate().map(by_operand).collect()
    }

    fn resized(&self, factors: &[usize], _result: Shape) -> Option<Operator> {
        Some(Self { extents: Shape::new(factors), ..self.clone() }.into())
    }

    fn flops_per_point(&self) -> u64 {
        scalar::n_flops(&self.program)
    }

    fn rounding(&self) -> Rounding {
        Rounding::Map
    }

    fn channels_last(&self, _operands: &[Shape]) -> Option<ChannelsLast> {
        let operator = self.with_channels_last()?.into();
        Some(ChannelsLast { operator, operands: self.read_channels_last(), result: true })
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        Some(self.local(operands, *result).into())
    }

    fn dtype(&self, _operands: &[DType]) -> DType {
        self.dtype
    }

    fn is_cast(&self) -> bool {
        self.dtype == DType::Bf16
            && self.program == scalar::identity()
            && self.operands[0] == all_dims(&self.extents)
    }
}

impl fmt::Display for Elementwise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = &self.program;
        match self.dtype {
            DType::F32 => write!(f, "map {{{program}}}"),
            DType::I32 | DType::Bf16 => write!(f, "map {{{program}}} to {}", self.dtype),
        }
    }
}
