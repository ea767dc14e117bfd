//! Tests of collectives on virtual GPUs against plain loops.
#![expect(unsafe_code, reason = "collectives run on raw memory")]

mod one_gpu;

use std::thread;

use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;

use super::*;
use crate::cuda::{host_tensor::gpus, memory::DeviceMemory, peers::NoPeers, stream::Priority};

const N_RANKS: usize = 4;
const N_ELEMENTS: usize = 6;

/// Connects GPUs of this process.
fn group(gpus: &[Arc<Gpu>]) -> Result<CommunicatorGroup, Error> {
    let participants: Vec<(usize, Arc<Gpu>)> = gpus.iter().cloned().enumerate().collect();
    let peers: Arc<dyn Peers> = Arc::new(NoPeers);
    CommunicatorGroup::new(&UniqueId::new()?, gpus.len(), &participants, (&peers, None))
}

/// Returns small numbers, which all types represent exactly, as well as their sums.
fn given(participant: usize, n: usize) -> Vec<i16> {
    (0..n).map(|at| i16::try_from((at * 5 + participant * 3) % 17).unwrap() - 8).collect()
}

fn encoded(dtype: DType, values: &[i16]) -> Vec<u8> {
    let bytes = |it: &i16| match dtype {
        DType::F32 => f32::from(*it).to_le_bytes().to_vec(),
        DType::Bf16 => f32::from(*it).to_le_bytes()[2..].to_vec(),
        DType::I32 => i32::from(*it).to_le_bytes().to_vec(),
    };
    values.iter().flat_map(bytes).collect()
}

/// Queues the calls of each rank on a thread of its own.
fn queue(group: &CommunicatorGroup, calls: &[Vec<RankCall>], streams: &[Stream]) {
    thread::scope(|scope| {
        for (rank, (calls, stream)) in calls.iter().zip(streams).enumerate() {
            // SAFETY: the callers give buffers with the elements, and free them after the streams
            // have finished.
            scope.spawn(move || unsafe { group.queue(rank, calls, stream, &|| Ok(())) }.unwrap());
        }
    });
}

/// Runs a group of `n_calls` equal collectives twice on ranks that send `n_given` and receive
/// `n_received` elements in each.
fn check(
    n_ranks: usize,
    [n_given, n_received]: [usize; 2],
    (operation, n_calls): (NcclOperation, usize),
    expected: impl Fn(usize) -> Vec<i16>,
) {
    let gpus = gpus(n_ranks);
    let group = group(&gpus).unwrap();
    for dtype in [DType::F32, DType::Bf16, DType::I32] {
        let stream = |gpu: &Arc<Gpu>| Stream::new(gpu, Priority::High).unwrap();
        let streams: Vec<Stream> = gpus.iter().map(stream).collect();
        let memory = |gpu, n: usize| {
            DeviceMemory::zeroed(gpu, n_calls * n * dtype.bytes(), "a buffer").unwrap()
        };
        let send: Vec<_> = gpus.iter().map(|it| memory(it, n_given)).collect();
        let receive: Vec<_> = gpus.iter().map(|it| memory(it, n_received)).collect();
        for (participant, memory) in send.iter().enumerate() {
            let given = encoded(dtype, &given(participant, n_given));
            memory.write(0, &given.repeat(n_calls)).unwrap();
        }
        let call = |rank: usize, number: usize| {
            let at = |memory: &DeviceMemory, n: usize| memory.address(number * n * dtype.bytes());
            let (send, receive) = (at(&send[rank], n_given), at(&receive[rank], n_received));
            RankCall { operation: operation.clone(), n_elements: N_ELEMENTS, dtype, send, receive }
        };
        let calls = |rank: usize| (0..n_calls).map(|it| call(rank, it)).collect();
        let calls: Vec<Vec<RankCall>> = (0..n_ranks).map(calls).collect();
        (0..2).for_each(|_| queue(&group, &calls, &streams));
        group.check().unwrap();
        for (participant, memory) in receive.iter().enumerate() {
            streams[participant].synchronize().unwrap();
            let mut found = vec![0; n_calls * n_received * dtype.bytes()];
            memory.read(0, &mut found).unwrap();
            let expected = encoded(dtype, &expected(participant)).repeat(n_calls);
            assert_eq!(found, expected, "{operation:?}, participant {participant}, {dtype}");
        }
    }
}

/// Returns the combination of what all ranks send.
fn combined(n_ranks: usize, n: usize, combine: Combine) -> Vec<i16> {
    let all: Vec<Vec<i16>> = (0..n_ranks).map(|it| given(it, n)).collect();
    let at = |pointer_slot: usize| all.iter().map(move |it| it[pointer_slot]);
    let of = |pointer_slot: usize| match combine {
        Combine::Sum => at(pointer_slot).sum(),
        Combine::Max => at(pointer_slot).max().unwrap(),
    };
    (0..n).map(of).collect()
}

fn chunk(values: &[i16], group_rank: usize) -> &[i16] {
    &values[group_rank * N_ELEMENTS..][..N_ELEMENTS]
}

