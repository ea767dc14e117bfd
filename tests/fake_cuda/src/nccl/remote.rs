//! Communicators with ranks in several processes of this machine. A rank appends its data to files,
//! which the other ranks read. Missing data are awaited until the operation is aborted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::collective::CollectiveCall;
use super::group::{Action, Call, Results, submit, submit_task, write_result};
use super::{ApiResult, NcclError, Status};
use crate::state::{lock, report_problem};
use crate::status::{self, DeviceError};
use crate::work::{Communication, Job, Machine, Task};

/// A communicator with some ranks in this process.
pub(super) struct RemoteGroup {
    folder: PathBuf,
    n_ranks: usize,
    here: BTreeSet<usize>,
    /// Number of entries that local ranks have requested, by file name.
    n_requested: Mutex<BTreeMap<String, u64>>,
    /// Readers of local ranks, by rank and file name.
    readers: Mutex<BTreeMap<(usize, String), Reader>>,
}

/// Reader of the entries that another rank writes.
#[derive(Default)]
struct Reader {
    file: Option<File>,
    /// Bytes of the next entry so far.
    bytes: Vec<u8>,
    n_entries: u64,
    entries: BTreeMap<u64, Vec<u8>>,
}

/// An entry of a file, read by a local rank.
#[derive(Clone)]
struct Entry {
    reader: usize,
    name: String,
    number: u64,
}

/// The entries of one operation, in other ranks' files.
#[derive(Clone)]
struct Awaited {
    reader: usize,
    /// For each entry that this rank appends, its file, and the files with its counterparts, which
    /// have the same number.
    files: Vec<(String, Vec<String>)>,
    /// The numbers of the appended entries, for each submission that has not ended. A graph that
    /// captured the operation submits it with each launch.
    numbers: Arc<Mutex<VecDeque<Vec<u64>>>>,
}

impl Awaited {
    /// Returns the entries of the oldest submission.
    fn entries(&self) -> Vec<Entry> {
        let numbers = locked(&self.numbers);
        let numbered = numbers.front().into_iter().flatten().zip(&self.files);
        let entries = |(&number, (_, names)): (&u64, &(String, Vec<String>))| {
            let names = names.clone().into_iter();
            names.map(move |name| Entry { reader: self.reader, name, number })
        };
        numbered.flat_map(entries).collect()
    }

    /// Removes the oldest submission.
    fn end(&self) {
        locked(&self.numbers).pop_front();
    }
}

static ALL: Mutex<BTreeMap<u64, Arc<RemoteGroup>>> = Mutex::new(BTreeMap::new());
const FOLDER: &std::ffi::CStr = c"the folder for several processes cannot be written";

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the communicator, if it has ranks in several processes.
pub(super) fn find(comm_id: u64) -> Option<Arc<RemoteGroup>> {
    locked(&ALL).get(&comm_id).cloned()
}

/// Starts to join local ranks to a communicator that has more ranks.
pub(super) fn join(folder: &Path, calls: &[Call]) -> ApiResult<Arc<RemoteGroup>> {
    let first = calls[0].communicator;
    let remote = RemoteGroup {
        folder: folder.join(format!("{:016x}", first.comm_id)),
        n_ranks: first.n_ranks,
        here: calls.iter().map(|call| call.communicator.rank).collect(),
        n_requested: Mutex::default(),
        readers: Mutex::default(),
    };
    let written = fs::create_dir_all(&remote.folder).and_then(|()| {
        calls.iter().try_for_each(|call| {
            let device = lock().settings.devices[call.communicator.device] as u64;
            remote.append(&joined(call.communicator.rank), &device.to_le_bytes())
        })
    });
    written.map_err(|_| NcclError(Status::SYSTEM_ERROR, FOLDER))?;
    let remote = Arc::new(remote);
    locked(&ALL).insert(first.comm_id, Arc::clone(&remote));
    Ok(remote)
}

fn joined(rank: usize) -> String {
    format!("joined-{rank}")
}

