//! Vision transformers. Source: Dosovitskiy et al. 2021.

use soybean_compiler::Argument;
use soybean_plan::DType;

use crate::{
    Layers, Model,
    layers::{integer, list},
};

/// The sizes of an encoder of images of 224 x 224 in patches of 16 x 16.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Images {
    pub(crate) batch: usize,
    pub(crate) width: usize,
    pub(crate) n_heads: usize,
    pub(crate) n_blocks: usize,
}

/// ViT-L/16 for 1000 classes. Source: table 1.
pub(crate) fn vit_large(batch: usize) -> Model {
    let images = Images { batch, width: 1024, n_heads: 16, n_blocks: 24 };
    images.encoder().dense(1000).classified(&[batch])
}

impl Images {
    /// Returns the features of the class token, `[batch, width]`.
    pub(crate) fn encoder(&self) -> Layers {
        const SIDE: usize = 224 / 16;
        let Self { batch, width, n_heads, n_blocks } = *self;
        let mut it = Layers::new(DType::F32, &[batch, 3, 224, 224], true)
            .linear_conv(width, 16, 16, 0)
            .apply("reshape", &[list(&[batch, width, SIDE * SIDE])])
            .apply("permute", &[list(&[0, 2, 1])]);
        let class = it.parameter("class", &[1, 1, width]);
        let class = Argument::Tensor(it.value("expand", &[class, list(&[batch, 1, width])]));
        let tokens = Argument::List(vec![class, Argument::Tensor(it.here())]);
        it.call("concat", &[tokens, integer(1)])
            .with_parameter("add", "places", &[1 + SIDE * SIDE, width])
            .blocks(n_blocks, n_heads, false)
            .layer_norm()
            .token(0)
    }
}

impl Layers {
    /// Continues with one token of each text or image, `[batch, width]`.
    pub(crate) fn token(self, at: usize) -> Self {
        self.apply("slice", &[integer(1), integer(at), integer(at + 1)])
            .apply("squeeze", &[integer(1)])
    }
}
