//! The list of optimizers. A new one is a file here and two lines below.

mod adafactor;
mod adagrad;
mod adam;
mod gradients;
mod lion;
mod rmsprop;
mod sgd;

use super::method::Method;

/// All optimizers; the first is the default.
pub static METHODS: &[&Method] = &[
    &sgd::SGD,
    &adam::ADAM,
    &adam::ADAMW,
    &adam::LAZY_ADAM,
    &rmsprop::RMSPROP,
    &adagrad::ADAGRAD,
    &lion::LION,
    &adafactor::ADAFACTOR,
    &gradients::GRADIENTS,
];
