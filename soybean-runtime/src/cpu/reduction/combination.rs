//! The way in which a reduction combines values: numbers, or the bits of integers.
#![expect(unsafe_code, reason = "loops take addresses")]

use soybean_plan::{Combine, Reduction};

use crate::cpu::{
    isa::Isa,
    vector::{
        Accumulate, accumulate_all, accumulate_all_integers, accumulate_each,
        accumulate_each_integer,
    },
};

/// The loops that combine values.
pub(super) struct Combination {
    /// The value of no values.
    pub(super) identity: f32,
    pub(super) gives_integers: bool,
    pub(super) each: Accumulate,
    pub(super) all: Accumulate,
}

impl Combination {
    pub(super) fn new(reduction: &Reduction, isa: Isa) -> Self {
        let combine = reduction.combine;
        if reduction.combines_integers() {
            return Self {
                identity: f32::from_bits(combine.integer_identity().cast_unsigned()),
                gives_integers: true,
                each: accumulate_each_integer(combine, isa),
                all: accumulate_all_integers(combine, isa),
            };
        }
        let identity = match combine {
            Combine::Sum => 0.0,
            Combine::Max => f32::NEG_INFINITY,
        };
        let (each, all) = (accumulate_each(combine, isa), accumulate_all(combine, isa));
        Self { identity, gives_integers: false, each, all }
    }

    /// Combines all values.
    pub(super) fn of(&self, values: &[f32]) -> f32 {
        let mut total = self.identity;
        // SAFETY: there is one accumulator, and so many values.
        unsafe { (self.all)(&raw mut total, values.as_ptr(), values.len()) };
        total
    }
}
