//! The attributes `#[soybean::model(..)]`, `#[soybean::layer]` and `#[soybean::constant]`.
//!
//! The model is evaluated once while the crate is built. Numbers, arrays and control flow are
//! computed, and tensors become values of the compiler's graph. The compiler knows shapes,
//! operators and plans. This crate knows the user's tokens, so that each error is reported where it
//! was written.

mod arithmetic;
mod attribute;
mod dependency;
mod diagnostic;
mod emit;
mod erase;
mod evaluate;
mod expand;
mod generate;
mod item;
mod layer;
mod layers;
mod naming;
mod relay;
mod relayed;
mod scope;
mod source_text;
mod stub;
mod suggestion;
mod tensor_type;
mod unsupported;
mod value;

#[cfg(test)]
mod tests;

use proc_macro::TokenStream;

/// Turns a function, or a module with one public function `forward`, into a trainer for N GPUs, or
/// a predictor.
///
/// The arguments are:
///
/// - `gpus = N`: the number of GPUs. The environment variable `SOYBEAN_GPUS` overrides it.
/// - `optimizer = sgd(momentum = 0.9)` or another optimizer; `docs/optimizers.md` lists them. Each
///   takes patterns of the names of parameters without weight decay: `no_decay = ["*.b",
///   "embed*"]`.
/// - `strategy = "auto"`, `"recursive"`, `"data"` or `"model"`: how the plan is found.
/// - `precision = "f32"`, `"tf32"` or `"bf16"`: the numbers of products.
/// - `cluster = "dgx-h100"`, the name of a preset, or `cluster = "machine.toml"`, a file beside the
///   crate's manifest: the machine of the GPUs.
/// - `objective = "time"`: with a cluster, the plan with the fastest step there instead of the one
///   that moves the fewest bytes.
/// - `memory = "80GiB"`: the memory of each GPU, for the cheapest plan that fits into it.
/// - `clip_norm = 1.0`: the largest norm of all gradients together.
/// - `accumulate = 4`: the number of steps that share an update.
/// - `ema = 0.999`: the decay of moving averages of the parameters.
/// - `non_finite = "stop"`, `"skip"` or `"scale"`: the treatment of steps whose loss or gradients
///   are not finite.
/// - `mode = "inference"`: a predictor instead of a trainer, without an optimizer.
///
/// The function takes the tensors of a batch, with their dims in their types. It returns a scalar
/// loss, or a tuple of the loss and further results. In mode inference it returns a tensor or a
/// tuple of tensors of any shapes. The function stays in the program as ordinary Rust.
///
/// The generated types are `Batch`, `Network` and `Trainer`, or `Predictor` in mode inference. They
/// are in the model's module, or for a function in a module of its name.
#[proc_macro_attribute]
pub fn model(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let environment = expand::Environment::read();
    expand::expand(attribute.into(), item.into(), &environment).into()
}

/// Makes a function usable from models, and from other layers, in every module and crate that can
/// name it.
///
/// The function stays ordinary Rust over the eager tensor. Models and layers call it like any
/// function: by its path, or after a `use`, also with `as` or through a glob. Its parameters are
/// named by the path of calls, like those of a model's own functions.
///
/// A layer can use other layers, and consts with `#[soybean::constant]`. Definitions in its own
/// body need no attribute. Layers cannot call each other in a cycle, and a function can name about
/// 120 layers, the limit of rustc's `recursion_limit`.
///
/// The attribute defines a macro with the layer's name, which passes on the layer's tokens. A
/// module cannot have another macro of that name. If a layer calls a function without the
/// attribute, rustc reports that it "cannot find macro `helper`".
#[proc_macro_attribute]
pub fn layer(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let environment = expand::Environment::read();
    layer::expand(layer::Kind::Layer, attribute.into(), item.into(), &environment).into()
}

/// Makes a const usable from models and layers in every module and crate that can name it; see
/// [`macro@layer`].
#[proc_macro_attribute]
pub fn constant(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let environment = expand::Environment::read();
    layer::expand(layer::Kind::Constant, attribute.into(), item.into(), &environment).into()
}

/// Continues the expansion of an item once the layers that it uses have arrived.
#[doc(hidden)]
#[proc_macro]
pub fn __continue(tokens: TokenStream) -> TokenStream {
    let arrived = match syn::parse::<relay::Arrived>(tokens) {
        Ok(arrived) => arrived,
        Err(error) => return error.to_compile_error().into(),
    };
    match arrived.state.stage {
        relay::Stage::Layer => layer::arrived(arrived).into(),
        relay::Stage::Model => {
            let environment = expand::Environment::read();
            relayed::arrived(arrived, &environment).into()
        }
    }
}
