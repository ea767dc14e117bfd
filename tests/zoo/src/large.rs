//! The networks of the comparison with experts' plans. They are apart from [`ZOO`](crate::ZOO)
//! because searching them takes an unoptimized build minutes.

use crate::{
    Entry,
    clip::clip_base,
    diffusion::diffusion_unet,
    llama::{LLAMA, LLAMA3_8B, LLAMA3_70B, Llama, MISTRAL},
    recommender::dlrm,
    routed::qwen3_moe,
    t5::t5_base,
    vit::vit_large,
};

/// The memory of a GPU: 80 GiB.
const MEMORY: u64 = 80 << 30;

const LLAMA3_8B_TEXTS: Entry = Entry::new(
    "llama3-8b",
    "32 blocks, width 4096, 32 heads, 8 of keys, 128256 words, 8 texts of 8192 tokens, bf16",
    "adamw",
    || LLAMA3_8B.model(),
)
.in_bf16();
const LLAMA3_70B_TEXTS: Entry = Entry::new(
    "llama3-70b",
    "80 blocks, width 8192, 64 heads, 8 of keys, 128256 words, 64 texts of 2048 tokens, bf16",
    "adamw",
    || LLAMA3_70B.model(),
)
.in_bf16();

/// The networks.
pub const LARGE: &[Entry] = &[
    Entry::new(
        "llama-24",
        "24 blocks, width 2048, 16 heads, 4 of keys, 32000 words, 8 texts of 1024 tokens",
        "adamw",
        || LLAMA.model(),
    ),
    Entry::new("llama-48", "llama-24 with 48 blocks", "adamw", || {
        Llama { n_blocks: 48, ..LLAMA }.model()
    }),
    Entry::new("llama-96", "llama-24 with 96 blocks", "adamw", || {
        Llama { n_blocks: 96, ..LLAMA }.model()
    }),
    Entry::new("llama-128", "llama-24 with 128 blocks", "adamw", || {
        Llama { n_blocks: 128, ..LLAMA }.model()
    }),
    LLAMA3_8B_TEXTS,
    Entry { name: "llama3-8b-80gib", sizes: "llama3-8b in 80 GiB", ..LLAMA3_8B_TEXTS }
        .within(MEMORY),
    Entry::new("llama3-8b-short", "llama3-8b with 64 texts of 2048 tokens", "adamw", || {
        Llama { batch: 64, tokens: 2048, ..LLAMA3_8B }.model()
    })
    .in_bf16(),
    LLAMA3_70B_TEXTS,
    Entry { name: "llama3-70b-80gib", sizes: "llama3-70b in 80 GiB", ..LLAMA3_70B_TEXTS }
        .within(MEMORY),
    Entry::new(
        "mistral-7b",
        "32 blocks, width 4096, windows of 4096 of 8192 tokens, 8 texts, bf16",
        "adamw",
        || MISTRAL.model(),
    )
    .in_bf16(),
    Entry::new(
        "qwen3-moe",
        "4 of 48 blocks of 128 experts, 8 for each token, 8 texts of 2048 tokens, bf16",
        "adamw",
        qwen3_moe,
    )
    .in_bf16(),
    Entry::new("t5-base", "128 texts of 512 tokens and 114 targets", "adamw", t5_base),
    Entry::new("vit-large", "ViT-L/16, 512 images of 224 x 224, bf16", "adamw", || vit_large(512))
        .in_bf16(),
    Entry::new(
        "diffusion-unet",
        "Stable Diffusion 1, 64 latent images of 64 x 64, bf16",
        "adamw",
        || diffusion_unet(64, 64),
    )
    .in_bf16(),
    Entry::new("clip-base", "ViT-B/16, 4096 images and texts, bf16", "adamw", || clip_base(4096))
        .in_bf16(),
    Entry::new("dlrm", "26 tables of Criteo Kaggle, batch 65536", "sgd", || dlrm(65_536)),
];
