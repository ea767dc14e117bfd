//! Tests of streams, events, copies, kernels and graphs of the virtual driver.

use cudarc::driver::sys::{CUresult, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaSlice, DriverError, result, sys};
use cudarc::nvrtc::Ptx;

use crate::child_process::with_devices;
use crate::test_device::{Device, N, TEXT, address, compile};

/// Each device doubles its shard and gathers all shards. Returns true if all of them have the
/// complete result. The initial content depends on the seed.
fn gathers(devices: &[Device], blocks: &[[CudaSlice<f32>; 3]], seed: u64) -> bool {
    let shards: Vec<Vec<f32>> =
        (0..devices.len()).map(|rank| vec![(4 * seed + rank as u64) as f32; N]).collect();
    let mut events = Vec::new();
    for ((device, [x, y, _]), shard) in devices.iter().zip(blocks).zip(&shards) {
        device.context.bind_to_thread().unwrap();
        let raw = device.compute.cu_stream();
        // SAFETY: the allocation has that many numbers.
        unsafe { result::memcpy_htod_async(address(x), shard, raw) }.unwrap();
        device.launch_twice(address(y), address(x)).unwrap();
        events.push(device.compute.record_event(None).unwrap());
    }
    for (device, [_, _, all]) in devices.iter().zip(blocks) {
        events.iter().for_each(|event| device.communication.wait(event).unwrap());
        for (number, ((other, [_, y, _]), _)) in devices.iter().zip(blocks).zip(&events).enumerate()
        {
            let (to, stream) =
                (address(all) + (number * N * 4) as u64, device.communication.cu_stream());
            // SAFETY: both allocations can hold a shard.
            unsafe {
                result::memcpy_peer_async(
                    device.context.cu_ctx(),
                    to,
                    other.context.cu_ctx(),
                    address(y),
                    N * 4,
                    stream,
                )
            }
            .unwrap();
        }
    }
    let mut is_right = true;
    for (device, [_, _, all]) in devices.iter().zip(blocks) {
        let found = device.communication.clone_dtoh(all).unwrap();
        is_right &= found
            .chunks(N)
            .zip(&shards)
            .all(|(found, shard)| found.iter().all(|it| *it == 2.0 * shard[0]));
    }
    devices.iter().for_each(|device| device.context.synchronize().unwrap());
    is_right
}

#[test]
fn gather_by_copies_is_right_under_every_schedule_and_wrong_without_a_wait() {
    with_devices(&[], |control| {
        let devices: Vec<Device> = (0..4).map(Device::new).collect();
        let blocks: Vec<_> =
            devices.iter().map(|it| [it.block(N), it.block(N), it.block(4 * N)]).collect();
        for seed in 0..200 {
            control.reset(seed);
            assert!(gathers(&devices, &blocks, seed), "seed {seed}");
        }
        for wait in 1..=16 {
            control.set("soybean_fake_skip_wait", wait);
            let n_wrong = (0..100).filter(|&seed| {
                control.reset(seed);
                !gathers(&devices, &blocks, seed)
            });
            let n_wrong = n_wrong.count();
            assert!(n_wrong > 0, "nobody misses wait {wait}");
        }
    });
}

/// Captures on two devices: `y = 2 x`, a copy of `y` to the other device, and `all = 2 copy` there.
fn capture(
    devices: &[Device; 2],
    blocks: [sys::CUdeviceptr; 4],
    join: bool,
) -> Result<sys::CUgraph, DriverError> {
    let [first, second] = devices;
    let [x, y, copy, all] = blocks;
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    first.compute.begin_capture(mode).unwrap();
    first.launch_twice(y, x).unwrap();
    second.compute.wait(&first.compute.record_event(None).unwrap()).unwrap();
    let contexts = (second.context.cu_ctx(), first.context.cu_ctx());
    second.context.bind_to_thread().unwrap();
    // SAFETY: both allocations have that many bytes.
    unsafe {
        result::memcpy_peer_async(
            contexts.0,
            copy,
            contexts.1,
            y,
            N * 4,
            second.compute.cu_stream(),
        )
    }
    .unwrap();
    second.launch_twice(all, copy).unwrap();
    if join {
        first.compute.wait(&second.compute.record_event(None).unwrap()).unwrap();
    }
    first.context.bind_to_thread().unwrap();
    // SAFETY: the stream is capturing.
    unsafe { result::stream::end_capture(first.compute.cu_stream()) }
}

