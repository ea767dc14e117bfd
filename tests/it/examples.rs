//! The programs of `examples/`, whose models tests compile and train.
#![expect(unreachable_pub, dead_code, reason = "examples are programs")]
#![expect(
    clippy::duplicate_mod,
    clippy::module_inception,
    reason = "examples share data and networks, and name models as themselves"
)]

#[path = "../../examples/alexnet.rs"]
pub(crate) mod alexnet;
#[path = "../../examples/cnn5.rs"]
pub(crate) mod cnn5;
#[path = "../../examples/cnn_digits.rs"]
pub(crate) mod cnn_digits;
#[path = "../../examples/compare.rs"]
pub(crate) mod compare;
#[path = "../../examples/digits.rs"]
pub(crate) mod digits;
#[path = "../../examples/data/digits.rs"]
pub(crate) mod digits_data;
#[path = "../../examples/fashion_mnist.rs"]
pub(crate) mod fashion_mnist;
#[path = "../../examples/gan.rs"]
pub(crate) mod gan;
#[path = "../../examples/gpt.rs"]
pub(crate) mod gpt;
#[path = "../../examples/mlp.rs"]
pub(crate) mod mlp;
#[path = "../../examples/resnet.rs"]
pub(crate) mod resnet;
#[path = "../../examples/transformer.rs"]
pub(crate) mod transformer;
#[path = "../../examples/vgg16.rs"]
pub(crate) mod vgg16;
