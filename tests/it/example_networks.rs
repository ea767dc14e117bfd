//! The networks that the programs of `examples/` share.

#[path = "../../examples/networks/alexnet.rs"]
pub(crate) mod alexnet;
#[path = "../../examples/networks/bert.rs"]
pub(crate) mod bert;
#[path = "../../examples/networks/gpt.rs"]
pub(crate) mod gpt;
#[path = "../../examples/networks/gpt2.rs"]
pub(crate) mod gpt2;
#[path = "../../examples/networks/gpt2_lora.rs"]
pub(crate) mod gpt2_lora;
#[path = "../../examples/networks/llama.rs"]
pub(crate) mod llama;
#[path = "../../examples/networks/mobilenet_v2.rs"]
pub(crate) mod mobilenet_v2;
#[path = "../../examples/networks/resnet.rs"]
#[expect(dead_code, reason = "the smaller network is an example")]
pub(crate) mod resnet;
#[path = "../../examples/networks/unet.rs"]
pub(crate) mod unet;
#[path = "../../examples/networks/vgg16.rs"]
pub(crate) mod vgg16;
#[path = "../../examples/networks/vit.rs"]
pub(crate) mod vit;
