//! The driver API, libcuda: each function is a few lines over the state.

/// Declares exported functions of the driver API. Each holds the lock of the state.
macro_rules! driver {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) |$state:ident| $body:block)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> $crate::status::Status {
            $crate::launch_queue::call(stringify!($name), |$state: &mut $crate::state::State| -> $crate::status::ApiResult { $body })
        }
    )*};
}

mod context;
mod copy;
mod device;
mod event;
mod graph;
pub(crate) mod kernels;
mod memory;
mod stream;
