//! Windows along one dim of images, and the halos that ranks need where the dim is split.
//!
//! Result `j` of `r` reads the pixels `j s - p ..  j s - p + k` of `n`: stride `s`, padding `p`,
//! reach `k`. If `n = r s`, a rank that computes a part of the results has the pixels of that part,
//! and needs some around it.

use std::fmt;

use soybean_plan::{ImageLayout, Shape};

use crate::signature::{Dim, FactorId};

/// The windows along one dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    /// The number of pixels.
    pub(crate) image: usize,
    /// The number of results.
    pub(crate) result: usize,
    /// The number of pixels from the first to the last of a window.
    pub(crate) reach: usize,
    /// The distance of neighboring windows.
    pub(crate) stride: usize,
    /// The pixels outside the image that the first window may reach.
    pub(crate) padding: usize,
}

impl Windows {
    /// Returns whether the dim can be split: equal parts of the results belong to equal parts of
    /// the image.
    ///
    /// It follows that `2 p < k <= 2 p + s`: the first window reaches into the image, and at most
    /// `p` pixels after a part are read.
    pub(crate) const fn are_splittable(&self) -> bool {
        self.image == self.result * self.stride && self.result > 1
    }

    /// Returns the pixels that the windows of a part read before and after its own pixels.
    pub(crate) fn of_image(&self) -> [usize; 2] {
        [self.padding, self.reach.saturating_sub(self.stride + self.padding)]
    }

    /// Returns the results before and after its own ones whose windows reach pixels of a part.
    ///
    /// Pixel `i` is in window `j` for `i - (k - 1) <= j s - p <= i`. The first pixel of part `b` is
    /// `b s` times the results of a part, and the last one is just before the next part.
    pub(crate) const fn of_results(&self) -> [usize; 2] {
        let after = if self.padding == 0 { 0 } else { (self.padding - 1) / self.stride + 1 };
        [(self.reach - 1 - self.padding) / self.stride, after]
    }

    /// Returns the pixels before and after a part that are in a window with one of its pixels.
    pub(crate) fn of_whole_windows(&self) -> [usize; 2] {
        let [before, after] = self.of_results();
        let reached = after * self.stride + self.reach;
        [before * self.stride + self.padding, reached.saturating_sub(self.stride + self.padding)]
    }

    /// Returns the padding of windows whose first one is that many results before the part's.
    pub(crate) const fn padding_with(&self, n_before: usize) -> usize {
        self.padding + n_before * self.stride
    }
}

/// Returns the factor of each dim that can be split, numbered from `first` on.
pub(crate) fn factors_of(windows: &[Windows; 2], first: FactorId) -> [Option<FactorId>; 2] {
    let [rows, columns] = windows.map(|it| it.are_splittable());
    let of_rows = rows.then_some(first);
    [of_rows, columns.then_some(first + FactorId::from(rows))]
}

/// Returns the dim of these windows with this extent and factor, and with a halo if it has a
/// factor.
pub(crate) fn dim(extent: usize, factor: Option<FactorId>, halo: [usize; 2]) -> Dim {
    Dim { halo: factor.map(|_| halo), ..Dim::new(extent, factor) }
}

/// Returns the dims of images in a layout: batch and channels, then rows and columns.
pub(crate) fn in_layout(layout: ImageLayout, [n, c]: [Dim; 2], [h, w]: [Dim; 2]) -> Vec<Dim> {
    match layout {
        ImageLayout::ChannelsFirst => vec![n, c, h, w],
        ImageLayout::ChannelsLast => vec![n, h, w, c],
    }
}

/// Returns a shape in this layout with channels first.
pub(crate) fn channels_first(layout: ImageLayout, shape: Shape) -> Shape {
    Shape::new(&layout.to_channels_first([shape[0], shape[1], shape[2], shape[3]]))
}

/// Writes the layout in the text form of an operator, unless channels come first.
pub(crate) fn write_layout(f: &mut fmt::Formatter<'_>, layout: ImageLayout) -> fmt::Result {
    match layout {
        ImageLayout::ChannelsFirst => Ok(()),
        ImageLayout::ChannelsLast => write!(f, " {}", layout.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all windows that can be split into parts of one or more results.
    fn all() -> impl Iterator<Item = Windows> {
        let sizes = (1..=7).flat_map(|reach| (1..=4).map(move |stride| (reach, stride)));
        let padded = sizes.flat_map(|it| (0..=it.0 / 2).map(move |padding| (it, padding)));
        let all = padded.flat_map(|((reach, stride), padding)| {
            (2..=8).map(move |result| Windows {
                image: result * stride,
                result,
                reach,
                stride,
                padding,
            })
        });
        all.filter(|it| {
            let padded = it.image + 2 * it.padding;
            padded >= it.reach && (padded - it.reach) / it.stride + 1 == it.result
        })
    }

    /// Returns how far a range of needed indices reaches before and after a part.
    fn around(needed: impl Iterator<Item = i64>, part: std::ops::Range<i64>) -> [i64; 2] {
        needed.fold([0, 0], |[before, after], it| {
            [before.max(part.start - it), after.max(it + 1 - part.end)]
        })
    }

    #[test]
    fn halos_are_those_that_all_windows_of_a_part_need() {
        let mut n_checked = 0;
        for windows in all() {
            let number = |it: usize| i64::try_from(it).unwrap();
            let [n, r, k, s, p] =
                [windows.image, windows.result, windows.reach, windows.stride, windows.padding]
                    .map(number);
            let reaches = |j: i64, i: i64| (0..k).contains(&(i + p - j * s));
            for n_parts in (2..=r).filter(|it| r % it == 0) {
                let (rows, pixels) = (r / n_parts, n / n_parts);
                let halo = |it: [usize; 2]| it.map(number);
                let (mut image, mut results, mut whole) = ([0; 2], [0; 2], [0; 2]);
                let max = |one: &mut [i64; 2], other: [i64; 2]| {
                    *one = [one[0].max(other[0]), one[1].max(other[1])];
                };
                // Parts in the middle of a longer image, so that nothing is cut off at its ends.
                let (own_rows, own) = (100 * rows..101 * rows, 100 * pixels..101 * pixels);
                let near = 100 * pixels - 60..101 * pixels + 60;
                let windows_near = 100 * rows - 60..101 * rows + 60;
                let read = near.clone().filter(|&i| own_rows.clone().any(|j| reaches(j, i)));
                max(&mut image, around(read, own.clone()));
                let used: Vec<i64> =
                    windows_near.filter(|&j| own.clone().any(|i| reaches(j, i))).collect();
                max(&mut results, around(used.iter().copied(), own_rows.clone()));
                let seen = near.filter(|&i| used.iter().any(|&j| reaches(j, i)));
                max(&mut whole, around(seen, own.clone()));
                assert_eq!(halo(windows.of_image()), image, "{windows:?}");
                assert_eq!(halo(windows.of_results()), results, "{windows:?}");
                assert_eq!(halo(windows.of_whole_windows()), whole, "{windows:?}");
                n_checked += 1;
            }
        }
        assert!(n_checked > 100, "{n_checked}");
    }
}
