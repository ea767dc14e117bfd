//! Random kernels and operands for tests, and reference values in double precision.

use soybean_plan::{
    Binary, DType, Instruction, Map, ScalarProgram, Shape, Strides, Unary, bf16, random::mixed,
};

use super::region::Region;

/// A generator of pseudorandom numbers for tests, the same in every run.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// Returns a number in `0..n`.
    #[expect(clippy::cast_possible_truncation, reason = "below a `usize`")]
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = mixed(self.0);
        (self.0 % n as u64) as usize
    }

    /// Returns one of the choices.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Returns a number between -2 and 2.
    pub(crate) fn float(&mut self) -> f32 {
        self.below(4001) as f32 / 1000.0 - 2.0
    }

    /// Returns a shape of at most 4 dims with small and larger extents.
    pub(crate) fn shape(&mut self) -> Shape {
        let n_dims = self.below(5);
        (0..n_dims)
            .map(|_| self.pick(&[1, 1, 2, 3, 5, 17, 100, 130]))
            .scan(1, |product, extent| {
                let extent = if *product * extent > 40_000 { 1 } else { extent };
                *product *= extent;
                Some(extent)
            })
            .collect()
    }

    /// Returns strides of an operand over this shape: dense, permuted, spread out, or with
    /// broadcast dims.
    pub(crate) fn strides(&mut self, shape: &Shape) -> Strides {
        if self.below(3) == 0 {
            return shape.dense_strides();
        }
        let mut order: Vec<usize> = (0..shape.len()).rev().collect();
        if self.below(2) == 0 && shape.len() > 1 {
            let (a, b) = (self.below(shape.len()), self.below(shape.len()));
            order.swap(a, b);
        }
        let mut strides = [0; soybean_plan::MAX_RANK];
        let mut step = self.pick(&[1, 1, 1, 2]);
        for dim in order {
            if self.below(3) > 0 {
                strides[dim] = step;
                step *= shape[dim];
            }
        }
        Strides(strides)
    }

    /// Returns a program with these inputs and results whose values stay moderate.
    pub(crate) fn program(
        &mut self,
        n_inputs: usize,
        n_scalars: usize,
        n_results: usize,
    ) -> ScalarProgram {
        let mut instructions: Vec<Instruction> =
            (0..n_inputs).map(|it| Instruction::Input(u8::try_from(it).unwrap())).collect();
        instructions
            .extend((0..n_scalars).map(|it| Instruction::Scalar(u8::try_from(it).unwrap())));
        instructions.push(Instruction::Constant(0.75));
        for _ in 0..self.below(9) + n_results {
            let n = instructions.len();
            let mut register = || u16::try_from(self.below(n)).unwrap();
            let (a, b, c) = (register(), register(), register());
            let bounded = [
                Unary::Negate,
                Unary::Relu,
                Unary::Tanh,
                Unary::Sigmoid,
                Unary::Erf,
                Unary::Detach,
            ];
            let binary =
                [Binary::Add, Binary::Add, Binary::Subtract, Binary::Multiply, Binary::Maximum];
            instructions.push(match self.below(5) {
                0 => Instruction::Unary(self.pick(&bounded), a),
                1 => Instruction::Select(a, b, c),
                _ => Instruction::Binary(self.pick(&binary), a, b),
            });
        }
        let n = instructions.len();
        let mut results: Vec<u16> =
            (0..n_results).map(|_| u16::try_from(self.below(n)).unwrap()).collect();
        results[0] = u16::try_from(n - 1).unwrap();
        ScalarProgram { instructions: instructions.into(), results: results.into() }
    }

    /// Returns elements for an operand of this type; elements of 2 bytes fill the first half of the
    /// vector.
    pub(crate) fn buffer(&mut self, n_elements: usize, dtype: DType) -> Vec<f32> {
        if dtype == DType::Bf16 {
            let halves: Vec<u16> = (0..n_elements).map(|_| bf16::from_f32(self.float())).collect();
            let word = |pair: &[u16]| {
                let high = pair.get(1).copied().unwrap_or_default();
                f32::from_bits(u32::from(pair[0]) | u32::from(high) << 16)
            };
            let mut words: Vec<f32> = halves.chunks(2).map(word).collect();
            words.resize(n_elements, 0.0);
            return words;
        }
        let mut element = || match dtype {
            DType::F32 | DType::Bf16 => self.float(),
            DType::I32 => f32::from_bits(u32::try_from(self.below(3)).unwrap()),
        };
        (0..n_elements).map(|_| element()).collect()
    }
}

/// Returns the elements of a vector as the region of a kernel.
pub(crate) fn region(buffer: &mut [f32], dtype: DType) -> Region {
    Region { pointer: buffer.as_mut_ptr(), n_elements: buffer.len(), dtype }
}

/// Runs inside a pool of three threads, as ranks do.
pub(crate) fn in_pool(run: impl FnOnce() + Send) {
    rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap().install(run);
}

/// Returns the results of a map at each point.
pub(crate) fn values(map: &Map, inputs: &[(Vec<f32>, DType)], scalars: &[f32]) -> Vec<Vec<f64>> {
    let inputs: Vec<Vec<f64>> = inputs.iter().map(|(it, dtype)| decoded(it, *dtype)).collect();
    let inputs: Vec<&[f64]> = inputs.iter().map(|it| &it[..]).collect();
    let scalars: Vec<f64> = scalars.iter().copied().map(f64::from).collect();
    map.values(&inputs, &scalars)
}

/// Returns the elements of a vector; elements of 2 bytes fill its first half.
fn decoded(elements: &[f32], dtype: DType) -> Vec<f64> {
    let half = |bits: u32| f64::from(bf16::to_f32(u16::try_from(bits).unwrap()));
    match dtype {
        DType::F32 => elements.iter().map(|it| f64::from(*it)).collect(),
        DType::I32 => elements.iter().map(|it| f64::from(it.to_bits())).collect(),
        DType::Bf16 => {
            let words = elements.iter().map(|it| it.to_bits());
            words.flat_map(|it| [half(it & 0xffff), half(it >> 16)]).collect()
        }
    }
}
