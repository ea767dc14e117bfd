//! Halos that are fetched once. The operator that fetches a halo cuts off the borders that later
//! ones use. These put them around their own part of the tensor.

use std::{borrow::Cow, collections::BTreeSet};

use soybean_plan::{BufferId, Concatenation, Halo, MAX_RANK, Padding, Shape, Tile, Tiling};

use super::{Lowering, Owner};
use crate::{kept_halos::Read, value::Value};

/// One side of the halo that a read has fetched, for a later one: so many elements before or after
/// a rank's part along a dim. It has the halo along the dims before this one, and only the part
/// along those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Border {
    source: Read,
    dim: usize,
    side: Side,
    width: usize,
    /// The halo along the dims before.
    halo: Halo,
}

/// A side of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Before,
    After,
}

impl Border {
    /// Returns the borders that make up a halo.
    fn of_halo(source: Read, halo: &Halo) -> Vec<Self> {
        let along = |dim: usize| {
            let sides = [(Side::Before, halo.before[dim]), (Side::After, halo.after[dim])];
            let leading = (0..dim).fold(Halo::NONE, |leading, dim| {
                leading.with(dim, [halo.before[dim], halo.after[dim]])
            });
            let border = move |(side, width)| Self { source, dim, side, width, halo: leading };
            sides.into_iter().map(border).filter(|it| it.width > 0)
        };
        (0..MAX_RANK).flat_map(along).collect()
    }

    /// Returns the shape, given that of a rank's part.
    fn shape(&self, part: &Shape) -> Shape {
        let halo = &self.halo;
        let all = (0..part.len()).map(|dim| part[dim] + halo.before[dim] + halo.after[dim]);
        all.collect::<Shape>().with(self.dim, self.width)
    }

    /// Returns the index of its first element in a part of this shape with this halo around it.
    fn start(&self, part: &Shape, around: &Halo) -> [usize; MAX_RANK] {
        let mut start = around.before;
        for (dim, start) in start.iter_mut().enumerate() {
            *start -= self.halo.before[dim];
        }
        match self.side {
            Side::Before => start[self.dim] -= self.width,
            Side::After => start[self.dim] += part[self.dim],
        }
        start
    }
}

impl Lowering<'_> {
    /// Cuts off the borders that later operators of the phase use, from a part with this halo.
    pub(super) fn keep_borders(&mut self, read: Read, tiling: Tiling, halo: Halo, part: BufferId) {
        if halo.is_none() {
            return;
        }
        let network = &self.tiled.network;
        let users = network.kept_halos.iter().filter(|(_, source)| **source == read);
        let users = users.map(|(user, _)| *user).filter(|it| self.computed.contains(&it.0));
        let borders: BTreeSet<Border> =
            users.flat_map(|it| Border::of_halo(read, &self.tiled.kept_halo(it))).collect();
        let value = network.graph.operands(read.0)[read.1];
        let (tile, own) = self.part(value, tiling);
        let input = halo.local_shape(&tile, &self.tiled.mesh);
        for border in borders {
            let result = border.shape(&own);
            let low = border.start(&own, &halo).map(|it| -signed(it));
            let buffer = self.buffer_of(Owner { value, is_converted: true }, result.n_elements());
            let cut = Padding { input, result, low, fill: 0.0 };
            self.step(cut.into(), vec![part], vec![buffer]);
            self.borders.insert(border, buffer);
        }
    }

    /// Puts the borders that an operator uses of an earlier halo around a part of this shape, which
    /// has the rest of its halo.
    pub(super) fn with_borders(&mut self, read: Read, shape: Shape, part: BufferId) -> BufferId {
        let network = &self.tiled.network;
        let Some(&source) = network.kept_halos.get(&read) else { return part };
        let value = network.graph.operands(read.0)[read.1];
        let borders = Border::of_halo(source, &self.tiled.kept_halo(read));
        let (mut shape, mut whole) = (shape, part);
        for of_dim in borders.chunk_by(|one, other| one.dim == other.dim) {
            let dim = of_dim[0].dim;
            let inner: usize = shape[dim + 1..].iter().product();
            let on = |side: Side| of_dim.iter().filter(move |it| it.side == side);
            let border = |it: &Border| (self.borders[it], it.width * inner);
            let (inputs, lengths): (Vec<BufferId>, Vec<usize>) = on(Side::Before)
                .map(border)
                .chain([(whole, shape[dim] * inner)])
                .chain(on(Side::After).map(border))
                .unzip();
            shape = shape.with(dim, lengths.iter().sum::<usize>() / inner);
            whole = self.buffer_of(Owner { value, is_converted: true }, shape.n_elements());
            let (outer, lengths) = (shape[..dim].iter().product(), Cow::Owned(lengths));
            self.step(Concatenation { outer, lengths }.into(), inputs, vec![whole]);
        }
        whole
    }

    /// Returns the tile of a tensor and the shape of a rank's part.
    fn part(&self, value: Value, tiling: Tiling) -> (Tile, Shape) {
        let tile = self.tile(value, tiling);
        (tile, tile.local_shape(&self.tiled.mesh))
    }
}

fn signed(n_elements: usize) -> i32 {
    i32::try_from(n_elements).expect("extents are far below 2^31")
}
