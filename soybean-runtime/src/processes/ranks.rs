//! The ranks of a model in several processes: this one's are threads or on GPUs, and what any rank reports is handed round after each order.
#![expect(unsafe_code, reason = "reports on their way are in memory that stays")]

use std::{
    mem,
    ops::Range,
    sync::{Arc, Mutex},
};

#[cfg(feature = "cuda")]
use super::neighbours::Neighbours;
use super::{
    Process,
    calls::{Channel, Requests},
    control::differ,
    course::{Act, Course, Deed},
    devices::{Choice, Offer, choose},
    letters::{Letters, MAX_PIECE, MAX_RANKS_HERE, pieces},
    reports::{self, Head, Reader},
    world::{self, Watch, World},
};
#[cfg(feature = "cuda")]
use crate::cuda::{CudaRanks, Here};
use crate::{
    Config, Error, ErrorKind,
    abort::lock,
    cpu::{CpuRanks, Part},
    mail::Mail,
    model::AnyModel,
    post::Links,
    ranks::{Order, Ranks, Report},
};

/// The tag of what is handed round beside the reports of every order. No other messages are under way then.
const TAG: usize = 0;

/// The most bytes of a process that are kept for what is handed round later.
const MAX_KEPT: usize = 1 << 20;

/// This process's ranks, and how it hears of all others.
struct ProcessRanks {
    /// Only none while it is dropped.
    inner: Option<Box<dyn Ranks>>,
    links: Links,
    round: Round,
}

/// What is handed round after an order.
struct Round {
    world: &'static World,
    channel: Channel,
    course: Arc<Course>,
    ranks: Range<usize>,
    own: Vec<u8>,
    all: Vec<u8>,
    /// What each process has beside that which every order has.
    more: Vec<Vec<u8>>,
    requests: Requests,
}

/// Starts the ranks of this process. The first `n / count` of the mesh's `n` ranks are those of process 0, and so on: its slowest axes lie between processes.
pub(crate) fn start_ranks(model: &AnyModel, config: &Config) -> Result<Box<dyn Ranks>, Error> {
    let world = world::join()?;
    let links = parts(model, world.process).map(|ranks| {
        let n_ranks = model.get().tables().mesh.n_ranks();
        (Links::new(ranks.len(), n_ranks), ranks)
    });
    let started =
        links.and_then(|(links, ranks)| ProcessRanks::start(world, model, config, links, ranks));
    started.map(|it| Box::new(it) as Box<dyn Ranks>).inspect_err(|error| tell(world, error))
}

/// The ranks of a process.
fn parts(model: &AnyModel, process: Process) -> Result<Range<usize>, Error> {
    let n_ranks = model.get().tables().mesh.n_ranks();
    let fault = |message| Err(Error::new(ErrorKind::Process, message));
    let Process { number, count } = process;
    if !n_ranks.is_multiple_of(count) {
        return fault(format!(
            "expected a number of processes that divides the model's {n_ranks} ranks, found {count}"
        ));
    }
    let n_here = n_ranks / count;
    if n_here > MAX_RANKS_HERE {
        return fault(format!(
            "expected at most {MAX_RANKS_HERE} ranks in each of several processes, found {n_here}"
        ));
    }
    Ok(number * n_here..(number + 1) * n_here)
}

/// Tells the other processes of a failure; people hear of it where the program ends.
fn tell(world: &World, error: &Error) {
    world.control.tell_failure(&error.to_string());
}

/// What the ranks of a process know of it.
struct Place {
    world: &'static World,
    channel: Channel,
    course: Arc<Course>,
    ranks: Range<usize>,
}

impl Place {
    /// Starts the ranks as threads.
    fn on_cpu(
        self,
        model: &AnyModel,
        config: &Config,
        obstacle: Option<String>,
        links: &Links,
    ) -> Result<Box<dyn Ranks>, Error> {
        let Self { world, channel, course, ranks } = self;
        let n_here = ranks.len();
        let mail = |rank| -> Option<Box<dyn Mail>> {
            let (course, requests) = (Arc::clone(&course), Requests::default());
            Some(Box::new(Letters { world, channel, course, rank, n_here, requests }))
        };
        let part = Part { ranks, n_cores: world.n_cores, mail: &mail };
        let ranks = CpuRanks::start(model, config, obstacle, &part, links.clone())?;
        Ok(Box::new(ranks))
    }

