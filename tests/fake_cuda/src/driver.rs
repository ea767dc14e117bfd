//! The driver, libcuda: functions as CUDA declares them, each a few lines over the state.

/// Declares functions of the driver's interface, which C finds by their names. Each has the state for itself while it runs.
macro_rules! driver {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) |$state:ident| $body:block)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> $crate::status::Status {
            $crate::state::call(stringify!($name), |$state: &mut $crate::state::State| -> $crate::status::ApiResult { $body })
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
