//! Models and layers with `#[cfg(..)]`, `#[cfg_attr(..)]` and `cfg!(..)`: a condition in each place
//! decides on the shape of a parameter of its own.

use soybean::{Config, Network, prelude::*};
use soybean_test_support::models::{numbers, single};

/// Defines models by a condition that holds, `all()`, or does not, `any()`.
macro_rules! conditional {
    ($($name:ident with $layer:ident if $on:ident,)*) => {
        $(#[soybean::layer]
        fn $layer(x: Tensor, #[cfg($on())] n: usize) -> Tensor {
            #[cfg(not($on()))]
            let n = 3;
            x + param("layer", [n], ones()).mean(..)
        }

        #[soybean::model(gpus = 2, optimizer = sgd())]
        pub(crate) mod $name {
            #[cfg($on())]
            use soybean::nn as layers;
            use soybean::prelude::*;

            use super::$layer as layer;

            #[cfg($on())]
            const WIDTH: usize = 3;
            #[cfg(not($on()))]
            const WIDTH: usize = 6;

            #[derive(Clone, Copy)]
            struct Options {
                width: usize,
                depth: usize,
                #[cfg($on())]
                slope: f64,
            }

            const OPTIONS: Options = Options {
                width: WIDTH,
                depth: 2,
                #[cfg($on())]
                slope: 0.5,
            };

            #[cfg($on())]
            fn activated(x: Tensor, options: Options) -> Tensor {
                let Options { slope, .. } = options;
                x.leaky_relu(slope)
            }

            #[cfg(not($on()))]
            fn activated(x: Tensor, _options: Options) -> Tensor {
                x.tanh()
            }

            #[cfg(any())]
            static NEVER: f64 = unknown!(name);

            pub(crate) fn forward(
                x: Tensor<f32, 4, 6>,
                #[cfg($on())] y: Tensor<f32, 4, WIDTH>,
            ) -> Tensor {
                let mut h = x;
                #[cfg($on())]
                {
                    h = layers::linear(h, WIDTH) - y;
                }
                #[cfg_attr($on(), allow(clippy::match_single_binding))]
                let n_arms = match OPTIONS.width {
                    #[cfg($on())]
                    3 => 1,
                    #[cfg(not($on()))]
                    6 => 2,
                    _ => 9,
                };
                h += param("arms", [n_arms], ones()).mean(..);
                let elements = [
                    1,
                    #[cfg($on())]
                    2,
                    3,
                ];
                h += param("elements", elements, ones()).mean(..);
                let n_chosen = if cfg!($on()) && WIDTH == 3 { 4 } else { 5 };
                h += param("chosen", [n_chosen], ones()).mean(..);
                h = layer(
                    h,
                    #[cfg($on())]
                    2,
                );
                #[cfg(not($on()))]
                assert!(h.dim(1) == 6);
                let options = Options {
                    #[cfg(not($on()))]
                    width: 7,
                    ..OPTIONS
                };
                h += param("fields", [options.width, options.depth], ones()).mean(..);
                #[cfg($on())]
                return activated(h, OPTIONS).square().mean(..);
                #[cfg(not($on()))]
                activated(h, OPTIONS).mean(..)
            }
        })*
    };
}

conditional! {
    on with layer_on if all,
    off with layer_off if any,
}

#[soybean::model(gpus = 1)]
fn function(x: Tensor<f32, 4, 6>, #[cfg(any())] y: Unknown) -> Tensor {
    #[cfg(any())]
    let x = unknown!(x);
    #[cfg(test)]
    let x = x + param("kept", [6], zeros());
    x.mean(..)
}

// The item itself has a condition.
#[soybean::model(gpus = 1)]
#[cfg(any())]
mod never {
    pub(crate) fn forward(x: Unknown) -> Unknown {
        unknown!(x)
    }
}

/// Returns the names and shapes of a model's parameters.
fn parameters<N: Network>() -> Vec<(String, Vec<usize>)> {
    let mut trainer = soybean::Trainer::<N>::new(Config::default()).unwrap();
    let parameters = trainer.parameters().unwrap().into_iter();
    parameters.map(|(name, it)| (name, it.shape)).collect()
}

fn named(parameters: &[(&str, &[usize])]) -> Vec<(String, Vec<usize>)> {
    parameters.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec())).collect()
}

// Guards: conditions of imports, consts, fields, functions, arguments, statements, blocks, arms,
// elements of arrays, and values, in a model's module, its function and its layers.
#[test]
fn conditions_decide_in_every_place() {
    let expected = named(&[
        ("linear.weight", &[3, 6]),
        ("linear.bias", &[3]),
        ("arms", &[1]),
        ("elements", &[1, 2, 3]),
        ("chosen", &[4]),
        ("layer_on.layer", &[2]),
        ("fields", &[3, 2]),
    ]);
    assert_eq!(parameters::<on::Network>(), expected);
    let expected = named(&[
        ("arms", &[2]),
        ("elements", &[1, 3]),
        ("chosen", &[5]),
        ("layer_off.layer", &[3]),
        ("fields", &[7, 2]),
    ]);
    assert_eq!(parameters::<off::Network>(), expected);
    assert_eq!(parameters::<function::Network>(), named(&[("kept", &[6])]));
}

// Guards: rustc decides conditions for the ordinary function as for the compiled model.
#[test]
fn conditions_are_those_of_the_function() {
    let (x, y) = (single(&numbers(24, 1)), single(&numbers(12, 2)));
    let mut trainer = on::Trainer::new(Config::default()).unwrap();
    let batch = on::Batch { x: &x, y: &y };
    let expected = trainer.eager(&batch).unwrap().outputs[0].data[0];
    assert!((trainer.evaluate(&batch).unwrap().loss - expected).abs() < 1e-5);
    let mut trainer = off::Trainer::new(Config::default()).unwrap();
    let batch = off::Batch { x: &x };
    let expected = trainer.eager(&batch).unwrap().outputs[0].data[0];
    assert!((trainer.evaluate(&batch).unwrap().loss - expected).abs() < 1e-5);
}
