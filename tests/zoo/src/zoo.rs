//! The networks of tables and benchmarks.

use soybean_compiler::{Options, SearchRequest, optimizer};
use soybean_plan::Precision;

use crate::{
    Experts, GPT, Model, Transformer, alexnet, cnn5, inception_v3, perceptron, resnet20, resnet50,
    vgg16,
};

/// A network of the zoo.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name, without spaces.
    pub name: &'static str,
    /// The sizes in words.
    pub sizes: &'static str,
    /// The optimizer.
    pub optimizer: &'static str,
    /// The function that builds it.
    pub model: fn() -> Model,
    /// The precision.
    pub precision: Precision,
    /// The memory of each GPU in bytes, if it limits the plan.
    pub memory: Option<u64>,
}

impl Entry {
    /// Returns a network in `f32` without a memory limit.
    pub(crate) const fn new(
        name: &'static str,
        sizes: &'static str,
        optimizer: &'static str,
        model: fn() -> Model,
    ) -> Self {
        Self { name, sizes, optimizer, model, precision: Precision::F32, memory: None }
    }

    /// Returns the network in `bf16`.
    pub(crate) const fn in_bf16(self) -> Self {
        Self { precision: Precision::Bf16, ..self }
    }

    /// Returns the network on GPUs with this memory.
    pub(crate) const fn within(self, memory: u64) -> Self {
        Self { memory: Some(memory), ..self }
    }

    /// Returns the options of its compilation.
    ///
    /// # Panics
    /// If the compiler lacks the optimizer.
    #[must_use]
    pub fn options(&self, n_gpus: usize) -> Options {
        Options {
            name: self.name.to_owned(),
            n_gpus,
            search: SearchRequest { memory: self.memory, ..SearchRequest::default() },
            precision: self.precision,
            optimizer: optimizer(self.optimizer, &[]).expect("an optimizer of the compiler"),
        }
    }
}

/// A text classifier.
const ENCODER: Transformer =
    Transformer { batch: 16, tokens: 128, width: 256, n_heads: 4, n_blocks: 2, n_words: 50_304 };
/// The sizes of GPT-2 small.
const GPT_12: Transformer = Transformer { batch: 8, ..GPT };
/// The sizes of GPT-2 medium.
const GPT_24: Transformer = Transformer { width: 1024, n_heads: 16, n_blocks: 24, ..GPT_12 };
/// The depth, width and heads of GPT-3. Source: Brown et al. 2020.
const GPT_96: Transformer = Transformer { width: 12_288, n_heads: 96, n_blocks: 96, ..GPT_12 };

/// Four blocks, each with as many parameters as eight blocks without experts.
const EXPERTS: Experts = Experts {
    decoder: Transformer { n_heads: 8, width: 512, n_blocks: 4, n_words: 32_000, ..GPT_12 },
    n_experts: 16,
    n_hidden: 2048,
};

/// Returns all networks, each at the batch size of the comparison.
pub const ZOO: &[Entry] = &[
    Entry::new("mlp", "4 layers of 8192 x 8192 with biases, batch 512", "sgd", || {
        perceptron(512, &[8192; 5])
    }),
    Entry::new("mlp-10", "10 layers of 8192 x 8192 with biases, batch 512", "sgd", || {
        perceptron(512, &[8192; 11])
    }),
    Entry::new(
        "cnn5-wide",
        "5 convolutions 3 x 3 of 2048 channels, images of 6 x 6, batch 256",
        "sgd",
        || cnn5(256, 2048, 6),
    ),
    Entry::new(
        "cnn5-large",
        "5 convolutions 3 x 3 of 512 channels, images of 24 x 24, batch 256",
        "sgd",
        || cnn5(256, 512, 24),
    ),
    Entry::new("alexnet", "images of 224 x 224, batch 256", "sgd", || alexnet(256)),
    Entry::new("vgg16", "images of 224 x 224, batch 256", "sgd", || vgg16(256)),
    Entry::new("resnet20", "images of 32 x 32, batch 128", "sgd", || resnet20(128)),
    Entry::new("resnet50", "images of 224 x 224, batch 256", "sgd", || resnet50(256)),
    Entry::new("resnet50-batch-32", "images of 224 x 224, batch 32", "adam", || resnet50(32)),
    Entry::new("inception-v3", "images of 299 x 299, batch 256", "sgd", || inception_v3(256)),
    Entry::new(
        "encoder",
        "2 blocks, width 256, 4 heads, 50304 words, 16 texts of 128 tokens, 10 classes",
        "adam",
        || ENCODER.encoder(10),
    ),
    Entry::new(
        "gpt-12",
        "12 blocks, width 768, 12 heads, 50304 words, 8 texts of 1024 tokens",
        "adamw",
        || GPT_12.decoder(),
    ),
    Entry::new(
        "gpt-12-batch-2",
        "12 blocks, width 768, 12 heads, 50304 words, 2 texts of 1024 tokens",
        "adamw",
        || Transformer { batch: 2, ..GPT_12 }.decoder(),
    ),
    Entry::new(
        "gpt-24",
        "24 blocks, width 1024, 16 heads, 50304 words, 8 texts of 1024 tokens",
        "adamw",
        || GPT_24.decoder(),
    ),
    Entry::new(
        "gpt-96",
        "96 blocks, width 12288, 96 heads, 50304 words, 8 texts of 1024 tokens",
        "adamw",
        || GPT_96.decoder(),
    ),
    Entry::new(
        "experts",
        "4 blocks, width 512, 8 heads, 16 experts of 2048 units, 32000 words, 8 texts of 1024 tokens",
        "adamw",
        || EXPERTS.model(),
    ),
];
