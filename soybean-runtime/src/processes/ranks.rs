//! The ranks of a model in several processes. Local ranks are threads or on GPUs. The reports of
//! all ranks are exchanged after each command.
#![expect(unsafe_code, reason = "pending reports refer to memory that must stay valid")]

use std::{
    mem,
    ops::Range,
    sync::{Arc, Mutex},
};

#[cfg(feature = "cuda")]
use super::mpi_peers::MpiPeers;
use super::{
    Process,
    device_choice::{DeviceChoice, DeviceOffer, choose_devices},
    inbox::mismatch,
    mpi_communicator::{MpiCommunicator, Requests},
    mpi_transport::{MAX_LOCAL_RANKS, MAX_MESSAGE_BYTES, MpiTransport, chunks},
    progress::{Operation, OperationKind, Progress},
    report_codec::{self, ReportHeader, ReportReader},
    silence::PeerTimeout,
    world::{self, WaitContext, World},
};
#[cfg(feature = "cuda")]
use crate::cuda::{CudaRanks, LocalRanks};
use crate::{
    Config, Error, ErrorKind, MemoryBesidePlan,
    abort::lock,
    cpu::{CpuRanks, Part},
    dispatch::SharedState,
    model::AnyModel,
    ranks::{Command, Ranks, Report},
    transport::Transport,
};

/// Tag of the extra data that only some orders exchange. No other messages are pending at that
/// time.
const TAG: usize = 0;

/// Maximum capacity of a buffer that is kept for later exchanges.
const MAX_RETAINED_BYTES: usize = 1 << 20;

/// The local ranks, and the exchange of reports with other processes.
struct ProcessRanks {
    /// `None` only while it is dropped.
    inner: Option<Box<dyn Ranks>>,
    shared: SharedState,
    exchange: ReportExchange,
}

/// The exchange of reports after an command.
struct ReportExchange {
    world: &'static World,
    communicator: MpiCommunicator,
    progress: Arc<Progress>,
    ranks: Range<usize>,
    own: Vec<u8>,
    all: Vec<u8>,
    /// Extra data of each process, in addition to the fixed part of every command.
    extra: Vec<Vec<u8>>,
    requests: Requests,
}

/// Starts the ranks of this process. Process 0 has the first `n / count` of the mesh's `n` ranks,
/// and so on. The slowest axes of the mesh are therefore between processes.
pub(crate) fn start_ranks(model: &AnyModel, config: &Config) -> Result<Box<dyn Ranks>, Error> {
    let world = world::join()?;
    let shared = local_ranks(model, world.process).map(|ranks| {
        let n_ranks = model.get().tables().mesh.n_ranks();
        (SharedState::new(ranks.len(), n_ranks), ranks)
    });
    let started =
        shared.and_then(|(shared, ranks)| ProcessRanks::start(world, model, config, shared, ranks));
    started
        .map(|it| Box::new(it) as Box<dyn Ranks>)
        .inspect_err(|error| report_failure(world, error))
}

/// Returns the ranks of a process.
fn local_ranks(model: &AnyModel, process: Process) -> Result<Range<usize>, Error> {
    let n_ranks = model.get().tables().mesh.n_ranks();
    let error = |message| Err(Error::new(ErrorKind::Process, message));
    let Process { number, count } = process;
    if !n_ranks.is_multiple_of(count) {
        return error(format!(
            "expected a number of processes that divides the model's {n_ranks} ranks, found {count}"
        ));
    }
    let n_local = n_ranks / count;
    if n_local > MAX_LOCAL_RANKS {
        return error(format!(
            "expected at most {MAX_LOCAL_RANKS} ranks in each of several processes, found {n_local}"
        ));
    }
    Ok(number * n_local..(number + 1) * n_local)
}

/// Reports a failure to the other processes. It is printed where the program ends.
fn report_failure(world: &World, error: &Error) {
    world.control.report_failure(&error.to_string());
}

/// The context in which the ranks of a process start.
struct RankStarter {
    world: &'static World,
    communicator: MpiCommunicator,
    progress: Arc<Progress>,
    ranks: Range<usize>,
}

impl RankStarter {
    /// Starts the ranks as threads.
    fn start_on_cpu(
        self,
        model: &AnyModel,
        config: &Config,
        obstacle: Option<String>,
        shared: &SharedState,
    ) -> Result<Box<dyn Ranks>, Error> {
        let Self { world, communicator, progress, ranks } = self;
        let n_local = ranks.len();
        let transport = |rank| -> Option<Box<dyn Transport>> {
            let (progress, requests) = (Arc::clone(&progress), Requests::default());
            Some(Box::new(MpiTransport { world, communicator, progress, rank, n_local, requests }))
        };
        let part = Part { ranks, n_cores: world.n_cores, transport: &transport };
        let ranks = CpuRanks::start(model, config, obstacle, &part, shared.clone())?;
        Ok(Box::new(ranks))
    }

