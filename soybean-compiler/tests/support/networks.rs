//! Well-known networks, for tests and benchmarks of the search.

use soybean_compiler::{Argument, Builder, graph::Value};
use soybean_plan::{DType, Init};

/// A network under construction, layer by layer.
#[derive(Clone)]
pub(crate) struct Layers {
    pub(crate) builder: Builder,
    /// What the last layer gave.
    pub(crate) here: Value,
    has_bias: bool,
}

impl Layers {
    pub(crate) fn new(dtype: DType, shape: &[usize], has_bias: bool) -> Self {
        let mut builder = Builder::new();
        let here = builder.input("x", dtype, shape);
        Self { builder, here, has_bias }
    }

    fn call(&mut self, operator: &str, arguments: &[Argument]) -> Value {
        match self.builder.call(operator, arguments) {
            Ok(Argument::Tensor(value)) => value,
            other => unreachable!("the shapes fit, and the result is a tensor: {other:?}"),
        }
    }

    pub(crate) fn apply(mut self, operator: &str, arguments: &[Argument]) -> Self {
        let all = [&[Argument::Tensor(self.here)], arguments].concat();
        self.here = self.call(operator, &all);
        self
    }

    fn parameter(&mut self, shape: &[usize]) -> Argument {
        let name = format!("p{}", self.builder.graph().n_values());
        Argument::Tensor(self.builder.parameter(&name, shape, Init::Constant(0.1)))
    }

    fn with_parameter(mut self, operator: &str, shape: &[usize]) -> Self {
        let parameter = self.parameter(shape);
        self.apply(operator, &[parameter])
    }

    fn shape(&self) -> Vec<usize> {
        self.builder.shape(self.here).to_vec()
    }

    fn conv2d(mut self, filters: usize, window: usize, stride: usize, padding: usize) -> Self {
        let w = self.shape()[1];
        let w = self.parameter(&[filters, w, window, window]);
        self.apply("conv2d", &[w, integer(stride), integer(padding), integer(1), integer(1)])
    }

    /// A convolution with ReLU.
    pub(crate) fn conv(self, filters: usize, window: usize, stride: usize, padding: usize) -> Self {
        let has_bias = self.has_bias;
        let it = self.conv2d(filters, window, stride, padding);
        let it = if has_bias { it.with_parameter("add", &[filters, 1, 1]) } else { it };
        it.apply("relu", &[])
    }

    pub(crate) fn pool(self, window: usize, stride: usize, padding: usize) -> Self {
        self.apply("max_pool2d", &[window, stride, padding].map(integer))
    }

    pub(crate) fn dense(self, out: usize) -> Self {
        let (has_bias, shape) = (self.has_bias, self.shape());
        let it = self.with_parameter("matmul", &[shape[shape.len() - 1], out]);
        if has_bias { it.with_parameter("add", &[out]) } else { it }
    }

    fn buffer(&mut self, shape: &[usize]) -> Argument {
        let name = format!("b{}", self.builder.graph().n_values());
        Argument::Tensor(self.builder.buffer(&name, shape, Init::Constant(0.0)))
    }

    /// A convolution with batch normalisation.
    fn normal_conv(self, filters: usize, window: usize, stride: usize) -> Self {
        let mut it = self.conv2d(filters, window, stride, window / 2);
        let (mean, var) = (it.buffer(&[filters]), it.buffer(&[filters]));
        let (weight, bias) = (it.parameter(&[filters]), it.parameter(&[filters]));
        let numbers = [Argument::Float(0.1), Argument::Float(1e-5)];
        it.apply("batch_norm", &[&[mean, var, weight, bias][..], &numbers].concat())
    }

    /// What some layers give plus what they take, brought to the same shape where need be.
    fn residual(
        self,
        layers: impl FnOnce(Self) -> Self,
        shortcut: impl FnOnce(Self) -> Self,
    ) -> Self {
        let source = self.here;
        let it = layers(self);
        let result = it.here;
        shortcut(Self { here: source, ..it }).apply("add", &[Argument::Tensor(result)])
    }

