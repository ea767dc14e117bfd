//! Functions by which tests control the virtual devices, exported by name.

#![expect(unsafe_code, reason = "C finds functions by name")]

use std::ffi::c_char;

use crate::ffi::In;
use crate::state::{lock, n_problems};

/// Starts another schedule, with all counters at zero and no device failed.
#[unsafe(no_mangle)]
extern "C" fn soybean_fake_reset(seed: u64) {
    lock().reset(seed);
}

/// Returns the number of calls of a function since the last reset.
#[unsafe(no_mangle)]
extern "C" fn soybean_fake_counters(name: In<c_char>) -> u64 {
    name.text().and_then(|name| lock().counters.get(name.as_str()).copied()).unwrap_or(0)
}

/// Returns the number of problems since the library was loaded: failed devices, deadlocks and
/// invalid handles.
#[unsafe(no_mangle)]
extern "C" fn soybean_fake_complaints() -> u64 {
    n_problems()
}

/// Skips the n-th `cuStreamWaitEvent` from now or from the next reset, or none if `number` is not
/// positive.
#[unsafe(no_mangle)]
extern "C" fn soybean_fake_skip_wait(number: i64) {
    lock().skip_wait(u64::try_from(number).ok().filter(|&number| number > 0));
}

/// Makes the n-th kernel launch from now or from the next reset fail, or none if `number` is not
/// positive.
#[unsafe(no_mangle)]
extern "C" fn soybean_fake_fail_launch(number: i64) {
    let machine = &mut lock().machine;
    machine.n_launches = 0;
    machine.failing_launch = u64::try_from(number).ok().filter(|&number| number > 0);
}

/// Makes the n-th kernel launch from now run for ever, or none if `number` is not positive.
#[unsafe(no_mangle)]
extern "C" fn soybean_fake_hang_launch(number: i64) {
    let machine = &mut lock().machine;
    machine.n_launches = 0;
    machine.hanging_launch = u64::try_from(number).ok().filter(|&number| number > 0);
}

/// Sets whether communicators report an asynchronous error.
#[unsafe(no_mangle)]
extern "C" fn soybean_fake_fail_communicators(fail: bool) {
    lock().settings.fail_communicators = fail;
}
