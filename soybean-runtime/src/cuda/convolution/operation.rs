//! Convolutions and their epilogues as operations of cuDNN's graph API.

use soybean_plan::{Convolution, ConvolutionForm, DType, ImageLayout};

use super::{extents, result_extents};
use crate::cuda::{
    cudnn::{
        CudnnError, NOT_SUPPORTED, cudnnDataType_t as DataType,
        engines::tensor,
        graph::{self, ConvolutionMode, Descriptor, PointwiseMode, RawDescriptor},
    },
    epilogue::Function,
};

/// Identities of the operands in a graph: left, right, result, and the third input of an epilogue.
pub(super) const OPERANDS: [i64; 4] = [1, 2, 3, 4];
/// Identities of the tensors between operations.
const INTERMEDIATE: [i64; 2] = [5, 6];

/// A convolution whose operands have one type and whose sums are in single precision.
#[derive(Clone, Copy)]
pub(super) struct ConvolutionOperations<'a> {
    pub(super) convolution: &'a Convolution,
    pub(super) dtype: DType,
}

impl ConvolutionOperations<'_> {
    /// Returns the convolution alone.
    pub(super) fn plain(&self) -> Result<Vec<Descriptor>, CudnnError> {
        Ok(vec![self.sums(&self.result()?)?])
    }

    /// Returns the convolution with the function after it.
    pub(super) fn with_epilogue(&self, function: Function) -> Result<Vec<Descriptor>, CudnnError> {
        let [sums, biased] = [self.intermediate(0)?, self.intermediate(1)?];
        let (convolution, result) = (self.sums(&sums)?, self.result()?);
        let operations = match function {
            Function::Identity => vec![biasing(&sums, &self.bias()?, &result)?],
            Function::Relu => {
                vec![biasing(&sums, &self.bias()?, &biased)?, relu(&biased, &result)?]
            }
            Function::ReluGradient => {
                let of_relu =
                    self.tensor(OPERANDS[3], result_extents(self.convolution))?.finalized()?;
                vec![relu_gradient(&of_relu, &sums, &result)?]
            }
            Function::Gelu | Function::GeluAux | Function::GeluGradient => {
                return Err(NOT_SUPPORTED);
            }
            Function::LeftSums | Function::RightSums => return Err(NOT_SUPPORTED),
        };
        Ok([convolution].into_iter().chain(operations).collect())
    }

    /// Returns the convolution that writes to a tensor.
    fn sums(&self, written: &Descriptor) -> Result<Descriptor, CudnnError> {
        let [images, filters, results] = extents(self.convolution);
        let (kind, [alpha, beta, parameters], operands) = match self.convolution.form {
            ConvolutionForm::Forward => (
                graph::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                [
                    graph::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                    graph::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                    graph::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                ],
                [
                    (graph::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, images),
                    (graph::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, filters),
                    (graph::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, results),
                ],
            ),
            ConvolutionForm::Data => (
                graph::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                [
                    graph::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                    graph::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                    graph::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                ],
                [
                    (graph::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, results),
                    (graph::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, filters),
                    (graph::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, images),
                ],
            ),
            ConvolutionForm::Filter => (
                graph::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                [
                    graph::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                    graph::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                    graph::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                ],
                [
                    (graph::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, images),
                    (graph::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, results),
                    (graph::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, filters),
                ],
            ),
        };
        let [(left, of_left), (right, of_right), (result, _)] = operands;
        Descriptor::new(kind)?
            .with(alpha, &[1.0_f32])?
            .with(beta, &[0.0_f32])?
            .with(parameters, &[self.parameters()?.raw()])?
            .with(left, &[self.tensor(OPERANDS[0], of_left)?.finalized()?.raw()])?
            .with(right, &[self.tensor(OPERANDS[1], of_right)?.finalized()?.raw()])?
            .with(result, &[written.raw()])?
            .finalized()
    }

    /// Returns padding, strides and dilation.
    fn parameters(&self) -> Result<Descriptor, CudnnError> {
        let Convolution { padding, stride, dilation, .. } = self.convolution;
        let [padding, stride, dilation] =
            [padding, stride, dilation].map(|it| it.map(|it| it as i64));
        Descriptor::new(graph::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?
            .with(graph::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, &[DataType::CUDNN_DATA_FLOAT])?
            .with(
                graph::CUDNN_ATTR_CONVOLUTION_CONV_MODE,
                &[ConvolutionMode(graph::CUDNN_CROSS_CORRELATION)],
            )?
            .with(graph::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2_i64])?
            .with(graph::CUDNN_ATTR_CONVOLUTION_DILATIONS, &dilation)?
            .with(graph::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &stride)?
            .with(graph::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &padding)?
            .with(graph::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &padding)?
            .finalized()
    }

    fn result(&self) -> Result<Descriptor, CudnnError> {
        self.tensor(OPERANDS[2], result_extents(self.convolution))?.finalized()
    }

    fn bias(&self) -> Result<Descriptor, CudnnError> {
        let [_, channels, ..] = result_extents(self.convolution);
        self.tensor(OPERANDS[3], [1, channels, 1, 1])?.finalized()
    }

    /// Returns a tensor like the result that is in no memory.
    fn intermediate(&self, number: usize) -> Result<Descriptor, CudnnError> {
        let sums = ConvolutionOperations { dtype: DType::F32, ..*self };
        sums.tensor(INTERMEDIATE[number], result_extents(self.convolution))?
            .with(graph::CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[true])?
            .finalized()
    }

    /// Returns a dense tensor that is not finalized yet. Extents have channels first.
    fn tensor(&self, id: i64, extents: [usize; 4]) -> Result<Descriptor, CudnnError> {
        let [_, c, h, w] = extents;
        let strides = match self.convolution.layout {
            ImageLayout::ChannelsFirst => [c * h * w, h * w, w, 1],
            ImageLayout::ChannelsLast => [c * h * w, 1, w * c, c],
        };
        let dtype = match self.dtype {
            DType::F32 => DataType::CUDNN_DATA_FLOAT,
            DType::Bf16 => DataType::CUDNN_DATA_BFLOAT16,
            DType::I32 => return Err(NOT_SUPPORTED),
        };
        tensor(id, dtype, extents, strides)
    }
}

