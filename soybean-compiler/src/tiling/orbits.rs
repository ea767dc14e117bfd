//! Lower bounds on conversion costs between orbits of tilings.
//!
//! The orbit of a tiling contains all tilings that differ from it by a permutation of symmetric
//! axes: only the number of axes with each placement matters. For symmetry in integer programs, see
//! Margot 2010.
//!
//! In the cheapest conversion between two orbits, as many axes as possible keep their split. Of the
//! others, some are exchanged or scattered between dims, some are gathered while others are sliced,
//! and some become partial. All these ways are tried on a tensor whose dims any axes can split.
//! Dims with fewer legal splits only have fewer ways.

use std::{cell::RefCell, sync::Arc};

use soybean_plan::{AxisSet, MAX_RANK, Mesh, Placement, Tiling};

use super::{
    conversion::Splits,
    cost_model::{ConversionCost, CostModel},
    tiling_space::LegalSplits,
};

/// The symmetry classes of axes, and the costs found so far.
#[derive(Debug)]
pub(super) struct OrbitCosts {
    classes: Vec<AxisSet>,
    /// The bits of a number of axes of each class.
    n_bits: Vec<u32>,
    unlimited: LegalSplits,
    /// Costs by key, in [`N_BUCKETS`] lists by the remainder of the key. Without optimization,
    /// these are much faster than a map.
    known: RefCell<Vec<Vec<(u128, ConversionCost)>>>,
    cost_model: Arc<CostModel>,
}

/// The number of axes of each class with each placement: first the splits of each dim. An orbit is
/// all tilings with equal numbers.
pub(super) type PlacementCounts = Vec<[usize; MAX_RANK + 2]>;
/// The positions of the numbers of partial and of replicated axes.
const PARTIAL: usize = MAX_RANK;
const REPLICATED: usize = MAX_RANK + 1;

/// The numbers of axes of a class whose placements change in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct AxisMoves {
    /// Axes that stay split.
    kept: usize,
    /// Axes that were replicated.
    replicated: usize,
    /// Axes that were partial.
    partial: usize,
    /// Axes that are partial after.
    terms: usize,
    /// Axes that split dims which fewer axes split after.
    left: usize,
    /// Axes that split dims which fewer axes split before.
    entered: usize,
}

/// The number of lists of costs, a prime.
const N_BUCKETS: u128 = 1021;

/// The dims of the trial tensor: for splits that stay, splits that leave, and splits that enter.
const KEPT: Placement = Placement::Split(0);
const LEFT: Placement = Placement::Split(1);
const ENTERED: Placement = Placement::Split(2);

impl OrbitCosts {
    pub(super) fn new(mesh: &Mesh, classes: Vec<AxisSet>, cost_model: &Arc<CostModel>) -> Self {
        let unlimited = LegalSplits::unlimited(mesh, 3);
        let known = RefCell::new(vec![Vec::new(); N_BUCKETS as usize]);
        let n_bits = classes.iter().map(|it| u32::BITS - it.0.count_ones().leading_zeros());
        let (n_bits, cost_model) = (n_bits.collect(), Arc::clone(cost_model));
        Self { classes, n_bits, unlimited, known, cost_model }
    }

    /// Returns the representative of a tiling's orbit: in each class, its placements in order.
    pub(super) fn sorted(&self, tiling: &Tiling) -> Tiling {
        let mut sorted = *tiling;
        for class in &self.classes {
            let mut placements: Vec<Placement> = class.iter().map(|axis| tiling.on(axis)).collect();
            placements.sort_unstable();
            for (axis, placement) in class.iter().zip(placements) {
                sorted = sorted.with(axis, placement);
            }
        }
        sorted
    }

    /// Returns the numbers that define the orbit of a tiling.
    pub(super) fn counts(&self, tiling: &Tiling) -> PlacementCounts {
        let of_class = |class: &AxisSet| {
            let mut counts = [0; MAX_RANK + 2];
            for axis in class.iter() {
                let at = match tiling.on(axis) {
                    Placement::Split(dim) => usize::from(dim),
                    Placement::Partial => PARTIAL,
                    Placement::Replicated => REPLICATED,
                };
                counts[at] += 1;
            }
            counts
        };
        self.classes.iter().map(of_class).collect()
    }

    /// Returns the cost of the cheapest conversion between two orbits:
    /// [`LegalSplits::conversion_cost`].
    pub(super) fn least_conversion(
        &self,
        from: &PlacementCounts,
        to: &PlacementCounts,
    ) -> ConversionCost {
        let (mut key, mut class) = (0, 0);
        while class < from.len() {
            key = AxisMoves::new(&from[class], &to[class]).appended(key, self.n_bits[class]);
            class += 1;
        }
        let bucket = (key % N_BUCKETS) as usize;
        if let Some(least) = self.known(bucket, key) {
            return least;
        }
        let moves = from.iter().zip(to).map(|(from, to)| AxisMoves::new(from, to));
        let moves: Vec<AxisMoves> = moves.collect();
        let start = Tiling::replicated(self.unlimited.n_axes());
        let least = self.least_from(&moves, 0, start, start);
        self.known.borrow_mut()[bucket].push((key, least));
        least
    }

