//! Test of NCCL between two processes with two devices each: ranks driven by one thread do not wait
//! for each other.

use std::ffi::c_void;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, process, thread};

use cudarc::driver::sys::{
    CUgraphExec, CUresult, CUstreamCaptureMode, cuGraphInstantiateWithFlags, cuStreamQuery,
};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, result};
use cudarc::nccl::sys;
use cudarc::nccl::sys::{ncclDataType_t as Type, ncclRedOp_t as Reduction, ncclResult_t as Status};

use crate::child_process::with_devices;

const N: usize = 5;
const N_ROUNDS: usize = 30;
const FOLDER: &str = "SOYBEAN_FAKE_NCCL_FOLDER";
/// Variable with the number of the process.
const SIDE: &str = "SOYBEAN_TEST_SIDE";

/// A rank of a communicator that has one rank in each process.
struct Rank {
    stream: Arc<CudaStream>,
    communicator: sys::ncclComm_t,
    side: usize,
    number: usize,
    send: CudaSlice<f32>,
    receive: CudaSlice<f32>,
}

fn pointer(memory: &CudaSlice<f32>) -> *mut c_void {
    memory.device_ptr(memory.stream()).0 as *mut c_void
}

/// Returns the input of a rank in a round.
fn sent(side: usize, number: usize, round: usize) -> Vec<f32> {
    (0..N).map(|place| (1000 * side + 100 * number + 10 * round + place) as f32).collect()
}

impl Rank {
    /// Creates the rank of this process in the communicator with this number, on the device with
    /// the same number.
    fn new(side: usize, number: usize) -> Self {
        let context = CudaContext::new(number).unwrap();
        // SAFETY: the test synchronizes its work explicitly.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().unwrap();
        // SAFETY: an id consists of bytes.
        let mut id: sys::ncclUniqueId = unsafe { std::mem::zeroed() };
        // The same id in both processes.
        id.internal[0] = 1 + number as i8;
        // SAFETY: a configuration consists of numbers.
        let mut config: sys::ncclConfig_t = unsafe { std::mem::zeroed() };
        (config.size, config.magic, config.version) = (size_of_val(&config), 0xcafe_beef, 22_800);
        let mut communicator = std::ptr::null_mut();
        let (place, config) = (&raw mut communicator, &raw mut config);
        // SAFETY: both are local variables.
        let begun = unsafe { sys::ncclCommInitRankConfig(place, 2, id, side as i32, config) };
        assert_eq!(begun, Status::ncclInProgress);
        let (send, receive) = (stream.alloc_zeros(N).unwrap(), stream.alloc_zeros(N).unwrap());
        let rank = Self { stream, communicator, side, number, send, receive };
        rank.wait_until_idle();
        rank
    }

    fn state(&self) -> Status {
        let mut state = Status::ncclSuccess;
        // SAFETY: the result is a local variable.
        unsafe { sys::ncclCommGetAsyncError(self.communicator, &raw mut state) }.result().unwrap();
        state
    }

    /// Waits until no work is in progress in the background.
    fn wait_until_idle(&self) {
        while self.state() == Status::ncclInProgress {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.state(), Status::ncclSuccess);
    }

    fn write_input(&self, round: usize) {
        self.stream.context().bind_to_thread().unwrap();
        let (to, from) = (pointer(&self.send) as u64, sent(self.side, self.number, round));
        // SAFETY: the allocation has that many numbers.
        unsafe { result::memcpy_htod_async(to, &from, self.stream.cu_stream()) }.unwrap();
    }

    fn sum(&self) {
        let (send, receive) = (pointer(&self.send), pointer(&self.receive));
        let (sum, stream) = (Reduction::ncclSum, self.stream.cu_stream().cast());
        // SAFETY: both allocations have that many numbers.
        let begun = unsafe {
            sys::ncclAllReduce(send, receive, N, Type::ncclFloat32, sum, self.communicator, stream)
        };
        assert_eq!(begun, Status::ncclInProgress);
        self.wait_until_idle();
    }

    /// Exchanges data with the rank of the other process.
    fn swap(&self) {
        let (peer, stream) = (1 - self.side as i32, self.stream.cu_stream().cast());
        let (send, receive, number) =
            (pointer(&self.send), pointer(&self.receive), Type::ncclFloat32);
        // SAFETY: the group is ended below.
        unsafe { sys::ncclGroupStart() }.result().unwrap();
        // SAFETY: the allocation has that many numbers.
        unsafe { sys::ncclSend(send, N, number, peer, self.communicator, stream) }
            .result()
            .unwrap();
        // SAFETY: as above.
        unsafe { sys::ncclRecv(receive, N, number, peer, self.communicator, stream) }
            .result()
            .unwrap();
        // SAFETY: a group was started.
        assert_eq!(unsafe { sys::ncclGroupEnd() }, Status::ncclInProgress);
        self.wait_until_idle();
    }

