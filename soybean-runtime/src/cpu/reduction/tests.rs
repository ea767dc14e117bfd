//! Tests of reductions against plain loops in double precision.

use soybean_plan::{Combine, MAX_RANK, Map};

use super::*;
use crate::cpu::random_data::{Dice, in_pool, region, values};

/// Returns the number of neighbors that are combined last.
fn check(dice: &mut Dice, extents: soybean_plan::Shape) -> usize {
    let (n_inputs, n_scalars) = (1 + dice.below(2), dice.below(2));
    let strides: Vec<_> = (0..n_inputs).map(|_| dice.strides(&extents)).collect();
    let program = dice.program(n_inputs, n_scalars, 1);
    let map = Map { extents, inputs: strides.into(), program };
    let mut result = [0; MAX_RANK];
    let mut n_results = 1;
    for dim in (0..extents.len()).rev().filter(|_| dice.below(2) == 0) {
        result[dim] = n_results;
        n_results *= extents[dim];
    }
    let combine = dice.pick(&[Combine::Sum, Combine::Max]);
    let reduction = Reduction { map, combine, result: Strides(result) };
    let isa = dice.pick(&Isa::all());
    let mut kernel = ReductionKernel::new(&reduction, isa, 1 + dice.below(3));
    let scalars: Vec<f32> = (0..n_scalars).map(|_| dice.float()).collect();
    let mut inputs: Vec<(Vec<f32>, DType)> =
        kernel.core.n_needed.iter().map(|n| (dice.buffer(*n, DType::F32), DType::F32)).collect();
    let start = match combine {
        Combine::Sum => 0.0,
        Combine::Max => f64::NEG_INFINITY,
    };
    let mut expected = vec![(start, 0.0); n_results];
    let all = values(&reduction.map, &inputs, &scalars);
    for (point, value) in extents.points().iter().zip(all) {
        let (sum, size) = &mut expected[reduction.result.offset(point)];
        *sum = combine.evaluate(*sum, value[0]);
        // The map is off by up to 2e-7, also where its values are small.
        *size += value[0].abs().max(0.1);
    }
    let mut found = vec![f32::NAN; n_results];
    let regions: Vec<Region> = inputs.iter_mut().map(|it| region(&mut it.0, it.1)).collect();
    let to = region(&mut found, DType::F32);
    let mut scratch = vec![f32::NAN; kernel.n_scratch()];
    // SAFETY: the buffers are this test's.
    in_pool(|| unsafe { kernel.run(&mut scratch, &regions, &to, &scalars) }.unwrap());
    for (found, (expected, size)) in found.iter().zip(expected) {
        let error = (f64::from(*found) - expected).abs();
        // Short sums have up to 64 rows, each of which a vector or a few elements are added to in
        // turn: the error is below 1e-5 of the sum of absolute values, plus that of the map.
        assert!(
            error <= 1e-5 * size + 2e-4 || f64::from(*found) == expected,
            "{reduction:?}: {found}, not {expected}"
        );
    }
    kernel.core.shape.group
}

#[test]
fn random_reductions_agree_with_plain_loops() {
    for seed in 0..600 {
        let mut dice = Dice(seed);
        let extents = dice.shape();
        check(&mut dice, extents);
    }
}

#[test]
fn long_reductions_are_shared_and_agree_with_plain_loops() {
    for seed in 0..30 {
        let mut dice = Dice(seed);
        let extents = dice.pick(&[&[100_000][..], &[700, 130], &[3, 40_000], &[2, 300, 200]]);
        check(&mut dice, soybean_plan::Shape::new(extents));
    }
}

/// Sums wrap around, and single precision does not distinguish the maximum from its neighbors.
#[test]
fn integers_are_combined_exactly() {
    use soybean_plan::{Instruction, ScalarProgram, Shape};
    for (seed, extents) in [&[100_000][..], &[700, 130], &[5, 3, 7]].into_iter().enumerate() {
        let (mut dice, extents) = (Dice(seed as u64), Shape::new(extents));
        let n_columns = extents[extents.len() - 1];
        let integers: Vec<i32> = (0..extents.n_elements())
            .map(|_| i32::MAX - i32::try_from(dice.below(1000)).unwrap())
            .collect();
        let mut bits: Vec<f32> =
            integers.iter().map(|it| f32::from_bits(it.cast_unsigned())).collect();
        let instructions = vec![Instruction::Integer(0)].into();
        let program = ScalarProgram { instructions, results: vec![0].into() };
        let map = Map { extents, inputs: vec![extents.dense_strides()].into(), program };
        for (combine, n_results) in
            [Combine::Sum, Combine::Max].into_iter().flat_map(|it| [(it, 1), (it, n_columns)])
        {
            let mut result = [0; MAX_RANK];
            result[extents.len() - 1] = usize::from(n_results > 1);
            let reduction = Reduction { map: map.clone(), combine, result: Strides(result) };
            let mut kernel = ReductionKernel::new(&reduction, Isa::detect(), 3);
            let mut expected = vec![combine.integer_identity(); n_results];
            for (at, integer) in integers.iter().enumerate() {
                let to = &mut expected[at % n_results];
                *to = combine.evaluate_integers(*to, *integer);
            }
            let mut found = vec![f32::NAN; n_results];
            let from = region(&mut bits, DType::I32);
            let to = region(&mut found, DType::I32);
            let mut scratch = vec![f32::NAN; kernel.n_scratch()];
            // SAFETY: the buffers are this test's.
            in_pool(|| unsafe { kernel.run(&mut scratch, &[from], &to, &[]) }.unwrap());
            let found: Vec<i32> = found.iter().map(|it| it.to_bits().cast_signed()).collect();
            assert_eq!(found, expected, "{extents} {combine:?}");
        }
    }
}

#[test]
fn short_rows_in_groups_agree_with_plain_loops() {
    let n_grouped = (0..200).filter(|seed| {
        let mut dice = Dice(*seed);
        let extents = dice.pick(&[&[16, 40, 9][..], &[3, 300, 7], &[2, 3, 50, 36], &[90, 20, 2]]);
        check(&mut dice, soybean_plan::Shape::new(extents)) > 1
    });
    assert!(n_grouped.count() > 20);
}

#[test]
fn nothing_combines_to_the_identity() {
    let program = soybean_plan::ScalarProgram {
        instructions: vec![soybean_plan::Instruction::Input(0)].into(),
        results: vec![0].into(),
    };
    let extents = soybean_plan::Shape::new(&[2, 0]);
    let map = Map { extents, inputs: vec![Strides::new(&[0, 1])].into(), program };
    let reduction = Reduction { map, combine: Combine::Max, result: Strides::new(&[1, 0]) };
    let mut kernel = ReductionKernel::new(&reduction, Isa::detect(), 1);
    let mut found = [0.0; 2];
    let (input, to) = (region(&mut [], DType::F32), region(&mut found, DType::F32));
    // SAFETY: the buffers are this test's.
    unsafe { kernel.run(&mut [], &[input], &to, &[]) }.unwrap();
    assert_eq!(found, [f32::NEG_INFINITY; 2]);
}
