//! Silence of other processes: a process that is stopped, or a link that is cut.
//!
//! Each process sends a sign of life several times in the time after which silence is reported.
//! Only the time in which this process waits and listens counts, so that a long computation, or a
//! pause of this process, is no silence of the others.

use std::time::Duration;

/// The longest time after which silence is reported.
const MAX_REPORT_AFTER: Duration = Duration::from_secs(30);
/// The shortest time between two signs of life.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
/// The longest time by which one look at the messages extends a silence.
const MAX_LOOK: Duration = Duration::from_secs(1);

/// The time for which another process may be silent; `None` means for ever.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerTimeout(pub(super) Option<Duration>);

impl PeerTimeout {
    /// Returns the time after which silence is reported.
    fn report_after(self) -> Duration {
        self.0.map_or(MAX_REPORT_AFTER, |it| (it / 10).min(MAX_REPORT_AFTER))
    }

    /// Returns the time between two signs of life.
    pub(super) fn interval(self) -> Duration {
        (self.report_after() / 6).max(MIN_INTERVAL)
    }
}

/// What this process has heard of the others.
pub(super) struct Silence {
    pub(super) timeout: PeerTimeout,
    peers: Vec<Peer>,
}

#[derive(Clone, Copy, Default)]
struct Peer {
    /// True after the first sign of life. Programs that initialize MPI themselves send none.
    is_known: bool,
    silent: Duration,
    is_reported: bool,
}

/// A silence that is to be reported, with the process and the time so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observation {
    /// The process is silent.
    Silent(usize, Duration),
    /// The process has been silent for too long.
    TimedOut(usize, Duration),
}

impl Silence {
    pub(super) fn new(n_processes: usize, timeout: PeerTimeout) -> Self {
        Self { timeout, peers: vec![Peer::default(); n_processes] }
    }

    /// Records a sign of life. Returns the time of a silence that was reported.
    pub(super) fn hear(&mut self, process: usize) -> Option<Duration> {
        let peer = self.peers.get_mut(process)?;
        let before = std::mem::replace(peer, Peer { is_known: true, ..Peer::default() });
        before.is_reported.then_some(before.silent)
    }

    /// Returns true if a process has been silent for too long.
    pub(super) fn is_timed_out(&self) -> bool {
        let is_silent = |it: &Peer| self.timeout.0.is_some_and(|timeout| it.silent >= timeout);
        self.peers.iter().any(is_silent)
    }

    /// Records that this process has listened for some time since it looked last.
    pub(super) fn listen(&mut self, time: Duration) -> Vec<Observation> {
        let (report_after, timeout) = (self.timeout.report_after(), self.timeout.0);
        let mut found = Vec::new();
        for (process, peer) in self.peers.iter_mut().enumerate().filter(|it| it.1.is_known) {
            peer.silent += time.min(MAX_LOOK);
            if timeout.is_some_and(|it| peer.silent >= it) {
                found.push(Observation::TimedOut(process, peer.silent));
            } else if peer.silent >= report_after && !peer.is_reported {
                peer.is_reported = true;
                found.push(Observation::Silent(process, peer.silent));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_reported_once_and_then_ends_the_wait() {
        let second = Duration::from_secs(1);
        let timeout = PeerTimeout(Some(20 * second));
        assert_eq!(timeout.interval(), second / 3);
        let mut silence = Silence::new(3, timeout);
        assert_eq!(silence.hear(1), None);
        assert_eq!(silence.listen(second), []);
        // This process was paused for an hour, which is a single look.
        assert_eq!(silence.listen(3600 * second), [Observation::Silent(1, 2 * second)]);
        for _ in 2..19 {
            assert_eq!(silence.listen(second), []);
        }
        assert_eq!(silence.listen(second), [Observation::TimedOut(1, 20 * second)]);
        assert_eq!(silence.hear(1), Some(20 * second));
        assert_eq!((silence.hear(1), silence.listen(second)), (None, Vec::new()));
    }

    #[test]
    fn by_default_half_a_minute_is_reported() {
        let seconds = Duration::from_secs;
        let default = PeerTimeout(Some(seconds(300)));
        assert_eq!((default.report_after(), default.interval()), (seconds(30), seconds(5)));
        assert_eq!(PeerTimeout(None).report_after(), seconds(30));
        assert_eq!(PeerTimeout(Some(seconds(1))).interval(), MIN_INTERVAL);
    }
}
