//! Work that may take minutes: a thread does it, while the command reports its progress and listens
//! to signals.

use std::{
    panic,
    sync::mpsc::{self, RecvTimeoutError},
    thread::Builder,
    time::{Duration, Instant},
};

use super::{CommandError, print_error, signals::Signals};

/// The time after which progress is reported, and again.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The time between two looks at signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// The stack of the thread. The compiler is recursive in the depth of a model.
const STACK_BYTES: usize = 16 << 20;

/// The clock and the signals of a command.
pub(super) struct Background {
    signals: Signals,
    started: Instant,
    next_report: Duration,
}

impl Background {
    pub(super) fn new() -> Result<Self, CommandError> {
        let signals = Signals::catch()
            .map_err(|error| CommandError::Failed(format!("cannot wait for Ctrl-C: {error}")))?;
        Ok(Self { signals, started: Instant::now(), next_report: REPORT_INTERVAL })
    }

    /// Does work that `what` names. It is an error if a signal comes first.
    pub(super) fn run<T: Send + 'static>(
        &mut self,
        what: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CommandError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let work = move || {
            // After a signal nobody waits for the result.
            let _unwanted = sender.send(work());
        };
        let thread = Builder::new().stack_size(STACK_BYTES).spawn(work)?;
        loop {
            match receiver.recv_timeout(SIGNAL_INTERVAL) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) => self.check(what)?,
                Err(RecvTimeoutError::Disconnected) => match thread.join() {
                    Ok(()) => unreachable!("the thread sends its result"),
                    Err(fault) => panic::resume_unwind(fault),
                },
            }
        }
    }

    /// Reports the progress if it is time. It is an error if there was a signal.
    pub(super) fn check(&mut self, what: &str) -> Result<(), CommandError> {
        let elapsed = self.started.elapsed();
        let seconds = elapsed.as_secs();
        if let Some(signal) = self.signals.caught() {
            let message = format!("stopped after {seconds} s: {what}");
            return Err(CommandError::Stopped { message, code: signal.exit_code() });
        }
        if elapsed >= self.next_report {
            self.next_report = elapsed + REPORT_INTERVAL;
            print_error(&format!("{seconds} s: {what}"));
        }
        Ok(())
    }
}
