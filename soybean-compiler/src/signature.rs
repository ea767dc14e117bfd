//! Signatures: what an operator does to the dims of its operands, in index notation.
//!
//! A *factor* is an index of the operator's loops: matmul has `i`, `j`, `k` and the signature
//! `ik,kj->ij`. The signature alone determines the shape of the result, the work and the legal
//! splits. It also determines partial results: they arise along a factor that the result lacks.

use std::fmt;

use soybean_plan::{
    AxisSet, Combine, Halo, Mesh, Place, Placement, Shape, Tiling, carries_split,
    splits_into_blocks,
};

/// The number of a factor in [`Signature::factors`].
pub type FactorId = u8;

/// In a [`Partitioning`], the index of the terms of a sum, which is no factor: along the axis, each
/// rank reads and gives terms that are still to be added up. The operands in the first set of
/// [`Signature::linear`] are terms; the other operands are replicated. Lower indices are for
/// further sets ([`terms`]).
pub const TERMS: FactorId = FactorId::MAX;

/// The most sets of [`Signature::linear`]. Operators have far fewer factors than there are indices
/// below these.
const MAX_LINEAR_SETS: usize = 16;

/// Returns the index of the terms of this set of [`Signature::linear`].
#[must_use]
pub fn terms(set: usize) -> FactorId {
    debug_assert!(set < MAX_LINEAR_SETS, "operators have few sets");
    TERMS - factor_id(set)
}

/// Returns the set of [`Signature::linear`] whose terms have this index; `None` for a factor.
#[must_use]
pub fn set_of_terms(factor: FactorId) -> Option<usize> {
    Some(usize::from(TERMS - factor)).filter(|it| *it < MAX_LINEAR_SETS)
}

/// An operator's signature, bound to the shapes of its operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The extents of the factors.
    pub factors: Vec<usize>,
    /// The dims of each operand.
    pub operands: Vec<Vec<Dim>>,
    /// The dims of the result.
    pub result: Vec<Dim>,
    /// The combination of partial results if a reduced factor is split.
    pub combine: Combine,
    /// The placement of operands and result along an axis that splits no factor: replicated, or
    /// partial if ranks add up their own parts.
    pub idle: Placement,
    /// Sets of operands, each in increasing order, in which the operator is linear:
    /// `f(x + y) = f(x) + f(y)` for all operands of the set together, whatever the others are. From
    /// partial sums of a set, it computes partial sums.
    pub linear: Vec<Vec<usize>>,
}

/// One dim of an operand or result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim {
    /// Its extent.
    pub extent: usize,
    /// The factor that is a part of it; `None` if the dim cannot be split. The factor's extent
    /// divides the dim's.
    pub factor: Option<FactorId>,
    /// The place of the factor. It matters if the factor is shorter than the dim.
    pub place: Place,
    /// For a dim along which windows move, the elements before and after its own part that a rank
    /// reads, too, where the factor is split. A kernel computes as many more elements of a result;
    /// they are dropped. `None` for all other dims.
    pub halo: Option<[usize; 2]>,
}

impl Dim {
    /// Returns a dim whose outermost part is a factor, or which cannot be split.
    #[must_use]
    pub const fn new(extent: usize, factor: Option<FactorId>) -> Self {
        Self { extent, factor, place: Place::Outermost, halo: None }
    }

    /// Returns a dim of equal parts one after another, of which each is the factor.
    #[must_use]
    pub const fn of_parts(extent: usize, factor: FactorId) -> Self {
        Self { extent, factor: Some(factor), place: Place::Innermost, halo: None }
    }

    /// Returns whether parts of the dim must be blocks, because they have neighbors.
    #[must_use]
    pub fn has_halo(&self) -> bool {
        self.factor.is_some() && self.halo.is_some_and(|it| it != [0; 2])
    }
}

impl Signature {
    /// Returns the signature in which every dim is one factor: `operands` and `result` list the
    /// factor of each dim.
    ///
    /// # Panics
    /// If a factor is not below the length of `factors`.
    #[must_use]
    pub fn plain(
        factors: Vec<usize>,
        operands: &[Vec<FactorId>],
        result: &[FactorId],
        combine: Combine,
    ) -> Self {
        let dims = |ids: &[FactorId]| -> Vec<Dim> {
            ids.iter().map(|&id| Dim::new(factors[id as usize], Some(id))).collect()
        };
        let operands = operands.iter().map(|ids| dims(ids)).collect();
        let result = dims(result);
        Self::new(factors, operands, result, combine)
    }

