//! Dual decomposition of a chain of subproblems.
//!
//! Neighboring subproblems share a *separator*: two variables. Lagrange multipliers on the label
//! pairs of a separator make its subproblems agree. The subproblem to its right pays the
//! multiplier, and the one to its left receives it. The sum of the subproblems' lower bounds is a
//! lower bound of the whole problem, whatever the multipliers are. They are updated until no
//! subproblem can raise its bound at the expense of another. Then few labels are within reach of
//! the bound. Elimination enumerates the costs of each subproblem with them, and dynamic
//! programming along the chain finds the best assignment. Equal subproblems between equal
//! separators form a class and are visited once.
//!
//! Source: Komodakis, Paragios and Tziritas 2007 and 2011. Here averaged min-marginals update all
//! multipliers, as in max-sum diffusion (Werner 2007), instead of subgradients.

mod conditioning;
mod enumeration;
mod separators;
mod split;
mod subproblem_class;
mod template;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, rc::Rc};

use conditioning::MultiplierUpdate;
use enumeration::{Row, WorkExceeded};
use split::{Split, Subproblem};
use subproblem_class::{ClassTable, SubproblemClass};
use template::Template;

use super::{problem::PairwiseProblem, reparametrization::add_multiple};

/// The number of rounds after which progress is judged.
const N_ROUNDS: u64 = 4;
/// Progress is slow if 32 times as much would not close the gap.
const SLOW: i64 = 32;
/// Progress is so slow that more rounds are no use if 2,048 times as much would not close the gap.
const STUCK: i64 = 1 << 11;
/// The first enumeration reaches 1/32 of the gap above the bound.
const FIRST_SLACK: i64 = 32;
/// An enumeration takes at most 1/4 of the work done so far.
const WORK_SHARE: u64 = 4;
/// After an enumeration that took too much work, the slack changes by 1/4 at a time.
const CAUTION: i64 = 4;

/// A problem as a chain of subproblems, with the multipliers of its separators.
pub(crate) struct DualDecomposition {
    templates: Vec<Template>,
    subproblems: Vec<Subproblem>,
    classes: Vec<SubproblemClass>,
    /// The class of each subproblem.
    class_of: Vec<usize>,
    separators: Vec<SeparatorClass>,
    n_variables: usize,
    /// The number of table entries that may still be visited.
    work_left: u64,
}

/// The separators between subproblems of the same two templates.
struct SeparatorClass {
    n_separators: i64,
    /// For each pair of labels, the cost that the right subproblem pays to the left one.
    multipliers: Vec<i64>,
}

/// The result of dual decomposition.
pub(crate) struct DualSolution {
    /// An optimal assignment, if one below the limit was found.
    pub(crate) labels: Option<Vec<usize>>,
    /// No assignment costs less; never more than the limit.
    pub(crate) lower_bound: i64,
    /// The work done.
    pub(crate) work: u64,
}

/// The plan for the next enumeration.
struct Schedule {
    /// The distance above the bound that it covers.
    slack: i64,
    /// After a success, the slack grows by one part in this many.
    caution: i64,
    /// The work done when it is due.
    due: u64,
}

impl Schedule {
    fn new(slack: i64) -> Self {
        Self { slack, caution: 1, due: 0 }
    }
}

impl DualDecomposition {
    /// Splits a problem, or returns `None` if it has no separators.
    pub(crate) fn new(problem: &PairwiseProblem, work: u64) -> Option<Self> {
        let Split { subproblems, templates } = Split::new(problem)?;
        let templates: Vec<Template> = templates.iter().map(Template::new).collect();
        let mut this = Self {
            class_of: Vec::with_capacity(subproblems.len()),
            classes: Vec::new(),
            separators: Vec::new(),
            n_variables: problem.unary.len(),
            work_left: work,
            templates,
            subproblems,
        };
        // Both ends of the chain get a trivial separator of one label pair.
        let template_at = |at: Option<usize>| Some(this.subproblems.get(at?)?.template);
        let around: Vec<[Option<usize>; 2]> = (0..=this.subproblems.len())
            .map(|at| [template_at(at.checked_sub(1)), template_at(Some(at))])
            .collect();
        let mut numbers = BTreeMap::new();
        let separators: Vec<usize> = around
            .into_iter()
            .map(|it| *numbers.entry(it).or_insert_with(|| this.add_separator_class(it)))
            .collect();
        for (number, between) in separators.windows(2).enumerate() {
            this.add_to_class(this.subproblems[number].template, [between[0], between[1]]);
        }
        separators.into_iter().for_each(|it| this.separators[it].n_separators += 1);
        Some(this)
    }

