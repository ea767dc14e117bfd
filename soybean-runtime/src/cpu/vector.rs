//! Loops over blocks of elements: one for each function and each choice of vector operands,
//! compiled for every instruction set.
#![expect(
    unsafe_code,
    reason = "loops are compiled for instruction sets that the processor may lack"
)]

use soybean_plan::{Binary, Combine, Unary};

#[cfg(target_arch = "x86_64")]
use super::math::Fused;
use super::{
    isa::{Isa, for_each_isa},
    math::{self, MultiplyAdd, Separate},
};

/// A loop `result[i] = f(a[i], b[i], c[i])` over `n` elements. Operands that are not vectors stay
/// at their first element. Operands that the function does not have are not read, but must point to
/// a number.
pub(crate) type Loop = unsafe fn(*const f32, *const f32, *const f32, *mut f32, usize);

/// A loop that combines `n` elements (second argument) with an accumulator (first): one for each
/// element, or one for all.
pub(crate) type Accumulate = unsafe fn(*mut f32, *const f32, usize);

/// The function that a loop computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    /// A function of one number.
    Unary(Unary),
    /// A function of two numbers.
    Binary(Binary),
    /// `b` where `a` is not 0, else `c`.
    Select,
    /// `a * b + c`
    MultiplyAdd,
    /// `a * b - c`
    MultiplySubtract,
    /// `c - a * b`
    SubtractProduct,
}

trait Formula {
    fn apply<M: MultiplyAdd>(a: f32, b: f32, c: f32) -> f32;
}

macro_rules! formulas {
    ($($name:ident = |$a:pat_param, $b:pat_param, $c:pat_param| $value:expr;)*) => {
        $(
            enum $name {}
            impl Formula for $name {
                #[inline(always)]
                fn apply<M: MultiplyAdd>($a: f32, $b: f32, $c: f32) -> f32 {
                    $value
                }
            }
        )*
    };
}

formulas! {
    Copy = |a, _, _| a;
    Negate = |a, _, _| -a;
    Relu = |a, _, _| math::relu(a);
    Exp = |a, _, _| math::exp::<M>(a);
    Log = |a, _, _| math::log::<M>(a);
    Sqrt = |a, _, _| a.sqrt();
    Tanh = |a, _, _| math::tanh::<M>(a);
    Sigmoid = |a, _, _| math::sigmoid::<M>(a);
    Erf = |a, _, _| math::erf::<M>(a);
    Expm1 = |a, _, _| math::expm1::<M>(a);
    Log1p = |a, _, _| math::log1p::<M>(a);
    // One element at a time, by the system's library, which is exact for arguments of any size.
    Sin = |a, _, _| a.sin();
    Cos = |a, _, _| a.cos();
    Floor = |a, _, _| a.floor();
    Round = |a, _, _| a.round_ties_even();
    Float = |a, _, _| a.to_bits().cast_signed() as f32;
    Add = |a, b, _| a + b;
    Subtract = |a, b, _| a - b;
    Multiply = |a, b, _| a * b;
    Divide = |a, b, _| a / b;
    // One element at a time, by the system's library.
    FloorDivide = |a, b, _| {
        rounded(soybean_plan::floor_of_quotient(a.into(), b.into(), (a % b).into()))
    };
    Remainder = |a, b, _| rounded(soybean_plan::remainder_by_floor((a % b).into(), b.into()));
    Maximum = |a, b, _| math::maximum(a, b);
    Power = |a, b, _| a.powf(b);
    Equal = |a, b, _| if a == b { 1.0 } else { 0.0 };
    Greater = |a, b, _| if a > b { 1.0 } else { 0.0 };
    GreaterOrEqual = |a, b, _| if a >= b { 1.0 } else { 0.0 };
    EqualIntegers = |a, b, _| if a.to_bits() == b.to_bits() { 1.0 } else { 0.0 };
    GreaterInteger = |a, b, _| {
        if a.to_bits().cast_signed() > b.to_bits().cast_signed() { 1.0 } else { 0.0 }
    };
    AddIntegers = |a, b, _| integers(a, b, i32::wrapping_add);
    SubtractIntegers = |a, b, _| integers(a, b, i32::wrapping_sub);
    MultiplyIntegers = |a, b, _| integers(a, b, i32::wrapping_mul);
    FloorDivideIntegers = |a, b, _| integers(a, b, soybean_plan::floor_divide);
    RemainderOfIntegers = |a, b, _| integers(a, b, soybean_plan::remainder);
    MaximumOfIntegers = |a, b, _| integers(a, b, i32::max);
    Noise = |a, b, _| soybean_plan::noise(a, b);
    Select = |a, b, c| if a == 0.0 { c } else { b };
    ProductSum = |a, b, c| M::multiply_add(a, b, c);
    ProductDifference = |a, b, c| M::multiply_add(a, b, -c);
    DifferenceProduct = |a, b, c| M::multiply_add(-a, b, c);
    // 0 x is 0 if x is finite, else not a number, which stays.
    SumOfZeros = |sum, x, _| M::multiply_add(x, 0.0, sum);
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "rounded to single precision")]
const fn rounded(x: f64) -> f32 {
    x as f32
}

