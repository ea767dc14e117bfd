//! The greatest usage of all times, while usages change in ranges of times.

/// A segment tree: sums over ranges are added, and the greatest sum is asked for.
pub(super) struct Peak {
    n_times: usize,
    /// The usage added to all times of a node, and the greatest sum below it, with that usage.
    nodes: Vec<(i64, i64)>,
}

impl Peak {
    pub(super) fn new(profile: &[i64]) -> Self {
        let n_times = profile.len().next_power_of_two();
        let mut nodes = vec![(0, 0); 2 * n_times];
        for (time, usage) in profile.iter().enumerate() {
            nodes[n_times + time] = (*usage, *usage);
        }
        for node in (1..n_times).rev() {
            nodes[node].1 = nodes[2 * node].1.max(nodes[2 * node + 1].1);
        }
        Self { n_times, nodes }
    }

    /// Returns the greatest usage.
    pub(super) fn usage(&self) -> i64 {
        self.nodes[1].1
    }

    /// Adds to the usage of the times from `start` until before `end`.
    pub(super) fn add(&mut self, (start, end): (usize, usize), usage: i64) {
        if start >= end {
            return;
        }
        let (first, last) = (start + self.n_times, end + self.n_times - 1);
        let (mut left, mut right) = (first, last + 1);
        while left < right {
            if left % 2 == 1 {
                self.add_to_node(left, usage);
                left += 1;
            }
            if right % 2 == 1 {
                right -= 1;
                self.add_to_node(right, usage);
            }
            left /= 2;
            right /= 2;
        }
        self.refresh(first);
        self.refresh(last);
    }

    fn add_to_node(&mut self, node: usize, usage: i64) {
        self.nodes[node].0 += usage;
        self.nodes[node].1 += usage;
    }

    fn refresh(&mut self, mut node: usize) {
        while node > 1 {
            node /= 2;
            let below = self.nodes[2 * node].1.max(self.nodes[2 * node + 1].1);
            self.nodes[node].1 = self.nodes[node].0 + below;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_add_up_to_the_peak_of_a_plain_profile() {
        let mut profile = vec![3_i64, 1, 4, 1, 5, 9, 2];
        let mut peak = Peak::new(&profile);
        for step in 0..200_i64 {
            let start = usize::try_from(step * 5 % 7).unwrap();
            let end = (start + 1 + usize::try_from(step * 3 % 7).unwrap()).min(7);
            let usage = step * 11 % 23 - 11;
            profile[start..end].iter_mut().for_each(|it| *it += usage);
            peak.add((start, end), usage);
            assert_eq!(peak.usage().max(0), *profile.iter().max().unwrap().max(&0), "{step}");
        }
    }
}
