//! The digits of the indices of a dim, and what the axes of a mesh take of them; see
//! [`Tile`](crate::Tile).

use crate::{AxisSet, MAX_AXES, Mesh};

/// The most digits of an index: one for each axis, and in a balanced dim one for each prime.
const MAX_DIGITS: usize = 2 * MAX_AXES;

/// One digit of an index: `index / place % radix`.
#[derive(Clone, Copy, Default)]
struct Digit {
    radix: usize,
    place: usize,
}

/// The digits of the indices of one dim, and for each axis the combination of digits that must
/// equal the coordinate of a rank.
pub(crate) struct Digits {
    digits: [Digit; MAX_DIGITS],
    pub(crate) n_digits: usize,
    /// `coefficients[axis][digit]`; all zero if the extent does not have the prime of the axis as a
    /// factor.
    coefficients: [[usize; MAX_DIGITS]; MAX_AXES],
}

impl Digits {
    pub(crate) fn of(extent: usize, mesh: &Mesh) -> Self {
        let mut digits = [Digit::default(); MAX_DIGITS];
        let mut coefficients = [[0; MAX_DIGITS]; MAX_AXES];
        let (mut rest, axes) = mesh.axes_of_digits(extent);
        let mut n_digits = 0;
        if mesh.digit_order(extent).is_balanced {
            let mut place = rest * mesh.free_radix();
            for radix in mesh.different_sizes() {
                place /= radix;
                digits[n_digits] = Digit { radix, place };
                n_digits += 1;
            }
        }
        let n_free = n_digits;
        let mut without_digit = Vec::new();
        for axis in axes {
            let radix = mesh.size(axis);
            if rest == 0 || !rest.is_multiple_of(radix) {
                without_digit.push(axis);
                continue;
            }
            rest /= radix;
            digits[n_digits] = Digit { radix, place: rest };
            coefficients[axis][n_digits] = 1;
            for free in (0..n_free).filter(|it| digits[*it].radix == radix) {
                coefficients[axis][free] = 1;
            }
            n_digits += 1;
        }
        let mut this = Self { digits, n_digits, coefficients };
        for (at, &axis) in without_digit.iter().enumerate() {
            let size = mesh.size(axis);
            let nth = without_digit[..at].iter().filter(|&&it| mesh.size(it) == size).count();
            this.coefficients[axis] = this.sum_of_digits(size, nth);
        }
        this
    }

    /// Returns the coefficients of the `nth` axis of this size that has no digit of its own: a
    /// weighted sum of all digits of the radix, with weights for which few sums are dependent. The
    /// weights are powers of `nth + 1`. For radix 2 there are no such powers; there whole digits
    /// are left out in the pattern of a Walsh function.
    fn sum_of_digits(&self, radix: usize, nth: usize) -> [usize; MAX_DIGITS] {
        let mut coefficients = [0; MAX_DIGITS];
        let of_radix = (0..self.n_digits).filter(|&it| self.digits[it].radix == radix);
        let mut power = 1;
        for (at, digit) in of_radix.enumerate() {
            coefficients[digit] =
                if radix == 2 { 1 - (at & nth).count_ones() as usize % 2 } else { power };
            power = power * (nth + 1) % radix;
        }
        coefficients
    }

    /// Returns the digits that make up the coordinate along `axis`, as (coefficient, place) with
    /// places `scale` times as large.
    pub(crate) fn terms(&self, axis: usize, scale: usize) -> Vec<(usize, usize)> {
        let term =
            |digit: usize| (self.coefficients[axis][digit], self.digits[digit].place * scale);
        (0..self.n_digits).map(term).filter(|&(coefficient, _)| coefficient != 0).collect()
    }

    /// Returns true if only the first `n` digits make up the coordinate along `axis`.
    pub(crate) fn depends_on_first(&self, axis: usize, n: usize) -> bool {
        self.coefficients[axis][n..].iter().all(|it| *it == 0)
    }

    /// Returns the least place of the digits that make up the coordinate along `axis`.
    pub(crate) fn least_place(&self, axis: usize) -> usize {
        let digits = self.digits[..self.n_digits].iter().zip(&self.coefficients[axis]);
        digits.filter(|it| *it.1 != 0).map(|it| it.0.place).min().unwrap_or(usize::MAX)
    }

    /// Returns the coordinate along `axis` of the ranks that hold `index`.
    pub(crate) fn coordinate(&self, axis: usize, index: usize) -> usize {
        let mut sum = 0;
        let mut radix = 1;
        for (digit, coefficient) in
            self.digits[..self.n_digits].iter().zip(&self.coefficients[axis])
        {
            if *coefficient != 0 {
                radix = digit.radix;
                sum += coefficient * (index / digit.place % digit.radix);
            }
        }
        sum % radix
    }

    /// Returns true if the combinations of these axes are linearly independent, by Gaussian
    /// elimination over each prime field.
    pub(crate) fn are_independent(&self, axes: AxisSet) -> bool {
        let mut rows: Vec<[usize; MAX_DIGITS]> = Vec::new();
        axes.iter().all(|axis| {
            let mut row = self.coefficients[axis];
            for basis in &rows {
                let lead = leading(basis).expect("rows of the basis are not zero");
                let radix = self.digits[lead].radix;
                let factor = row[lead];
                for (entry, base) in row.iter_mut().zip(basis) {
                    *entry = (*entry + (radix - factor % radix) * base) % radix.max(1);
                }
            }
            let Some(lead) = leading(&row) else { return false };
            let radix = self.digits[lead].radix;
            let inverse =
                (1..radix).find(|it| it * row[lead] % radix == 1).expect("radices are prime");
            rows.push(row.map(|entry| entry * inverse % radix));
            true
        })
    }
}

fn leading(row: &[usize; MAX_DIGITS]) -> Option<usize> {
    row.iter().position(|&entry| entry != 0)
}