    /// A residual block of convolutions: filters, window and stride of each. Source: He et al. 2016.
    fn residual_convs(self, convs: &[(usize, usize, usize)]) -> Self {
        let shape = self.shape();
        let stride: usize = convs.iter().map(|it| it.2).product();
        let filters = convs[convs.len() - 1].0;
        let layers = |it: Self| {
            convs.iter().enumerate().fold(it, |it, (at, &(filters, window, stride))| {
                let it = if at == 0 { it } else { it.apply("relu", &[]) };
                it.normal_conv(filters, window, stride)
            })
        };
        let shortcut = |it: Self| match shape[1] == filters && stride == 1 {
            true => it,
            false => it.normal_conv(filters, 1, stride),
        };
        self.residual(layers, shortcut).apply("relu", &[])
    }

    fn layer_norm(mut self) -> Self {
        let n = self.shape()[self.shape().len() - 1];
        let (weight, bias) = (self.parameter(&[n]), self.parameter(&[n]));
        self.apply("layer_norm", &[weight, bias, Argument::Float(1e-5)])
    }

    /// A dense layer from `[batch, tokens, width]` to `[batch, heads, tokens, width / heads]`.
    fn heads(self, n_heads: usize) -> Self {
        let shape = self.shape();
        self.dense(shape[2])
            .apply("reshape", &[list(&[shape[0], shape[1], n_heads, shape[2] / n_heads])])
            .apply("permute", &[list(&[0, 2, 1, 3])])
    }

    fn attention(self, n_heads: usize, is_causal: bool) -> Self {
        let (source, shape) = (self.here, self.shape());
        let query = self.heads(n_heads);
        let key = Self { here: source, ..query.clone() }.heads(n_heads);
        let value = Self { here: source, ..key.clone() }.heads(n_heads);
        let operands = [Argument::Tensor(key.here), Argument::Tensor(value.here)];
        let is_causal = Argument::Boolean(is_causal);
        Self { here: query.here, ..value }
            .apply("scaled_dot_product_attention", &[&operands[..], &[is_causal]].concat())
            .apply("permute", &[list(&[0, 2, 1, 3])])
            .apply("reshape", &[list(&shape)])
            .dense(shape[2])
    }

    fn dropout(self) -> Self {
        self.apply("dropout", &[Argument::Float(0.1)])
    }

    fn perceptron(self) -> Self {
        let width = self.shape()[2];
        self.dense(4 * width).apply("gelu", &[]).dense(width)
    }

    fn classified(mut self, labels: &[usize]) -> (Builder, Value) {
        let labels = self.builder.input("y", DType::I32, labels);
        let loss = self.apply("cross_entropy", &[Argument::Tensor(labels)]);
        (loss.builder, loss.here)
    }
}

fn integer(number: usize) -> Argument {
    Argument::Integer(i64::try_from(number).expect("extents are far below 2^63"))
}

fn list(numbers: &[usize]) -> Argument {
    Argument::List(numbers.iter().map(|&it| integer(it)).collect())
}

/// Source: Krizhevsky 2014.
pub(crate) fn alexnet(batch: usize) -> Layers {
    Layers::new(DType::F32, &[batch, 3, 224, 224], true)
        .conv(64, 11, 4, 2)
        .pool(3, 2, 0)
        .conv(192, 5, 1, 2)
        .pool(3, 2, 0)
        .conv(384, 3, 1, 1)
        .conv(256, 3, 1, 1)
        .conv(256, 3, 1, 1)
        .pool(3, 2, 0)
        .apply("flatten", &[])
        .dense(4096)
        .apply("relu", &[])
        .dense(4096)
        .apply("relu", &[])
        .dense(1000)
}

