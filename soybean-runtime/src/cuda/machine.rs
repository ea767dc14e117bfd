//! All ranks of this process with their GPUs, and how a phase is queued on them.
#![expect(unsafe_code, reason = "kernels work on raw memory")]

use soybean_plan::{BufferId, Lane, Mesh, Tables};

use super::{
    cliques::Cliques,
    collective::Stage,
    kit::{Kit, Operands},
    memory::PinnedWords,
    module::Threads,
    phase::{Action, Phase, Run},
    place::Place,
    stream::{Event, Stream},
    transfer::{Block, Position, Transfer},
};
use crate::{Error, model::AnyModel};

/// The ranks of a model that this process has, on GPUs.
pub(crate) struct Machine {
    pub(crate) model: AnyModel,
    /// Where each step begins: all lanes wait for it.
    start: Event,
    /// The run-time scalars of the step.
    pub(crate) scalars: PinnedWords,
    /// The scalars that a step leaves for the host, as [`left_by_steps`] lists them, and where they arrive.
    pub(crate) left: Vec<(BufferId, PinnedWords)>,
    pub(crate) cliques: Cliques,
    /// In the order of the ranks, which follow each other.
    pub(crate) places: Vec<Place>,
    pub(crate) kits: Vec<Kit>,
}

/// The events of a phase: for each task that is awaited one for each place.
pub(crate) struct Events(Vec<Vec<Event>>);

/// When each task of each rank begins and ends.
pub(crate) struct Marks {
    /// For each place the moment from which times count.
    pub(crate) from: Vec<Event>,
    /// For each task and each place its first and last moment.
    pub(crate) tasks: Vec<Vec<[Event; 2]>>,
}

/// A slot of the batches, and the marks of a step that is traced.
#[derive(Clone, Copy)]
pub(crate) struct Queuing<'a> {
    pub(crate) slot: usize,
    pub(crate) marks: Option<&'a Marks>,
}

/// The scalars that a training step leaves for the host.
pub(crate) fn left_by_steps(tables: &Tables) -> Vec<BufferId> {
    tables.loss.into_iter().chain(tables.gradient_norm).collect()
}

impl Machine {
    /// Puts the parts together.
    pub(crate) fn new(
        model: AnyModel,
        kits: Vec<Kit>,
        places: Vec<Place>,
        cliques: Cliques,
    ) -> Result<Self, Error> {
        let gpu = &places[0].gpu;
        let n_scalars = model.get().tables().scalars.len();
        let left = left_by_steps(model.get().tables()).into_iter();
        Ok(Self {
            start: Event::new(gpu)?,
            scalars: PinnedWords::zeroed(gpu, n_scalars)?,
            left: left
                .map(|it| Ok((it, PinnedWords::zeroed(gpu, 1)?)))
                .collect::<Result<_, Error>>()?,
            model,
            cliques,
            places,
            kits,
        })
    }

    fn tables(&self) -> &Tables {
        self.model.get().tables()
    }

    fn mesh(&self) -> &Mesh {
        &self.tables().mesh
    }

    /// Which of the places a rank has. Nobody asks for ranks of other processes: with these there is NCCL, and then no rank reads another's memory or waits for its events.
    fn place_of(&self, rank: usize) -> usize {
        rank - self.places[0].rank
    }

    /// The stream on which whole steps begin and end.
    pub(crate) fn origin(&self) -> &Stream {
        self.places[0].lane(Lane::Compute)
    }

