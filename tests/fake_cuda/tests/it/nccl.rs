//! Tests of NCCL on virtual devices against plain loops.

use std::ffi::{CStr, c_void};
use std::sync::Arc;
use std::thread;

use cudarc::driver::sys::{CUresult, CUstreamCaptureMode, cuGraphInstantiateWithFlags};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, result};
use cudarc::nccl::sys;
use cudarc::nccl::sys::{ncclDataType_t as Type, ncclRedOp_t as Reduction, ncclResult_t as Status};

use crate::child_process::with_devices;

const RANKS: usize = 4;
const N: usize = 8;

struct Rank {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    communicator: sys::ncclComm_t,
    send: CudaSlice<f32>,
    receive: CudaSlice<f32>,
}

// SAFETY: each rank is used by one thread at a time.
unsafe impl Sync for Rank {}

fn pointer(memory: &CudaSlice<f32>) -> *mut c_void {
    memory.device_ptr(memory.stream()).0 as *mut c_void
}

/// Returns the input of a rank: numbers that identify the rank and the element.
fn sent(rank: usize, count: usize, seed: u64) -> Vec<f32> {
    (0..count).map(|place| (rank * 100 + place) as f32 + seed as f32 * 0.5).collect()
}

fn start() {
    // SAFETY: it has no arguments.
    unsafe { sys::ncclGroupStart() }.result().unwrap();
}

fn end() -> Status {
    // SAFETY: a group was started.
    unsafe { sys::ncclGroupEnd() }
}

/// Creates one communicator for each device.
fn ranks() -> Vec<Rank> {
    // SAFETY: an id consists of bytes.
    let mut id: sys::ncclUniqueId = unsafe { std::mem::zeroed() };
    // SAFETY: the result is a local variable.
    unsafe { sys::ncclGetUniqueId(&raw mut id) }.result().unwrap();
    start();
    let ranks = (0..RANKS).map(|rank| {
        let context = CudaContext::new(rank).unwrap();
        // SAFETY: the tests synchronize their work explicitly.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().unwrap();
        let mut communicator = std::ptr::null_mut();
        // SAFETY: the result is a local variable.
        unsafe { sys::ncclCommInitRank(&raw mut communicator, RANKS as i32, id, rank as i32) }
            .result()
            .unwrap();
        let (send, receive) =
            (stream.alloc_zeros(RANKS * N).unwrap(), stream.alloc_zeros(RANKS * N).unwrap());
        Rank { context, stream, communicator, send, receive }
    });
    let ranks = ranks.collect();
    end().result().unwrap();
    ranks
}

impl Rank {
    /// Queues a copy of numbers to the send buffer.
    fn write(&self, from: &[f32]) {
        let (to, stream) = (pointer(&self.send) as u64, self.stream.cu_stream());
        // SAFETY: the allocation has that many numbers.
        unsafe { result::memcpy_htod_async(to, from, stream) }.unwrap();
    }

    fn all_reduce(&self, reduction: Reduction) -> Status {
        let stream = self.stream.cu_stream().cast();
        // SAFETY: both allocations have that many numbers.
        unsafe {
            sys::ncclAllReduce(
                pointer(&self.send),
                pointer(&self.receive),
                N,
                Type::ncclFloat32,
                reduction,
                self.communicator,
                stream,
            )
        }
    }

    fn reduce_scatter(&self) -> Status {
        let (stream, number) = (self.stream.cu_stream().cast(), Type::ncclFloat32);
        // SAFETY: both allocations have that many numbers.
        unsafe {
            sys::ncclReduceScatter(
                pointer(&self.send),
                pointer(&self.receive),
                N,
                number,
                Reduction::ncclSum,
                self.communicator,
                stream,
            )
        }
    }

    fn all_gather(&self) -> Status {
        let stream = self.stream.cu_stream().cast();
        // SAFETY: both allocations have that many numbers.
        unsafe {
            sys::ncclAllGather(
                pointer(&self.send),
                pointer(&self.receive),
                N,
                Type::ncclFloat32,
                self.communicator,
                stream,
            )
        }
    }

