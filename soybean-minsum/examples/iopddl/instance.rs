//! Instances of the contest on intra-operator parallelism (ASPLOS/EuroSys 2025).

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufReader, Read},
    path::Path,
    rc::Rc,
};

use serde::Deserialize;
use soybean_minsum::{Edge, PairwiseProblem, UsageProblem};

/// Costs from here on forbid a label or a pair.
const FORBIDDEN: i64 = 1_000_000_000_000_000_000;
/// The greatest sum of the greatest costs of all tables.
const MOST_COST: i64 = 1 << 60;

#[derive(Deserialize)]
struct InstanceFile {
    problem: Instance,
}

/// An instance as its file states it.
#[derive(Deserialize)]
pub(crate) struct Instance {
    nodes: Nodes,
    edges: Edges,
    usage_limit: Option<i64>,
}

#[derive(Deserialize)]
struct Nodes {
    intervals: Vec<[u64; 2]>,
    costs: Vec<Vec<i64>>,
    usages: Vec<Vec<i64>>,
}

#[derive(Deserialize)]
struct Edges {
    nodes: Vec<Vec<usize>>,
    costs: Vec<Vec<i64>>,
}

impl Instance {
    /// Reads a file, which may be compressed with gzip, and checks it.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|it| it.to_string())?;
        let mut reader: Box<dyn Read> = Box::new(BufReader::new(file));
        if path.extension().is_some_and(|it| it == "gz") {
            reader = Box::new(flate2::read::MultiGzDecoder::new(reader));
        }
        let mut text = Vec::new();
        reader.read_to_end(&mut text).map_err(|it| it.to_string())?;
        Self::parse(&text)
    }

    /// Parses and checks an instance.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let InstanceFile { problem } = serde_json::from_slice(text).map_err(|it| it.to_string())?;
        problem.check()?;
        Ok(problem)
    }

    fn check(&self) -> Result<(), String> {
        let Self { nodes, edges, .. } = self;
        let n = nodes.costs.len();
        if n == 0 {
            return Err("the instance has no nodes".into());
        }
        if nodes.intervals.len() != n || nodes.usages.len() != n {
            return Err(format!("{n} nodes have costs; as many need intervals and usages"));
        }
        if edges.nodes.len() != edges.costs.len() {
            return Err("each edge needs nodes and costs".into());
        }
        if self.usage_limit.is_some_and(|it| it < 0) {
            return Err("the usage limit must be at least zero".into());
        }
        let mut usage = 0_i64;
        for (node, (costs, usages)) in nodes.costs.iter().zip(&nodes.usages).enumerate() {
            if costs.is_empty() || costs.len() != usages.len() || costs.len() > 1 << 16 {
                return Err(format!("node {node} needs 1 to 65536 costs, and as many usages"));
            }
            if usages.iter().chain(costs).any(|it| *it < 0) {
                return Err(format!("node {node}: costs and usages must be at least zero"));
            }
            let most = usages.iter().max().copied().unwrap_or(0);
            usage = usage.checked_add(most).ok_or("the sum of usages exceeds 64 bits")?;
        }
        for (edge, (ends, costs)) in edges.nodes.iter().zip(&edges.costs).enumerate() {
            let ([first, second] | [first, .., second]) = ends[..] else {
                return Err(format!("edge {edge} has fewer than two nodes"));
            };
            if ends.len() > 2 {
                return Err(format!("edge {edge} has {} nodes; only two work", ends.len()));
            }
            if first.max(second) >= n || first == second {
                return Err(format!("edge {edge}: {ends:?} are not two of the {n} nodes"));
            }
            let n_pairs = nodes.costs[first].len() * nodes.costs[second].len();
            if costs.len() != n_pairs || costs.iter().any(|it| *it < 0) {
                return Err(format!("edge {edge} needs {n_pairs} costs, each at least zero"));
            }
        }
        Ok(())
    }

    /// Returns the min-sum problem, with a finite cost for what is forbidden.
    pub(crate) fn usage_problem(&self) -> Result<UsageProblem, String> {
        let Self { nodes, edges, usage_limit } = self;
        let n_tables = i64::try_from(nodes.costs.len() + edges.costs.len());
        let forbidden = MOST_COST / n_tables.map_err(|it| it.to_string())?;
        let mut sums: BTreeMap<(usize, usize), Vec<i64>> = BTreeMap::new();
        for (ends, costs) in edges.nodes.iter().zip(&edges.costs) {
            let (first, second) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
            let n_second = nodes.costs[second].len();
            let table = sums.entry((first, second)).or_insert_with(|| vec![0; costs.len()]);
            for (at, sum) in table.iter_mut().enumerate() {
                let (row, column) = (at / n_second, at % n_second);
                let from =
                    if ends[0] == first { at } else { column * nodes.costs[first].len() + row };
                *sum = sum.saturating_add(costs[from]);
            }
        }
        let finite = |costs: &[i64]| -> Result<Vec<i64>, String> {
            let allowed = costs.iter().filter(|it| **it < FORBIDDEN);
            match allowed.max() {
                Some(most) if *most >= forbidden => Err(format!("a cost of {most} is too large")),
                _ => Ok(costs.iter().map(|it| (*it).min(forbidden)).collect()),
            }
        };
        let unary = nodes.costs.iter().map(|it| finite(it)).collect::<Result<_, _>>()?;
        let mut shared: BTreeMap<Vec<i64>, Rc<[i64]>> = BTreeMap::new();
        let mut found = Vec::new();
        for ((first, second), table) in sums {
            let costs = finite(&table)?;
            let table = shared.entry(costs).or_insert_with_key(|it| it[..].into());
            found.push(Edge { first, second, table: Rc::clone(table) });
        }
        Ok(UsageProblem {
            problem: PairwiseProblem { unary, edges: found },
            intervals: nodes.intervals.iter().map(|it| it[0]..it[1]).collect(),
            usages: nodes.usages.clone(),
            limit: usage_limit.unwrap_or(i64::MAX / 4),
        })
    }

    /// Returns the cost of strategies, or what is wrong with them.
    pub(crate) fn evaluate(&self, strategies: &[usize]) -> Result<i64, String> {
        let Self { nodes, edges, usage_limit } = self;
        let mut cost: i64 = 0;
        let mut add = |it: i64| {
            cost = cost.saturating_add(it);
            if it < FORBIDDEN { Ok(()) } else { Err(String::from("a strategy is forbidden")) }
        };
        for (costs, strategy) in nodes.costs.iter().zip(strategies) {
            add(costs[*strategy])?;
        }
        for (ends, costs) in edges.nodes.iter().zip(&edges.costs) {
            let n_second = nodes.costs[ends[1]].len();
            add(costs[strategies[ends[0]] * n_second + strategies[ends[1]]])?;
        }
        let mut changes: BTreeMap<u64, i64> = BTreeMap::new();
        let usages = nodes.usages.iter().zip(strategies).map(|(it, strategy)| it[*strategy]);
        for ([start, end], usage) in nodes.intervals.iter().zip(usages) {
            if start < end {
                *changes.entry(*start).or_default() += usage;
                *changes.entry(*end).or_default() -= usage;
            }
        }
        let (mut usage, limit) = (0, usage_limit.unwrap_or(i64::MAX));
        for (time, change) in changes {
            usage += change;
            if usage > limit {
                return Err(format!("the usage at time {time} is {usage}, above {limit}"));
            }
        }
        Ok(cost)
    }
}