    /// Captures a sum and an exchange.
    fn graph(&self) -> CUgraphExec {
        self.stream.context().bind_to_thread().unwrap();
        let stream = self.stream.cu_stream();
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is valid.
        unsafe { result::stream::begin_capture(stream, mode) }.unwrap();
        self.sum();
        self.swap();
        // SAFETY: the stream is capturing.
        let graph = unsafe { result::stream::end_capture(stream) }.unwrap();
        let mut executable = std::ptr::null_mut();
        // SAFETY: the graph was just captured.
        unsafe { cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) }.result().unwrap();
        // SAFETY: the executable graph is independent of it.
        unsafe { result::graph::destroy(graph) }.unwrap();
        executable
    }

    fn launch(&self, graph: CUgraphExec) {
        self.stream.context().bind_to_thread().unwrap();
        // SAFETY: both are valid.
        unsafe { result::graph::launch(graph, self.stream.cu_stream()) }.unwrap();
    }

    fn received(&self) -> Vec<f32> {
        self.stream.clone_dtoh(&self.receive).unwrap()
    }
}

/// Runs one of the two processes.
fn run(side: usize) {
    let ranks = [Rank::new(side, 0), Rank::new(side, 1)];
    // The two processes use opposite orders.
    let in_turn = || if side == 0 { [&ranks[0], &ranks[1]] } else { [&ranks[1], &ranks[0]] };
    for round in 0..N_ROUNDS {
        for rank in in_turn() {
            rank.write_input(round);
            rank.sum();
        }
        for rank in in_turn() {
            let [one, other] = [0, 1].map(|side| sent(side, rank.number, round));
            let sum: Vec<f32> = one.iter().zip(&other).map(|(one, other)| one + other).collect();
            assert_eq!(rank.received(), sum, "round {round}");
        }
        in_turn().iter().for_each(|rank| rank.swap());
        for rank in in_turn() {
            assert_eq!(rank.received(), sent(1 - side, rank.number, round), "round {round}");
        }
    }
    // Launches of a graph and calls outside it take turns.
    let graphs = [0, 1].map(|number| ranks[number].graph());
    for round in 0..N_ROUNDS {
        for rank in in_turn() {
            rank.write_input(round);
            rank.launch(graphs[rank.number]);
            if round % 3 == 0 {
                rank.sum();
                rank.swap();
            }
            rank.launch(graphs[rank.number]);
        }
        for rank in in_turn() {
            assert_eq!(rank.received(), sent(1 - side, rank.number, round), "round {round}");
        }
    }
    // SAFETY: the launches are complete.
    graphs.into_iter().for_each(|it| unsafe { result::graph::exec_destroy(it) }.unwrap());
    if side == 1 {
        return;
    }
    // The other process makes no matching call, so nothing happens until the operation is aborted.
    ranks[0].sum();
    for _ in 0..1000 {
        // SAFETY: the stream is valid.
        let state = unsafe { cuStreamQuery(ranks[0].stream.cu_stream()) };
        assert_eq!(state, CUresult::CUDA_ERROR_NOT_READY);
    }
    // SAFETY: nothing uses it any longer.
    unsafe { sys::ncclCommAbort(ranks[0].communicator) }.result().unwrap();
    ranks[0].stream.synchronize().unwrap();
}

#[test]
fn ranks_of_two_processes_progress_independently() {
    with_devices(&[("SOYBEAN_FAKE_DEVICES", "2")], |_| {
        if let Ok(side) = env::var(SIDE) {
            return run(side.parse().unwrap());
        }
        for seed in 1..5 {
            let folder = env::temp_dir().join(format!("soybean-two-{}-{seed}", process::id()));
            let start = |side: usize| -> Child {
                // Each process sees its own devices.
                let mut command = Command::new(env::current_exe().unwrap());
                command.args(env::args().skip(1)).env(SIDE, side.to_string()).env(FOLDER, &folder);
                command.env("SOYBEAN_FAKE_DEVICES", "4");
                command.env("CUDA_VISIBLE_DEVICES", ["0,1", "2,3"][side]);
                command.env("SOYBEAN_FAKE_SEED", (seed + 10 * side).to_string()).spawn().unwrap()
            };
            let children = [start(0), start(1)];
            let ended = children.map(|mut it| it.wait().unwrap().success());
            assert_eq!(ended, [true, true], "seed {seed}");
            assert!(Path::new(&folder).exists());
            fs::remove_dir_all(&folder).unwrap();
        }
    });
}