#[test]
fn one_graph_spans_two_devices() {
    with_devices(&[("SOYBEAN_FAKE_DEVICES", "2")], |control| {
        let devices = [Device::new(0), Device::new(1)];
        let (x, y) = (devices[0].block(N), devices[0].block(N));
        let (copy, all) = (devices[1].block(N), devices[1].block(N));
        let blocks = [&x, &y, &copy, &all].map(address);
        let graph = capture(&devices, blocks, true).unwrap();
        let mut n_nodes = 0;
        // SAFETY: no nodes are requested.
        unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut n_nodes) }
            .result()
            .unwrap();
        assert_eq!(n_nodes, 3);
        let mut executable = std::ptr::null_mut();
        // SAFETY: the graph was just captured.
        unsafe { sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) }
            .result()
            .unwrap();
        // SAFETY: the executable graph is independent of it.
        unsafe { result::graph::destroy(graph) }.unwrap();
        for seed in 0..50 {
            control.reset(seed);
            let value = 1.0 + seed as f32;
            devices[0].context.bind_to_thread().unwrap();
            // SAFETY: the allocation has that many numbers.
            unsafe {
                result::memcpy_htod_async(blocks[0], &[value; N], devices[0].compute.cu_stream())
            }
            .unwrap();
            // SAFETY: both are valid.
            unsafe { result::graph::launch(executable, devices[0].compute.cu_stream()) }.unwrap();
            // The graph belongs to the stream that it was launched in, so waiting for that stream
            // is enough.
            devices[0].compute.synchronize().unwrap();
            let n_calls = [c"cuGraphLaunch", c"cuLaunchKernel"].map(|it| control.n_calls(it));
            assert_eq!(n_calls, [1, 0]);
            assert_eq!(
                devices[1].communication.clone_dtoh(&all).unwrap(),
                [4.0 * value; N],
                "seed {seed}"
            );
        }
        // SAFETY: it has completed.
        unsafe { result::graph::exec_destroy(executable) }.unwrap();
    });
}

#[test]
fn launches_need_a_current_context() {
    with_devices(&[("SOYBEAN_FAKE_DEVICES", "2")], |_| {
        let devices = [Device::new(0), Device::new(1)];
        let (x, y) = (devices[0].block(N), devices[0].block(N));
        let copy = || {
            let stream = devices[0].compute.cu_stream();
            // SAFETY: both allocations have that many numbers.
            unsafe { result::memcpy_dtod_async(address(&y), address(&x), 4 * N, stream) }
        };
        devices[0].context.bind_to_thread().unwrap();
        copy().unwrap();
        devices[1].context.bind_to_thread().unwrap();
        assert_eq!(copy().unwrap_err().0, CUresult::CUDA_ERROR_INVALID_CONTEXT);
    });
}

