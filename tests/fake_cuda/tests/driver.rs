//! The virtual driver as cudarc sees it.

#![expect(unsafe_code, reason = "CUDA is a C library")]
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

#[path = "support/child.rs"]
mod child;

use std::ffi::CString;
use std::sync::Arc;

use child::with_devices;
use cudarc::driver::sys::{CUresult, CUstreamCaptureMode};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DriverError, LaunchConfig,
    PushKernelArg, result, sys,
};
use cudarc::nvrtc::{Ptx, result as nvrtc, sys as nvrtc_sys};

const TEXT: &str = r#"
#ifndef SOYBEAN_ON_CPU
#define SOYBEAN_EXPORT(kernel, uses_barriers)
#endif
extern "C" __global__ void twice(float* y, const float* x) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2.0f * x[i];
}
SOYBEAN_EXPORT(twice, 0)
extern "C" __global__ void add(float* y, const float* x) { y[threadIdx.x] += x[threadIdx.x]; }
SOYBEAN_EXPORT(add, 0)
extern "C" __global__ void hang(float* y) {
    if (threadIdx.x == 0) __syncthreads();
    y[threadIdx.x] = 0.0f;
}
SOYBEAN_EXPORT(hang, 1)
extern "C" __global__ void beyond(float* y) { y[64] = 1.0f; }
SOYBEAN_EXPORT(beyond, 0)
"#;

