//! What is known of the time of a plan that was not chosen by time alone.

use super::{
    problem::{Choice, Meaning, Plan, Problem},
    strategy::Search,
    tiled::Tiled,
};
impl Search {
    /// The same with the time of its plan, where times are compared: memory may have put another plan in the place of the fastest. It is the fastest if it is no
    /// slower than any plan can be.
    pub(crate) fn retimed(mut self) -> Self {
        let (Some(times), Some(topology)) = (&mut self.times, &self.topology) else { return self };
        let problem = Problem::new(&self.tiled.network, self.tiled.mesh).timed(topology);
        let cost = problem.cost(&problem.plan_of(&self.tiled));
        times.plan = problem.pricing.seconds(problem.whole(cost)).unwrap_or(times.plan);
        self.is_optimal = times.plan <= times.lower_bound;
        self.lower_bound_bytes = 0;
        self
    }
}

impl Problem<'_> {
    /// The plan that a tiled network follows.
    pub(super) fn plan_of(&self, tiled: &Tiled) -> Plan {
        let choice = |meaning: &Meaning| match *meaning {
            Meaning::Tensor { value, .. } => Choice::Tensor(tiled.tilings[value.index()]),
            Meaning::Operator { value, .. } => Choice::Operator(tiled.signature(value).1.clone()),
        };
        self.meanings.iter().map(choice).collect()
    }
}
