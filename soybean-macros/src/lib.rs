//! The attributes `#[soybean::model(..)]`, `#[soybean::layer]` and `#[soybean::constant]`.
//!
//! The model is evaluated once while the crate is built. Numbers, arrays and control flow are
//! computed, and tensors become values of the compiler's graph. The compiler knows shapes,
//! operators and plans. This crate knows the user's tokens, so that each error is reported where it
//! was written.
//!
//! The documentation of `soybean::model` begins with examples.

mod arithmetic;
mod attribute;
mod configured;
mod dependency;
mod diagnostic;
mod emit;
mod erase;
mod evaluate;
mod expand;
mod generate;
mod imports;
mod item;
mod kind;
mod layer;
mod layers;
mod naming;
mod operator;
mod prelude;
mod prepared;
mod recovery;
mod relay;
mod relayed;
mod root;
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

use kind::Kind;

/// Turns a function, or a module with one public function `forward`, into a trainer for N GPUs, or
/// a predictor.
///
/// The function computes the loss of one batch. The macro evaluates it while the crate is built,
/// and adds the gradients and the updates of the weights. It searches for the tiling of every
/// tensor that moves the fewest bytes between the GPUs. Then it writes a program in which all
/// partitions and transfers are fixed.
///
/// # Arguments
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
/// - `search = "thorough"`: a search that goes on until its plan is proved optimal, if it can be,
///   which may take minutes. Otherwise it stops after seconds, in an unoptimized build.
/// - `padding = "auto"`, `"off"` or `"all"`: which dims may be padded so that the GPUs divide
///   them.
/// - `max_work = 1.2`: the limit on a plan's work, the operations of all GPUs over those of one
///   device. Of the plans within it, the one with the fewest bytes is chosen.
/// - `memory = "80GiB"`: the memory of each GPU, for the cheapest plan that fits into it.
/// - `groups = [("*.bias", sgd(), learning_rate_factor = 2.0)]`: groups of parameters with an
///   optimizer or a learning rate of their own; a parameter belongs to the first group whose
///   pattern its name matches.
/// - `freeze = ["encoder.*"]`: patterns of the names of parameters that keep their values.
/// - `input_gradients = ["x"]`: inputs whose gradients `Trainer::gradient` returns after a step.
/// - `clip_norm = 1.0`: the largest norm of all gradients together.
/// - `accumulate = 4`: the number of steps that share an update.
/// - `ema = 0.999`: the decay of moving averages of the parameters.
/// - `non_finite = "stop"`, `"skip"` or `"scale"`: the treatment of steps whose loss or gradients
///   are not finite.
/// - `mode = "inference"`: a predictor instead of a trainer, without an optimizer.
/// - `crate = path`: the path of this library, if the model's crate has it from another crate that
///   re-exports it. Another name in the manifest is found without the argument.
/// - `entries = (prefill = 1, decode = 128)`: the functions that run by themselves over the same
///   parameters and states, with the number of their calls by which the plan is measured. Each has
///   a type of batches, `Prefill` and `Decode`. In training each returns a loss of its own, and may
///   freeze parameters: `entries = (discriminator(freeze = ["g.*"]), generator(freeze = ["d.*"]))`.
///
/// # The function
///
/// The function takes the tensors of a batch, with their dims in their types: `x: Tensor<f32, 64,
/// 784>, y: Tensor<i32, 64>`. A dim is a number, a const, or an expression of them in braces. The
/// function returns a scalar loss, or a tuple of the loss and further results. In mode inference it
/// returns a tensor or a tuple of tensors of any shapes.
///
/// Its body is Rust, in which everything but the elements of tensors is known when the model is
/// built:
///
/// - **Operators** are methods of tensors, such as `h.relu()`, and `+ - * /`.
/// - **Weights** are `param("w", [10, x.dim(1)], he_normal())`. The name in full is the path of
///   calls and loop iterations that leads to the weight, such as `dense.2.w`. `buffer` declares a
///   tensor that is kept from step to step without training.
/// - **Variables** hold tensors, numbers, tuples, arrays and structs. `let mut h` and
///   `h = layer(h)` are allowed.
/// - **Loops** are `for` over ranges and arrays, also with `break` and `continue`. They are
///   unrolled.
/// - **Choices** are `if`, `else` and `match` on values that are known when the model is built. A
///   choice for each element is `where_`.
/// - **Functions** and **consts** of the model are in its module, or in the body of its function.
///   The macro sees only what it annotates. Functions are not generic.
/// - **Layers** of other modules and crates carry `#[soybean::layer]`, and consts
///   `#[soybean::constant]`. The module `soybean::nn` has layers to begin with.
///
/// - **Structs** with named fields hold options: `Window { kernel: 3, stride: 1, padding: 1 }`. The
///   rest may be that of a const: `Window { stride: 2, ..SAME }`.
///
/// - **Assertions** are `assert!(width % heads == 0, "{heads} heads do not divide {width}")`, also
///   in layers: a failure is a compile error, at the call of a layer of another crate.
/// - **Conditions** of the build, `#[cfg(..)]` and `cfg!(..)`, are decided before all that.
///
/// There is no `while`, closure or other macro call; the errors name replacements.
///
/// A module imports `soybean::prelude::*`. The function stays in the program as ordinary Rust over
/// the eager tensor, so that editors and tests can use it.
///
/// # What is generated
///
/// - `Batch`: the tensors of one step, a struct with a slice for each argument of the function. The
///   elements are in row-major order.
/// - `Trainer`: runs steps, evaluations and predictions, and has the plan as `Trainer::PLAN`.
///   `Trainer::command_line` turns it into a program.
/// - `Predictor`, in mode inference instead of `Trainer`: loads weights and runs predictions.
/// - `Network`: the compiled model as a type, by which generic code names it.
///
/// They are in the model's module, or for a function in a module of its name. They are as visible
/// as the function.
///
/// # Errors
///
/// A mistake is a compile error at its tokens. One build reports all of them, each with what was
/// found and often with help:
///
/// ```text
/// error: `matmul`: inner dimensions differ: 784 vs 785
///          left:  `x` is [64, 784]
///          right: `w` is [785, 10]
///          help:  [.., m, k] x [k, n]
///  --> src/main.rs:6:14
///   |
/// 6 |     x.matmul(w).cross_entropy(y)
///   |              ^
/// ```
///
/// A model that does not fit into `memory` is an error, too.
#[proc_macro_attribute]
pub fn model(attribute: TokenStream, item: TokenStream) -> TokenStream {
    kind::attribute(Kind::Model, attribute.into(), item.into()).into()
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
    kind::attribute(Kind::Layer, attribute.into(), item.into()).into()
}