/// Applies a function of integers to registers that hold their bits.
#[inline(always)]
fn integers(a: f32, b: f32, function: impl Fn(i32, i32) -> i32) -> f32 {
    let [a, b] = [a, b].map(|it| it.to_bits().cast_signed());
    f32::from_bits(function(a, b).cast_unsigned())
}

/// Returns the loop for a function, and for these vector operands.
pub(crate) fn loop_of(function: Function, vectors: [bool; 3], isa: Isa) -> Loop {
    match function {
        Function::Unary(unary) => match unary {
            Unary::Negate => one::<Negate>(vectors, isa),
            Unary::Relu => one::<Relu>(vectors, isa),
            Unary::Exp => one::<Exp>(vectors, isa),
            Unary::Log => one::<Log>(vectors, isa),
            Unary::Sqrt => one::<Sqrt>(vectors, isa),
            Unary::Tanh => one::<Tanh>(vectors, isa),
            Unary::Sigmoid => one::<Sigmoid>(vectors, isa),
            Unary::Erf => one::<Erf>(vectors, isa),
            Unary::Expm1 => one::<Expm1>(vectors, isa),
            Unary::Log1p => one::<Log1p>(vectors, isa),
            Unary::Sin => one::<Sin>(vectors, isa),
            Unary::Cos => one::<Cos>(vectors, isa),
            Unary::Floor => one::<Floor>(vectors, isa),
            Unary::Round => one::<Round>(vectors, isa),
            Unary::Detach => one::<Copy>(vectors, isa),
            Unary::Float => one::<Float>(vectors, isa),
        },
        Function::Binary(binary) => match binary {
            Binary::Add => two::<Add>(vectors, isa),
            Binary::Subtract => two::<Subtract>(vectors, isa),
            Binary::Multiply => two::<Multiply>(vectors, isa),
            Binary::Divide => two::<Divide>(vectors, isa),
            Binary::FloorDivide => two::<FloorDivide>(vectors, isa),
            Binary::Remainder => two::<Remainder>(vectors, isa),
            Binary::Maximum => two::<Maximum>(vectors, isa),
            Binary::Power => two::<Power>(vectors, isa),
            Binary::Equal => two::<Equal>(vectors, isa),
            Binary::Greater => two::<Greater>(vectors, isa),
            Binary::GreaterOrEqual => two::<GreaterOrEqual>(vectors, isa),
            Binary::EqualIntegers => two::<EqualIntegers>(vectors, isa),
            Binary::GreaterInteger => two::<GreaterInteger>(vectors, isa),
            Binary::AddIntegers => two::<AddIntegers>(vectors, isa),
            Binary::SubtractIntegers => two::<SubtractIntegers>(vectors, isa),
            Binary::MultiplyIntegers => two::<MultiplyIntegers>(vectors, isa),
            Binary::FloorDivideIntegers => two::<FloorDivideIntegers>(vectors, isa),
            Binary::RemainderOfIntegers => two::<RemainderOfIntegers>(vectors, isa),
            Binary::Noise => two::<Noise>(vectors, isa),
        },
        Function::Select => three::<Select>(vectors, isa),
        Function::MultiplyAdd => three::<ProductSum>(vectors, isa),
        Function::MultiplySubtract => three::<ProductDifference>(vectors, isa),
        Function::SubtractProduct => three::<DifferenceProduct>(vectors, isa),
    }
}

fn one<F: Formula>(vectors: [bool; 3], isa: Isa) -> Loop {
    if vectors[0] {
        elementwise::<F, true, false, false>(isa)
    } else {
        elementwise::<F, false, false, false>(isa)
    }
}

fn two<F: Formula>(vectors: [bool; 3], isa: Isa) -> Loop {
    match (vectors[0], vectors[1]) {
        (false, false) => elementwise::<F, false, false, false>(isa),
        (false, true) => elementwise::<F, false, true, false>(isa),
        (true, false) => elementwise::<F, true, false, false>(isa),
        (true, true) => elementwise::<F, true, true, false>(isa),
    }
}

