//! Arguments that name dims: one, several, or all.

use std::ops::RangeFull;

/// The index of a dim; negative numbers count from the last.
pub trait Dim: Copy {
    /// Returns the index from the first dim of a tensor of `rank` dims.
    ///
    /// # Panics
    /// If there is no such dim; the message names `operator`.
    fn index(self, operator: &str, rank: usize) -> usize;
}

macro_rules! impl_dim {
    ($($integer:ty),*) => {
        $(impl Dim for $integer {
            fn index(self, operator: &str, rank: usize) -> usize {
                i64::try_from(self).ok().and_then(|dim| from_either_end(dim, rank)).unwrap_or_else(|| {
                    panic!("`{operator}`: no dim {self} in a tensor of {rank} dims")
                })
            }
        })*
    };
}

impl_dim!(i32, i64, usize);

/// A position along a dim; negative numbers count from its end.
pub trait Position: Copy {
    /// Returns the position from the first element of a dim of `extent` elements.
    ///
    /// # Panics
    /// If a negative number is below `-extent`; the message names `operator`.
    fn position(self, operator: &str, extent: usize) -> usize;
}

macro_rules! impl_position {
    ($($integer:ty),*) => {
        $(impl Position for $integer {
            fn position(self, operator: &str, extent: usize) -> usize {
                let from_end = |it: i64| it.checked_add(i64::try_from(extent).ok()?);
                let given = i64::try_from(self).ok();
                let counted = given.and_then(|it| if it < 0 { from_end(it) } else { Some(it) });
                counted.and_then(|it| usize::try_from(it).ok()).unwrap_or_else(|| {
                    panic!("`{operator}`: no position {self} in a dim of {extent} elements")
                })
            }
        })*
    };
}

impl_position!(i32, i64, usize);

/// An extent of a shape; -1 stands for what the other extents leave.
pub trait Extent: Copy {
    /// Returns the extent, or `None` for -1.
    ///
    /// # Panics
    /// If the number is another negative one; the message names `operator`.
    fn given(self, operator: &str) -> Option<usize>;
}

macro_rules! impl_extent {
    ($($integer:ty),*) => {
        $(impl Extent for $integer {
            fn given(self, operator: &str) -> Option<usize> {
                let is_open = i64::try_from(self) == Ok(-1);
                (!is_open).then(|| usize::try_from(self).unwrap_or_else(|_| {
                    panic!("`{operator}`: an extent is positive or -1, found {self}")
                }))
            }
        })*
    };
}

impl_extent!(i32, i64, usize);

/// The extents of a shape: an array of numbers of one type, or a tuple, in which -1 may stand
/// beside constants of type `usize`.
pub trait Extents {
    /// Returns the extents, with `None` for -1.
    ///
    /// # Panics
    /// If a number is another negative one; the message names `operator`.
    fn given(self, operator: &str) -> Vec<Option<usize>>;
}

impl<E: Extent, const R: usize> Extents for [E; R] {
    fn given(self, operator: &str) -> Vec<Option<usize>> {
        self.as_slice().given(operator)
    }
}

impl<E: Extent> Extents for &[E] {
    fn given(self, operator: &str) -> Vec<Option<usize>> {
        self.iter().map(|it| it.given(operator)).collect()
    }
}

macro_rules! impl_extents {
    ($($name:ident)*) => {
        impl<$($name: Extent),*> Extents for ($($name,)*) {
            #[expect(non_snake_case, reason = "a name for each type")]
            fn given(self, operator: &str) -> Vec<Option<usize>> {
                let ($($name,)*) = self;
                vec![$($name.given(operator)),*]
            }
        }
    };
}

impl_extents!(A);
impl_extents!(A B);
impl_extents!(A B C);
impl_extents!(A B C D);
impl_extents!(A B C D E);
impl_extents!(A B C D E F);
impl_extents!(A B C D E F G);
impl_extents!(A B C D E F G H);

fn from_either_end(dim: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let counted = if dim < 0 { dim + rank } else { dim };
    usize::try_from(counted).ok().filter(|_| counted < rank)
}

/// The dims of a reduction, which drops them: `..` for all, one number, or an array of numbers.
pub trait Dims {
    /// Returns for each of `rank` dims whether it is included.
    ///
    /// # Panics
    /// If a dim does not exist or is named twice, or if a list of dims is empty; the message names
    /// `operator`.
    fn mask(self, operator: &str, rank: usize) -> Vec<bool>;
}

impl Dims for RangeFull {
    fn mask(self, _operator: &str, rank: usize) -> Vec<bool> {
        vec![true; rank]
    }
}

impl<D: Dim> Dims for D {
    fn mask(self, operator: &str, rank: usize) -> Vec<bool> {
        [self].mask(operator, rank)
    }
}

impl<D: Dim, const N: usize> Dims for [D; N] {
    fn mask(self, operator: &str, rank: usize) -> Vec<bool> {
        self.as_slice().mask(operator, rank)
    }
}

impl<D: Dim> Dims for &[D] {
    fn mask(self, operator: &str, rank: usize) -> Vec<bool> {
        assert!(!self.is_empty(), "`{operator}`: no dim to reduce is given; `..` reduces all dims");
        let mut mask = vec![false; rank];
        for dim in self {
            let index = dim.index(operator, rank);
            assert!(!mask[index], "`{operator}`: dim {index} is named twice");
            mask[index] = true;
        }
        mask
    }
}