    /// Returns the signature in which tensors are replicated along the axes that split no factor.
    #[must_use]
    pub fn new(
        factors: Vec<usize>,
        operands: Vec<Vec<Dim>>,
        result: Vec<Dim>,
        combine: Combine,
    ) -> Self {
        let (idle, linear) = (Placement::Replicated, Vec::new());
        Self { factors, operands, result, combine, idle, linear }
    }

    /// Returns the signature of an operator that is linear in all its operands together.
    #[must_use]
    pub fn additive(self) -> Self {
        let all = (0..self.operands.len()).collect();
        self.linear_in(vec![all])
    }

    /// Returns the signature of an operator that is linear in each of these sets of operands.
    #[must_use]
    pub fn linear_in(self, mut linear: Vec<Vec<usize>>) -> Self {
        linear.truncate(MAX_LINEAR_SETS);
        Self { linear, ..self }
    }

    /// Returns whether every rank computes all of the result. Such a result is best stored so, and
    /// read in any tiling at no cost.
    pub(crate) fn is_known_everywhere(&self) -> bool {
        self.factors.is_empty() && self.idle == Placement::Replicated
    }

    /// Returns the text of an entry of a partitioning: the letter of a factor, or `-` for none. The
    /// terms of sums are `+`, with the numbers of the operands that are terms if others are not:
    /// `+0,2`.
    pub(crate) fn entry(&self, factor: Option<FactorId>) -> String {
        let Some(factor) = factor else { return "-".to_owned() };
        let Some(set) = set_of_terms(factor) else { return letter(factor).to_string() };
        let set = &self.linear[set];
        let numbers: Vec<String> = set.iter().map(ToString::to_string).collect();
        let is_all = set.len() == self.operands.len();
        if is_all { "+".to_owned() } else { format!("+{}", numbers.join(",")) }
    }

    /// Returns the shape of the result.
    #[must_use]
    pub fn result_shape(&self) -> Shape {
        self.result.iter().map(|dim| dim.extent).collect()
    }

    /// Returns whether the result lacks this factor, so that splitting it leaves partial results.
    #[must_use]
    pub fn is_reduced(&self, factor: FactorId) -> bool {
        self.result.iter().all(|dim| dim.factor != Some(factor))
    }

    /// Returns whether a dim consists of several parts, of which each is a factor.
    pub(crate) fn has_parts(&self, dim: &Dim) -> bool {
        let is_shorter = |it: FactorId| self.factors[usize::from(it)] < dim.extent;
        dim.place == Place::Innermost && dim.factor.is_some_and(is_shorter)
    }

    /// Returns the number of points of the operator's loops, or the largest number if it overflows.
    #[must_use]
    pub fn n_points(&self) -> u64 {
        self.factors.iter().fold(1, |n: u64, &extent| n.saturating_mul(extent as u64))
    }

    /// Returns whether `axes` may together split this factor in all dims that carry it.
    #[must_use]
    pub fn may_split(&self, factor: FactorId, mesh: &Mesh, axes: AxisSet) -> bool {
        let extent = self.factors[factor as usize];
        self.dims_of(factor).all(|dim| {
            carries_split(extent, dim.extent, dim.place, mesh, axes)
                && (!dim.has_halo() || splits_into_blocks(dim.extent, mesh, axes))
        }) && soybean_plan::may_split(extent, mesh, axes)
    }

    /// Returns the dims of operands and result that carry a factor.
    pub(crate) fn dims_of(&self, factor: FactorId) -> impl Iterator<Item = &Dim> {
        let dims = self.operands.iter().chain([&self.result]).flatten();
        dims.filter(move |dim| dim.factor == Some(factor))
    }

    /// Returns the dims of an operand, or of the result for `None`.
    #[must_use]
    pub fn dims(&self, operand: Option<usize>) -> &[Dim] {
        operand.map_or(&self.result, |operand| &self.operands[operand])
    }

    /// Returns the tiling that this partitioning requires of an operand.
    #[must_use]
    pub fn operand_tiling(&self, operand: usize, form: &Partitioning) -> Tiling {
        let is_of_terms = |set: usize| self.linear.get(set).is_some_and(|it| it.contains(&operand));
        self.tiling(&self.operands[operand], form, Placement::Replicated, is_of_terms)
    }

    /// Returns the tiling that this partitioning produces for the result.
    #[must_use]
    pub fn result_tiling(&self, form: &Partitioning) -> Tiling {
        self.tiling(&self.result, form, Placement::Partial, |_| true)
    }

