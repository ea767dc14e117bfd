//! Tests of calls that the virtual driver rejects, and of injected errors.

use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaStream, PushKernelArg, result, sys};

use crate::child_process::with_devices;
use crate::test_device::{Device, N, ONE_BLOCK, TEXT, address, compile};

#[test]
fn memory_is_poisoned_and_guarded() {
    with_devices(&[("SOYBEAN_FAKE_MEMORY", "4096")], |_| {
        let (device, other) = (Device::new(0), Device::new(1));
        let x = device.block(N);
        assert!(device.compute.clone_dtoh(&x).unwrap().iter().all(|it| it.is_nan()));
        assert_eq!(result::mem_get_info().unwrap(), (4096 - 256, 4096));
        // SAFETY: nothing is allocated.
        let too_large = unsafe { result::malloc_sync(4096) }.unwrap_err();
        assert_eq!(too_large.0, CUresult::CUDA_ERROR_OUT_OF_MEMORY);

        // SAFETY: nothing is copied, since the memory belongs to another device or is too small.
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
        // SAFETY: the write is out of bounds, but hits a red zone, which is checked.
        unsafe { device.compute.launch_builder(&beyond).arg(&y).launch(ONE_BLOCK) }.unwrap();
        // SAFETY: nothing uses it any longer.
        let freed = unsafe { result::free_sync(y) };
        assert_eq!(freed.unwrap_err().0, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    });
}

#[test]
fn kernels_need_peer_access() {
    with_devices(&[], |control| {
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
        // SAFETY: both contexts are valid.
        unsafe { sys::cuCtxEnablePeerAccess(other.context.cu_ctx(), 0) }.result().unwrap();
        // SAFETY: as above.
        let again = unsafe { sys::cuCtxEnablePeerAccess(other.context.cu_ctx(), 0) };
        assert_eq!(again, CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        device.launch_twice(address(&y), address(&x)).unwrap();
        device.compute.synchronize().unwrap();
    });
}

#[test]
fn peer_access_may_be_unsupported() {
    with_devices(&[("SOYBEAN_FAKE_NO_PEER", "1")], |_| {
        let (device, other) = (Device::new(0), Device::new(1));
        let mut can_access = 1;
        // SAFETY: both devices are valid.
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
        // SAFETY: the context is valid.
        let enabled = unsafe { sys::cuCtxEnablePeerAccess(device.context.cu_ctx(), 0) };
        assert_eq!(enabled, CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    });
}

#[test]
fn a_machine_may_have_no_device() {
    with_devices(&[("SOYBEAN_FAKE_DEVICES", "0"), ("SOYBEAN_FAKE_DRIVER", "11040")], |_| {
        assert_eq!(result::init().unwrap_err().0, CUresult::CUDA_ERROR_NO_DEVICE);
        let mut version = 0;
        // SAFETY: it only writes the version.
        unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().unwrap();
        assert_eq!(version, 11040);
    });
}

#[test]
fn failed_launches_are_permanent() {
    with_devices(&[("SOYBEAN_FAKE_FAIL_LAUNCH", "2")], |control| {
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
        // SAFETY: the allocation has one number per thread.
        unsafe { device.compute.launch_builder(&hang).arg(&address(&y)).launch(ONE_BLOCK) }
            .unwrap();
        assert_eq!(device.compute.synchronize().unwrap_err().0, CUresult::CUDA_ERROR_LAUNCH_FAILED);
        let text = CUresult::CUDA_ERROR_LAUNCH_FAILED.result().unwrap_err();
        assert_eq!(text.error_name().unwrap().to_str(), Ok("CUDA_ERROR_LAUNCH_FAILED"));
    });
}
