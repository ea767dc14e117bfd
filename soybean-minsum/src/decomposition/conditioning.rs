//! Conditioning: lower bounds of a subproblem for each label of one of its variables.
//!
//! Message passing proves little where labels are symmetric, as tilings are along axes of one size.
//! An average over symmetric labels satisfies the relaxation at less than the optimal cost. Fixing
//! the label of one variable breaks the symmetry. The bound of a conditioned subproblem is mostly
//! its optimum.

use std::rc::Rc;

use super::template::Template;
use crate::{
    reparametrization::{Reparametrization, least},
    solve::NO_LIMIT,
};

/// The subproblems of a template, with the label of the conditioning variable fixed or free.
pub(super) struct Conditioned {
    label: Option<usize>,
    pub(super) reparametrization: Reparametrization,
    /// A lower bound at the present multipliers.
    pub(super) lower_bound: i64,
    pub(super) marginals: Marginals,
}

/// Lower bounds at the present multipliers for each label pair of the left and right separator.
pub(super) type Marginals = [Vec<i64>; 2];

impl Conditioned {
    /// Returns the subproblem without a fixed label.
    pub(super) fn free(template: &Template) -> Self {
        let marginals = template.n_labels().map(|it| vec![-NO_LIMIT; it.iter().product()]);
        let reparametrization = Reparametrization::new(template.problem.clone());
        Self { label: None, reparametrization, lower_bound: -NO_LIMIT, marginals }
    }

    /// Returns the subproblem for each label of the conditioning variable.
    pub(super) fn conditioned(self, template: &Template) -> Vec<Self> {
        let Some(variable) = template.conditioning_variable else { return vec![self] };
        let with_label = |label: usize| Self {
            label: Some(label),
            reparametrization: self.reparametrization.conditioned(variable, label),
            lower_bound: self.lower_bound,
            marginals: self.marginals.clone(),
        };
        (0..template.problem.unary[variable].len()).map(with_label).collect()
    }

    /// Raises the lower bound with these tables of the separators.
    pub(super) fn visit(&mut self, template: &Template, tables: &[Rc<[i64]>; 2]) {
        let reparametrization = &mut self.reparametrization;
        for (&edge, table) in template.separators.iter().zip(tables) {
            reparametrization.set_table(edge, Rc::clone(table));
        }
        // The first pass goes backward and ends at the left separator; the second one goes forward.
        self.marginals = template.separators.map(|separator| {
            reparametrization.raise_bound();
            reparametrization.edge_min_marginals(separator)
        });
        self.lower_bound = reparametrization.lower_bound;
    }

    /// Corrects the lower bounds after an update of the multipliers. The other separator may get
    /// cheaper by the most that any of its label pairs does.
    pub(super) fn update(&mut self, [left, right]: [&MultiplierUpdate; 2]) {
        let [of_left, of_right] = &mut self.marginals;
        let mut at = 0;
        while at < of_left.len() {
            of_left[at] += left.costs[at] - right.most;
            at += 1;
        }
        at = 0;
        while at < of_right.len() {
            of_right[at] += left.least - right.costs[at];
            at += 1;
        }
        self.lower_bound = least(of_left).max(least(of_right));
    }

    /// Sets the fixed label, if there is one, among the labels of the template's problem.
    pub(super) fn with_fixed_label(
        &self,
        template: &Template,
        mut labels: Vec<usize>,
    ) -> Vec<usize> {
        if let (Some(variable), Some(label)) = (template.conditioning_variable, self.label) {
            labels[variable] = label;
        }
        labels
    }
}

/// An update of the multipliers of a separator.
pub(super) struct MultiplierUpdate {
    pub(super) costs: Vec<i64>,
    least: i64,
    most: i64,
}

impl MultiplierUpdate {
    pub(super) fn new(costs: Vec<i64>) -> Self {
        let most = costs.iter().copied().max().expect("separators have labels");
        Self { least: least(&costs), most, costs }
    }
}