/// Source: Simonyan & Zisserman 2015.
pub(crate) fn vgg16(batch: usize) -> Layers {
    let mut it = Layers::new(DType::F32, &[batch, 3, 224, 224], true);
    for (filters, n_layers) in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)] {
        it = (0..n_layers).fold(it, |it, _| it.conv(filters, 3, 1, 1)).pool(2, 2, 0);
    }
    it.apply("flatten", &[])
        .dense(4096)
        .apply("relu", &[])
        .dense(4096)
        .apply("relu", &[])
        .dense(1000)
}

/// ResNet-50 for images of 224 x 224; the builder and the loss. Source: He et al. 2016.
pub(crate) fn resnet50(batch: usize) -> (Builder, Value) {
    let it = Layers::new(DType::F32, &[batch, 3, 224, 224], true);
    let mut it = it.normal_conv(64, 7, 2).apply("relu", &[]).pool(3, 2, 1);
    for (width, n_blocks, stride) in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)] {
        for block in 0..n_blocks {
            let stride = if block == 0 { stride } else { 1 };
            it = it.residual_convs(&[(width, 1, 1), (width, 3, stride), (4 * width, 1, 1)]);
        }
    }
    it.apply("mean", &[list(&[2, 3])]).dense(1000).classified(&[batch])
}

/// ResNet-20 for images of 32 x 32; the builder and the loss. Source: He et al. 2016.
pub(crate) fn resnet20(batch: usize) -> (Builder, Value) {
    let it = Layers::new(DType::F32, &[batch, 3, 32, 32], true);
    let mut it = it.normal_conv(16, 3, 1).apply("relu", &[]);
    for (width, stride) in [(16, 1), (32, 2), (64, 2)] {
        for block in 0..3 {
            let stride = if block == 0 { stride } else { 1 };
            it = it.residual_convs(&[(width, 3, stride), (width, 3, 1)]);
        }
    }
    it.apply("mean", &[list(&[2, 3])]).dense(10).classified(&[batch])
}

/// The sizes of a transformer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transformer {
    pub(crate) batch: usize,
    pub(crate) tokens: usize,
    pub(crate) width: usize,
    pub(crate) n_heads: usize,
    pub(crate) n_blocks: usize,
    pub(crate) n_words: usize,
}

/// The sizes of GPT-2 small, with a multiple of 128 words. Source: Radford et al. 2019.
pub(crate) const GPT: Transformer =
    Transformer { batch: 16, tokens: 1024, width: 768, n_heads: 12, n_blocks: 12, n_words: 50_304 };

impl Transformer {
    fn embedded(&self) -> Layers {
        Layers::new(DType::I32, &[self.batch, self.tokens], true)
            .with_parameter("embedding", &[self.n_words, self.width])
            .with_parameter("add", &[self.tokens, self.width])
            .dropout()
    }

    /// A decoder that says each next word, normalised before each layer; the builder and the loss.
    pub(crate) fn decoder(&self) -> (Builder, Value) {
        let mut it = self.embedded();
        for _ in 0..self.n_blocks {
            let attention = |it: Layers| it.layer_norm().attention(self.n_heads, true).dropout();
            it = it.residual(attention, |it| it);
            it = it.residual(|it| it.layer_norm().perceptron().dropout(), |it| it);
        }
        it.layer_norm().dense(self.n_words).classified(&[self.batch, self.tokens])
    }

    /// An encoder that classifies texts, normalised after each layer; the builder and the loss. Source: Vaswani et al. 2017.
    pub(crate) fn encoder(&self, n_classes: usize) -> (Builder, Value) {
        let mut it = self.embedded();
        for _ in 0..self.n_blocks {
            let attention = |it: Layers| it.attention(self.n_heads, false).dropout();
            it = it.residual(attention, |it| it).layer_norm();
            it = it.residual(|it| it.perceptron().dropout(), |it| it).layer_norm();
        }
        it.apply("mean", &[integer(1)]).dense(n_classes).classified(&[self.batch])
    }
}