/// Makes a const usable from models and layers in every module and crate that can name it; see
/// [`macro@layer`].
#[proc_macro_attribute]
pub fn constant(attribute: TokenStream, item: TokenStream) -> TokenStream {
    kind::attribute(Kind::Constant, attribute.into(), item.into()).into()
}

/// Makes a function for the CPU an operator, which models and layers call by its name.
///
/// The module `soybean::operator` describes it, with an example.
#[proc_macro_attribute]
pub fn operator(attribute: TokenStream, item: TokenStream) -> TokenStream {
    kind::attribute(Kind::Operator, attribute.into(), item.into()).into()
}

/// Continues the expansion of an item once the layers that it uses have arrived.
#[doc(hidden)]
#[proc_macro]
pub fn __continue(tokens: TokenStream) -> TokenStream {
    match syn::parse(tokens) {
        Ok(arrived) => kind::continued(arrived).into(),
        Err(error) => error.to_compile_error().into(),
    }
}

/// Continues the expansion of an item once rustc has decided the conditions in it.
#[doc(hidden)]
#[proc_macro_derive(__Configured, attributes(__soybean_arguments))]
pub fn __configured(tokens: TokenStream) -> TokenStream {
    match configured::answered(tokens.into()) {
        Ok((kind, attribute, item)) => kind::configured(kind, attribute, item).into(),
        Err(error) => error.to_compile_error().into(),
    }
}

/// Removes an item: the type that contains an item with conditions.
#[doc(hidden)]
#[proc_macro_attribute]
pub fn __removed(_: TokenStream, _: TokenStream) -> TokenStream {
    TokenStream::new()
}
