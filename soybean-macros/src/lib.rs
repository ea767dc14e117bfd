//! The attribute `#[soybean::model(..)]`: tokens in, tokens out.
//!
//! The model is evaluated once while the crate is built: numbers, arrays and control flow are computed, tensors become values of the
//! compiler's graph. Shapes, operators and plans are the compiler's; this crate knows which tokens of the user stand for what, so that
//! every fault is reported where it was written.

mod arithmetic;
mod attribute;
mod emit;
mod erase;
mod evaluate;
mod expand;
mod generate;
mod item;
mod naming;
mod problem;
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

/// Turns a function, or a module with one public function `forward`, into a trainer for N GPUs.
///
/// Arguments: `gpus = N`, the number of GPUs (the environment variable `SOYBEAN_GPUS` overrides it); `optimizer = sgd(momentum = 0.9)`,
/// `adam(..)` or `adamw(..)`; `strategy = "auto"`, `"recursive"`, `"data"` or `"model"`.
///
/// The function takes the tensors of a batch, with their dims in their types, and returns a scalar loss, or a tuple of the loss and further
/// results. It stays in the program as ordinary Rust. Beside it stand the generated `Batch`, `Network` and `Trainer`: in the
/// module itself, or for a function in a module of its name.
#[proc_macro_attribute]
pub fn model(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let environment = expand::Environment::read();
    expand::expand(attribute.into(), item.into(), &environment).into()
}