    fn broadcast(&self, root: i32) -> Status {
        let stream = self.stream.cu_stream().cast();
        // SAFETY: both allocations have that many numbers.
        unsafe {
            sys::ncclBroadcast(
                pointer(&self.send),
                pointer(&self.receive),
                N,
                Type::ncclFloat32,
                root,
                self.communicator,
                stream,
            )
        }
    }

    /// Sends the first numbers to the next rank, and receives from the previous one.
    fn shift(&self, rank: usize) {
        let (next, previous) = (((rank + 1) % RANKS) as i32, ((rank + RANKS - 1) % RANKS) as i32);
        let stream = self.stream.cu_stream().cast();
        // SAFETY: the allocation has that many numbers.
        unsafe {
            sys::ncclSend(
                pointer(&self.send),
                N,
                Type::ncclFloat32,
                next,
                self.communicator,
                stream,
            )
        }
        .result()
        .unwrap();
        // SAFETY: as above.
        unsafe {
            sys::ncclRecv(
                pointer(&self.receive),
                N,
                Type::ncclFloat32,
                previous,
                self.communicator,
                stream,
            )
        }
        .result()
        .unwrap();
    }
}

/// Makes a call for all ranks in one group, and returns what they receive.
fn together(ranks: &[Rank], seed: u64, call: impl Fn(usize, &Rank)) -> Vec<Vec<f32>> {
    for (number, rank) in ranks.iter().enumerate() {
        rank.context.bind_to_thread().unwrap();
        rank.write(&sent(number, RANKS * N, seed));
    }
    start();
    ranks.iter().enumerate().for_each(|(number, rank)| call(number, rank));
    end().result().unwrap();
    // The last ranks first, so that waiting for one rank does not complete the work of the next.
    let received = ranks.iter().rev().map(|rank| rank.stream.clone_dtoh(&rank.receive).unwrap());
    let mut received: Vec<_> = received.collect();
    received.reverse();
    received
}

/// Reduces the inputs of all ranks at one element.
fn reduced(place: usize, seed: u64, function: fn(f32, f32) -> f32) -> f32 {
    (0..RANKS).map(|rank| sent(rank, RANKS * N, seed)[place]).reduce(function).unwrap()
}

#[test]
fn collectives_are_right_under_every_schedule() {
    with_devices(&[], |control| {
        let ranks = ranks();
        for seed in 0..50 {
            control.reset(seed);
            let sums = |from: usize| -> Vec<f32> {
                (from..from + N).map(|place| reduced(place, seed, |a, b| a + b)).collect()
            };
            let received = together(&ranks, seed, |_, rank| {
                rank.all_reduce(Reduction::ncclSum).result().map(|_| ()).unwrap();
            });
            assert!(received.iter().all(|it| it[..N] == sums(0)));
            let received = together(&ranks, seed, |_, rank| {
                rank.all_reduce(Reduction::ncclMax).result().map(|_| ()).unwrap();
            });
            assert!(received.iter().all(|it| it[..N]
                == (0..N).map(|place| reduced(place, seed, f32::max)).collect::<Vec<_>>()));
            let received = together(&ranks, seed, |_, rank| {
                rank.reduce_scatter().result().map(|_| ()).unwrap();
            });
            assert!(received.iter().enumerate().all(|(rank, it)| it[..N] == sums(rank * N)));
            let received =
                together(&ranks, seed, |_, rank| rank.all_gather().result().map(|_| ()).unwrap());
            let all: Vec<f32> = (0..RANKS).flat_map(|rank| sent(rank, N, seed)).collect();
            assert!(received.iter().all(|it| *it == all));
            let received =
                together(&ranks, seed, |_, rank| rank.broadcast(2).result().map(|_| ()).unwrap());
            assert!(received.iter().all(|it| it[..N] == sent(2, N, seed)));
            let received = together(&ranks, seed, |number, rank| rank.shift(number));
            assert!(
                received
                    .iter()
                    .enumerate()
                    .all(|(rank, it)| it[..N] == sent((rank + RANKS - 1) % RANKS, N, seed))
            );
        }
    });
}

