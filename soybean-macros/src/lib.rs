//! The attributes `#[soybean::model(..)]`, `#[soybean::layer]` and `#[soybean::constant]`: tokens in, tokens out.
//!
//! The model is evaluated once while the crate is built: numbers, arrays and control flow are computed, tensors become values of the
//! compiler's graph. Shapes, operators and plans are the compiler's; this crate knows which tokens of the user stand for what, so that
//! every fault is reported where it was written.

mod arithmetic;
mod attribute;
mod dependency;
mod emit;
mod erase;
mod evaluate;
mod expand;
mod generate;
mod item;
mod layer;
mod layers;
mod naming;
mod problem;
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

/// Turns a function, or a module with one public function `forward`, into a trainer for N GPUs, or a predictor.
///
/// Arguments: `gpus = N`, the number of GPUs (the environment variable `SOYBEAN_GPUS` overrides it); `optimizer = sgd(momentum = 0.9)`
/// or another of the optimizers that `docs/optimizers.md` lists; `strategy = "auto"`, `"recursive"`, `"data"` or `"model"`; `precision = "f32"`, `"tf32"` or
/// `"bf16"`; `cluster = "dgx-h100"`, a preset's name, or `cluster = "machine.toml"`, the path of a file beside the crate's manifest, which says on what machine the
/// GPUs are; `objective = "time"`, with a cluster, for the plan whose step is the fastest there instead of the one that moves the fewest bytes;
/// `memory = "80GiB"`, the memory of each GPU, for the cheapest plan that fits into it; `clip_norm = 1.0`, the largest norm of all gradients together; `accumulate = 4`, how many
/// steps share an update; `ema = 0.999`, the decay of moving averages of the parameters; `non_finite = "stop"`, `"skip"` or `"scale"`, what a step does whose loss or gradients are
/// not finite. Optimizers take patterns of the names of parameters that are not decayed: `adamw(no_decay = ["*.b", "embed*"])`.
/// `mode = "inference"`, without an optimizer, makes a predictor instead of a trainer.
///
/// The function takes the tensors of a batch, with their dims in their types, and returns a scalar loss, or a tuple of the loss and further
/// results; in mode inference it returns a tensor, or a tuple of tensors, of any shapes. It stays in the program as ordinary Rust. Beside it stand the generated `Batch`,
/// `Network` and `Trainer`, or in mode inference `Predictor`: in the module itself, or for a function in a module of its name.
#[proc_macro_attribute]
pub fn model(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let environment = expand::Environment::read();
    expand::expand(attribute.into(), item.into(), &environment).into()
}

/// Makes a function usable from models, and from other layers, in every module and crate that can name it.
///
/// The function stays as it is, ordinary Rust over the eager tensor. Models and layers call it as they call any function: after a `use`, also with
/// `as` or through a glob, or by its path. Its parameters are named by the path of calls, as those of a model's own functions are.
///
/// A layer can use other layers, and consts with `#[soybean::constant]`; what it defines in its own body needs no attribute. Layers cannot call each
/// other in a circle, and a function names about 120 layers at most, or what rustc's `recursion_limit` allows. A layer has a macro of its own
/// name beside it, by which its tokens travel: a module cannot have another macro of that name. rustc says that it "cannot find macro `helper`" where a
/// layer calls a function that lacks the attribute.
#[proc_macro_attribute]
pub fn layer(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let environment = expand::Environment::read();
    layer::expand(layer::Kind::Layer, attribute.into(), item.into(), &environment).into()
}

/// Makes a const usable from models and layers in every module and crate that can name it; see [`macro@layer`].
#[proc_macro_attribute]
pub fn constant(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let environment = expand::Environment::read();
    layer::expand(layer::Kind::Constant, attribute.into(), item.into(), &environment).into()
}

/// Where the expansion of an item goes on when the layers that it uses have arrived.
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
