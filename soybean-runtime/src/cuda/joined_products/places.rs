//! Places at equal distances.

use std::collections::{BTreeMap, BTreeSet};

use soybean_plan::{BUFFER_ALIGNMENT, BufferId, DType, Tables, first_gap, overlaps};

use super::{
    super::epilogue::{FusedProduct, FusedStep},
    Roles, roles,
};

/// The places of the buffers of all phases.
pub(super) struct Places<'a> {
    tables: &'a mut Tables,
    max_arena_bytes: usize,
    /// Buffers whose content is needed before the first step or after the last one of a phase.
    lasting: BTreeSet<BufferId>,
    /// Buffers that keep their places: those of joined products, and those of several phases.
    fixed: BTreeSet<BufferId>,
}

/// The values that get new places.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moves {
    /// Those that do not lie at equal distances.
    Needed,
    /// All that can.
    All,
}

/// The first and the last step of a phase that uses each of its buffers.
pub(super) struct Lives(BTreeMap<BufferId, (usize, usize)>);

/// The places of some buffers.
pub(super) struct Layout {
    offsets: Vec<(BufferId, usize)>,
    arena_bytes: usize,
}

impl<'a> Places<'a> {
    /// Creates the places that the plan has.
    pub(super) fn new(
        phases: &[Vec<FusedStep>],
        tables: &'a mut Tables,
        max_arena_bytes: usize,
    ) -> Self {
        let all = 0..tables.buffers.len();
        let mut lasting: BTreeSet<BufferId> = all.filter(|it| tables.is_live_at_end(*it)).collect();
        let (mut fixed, mut used) = (BTreeSet::new(), BTreeSet::new());
        for steps in phases {
            let mut of_phase = BTreeSet::new();
            for step in steps {
                lasting.extend(step.inputs().into_iter().filter(|it| !of_phase.contains(it)));
                of_phase.extend(step.inputs().into_iter().chain(step.results()));
            }
            fixed.extend(of_phase.intersection(&used));
            used.append(&mut of_phase);
        }
        Self { tables, max_arena_bytes, lasting, fixed }
    }

    /// Returns the lives of the buffers of a phase. Lasting ones live in all of its steps.
    pub(super) fn lives(&self, steps: &[FusedStep]) -> Lives {
        let mut lives: BTreeMap<BufferId, (usize, usize)> =
            self.lasting.iter().map(|it| (*it, (0, steps.len()))).collect();
        for (at, step) in steps.iter().enumerate() {
            for buffer in step.inputs().into_iter().chain(step.results()) {
                let life = lives.entry(buffer).or_insert((at, at));
                life.1 = life.1.max(at);
            }
        }
        Lives(lives)
    }

    /// Returns the number and the type of a buffer's elements.
    pub(super) fn size(&self, buffer: BufferId) -> (usize, DType) {
        let buffer = self.tables.buffers[buffer];
        (buffer.n_elements, buffer.dtype)
    }

    pub(super) fn overlap(&self, one: BufferId, other: BufferId) -> bool {
        overlaps(&self.tables.range(one), &self.tables.range(other))
    }

    /// Sorts products by the places of a role that cannot change, if there is one.
    pub(super) fn sort(&self, products: &mut [FusedProduct], lives: &Lives) {
        let Some(roles) = roles(products) else { return };
        let distinct = || roles.all().into_iter().filter(|it| !is_shared(it));
        let mut fixed = distinct().filter(|it| !it.iter().all(|it| self.can_move(*it, lives)));
        let Some(leading) = fixed.next().or_else(|| distinct().next()) else { return };
        let offset = |it: &BufferId| self.tables.buffers[*it].offset;
        let mut order: Vec<usize> = (0..products.len()).collect();
        order.sort_by_key(|it| offset(&leading[*it]));
        let sorted: Vec<FusedProduct> = order.into_iter().map(|it| products[it].clone()).collect();
        products.clone_from_slice(&sorted);
    }

