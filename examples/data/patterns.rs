//! Synthetic images for examples without files: stripes, checks, rings and others at random
//! positions, in random colors, with noise.

use std::convert::Infallible;

use soybean::{
    DataOptions, Split,
    data::{Column, Table, Values},
    plan::random::{mixed, next_state},
};

const SIDE: usize = 32;
const N_PIXELS: usize = SIDE * SIDE;
const N_CLASSES: usize = 10;
const N_IMAGES: usize = 2560;

/// The amplitude of the noise; that of the pattern is 1.
const NOISE: f64 = 0.8;

/// Returns true if a pattern covers the pixel at this distance from its center.
type Pattern = fn(f64, f64) -> bool;

const PATTERNS: [Pattern; N_CLASSES] = [
    |x, _| x.rem_euclid(6.0) < 3.0,
    |_, y| y.rem_euclid(6.0) < 3.0,
    |x, y| (x + y).rem_euclid(6.0) < 3.0,
    |x, y| (x - y).rem_euclid(6.0) < 3.0,
    |x, y| (x.rem_euclid(8.0) < 4.0) == (y.rem_euclid(8.0) < 4.0),
    |x, y| x.hypot(y).rem_euclid(6.0) < 3.0,
    |x, y| x.abs() + y.abs() < 7.0,
    |x, y| x.abs().min(y.abs()) < 2.0,
    |x, y| x.hypot(y) < 6.0,
    |x, y| (4.0..8.0).contains(&x.abs().max(y.abs())),
];

/// Returns images `[3, 32, 32]` with their classes, a fifth of them held out.
pub(crate) fn load(options: &DataOptions) -> Result<Split, Infallible> {
    let mut random = Random(options.seed);
    let (mut pixels, mut labels) = (Vec::with_capacity(N_IMAGES * 3 * N_PIXELS), Vec::new());
    for image in 0..N_IMAGES {
        let class = image % N_CLASSES;
        let center = [0, 1].map(|_| 8.0 + 16.0 * random.unit());
        for _ in 0..3 {
            let strength = 0.4 + 0.6 * random.unit();
            for at in 0..N_PIXELS {
                let (x, y) = ((at % SIDE) as f64 - center[0], (at / SIDE) as f64 - center[1]);
                let is_near = x.abs().max(y.abs()) < 12.0;
                let signal = if is_near && PATTERNS[class](x, y) { strength } else { 0.0 };
                let noise = NOISE * (2.0 * random.unit() - 1.0);
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "pixels are in single precision"
                )]
                pixels.push((signal + noise) as f32);
            }
        }
        labels.push(i32::try_from(class).expect("there are ten classes"));
    }
    let row = vec![3, SIDE, SIDE];
    let images = Column { name: "images".to_owned(), row, values: Values::F32(pixels) };
    let labels = Column { name: "label".to_owned(), row: vec![], values: Values::I32(labels) };
    let table = Table::new(vec![images, labels]).expect("as many labels as images");
    Ok(Split::holding_out(0.2, table, options.seed))
}

/// A random number generator.
struct Random(u64);

impl Random {
    /// Returns a number uniform in `0..1`.
    fn unit(&mut self) -> f64 {
        let word = mixed(self.0);
        self.0 = next_state(self.0);
        (word >> 11) as f64 / (1_u64 << 53) as f64
    }
}
