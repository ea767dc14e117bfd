//! Modules, functions and launches.

#![expect(unsafe_code, reason = "C finds functions by name")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::process;
use std::sync::Arc;

use super::device::SHARED_BYTES;
use crate::ffi::{Address, Handle, In, Out};
use crate::memory::MemoryKind;
use crate::module::{Module, Order};
use crate::nvrtc::CUBIN;
use crate::state::{State, report_problem};
use crate::status::{ApiResult, DeviceError, Status};
use crate::work::{FaultKind, Machine, Task};

/// The number that a planted fault writes.
const WRONG_NUMBER: f32 = 1e9;

/// A loaded module.
#[derive(Debug)]
pub(crate) struct Program {
    device: usize,
    module: Arc<Module>,
}

/// A kernel of a loaded module.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    program: u64,
    device: usize,
    module: Arc<Module>,
    name: String,
    /// Maximum dynamic shared memory of a launch.
    most_shared: u32,
}

/// A launch with its arguments.
struct Launch {
    function: Function,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    pointers: Vec<u64>,
    /// Devices whose memory the kernel may access.
    devices: Vec<usize>,
}

/// `CU_FUNC_ATTRIBUTE_*`.
mod attribute {
    pub(super) const MAX_THREADS_PER_BLOCK: u32 = 0;
    pub(super) const SHARED_SIZE_BYTES: u32 = 1;
    pub(super) const NUM_REGS: u32 = 4;
    pub(super) const MAX_DYNAMIC_SHARED_SIZE_BYTES: u32 = 8;
}

driver! {
    fn cuModuleLoadData(module: Out<Handle>, image: In<c_char>) |state| { load(state, module, image) }
    fn cuModuleLoadDataEx(module: Out<Handle>, image: In<c_char>, _count: c_uint, _options: Address, _values: Address) |state| {
        load(state, module, image)
    }
    fn cuModuleUnload(module: Handle) |state| {
        let device = state.programs.get(&module.0).ok_or(Status::INVALID_HANDLE)?.device;
        state.finish_device(device)?;
        state.programs.remove(&module.0);
        state.functions.retain(|_, function| function.program != module.0);
        Ok(())
    }
    fn cuModuleGetFunction(function: Out<Handle>, module: Handle, name: In<c_char>) |state| {
        let name = name.text().ok_or(Status::INVALID_VALUE)?;
        let program = state.programs.get(&module.0).ok_or(Status::INVALID_HANDLE)?;
        let static_bytes = program.module.static_shared_bytes(&name).ok_or(Status::NOT_FOUND)?;
        let most_shared = SHARED_BYTES.0.saturating_sub(static_bytes.try_into().map_err(|_| Status::INVALID_IMAGE)?);
        let found = Function { program: module.0, device: program.device, module: Arc::clone(&program.module), name, most_shared };
        let number = state.new_handle();
        state.functions.insert(number, found);
        function.put(Handle(number)).ok_or(Status::INVALID_VALUE)
    }
    fn cuFuncSetAttribute(function: Handle, name: c_uint, value: c_int) |state| {
        let function = state.functions.get_mut(&function.0).ok_or(Status::INVALID_HANDLE)?;
        if name != attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES {
            return Err(Status::NOT_SUPPORTED);
        }
        let most = SHARED_BYTES.1.saturating_sub(static_bytes(function)?);
        function.most_shared = u32::try_from(value).ok().filter(|&asked| asked <= most).ok_or(Status::INVALID_VALUE)?;
        Ok(())
    }
    fn cuFuncGetAttribute(value: Out<c_int>, name: c_uint, function: Handle) |state| {
        let function = state.functions.get(&function.0).ok_or(Status::INVALID_HANDLE)?;
        let found = match name {
            attribute::MAX_THREADS_PER_BLOCK => 1024,
            attribute::SHARED_SIZE_BYTES => static_bytes(function)?,
            attribute::NUM_REGS => 32,
            attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES => function.most_shared,
            _ => 0,
        };
        value.put(found.cast_signed()).ok_or(Status::INVALID_VALUE)
    }
    fn cuLaunchKernel(
        function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared_bytes: c_uint, stream: Handle, arguments: In<In<u64>>, extra: Address,
    ) |state| {
        let stream = state.stream(stream)?;
        let function = state.functions.get(&function.0).ok_or(Status::INVALID_HANDLE)?.clone();
        let device = state.streams[&stream].device;
        if function.device != device {
            return Err(Status::INVALID_HANDLE);
        }
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        if extra.number() != 0 || !is_launchable(grid, block) || shared_bytes > function.most_shared {
            return Err(Status::INVALID_VALUE);
        }
        let n_arguments = function.module.n_arguments(&function.name).ok_or(Status::INVALID_HANDLE)?;
        let places = arguments.list(n_arguments).ok_or(Status::INVALID_VALUE)?;
        let pointers: Option<Vec<u64>> = places.into_iter().map(In::get).collect();
        let pointers = pointers.ok_or(Status::INVALID_VALUE)?;
        let mut devices: Vec<usize> = state.devices[device].peers.iter().copied().collect();
        devices.push(device);
        state.wait_for_room(stream)?;
        let launch = Launch { function, grid, block, shared_bytes, pointers, devices };
        state.submit_here(stream, Task::new(device, move |machine| launch.run(machine)))
    }
}

