//! The rules that every primitive operator states about itself.
//!
//! This side knows no operator. Each operator is a type in a file of its own under
//! [`crate::operators`]; a graph holds it as an [`Operator`]. The calls of users (`softmax`,
//! `cross_entropy`) are built from these few by the table in [`crate::surface`].

use std::{any::Any, fmt, ops::Deref, sync::Arc};

use soybean_plan::{Combine, DType, ImageLayout, Kernel, Mesh, ScalarProgram, Shape, Tile};

use crate::{
    signature::{FactorId, Signature},
    value::Value,
};

/// The rules of an operator, side by side in its own file.
pub trait Rules: Any + fmt::Debug + fmt::Display + Send + Sync {
    /// Returns the index notation, bound to the shapes of the operands.
    fn signature(&self, operands: &[Shape]) -> Signature;

    /// Adds the gradient of each operand, given the gradient of the result. An operand without
    /// gradient gets `None`.
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>>;

    /// Returns the floating-point operations for each point of the loops.
    fn flops_per_point(&self) -> u64;

    /// Returns how operands and result are rounded in a network that computes in `bf16`.
    fn rounding(&self) -> Rounding;

    /// Returns the kernel that a rank runs, given the shapes of its parts of the operands with
    /// their halos, and of the result without; `None` if there is nothing to run.
    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel>;

    /// Returns the kernel with the work of the busiest rank, given the tiles of the operands. Ranks
    /// have different work only if it depends on which elements they hold.
    fn on_busiest_rank(&self, kernel: Kernel, _operands: &[Tile], _mesh: &Mesh) -> Kernel {
        kernel
    }

    /// Returns the function whose identity an operand's halo holds outside the tensor.
    fn outside(&self, _operand: usize) -> Combine {
        Combine::Sum
    }

    /// Returns the type of the result's elements, given those of the operands.
    fn dtype(&self, _operands: &[DType]) -> DType {
        DType::F32
    }

    /// Returns whether the result is an operand's memory, viewed in another shape, in one phase, or
    /// as a replica.
    fn is_alias(&self) -> bool {
        false
    }

    /// Returns whether the result is a replica of the operand: a copy with a tiling of its own.
    fn is_replica(&self) -> bool {
        false
    }

    /// Returns whether the result is the operand rounded to `bf16`. Ranks that hold the whole
    /// operand round all of it, which is cheaper than exchanging parts.
    fn is_cast(&self) -> bool {
        false
    }

    /// Returns whether ranks may repeat each other's work wherever that saves bytes, because the
    /// work is negligible.
    fn may_repeat(&self) -> bool {
        self.is_cast() || self.is_replica()
    }

    /// Returns whether the result is a constant, which is stored before the first step.
    fn is_constant(&self) -> bool {
        false
    }

    /// Returns the operator for other extents of its factors and this shape of its result; `None`
    /// if it follows from the operands alone.
    fn resized(&self, _factors: &[usize], _result: Shape) -> Option<Operator> {
        None
    }

    /// Returns the operator over tensors whose channels are their last dim, as [`ChannelsLast`]
    /// says; `None` if there is none.
    fn channels_last(&self, _operands: &[Shape]) -> Option<ChannelsLast> {
        None
    }

    /// Returns whether the result is zero at each index of a factor at which all operands are.
    fn keeps_zeros(&self) -> bool {
        false
    }

    /// Returns whether dims that the result lacks may be padded with zeros. Otherwise zeros add
    /// something to the result.
    fn pads_reduced_dims(&self) -> bool {
        true
    }

    /// Returns whether the operand at this position must be zero in the padding of a dim that the
    /// result lacks, so that the padding adds nothing to the result.
    fn adds_up(&self, _position: usize) -> bool {
        true
    }

    /// Returns whether the operator reads the operand at this position in this phase.
    fn reads(&self, _position: usize, _phase: Phase) -> bool {
        true
    }
}

/// The form of an operator that reads and gives tensors of images with their channels, dim 1, as
/// the last dim.
#[derive(Clone, Debug)]
pub struct ChannelsLast {
    /// The operator over such tensors.
    pub operator: Operator,
    /// For each operand, whether its channels are moved; it is read as it was otherwise.
    pub operands: Vec<bool>,
    /// True if those of the result are moved.
    pub result: bool,
}