    /// Adds a class of separators between subproblems of these templates.
    fn add_separator_class(&mut self, [left, right]: [Option<usize>; 2]) -> usize {
        let of_right = right.map(|it| self.templates[it].n_labels()[0]);
        let n_labels = of_right.or_else(|| left.map(|it| self.templates[it].n_labels()[1]));
        let n_pairs: usize = n_labels.expect("a separator has a subproblem").iter().product();
        self.separators.push(SeparatorClass { n_separators: 0, multipliers: vec![0; n_pairs] });
        self.separators.len() - 1
    }

    fn add_to_class(&mut self, template: usize, separators: [usize; 2]) {
        let is_same = |it: &SubproblemClass| it.template == template && it.separators == separators;
        let class = self.classes.iter().position(is_same).unwrap_or_else(|| {
            let class = SubproblemClass::new(template, &self.templates[template], separators);
            self.classes.push(class);
            self.classes.len() - 1
        });
        self.classes[class].n_subproblems += 1;
        self.class_of.push(class);
    }

    /// Searches for an assignment that costs less than the limit, as far as the work allows.
    pub(crate) fn solve_below(mut self, limit: i64) -> DualSolution {
        let work = self.work_left;
        let mut solution = DualSolution { labels: None, lower_bound: i64::MIN, work: 0 };
        let mut schedule: Option<Schedule> = None;
        let (mut margin, mut judged) = (0, 0);
        for round in 1.. {
            let updates = self.visit(margin);
            let bound = self.lower_bound();
            let gap = limit - bound;
            solution.lower_bound = solution.lower_bound.max(bound).min(limit);
            if solution.lower_bound == limit || self.work_left == 0 {
                break;
            }
            margin = gap / (2 * self.subproblems.len() as i64);
            if round == N_ROUNDS {
                self.condition();
                judged = bound;
            } else if round % N_ROUNDS == 0 {
                let gain = bound - judged;
                let done = work - self.work_left;
                if gain < gap / SLOW {
                    let it = schedule.get_or_insert(Schedule::new(gap / FIRST_SLACK));
                    let is_due = it.due <= done || gain < gap / STUCK;
                    if is_due && self.enumerate(it, done, limit, &mut solution) {
                        break;
                    }
                }
                judged = bound;
            }
            self.update(&updates);
        }
        solution.work = work - self.work_left;
        solution
    }

    /// Enumerates what costs little more than the bound. Returns whether that ends the search.
    fn enumerate(
        &mut self,
        schedule: &mut Schedule,
        done: u64,
        limit: i64,
        solution: &mut DualSolution,
    ) -> bool {
        let bound = self.lower_bound();
        let slack = schedule.slack.clamp(1, limit - bound);
        let share = (done / WORK_SHARE).min(self.work_left);
        let mut share_left = share;
        let found = self.best_within(slack, &mut share_left);
        let spent = share - share_left;
        self.work_left -= spent;
        schedule.due = done + 2 * spent;
        match found {
            Ok(Some((labels, cost))) => {
                solution.lower_bound = limit.min(bound + cost);
                solution.labels = (bound + cost < limit).then_some(labels);
                return true;
            }
            Ok(None) => {
                solution.lower_bound = limit.min(bound + slack + 1).max(solution.lower_bound);
                schedule.slack = slack + (slack / schedule.caution).max(1);
            }
            Err(WorkExceeded) => {
                schedule.slack = slack - slack / CAUTION;
                schedule.caution = CAUTION;
            }
        }
        solution.lower_bound == limit
    }

    /// Returns the sum of the lower bounds of all subproblems.
    fn lower_bound(&self) -> i64 {
        let of_class = |it: &SubproblemClass| {
            it.n_subproblems * (it.lower_bound + self.templates[it.template].constant)
        };
        self.classes.iter().map(of_class).sum()
    }

    /// Returns the tables of the left and right separator of each class, with the multipliers.
    fn separator_tables(&self) -> Vec<[Rc<[i64]>; 2]> {
        let of_class = |class: &SubproblemClass| {
            let template = &self.templates[class.template];
            let of_edge =
                |side: usize| template.problem.edges[template.separators[side]].table.iter();
            let multipliers =
                |side: usize| self.separators[class.separators[side]].multipliers.iter();
            let left = of_edge(0).zip(multipliers(0)).map(|(cost, it)| cost + it).collect();
            [left, of_edge(1).zip(multipliers(1)).map(|(cost, it)| cost - it).collect()]
        };
        self.classes.iter().map(of_class).collect()
    }

