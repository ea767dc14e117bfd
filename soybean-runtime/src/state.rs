//! The state of a run, which checkpoints save: parameters and buffers, then the optimizer's
//! tensors. The tensors are numbered in this order.

use std::any::Any;

use soybean_checkpoint::{Checkpoint, Progress, StateSpec, TensorSpec, TrainingState};
use soybean_plan::{BufferId, ImageLayout, Tables, Tile};

use crate::{
    Array, Counters, Error, Trainer, View, host_io::n_terms, processes::WriteGuard, ranks::Command,
};

/// A tensor that persists from step to step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensor<'a> {
    /// The name, a path of calls and loop iterations.
    pub(crate) name: &'a str,
    /// The shape and the tiling, with the dims in the model's order.
    pub(crate) tile: Tile,
    /// The order of dims in the buffer.
    pub(crate) layout: ImageLayout,
    /// The buffer of each rank's part.
    pub(crate) buffer: BufferId,
    /// A hash of how the model uses a parameter; 0 for the optimizer's tensors.
    pub(crate) use_hash: u64,
}

/// A range of consecutive tensors of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TensorRange {
    /// The number of the first tensor.
    pub(crate) first: usize,
    /// The number of tensors.
    pub(crate) n_tensors: usize,
}

impl TensorRange {
    /// Returns the range of all parameters and buffers.
    pub(crate) fn parameters(tables: &Tables) -> Self {
        Self { first: 0, n_tensors: tables.parameters.len() }
    }

    /// Returns the range of the optimizer's tensors.
    pub(crate) fn states(tables: &Tables) -> Self {
        Self { first: tables.parameters.len(), n_tensors: tables.states.len() }
    }

    /// Returns the tensors of the range.
    pub(crate) fn tensors<'a>(self, tables: &'a Tables) -> impl Iterator<Item = Tensor<'a>> {
        tensors(tables).skip(self.first).take(self.n_tensors)
    }

    /// Returns the tiles of the tensors, and the order of dims in which they are stored.
    pub(crate) fn tiles(self, tables: &Tables) -> Vec<(Tile, ImageLayout)> {
        self.tensors(tables).map(|it| (it.tile, it.layout)).collect()
    }

    /// Returns the tiles and buffers of the tensors.
    pub(crate) fn buffers(self, tables: &Tables) -> Vec<(Tile, BufferId)> {
        self.tensors(tables).map(|it| (it.tile, it.buffer)).collect()
    }
}

/// Returns all tensors of the state, in the order of their numbers.
pub(crate) fn tensors(tables: &Tables) -> impl Iterator<Item = Tensor<'_>> {
    let parameters = tables.parameters.iter().map(|it| Tensor {
        name: &it.name,
        tile: it.tile,
        layout: it.layout,
        buffer: it.buffer,
        use_hash: it.use_hash,
    });
    let states = tables.states.iter().map(|it| Tensor {
        name: &it.name,
        tile: it.tile,
        layout: it.layout,
        buffer: it.buffer,
        use_hash: 0,
    });
    parameters.chain(states)
}

/// Describes a parameter, a buffer or a state by the buffer of its parts.
pub(crate) fn described(tables: &Tables, buffer: BufferId) -> String {
    let parameters = tables.parameters.iter();
    let parameters = parameters
        .map(|it| (if it.is_trained { "parameter" } else { "buffer" }, &it.name, it.buffer));
    let states = tables.states.iter().map(|it| ("state", &it.name, it.buffer));
    let found = parameters.chain(states).find(|it| it.2 == buffer);
    found.map_or_else(
        || format!("buffer {buffer}"),
        |(kind, name, _)| format!("the {kind} `{name}`"),
    )
}

/// The limit for the elements of tensors that are fetched together.
const MAX_FETCHED_ELEMENTS: usize = 1 << 22;

/// How tensors are assembled of which ranks hold partial sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sums {
    /// The sum.
    Added,
    /// The partial sums, one after another.
    Apart,
}

impl Trainer {
    /// Returns how a checkpoint has the sums of the steps that share an update. Between two updates
    /// each rank gets back its own terms, so that training continues bit for bit.
    fn saved_sums(&self) -> Sums {
        if self.counters().n_accumulated > 0 { Sums::Apart } else { Sums::Added }
    }

    /// Fetches whole tensors of the state, with their names.
    pub(crate) fn named(&mut self, range: TensorRange) -> Result<Vec<(String, Array)>, Error> {
        let arrays = self.fetch(range)?;
        let named = |(it, array): (Tensor<'_>, Array)| {
            (it.name.to_owned(), Array { use_hash: it.use_hash, ..array })
        };
        Ok(range.tensors(self.tables()).zip(arrays).map(named).collect())
    }