    /// Whether all GPUs still work, as far as the driver knows.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let of_gpus = self.places.chunk_by(|one, next| one.kit == next.kit);
        let mut first = of_gpus.filter_map(|places| places.first());
        first.try_for_each(|it| it.lane(Lane::Compute).check())
    }

    /// The events of a phase.
    pub(crate) fn events(&self, phase: &Phase) -> Result<Events, Error> {
        let of_task = |is_awaited: &bool| {
            let places = self.places.iter().filter(|_| *is_awaited);
            places.map(|it| Event::new(&it.gpu)).collect()
        };
        phase.schedule.is_awaited.iter().map(of_task).collect::<Result<_, _>>().map(Events)
    }

    /// The marks of a phase.
    pub(crate) fn marks(&self, phase: &Phase) -> Result<Marks, Error> {
        let event = |place: &Place| Event::with_time(&place.gpu);
        let pair = |place: &Place| Ok([event(place)?, event(place)?]);
        let of_task = |_| self.places.iter().map(pair).collect();
        Ok(Marks {
            from: self.places.iter().map(event).collect::<Result<_, _>>()?,
            tasks: phase.tasks.iter().map(of_task).collect::<Result<_, Error>>()?,
        })
    }

    /// Lets the next step wait until all ranks have their parts of a slot's batch.
    pub(crate) fn await_batch(&self, slot: usize) -> Result<(), Error> {
        self.places.iter().try_for_each(|place| self.origin().wait(&place.slots[slot].ready))
    }

    /// Queues a whole step, on all ranks.
    pub(crate) fn queue(
        &self,
        phase: &Phase,
        events: &Events,
        queuing: Queuing<'_>,
    ) -> Result<(), Error> {
        let lanes = || {
            let all = self.places.iter().flat_map(|place| Lane::ALL.map(|lane| (place, lane)));
            all.filter(|it| phase.uses(it.1))
        };
        let first = self.places[0].rank;
        let is_origin =
            |(place, lane): &(&Place, Lane)| place.rank == first && *lane == Lane::Compute;
        self.start.record(self.origin())?;
        for (place, lane) in lanes().filter(|it| !is_origin(it)) {
            place.lane(lane).wait(&self.start)?;
        }
        if let Some(marks) = queuing.marks {
            for (place, event) in self.places.iter().zip(&marks.from) {
                event.record(place.lane(Lane::Compute))?;
            }
        }
        for number in 0..phase.tasks.len() {
            self.queue_task(phase, events, number, queuing)?;
        }
        for (place, lane) in lanes().filter(|it| !is_origin(it)) {
            let end = &place.ends[lane as usize];
            end.record(place.lane(lane))?;
            self.origin().wait(end)?;
        }
        Ok(())
    }

    fn queue_task(
        &self,
        phase: &Phase,
        events: &Events,
        number: usize,
        queuing: Queuing<'_>,
    ) -> Result<(), Error> {
        let task = &phase.tasks[number];
        for (at, place) in self.places.iter().enumerate() {
            let stream = place.lane(task.lane);
            for wait in &phase.schedule.waits[number] {
                for rank in self.mesh().group(place.rank, wait.axes) {
                    stream.wait(&events.0[wait.task][self.place_of(rank)])?;
                }
            }
            if let Some(marks) = queuing.marks {
                marks.tasks[number][at][0].record(stream)?;
            }
        }
        match &task.action {
            Action::Exchange(stages) => {
                stages.iter().try_for_each(|stage| self.exchange(stage, task.lane))?;
            }
            Action::Feed | Action::Run(_) | Action::Report => {
                let places = self.places.iter();
                places.into_iter().try_for_each(|it| self.act(it, &task.action, queuing.slot))?;
            }
        }
        for (at, place) in self.places.iter().enumerate() {
            let stream = place.lane(task.lane);
            if let Some(marks) = queuing.marks {
                marks.tasks[number][at][1].record(stream)?;
            }
            if let Some(event) = events.0[number].get(at) {
                event.record(stream)?;
            }
        }
        Ok(())
    }

    /// A task of one rank by itself.
    fn act(&self, place: &Place, action: &Action, slot: usize) -> Result<(), Error> {
        let stream = place.lane(Lane::Compute);
        match action {
            Action::Feed => {
                let (scalars, n_scalars) = (place.scalars.address(0), self.tables().scalars.len());
                if n_scalars > 0 {
                    // SAFETY: both sides have these words, and the host writes them again only when the step has ended.
                    unsafe { self.scalars.copy_to(scalars, n_scalars, stream) }?;
                }
                place.slots[slot].unload(place.address(Block::Arena, 0), stream)
            }
            Action::Run(run) => self.run(place, run),
            Action::Report if place.rank == 0 => {
                self.left.iter().try_for_each(|(buffer, word)| {
                    let from = place.address(Block::Arena, self.tables().buffers[*buffer].offset);
                    // SAFETY: the scalar has one word, and the host reads it only when the step has ended.
                    unsafe { word.copy_from(from, stream) }
                })
            }
            Action::Report | Action::Exchange(_) => Ok(()),
        }
    }

    fn run(&self, place: &Place, run: &Run) -> Result<(), Error> {
        let addresses = |offsets: &[usize]| -> Vec<u64> {
            offsets.iter().map(|it| place.address(Block::Arena, *it)).collect()
        };
        let (inputs, results) = (addresses(&run.inputs), addresses(&run.results));
        let operands = Operands {
            inputs: &inputs,
            results: &results,
            scalars: place.scalars.address(0),
            workspace: place.workspace(),
            bias: run.bias.map_or(0, |it| place.address(Block::Arena, it)),
            kept: run.kept.map_or(0, |it| place.address(Block::Arena, it)),
        };
        // SAFETY: the buffers lie within the arena, which was checked to hold them and lives as long as the rank; the schedule keeps others from what they use.
        unsafe { self.kits[place.kit].run(run.call, place.lane(Lane::Compute), operands) }
            .map_err(|error| error.on_rank(place.rank))
    }

    fn exchange(&self, stage: &Stage, lane: Lane) -> Result<(), Error> {
        match stage {
            Stage::Transfer(transfer) => self.transfer(transfer, lane),
            // SAFETY: the buffers lie within the arena and the staging memory, which live as long as the ranks; the schedule keeps others from what they use.
            Stage::Joint(joint) => unsafe { self.cliques.queue(joint, &self.places) },
        }
    }

    fn transfer(&self, transfer: &Transfer, lane: Lane) -> Result<(), Error> {
        for place in &self.places {
            let Some(launch) = &transfer.launches[place.rank] else { continue };
            let threads = Threads {
                grid: launch.grid,
                block: soybean_codegen::movement::BLOCK,
                shared_bytes: 0,
            };
            let arguments =
                [launch.parts_address(place.patterns.address(0)), self.address(launch.result)];
            let function = self.kits[place.kit].transfer(transfer.number);
            // SAFETY: the patterns stay within the buffers of which they were made; the schedule keeps others from what they use.
            unsafe { function.launch(place.lane(lane), threads, &arguments) }?;
        }
        Ok(())
    }

    fn address(&self, at: Position) -> u64 {
        self.places[self.place_of(at.rank)].address(at.block, at.offset)
    }

    /// Writes the patterns of a phase's transfers into words that go to each rank's GPU.
    pub(crate) fn write_patterns(&self, phases: &[&Phase], n_words: &[usize]) -> Result<(), Error> {
        for place in &self.places {
            let mut words = vec![0; n_words[place.rank]];
            let base = place.patterns.address(0);
            let actions = phases.iter().flat_map(|it| &it.tasks).map(|it| &it.action);
            for action in actions {
                let Action::Exchange(stages) = action else { continue };
                for stage in stages {
                    let Stage::Transfer(transfer) = stage else { continue };
                    let launch = transfer.launches[place.rank].iter();
                    launch
                        .into_iter()
                        .for_each(|it| it.write(&mut words, base, |it| self.address(it)));
                }
            }
            place.patterns.write(0, &words)?;
        }
        Ok(())
    }
}