    fn known(&self, bucket: usize, key: u128) -> Option<ConversionCost> {
        let known = self.known.borrow();
        let (bucket, mut at) = (&known[bucket][..], 0);
        while at < bucket.len() {
            if bucket[at].0 == key {
                return Some(bucket[at].1);
            }
            at += 1;
        }
        None
    }

    /// Returns the least cost with the axes of the first classes placed.
    fn least_from(
        &self,
        moves: &[AxisMoves],
        class: usize,
        from: Tiling,
        to: Tiling,
    ) -> ConversionCost {
        let Some(of_class) = moves.get(class) else {
            return self.unlimited.conversion_cost(&self.cost_model, from, to);
        };
        let arranged = of_class.arrangements(self.classes[class], from, to);
        let least = arranged.map(|(from, to)| self.least_from(moves, class + 1, from, to));
        let least = least.reduce(|one, other| self.cost_model.least(one, other));
        least.expect("as many axes are placed after as before")
    }
}

impl AxisMoves {
    fn new(before: &[usize; MAX_RANK + 2], after: &[usize; MAX_RANK + 2]) -> Self {
        let mut moves = Self {
            replicated: before[REPLICATED],
            partial: before[PARTIAL],
            terms: after[PARTIAL],
            ..Self::default()
        };
        let mut dim = 0;
        while dim < MAX_RANK {
            if after[dim] < before[dim] {
                moves.kept += after[dim];
                moves.left += before[dim] - after[dim];
            } else {
                moves.kept += before[dim];
                moves.entered += after[dim] - before[dim];
            }
            dim += 1;
        }
        moves
    }

    /// Appends these numbers, each with so many bits, to a key. A class takes at most six bits per
    /// axis, so a key holds all classes of a mesh.
    fn appended(self, key: u128, n_bits: u32) -> u128 {
        let Self { kept, replicated, partial, terms, left, entered } = self;
        let key = key << n_bits | kept as u128;
        let key = key << n_bits | replicated as u128;
        let key = key << n_bits | partial as u128;
        let key = key << n_bits | terms as u128;
        let key = key << n_bits | left as u128;
        key << n_bits | entered as u128
    }

    /// Returns the ways to choose which axes of the class enter dims or become partial: split,
    /// partial or replicated ones.
    fn arrangements(
        self,
        class: AxisSet,
        from: Tiling,
        to: Tiling,
    ) -> impl Iterator<Item = (Tiling, Tiling)> {
        self.ways().map(move |Way { entered, terms }| {
            let before = [LEFT, Placement::Partial, Placement::Replicated];
            let changes = before.into_iter().enumerate().flat_map(|(at, before)| {
                let n_axes = [self.left, self.partial, self.replicated][at];
                let n_others = n_axes - entered[at] - terms[at];
                let after = [ENTERED, Placement::Partial, Placement::Replicated];
                let groups = [entered[at], terms[at], n_others].into_iter().zip(after);
                groups.map(move |(n, after)| (n, before, after))
            });
            let groups = [(self.kept, KEPT, KEPT)].into_iter().chain(changes);
            let placed = groups.flat_map(|(n, from, to)| [(from, to)].repeat(n));
            class.iter().zip(placed).fold((from, to), |(from, to), (axis, (before, after))| {
                (from.with(axis, before), to.with(axis, after))
            })
        })
    }

    /// Returns all ways to choose these axes.
    fn ways(self) -> impl Iterator<Item = Way> {
        let Self { left, partial, replicated, .. } = self;
        let entered = shares(self.entered, [left, partial, replicated]);
        entered.flat_map(move |entered| {
            let others = [left - entered[0], partial - entered[1], replicated - entered[2]];
            shares(self.terms, others).map(move |terms| Way { entered, terms })
        })
    }
}

/// The numbers of axes that enter dims, and of those that become or stay partial: of the axes that
/// left dims, were partial and were replicated.
#[derive(Clone, Copy)]
struct Way {
    entered: [usize; 3],
    terms: [usize; 3],
}

/// Returns all ways to take `n` in all, at most so many of each kind.
fn shares(n: usize, most: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    let firsts = 0..=n.min(most[0]);
    firsts.flat_map(move |first| {
        let seconds = 0..=(n - first).min(most[1]);
        let all = seconds.map(move |second| [first, second, n - first - second]);
        all.filter(move |it| it[2] <= most[2])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_classes_of_a_mesh_count() {
        let mesh = Mesh::new(1 << 8);
        let classes = (0..8).map(|axis| AxisSet::EMPTY.with(axis)).collect();
        let orbits = OrbitCosts::new(&mesh, classes, &Arc::new(CostModel::Bytes));
        let replicated = Tiling::replicated(8);
        let cost =
            |from| orbits.least_conversion(&orbits.counts(&from), &orbits.counts(&replicated));
        assert_eq!(cost(replicated), ConversionCost::NONE);
        for axis in 0..8 {
            let split = replicated.with(axis, Placement::Split(0));
            assert_ne!(cost(split), ConversionCost::NONE, "{axis}");
        }
    }
}