    /// Fetches whole tensors of the state.
    pub(crate) fn fetch(&mut self, range: TensorRange) -> Result<Vec<Array>, Error> {
        self.call(Command::Fetch(range))?;
        let arrays = self.assemble(&range.tiles(self.tables()), Sums::Added, &mut || None);
        self.free_parts();
        Ok(arrays)
    }

    /// Replaces tensors of the state, from number `first` on, by these whole tensors.
    pub(crate) fn load(&mut self, first: usize, tensors: &[View<'_>]) -> Result<(), Error> {
        self.call(Command::Load { first, tensors })
    }

    /// Sets the states to zero, one after the other.
    pub(crate) fn reset_states(&mut self) -> Result<(), Error> {
        let range = TensorRange::states(self.tables());
        let sizes: Vec<usize> =
            range.tensors(self.tables()).map(|it| it.tile.shape.n_elements()).collect();
        for (number, n_elements) in (range.first..).zip(sizes) {
            self.load(number, &[View::F32(&vec![0.0; n_elements])])?;
        }
        Ok(())
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
        let (tables, sums) = (self.tables(), self.saved_sums());
        let specs = |range: TensorRange| {
            let spec = |it: Tensor<'_>| TensorSpec {
                name: it.name.to_owned(),
                shape: it.tile.shape.to_vec(),
                n_terms: match sums {
                    Sums::Added => 1,
                    Sums::Apart => n_terms(&tables.mesh, &it.tile),
                },
                use_hash: it.use_hash,
            };
            range.tensors(tables).map(spec).collect()
        };
        StateSpec {
            model: tables.name.to_string(),
            parameters: specs(TensorRange::parameters(tables)),
            optimizer: specs(TensorRange::states(tables)),
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
        let sums = self.saved_sums();
        for range in fetch_ranges(self.tables()) {
            self.call(Command::Save(range))?;
            let arrays = self.assemble(&range.tiles(self.tables()), sums, spare);
            if !arrays.into_iter().all(&mut *take) {
                break;
            }
        }
        self.free_parts();
        Ok(())
    }

    fn hand_out_tensors(&mut self) -> Result<(), Error> {
        for range in fetch_ranges(self.tables()) {
            self.call(Command::Save(range))?;
        }
        self.free_parts();
        Ok(())
    }

    fn load_tensor(&mut self, number: usize, elements: &[f32]) -> Result<(), Error> {
        let tables = self.tables();
        let tile = tensors(tables).nth(number).expect("a tensor of the state").tile;
        let n_elements = tile.shape.n_elements();
        let n_found = elements.len() / n_elements.max(1);
        if n_found < 2 || n_found == n_terms(&tables.mesh, &tile) {
            return self.load(number, &[View::F32(elements)]);
        }
        // Another plan has other terms, but the same sum.
        let mut sum = vec![0.0; n_elements];
        for term in elements.chunks_exact(n_elements) {
            sum.iter_mut().zip(term).for_each(|(sum, it)| *sum += it);
        }
        self.load(number, &[View::F32(&sum)])
    }

    fn is_first_process(&self) -> bool {
        self.process().is_first()
    }

    fn together<T>(&mut self, outcome: Result<T, Error>) -> Result<T, Error> {
        self.together(outcome)
    }

    fn agree(&mut self, what: &str, text: &str) -> Result<(), Error> {
        self.agree(what, text)
    }

    fn invalidate(&mut self, error: Error) -> Error {
        self.invalidate(error)
    }

    fn write_guard(&self) -> Box<dyn Any + Send> {
        Box::new(WriteGuard::begin())
    }
}

/// Splits the state into ranges of tensors that are fetched together.
pub(crate) fn fetch_ranges(tables: &Tables) -> Vec<TensorRange> {
    let mut fetch_ranges: Vec<TensorRange> = Vec::new();
    let mut held = 0;
    for (number, tensor) in tensors(tables).enumerate() {
        let n_elements = tensor.tile.shape.n_elements();
        match fetch_ranges.last_mut() {
            Some(range) if held + n_elements <= MAX_FETCHED_ELEMENTS => {
                held += n_elements;
                range.n_tensors += 1;
            }
            Some(_) | None => {
                held = n_elements;
                fetch_ranges.push(TensorRange { first: number, n_tensors: 1 });
            }
        }
    }
    fetch_ranges
}
