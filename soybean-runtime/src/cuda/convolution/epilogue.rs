//! Functions after convolutions, which cuDNN computes in the call of the convolution, or a kernel
//! after it.

use soybean_plan::{
    Binary, Convolution, ConvolutionForm, DType, ImageLayout, Instruction, Map, ScalarProgram,
    Shape, Strides, Unary,
};

use super::{compute_type, has_standard_extents, result_extents};
use crate::cuda::epilogue::{Epilogue, Function};

/// Returns true if a convolution with this epilogue is a call, whose third input is the bias or the
/// result of ReLU. Channels come last, where cuDNN has fast kernels for that.
pub(crate) fn takes_epilogue(
    convolution: &Convolution,
    types: [DType; 3],
    epilogue: Epilogue,
) -> bool {
    let Convolution { form, layout, channels, filters, .. } = *convolution;
    let dtype = compute_type(form, types);
    let is_known = match epilogue.function {
        Function::Identity | Function::Relu => {
            form == ConvolutionForm::Forward && epilogue.bias.is_some() && epilogue.bias == dtype
        }
        // Compilers of kernels for other channels take seconds.
        Function::ReluGradient => {
            let suits = [channels, filters].iter().all(|it| it.is_multiple_of(8));
            form == ConvolutionForm::Data && epilogue.bias.is_none() && suits
        }
        Function::Gelu | Function::GeluAux | Function::GeluGradient => false,
        Function::LeftSums | Function::RightSums => false,
    };
    let is_whole = has_standard_extents(convolution) && dtype.is_some();
    is_known && is_whole && layout == ImageLayout::ChannelsLast
}

/// Returns the epilogue as a map of the convolution's result and the third input, for channels
/// last.
pub(crate) fn epilogue_map(convolution: &Convolution, function: Function) -> Map {
    let [batch, channels, height, width] = result_extents(convolution);
    let extents = Shape::new(&[batch * height * width, channels]);
    let dense = extents.dense_strides();
    let vector = Strides::new(&[0, 1]);
    let (third, instructions) = match function {
        Function::ReluGradient => (dense, RELU_GRADIENT),
        Function::Relu => (vector, &RELU_OF_SUM[..]),
        _ => (vector, &RELU_OF_SUM[..3]),
    };
    let last = instructions.len() - 1;
    let results = vec![u16::try_from(last).expect("there are few")].into();
    let program = ScalarProgram { instructions: instructions.to_vec().into(), results };
    Map { extents, inputs: vec![dense, third].into(), program }
}

/// `max(x0 + x1, 0)`
const RELU_OF_SUM: [Instruction; 4] = [
    Instruction::Input(0),
    Instruction::Input(1),
    Instruction::Binary(Binary::Add, 0, 1),
    Instruction::Unary(Unary::Relu, 2),
];

/// `x0` if `x1 > 0`, otherwise 0.
const RELU_GRADIENT: &[Instruction] = &[
    Instruction::Input(0),
    Instruction::Input(1),
    Instruction::Constant(0.0),
    Instruction::Binary(Binary::Greater, 1, 2),
    Instruction::Select(3, 0, 2),
];
