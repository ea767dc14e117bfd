//! The state of a run: parameters and buffers, then the optimiser's tensors, numbered in this order.

use soybean_plan::{BufferId, Tables, Tile};

use crate::{Array, Error, Trainer, View, ranks::Order};

/// A tensor that stays from step to step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensor<'a> {
    /// The name, a path of calls and loop rounds.
    pub(crate) name: &'a str,
    /// Shape and tiling.
    pub(crate) tile: Tile,
    /// Where each rank's part stays.
    pub(crate) buffer: BufferId,
}

/// Tensors of the state that follow each other, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// The number of the first.
    pub(crate) first: usize,
    /// How many they are.
    pub(crate) n_tensors: usize,
}

impl Stretch {
    /// All parameters and buffers.
    pub(crate) fn parameters(tables: &Tables) -> Self {
        Self { first: 0, n_tensors: tables.parameters.len() }
    }

    /// The optimiser's tensors.
    pub(crate) fn states(tables: &Tables) -> Self {
        Self { first: tables.parameters.len(), n_tensors: tables.states.len() }
    }

    /// The tensors themselves.
    pub(crate) fn tensors<'a>(self, tables: &'a Tables) -> impl Iterator<Item = Tensor<'a>> {
        tensors(tables).skip(self.first).take(self.n_tensors)
    }

    /// The tiles of the tensors.
    pub(crate) fn tiles(self, tables: &Tables) -> Vec<Tile> {
        self.tensors(tables).map(|it| it.tile).collect()
    }

    /// Where each rank's parts of the tensors stay.
    pub(crate) fn buffers(self, tables: &Tables) -> Vec<(Tile, BufferId)> {
        self.tensors(tables).map(|it| (it.tile, it.buffer)).collect()
    }
}

/// All tensors of the state, in their order.
pub(crate) fn tensors(tables: &Tables) -> impl Iterator<Item = Tensor<'_>> {
    let parameters = tables.parameters.iter();
    let parameters =
        parameters.map(|it| Tensor { name: &it.name, tile: it.tile, buffer: it.buffer });
    let states = tables.states.iter();
    parameters.chain(states.map(|it| Tensor { name: &it.name, tile: it.tile, buffer: it.buffer }))
}

/// Tensors are fetched together as long as they have no more elements than these.
const FETCHED: usize = 1 << 22;

impl Trainer {
    /// Tensors of the state, by name.
    pub(crate) fn named(&mut self, stretch: Stretch) -> Result<Vec<(String, Array)>, Error> {
        let arrays = self.fetch(stretch)?;
        let names = stretch.tensors(self.tables()).map(|it| it.name.to_owned());
        Ok(names.zip(arrays).collect())
    }

    /// Whole tensors of the state.
    pub(crate) fn fetch(&mut self, stretch: Stretch) -> Result<Vec<Array>, Error> {
        self.call(Order::Fetch(stretch))?;
        let arrays = self.assemble(&stretch.tiles(self.tables()), &mut || None);
        self.forget_parts();
        Ok(arrays)
    }

    /// Replaces tensors of the state, from number `first` on, by whole ones.
    pub(crate) fn load(&mut self, first: usize, tensors: &[View<'_>]) -> Result<(), Error> {
        self.call(Order::Load { first, tensors })
    }

    /// Calls `take` with each tensor of the state, in its order, in the first process, until it gives `false`; few of them are in memory at a time, where `spare` has some.
    pub(crate) fn for_each_tensor(
        &mut self,
        spare: &mut dyn FnMut() -> Option<Vec<f32>>,
        take: &mut dyn FnMut(Array) -> bool,
    ) -> Result<(), Error> {
        for stretch in stretches(self.tables()) {
            self.call(Order::Save(stretch))?;
            let arrays = self.assemble(&stretch.tiles(self.tables()), spare);
            if !arrays.into_iter().all(&mut *take) {
                break;
            }
        }
        self.forget_parts();
        Ok(())
    }

    /// Takes part in [`Self::for_each_tensor`] of the first process.
    pub(crate) fn hand_out_tensors(&mut self) -> Result<(), Error> {
        for stretch in stretches(self.tables()) {
            self.call(Order::Save(stretch))?;
        }
        self.forget_parts();
        Ok(())
    }
}

/// The state, in stretches that are fetched together.
pub(crate) fn stretches(tables: &Tables) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut held = 0;
    for (number, tensor) in tensors(tables).enumerate() {
        let n_elements = tensor.tile.shape.n_elements();
        match stretches.last_mut() {
            Some(stretch) if held + n_elements <= FETCHED => {
                held += n_elements;
                stretch.n_tensors += 1;
            }
            Some(_) | None => {
                held = n_elements;
                stretches.push(Stretch { first: number, n_tensors: 1 });
            }
        }
    }
    stretches
}