    /// Returns the elements around its own part of an operand that a rank reads, given the tiling
    /// that a partitioning requires. For `None`, the further elements of the result that a kernel
    /// computes, given the tiling that the partitioning produces.
    #[must_use]
    pub fn halo(&self, operand: Option<usize>, tiling: &Tiling) -> Halo {
        let dims = self.dims(operand).iter().enumerate();
        let with_halo = dims.filter(|(at, dim)| dim.has_halo() && !tiling.axes_of(*at).is_empty());
        with_halo.fold(Halo::NONE, |halo, (at, dim)| halo.with(at, dim.halo.unwrap_or_default()))
    }

    /// Returns the elements around its own part of an operand that a rank reads if all dims are
    /// split.
    #[must_use]
    pub(crate) fn widest_halo(&self, operand: usize) -> Halo {
        let with_halo = self.operands[operand].iter().enumerate().filter(|it| it.1.has_halo());
        with_halo.fold(Halo::NONE, |halo, (at, dim)| halo.with(at, dim.halo.unwrap_or_default()))
    }

    /// Returns the tiling of a tensor with these dims. An axis whose factor no dim carries is
    /// placed as `absent`. An axis of terms is one of partial sums if the tensor is of that set.
    fn tiling(
        &self,
        dims: &[Dim],
        form: &Partitioning,
        absent: Placement,
        is_of_terms: impl Fn(usize) -> bool,
    ) -> Tiling {
        let of_factor = |factor: FactorId| match set_of_terms(factor) {
            Some(set) if is_of_terms(set) => Placement::Partial,
            Some(_) => Placement::Replicated,
            None => match dims.iter().position(|dim| dim.factor == Some(factor)) {
                Some(dim) => Placement::Split(factor_id(dim)),
                None => absent,
            },
        };
        let placement = |factor: &Option<FactorId>| factor.map_or(self.idle, of_factor);
        let tiling = Tiling::replicated(form.0.len());
        let place = |tiling: Tiling, axis: usize| tiling.with(axis, placement(&form.0[axis]));
        (0..form.0.len()).fold(tiling, place)
    }
}

/// Returns the number of a factor as an id.
pub(crate) fn factor_id(factor: usize) -> FactorId {
    u8::try_from(factor).expect("an operator has a handful of factors")
}

/// The letters of the factors in the text form.
const LETTERS: &[u8] = b"ijklmnopqrstuvwxyzabcdefgh";

fn letter(factor: FactorId) -> char {
    LETTERS[factor as usize % LETTERS.len()] as char
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |dims: &[Dim]| -> String {
            let halo = |dim: &Dim| match dim.halo {
                Some([before, after]) if dim.has_halo() => format!("{{{before}|{after}}}"),
                Some(_) | None => String::new(),
            };
            let one = |dim: &Dim| match dim.factor {
                None => "_".to_owned(),
                Some(factor) if self.factors[factor as usize] == dim.extent => {
                    format!("{}{}", letter(factor), halo(dim))
                }
                Some(factor) => match dim.place {
                    Place::Outermost => format!("({}_){}", letter(factor), halo(dim)),
                    Place::Innermost => format!("(_{}){}", letter(factor), halo(dim)),
                },
            };
            let sums = if self.idle == Placement::Partial { "+" } else { "" };
            dims.iter().map(one).chain([sums.to_owned()]).collect()
        };
        let operands: Vec<String> = self.operands.iter().map(|dims| text(dims)).collect();
        write!(f, "{}->{}", operands.join(","), text(&self.result))
    }
}

/// The partitioning of an operator: for each axis of the mesh the factor that is split along it.
/// `None` means that the ranks along the axis repeat the work, or hold parts of sums; [`TERMS`]
/// that the operator works on partial sums. Source: GSPMD, Xu et al. 2021; the `Partial` of
/// DTensor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Partitioning(pub Vec<Option<FactorId>>);

impl Partitioning {
    /// Returns the axes along which `factor` is split.
    #[must_use]
    pub fn axes_of(&self, factor: FactorId) -> AxisSet {
        (0..self.0.len()).filter(|&axis| self.0[axis] == Some(factor)).collect()
    }

    /// Returns whether the operator works on partial sums along some axis.
    #[must_use]
    pub fn has_terms(&self) -> bool {
        self.0.iter().flatten().any(|it| set_of_terms(*it).is_some())
    }
}