#[test]
fn captures_reject_what_cuda_rejects() {
    with_devices(&[("SOYBEAN_FAKE_DEVICES", "2")], |_| {
        let devices = [Device::new(0), Device::new(1)];
        let (x, y) = (devices[0].block(N), devices[0].block(N));
        let (copy, all) = (devices[1].block(N), devices[1].block(N));
        let blocks = [&x, &y, &copy, &all].map(address);
        let stream = &devices[0].compute;
        let begin = || {
            stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
        };
        // SAFETY: the stream is capturing.
        let end = || unsafe { result::stream::end_capture(stream.cu_stream()) }.unwrap_err().0;
        assert_eq!(
            capture(&devices, blocks, false).unwrap_err().0,
            CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED
        );

        let outside = devices[1].compute.record_event(None).unwrap();
        begin();
        assert_eq!(
            stream.wait(&outside).unwrap_err().0,
            CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION
        );
        assert_eq!(end(), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

        begin();
        assert_eq!(
            stream.synchronize().unwrap_err().0,
            CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
        );
        assert_eq!(end(), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

        begin();
        // SAFETY: nothing is copied.
        let copied =
            unsafe { result::memcpy_htod_async(blocks[0], &[1.0_f32; N], stream.cu_stream()) };
        assert_eq!(copied.unwrap_err().0, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(end(), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

        assert_eq!(end(), CUresult::CUDA_ERROR_ILLEGAL_STATE);
        begin();
        let inside = stream.record_event(None).unwrap();
        // SAFETY: the event is valid.
        let asked = unsafe { result::event::query(inside.cu_event()) };
        assert_eq!(asked.unwrap_err().0, CUresult::CUDA_ERROR_CAPTURED_EVENT);
        // SAFETY: the stream is capturing.
        let empty = unsafe { result::stream::end_capture(stream.cu_stream()) }.unwrap();
        // SAFETY: it was just captured.
        unsafe { result::graph::destroy(empty) }.unwrap();
        devices[0].launch_twice(blocks[1], blocks[0]).unwrap();
        stream.synchronize().unwrap();
    });
}

#[test]
fn pinned_memory_is_copied_when_the_copy_runs() {
    with_devices(&[], |control| {
        let device = Device::new(0);
        let x = device.block(N);
        let stream = device.compute.cu_stream();
        // SAFETY: freed below.
        let pinned = unsafe { result::malloc_host(N * 4, 0) }.unwrap().cast::<f32>();
        // SAFETY: it was just allocated with this size and is NaN initially.
        let host = unsafe { std::slice::from_raw_parts_mut(pinned, N) };
        let (mut n_late, mut n_unread) = (0, 0);
        for seed in 0..50 {
            control.reset(seed);
            let mut pageable = vec![1.0_f32; N];
            // SAFETY: the allocation has that many numbers.
            unsafe { result::memcpy_htod_async(address(&x), &pageable, stream) }.unwrap();
            pageable.fill(2.0);
            assert_eq!(device.compute.clone_dtoh(&x).unwrap(), [1.0; N], "seed {seed}");
            host.fill(3.0);
            // SAFETY: as above.
            unsafe { result::memcpy_htod_async(address(&x), host, stream) }.unwrap();
            host.fill(4.0);
            n_late += usize::from(device.compute.clone_dtoh(&x).unwrap() == [4.0; N]);
            host.fill(5.0);
            // SAFETY: as above.
            unsafe { result::memcpy_dtoh_async(host, address(&x), stream) }.unwrap();
            n_unread += usize::from(host[0] == 5.0);
            device.compute.synchronize().unwrap();
            assert!(host[0] != 5.0);
        }
        assert!(n_late > 25 && n_unread > 25, "{n_late}, {n_unread}");
        // SAFETY: nothing uses it any longer.
        unsafe { result::free_host(pinned.cast()) }.unwrap();
    });
}

#[test]
fn time_advances_while_work_runs() {
    with_devices(&[], |control| {
        let device = Device::new(0);
        let (x, y) = (device.block(N), device.block(N));
        let mut n_early = 0;
        for seed in 0..20 {
            control.reset(seed);
            let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
            let start = device.compute.record_event(timed).unwrap();
            device.launch_twice(address(&y), address(&x)).unwrap();
            let end = device.compute.record_event(timed).unwrap();
            // SAFETY: both events are valid.
            let early = unsafe { result::event::elapsed(start.cu_event(), end.cu_event()) };
            n_early +=
                usize::from(early.is_err_and(|error| error.0 == CUresult::CUDA_ERROR_NOT_READY));
            while !end.is_complete() {}
            assert!(start.elapsed_ms(&end).unwrap() > 0.0);
        }
        assert!(n_early > 0);
    });
}

#[test]
fn source_compiles_for_an_architecture() {
    with_devices(&[], |_| {
        assert!(compile(TEXT, "sm_80").is_ok());
        assert!(compile(TEXT, "compute_90").unwrap_err().contains("--gpu-architecture"));
        let log = compile("\n__global__ void f() { unknown(); }", "sm_90").unwrap_err();
        assert!(log.contains("kernels.cu:2:") && log.contains("unknown"), "{log}");
        let context = CudaContext::new(0).unwrap();
        let module = context.load_module(compile(TEXT, "sm_90").unwrap()).unwrap();
        assert_eq!(module.load_function("none").unwrap_err().0, CUresult::CUDA_ERROR_NOT_FOUND);
        assert_eq!(
            context.load_module(Ptx::from_binary(vec![1, 2, 3])).unwrap_err().0,
            CUresult::CUDA_ERROR_INVALID_IMAGE
        );
    });
}
