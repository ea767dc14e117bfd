//! A network under construction, layer by layer.

use soybean_compiler::{Argument, Builder, Value};
use soybean_plan::{DType, Init};

use crate::{Landmarks, Model};

/// A sequence of layers; each method appends one.
#[derive(Clone, Debug)]
pub struct Layers {
    builder: Builder,
    here: Value,
    has_bias: bool,
    /// The number of layers with parameters so far, from which parameters are named.
    n_layers: usize,
    landmarks: Landmarks,
}

impl Layers {
    /// Starts a network with an input `x`; `has_bias` gives biases to dense layers and
    /// convolutions.
    ///
    /// # Panics
    /// If the shape has more than [`soybean_plan::MAX_RANK`] dims.
    #[must_use]
    pub fn new(dtype: DType, shape: &[usize], has_bias: bool) -> Self {
        let mut builder = Builder::new();
        let here = builder.input("x", dtype, shape);
        Self { builder, here, has_bias, n_layers: 0, landmarks: Landmarks::default() }
    }

    /// Adds a further input.
    ///
    /// # Panics
    /// If the shape has more than [`soybean_plan::MAX_RANK`] dims.
    pub fn input(&mut self, name: &str, dtype: DType, shape: &[usize]) -> Argument {
        Argument::Tensor(self.builder.input(name, dtype, shape))
    }

    /// Returns the landmarks so far, to add to them.
    pub(crate) fn landmarks(&mut self) -> &mut Landmarks {
        &mut self.landmarks
    }

    /// Returns the output of the last layer.
    #[must_use]
    pub fn here(&self) -> Value {
        self.here
    }

    /// Continues the network from another of its tensors.
    #[must_use]
    pub fn at(self, here: Value) -> Self {
        Self { here, ..self }
    }

    /// Returns the shape of the last layer's output.
    #[must_use]
    pub fn shape(&self) -> Vec<usize> {
        self.builder.shape(self.here).to_vec()
    }

    /// Applies an operator to the last layer's output and further arguments.
    #[must_use]
    pub fn apply(self, operator: &str, arguments: &[Argument]) -> Self {
        let all = [&[Argument::Tensor(self.here)], arguments].concat();
        self.call(operator, &all)
    }

    /// Applies an operator to these arguments.
    #[must_use]
    pub fn call(mut self, operator: &str, arguments: &[Argument]) -> Self {
        self.here = self.value(operator, arguments);
        self
    }

    /// Returns the result of an operator, from which the network does not continue.
    pub(crate) fn value(&mut self, operator: &str, arguments: &[Argument]) -> Value {
        match self.builder.call(operator, arguments) {
            Ok(Argument::Tensor(value)) => value,
            other => unreachable!("the shapes fit, and the result is a tensor: {other:?}"),
        }
    }

    /// Returns both results of an operator.
    pub(crate) fn values(&mut self, operator: &str, arguments: &[Argument]) -> [Value; 2] {
        let pair = match self.builder.call(operator, arguments) {
            Ok(Argument::List(results)) => results,
            other => unreachable!("the shapes fit, and the result is a pair: {other:?}"),
        };
        match pair[..] {
            [Argument::Tensor(first), Argument::Tensor(second)] => [first, second],
            _ => unreachable!("both are tensors: {pair:?}"),
        }
    }

    /// Adds a parameter of the current layer.
    ///
    /// # Panics
    /// If the shape has more than [`soybean_plan::MAX_RANK`] dims.
    pub fn parameter(&mut self, name: &str, shape: &[usize]) -> Argument {
        let init = Init::Normal { mean: 0.0, std: 0.02 };
        let name = format!("{}.{name}", self.n_layers);
        Argument::Tensor(self.builder.parameter(&name, shape, init))
    }

    /// Adds a layer whose operator has one parameter.
    #[must_use]
    pub fn with_parameter(mut self, operator: &str, name: &str, shape: &[usize]) -> Self {
        let parameter = self.parameter(name, shape);
        self.apply(operator, &[parameter]).ended()
    }

    /// Ends a layer: later parameters belong to the next one.
    #[must_use]
    pub fn ended(self) -> Self {
        Self { n_layers: self.n_layers + 1, ..self }
    }

    /// Adds a convolution without bias; window, stride and padding are `[rows, columns]`.
    pub(crate) fn conv2d(
        mut self,
        filters: usize,
        window: [usize; 2],
        stride: usize,
        padding: [usize; 2],
    ) -> Self {
        let channels = self.shape()[1];
        let w = self.parameter("weight", &[filters, channels, window[0], window[1]]);
        self.apply("conv2d", &[w, integer(stride), list(&padding), integer(1), integer(1)])
    }

    /// Adds a convolution with ReLU.
    #[must_use]
    pub fn conv(self, filters: usize, window: usize, stride: usize, padding: usize) -> Self {
        self.linear_conv(filters, window, stride, padding).apply("relu", &[])
    }

