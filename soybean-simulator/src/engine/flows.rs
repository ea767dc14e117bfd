//! Transfers in progress.

use crate::links::Links;

/// All transfers in progress, each at its rate.
pub(super) struct Flows<'a> {
    links: &'a Links,
    flows: Vec<Flow>,
    /// True if transfers began or ended since rates were computed.
    is_stale: bool,
    /// The time up to which `busy` is counted.
    counted: f64,
    /// For each link the time with at least one transfer.
    pub(super) busy: Vec<f64>,
    /// For each link the bytes that it carried, including all bytes of transfers in progress.
    pub(super) bytes: Vec<u64>,
}

struct Flow {
    /// The task and rank to which it belongs.
    node: usize,
    links: Vec<usize>,
    /// The bytes that remained at the time `since`.
    left: f64,
    since: f64,
    bytes_per_second: f64,
    /// The time of arrival at this rate.
    end: f64,
}

impl<'a> Flows<'a> {
    pub(super) fn new(links: &'a Links) -> Self {
        let n_links = links.links.len();
        let (busy, bytes) = (vec![0.0; n_links], vec![0; n_links]);
        Self { links, flows: Vec::new(), is_stale: false, counted: 0.0, busy, bytes }
    }

    /// Begins a transfer.
    pub(super) fn add(&mut self, node: usize, links: Vec<usize>, bytes: u64, now: f64) {
        self.count(now);
        links.iter().for_each(|&link| self.bytes[link] += bytes);
        let left = bytes as f64;
        let (bytes_per_second, end) = (0.0, f64::INFINITY);
        self.flows.push(Flow { node, links, left, since: now, bytes_per_second, end });
        self.is_stale = true;
    }

    /// Returns the time at which the next transfer arrives.
    pub(super) fn next_end(&self) -> Option<f64> {
        self.flows.iter().map(|it| it.end).min_by(f64::total_cmp)
    }

    /// Ends the transfers that have arrived, and returns the nodes to which they belong.
    pub(super) fn finished(&mut self, now: f64) -> Vec<usize> {
        self.count(now);
        let finished = self.flows.iter().filter(|it| it.end <= now).map(|it| it.node).collect();
        let n_before = self.flows.len();
        self.flows.retain(|it| it.end > now);
        self.is_stale |= self.flows.len() < n_before;
        finished
    }

    /// Computes the rates again, if transfers began or ended.
    pub(super) fn share(&mut self, now: f64) {
        if !std::mem::take(&mut self.is_stale) {
            return;
        }
        let routes: Vec<&[usize]> = self.flows.iter().map(|it| &it.links[..]).collect();
        let rates = self.links.fair_rates(&routes);
        for (flow, rate) in self.flows.iter_mut().zip(rates) {
            // An unchanged rate keeps the time of arrival, without further rounding.
            if (rate - flow.bytes_per_second).abs() > rate * 1e-12 {
                flow.left -= flow.bytes_per_second * (now - flow.since);
                flow.since = now;
                flow.bytes_per_second = rate;
                flow.end = now + flow.left.max(0.0) / rate;
            }
        }
    }

    /// Counts the time since the last event for all links in use.
    fn count(&mut self, now: f64) {
        let mut is_used = vec![false; self.busy.len()];
        self.flows.iter().flat_map(|it| &it.links).for_each(|&link| is_used[link] = true);
        for (busy, _) in self.busy.iter_mut().zip(is_used).filter(|it| it.1) {
            *busy += now - self.counted;
        }
        self.counted = now;
    }
}