/// Each rank has a thread, which queues messages to neighbors and sums of all.
#[test]
fn several_threads_call_for_their_ranks() {
    with_devices(&[], |control| {
        for seed in 0..10 {
            control.reset(seed);
            let ranks = ranks();
            thread::scope(|scope| {
                for (number, rank) in ranks.iter().enumerate() {
                    scope.spawn(move || {
                        rank.context.bind_to_thread().unwrap();
                        for round in 0..3 {
                            rank.write(&sent(number, RANKS * N, seed + round));
                            start();
                            rank.shift(number);
                            end().result().unwrap();
                            // What came from the previous rank is sent on.
                            let (to, from) = (pointer(&rank.send), pointer(&rank.receive));
                            let (to, from, n_bytes) = (to as u64, from as u64, 4 * N);
                            let stream = rank.stream.cu_stream();
                            // SAFETY: both allocations have that many numbers.
                            unsafe { result::memcpy_dtod_async(to, from, n_bytes, stream) }
                                .unwrap();
                            rank.all_reduce(Reduction::ncclSum).result().unwrap();
                        }
                    });
                }
            });
            let sums: Vec<f32> =
                (0..N).map(|place| reduced(place, seed + 2, |a, b| a + b)).collect();
            for (number, rank) in ranks.iter().enumerate() {
                let found =
                    [&rank.receive, &rank.send].map(|it| rank.stream.clone_dtoh(it).unwrap());
                assert_eq!(found[0][..N], sums);
                assert_eq!(found[1][..N], sent((number + RANKS - 1) % RANKS, N, seed + 2));
            }
            assert_eq!(control.n_complaints(), 0);
        }
    });
}

#[test]
fn collectives_can_be_captured() {
    with_devices(&[], |control| {
        let ranks = ranks();
        let first = &ranks[0];
        first.context.synchronize().unwrap();
        first
            .stream
            .begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
            .unwrap();
        let fork = first.stream.record_event(None).unwrap();
        ranks[1..].iter().for_each(|rank| rank.stream.wait(&fork).unwrap());
        start();
        ranks
            .iter()
            .for_each(|rank| rank.all_reduce(Reduction::ncclSum).result().map(|_| ()).unwrap());
        end().result().unwrap();
        ranks[1..]
            .iter()
            .for_each(|rank| first.stream.wait(&rank.stream.record_event(None).unwrap()).unwrap());
        first.context.bind_to_thread().unwrap();
        // SAFETY: the stream is capturing.
        let graph = unsafe { result::stream::end_capture(first.stream.cu_stream()) }.unwrap();
        let mut executable = std::ptr::null_mut();
        // SAFETY: the graph was just captured.
        unsafe { cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) }.result().unwrap();
        for seed in 0..20 {
            control.reset(seed);
            for (number, rank) in ranks.iter().enumerate() {
                rank.context.bind_to_thread().unwrap();
                // SAFETY: the allocation has that many numbers.
                unsafe {
                    result::memcpy_htod_async(
                        pointer(&rank.send) as u64,
                        &sent(number, N, seed),
                        rank.stream.cu_stream(),
                    )
                }
                .unwrap();
                rank.stream.synchronize().unwrap();
            }
            // SAFETY: both are valid.
            unsafe { result::graph::launch(executable, first.stream.cu_stream()) }.unwrap();
            first.stream.synchronize().unwrap();
            for rank in &ranks {
                let expected: Vec<f32> =
                    (0..N).map(|place| reduced(place, seed, |a, b| a + b)).collect();
                assert_eq!(rank.stream.clone_dtoh(&rank.receive).unwrap()[..N], expected);
            }
        }
        // SAFETY: whether it is refused or not, nothing uses the communicator any longer.
        let end = || unsafe { sys::ncclCommAbort(first.communicator) };
        assert_eq!((end(), control.n_complaints()), (Status::ncclInvalidUsage, 1));
        // SAFETY: nothing uses the graph any longer.
        unsafe { result::graph::destroy(graph) }.unwrap();
        assert_eq!(end(), Status::ncclInvalidUsage);
        // SAFETY: as above.
        unsafe { result::graph::exec_destroy(executable) }.unwrap();
        assert_eq!(end(), Status::ncclSuccess);
    });
}