    /// Adds a convolution.
    pub(crate) fn linear_conv(
        self,
        filters: usize,
        window: usize,
        stride: usize,
        padding: usize,
    ) -> Self {
        let mut it = self.conv2d(filters, [window; 2], stride, [padding; 2]);
        if it.has_bias {
            let bias = it.parameter("bias", &[filters, 1, 1]);
            it = it.apply("add", &[bias]);
        }
        it.ended()
    }

    /// Adds a convolution with batch normalization.
    #[must_use]
    pub fn normal_conv(
        self,
        filters: usize,
        window: [usize; 2],
        stride: usize,
        padding: [usize; 2],
    ) -> Self {
        let mut it = self.conv2d(filters, window, stride, padding);
        let (mean, var) = (it.buffer("mean", filters), it.buffer("var", filters));
        let (scale, shift) = (it.parameter("scale", &[filters]), it.parameter("shift", &[filters]));
        let numbers = [Argument::Float(0.1), Argument::Float(1e-5)];
        it.apply("batch_norm", &[&[mean, var, scale, shift][..], &numbers].concat()).ended()
    }

    fn buffer(&mut self, name: &str, extent: usize) -> Argument {
        let name = format!("{}.{name}", self.n_layers);
        Argument::Tensor(self.builder.buffer(&name, &[extent], Init::Constant(0.0)))
    }

    /// Adds max pooling.
    #[must_use]
    pub fn max_pool(self, window: usize, stride: usize, padding: usize) -> Self {
        self.apply("max_pool2d", &[window, stride, padding].map(integer))
    }

    /// Adds average pooling.
    #[must_use]
    pub fn avg_pool(self, window: usize, stride: usize, padding: usize) -> Self {
        self.apply("avg_pool2d", &[window, stride, padding].map(integer))
    }

    /// Adds a dense layer along the last dim.
    #[must_use]
    pub fn dense(mut self, out: usize) -> Self {
        let shape = self.shape();
        let weight = self.parameter("weight", &[shape[shape.len() - 1], out]);
        let mut it = self.apply("matmul", &[weight]);
        if it.has_bias {
            let bias = it.parameter("bias", &[out]);
            it = it.apply("add", &[bias]);
        }
        it.ended()
    }

    /// Adds normalization over the last dim.
    #[must_use]
    pub fn layer_norm(mut self) -> Self {
        let n = self.shape()[self.shape().len() - 1];
        let (scale, shift) = (self.parameter("scale", &[n]), self.parameter("shift", &[n]));
        self.apply("layer_norm", &[scale, shift, Argument::Float(1e-5)]).ended()
    }

    /// Adds division by the root mean square over the last dim.
    pub(crate) fn rms_norm(mut self) -> Self {
        let n = self.shape()[self.shape().len() - 1];
        let scale = self.parameter("scale", &[n]);
        self.apply("rms_norm", &[scale, Argument::Float(1e-5)]).ended()
    }

    /// Drops a tenth of the elements.
    #[must_use]
    pub fn dropout(self) -> Self {
        self.apply("dropout", &[Argument::Float(0.1)])
    }

    /// Adds a residual connection around some layers, with a projection if the shape changes.
    #[must_use]
    pub fn residual(
        self,
        layers: impl FnOnce(Self) -> Self,
        shortcut: impl FnOnce(Self) -> Self,
    ) -> Self {
        let source = self.here;
        let it = layers(self);
        let result = it.here;
        let mut it = shortcut(it.at(source)).apply("add", &[Argument::Tensor(result)]);
        it.landmarks.residuals.push(it.here);
        it
    }

    /// Adds branches that all read the last layer's output, concatenated along the channels.
    #[must_use]
    pub fn branches(self, branches: &[&dyn Fn(Self) -> Self]) -> Self {
        let source = self.here;
        let mut results = Vec::new();
        let it = branches.iter().fold(self, |it, branch| {
            let it = branch(it.at(source));
            results.push(Argument::Tensor(it.here));
            it
        });
        it.call("concat", &[Argument::List(results), integer(1)])
    }

    /// Returns the network with cross-entropy against labels `y` of this shape as its loss.
    ///
    /// # Panics
    /// If the shape has more than [`soybean_plan::MAX_RANK`] dims.
    #[must_use]
    pub fn classified(mut self, labels: &[usize]) -> Model {
        let (output, labels) = (self.here, self.builder.input("y", DType::I32, labels));
        self.apply("cross_entropy", &[Argument::Tensor(labels)]).finished(output)
    }

    /// Returns the network with the mean of its results as its loss, which costs almost nothing.
    #[must_use]
    pub fn averaged(self) -> Model {
        let output = self.here;
        self.apply("mean", &[Argument::All]).finished(output)
    }

    /// Returns the network whose loss is the last layer's output.
    pub(crate) fn finished(self, output: Value) -> Model {
        Model { landmarks: self.landmarks, ..Model::new(self.builder, self.here, output) }
    }
}

/// Returns a size as an argument.
pub(crate) fn integer(number: usize) -> Argument {
    Argument::Integer(i64::try_from(number).expect("extents are far below 2^63"))
}

/// Returns sizes as an argument.
pub(crate) fn list(numbers: &[usize]) -> Argument {
    Argument::List(numbers.iter().map(|&it| integer(it)).collect())
}