    /// Starts the ranks on GPUs, one on each.
    #[cfg(feature = "cuda")]
    fn start_on_gpus(
        self,
        model: &AnyModel,
        config: &Config,
        gpus: Range<usize>,
        shared: &SharedState,
    ) -> Result<Box<dyn Ranks>, Error> {
        let Self { world, communicator, progress, ranks } = self;
        let (reports, abort) = (Arc::clone(&shared.reports), Arc::clone(&shared.abort));
        let peers = Arc::new(MpiPeers { world, communicator, progress, abort });
        let local = LocalRanks { ranks, gpus, reports, peers };
        Ok(Box::new(CudaRanks::start(model, config, local)?))
    }

    /// Without the feature, no process offers GPUs.
    #[cfg(not(feature = "cuda"))]
    fn start_on_gpus(
        self,
        _: &AnyModel,
        _: &Config,
        _: Range<usize>,
        _: &SharedState,
    ) -> Result<Box<dyn Ranks>, Error> {
        Err(crate::devices::not_built_in())
    }
}

impl ProcessRanks {
    fn start(
        world: &'static World,
        model: &AnyModel,
        config: &Config,
        shared: SharedState,
        ranks: Range<usize>,
    ) -> Result<Self, Error> {
        world.control.set_peer_timeout(PeerTimeout(config.peer_timeout.filter(|it| !it.is_zero())));
        let (progress, communicator) =
            world.open_trainer(start_operation(model, config), &shared.abort)?;
        let context = WaitContext { abort: &shared.abort, progress: &progress };
        let offer = DeviceOffer::of_process(progress.current().1, config.device, world.machine);
        let offers = world.all_gather(communicator, &offer.to_bytes(), context)?;
        let starter = RankStarter {
            world,
            communicator,
            progress: Arc::clone(&progress),
            ranks: ranks.clone(),
        };
        let inner = match choose_devices(&offers, world.process.number, ranks.len())? {
            DeviceChoice::Cpu(obstacle) => {
                starter.start_on_cpu(model, config, obstacle, &shared)?
            }
            DeviceChoice::Gpus(gpus) => starter.start_on_gpus(model, config, gpus, &shared)?,
        };
        let (own, all, extra) = (Vec::new(), Vec::new(), Vec::new());
        let requests = Requests::default();
        let exchange =
            ReportExchange { world, communicator, progress, ranks, own, all, extra, requests };
        let mut ranks = Self { inner: Some(inner), shared, exchange };
        ranks.exchange.all_gather(&ranks.shared, false)?;
        Ok(ranks)
    }

    /// Exchanges the reports of an command. Returns true if any process has set its flag.
    fn exchange_reports(&mut self, flag: bool) -> Result<bool, Error> {
        self.exchange.all_gather(&self.shared, flag).inspect_err(|error| {
            self.shared.abort.fail(error.clone());
            report_failure(self.exchange.world, error);
        })
    }
}

impl Ranks for ProcessRanks {
    fn call(&mut self, command: Command<'_>) -> Result<(), Error> {
        let Some(inner) = &mut self.inner else { return Ok(()) };
        let operation = Operation::of_command(&command);
        if let Some(operation) = operation {
            self.exchange.progress.begin(operation);
        }
        inner.call(command).inspect_err(|error| report_failure(self.exchange.world, error))?;
        if operation.is_some() {
            self.exchange_reports(false)?;
        }
        Ok(())
    }

    fn reports(&self) -> &[Mutex<Report>] {
        &self.shared.reports
    }

    fn device_line(&self) -> String {
        let inner = self.inner.as_ref().map(|it| it.device_line());
        format!("{}, in {} processes", inner.unwrap_or_default(), self.process().count)
    }

    fn memory_beside_plan(&self) -> MemoryBesidePlan {
        self.inner.as_ref().map(|it| it.memory_beside_plan()).unwrap_or_default()
    }

    fn process(&self) -> Process {
        self.exchange.world.process
    }

    fn local_ranks(&self) -> Range<usize> {
        self.exchange.ranks.clone()
    }

    fn any(&mut self, flag: bool) -> Result<bool, Error> {
        self.exchange.progress.begin(Operation::of(OperationKind::Ask));
        self.exchange_reports(flag)
    }

    fn gather(&mut self, own: &[u8]) -> Result<Vec<u8>, Error> {
        let argument = u32::try_from(own.len()).unwrap_or(u32::MAX);
        let operation = Operation { argument, ..Operation::of(OperationKind::Ask) };
        self.exchange.progress.begin(operation);
        // All processes are here before the bytes are sent, and send equally many.
        self.exchange_reports(false)?;
        let ReportExchange { world, communicator, progress, .. } = &self.exchange;
        let context = WaitContext { abort: &self.shared.abort, progress };
        world.all_gather(*communicator, own, context).inspect_err(|error| {
            self.shared.abort.fail(error.clone());
            report_failure(world, error);
        })
    }

    fn report_error(&mut self, error: &Error) {
        self.shared.abort.fail(error.clone());
        report_failure(self.exchange.world, error);
    }
}