fn three<F: Formula>(vectors: [bool; 3], isa: Isa) -> Loop {
    match vectors {
        [_, _, false] => two::<F>(vectors, isa),
        [false, false, true] => elementwise::<F, false, false, true>(isa),
        [false, true, true] => elementwise::<F, false, true, true>(isa),
        [true, false, true] => elementwise::<F, true, false, true>(isa),
        [true, true, true] => elementwise::<F, true, true, true>(isa),
    }
}

for_each_isa! {
    elementwise [F: Formula, const A: bool, const B: bool, const C: bool] [F, A, B, C]
    Loop, elementwise_body (a: *const f32, b: *const f32, c: *const f32, result: *mut f32, n: usize)
}

for_each_isa! {
    combine_each [F: Formula] [F]
    Accumulate, combine_each_body (accumulators: *mut f32, elements: *const f32, n: usize)
}

for_each_isa! {
    combine_all [F: Formula] [F]
    Accumulate, combine_all_body (accumulator: *mut f32, elements: *const f32, n: usize)
}

/// Returns the loop that combines each of `n` elements with its own accumulator.
pub(crate) fn accumulate_each(combine: Combine, isa: Isa) -> Accumulate {
    match combine {
        Combine::Sum => combine_each::<Add>(isa),
        Combine::Max => combine_each::<Maximum>(isa),
    }
}

/// Returns the loop that combines `n` elements with one accumulator.
pub(crate) fn accumulate_all(combine: Combine, isa: Isa) -> Accumulate {
    match combine {
        Combine::Sum => combine_all::<Add>(isa),
        Combine::Max => combine_all::<Maximum>(isa),
    }
}

/// Returns the loop that makes one accumulator of 0 not a number if an element is not finite.
pub(crate) fn accumulate_non_finite(isa: Isa) -> Accumulate {
    combine_all::<SumOfZeros>(isa)
}

/// As [`accumulate_each`], for the bits of integers.
pub(crate) fn accumulate_each_integer(combine: Combine, isa: Isa) -> Accumulate {
    match combine {
        Combine::Sum => combine_each::<AddIntegers>(isa),
        Combine::Max => combine_each::<MaximumOfIntegers>(isa),
    }
}

/// As [`accumulate_all`], for the bits of integers.
pub(crate) fn accumulate_all_integers(combine: Combine, isa: Isa) -> Accumulate {
    match combine {
        Combine::Sum => combine_all::<AddIntegers>(isa),
        Combine::Max => combine_all::<MaximumOfIntegers>(isa),
    }
}

/// # Safety
/// Vectors have `n` elements, other operands one; `result` has `n` and overlaps none of them.
#[inline(always)]
unsafe fn elementwise_body<
    M: MultiplyAdd,
    F: Formula,
    const A: bool,
    const B: bool,
    const C: bool,
>(
    a: *const f32,
    b: *const f32,
    c: *const f32,
    result: *mut f32,
    n: usize,
) {
    // SAFETY: required of the caller.
    let a = unsafe { std::slice::from_raw_parts(a, if A { n } else { 1 }) };
    // SAFETY: as above.
    let b = unsafe { std::slice::from_raw_parts(b, if B { n } else { 1 }) };
    // SAFETY: as above.
    let c = unsafe { std::slice::from_raw_parts(c, if C { n } else { 1 }) };
    // SAFETY: as above.
    let result = unsafe { std::slice::from_raw_parts_mut(result, n) };
    apply::<M, F, A, B, C>(a, b, c, result);
}

#[inline(always)]
fn apply<M: MultiplyAdd, F: Formula, const A: bool, const B: bool, const C: bool>(
    a: &[f32],
    b: &[f32],
    c: &[f32],
    result: &mut [f32],
) {
    let (first_a, first_b, first_c) = (a[0], b[0], c[0]);
    for (index, element) in result.iter_mut().enumerate() {
        let a = if A { a[index] } else { first_a };
        let b = if B { b[index] } else { first_b };
        let c = if C { c[index] } else { first_c };
        *element = F::apply::<M>(a, b, c);
    }
}

/// # Safety
/// Both have `n` elements and do not overlap.
#[inline(always)]
unsafe fn combine_each_body<M: MultiplyAdd, F: Formula>(
    accumulators: *mut f32,
    elements: *const f32,
    n: usize,
) {
    // SAFETY: required of the caller.
    let accumulators = unsafe { std::slice::from_raw_parts_mut(accumulators, n) };
    // SAFETY: as above.
    let elements = unsafe { std::slice::from_raw_parts(elements, n) };
    for (accumulator, element) in accumulators.iter_mut().zip(elements) {
        *accumulator = F::apply::<M>(*accumulator, *element, 0.0);
    }
}

