//! CLIP: an encoder of images and one of texts, whose features are to be alike. Source: Radford et
//! al. 2021.

use soybean_compiler::{Argument, Value};
use soybean_plan::DType;

use crate::{Layers, Model, layers::integer, vit::Images};

/// CLIP ViT-B/16. Source: table 20. The features of a text are those of its last token, which is
/// the end of the text only in texts of full length.
pub(crate) fn clip_base(batch: usize) -> Model {
    const TOKENS: usize = 77;
    let images = Images { batch, width: 768, n_heads: 12, n_blocks: 12 };
    let mut it = images.encoder().features(768);
    let of_images = it.here();
    let texts = it.input("texts", DType::I32, &[batch, TOKENS]);
    let words = it.parameter("words", &[49_408, 512]);
    let it = it
        .call("embedding", &[texts, words])
        .ended()
        .with_parameter("add", "places", &[TOKENS, 512])
        .blocks(12, 8, true)
        .layer_norm()
        .token(TOKENS - 1)
        .features(512);
    contrasted(it, of_images, batch)
}

/// Returns the network whose loss is the mean of the cross-entropies of images by texts and of
/// texts by images.
fn contrasted(mut it: Layers, images: Value, batch: usize) -> Model {
    let texts = it.here();
    let texts = Argument::Tensor(it.value("transpose", &[Argument::Tensor(texts)]));
    let scale = it.parameter("scale", &[1]);
    let scale = Argument::Tensor(it.value("exp", &[scale]));
    let labels = it.input("y", DType::I32, &[batch]);
    let it = it.at(images).apply("matmul", &[texts]).apply("mul", &[scale]);
    let logits = it.here();
    let it = it.apply("cross_entropy", std::slice::from_ref(&labels));
    let of_images = Argument::Tensor(it.here());
    it.at(logits)
        .apply("transpose", &[])
        .apply("cross_entropy", &[labels])
        .apply("add", &[of_images])
        .apply("mul", &[Argument::Float(0.5)])
        .finished(logits)
}

impl Layers {
    /// Adds the projection to the features that are compared.
    fn features(self, width: usize) -> Self {
        let mut it = self.with_parameter("matmul", "weight", &[width, 512]);
        it = it.apply("normalize", &[integer(1), Argument::Float(1e-8)]);
        let here = it.here();
        it.landmarks().gathered.push(here);
        it
    }
}