impl Drop for ProcessRanks {
    fn drop(&mut self) {
        // The ranks must end before another trainer takes their communicator.
        drop(self.inner.take());
        self.exchange.world.close_trainer(&self.exchange.progress, self.exchange.communicator);
        if !self.exchange.requests.is_empty() {
            // After a failure, pending requests use this memory as long as the process lives.
            let ReportExchange { own, all, extra, .. } = &mut self.exchange;
            mem::forget((mem::take(own), mem::take(all), mem::take(extra)));
        }
    }
}

/// Returns the operation on which all processes must agree before they start.
fn start_operation(model: &AnyModel, config: &Config) -> Operation {
    let (tables, kernels) = (model.get().tables(), model.get().kernels());
    let version = env!("CARGO_PKG_VERSION");
    world::start_operation(&format!("{version} {tables:?} {kernels:?} {}", config.seed))
}

impl ReportExchange {
    /// Exchanges the reports of the local ranks. Returns true if any process has set its flag.
    fn all_gather(&mut self, shared: &SharedState, flag: bool) -> Result<bool, Error> {
        let (sequence, operation) = self.progress.current();
        let Process { number, count } = self.world.process;
        let report = |rank: usize| lock(&shared.reports[rank]);
        self.extra.resize_with(count, Vec::new);
        self.extra.iter_mut().for_each(Vec::clear);
        let is_read = (0..count).any(|it| it != number && operation.is_for(it));
        let has_spans = || self.ranks.clone().any(|it| !report(it).spans.is_empty());
        if is_read && (operation.has_parts() || has_spans()) {
            let extra = &mut self.extra[number];
            self.ranks.clone().for_each(|it| report_codec::write_extra(&report(it), extra));
        }
        let header = ReportHeader {
            sequence,
            operation,
            flag,
            n_extra_bytes: self.extra[number].len() as u64,
        };
        self.own.clear();
        report_codec::write_header(&header, &mut self.own);
        self.ranks.clone().for_each(|it| report_codec::write(&report(it), &mut self.own));
        let n_bytes = report_codec::n_bytes(self.ranks.len());
        self.all.resize(n_bytes * count, 0);
        // SAFETY: both buffers stay valid during the request; `drop` leaks them after a failure.
        unsafe {
            self.communicator.begin_all_gather(&self.own, &mut self.all, &mut self.requests)
        }?;
        self.wait(shared)?;

        let (mut any, mut has_extra) = (false, false);
        for (process, bytes) in self.all.chunks_exact(n_bytes).enumerate() {
            let mut reader = ReportReader(bytes);
            let found = reader.header()?;
            if (found.sequence, found.operation) != (sequence, operation) {
                return Err(mismatch((process, &found.operation), (number, &operation)));
            }
            any |= found.flag;
            has_extra |= found.n_extra_bytes > 0;
            if process == number {
                continue;
            }
            if operation.is_for(number) {
                let n_extra_bytes = usize::try_from(found.n_extra_bytes).unwrap_or(usize::MAX);
                self.extra[process].resize(n_extra_bytes, 0);
            }
            for rank in ranks_of(process, self.ranks.len()) {
                reader.report(&mut report(rank))?;
            }
        }
        if has_extra {
            self.exchange_extra(shared, operation)?;
        }
        self.progress.finish();
        Ok(any)
    }

    /// Exchanges the extra data of some orders with the processes that need it.
    fn exchange_extra(&mut self, shared: &SharedState, operation: Operation) -> Result<(), Error> {
        let Process { number, count } = self.world.process;
        let peers = || (0..count).filter(|it| *it != number);
        let Self { communicator, extra, requests, .. } = self;
        for process in peers() {
            for (start, length) in chunks(extra[process].len(), MAX_MESSAGE_BYTES) {
                let to = extra[process].as_mut_ptr().wrapping_add(start);
                // SAFETY: as in `all_gather`.
                unsafe { communicator.begin_receive((process, TAG), to, length, requests) }?;
            }
        }
        for process in peers().filter(|it| operation.is_for(*it)) {
            for (start, length) in chunks(extra[number].len(), MAX_MESSAGE_BYTES) {
                let from = extra[number].as_ptr().wrapping_add(start);
                // SAFETY: as above.
                unsafe { communicator.begin_send((process, TAG), from, length, requests) }?;
            }
        }
        self.wait(shared)?;
        for process in peers().filter(|it| !self.extra[*it].is_empty()) {
            let mut reader = ReportReader(&self.extra[process]);
            for rank in ranks_of(process, self.ranks.len()) {
                reader.extra(&mut lock(&shared.reports[rank]))?;
            }
        }
        self.extra
            .iter_mut()
            .filter(|it| it.capacity() > MAX_RETAINED_BYTES)
            .for_each(|it| *it = Vec::new());
        Ok(())
    }

    fn wait(&mut self, shared: &SharedState) -> Result<(), Error> {
        let context = WaitContext { abort: &shared.abort, progress: &self.progress };
        self.world.wait(&mut self.requests, context)
    }
}

/// Returns the ranks of a process. All processes have equally many.
const fn ranks_of(process: usize, n_local: usize) -> Range<usize> {
    process * n_local..(process + 1) * n_local
}