/// Loads an image: a header line, and the path of a library from [`crate::compile()`].
fn load(state: &mut State, module: Out<Handle>, image: In<c_char>) -> ApiResult {
    let device = state.current_device()?;
    if !image.starts_with(CUBIN) {
        return Err(Status::INVALID_IMAGE);
    }
    let image = image.text().ok_or(Status::INVALID_VALUE)?;
    let path = image.lines().nth(1).ok_or(Status::INVALID_IMAGE)?;
    let loaded = Module::load(Path::new(path)).map_err(|message| {
        report_problem(&message);
        Status::INVALID_IMAGE
    })?;
    let number = state.new_handle();
    state.programs.insert(number, Program { device, module: Arc::new(loaded) });
    module.put(Handle(number)).ok_or(Status::INVALID_VALUE)
}

fn static_bytes(function: &Function) -> ApiResult<u32> {
    let bytes =
        function.module.static_shared_bytes(&function.name).ok_or(Status::INVALID_HANDLE)?;
    bytes.try_into().map_err(|_| Status::INVALID_VALUE)
}

/// Returns true if the launch is within the limits of a GPU.
fn is_launchable(grid: [u32; 3], block: [u32; 3]) -> bool {
    let n_threads: u64 = block.iter().map(|&extent| u64::from(extent)).product();
    !grid.contains(&0)
        && grid[0] <= i32::MAX.cast_unsigned()
        && grid[1] <= 65535
        && grid[2] <= 65535
        && (1..=1024).contains(&n_threads)
        && block[2] <= 64
}

impl Launch {
    fn run(&self, machine: &mut Machine) -> Result<(), DeviceError> {
        let name = &self.function.name;
        machine.n_launches += 1;
        if machine.failing_launch == Some(machine.n_launches) {
            return Err(DeviceError::new(
                Status::LAUNCH_FAILED,
                format!("launch {} of a kernel, {name}, is the one to fail", machine.n_launches),
            ));
        }
        if machine.hanging_launch == Some(machine.n_launches) {
            return Err(DeviceError::never_ends());
        }
        for (number, &pointer) in self.pointers.iter().enumerate() {
            let is_allowed = match machine.memory.kind(pointer, 0) {
                Some(MemoryKind::Device(device)) => self.devices.contains(&device),
                Some(MemoryKind::Host) => true,
                None => pointer == 0,
            };
            if !is_allowed {
                let message = format!(
                    "kernel {name}: argument {number}, {pointer:#x}, is not in memory that it may use"
                );
                return Err(DeviceError::new(Status::ILLEGAL_ADDRESS, message));
            }
        }
        let planted = machine.planted_faults.iter().find(|it| name.contains(&it.name));
        let planted = planted.map(|it| it.kind);
        match planted {
            Some(FaultKind::Hang) => return Err(DeviceError::never_ends()),
            Some(FaultKind::Crash) => process::abort(),
            Some(FaultKind::WrongResults) | None => {}
        }
        let order = match machine.random.below(3) {
            0 => Order::Forward,
            1 => Order::Reverse,
            _ => Order::Random(machine.random.next()),
        };
        let pointers: Vec<*mut c_void> =
            self.pointers.iter().map(|&pointer| pointer as *mut c_void).collect();
        // SAFETY: each pointer is in memory of this process that nothing else uses while the state
        // is locked. Accesses beyond it are errors of the kernel.
        let outcome = unsafe {
            self.function.module.launch(
                name,
                self.grid,
                self.block,
                self.shared_bytes,
                &pointers,
                order,
            )
        };
        if planted == Some(FaultKind::WrongResults) {
            let operands = self.pointers.iter().filter(|it| **it != 0);
            operands.copied().try_for_each(|it| machine.memory.write(it, &[WRONG_NUMBER]))?;
        }
        outcome.map_err(|message| DeviceError::new(Status::LAUNCH_FAILED, message))
    }
}