#[cfg(test)]
mod tests {
    use soybean_minsum::{Effort, solve_within_usage};

    use super::*;

    /// The contest's example.
    const EXAMPLE: &str = r#"{"problem": {"nodes": {
        "intervals": [[30, 70], [40, 70], [50, 120], [110, 140], [110, 150]],
        "costs": [[15], [55, 65], [25, 45, 35], [85, 75], [95]],
        "usages": [[10], [25, 25], [15, 20, 15], [10, 10], [15]]},
        "edges": {"nodes": [[0, 1], [0, 2], [1, 3], [2, 4], [3, 4]],
        "costs": [[30, 40], [50, 10, 40], [90, 10, 20, 80], [60, 20, 30], [70, 60]]},
        "usage_limit": 50}}"#;

    #[test]
    fn the_example_has_its_least_cost_at_two_runs() {
        let instance = Instance::parse(EXAMPLE.as_bytes()).unwrap();
        let problem = instance.usage_problem().unwrap();
        let solve = || solve_within_usage(&problem, Effort::Work(100_000), &mut |_| ());
        let (found, again) = (solve(), solve());
        let labels = found.labels.unwrap();
        assert_eq!(instance.evaluate(&labels), Ok(445));
        assert!(found.lower_bound <= 445);
        assert_eq!((Some(labels), found.lower_bound), (again.labels, again.lower_bound));
    }

    #[test]
    fn faults_are_told() {
        let check = |from: &str, to: &str, expected: &str| {
            let text = EXAMPLE.replace(from, to);
            let error = Instance::parse(text.as_bytes()).err().unwrap_or_default();
            assert!(error.contains(expected), "{from} -> {to}: {error}");
        };
        check("[0, 1]", "[0, 1, 2]", "edge 0 has 3 nodes; only two work");
        check("[0, 1]", "[0, 9]", "edge 0: [0, 9] are not two of the 5 nodes");
        check("[0, 1]", "[0]", "edge 0 has fewer than two nodes");
        check("[30, 40]", "[30]", "edge 0 needs 2 costs");
        check("[[15]", "[[]", "node 0 needs 1 to 65536 costs");
        check("[[10]", "[[-1]", "node 0: costs and usages must be at least zero");
        check("[[10]", "[[10], [10]", "as many need intervals and usages");
        check("[[10]", "[[1e99]", "line 4");
        check("t\": 50", "t\": -1", "the usage limit must be at least zero");
        check("}}", "", "EOF");
    }
}