impl RemoteGroup {
    /// Returns true if all ranks have joined.
    pub(super) fn is_joined(&self) -> ApiResult<bool> {
        let mut devices = BTreeSet::new();
        for rank in 0..self.n_ranks {
            let reader = self.here.first().copied().unwrap_or(0);
            let entry = Entry { reader, name: joined(rank), number: 0 };
            let Some(device) = self.poll(&entry, <[u8]>::to_vec) else { return Ok(false) };
            if !devices.insert(device) {
                return Err(NcclError::usage(c"a device takes part twice"));
            }
        }
        Ok(true)
    }

    /// Appends an entry to a file that only this process writes.
    fn append(&self, name: &str, entry: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(self.folder.join(name))?;
        file.write_all(&[&(entry.len() as u64).to_le_bytes(), entry].concat())
    }

    /// Returns the number of the next entry of a file.
    fn next_entry(&self, name: &str) -> u64 {
        let mut n_requested = locked(&self.n_requested);
        let number = n_requested.entry(name.to_owned()).or_default();
        *number += 1;
        *number - 1
    }

    /// Reads an entry, if it has arrived.
    fn poll<R>(&self, entry: &Entry, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let mut readers = locked(&self.readers);
        let reader = readers.entry((entry.reader, entry.name.clone())).or_default();
        if entry.number >= reader.n_entries {
            reader.read(&self.folder.join(&entry.name));
        }
        reader.entries.get(&entry.number).map(|it| read(it))
    }

    /// Removes an entry that has arrived.
    fn take(&self, entry: &Entry) -> Vec<u8> {
        let mut readers = locked(&self.readers);
        let reader = readers.get_mut(&(entry.reader, entry.name.clone()));
        reader.and_then(|it| it.entries.remove(&entry.number)).unwrap_or_default()
    }

    /// Returns a task that appends an entry.
    fn append_task(
        self: &Arc<Self>,
        device: usize,
        name: String,
        entry: impl Fn(&mut Machine) -> Result<Vec<u8>, DeviceError> + Send + Sync + 'static,
    ) -> Task {
        let remote = Arc::clone(self);
        Task::new(device, move |machine| {
            let entry = entry(machine)?;
            remote.append(&name, &entry).map_err(|error| {
                DeviceError::new(status::Status::LAUNCH_FAILED, format!("{name}: {error}"))
            })
        })
    }

    /// Submits a rank's part of a collective.
    pub(super) fn submit_collective(
        self: &Arc<Self>,
        call: &Call,
        CollectiveCall { kind, dtype, count }: CollectiveCall,
        [send, receive]: [u64; 2],
    ) -> ApiResult {
        let (rank, device) = (call.communicator.rank, call.communicator.device);
        let n_bytes = kind.counts(count, self.n_ranks).0 * dtype.n_bytes();
        let name = |rank: usize| format!("all-{rank}");
        let header = format!("{kind:?} {dtype:?} {count};").into_bytes();
        let is_sender = kind.sender().is_none_or(|root| root == rank);
        let start = header.clone();
        submit_task(
            call.stream,
            self.append_task(device, name(rank), move |machine| {
                let sent = if is_sender { machine.memory.read(send, n_bytes)? } else { Vec::new() };
                Ok([&start[..], &sent].concat())
            }),
        )?;
        let files = vec![(name(rank), (0..self.n_ranks).map(name).collect())];
        let awaited = Awaited { reader: rank, files, numbers: Arc::default() };
        let communication = self.communication(call, &awaited, {
            let header = header.clone();
            move |_, entry| entry.starts_with(&header)
        });
        let results = Results::default();
        let (remote, all) = (Arc::clone(self), Arc::clone(&results));
        let job: Job = Arc::new(move |_: &mut Machine| {
            let entries = awaited.entries();
            let inputs = entries.iter().map(|it| remote.take(it).split_off(header.len()));
            let inputs: Vec<Vec<u8>> = inputs.collect();
            awaited.end();
            *locked(&all) = vec![kind.results(dtype, &inputs).swap_remove(rank)];
            Ok(())
        });
        let is_receiver = kind.receiver().is_none_or(|root| root == rank);
        let after = is_receiver.then(|| (call.stream, write_result(device, results, 0, receive)));
        let after = after.into_iter().collect();
        submit(communication, &[call.stream], job, after)
    }

