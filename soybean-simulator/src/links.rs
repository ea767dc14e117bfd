//! The links of a cluster, the routes of transfers over them, and the rates of transfers that share
//! them.

use std::iter;

use soybean_plan::{Level, Topology};

/// A link in one direction: out of some GPUs of a group, or into them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Link {
    /// The number of the level.
    pub(crate) level: usize,
    /// The bandwidth, in bytes per second.
    pub(crate) bytes_per_second: f64,
}

/// The route of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The level that it crosses: the slowest at which its GPUs are in different groups.
    pub(crate) level: usize,
    /// The links of the route.
    pub(crate) links: Vec<usize>,
}

/// All links of the part of a cluster that a program uses.
///
/// Rank `i` is the `i`-th GPU of that part, group by group. To reach another group, a GPU uses the
/// link of that level. If it shares that link with others of its group, it first passes its links
/// of the faster levels, as in a tree of switches. A link of its own, such as a network card, is
/// reached directly.
pub(crate) struct Links {
    levels: Vec<Joint>,
    /// The links, level by level: those out of GPUs, then those into them.
    pub(crate) links: Vec<Link>,
}

/// The used part of a level.
struct Joint {
    level: Level,
    /// The number of GPUs of one of its groups.
    group: usize,
    /// The number of GPUs that share a link.
    n_sharing: usize,
    /// The first link out of GPUs, and the first into them.
    first: [usize; 2],
}

impl Joint {
    /// Returns the link of a GPU among those of one direction.
    fn link(&self, gpu: usize) -> usize {
        let n_in_group = self.group.div_ceil(self.n_sharing);
        gpu / self.group * n_in_group + gpu % self.group / self.n_sharing
    }
}

impl Links {
    /// Returns the links between the ranks of a topology.
    pub(crate) fn new(topology: &Topology) -> Self {
        let (mesh, levels) = (topology.mesh(), &topology.cluster().levels);
        let (mut joints, mut links) = (Vec::new(), Vec::new());
        for (number, level) in levels.iter().enumerate() {
            let faster = (0..mesh.n_axes()).filter(|axis| topology.level(*axis) > number);
            let group = mesh.group_size(faster.collect());
            let n_sharing = level.gpus_per_link.clamp(1, group);
            let n_links = mesh.n_ranks() / group * group.div_ceil(n_sharing);
            joints.push(Joint {
                level: level.clone(),
                group,
                n_sharing,
                first: [links.len(), links.len() + n_links],
            });
            let link = Link { level: number, bytes_per_second: level.link_bytes_per_second };
            links.extend(iter::repeat_n(link, 2 * n_links));
        }
        Self { levels: joints, links }
    }

    /// Returns the number of levels.
    pub(crate) fn n_levels(&self) -> usize {
        self.levels.len()
    }

    /// Returns the route from one GPU to another.
    ///
    /// # Panics
    /// If they are the same.
    pub(crate) fn route(&self, source: usize, destination: usize) -> Route {
        let differs = |it: &Joint| source / it.group != destination / it.group;
        let level =
            self.levels.iter().position(differs).expect("two GPUs differ at the last level");
        let n_passed = match self.levels[level].n_sharing {
            1 => 1,
            _ => self.levels.len() - level,
        };
        let passed = self.levels[level..].iter().take(n_passed);
        let links = passed
            .flat_map(|it| [it.first[0] + it.link(source), it.first[1] + it.link(destination)]);
        Route { level, links: links.collect() }
    }

    /// Returns the time until the first byte arrives, in seconds.
    pub(crate) fn latency(&self, route: &Route) -> f64 {
        self.levels[route.level].level.latency_seconds
    }

    /// Describes a link by its level, direction and GPUs.
    pub(crate) fn name(&self, link: usize) -> String {
        let joint = &self.levels[self.links[link].level];
        let (direction, first) = match link < joint.first[1] {
            true => ("from", joint.first[0]),
            false => ("to", joint.first[1]),
        };
        let n_in_group = joint.group.div_ceil(joint.n_sharing);
        let (group, place) = ((link - first) / n_in_group, (link - first) % n_in_group);
        let start = group * joint.group + place * joint.n_sharing;
        let last = (start + joint.n_sharing).min((group + 1) * joint.group) - 1;
        match last - start {
            0 => format!("{}: {direction} GPU {start}", joint.level.name),
            _ => format!("{}: {direction} GPUs {start} to {last}", joint.level.name),
        }
    }

