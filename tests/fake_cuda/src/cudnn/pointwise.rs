//! Functions of each element after a convolution: `x + b[channel]`, `max(x, 0)`, and the gradient
//! of the latter.

use super::backend::{Descriptor, kind};
use super::descriptor::TensorDescriptor;
use super::{ApiResult, Status};
use crate::element_type::ElementType;

/// The operation `CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pointwise {
    pub(super) function: Function,
    pub(super) input: TensorDescriptor,
    /// The bias, or the argument of the ReLU whose gradient this is.
    pub(super) operand: Option<TensorDescriptor>,
    pub(super) result: TensorDescriptor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Add,
    Relu,
    ReluGradient,
}

impl Function {
    /// Returns the function of a `CUDNN_BACKEND_POINTWISE_DESCRIPTOR`.
    pub(super) fn new(descriptor: &Descriptor) -> ApiResult<Self> {
        match (descriptor.number(0)?, descriptor.number(1)?) {
            (0, 0) => Ok(Self::Add),
            (100, 0) => Ok(Self::Relu),
            (200, 0) => Ok(Self::ReluGradient),
            _ => Err(Status::NOT_SUPPORTED),
        }
    }
}

impl Pointwise {
    pub(super) fn new(descriptor: &Descriptor) -> ApiResult<Self> {
        if descriptor.kind != kind::OPERATION_POINTWISE {
            return Err(Status::NOT_SUPPORTED);
        }
        let function = Function::new(&*descriptor.child(750)?)?;
        let tensor = |name: u32| TensorDescriptor::new(&*descriptor.child(name)?);
        let (input, operand, result) = match function {
            Function::Add => (tensor(751)?, Some(tensor(752)?), tensor(753)?),
            Function::Relu => (tensor(751)?, None, tensor(753)?),
            Function::ReluGradient => (tensor(757)?, Some(tensor(751)?), tensor(756)?),
        };
        Ok(Self { function, input, operand, result })
    }

    /// Checks that the operation follows another one with this result.
    pub(super) fn check(&self, before: &TensorDescriptor) -> ApiResult {
        let extents = before.extents;
        let is_consistent = match self.function {
            Function::Add => self.has_operand([1, extents[1], 1, 1]),
            Function::Relu => true,
            Function::ReluGradient => self.has_operand(extents),
        };
        if self.input.extents != extents || self.result.extents != extents || !is_consistent {
            return Err(Status::BAD_PARAM);
        }
        let are_linked = [before, &self.input]
            .iter()
            .all(|it| it.is_virtual && it.dtype == ElementType::F32 && it.id == before.id);
        let is_dense = self.operand.is_none_or(|it| it.is_dense() && !it.is_virtual);
        if are_linked && is_dense { Ok(()) } else { Err(Status::NOT_SUPPORTED) }
    }

    fn has_operand(&self, extents: [usize; 4]) -> bool {
        self.operand.is_some_and(|it| it.extents == extents)
    }
}

impl Function {
    /// Applies the function to values whose innermost dim is that of channels. `operand` is in the
    /// same order.
    pub(super) fn apply(self, values: &mut [f32], operand: &[f32], drops_nan: bool) {
        match self {
            Self::Add => {
                let bias = operand.iter().cycle();
                values.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
            }
            Self::Relu => {
                let is_zero = |it: f32| it < 0.0 || drops_nan && it.is_nan();
                values.iter_mut().filter(|it| is_zero(**it)).for_each(|it| *it = 0.0);
            }
            // dx = dy where x > 0, else 0
            Self::ReluGradient => {
                let is_zero = |x: f32| x.is_nan() || x <= 0.0;
                let zeros = values.iter_mut().zip(operand).filter(|(_, x)| is_zero(**x));
                zeros.for_each(|(value, _)| *value = 0.0);
            }
        }
    }
}