    /// Starts the ranks on GPUs, one on each.
    #[cfg(feature = "cuda")]
    fn on_gpus(
        self,
        model: &AnyModel,
        config: &Config,
        gpus: Range<usize>,
        links: &Links,
    ) -> Result<Box<dyn Ranks>, Error> {
        let Self { world, channel, course, ranks } = self;
        let (reports, abort) = (Arc::clone(&links.reports), Arc::clone(&links.abort));
        let others = Arc::new(Neighbours { world, channel, course, abort });
        let here = Here { ranks, gpus, reports, others };
        Ok(Box::new(CudaRanks::start(model, config, here)?))
    }

    /// Without the feature no process offers GPUs.
    #[cfg(not(feature = "cuda"))]
    fn on_gpus(
        self,
        _: &AnyModel,
        _: &Config,
        _: Range<usize>,
        _: &Links,
    ) -> Result<Box<dyn Ranks>, Error> {
        Err(crate::devices::not_built_in())
    }
}

impl ProcessRanks {
    fn start(
        world: &'static World,
        model: &AnyModel,
        config: &Config,
        links: Links,
        ranks: Range<usize>,
    ) -> Result<Self, Error> {
        let (course, channel) = world.enter(start_of(model, config), &links.abort)?;
        let watch = Watch { abort: &links.abort, course: &course };
        let offer = Offer::of_process(course.place().1, config.device, world.machine);
        let offers = world.hand_round(channel, &offer.to_bytes(), watch)?;
        let place = Place { world, channel, course: Arc::clone(&course), ranks: ranks.clone() };
        let inner = match choose(&offers, world.process.number, ranks.len())? {
            Choice::Cpu(obstacle) => place.on_cpu(model, config, obstacle, &links)?,
            Choice::Gpus(gpus) => place.on_gpus(model, config, gpus, &links)?,
        };
        let (own, all, more) = (Vec::new(), Vec::new(), Vec::new());
        let requests = Requests::default();
        let round = Round { world, channel, course, ranks, own, all, more, requests };
        let mut ranks = Self { inner: Some(inner), links, round };
        ranks.round.hand_round(&ranks.links, false)?;
        Ok(ranks)
    }

    /// Hands round what came of an order.
    fn conclude(&mut self, flag: bool) -> Result<bool, Error> {
        self.round.hand_round(&self.links, flag).inspect_err(|error| {
            self.links.abort.fail(error.clone());
            tell(self.round.world, error);
        })
    }
}

impl Ranks for ProcessRanks {
    fn call(&mut self, order: Order<'_>) -> Result<(), Error> {
        let Some(inner) = &mut self.inner else { return Ok(()) };
        let deed = Deed::of_order(&order);
        if let Some(deed) = deed {
            self.round.course.go_on(deed);
        }
        inner.call(order).inspect_err(|error| tell(self.round.world, error))?;
        if deed.is_some() {
            self.conclude(false)?;
        }
        Ok(())
    }

    fn reports(&self) -> &[Mutex<Report>] {
        &self.links.reports
    }

    fn device_line(&self) -> String {
        let inner = self.inner.as_ref().map(|it| it.device_line());
        format!("{}, in {} processes", inner.unwrap_or_default(), self.process().count)
    }

    fn process(&self) -> Process {
        self.round.world.process
    }

    fn here(&self) -> Range<usize> {
        self.round.ranks.clone()
    }

    fn any(&mut self, flag: bool) -> Result<bool, Error> {
        self.round.course.go_on(Deed::of(Act::Ask));
        self.conclude(flag)
    }

    fn refuse(&mut self, error: &Error) {
        self.links.abort.fail(error.clone());
        tell(self.round.world, error);
    }
}

impl Drop for ProcessRanks {
    fn drop(&mut self) {
        // The ranks end before their channel is another trainer's.
        drop(self.inner.take());
        self.round.world.close(&self.round.course, self.round.channel);
        if !self.round.requests.is_empty() {
            // What is still under way after a failure uses this memory for as long as the process lives.
            let Round { own, all, more, .. } = &mut self.round;
            mem::forget((mem::take(own), mem::take(all), mem::take(more)));
        }
    }
}

