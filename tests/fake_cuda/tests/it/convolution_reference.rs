//! The products of convolutions, by plain loops.

/// Extents of images, filters and results, and the parameters of the convolution.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) images: [i64; 4],
    pub(crate) filters: [i64; 4],
    pub(crate) padding: i64,
    pub(crate) stride: i64,
    pub(crate) dilation: i64,
    pub(crate) groups: i64,
}

pub(crate) const CASES: [Case; 4] = [
    Case {
        images: [2, 3, 6, 5],
        filters: [4, 3, 3, 3],
        padding: 1,
        stride: 1,
        dilation: 1,
        groups: 1,
    },
    Case {
        images: [1, 2, 7, 7],
        filters: [3, 2, 3, 2],
        padding: 0,
        stride: 2,
        dilation: 1,
        groups: 1,
    },
    Case {
        images: [2, 4, 8, 6],
        filters: [6, 2, 3, 3],
        padding: 2,
        stride: 1,
        dilation: 2,
        groups: 2,
    },
    Case {
        images: [1, 3, 5, 4],
        filters: [3, 1, 1, 1],
        padding: 1,
        stride: 3,
        dilation: 1,
        groups: 3,
    },
];

/// A convolution of one pixel.
pub(crate) const PIXEL: Case = Case {
    images: [1, 2, 1, 1],
    filters: [1, 2, 1, 1],
    padding: 0,
    stride: 1,
    dilation: 1,
    groups: 1,
};

impl Case {
    pub(crate) fn results(&self) -> [i64; 4] {
        let extent = |axis: usize| {
            let reach = self.dilation * (self.filters[axis] - 1) + 1;
            (self.images[axis] + 2 * self.padding - reach) / self.stride + 1
        };
        [self.images[0], self.filters[0], extent(2), extent(3)]
    }

    /// Calls `visit` with the offsets of the elements of image, filter and result of each product.
    pub(crate) fn for_each_product(&self, mut visit: impl FnMut(usize, usize, usize)) {
        let results = self.results();
        let place = |extents: [i64; 4], at: [i64; 4]| {
            extents.iter().zip(at).fold(0, |sum, (extent, at)| sum * extent + at) as usize
        };
        for y in 0..results.iter().product() {
            let [n, k] = [
                y / (results[1] * results[2] * results[3]),
                y / (results[2] * results[3]) % results[1],
            ];
            let [p, q] = [y / results[3] % results[2], y % results[3]];
            for w in 0..self.filters[1..].iter().product() {
                let [c, r, s] = [
                    w / (self.filters[2] * self.filters[3]),
                    w / self.filters[3] % self.filters[2],
                    w % self.filters[3],
                ];
                let channel = k / (self.filters[0] / self.groups) * self.filters[1] + c;
                let row = p * self.stride + r * self.dilation - self.padding;
                let column = q * self.stride + s * self.dilation - self.padding;
                if (0..self.images[2]).contains(&row) && (0..self.images[3]).contains(&column) {
                    visit(
                        place(self.images, [n, channel, row, column]),
                        place(self.filters, [k, c, r, s]),
                        y as usize,
                    );
                }
            }
        }
    }
}

pub(crate) fn numbers(count: i64, seed: i64) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + seed * 11) % 17 - 8) as f32 / 8.0).collect()
}

/// Selects the tensor that is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    BackwardData,
    BackwardFilter,
}

/// Directions with the place of the computed tensor among images, filters and results.
pub(crate) const DIRECTIONS: [(Direction, usize); 3] =
    [(Direction::Forward, 2), (Direction::BackwardData, 0), (Direction::BackwardFilter, 1)];

/// The order of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    ChannelsFirst,
    ChannelsLast,
}

pub(crate) fn count(extents: [i64; 4]) -> i64 {
    extents.iter().product()
}

/// Returns the NCHW offset of the element at an NHWC offset.
pub(crate) fn channels_first(extents: [i64; 4], place: usize) -> usize {
    let [_, c, h, w] = extents.map(|extent| extent as usize);
    let [n, y, x, channel] = [place / (h * w * c), place / (w * c) % h, place / c % w, place % c];
    ((n * c + channel) * h + y) * w + x
}

/// Returns the values of images, filters and results of a case.
pub(crate) fn values(case: &Case) -> [Vec<f32>; 3] {
    [(1, case.images), (2, case.filters), (3, case.results())]
        .map(|(seed, extents)| numbers(count(extents), seed))
}

/// Returns the computed tensor of a case.
pub(crate) fn expected(case: &Case, computed: usize) -> Vec<f32> {
    let values = values(case);
    let mut sums = vec![0.0; values[computed].len()];
    case.for_each_product(|x, w, y| match computed {
        0 => sums[x] += values[1][w] * values[2][y],
        1 => sums[w] += values[0][x] * values[2][y],
        _ => sums[y] += values[0][x] * values[1][w],
    });
    sums
}

pub(crate) fn compare(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        let limit = tolerance * expected.abs().max(1.0);
        let is_close = (found - expected).abs() <= limit;
        assert!(is_close, "{what}, element {place} is {found}, not {expected}");
    }
}