    /// Returns the bytes per second of transfers that share links fairly (max-min fairness). No
    /// transfer can have more unless another with at most the same rate has less. Source:
    /// progressive filling, Bertsekas & Gallager 1992, section 6.5.
    pub(crate) fn fair_rates(&self, routes: &[&[usize]]) -> Vec<f64> {
        let mut free: Vec<f64> = self.links.iter().map(|it| it.bytes_per_second).collect();
        let mut n_waiting = vec![0_usize; free.len()];
        routes.iter().copied().flatten().for_each(|&link| n_waiting[link] += 1);
        let mut rates = vec![0.0; routes.len()];
        let mut waiting: Vec<usize> = (0..routes.len()).collect();
        while !waiting.is_empty() {
            let shares = free.iter().zip(&n_waiting).filter(|it| *it.1 > 0);
            let least = shares.map(|(free, n)| free / *n as f64).fold(f64::INFINITY, f64::min);
            // Links whose shares differ only by rounding are filled together.
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
mod tests {
    use soybean_plan::{Cluster, Device, Measurements};

    use super::*;

    /// Two groups of three GPUs. Those of a group share the link to the other if `gpus_per_link` is
    /// 3.
    fn links(gpus_per_link: usize) -> Links {
        let level = |name: &'static str, count, link_bytes_per_second, gpus_per_link| Level {
            name: name.into(),
            count,
            link_bytes_per_second,
            gpus_per_link,
            latency_seconds: 0.0,
        };
        let device = Device {
            name: "abacus".into(),
            f32_flops: 1.0,
            tf32_flops: 1.0,
            bf16_flops: 1.0,
            memory_bytes_per_second: 1.0,
            memory_bytes: 1,
            launch_seconds: 0.0,
            efficiency: 1.0,
        };
        let levels = vec![level("groups", 2, 6.0, gpus_per_link), level("gpus", 3, 4.0, 1)].into();
        let cluster =
            Cluster { name: "small".into(), levels, device, measurements: Measurements::default() };
        Links::new(&Topology::new(&cluster, 6).expect("it has 6 GPUs"))
    }

    fn way(links: &Links, source: usize, destination: usize) -> Vec<String> {
        let route = links.route(source, destination);
        route.links.iter().map(|it| links.name(*it)).collect()
    }

    #[test]
    fn a_shared_link_is_behind_those_of_the_gpus() {
        let links = links(3);
        assert_eq!(way(&links, 1, 2), ["gpus: from GPU 1", "gpus: to GPU 2"]);
        let across = [
            "groups: from GPUs 0 to 2",
            "groups: to GPUs 3 to 5",
            "gpus: from GPU 1",
            "gpus: to GPU 5",
        ];
        assert_eq!(way(&links, 1, 5), across);
    }

    #[test]
    fn a_link_of_its_own_is_beside_the_others() {
        let links = links(1);
        assert_eq!(way(&links, 1, 5), ["groups: from GPU 1", "groups: to GPU 5"]);
    }

    #[test]
    fn what_one_transfer_cannot_use_goes_to_the_others() {
        let links = links(3);
        // Three GPUs send to the other group at 6 bytes per second together. The third sends the
        // rest of its own 4 to its neighbor.
        let routes: Vec<Route> =
            [(0, 3), (1, 4), (2, 5), (2, 0)].map(|(from, to)| links.route(from, to)).to_vec();
        let routes: Vec<&[usize]> = routes.iter().map(|it| &it.links[..]).collect();
        assert_eq!(links.fair_rates(&routes), [2.0, 2.0, 2.0, 2.0]);
        assert_eq!(links.fair_rates(&routes[..2]), [3.0, 3.0]);
        assert_eq!(links.fair_rates(&[routes[0], routes[3]]), [4.0, 4.0]);
        // Two transfers leave one GPU for its group, and a third has the destination of one of
        // them.
        let routes: Vec<Route> =
            [(0, 1), (0, 1), (0, 2), (1, 2)].map(|(from, to)| links.route(from, to)).to_vec();
        let routes: Vec<&[usize]> = routes.iter().map(|it| &it.links[..]).collect();
        let rates = links.fair_rates(&routes);
        let expected = [4.0 / 3.0, 4.0 / 3.0, 4.0 / 3.0, 8.0 / 3.0];
        assert!(rates.iter().zip(expected).all(|it| (it.0 - it.1).abs() < 1e-12), "{rates:?}");
    }
}