/// Returns `result = sums + bias`.
fn biasing(
    sums: &Descriptor,
    bias: &Descriptor,
    result: &Descriptor,
) -> Result<Descriptor, CudnnError> {
    let tensors = [
        (graph::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, sums.raw()),
        (graph::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bias.raw()),
        (graph::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, result.raw()),
    ];
    pointwise(graph::CUDNN_POINTWISE_ADD, &tensors)
}

/// Returns `result = max(x, 0)`.
fn relu(x: &Descriptor, result: &Descriptor) -> Result<Descriptor, CudnnError> {
    let tensors = [
        (graph::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.raw()),
        (graph::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, result.raw()),
    ];
    pointwise(graph::CUDNN_POINTWISE_RELU_FWD, &tensors)
}

/// Returns `result = gradient` where `x` is positive, and 0 elsewhere.
fn relu_gradient(
    x: &Descriptor,
    gradient: &Descriptor,
    result: &Descriptor,
) -> Result<Descriptor, CudnnError> {
    let tensors = [
        (graph::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.raw()),
        (graph::CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, gradient.raw()),
        (graph::CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, result.raw()),
    ];
    pointwise(graph::CUDNN_POINTWISE_RELU_BWD, &tensors)
}

fn pointwise(mode: u32, tensors: &[(u32, RawDescriptor<'_>)]) -> Result<Descriptor, CudnnError> {
    let function = Descriptor::new(graph::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?
        .with(graph::CUDNN_ATTR_POINTWISE_MODE, &[PointwiseMode(mode)])?
        .with(graph::CUDNN_ATTR_POINTWISE_MATH_PREC, &[DataType::CUDNN_DATA_FLOAT])?
        .finalized()?;
    let operation = Descriptor::new(graph::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?
        .with(graph::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[function.raw()])?;
    let with = |operation: Descriptor, &(name, tensor): &(u32, RawDescriptor<'_>)| {
        operation.with(name, &[tensor])
    };
    tensors.iter().try_fold(operation, with)?.finalized()
}