/// Checks every kind of collective of this many ranks.
fn check_collectives(n_ranks: usize) {
    let (one, all) = (N_ELEMENTS, n_ranks * N_ELEMENTS);
    for n_calls in [1, 3] {
        for combine in [Combine::Sum, Combine::Max] {
            check(n_ranks, [one, one], (NcclOperation::AllReduce(combine), n_calls), |_| {
                combined(n_ranks, one, combine)
            });
            check(n_ranks, [all, one], (NcclOperation::ReduceScatter(combine), n_calls), |it| {
                chunk(&combined(n_ranks, all, combine), it).to_vec()
            });
        }
        check(n_ranks, [one, all], (NcclOperation::AllGather, n_calls), |_| {
            (0..n_ranks).flat_map(|it| given(it, one)).collect()
        });
        check(n_ranks, [all, all], (NcclOperation::AllToAll, n_calls), |it| {
            let chunk = |peer| chunk(&given(peer, all), it).to_vec();
            (0..n_ranks).flat_map(chunk).collect()
        });
        // Each rank sends to the next one, and two elements to the one before.
        let count = |receiver: usize, sender: usize| match receiver.abs_diff(sender) {
            1 if receiver > sender => N_ELEMENTS - 2,
            1 => 2,
            _ => 0,
        };
        let counts = (0..n_ranks * n_ranks).map(|it| count(it / n_ranks, it % n_ranks));
        let exchange = NcclOperation::Exchange(counts.collect());
        check(n_ranks, [one, one], (exchange, n_calls), |it| {
            let sent = |peer: usize, receiver: usize| {
                let start: usize = (0..receiver).map(|other| count(other, peer)).sum();
                given(peer, one)[start..start + count(receiver, peer)].to_vec()
            };
            let received = (0..n_ranks).flat_map(|peer| sent(peer, it));
            let mut received: Vec<i16> = received.collect();
            received.resize(one, 0);
            received
        });
    }
}

#[test]
fn collectives_give_the_right_results() {
    on_virtual_gpus("cuda::nccl::tests::collectives_give_the_right_results", &[], |_| {
        check_collectives(N_RANKS);
    });
}

#[test]
fn asynchronous_errors_are_detected() {
    let settings = [("SOYBEAN_FAKE_NCCL_ERROR", "1")];
    on_virtual_gpus("cuda::nccl::tests::asynchronous_errors_are_detected", &settings, |_| {
        let error = group(&gpus(2)).err().expect("NCCL says so while it connects");
        assert_eq!(error.kind(), ErrorKind::Device);
        assert!(error.to_string().starts_with("communication of GPU 0"), "{error}");
    });
}

/// Returns a rank's part of a sum in place.
fn sum(buffer: &DeviceMemory) -> RankCall {
    let operation = NcclOperation::AllReduce(Combine::Sum);
    let (send, receive) = (buffer.address(0), buffer.address(0));
    RankCall { operation, n_elements: N_ELEMENTS, dtype: DType::F32, send, receive }
}

#[test]
fn an_abort_ends_a_call_that_waits_for_a_rank() {
    let test = "cuda::nccl::tests::an_abort_ends_a_call_that_waits_for_a_rank";
    on_virtual_gpus(test, &[], |_| {
        let gpus = gpus(2);
        let group = group(&gpus).unwrap();
        let stream = Stream::new(&gpus[0], Priority::High).unwrap();
        let buffer = DeviceMemory::zeroed(&gpus[0], 4 * N_ELEMENTS, "a buffer").unwrap();
        thread::scope(|scope| {
            // SAFETY: the buffer has the elements, and is freed after the stream has finished.
            let call = || unsafe { group.queue(0, &[sum(&buffer)], &stream, &|| Ok(())) };
            let call = scope.spawn(call);
            thread::sleep(Duration::from_millis(50));
            assert!(!call.is_finished(), "the other rank makes no call");
            group.abort();
            let error = call.join().unwrap().unwrap_err().to_string();
            assert!(error.starts_with("all-reduce of GPU 0") && error.contains("NCCL"), "{error}");
        });
        // SAFETY: as above.
        let error = unsafe { group.queue(0, &[sum(&buffer)], &stream, &|| Ok(())) }.unwrap_err();
        assert!(error.to_string().ends_with("found that it was aborted"), "{error}");
    });
}

#[test]
fn calls_within_a_process_return_when_they_are_queued() {
    let test = "cuda::nccl::tests::calls_within_a_process_return_when_they_are_queued";
    on_virtual_gpus(test, &[], |machine| {
        let gpus = gpus(N_RANKS);
        let group = group(&gpus).unwrap();
        let stream = |gpu: &Arc<Gpu>| Stream::new(gpu, Priority::High).unwrap();
        let streams: Vec<Stream> = gpus.iter().map(stream).collect();
        let memory = |gpu| DeviceMemory::zeroed(gpu, 4 * N_ELEMENTS, "a buffer").unwrap();
        let buffers: Vec<DeviceMemory> = gpus.iter().map(memory).collect();
        let call = |buffer: &DeviceMemory| vec![sum(buffer)];
        let calls: Vec<Vec<RankCall>> = buffers.iter().map(call).collect();
        let n_before = machine.n_calls("ncclCommGetAsyncError");
        (0..3).for_each(|_| queue(&group, &calls, &streams));
        // NCCL was not asked whether it had queued the calls.
        assert_eq!(machine.n_calls("ncclCommGetAsyncError"), n_before);
        streams.iter().for_each(|it| it.synchronize().unwrap());
    });
}