impl ChannelsLast {
    /// Returns the form of an operator that treats all dims of its operands and result alike.
    #[must_use]
    pub fn everywhere(operator: Operator, n_operands: usize) -> Self {
        Self { operator, operands: vec![true; n_operands], result: true }
    }

    /// Returns the place of a dim in the order with the channels last.
    #[must_use]
    pub const fn place(dim: usize, n_dims: usize) -> usize {
        match dim {
            0 => 0,
            1 => n_dims - 1,
            _ => dim - 1,
        }
    }

    /// Returns a shape in that order.
    #[must_use]
    pub fn shape(shape: &Shape) -> Shape {
        ImageLayout::ChannelsLast.order(shape.len()).into_iter().map(|dim| shape[dim]).collect()
    }
}

/// The phase for which a tensor is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// A training step of the entry of this number: loss, gradients and updates.
    Train(usize),
    /// An accumulating step: loss and gradients, which are added to those of earlier steps.
    Accumulate,
    /// An evaluation by the entry of this number: loss and outputs alone.
    Evaluate(usize),
}

/// The rounding of an operator's tensors in a network that computes in `bf16`. Integers and tensors
/// that must be exact are never rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Operands and result are rounded: `bf16` numbers are multiplied, and their products are added
    /// up in `f32`.
    Product,
    /// Operands are read as stored; the result is rounded if an operand is, or if a product reads
    /// it.
    Map,
    /// Operands and result have one type, rounded if an operand is, or if a product reads the
    /// result.
    Alike,
    /// Operands are read as stored; the result is rounded.
    Rounded,
    /// Operands are read as stored; the result is exact.
    Exact,
}

/// One use of an operator, as its gradient rule sees it.
pub struct OperatorCall<'a> {
    /// The operands.
    pub operands: &'a [Value],
    /// The result.
    pub result: Value,
    /// The gradient of the loss with respect to the result.
    pub gradient: Value,
}

/// The graph as gradient rules extend it.
pub trait GradientBuilder {
    /// Returns the shape of a tensor.
    fn shape(&self, value: Value) -> Shape;

    /// Returns whether the gradient of any parameter flows through this tensor.
    fn needs_gradient(&self, value: Value) -> bool;

    /// Adds the result of an operator.
    fn add(&mut self, operator: Operator, operands: &[Value]) -> Value;

    /// Adds a map over those of the given operands that its program reads.
    fn add_elementwise(
        &mut self,
        extents: Shape,
        operands: &[Vec<FactorId>],
        program: ScalarProgram,
        values: &[Value],
    ) -> Value;

    /// Adds the sum of a tensor over all dims but `kept`.
    fn sum_to(&mut self, value: Value, kept: &[FactorId]) -> Value;
}

/// A primitive operator of a graph: a shared pointer to its rules.
#[derive(Clone, Debug)]
pub struct Operator(Arc<dyn Comparable>);

/// Rules that can be compared with other rules.
trait Comparable: Rules {
    fn rules(&self) -> &dyn Rules;
    fn is_equal(&self, other: &Operator) -> bool;
}

impl<T: Rules + PartialEq> Comparable for T {
    fn rules(&self) -> &dyn Rules {
        self
    }

    fn is_equal(&self, other: &Operator) -> bool {
        other.downcast_ref::<T>().is_some_and(|it| it == self)
    }
}

impl<T: Rules + PartialEq> From<T> for Operator {
    fn from(rules: T) -> Self {
        Self(Arc::new(rules))
    }
}

impl Deref for Operator {
    type Target = dyn Rules;

    fn deref(&self) -> &Self::Target {
        self.0.rules()
    }
}

impl PartialEq for Operator {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_equal(other)
    }
}

impl Operator {
    /// Returns the operator as one of this type; `None` if it is of another type.
    #[must_use]
    pub fn downcast_ref<T: Rules>(&self) -> Option<&T> {
        let rules: &dyn Any = self.0.rules();
        rules.downcast_ref()
    }

    /// Returns whether the operator is of this type.
    #[must_use]
    pub fn is<T: Rules>(&self) -> bool {
        self.downcast_ref::<T>().is_some()
    }

    /// Returns the kind of the operator: the first word of its text form.
    #[must_use]
    pub fn kind(&self) -> String {
        let text = self.to_string();
        text.split(' ').next().unwrap_or_default().to_owned()
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0.rules(), f)
    }
}
