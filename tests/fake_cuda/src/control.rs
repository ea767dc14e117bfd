//! What a test can say to the machine while it runs, by name as any other function of the library.

#![expect(unsafe_code, reason = "C finds functions by name")]

use std::ffi::c_char;

use crate::ffi::In;
use crate::state::{lock, n_problems};

/// Begins another schedule, with all counts at zero and no device error.
#[unsafe(no_mangle)]
extern "C" fn soybean_fake_reset(seed: u64) {
    lock().reset(seed);
}

/// How often the function of that name has been called since the last reset.
#[unsafe(no_mangle)]
extern "C" fn soybean_fake_counters(name: In<c_char>) -> u64 {
    name.text().and_then(|name| lock().counters.get(name.as_str()).copied()).unwrap_or(0)
}

/// How often something has been wrong since the library was loaded: a fault of a device, work that waits for itself, or a handle that is none.
#[unsafe(no_mangle)]
extern "C" fn soybean_fake_complaints() -> u64 {
    n_problems()
}

/// Leaves out the n-th `cuStreamWaitEvent` from here or from the next reset on, or none if `number` is not positive.
#[unsafe(no_mangle)]
extern "C" fn soybean_fake_skip_wait(number: i64) {
    lock().skip_wait(u64::try_from(number).ok().filter(|&number| number > 0));
}

/// Lets the n-th launch of a kernel that runs from here or from the next reset on fail, or none if `number` is not positive.
#[unsafe(no_mangle)]
extern "C" fn soybean_fake_fail_launch(number: i64) {
    let machine = &mut lock().machine;
    machine.n_launches = 0;
    machine.failing_launch = u64::try_from(number).ok().filter(|&number| number > 0);
}

/// Lets communicators report a failure when asked, or not.
#[unsafe(no_mangle)]
extern "C" fn soybean_fake_fail_communicators(fail: bool) {
    lock().settings.fail_communicators = fail;
}
