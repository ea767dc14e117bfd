//! The thread of one rank: it carries out the trainer's orders on its own memory.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

use soybean_plan::{BufferId, DType, Init, RunScalar, Tables, Tile};

use crate::{
    Error, ErrorKind, Model, Profile, Rank, View,
    abort::lock,
    backend::{Backend, Communicator},
    init::Stream,
    overlap::Overlap,
    post::{Links, Order},
};

/// A model that lives as long as its ranks.
#[derive(Clone)]
pub(crate) enum AnyModel {
    /// Generated code.
    Static(&'static dyn Model),
    /// A value, such as a program.
    Shared(Arc<dyn Model>),
}

impl AnyModel {
    /// The model.
    pub(crate) fn get(&self) -> &dyn Model {
        match self {
            Self::Static(model) => *model,
            Self::Shared(model) => &**model,
        }
    }
}

/// A rank's side of the trainer.
pub(crate) struct Worker {
    pub(crate) rank: usize,
    pub(crate) model: AnyModel,
    pub(crate) backend: Box<dyn Backend + Send>,
    pub(crate) communicator: Box<dyn Communicator + Send>,
    pub(crate) links: Links,
    pub(crate) seed: u64,
}

/// What a worker prepares once.
struct Ends {
    inputs: Vec<Overlap>,
    parameters: Vec<Overlap>,
    scalars: Vec<f32>,
}

impl Worker {
    /// Carries out orders until told to stop.
    pub(crate) fn run(mut self) {
        let mut ends = None;
        let mut number = 0;
        let mut is_over = false;
        let post = Arc::clone(&self.links.post);
        while !is_over {
            post.serve(number, |order| {
                is_over = matches!(order, Order::Stop);
                self.carry_out(order, &mut ends);
            });
            number += 1;
        }
    }

    fn carry_out(&mut self, order: Order<'_>, ends: &mut Option<Ends>) {
        if self.links.abort.is_failed() {
            return;
        }
        let result = catch_unwind(AssertUnwindSafe(|| match ends {
            Some(ends) => self.serve(order, ends),
            None => self.prepare().and_then(|made| self.serve(order, ends.insert(made))),
        }));
        let error = match result {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.on_rank(self.rank),
            Err(panic) => Error::new(ErrorKind::Rank, said_by(&*panic)).on_rank(self.rank),
        };
        self.links.abort.fail(error);
    }

    fn serve(&mut self, order: Order<'_>, ends: &mut Ends) -> Result<(), Error> {
        match order {
            Order::Train { batch, step, learning_rate } => {
                self.set_scalars(ends, step, learning_rate);
                self.step(batch, ends, |model, rank| model.train(rank))?;
                self.report_loss(self.model.get().tables().loss)
            }
            Order::Evaluate { batch } => {
                self.step(batch, ends, |model, rank| model.evaluate(rank))?;
                let model = self.model.clone();
                let outputs = model.get().tables().outputs.iter();
                self.report_parts(&outputs.map(|it| (it.tile, it.buffer)).collect::<Vec<_>>())
            }
            Order::Fetch => {
                let model = self.model.clone();
                let parameters = model.get().tables().parameters.iter();
                self.report_parts(&parameters.map(|it| (it.tile, it.buffer)).collect::<Vec<_>>())
            }
            Order::Load { parameters } => self.load(parameters, ends),
            Order::ResetProfile => {
                lock(&self.links.reports[self.rank]).profile = Profile::default();
                Ok(())
            }
            Order::Stop => Ok(()),
        }
    }