    /// Raises the lower bounds of all classes. Returns an update of the multipliers for each class
    /// of separators.
    fn visit(&mut self, margin: i64) -> Vec<MultiplierUpdate> {
        let mut updates: Vec<Vec<i64>> =
            self.separators.iter().map(|it| vec![0; it.multipliers.len()]).collect();
        let tables = self.separator_tables();
        for (class, tables) in self.classes.iter_mut().zip(&tables) {
            let template = &self.templates[class.template];
            let (marginals, n_visited) = class.visit(template, tables, margin);
            self.work_left = self.work_left.saturating_sub(n_visited * 2 * template.pass_work());
            let [left, right] = class.separators;
            add_multiple(&mut updates[left], &marginals[0], -class.n_subproblems);
            add_multiple(&mut updates[right], &marginals[1], class.n_subproblems);
        }
        let update = |(separator, mut costs): (&SeparatorClass, Vec<i64>)| {
            match costs.len() {
                // The trivial separators have nobody to pay.
                1 => costs[0] = 0,
                // All multipliers change at once, and each subproblem has two separators. With a
                // quarter of the difference no bound falls.
                _ => costs.iter_mut().for_each(|it| *it /= 4 * separator.n_separators),
            }
            MultiplierUpdate::new(costs)
        };
        self.separators.iter().zip(updates).map(update).collect()
    }

    /// Applies updates of the multipliers.
    fn update(&mut self, updates: &[MultiplierUpdate]) {
        for (separator, update) in self.separators.iter_mut().zip(updates) {
            add_multiple(&mut separator.multipliers, &update.costs, 1);
        }
        self.classes.iter_mut().for_each(|it| it.update(updates));
    }

    /// Conditions every class on the labels of one variable.
    fn condition(&mut self) {
        for class in &mut self.classes {
            class.condition(&self.templates[class.template]);
        }
    }

    /// Returns an optimal assignment and its distance from the bound, if that is within the slack.
    fn best_within(
        &mut self,
        slack: i64,
        work: &mut u64,
    ) -> Result<Option<(Vec<usize>, i64)>, WorkExceeded> {
        let separator_tables = self.separator_tables();
        let mut tables = Vec::with_capacity(self.classes.len());
        for (class, separators) in self.classes.iter_mut().zip(&separator_tables) {
            tables.push(class.table(&self.templates[class.template], separators, slack, work)?);
        }
        Ok(self.best_path(&tables).filter(|(_, cost)| *cost <= slack))
    }

    /// Returns the best assignment among the rows of the tables, by dynamic programming along the
    /// chain (Viterbi), and its distance from the bound.
    fn best_path(&self, tables: &[ClassTable]) -> Option<(Vec<usize>, i64)> {
        // The cost of everything to the left, for each label pair of a separator.
        let mut costs: BTreeMap<usize, i64> = BTreeMap::from([(0, 0)]);
        // The best row of each subproblem, for each label pair of its right separator.
        let mut best: Vec<BTreeMap<usize, &(usize, Row)>> =
            Vec::with_capacity(self.subproblems.len());
        for &class in &self.class_of {
            let mut next: BTreeMap<usize, (i64, &(usize, Row))> = BTreeMap::new();
            for numbered in &tables[class].rows {
                let row = numbered.1;
                let Some(left) = costs.get(&row.separators[0]) else { continue };
                let cost = left + row.cost - self.classes[class].lower_bound;
                let known = next.entry(row.separators[1]).or_insert((cost, numbered));
                if cost < known.0 {
                    *known = (cost, numbered);
                }
            }
            costs = next.iter().map(|(&pair, &(cost, _))| (pair, cost)).collect();
            best.push(next.into_iter().map(|(pair, (_, row))| (pair, row)).collect());
        }
        let cost = *costs.get(&0)?;
        let mut labels = vec![0; self.n_variables];
        let mut right = 0;
        for ((subproblem, &class), best) in
            self.subproblems.iter().zip(&self.class_of).zip(&best).rev()
        {
            let row = best[&right];
            let of_class = &self.classes[class];
            let of_subproblem =
                of_class.labels(&self.templates[of_class.template], &tables[class], row);
            for (variable, label) in subproblem.variables.iter().zip(of_subproblem) {
                if let Some(variable) = variable {
                    labels[*variable] = label;
                }
            }
            right = row.1.separators[0];
        }
        Some((labels, cost))
    }
}