    /// Submits the messages of a rank in a group. A send waits for its receive, as NCCL permits.
    pub(super) fn submit_messages(self: &Arc<Self>, calls: &[Call]) -> ApiResult {
        let (rank, device) = (calls[0].communicator.rank, calls[0].communicator.device);
        let (mut files, mut sizes) = (Vec::new(), Vec::new());
        let (mut after, results) = (Vec::new(), Results::default());
        let mut received = Vec::new();
        for call in calls {
            let (own, other, task, size) = match call.action {
                Action::Send { to, data, n_bytes } => {
                    let own = format!("sent-{rank}-{to}");
                    let read = move |machine: &mut Machine| machine.memory.read(data, n_bytes);
                    (
                        own.clone(),
                        format!("awaited-{to}-{rank}"),
                        self.append_task(device, own, read),
                        0,
                    )
                }
                Action::Receive { from, data, n_bytes } => {
                    let own = format!("awaited-{rank}-{from}");
                    received.push(files.len());
                    let task = write_result(device, Arc::clone(&results), received.len() - 1, data);
                    after.push((call.stream, task));
                    let task = self.append_task(device, own.clone(), |_| Ok(Vec::new()));
                    (own, format!("sent-{from}-{rank}"), task, n_bytes)
                }
                Action::Join | Action::Collective { .. } => continue,
            };
            submit_task(call.stream, task)?;
            files.push((own, vec![other]));
            sizes.push(size);
        }
        let awaited = Awaited { reader: rank, files, numbers: Arc::default() };
        let communication =
            self.communication(&calls[0], &awaited, move |at, entry| entry.len() == sizes[at]);
        let (remote, all) = (Arc::clone(self), results);
        let job: Job = Arc::new(move |_: &mut Machine| {
            let taken: Vec<Vec<u8>> = awaited.entries().iter().map(|it| remote.take(it)).collect();
            awaited.end();
            *locked(&all) = received.iter().map(|it| taken[*it].clone()).collect();
            Ok(())
        });
        let streams: BTreeSet<u64> = calls.iter().map(|call| call.stream).collect();
        let streams: Vec<u64> = streams.into_iter().collect();
        submit(communication, &streams, job, after)
    }

    /// Describes an operation, which runs when all entries have arrived. An unexpected entry blocks
    /// for ever, as in NCCL.
    fn communication(
        self: &Arc<Self>,
        call: &Call,
        awaited: &Awaited,
        is_expected: impl Fn(usize, &[u8]) -> bool + Send + Sync + 'static,
    ) -> Communication {
        let (remote, submitted) = (Arc::clone(self), awaited.clone());
        let on_submit = move || {
            let own = submitted.files.iter().map(|(own, _)| own);
            let numbers = own.map(|it| remote.next_entry(it)).collect();
            locked(&submitted.numbers).push_back(numbers);
        };
        let (remote, awaited) = (Arc::clone(self), awaited.clone());
        let is_told = AtomicBool::new(false);
        let is_ready = move || {
            awaited.entries().iter().enumerate().all(|(at, entry)| {
                match remote.poll(entry, |it| is_expected(at, it)) {
                    Some(true) => true,
                    None => false,
                    Some(false) => {
                        if !is_told.swap(true, Ordering::Relaxed) {
                            report_problem("ranks of a communicator make different calls");
                        }
                        false
                    }
                }
            })
        };
        Communication {
            comm_id: call.communicator.comm_id,
            is_ready: Some(Arc::new(is_ready)),
            spans_processes: true,
            on_submit: Some(Arc::new(on_submit)),
        }
    }
}

impl Reader {
    /// Reads new bytes.
    fn read(&mut self, path: &Path) {
        if self.file.is_none() {
            self.file = File::open(path).ok();
        }
        // A file that cannot be read has not arrived yet.
        let Some(Ok(_)) = self.file.as_mut().map(|it| it.read_to_end(&mut self.bytes)) else {
            return;
        };
        while let Some((length, rest)) = self.bytes.split_first_chunk() {
            let n_bytes = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
            let Some((entry, rest)) = rest.split_at_checked(n_bytes) else { return };
            self.entries.insert(self.n_entries, entry.to_vec());
            self.n_entries += 1;
            self.bytes = rest.to_vec();
        }
    }
}