    fn step(
        &mut self,
        batch: &[View<'_>],
        ends: &Ends,
        steps: fn(&dyn Model, &mut Rank<'_>),
    ) -> Result<(), Error> {
        let start = Instant::now();
        let model = self.model.get();
        for ((input, view), overlap) in model.tables().inputs.iter().zip(batch).zip(&ends.inputs) {
            feed(&mut *self.backend, input.buffer, overlap, *view)?;
        }
        let mut profile = lock(&self.links.reports[self.rank]).profile;
        let mut rank =
            Rank::new(model.kernels(), &mut *self.backend, &mut *self.communicator, &mut profile);
        steps(model, &mut rank);
        let moved_bytes = rank.finish();
        profile.n_steps += 1;
        profile.total += start.elapsed();
        let mut report = lock(&self.links.reports[self.rank]);
        report.profile = profile;
        report.moved_bytes = moved_bytes.clone();
        moved_bytes.map(drop)
    }

    fn prepare(&mut self) -> Result<Ends, Error> {
        let model = self.model.clone();
        let tables = model.get().tables();
        let overlap = |tile: &Tile| Overlap::with_whole(&tables.mesh, tile, self.rank);
        let ends = Ends {
            inputs: tables.inputs.iter().map(|it| overlap(&it.tile)).collect(),
            parameters: tables.parameters.iter().map(|it| overlap(&it.tile)).collect(),
            scalars: vec![0.0; tables.scalars.len()],
        };
        self.fill(tables, &ends)?;
        Ok(ends)
    }

    /// First values: the arena is zero, which is right for the optimiser's states.
    fn fill(&mut self, tables: &Tables, ends: &Ends) -> Result<(), Error> {
        for (number, parameter) in tables.parameters.iter().enumerate() {
            let stream = Stream::new(self.seed, number);
            self.start(parameter.buffer, &ends.parameters[number], parameter.init, stream)?;
        }
        for constant in tables.constants.iter() {
            let overlap = Overlap::with_whole(&tables.mesh, &constant.tile, self.rank);
            self.backend.upload(constant.buffer, &mut |words| {
                overlap.for_each(|here, there, length| {
                    for (step, word) in words[here..here + length].iter_mut().enumerate() {
                        *word = ((there + step) as f32).to_bits();
                    }
                });
            })?;
        }
        Ok(())
    }

    /// Fills a buffer with the first values of its part of a tensor.
    fn start(
        &mut self,
        buffer: BufferId,
        overlap: &Overlap,
        init: Init,
        stream: Stream,
    ) -> Result<(), Error> {
        if init == Init::Constant(0.0) {
            return Ok(());
        }
        self.backend.upload(buffer, &mut |words| {
            overlap.for_each(|here, there, length| {
                for (step, word) in words[here..here + length].iter_mut().enumerate() {
                    *word = stream.value(init, there + step).to_bits();
                }
            });
        })
    }

    fn set_scalars(&mut self, ends: &mut Ends, step: u64, learning_rate: f32) {
        let scalars = &self.model.get().tables().scalars;
        for (value, &scalar) in ends.scalars.iter_mut().zip(scalars.iter()) {
            *value = match scalar {
                RunScalar::LearningRate => learning_rate,
                RunScalar::Noise => RunScalar::noise(self.seed, step),
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "scalars have single precision"
                )]
                RunScalar::OneMinusPower { base } => (1.0 - base.powf(step as f64)) as f32,
            };
        }
        self.backend.set_scalars(&ends.scalars);
    }

    fn report_loss(&mut self, loss: BufferId) -> Result<(), Error> {
        if self.rank > 0 {
            return Ok(());
        }
        let mut value = f32::NAN;
        let mut read =
            |words: &[u32]| value = words.first().map_or(f32::NAN, |it| f32::from_bits(*it));
        self.backend.download(loss, &mut read)?;
        lock(&self.links.reports[self.rank]).loss = value;
        Ok(())
    }

    fn report_parts(&mut self, tensors: &[(Tile, BufferId)]) -> Result<(), Error> {
        let model = self.model.clone();
        let mesh = &model.get().tables().mesh;
        let mut report = lock(&self.links.reports[self.rank]);
        report.parts.clear();
        for (tile, buffer) in tensors {
            let mut part = Vec::new();
            if is_owner(mesh, tile, self.rank) {
                let is_integer = model
                    .get()
                    .tables()
                    .buffers
                    .get(*buffer)
                    .is_some_and(|it| it.dtype == DType::I32);
                let number = |word: &u32| match is_integer {
                    true => word.cast_signed() as f32,
                    false => f32::from_bits(*word),
                };
                let mut read = |words: &[u32]| part.extend(words.iter().map(number));
                self.backend.download(*buffer, &mut read)?;
            }
            report.parts.push(part);
        }
        Ok(())
    }

    fn load(&mut self, parameters: &[View<'_>], ends: &Ends) -> Result<(), Error> {
        let tables = self.model.get().tables();
        for ((parameter, view), overlap) in
            tables.parameters.iter().zip(parameters).zip(&ends.parameters)
        {
            feed(&mut *self.backend, parameter.buffer, overlap, *view)?;
        }
        Ok(())
    }
}

/// Whether this rank hands out its part of the tensor: of several ranks with the same elements, one does.
pub(crate) fn is_owner(mesh: &soybean_plan::Mesh, tile: &Tile, rank: usize) -> bool {
    let coordinates = mesh.coordinates(rank);
    let splits = |axis| matches!(tile.tiling.on(axis), soybean_plan::Placement::Split(_));
    (0..mesh.n_axes()).all(|axis| coordinates[axis] == 0 || splits(axis))
}

fn feed(
    backend: &mut dyn Backend,
    buffer: BufferId,
    overlap: &Overlap,
    view: View<'_>,
) -> Result<(), Error> {
    backend.upload(buffer, &mut |words| {
        overlap.for_each(|here, there, length| {
            let (to, from) = (&mut words[here..here + length], there..there + length);
            match view {
                View::F32(whole) => {
                    for (word, element) in to.iter_mut().zip(&whole[from]) {
                        *word = element.to_bits();
                    }
                }
                View::I32(whole) => {
                    for (word, element) in to.iter_mut().zip(&whole[from]) {
                        *word = element.cast_unsigned();
                    }
                }
            }
        });
    })
}

fn said_by(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("without a message"))
}
