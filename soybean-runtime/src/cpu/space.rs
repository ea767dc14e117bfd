//! Index spaces with as few dims as their operands allow.

use soybean_plan::Strides;

/// An index space that several operands share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// The extents, outermost first; at least one.
    pub(crate) extents: Vec<usize>,
    /// The strides of each operand, one for each dim.
    pub(crate) strides: Vec<Vec<usize>>,
}

impl Space {
    /// Builds a space without dims of extent 1. Neighbors are merged if every operand steps
    /// through both as through one.
    pub(crate) fn new(extents: &[usize], operands: &[Strides]) -> Self {
        let mut this = Self { extents: Vec::new(), strides: vec![Vec::new(); operands.len()] };
        for (dim, extent) in extents.iter().copied().enumerate() {
            let steps = |operand: &Strides| operand.0[dim];
            if extent == 1 {
                continue;
            }
            let joins = |(strides, operand): (&Vec<usize>, &Strides)| {
                strides.last() == Some(&(steps(operand) * extent))
            };
            let is_joined =
                !this.extents.is_empty() && this.strides.iter().zip(operands).all(joins);
            if is_joined {
                *this.extents.last_mut().expect("not empty") *= extent;
            } else {
                this.extents.push(extent);
            }
            for (strides, operand) in this.strides.iter_mut().zip(operands) {
                if is_joined {
                    *strides.last_mut().expect("as long as the extents") = steps(operand);
                } else {
                    strides.push(steps(operand));
                }
            }
        }
        if this.extents.is_empty() {
            this.extents.push(1);
            this.strides.iter_mut().for_each(|it| it.push(0));
        }
        this
    }

    /// Returns the space with its last two dims joined. An operand steps through the joined dim if
    /// it steps through one of them.
    pub(crate) fn with_joined_rows(&self) -> Self {
        let (outer, row) = self.extents.split_at(self.extents.len() - 2);
        let joined = |strides: &Vec<usize>| {
            let (outer, row) = strides.split_at(strides.len() - 2);
            outer.iter().copied().chain([usize::from(row != [0, 0])]).collect()
        };
        Self {
            extents: outer.iter().copied().chain([row.iter().product()]).collect(),
            strides: self.strides.iter().map(joined).collect(),
        }
    }

    /// Returns the number of points.
    pub(crate) fn n_points(&self) -> usize {
        self.extents.iter().product()
    }

    /// Returns the minimum number of elements of the buffer of an operand.
    pub(crate) fn n_needed(&self, operand: usize) -> usize {
        if self.n_points() == 0 {
            return 0;
        }
        let steps = self.extents.iter().zip(&self.strides[operand]);
        steps.map(|(extent, stride)| (extent - 1) * stride).sum::<usize>() + 1
    }
}

/// Returns the offset of the `index`-th point of a space with these extents for an operand with
/// these strides.
pub(crate) fn offset(extents: &[usize], strides: &[usize], mut index: usize) -> usize {
    let mut sum = 0;
    for (extent, stride) in extents.iter().zip(strides).rev() {
        sum += index % extent * stride;
        index /= extent;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbors_are_joined_where_all_operands_allow_it() {
        let strides: Vec<_> = [[12, 4, 1], [0, 0, 1]].iter().map(|it| Strides::new(it)).collect();
        let space = Space::new(&[2, 3, 4], &strides);
        assert_eq!(space.extents, [6, 4]);
        assert_eq!(space.strides, [[4, 1], [0, 1]]);
        assert_eq!(space.n_needed(0), 24);
        assert_eq!(space.n_needed(1), 4);
        let one = Space::new(&[2, 1, 4], &[Strides::new(&[4, 4, 1])]);
        assert_eq!(one.extents, [8]);
        assert_eq!(Space::new(&[], &[Strides::default()]).extents, [1]);
    }
}