/// What processes must agree on before they begin.
fn start_of(model: &AnyModel, config: &Config) -> Deed {
    let (tables, kernels) = (model.get().tables(), model.get().kernels());
    let version = env!("CARGO_PKG_VERSION");
    world::start_of(&format!("{version} {tables:?} {kernels:?} {}", config.seed))
}

impl Round {
    /// Hands round the reports of this process's ranks; whether any process has set its flag.
    fn hand_round(&mut self, links: &Links, flag: bool) -> Result<bool, Error> {
        let (order, deed) = self.course.place();
        let Process { number, count } = self.world.process;
        let report = |rank: usize| lock(&links.reports[rank]);
        self.more.resize_with(count, Vec::new);
        self.more.iter_mut().for_each(Vec::clear);
        let is_read = (0..count).any(|it| it != number && deed.is_for(it));
        let has_spans = || self.ranks.clone().any(|it| !report(it).spans.is_empty());
        if is_read && (deed.has_parts() || has_spans()) {
            let more = &mut self.more[number];
            self.ranks.clone().for_each(|it| reports::write_more(&report(it), more));
        }
        let head = Head { order, deed, flag, n_more: self.more[number].len() as u64 };
        self.own.clear();
        reports::write_head(&head, &mut self.own);
        self.ranks.clone().for_each(|it| reports::write(&report(it), &mut self.own));
        let n_bytes = reports::n_bytes(self.ranks.len());
        self.all.resize(n_bytes * count, 0);
        // SAFETY: both stay while they are handed round, which `drop` sees to after a failure.
        unsafe { self.channel.begin_gather(&self.own, &mut self.all, &mut self.requests) }?;
        self.wait(links)?;

        let (mut any, mut has_more) = (false, false);
        for (process, bytes) in self.all.chunks_exact(n_bytes).enumerate() {
            let mut reader = Reader(bytes);
            let found = reader.head()?;
            if (found.order, found.deed) != (order, deed) {
                return Err(differ((process, &found.deed), (number, &deed)));
            }
            any |= found.flag;
            has_more |= found.n_more > 0;
            if process == number {
                continue;
            }
            if deed.is_for(number) {
                let n_more = usize::try_from(found.n_more).unwrap_or(usize::MAX);
                self.more[process].resize(n_more, 0);
            }
            for rank in ranks_of(process, self.ranks.len()) {
                reader.report(&mut report(rank))?;
            }
        }
        if has_more {
            self.hand_round_more(links, deed)?;
        }
        self.course.finish();
        Ok(any)
    }

    /// Hands round what only some orders have, to those that need it.
    fn hand_round_more(&mut self, links: &Links, deed: Deed) -> Result<(), Error> {
        let Process { number, count } = self.world.process;
        let others = || (0..count).filter(|it| *it != number);
        let Self { channel, more, requests, .. } = self;
        for process in others() {
            for (start, length) in pieces(more[process].len(), MAX_PIECE) {
                let to = more[process].as_mut_ptr().wrapping_add(start);
                // SAFETY: as in `hand_round`.
                unsafe { channel.begin_receive((process, TAG), to, length, requests) }?;
            }
        }
        for process in others().filter(|it| deed.is_for(*it)) {
            for (start, length) in pieces(more[number].len(), MAX_PIECE) {
                let from = more[number].as_ptr().wrapping_add(start);
                // SAFETY: as above.
                unsafe { channel.begin_send((process, TAG), from, length, requests) }?;
            }
        }
        self.wait(links)?;
        for process in others().filter(|it| !self.more[*it].is_empty()) {
            let mut reader = Reader(&self.more[process]);
            for rank in ranks_of(process, self.ranks.len()) {
                reader.more(&mut lock(&links.reports[rank]))?;
            }
        }
        self.more.iter_mut().filter(|it| it.capacity() > MAX_KEPT).for_each(|it| *it = Vec::new());
        Ok(())
    }

    fn wait(&mut self, links: &Links) -> Result<(), Error> {
        let watch = Watch { abort: &links.abort, course: &self.course };
        self.world.wait(&mut self.requests, watch)
    }
}

/// The ranks of a process, all of which have as many.
const fn ranks_of(process: usize, n_here: usize) -> Range<usize> {
    process * n_here..(process + 1) * n_here
}