#[test]
fn calls_that_do_not_fit_are_rejected() {
    with_devices(&[], |control| {
        let ranks = ranks();
        let last_error = || {
            // SAFETY: the communicator is valid.
            let text = unsafe { sys::ncclGetLastError(ranks[0].communicator) };
            // SAFETY: the text is static.
            unsafe { CStr::from_ptr(text) }.to_str().unwrap()
        };
        // After the first sum of all ranks, none waits for others on the host.
        together(&ranks, 0, |_, rank| {
            rank.all_reduce(Reduction::ncclSum).result().unwrap();
        });
        assert_eq!(ranks[0].all_reduce(Reduction::ncclSum), Status::ncclSuccess);
        assert_eq!(ranks[1].all_reduce(Reduction::ncclSum), Status::ncclInvalidUsage);
        assert!(last_error().contains("one after another"));
        assert_eq!(control.n_complaints(), 1);
        let all_gather = || ranks[2].all_gather();
        let on_another_thread = thread::scope(|scope| scope.spawn(all_gather).join().unwrap());
        assert_eq!(on_another_thread, Status::ncclInvalidUsage);
        assert!(last_error().contains("different calls"));
        let stream = ranks[1].stream.cu_stream().cast();
        // SAFETY: the stream belongs to another device, so nothing is done.
        let wrong = unsafe {
            sys::ncclAllGather(
                pointer(&ranks[0].send),
                pointer(&ranks[0].receive),
                N,
                Type::ncclFloat32,
                ranks[0].communicator,
                stream,
            )
        };
        assert_eq!(wrong, Status::ncclInvalidArgument);

        let asynchronous = || {
            let mut status = Status::ncclSuccess;
            // SAFETY: the result is a local variable.
            unsafe { sys::ncclCommGetAsyncError(ranks[0].communicator, &raw mut status) }
                .result()
                .unwrap();
            status
        };
        assert_eq!(asynchronous(), Status::ncclSuccess);
        control.set("soybean_fake_fail_communicators", 1);
        assert_eq!(asynchronous(), Status::ncclRemoteError);
        let (mut count, mut rank) = (0, 0);
        // SAFETY: the results are local variables.
        unsafe { sys::ncclCommCount(ranks[3].communicator, &raw mut count) }.result().unwrap();
        // SAFETY: as above.
        unsafe { sys::ncclCommUserRank(ranks[3].communicator, &raw mut rank) }.result().unwrap();
        assert_eq!((count, rank), (4, 3));
        // SAFETY: nothing uses it any longer.
        unsafe { sys::ncclCommAbort(ranks[0].communicator) }.result().unwrap();
        assert_eq!(ranks[0].all_gather(), Status::ncclInvalidArgument);
    });
}

#[test]
fn a_failure_on_one_device_blocks_shared_operations() {
    with_devices(&[], |_| {
        let ranks = ranks();
        // The last device's allocation is freed before its part runs.
        start();
        ranks
            .iter()
            .for_each(|rank| rank.all_reduce(Reduction::ncclSum).result().map(|_| ()).unwrap());
        let gone = pointer(&ranks[3].send) as u64;
        ranks[3].context.bind_to_thread().unwrap();
        // SAFETY: it is still in use, which is what this tests.
        unsafe { result::free_sync(gone) }.unwrap();
        // It depends on the schedule whether this call fails or a later one.
        let _ = end();
        for rank in &ranks {
            assert_eq!(
                rank.stream.synchronize().unwrap_err().0,
                CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            );
        }
        // Dropping the allocation would free it twice.
        std::mem::forget(ranks);
    });
}

#[test]
fn communicators_may_fail_from_the_start() {
    with_devices(&[("SOYBEAN_FAKE_NCCL_ERROR", "1")], |_| {
        let mut status = Status::ncclSuccess;
        // SAFETY: the result is a local variable.
        unsafe { sys::ncclCommGetAsyncError(ranks()[0].communicator, &raw mut status) }
            .result()
            .unwrap();
        assert_eq!(status, Status::ncclRemoteError);
    });
}
