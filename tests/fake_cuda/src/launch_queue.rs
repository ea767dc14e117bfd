//! Calls of the driver, and launches that wait for room in the queue of a stream.

use std::thread;
use std::time::Duration;

use crate::state::{State, current_context, lock};
use crate::status::{ApiResult, Status};

/// Time between two looks at a full launch queue.
const QUEUE_INTERVAL: Duration = Duration::from_micros(50);

/// Runs a function of the driver API. A launch waits for room in its queue.
pub(crate) fn call(name: &'static str, mut body: impl FnMut(&mut State) -> ApiResult) -> Status {
    let mut state = lock();
    state.count(name);
    loop {
        let result =
            if state.waits_for_launch(name) { Err(Status::WAITS) } else { body(&mut state) };
        match result {
            Ok(()) if name == "cuStreamBeginCapture_v2" => {
                let delay = state.settings.capture_delay;
                drop(state);
                thread::sleep(delay);
                return Status::SUCCESS;
            }
            Ok(()) => return Status::SUCCESS,
            Err(Status::WAITS) => {
                state.run_some();
                drop(state);
                thread::sleep(QUEUE_INTERVAL);
                state = lock();
            }
            Err(status) => return status,
        }
    }
}

impl State {
    /// Makes a launch wait while the stream has as many pieces of work as the queue has room for.
    pub(crate) fn wait_for_room(&mut self, stream: u64) -> ApiResult {
        let device = self.streams[&stream].device;
        let n_queued = self.streams[&stream].queue.len();
        if self.settings.queue_length.is_none_or(|it| n_queued < it)
            || self.check_device(device).is_err()
        {
            self.waiting_threads.remove(&device);
            return Ok(());
        }
        self.waiting_threads.insert(device, thread::current().id());
        Err(Status::WAITS)
    }

    /// Returns true if a call of this thread waits because a launch of another one waits.
    fn waits_for_launch(&self, name: &str) -> bool {
        if !self.settings.queue_locks || name == "cuCtxSetCurrent" {
            return false;
        }
        let device = self.context_device(current_context()).ok();
        let thread = device.and_then(|it| self.waiting_threads.get(&it));
        thread.is_some_and(|it| *it != thread::current().id())
    }
}