/// Several accumulators at once: for speed, and because many short sums round less than a long one.
const N_LANES: usize = 64;

/// # Safety
/// There are `n` elements, and the accumulator is none of them.
#[inline(always)]
unsafe fn combine_all_body<M: MultiplyAdd, F: Formula>(
    accumulator: *mut f32,
    elements: *const f32,
    n: usize,
) {
    // SAFETY: required of the caller.
    let accumulator = unsafe { &mut *accumulator };
    // SAFETY: as above.
    let elements = unsafe { std::slice::from_raw_parts(elements, n) };
    let (chunks, rest) = elements.as_chunks::<N_LANES>();
    let Some((first, chunks)) = chunks.split_first() else {
        *accumulator = rest.iter().fold(*accumulator, |sum, it| F::apply::<M>(sum, *it, 0.0));
        return;
    };
    let mut lanes = *first;
    for chunk in chunks {
        for (lane, element) in lanes.iter_mut().zip(chunk) {
            *lane = F::apply::<M>(*lane, *element, 0.0);
        }
    }
    for (lane, element) in lanes.iter_mut().zip(rest) {
        *lane = F::apply::<M>(*lane, *element, 0.0);
    }
    let mut width = N_LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] = F::apply::<M>(lanes[lane], lanes[lane + width], 0.0);
        }
    }
    *accumulator = F::apply::<M>(*accumulator, lanes[0], 0.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::random_data::Dice;

    fn value(function: Function, [a, b, c]: [f64; 3]) -> f64 {
        match function {
            Function::Unary(unary) => unary.evaluate(a),
            Function::Binary(binary) => binary.evaluate(a, b),
            Function::Select => {
                if a == 0.0 {
                    c
                } else {
                    b
                }
            }
            Function::MultiplyAdd => a * b + c,
            Function::MultiplySubtract => a * b - c,
            Function::SubtractProduct => c - a * b,
        }
    }

    #[test]
    fn loops_compute_their_function_on_every_instruction_set() {
        let unary = Unary::ALL.iter().map(|it| Function::Unary(*it));
        let binary = Binary::ALL.iter().map(|it| Function::Binary(*it));
        let others = [
            Function::Select,
            Function::MultiplyAdd,
            Function::MultiplySubtract,
            Function::SubtractProduct,
        ];
        let mut dice = Dice(1);
        for function in unary.chain(binary).chain(others) {
            for mask in 0..8 {
                for n in [1, 2, 15, 16, 17, 100] {
                    check_loop(function, [1, 2, 4].map(|bit| mask & bit != 0), n, &mut dice);
                }
            }
        }
    }

    fn reads_integers(function: Function) -> bool {
        match function {
            Function::Binary(binary) => binary.takes_integers(),
            other => other == Function::Unary(Unary::Float),
        }
    }

    fn gives_integers(function: Function) -> bool {
        matches!(function, Function::Binary(binary) if binary.gives_integers())
    }

    fn check_loop(function: Function, vectors: [bool; 3], n: usize, dice: &mut Dice) {
        // Few different numbers, so that some are equal, and some are 0.
        let numbers =
            [(); 3].map(|()| (0..n).map(|_| dice.below(9) as f32 - 3.0).collect::<Vec<f32>>());
        // Integers from 2^24 on have neighbors that are one number of single precision. Arithmetic
        // also has operands that are negative, or 0.
        let origin = if gives_integers(function) { dice.below(2) << 24 } else { 1 << 24 };
        #[expect(clippy::cast_possible_truncation, reason = "whole numbers")]
        let integer = |it: &f32| i32::try_from(origin).expect("it is small") + *it as i32;
        let operands = numbers.map(|them| match reads_integers(function) {
            true => them.iter().map(|it| f32::from_bits(integer(it).cast_unsigned())).collect(),
            false => them,
        });
        for isa in Isa::all() {
            let mut result = vec![0.0; n];
            let [a, b, c] = operands.each_ref().map(|it| it.as_ptr());
            // SAFETY: all have `n` elements, and the processor has the instruction set.
            unsafe { loop_of(function, vectors, isa)(a, b, c, result.as_mut_ptr(), n) };
            for index in 0..n {
                let at =
                    |operand: usize| operands[operand][if vectors[operand] { index } else { 0 }];
                let number = |it: f32| match reads_integers(function) {
                    true => f64::from(it.to_bits().cast_signed()),
                    false => f64::from(it),
                };
                let expected = value(function, [0, 1, 2].map(|it| number(at(it))));
                let found = match gives_integers(function) {
                    true => result[index].to_bits().cast_signed().into(),
                    false => f64::from(result[index]),
                };
                // A few units in the last place.
                let is_near =
                    (found - expected).abs() <= 4e-7 * expected.abs() || found == expected;
                assert!(
                    is_near || found.is_nan() && expected.is_nan(),
                    "{function:?} {vectors:?} {isa:?}: {found}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn accumulators_combine_all_or_each() {
        let mut dice = Dice(2);
        for (combine, isa) in [Combine::Sum, Combine::Max]
            .into_iter()
            .flat_map(|it| Isa::all().into_iter().map(move |isa| (it, isa)))
        {
            for n in [1, 3, 63, 64, 65, 200, 1000] {
                let elements: Vec<f32> = (0..n).map(|_| dice.float()).collect();
                let mut one = 0.5;
                // SAFETY: there are `n` elements.
                unsafe { accumulate_all(combine, isa)(&raw mut one, elements.as_ptr(), n) };
                let expected =
                    elements.iter().fold(0.5, |sum, it| combine.evaluate(sum, f64::from(*it)));
                assert!(
                    (f64::from(one) - expected).abs() < 1e-5 * n as f64,
                    "{combine:?} {isa:?} {n}"
                );
                let mut each = elements.clone();
                // SAFETY: both have `n` elements.
                unsafe { accumulate_each(combine, isa)(each.as_mut_ptr(), elements.as_ptr(), n) };
                assert!(each.iter().zip(&elements).all(
                    |(it, x)| f64::from(*it) == combine.evaluate(f64::from(*x), f64::from(*x))
                ));
            }
        }
    }

    #[test]
    fn accumulators_of_integers_are_exact() {
        let numbers = [i32::MAX, -7, (1 << 24) + 1, i32::MIN, 3];
        for (combine, isa) in [Combine::Sum, Combine::Max]
            .into_iter()
            .flat_map(|it| Isa::all().into_iter().map(move |isa| (it, isa)))
        {
            for n in [1, 63, 64, 200] {
                let integers: Vec<i32> = numbers.into_iter().cycle().take(n).collect();
                let bits = |it: &i32| f32::from_bits(it.cast_unsigned());
                let elements: Vec<f32> = integers.iter().map(bits).collect();
                let mut one = bits(&-9);
                // SAFETY: there are `n` elements.
                unsafe {
                    accumulate_all_integers(combine, isa)(&raw mut one, elements.as_ptr(), n);
                }
                let expected =
                    integers.iter().fold(-9, |sum, it| combine.evaluate_integers(sum, *it));
                assert_eq!(one.to_bits().cast_signed(), expected, "{combine:?} {isa:?} {n}");
                let mut each = vec![bits(&-9); n];
                let accumulate = accumulate_each_integer(combine, isa);
                // SAFETY: both have `n` elements.
                unsafe { accumulate(each.as_mut_ptr(), elements.as_ptr(), n) };
                assert!(
                    each.iter()
                        .zip(&integers)
                        .all(|(it, x)| it.to_bits().cast_signed()
                            == combine.evaluate_integers(-9, *x))
                );
            }
        }
    }

    #[test]
    fn elements_that_are_not_finite_are_found() {
        for isa in Isa::all() {
            for (at, value) in [(0, f32::NAN), (5, f32::INFINITY), (199, f32::NEG_INFINITY)] {
                let mut elements = vec![f32::MAX; 200];
                let sum = |elements: &[f32]| {
                    let mut sum = 0.0;
                    // SAFETY: there are 200 elements.
                    unsafe { accumulate_non_finite(isa)(&raw mut sum, elements.as_ptr(), 200) };
                    sum
                };
                assert!(sum(&elements) == 0.0, "{isa:?}");
                elements[at] = value;
                assert!(sum(&elements).is_nan(), "{isa:?} {at}");
            }
        }
    }

    #[test]
    fn maxima_keep_not_a_number() {
        for isa in Isa::all() {
            for at in [0, 5, 70] {
                let mut elements = vec![1.0; 80];
                elements[at] = f32::NAN;
                let mut one = f32::NEG_INFINITY;
                // SAFETY: there are 80 elements.
                unsafe { accumulate_all(Combine::Max, isa)(&raw mut one, elements.as_ptr(), 80) };
                assert!(one.is_nan(), "{isa:?} {at}");
            }
        }
    }
}
