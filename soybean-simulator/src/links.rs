//! The links of a cluster, which way a transfer takes over them, and how transfers share them.

use soybean_plan::{Cluster, Level};

/// What carries data in one direction: out of some GPUs of a group, or into them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Link {
    /// The number of the level.
    pub(crate) level: usize,
    /// The first of the GPUs that share it.
    pub(crate) first_gpu: usize,
    /// What it carries, in bytes per second.
    pub(crate) bytes_per_second: f64,
}

/// Which way a transfer takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The level that it crosses: the slowest at which its two GPUs are in different groups.
    pub(crate) level: usize,
    /// The links that it passes.
    pub(crate) links: Vec<usize>,
}

/// All links of the part of a cluster that a program uses.
///
/// GPUs are numbered so that those of a group follow one another; rank `i` is on GPU `i`. To reach another group, a GPU uses the link of that level. Where it shares that link with others of its group, it first
/// passes its links of the faster levels, as in a tree of switches; a link of its own, such as a network card, it reaches directly.
pub(crate) struct Links {
    /// For each level how many GPUs one of its groups has, and the level itself.
    levels: Vec<(usize, Level)>,
    n_gpus: usize,
    /// Those out of GPUs, then those into them, level by level.
    pub(crate) links: Vec<Link>,
    /// For each level the first of its links out of GPUs, and the first of those into them.
    first: Vec<[usize; 2]>,
}

impl Links {
    /// The links between the first `n_gpus` GPUs of a cluster.
    pub(crate) fn new(cluster: &Cluster, n_gpus: usize) -> Self {
        let mut group = cluster.n_gpus();
        let (mut levels, mut links, mut first) = (Vec::new(), Vec::new(), Vec::new());
        for (number, level) in cluster.levels.iter().enumerate() {
            group /= level.count.max(1);
            levels.push((group, level.clone()));
            let n_links = n_gpus.div_ceil(level.gpus_per_link);
            first.push([links.len(), links.len() + n_links]);
            let link = |it: usize| Link {
                level: number,
                first_gpu: it * level.gpus_per_link,
                bytes_per_second: level.link_bytes_per_second,
            };
            links.extend((0..2).flat_map(|_| 0..n_links).map(link));
        }
        Self { levels, n_gpus, links, first }
    }

    /// The way from one GPU to another.
    pub(crate) fn route(&self, source: usize, destination: usize) -> Route {
        debug_assert!(source.max(destination) < self.n_gpus && source != destination);
        let differs = |(group, _): &(usize, Level)| source / group != destination / group;
        let level = self.levels.iter().position(differs).unwrap_or(0);
        let last = match self.levels[level].1.gpus_per_link {
            1 => level,
            _ => self.levels.len() - 1,
        };
        let at = |level: usize, gpu: usize, direction: usize| {
            self.first[level][direction] + gpu / self.levels[level].1.gpus_per_link
        };
        let passed = (level..=last).flat_map(|it| [at(it, source, 0), at(it, destination, 1)]);
        Route { level, links: passed.collect() }
    }

    /// The time until the first byte arrives, in seconds.
    pub(crate) fn latency(&self, route: &Route) -> f64 {
        self.levels[route.level].1.latency_seconds
    }

    /// What is said of a link: its level, direction and GPUs.
    pub(crate) fn name(&self, link: usize) -> String {
        let Link { level, first_gpu, .. } = self.links[link];
        let direction = if link < self.first[level][1] { "from" } else { "to" };
        let Level { name, gpus_per_link, .. } = &self.levels[level].1;
        let last = (first_gpu + gpus_per_link).min(self.n_gpus) - 1;
        match last - first_gpu {
            0 => format!("{name}: {direction} GPU {first_gpu}"),
            _ => format!("{name}: {direction} GPUs {first_gpu} to {last}"),
        }
    }

    /// The bytes per second of transfers that share links fairly: no transfer can have more without another, that has no more than it, having less. Source: progressive filling, Bertsekas & Gallager 1992,
    /// section 6.5.
    pub(crate) fn fair_rates(&self, routes: &[&[usize]]) -> Vec<f64> {
        let mut free: Vec<f64> = self.links.iter().map(|it| it.bytes_per_second).collect();
        let mut n_waiting = vec![0_usize; free.len()];
        routes.iter().copied().flatten().for_each(|&link| n_waiting[link] += 1);
        let mut rates = vec![0.0; routes.len()];
        let mut waiting: Vec<usize> = (0..routes.len()).collect();
        while !waiting.is_empty() {
            let shares = free.iter().zip(&n_waiting).filter(|it| *it.1 > 0);
            let least = shares.map(|(free, n)| free / *n as f64).fold(f64::INFINITY, f64::min);
            // Links whose shares differ by rounding alone are filled together.
            let is_full: Vec<bool> = free
                .iter()
                .zip(&n_waiting)
                .map(|(free, n)| *n > 0 && free / *n as f64 <= least * (1.0 + 1e-12))
                .collect();
            let (filled, rest): (Vec<usize>, Vec<usize>) =
                waiting.iter().partition(|it| routes[**it].iter().any(|link| is_full[*link]));
            for transfer in filled {
                rates[transfer] = least;
                for &link in routes[transfer] {
                    free[link] = (free[link] - least).max(0.0);
                    n_waiting[link] -= 1;
                }
            }
            waiting = rest;
        }
        rates
    }
}

#[cfg(test)]
mod tests;
