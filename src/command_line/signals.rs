//! Ctrl-C and SIGTERM: the run ends after the current step. The same signal again ends the program
//! at once.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};

/// The signal that was caught since [`Signals::catch`].
pub(super) struct Signals(Arc<AtomicUsize>);

/// A signal that ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Interrupt,
    Terminate,
}

impl Signals {
    /// Defers signals to the end of a step.
    pub(super) fn catch() -> io::Result<Self> {
        let caught = Arc::default();
        for signal in [Signal::Interrupt, Signal::Terminate] {
            let (number, code) = (signal.number(), signal.exit_code());
            // Of the same kind: `mpirun` sends SIGTERM after a terminal has sent SIGINT.
            let is_second = Arc::new(AtomicBool::new(false));
            // The order matters: at the first signal the flag is not set yet.
            flag::register_conditional_shutdown(number, i32::from(code), Arc::clone(&is_second))?;
            flag::register(number, is_second)?;
            flag::register_usize(number, Arc::clone(&caught), usize::from(code))?;
        }
        Ok(Self(caught))
    }

    /// Returns the last signal.
    pub(super) fn caught(&self) -> Option<Signal> {
        let code = self.0.load(Ordering::SeqCst);
        [Signal::Interrupt, Signal::Terminate]
            .into_iter()
            .find(|it| usize::from(it.exit_code()) == code)
    }
}

impl Signal {
    const fn number(self) -> i32 {
        match self {
            Self::Interrupt => SIGINT,
            Self::Terminate => SIGTERM,
        }
    }

    /// Returns 128 plus the signal's number, as shells do.
    pub(super) const fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}