const N: usize = 64;
const LAUNCH: LaunchConfig =
    LaunchConfig { grid_dim: (2, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
const ONE_BLOCK: LaunchConfig =
    LaunchConfig { grid_dim: (1, 1, 1), block_dim: (64, 1, 1), shared_mem_bytes: 0 };

/// What the compiler makes of a text, and what it says.
fn compile(text: &str, architecture: &str) -> Result<Ptx, String> {
    let text = CString::new(text).unwrap();
    let program = nvrtc::create_program(&text, Some(c"test.cu")).unwrap();
    let options = [format!("--gpu-architecture={architecture}"), "--std=c++17".to_owned()];
    // SAFETY: the program has just been made.
    let compiled = unsafe { nvrtc::compile_program(program, &options) };
    // SAFETY: as above.
    let log = unsafe { nvrtc::get_program_log(program) }.unwrap();
    if compiled.is_err() {
        return Err(log.iter().map(|&byte| char::from(byte.cast_unsigned())).collect());
    }
    let mut n_bytes = 0;
    // SAFETY: the program has been compiled.
    unsafe { nvrtc_sys::nvrtcGetCUBINSize(program, &raw mut n_bytes) }.result().unwrap();
    let mut cubin = vec![0_u8; n_bytes];
    // SAFETY: there is room for as many bytes as it says.
    unsafe { nvrtc_sys::nvrtcGetCUBIN(program, cubin.as_mut_ptr().cast()) }.result().unwrap();
    // SAFETY: nobody has destroyed it.
    unsafe { nvrtc::destroy_program(program) }.unwrap();
    Ok(Ptx::from_binary(cubin))
}

struct Device {
    context: Arc<CudaContext>,
    compute: Arc<CudaStream>,
    communication: Arc<CudaStream>,
    twice: CudaFunction,
}

impl Device {
    fn new(number: usize) -> Self {
        let context = CudaContext::new(number).unwrap();
        // SAFETY: the tests order their work by themselves.
        unsafe { context.disable_event_tracking() };
        let twice = context
            .load_module(compile(TEXT, "sm_90").unwrap())
            .unwrap()
            .load_function("twice")
            .unwrap();
        Self {
            compute: context.new_stream().unwrap(),
            communication: context.new_stream().unwrap(),
            twice,
            context,
        }
    }

    /// A block of poison.
    fn block(&self, n: usize) -> CudaSlice<f32> {
        // SAFETY: nothing reads it before something is there, or else it is what the test is about.
        unsafe { self.compute.alloc(n) }.unwrap()
    }

    fn launch_twice(&self, y: sys::CUdeviceptr, x: sys::CUdeviceptr) -> Result<(), DriverError> {
        let mut builder = self.compute.launch_builder(&self.twice);
        builder.arg(&y).arg(&x);
        // SAFETY: both have 64 numbers.
        unsafe { builder.launch(LAUNCH) }.map(|_| ())
    }
}

fn address(block: &CudaSlice<f32>) -> sys::CUdeviceptr {
    block.device_ptr(block.stream()).0
}

fn ones() -> Vec<f32> {
    vec![1.0; N]
}

/// Each device doubles its shard and collects all shards: whether all of them end up with all of them. What was there before is different for each seed.
fn gathers(devices: &[Device], blocks: &[[CudaSlice<f32>; 3]], seed: u64) -> bool {
    let shards: Vec<Vec<f32>> =
        (0..devices.len()).map(|rank| vec![(4 * seed + rank as u64) as f32; N]).collect();
    let mut events = Vec::new();
    for ((device, [x, y, _]), shard) in devices.iter().zip(blocks).zip(&shards) {
        device.context.bind_to_thread().unwrap();
        let raw = device.compute.cu_stream();
        // SAFETY: the block has as many numbers.
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
            // SAFETY: both blocks have room for a shard.
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
    with_devices(
        "gather_by_copies_is_right_under_every_schedule_and_wrong_without_a_wait",
        &[],
        |control| {
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
        },
    );
}

/// Captures, on two devices, `y = 2 x`, a copy of `y` to the other device, and there `all = 2 copy`.
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
    // SAFETY: both blocks have as many bytes.
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
    // SAFETY: the stream has begun a capture.
    unsafe { result::stream::end_capture(first.compute.cu_stream()) }
}

#[test]
fn one_graph_spans_two_devices() {
    with_devices("one_graph_spans_two_devices", &[("SOYBEAN_FAKE_DEVICES", "2")], |control| {
        let devices = [Device::new(0), Device::new(1)];
        let (x, y) = (devices[0].block(N), devices[0].block(N));
        let (copy, all) = (devices[1].block(N), devices[1].block(N));
        let blocks = [&x, &y, &copy, &all].map(address);
        let graph = capture(&devices, blocks, true).unwrap();
        let mut n_nodes = 0;
        // SAFETY: no nodes are asked for.
        unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut n_nodes) }
            .result()
            .unwrap();
        assert_eq!(n_nodes, 3);
        let mut executable = std::ptr::null_mut();
        // SAFETY: the graph has just been captured.
        unsafe { sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) }
            .result()
            .unwrap();
        // SAFETY: the executable does not need it.
        unsafe { result::graph::destroy(graph) }.unwrap();
        for seed in 0..50 {
            control.reset(seed);
            let value = 1.0 + seed as f32;
            // SAFETY: the block has as many numbers.
            unsafe {
                result::memcpy_htod_async(blocks[0], &[value; N], devices[0].compute.cu_stream())
            }
            .unwrap();
            // SAFETY: both are there.
            unsafe { result::graph::launch(executable, devices[0].compute.cu_stream()) }.unwrap();
            // The graph is part of the stream that it was launched in, so this is all that there is to wait for.
            devices[0].compute.synchronize().unwrap();
            assert_eq!(
                devices[1].communication.clone_dtoh(&all).unwrap(),
                [4.0 * value; N],
                "seed {seed}"
            );
        }
        // SAFETY: it has run.
        unsafe { result::graph::exec_destroy(executable) }.unwrap();
    });
}

#[test]
fn captures_refuse_what_cuda_refuses() {
    with_devices("captures_refuse_what_cuda_refuses", &[("SOYBEAN_FAKE_DEVICES", "2")], |_| {
        let devices = [Device::new(0), Device::new(1)];
        let (x, y) = (devices[0].block(N), devices[0].block(N));
        let (copy, all) = (devices[1].block(N), devices[1].block(N));
        let blocks = [&x, &y, &copy, &all].map(address);
        let stream = &devices[0].compute;
        let begin = || {
            stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap()
        };
        // SAFETY: the stream captures.
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
        // SAFETY: the event is there.
        let asked = unsafe { result::event::query(inside.cu_event()) };
        assert_eq!(asked.unwrap_err().0, CUresult::CUDA_ERROR_CAPTURED_EVENT);
        // SAFETY: the stream captures.
        let empty = unsafe { result::stream::end_capture(stream.cu_stream()) }.unwrap();
        // SAFETY: it has just been captured.
        unsafe { result::graph::destroy(empty) }.unwrap();
        devices[0].launch_twice(blocks[1], blocks[0]).unwrap();
        stream.synchronize().unwrap();
    });
}