    /// Moves values until the buffers of each role lie at equal distances. Returns false if some
    /// cannot move, or the arena would become too large.
    pub(super) fn arrange(&mut self, roles: &Roles, lives: &Lives, moves: Moves) -> bool {
        roles.all().into_iter().filter(|it| !is_shared(it)).all(|role| {
            let is_needed = self.stride(role).is_none();
            let can_move = role.iter().all(|it| self.can_move(*it, lives));
            if can_move && (is_needed || moves == Moves::All) {
                return self.place(role, lives);
            }
            !is_needed
        })
    }

    /// Returns the distance between the buffers of a role in elements, if it is the same between
    /// all.
    pub(super) fn stride(&self, role: &[BufferId]) -> Option<usize> {
        if is_shared(role) {
            return Some(0);
        }
        let n_bytes = self.tables.buffers[role[0]].dtype.bytes();
        let offset = |it: BufferId| self.tables.buffers[it].offset;
        let mut distances = role.windows(2).map(|it| offset(it[1]).checked_sub(offset(it[0])));
        let first = distances.next()??;
        let is_equal = distances.all(|it| it == Some(first));
        (is_equal && first.is_multiple_of(n_bytes)).then_some(first / n_bytes)
    }

    /// Returns the places of the buffers of all roles.
    pub(super) fn layout(&self, roles: &Roles) -> Layout {
        let buffers = roles.all().into_iter().flatten();
        let offsets = buffers.map(|it| (*it, self.tables.buffers[*it].offset)).collect();
        Layout { offsets, arena_bytes: self.tables.arena_bytes }
    }

    /// Puts buffers where they are in the layout.
    pub(super) fn restore(&mut self, layout: &Layout) {
        let buffers = self.tables.buffers.to_mut();
        layout.offsets.iter().for_each(|(buffer, offset)| buffers[*buffer].offset = *offset);
        self.tables.arena_bytes = layout.arena_bytes;
    }

    /// Puts buffers where they are in the layout, for good.
    pub(super) fn fix(&mut self, layout: &Layout) {
        self.restore(layout);
        self.fixed.extend(layout.offsets.iter().map(|it| it.0));
    }

    /// Returns whether a value can get another place: it belongs to one phase, and no buffer is a
    /// part of it.
    fn can_move(&self, buffer: BufferId, lives: &Lives) -> bool {
        let Some((first, last)) = lives.0.get(&buffer) else { return false };
        // A map may overwrite what it reads, so the end of a life can be the start of another.
        let is_alias = |(other, life): (&BufferId, &(usize, usize))| {
            *other != buffer && life.0 < *last && *first < life.1 && self.overlap(*other, buffer)
        };
        !self.lasting.contains(&buffer)
            && !self.fixed.contains(&buffer)
            && !lives.0.iter().any(is_alias)
    }

    /// Puts the buffers of a role side by side, where nothing else is needed while one of them is.
    /// Each product uses one of them, so this includes the time between the products.
    fn place(&mut self, role: &[BufferId], lives: &Lives) -> bool {
        let of_role = || role.iter().filter_map(|it| lives.0.get(it));
        let first = of_role().map(|it| it.0).min();
        let last = of_role().map(|it| it.1).max();
        let (Some(first), Some(last)) = (first, last) else { return false };
        let others = lives
            .0
            .iter()
            .filter(|(buffer, life)| life.0 <= last && first <= life.1 && !role.contains(buffer));
        let occupied = others.map(|it| self.tables.range(*it.0)).collect();
        let n_bytes = self.tables.range(role[0]).len();
        let distance = n_bytes.next_multiple_of(BUFFER_ALIGNMENT);
        let needed = distance * (role.len() - 1) + n_bytes;
        let offset = first_gap(occupied, needed);
        if offset + needed > self.max_arena_bytes.max(self.tables.arena_bytes) {
            return false;
        }
        let buffers = self.tables.buffers.to_mut();
        for (buffer, number) in role.iter().zip(0..) {
            buffers[*buffer].offset = offset + number * distance;
        }
        self.tables.arena_bytes = self.tables.arena_bytes.max(offset + needed);
        true
    }
}

/// Returns whether all products have the same buffer in a role, or none has one.
fn is_shared(role: &[BufferId]) -> bool {
    role.iter().all(|it| *it == role[0])
}
