//! Synthetic data for a model's inputs.

use soybean_plan::{
    DType, Input,
    random::{mixed, next_state},
};
use soybean_runtime::data::{Column, Table, Values};

use crate::{Network, Split};

impl Split {
    /// Returns random data for the inputs of the model `N`; equal seeds give equal data.
    ///
    /// Numbers are uniform in `-1..1`. If the model has class labels, each class has one number in
    /// every `f32` input raised by 4, so that it can be learned.
    ///
    /// # Panics
    /// If an input of the model has no dims.
    #[must_use]
    pub fn random<N: Network>(n_train: usize, n_held_out: usize, seed: u64) -> Self {
        let inputs = &N::model().tables().inputs;
        let part = |n_rows, seed| random(inputs, n_rows, &mut Random(seed));
        let seed = seed.wrapping_mul(2);
        Self::new(part(n_train, seed), part(n_held_out, seed + 1))
    }
}

/// Returns random inputs of a model: numbers uniform in `-1..1`, and classes.
pub(super) fn random_inputs(inputs: &[Input], seed: u64) -> Vec<Values> {
    let mut random = Random(seed);
    let of_input = |input: &Input| {
        let n_elements = input.tile.shape.n_elements();
        let n_classes = input.n_classes.unwrap_or(1);
        match input.dtype {
            DType::F32 | DType::Bf16 => {
                Values::F32((0..n_elements).map(|_| 2.0 * random.unit() - 1.0).collect())
            }
            DType::I32 => {
                let classes: Vec<usize> =
                    (0..n_elements).map(|_| random.below(n_classes)).collect();
                Values::I32(labels(&classes, 1))
            }
        }
    };
    inputs.iter().map(of_input).collect()
}

fn random(inputs: &[Input], n_rows: usize, random: &mut Random) -> Table {
    let n_classes = inputs.iter().find_map(|input| input.n_classes).unwrap_or(1);
    let classes: Vec<usize> = (0..n_rows).map(|_| random.below(n_classes)).collect();
    let column = |input: &Input| {
        let row = input.tile.shape[1..].to_vec();
        let width = row.iter().product();
        let values = match input.dtype {
            DType::F32 | DType::Bf16 => Values::F32(features(&classes, width, random)),
            DType::I32 => Values::I32(labels(&classes, width)),
        };
        Column { name: input.name.clone().into_owned(), row, values }
    };
    Table::new(inputs.iter().map(column).collect()).expect("every column has a row for each class")
}

fn features(classes: &[usize], width: usize, random: &mut Random) -> Vec<f32> {
    let mut features = Vec::with_capacity(classes.len() * width);
    for class in classes {
        let start = features.len();
        features.extend((0..width).map(|_| 2.0 * random.unit() - 1.0));
        if width > 0 {
            features[start + class % width] += 4.0;
        }
    }
    features
}

fn labels(classes: &[usize], width: usize) -> Vec<i32> {
    let label = |class: &usize| i32::try_from(*class).expect("classes are numbered by i32 labels");
    classes.iter().flat_map(|class| std::iter::repeat_n(label(class), width)).collect()
}

/// A random number generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        let word = mixed(self.0);
        self.0 = next_state(self.0);
        word
    }

    /// Returns a number uniform in `0..1`, exact in single precision.
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / 16_777_216.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }
}
