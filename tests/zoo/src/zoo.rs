//! The networks of tables and benchmarks.

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
    Entry {
        name: "mlp",
        sizes: "4 layers of 8192 x 8192 with biases, batch 512",
        optimizer: "sgd",
        model: || perceptron(512, &[8192; 5]),
    },
    Entry {
        name: "mlp-10",
        sizes: "10 layers of 8192 x 8192 with biases, batch 512",
        optimizer: "sgd",
        model: || perceptron(512, &[8192; 11]),
    },
    Entry {
        name: "cnn5-wide",
        sizes: "5 convolutions 3 x 3 of 2048 channels, images of 6 x 6, batch 256",
        optimizer: "sgd",
        model: || cnn5(256, 2048, 6),
    },
    Entry {
        name: "cnn5-large",
        sizes: "5 convolutions 3 x 3 of 512 channels, images of 24 x 24, batch 256",
        optimizer: "sgd",
        model: || cnn5(256, 512, 24),
    },
    Entry {
        name: "alexnet",
        sizes: "images of 224 x 224, batch 256",
        optimizer: "sgd",
        model: || alexnet(256),
    },
    Entry {
        name: "vgg16",
        sizes: "images of 224 x 224, batch 256",
        optimizer: "sgd",
        model: || vgg16(256),
    },
    Entry {
        name: "resnet20",
        sizes: "images of 32 x 32, batch 128",
        optimizer: "sgd",
        model: || resnet20(128),
    },
    Entry {
        name: "resnet50",
        sizes: "images of 224 x 224, batch 256",
        optimizer: "sgd",
        model: || resnet50(256),
    },
    Entry {
        name: "resnet50-batch-32",
        sizes: "images of 224 x 224, batch 32",
        optimizer: "adam",
        model: || resnet50(32),
    },
    Entry {
        name: "inception-v3",
        sizes: "images of 299 x 299, batch 256",
        optimizer: "sgd",
        model: || inception_v3(256),
    },
    Entry {
        name: "encoder",
        sizes: "2 blocks, width 256, 4 heads, 50304 words, 16 texts of 128 tokens, 10 classes",
        optimizer: "adam",
        model: || ENCODER.encoder(10),
    },
    Entry {
        name: "gpt-12",
        sizes: "12 blocks, width 768, 12 heads, 50304 words, 8 texts of 1024 tokens",
        optimizer: "adamw",
        model: || GPT_12.decoder(),
    },
    Entry {
        name: "gpt-12-batch-2",
        sizes: "12 blocks, width 768, 12 heads, 50304 words, 2 texts of 1024 tokens",
        optimizer: "adamw",
        model: || Transformer { batch: 2, ..GPT_12 }.decoder(),
    },
    Entry {
        name: "gpt-24",
        sizes: "24 blocks, width 1024, 16 heads, 50304 words, 8 texts of 1024 tokens",
        optimizer: "adamw",
        model: || GPT_24.decoder(),
    },
    Entry {
        name: "gpt-96",
        sizes: "96 blocks, width 12288, 96 heads, 50304 words, 8 texts of 1024 tokens",
        optimizer: "adamw",
        model: || GPT_96.decoder(),
    },
    Entry {
        name: "experts",
        sizes: "4 blocks, width 512, 8 heads, 16 experts of 2048 units, 32000 words, 8 texts of 1024 tokens",
        optimizer: "adamw",
        model: || EXPERTS.model(),
    },
];
