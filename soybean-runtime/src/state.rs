//! The state of a run: parameters and buffers, then the optimiser's tensors, numbered in this order.

use std::any::Any;

use soybean_checkpoint::{Checkpoint, Progress, StateSpec, TensorSpec, TrainingState};
use soybean_plan::{BufferId, Tables, Tile};

use crate::{Array, Counters, Error, Trainer, View, processes::Writing, ranks::Order};

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

    /// Replaces the state and the counters by those of a checkpoint. Returns the progress of the
    /// run that wrote it.
    ///
    /// The plan, the strategy and the number of devices may differ from those of that run. If the
    /// plan is the same, training continues bit for bit as it would have there, given the same
    /// [`Config::seed`](crate::Config::seed) and learning rates.
    ///
    /// # Errors
    /// As [`Checkpoint::restore`].
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<Progress, Error> {
        checkpoint.restore(self)
    }
}

impl TrainingState for Trainer {
    fn spec(&self) -> StateSpec {
        let tables = self.tables();
        let specs = |stretch: Stretch| {
            let spec = |it: Tensor<'_>| TensorSpec {
                name: it.name.to_owned(),
                shape: it.tile.shape.to_vec(),
            };
            stretch.tensors(tables).map(spec).collect()
        };
        StateSpec {
            model: tables.name.to_string(),
            parameters: specs(Stretch::parameters(tables)),
            optimizer: specs(Stretch::states(tables)),
            accumulate: tables.accumulate,
        }
    }

    fn counters(&self) -> Counters {
        self.counters()
    }

    fn set_counters(&mut self, counters: Counters) {
        self.set_counters(counters);
    }

    fn for_each_tensor(
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

    fn hand_out_tensors(&mut self) -> Result<(), Error> {
        for stretch in stretches(self.tables()) {
            self.call(Order::Save(stretch))?;
        }
        self.forget_parts();
        Ok(())
    }

    fn load_tensor(&mut self, number: usize, elements: &[f32]) -> Result<(), Error> {
        self.load(number, &[View::F32(elements)])
    }

    fn is_first_process(&self) -> bool {
        self.process().is_first()
    }

    fn together<T>(&mut self, outcome: Result<T, Error>) -> Result<T, Error> {
        self.together(outcome)
    }

    fn give_up(&mut self, error: Error) -> Error {
        self.give_up(error)
    }

    fn write_guard(&self) -> Box<dyn Any + Send> {
        Box::new(Writing::begin())
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