#[test]
fn pinned_memory_is_copied_when_the_copy_runs() {
    with_devices("pinned_memory_is_copied_when_the_copy_runs", &[], |control| {
        let device = Device::new(0);
        let x = device.block(N);
        let stream = device.compute.cu_stream();
        // SAFETY: freed below.
        let pinned = unsafe { result::malloc_host(N * 4, 0) }.unwrap().cast::<f32>();
        // SAFETY: it has just been allocated with this size; it is NaN from the beginning.
        let host = unsafe { std::slice::from_raw_parts_mut(pinned, N) };
        let (mut n_late, mut n_unread) = (0, 0);
        for seed in 0..50 {
            control.reset(seed);
            let mut pageable = vec![1.0_f32; N];
            // SAFETY: the block has as many numbers.
            unsafe { result::memcpy_htod_async(address(&x), &pageable, stream) }.unwrap();
            pageable.fill(2.0);
            assert_eq!(device.compute.clone_dtoh(&x).unwrap(), ones(), "seed {seed}");
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
fn memory_is_poisoned_and_guarded() {
    with_devices("memory_is_poisoned_and_guarded", &[("SOYBEAN_FAKE_MEMORY", "4096")], |_| {
        let (device, other) = (Device::new(0), Device::new(1));
        let x = device.block(N);
        assert!(device.compute.clone_dtoh(&x).unwrap().iter().all(|it| it.is_nan()));
        assert_eq!(result::mem_get_info().unwrap(), (4096 - 256, 4096));
        // SAFETY: nothing is allocated.
        let too_large = unsafe { result::malloc_sync(4096) }.unwrap_err();
        assert_eq!(too_large.0, CUresult::CUDA_ERROR_OUT_OF_MEMORY);

        // SAFETY: nothing is copied, since the memory is another device's, or not enough.
        let copy = |stream: &CudaStream, n| unsafe {
            result::memcpy_htod_async(address(&x), &vec![1.0_f32; n], stream.cu_stream())
        };
        assert_eq!(copy(&other.compute, N).unwrap_err().0, CUresult::CUDA_ERROR_INVALID_VALUE);
        assert_eq!(copy(&device.compute, N + 1).unwrap_err().0, CUresult::CUDA_ERROR_INVALID_VALUE);

        device.context.bind_to_thread().unwrap();
        let beyond = device
            .context
            .load_module(compile(TEXT, "sm_90").unwrap())
            .unwrap()
            .load_function("beyond")
            .unwrap();
        // SAFETY: freed below.
        let y = unsafe { result::malloc_sync(N * 4) }.unwrap();
        // SAFETY: it is not, but the byte behind the block is a zone that is looked at.
        unsafe { device.compute.launch_builder(&beyond).arg(&y).launch(ONE_BLOCK) }.unwrap();
        // SAFETY: nothing uses it any longer.
        assert_eq!(
            unsafe { result::free_sync(y) }.unwrap_err().0,
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        );
    });
}

#[test]
fn kernels_need_leave_to_read_a_peer() {
    with_devices("kernels_need_leave_to_read_a_peer", &[], |control| {
        let (device, other) = (Device::new(0), Device::new(1));
        let (y, x) = (device.block(N), other.block(N));
        device.context.bind_to_thread().unwrap();
        device.launch_twice(address(&y), address(&x)).unwrap();
        assert_eq!(
            device.compute.synchronize().unwrap_err().0,
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        );
        assert_eq!(
            device.launch_twice(address(&y), address(&x)).unwrap_err().0,
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        );
        control.reset(1);
        // SAFETY: both contexts are there.
        unsafe { sys::cuCtxEnablePeerAccess(other.context.cu_ctx(), 0) }.result().unwrap();
        // SAFETY: as above.
        let again = unsafe { sys::cuCtxEnablePeerAccess(other.context.cu_ctx(), 0) };
        assert_eq!(again, CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        device.launch_twice(address(&y), address(&x)).unwrap();
        device.compute.synchronize().unwrap();
    });
}

#[test]
fn peer_access_can_be_missing() {
    with_devices("peer_access_can_be_missing", &[("SOYBEAN_FAKE_NO_PEER", "1")], |_| {
        let (device, other) = (Device::new(0), Device::new(1));
        let mut can_access = 1;
        // SAFETY: both devices are there.
        unsafe {
            sys::cuDeviceCanAccessPeer(
                &raw mut can_access,
                device.context.cu_device(),
                other.context.cu_device(),
            )
        }
        .result()
        .unwrap();
        assert_eq!(can_access, 0);
        // SAFETY: the context is there.
        let enabled = unsafe { sys::cuCtxEnablePeerAccess(device.context.cu_ctx(), 0) };
        assert_eq!(enabled, CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    });
}

#[test]
fn a_machine_can_have_no_device() {
    with_devices(
        "a_machine_can_have_no_device",
        &[("SOYBEAN_FAKE_DEVICES", "0"), ("SOYBEAN_FAKE_DRIVER", "11040")],
        |_| {
            assert_eq!(result::init().unwrap_err().0, CUresult::CUDA_ERROR_NO_DEVICE);
            let mut version = 0;
            // SAFETY: it only writes the version.
            unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().unwrap();
            assert_eq!(version, 11040);
        },
    );
}

#[test]
fn failed_launches_stay() {
    with_devices("failed_launches_stay", &[("SOYBEAN_FAKE_FAIL_LAUNCH", "2")], |control| {
        let device = Device::new(0);
        let (x, y) = (device.block(N), device.block(N));
        let launch = || device.launch_twice(address(&y), address(&x));
        launch().and_then(|()| device.compute.synchronize()).unwrap();
        assert_eq!(
            launch().and_then(|()| device.compute.synchronize()).unwrap_err().0,
            CUresult::CUDA_ERROR_LAUNCH_FAILED
        );
        assert_eq!(launch().unwrap_err().0, CUresult::CUDA_ERROR_LAUNCH_FAILED);
        assert_eq!(device.context.synchronize().unwrap_err().0, CUresult::CUDA_ERROR_LAUNCH_FAILED);

        control.set("soybean_fake_fail_launch", 0);
        control.reset(1);
        let hang = device
            .context
            .load_module(compile(TEXT, "sm_90").unwrap())
            .unwrap()
            .load_function("hang")
            .unwrap();
        // SAFETY: the block has as many numbers as threads.
        unsafe { device.compute.launch_builder(&hang).arg(&address(&y)).launch(ONE_BLOCK) }
            .unwrap();
        assert_eq!(device.compute.synchronize().unwrap_err().0, CUresult::CUDA_ERROR_LAUNCH_FAILED);
        let text = CUresult::CUDA_ERROR_LAUNCH_FAILED.result().unwrap_err();
        assert_eq!(text.error_name().unwrap().to_str(), Ok("CUDA_ERROR_LAUNCH_FAILED"));
    });
}

#[test]
fn time_goes_on_while_work_runs() {
    with_devices("time_goes_on_while_work_runs", &[], |_| {
        let device = Device::new(0);
        let (x, y) = (device.block(N), device.block(N));
        let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let start = device.compute.record_event(timed).unwrap();
        device.launch_twice(address(&y), address(&x)).unwrap();
        let end = device.compute.record_event(timed).unwrap();
        // SAFETY: both events are there.
        let early = unsafe { result::event::elapsed(start.cu_event(), end.cu_event()) };
        assert!(early.is_err_and(|error| error.0 == CUresult::CUDA_ERROR_NOT_READY));
        while !end.is_complete() {}
        assert!(start.elapsed_ms(&end).unwrap() > 0.0);
    });
}

#[test]
fn texts_compile_for_an_instruction_set() {
    with_devices("texts_compile_for_an_instruction_set", &[], |_| {
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
