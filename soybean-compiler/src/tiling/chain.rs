//! Problems of many layers, as pieces that follow each other.
//!
//! Next to each other pieces have only a pair of variables in common, their joint. Potentials settle what leads across a joint: with each two
//! states of it the piece behind pays so much, and the piece before gets it. Each piece then has a bound of its own, found case by case, and potentials move until
//! no piece can raise its bound at another's expense. Where that is nearly what states cost, little is left to choose from in each piece, elimination tells what all of that
//! costs, and one walk along the chain finds the best. Pieces that are alike, between joints that are alike, are looked at once.
//! Source: dual decomposition into subproblems, as in Komodakis et al. 2007; here with pieces, and moved like messages.

mod cases;
mod part;
mod pieces;
mod separators;
mod table;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, rc::Rc};

use cases::{Change, Kind};
use part::{Part, PartTable};
use pieces::{Piece, Pieces};
use table::{Row, TooMuch};

use super::pairwise::Pairwise;

/// Rounds after which progress is judged.
const N_ROUNDS: u64 = 4;
/// Progress is slow if that many times as much would not close the gap.
const SLOW: i64 = 32;
/// Progress is so slow that waiting is no use.
const STUCK: i64 = 1 << 11;
/// What is listed first lies within one part of the gap among as many.
const AIM: i64 = 32;
/// A list takes at most one part of the work done so far among as many.
const SHARE: u64 = 4;
/// How much further the next list reaches once one was too long, or how much less far: one part among as many.
const CAUTION: i64 = 4;

/// A problem in pieces, and what is known of it.
pub(super) struct Chain {
    kinds: Vec<Kind>,
    pieces: Vec<Piece>,
    parts: Vec<Part>,
    /// For each piece its part.
    part_of: Vec<usize>,
    joints: Vec<Joint>,
    n_variables: usize,
    /// The entries of tables that may still be looked at.
    work_left: u64,
}

/// Joints between pieces of the same two kinds.
struct Joint {
    n_joints: i64,
    /// What the piece behind pays to the piece before for each two states.
    potential: Vec<i64>,
}

/// What is known in the end.
pub(super) struct Proved {
    /// States that cost less than the limit, if any were found.
    pub(super) better: Option<Vec<usize>>,
    /// What all states cost at least, or the limit.
    pub(super) bound: i64,
}

/// How far the next list reaches.
struct Listing {
    slack: i64,
    /// It reaches that much further if one part among as many is added.
    caution: i64,
    /// The work done when it is due.
    due: u64,
}

impl Listing {
    fn new(slack: i64) -> Self {
        Self { slack, caution: 1, due: 0 }
    }
}

impl Chain {
    /// None if the problem does not fall into pieces.
    pub(super) fn new(problem: &Pairwise, work: u64) -> Option<Self> {
        let Pieces { pieces, kinds } = Pieces::new(problem)?;
        let kinds: Vec<Kind> = kinds.iter().map(Kind::new).collect();
        let mut this = Self {
            part_of: Vec::with_capacity(pieces.len()),
            parts: Vec::new(),
            joints: Vec::new(),
            n_variables: problem.unary.len(),
            work_left: work,
            kinds,
            pieces,
        };
        // Besides the joints between pieces there is one before the first piece and one behind the last, of one state.
        let kind_at = |at: Option<usize>| Some(this.pieces.get(at?)?.kind);
        let around: Vec<[Option<usize>; 2]> = (0..=this.pieces.len())
            .map(|at| [kind_at(at.checked_sub(1)), kind_at(Some(at))])
            .collect();
        let mut numbers = BTreeMap::new();
        let joints: Vec<usize> = around
            .into_iter()
            .map(|it| *numbers.entry(it).or_insert_with(|| this.joint(it)))
            .collect();
        for (number, between) in joints.windows(2).enumerate() {
            this.add_to_part(this.pieces[number].kind, [between[0], between[1]]);
        }
        joints.into_iter().for_each(|it| this.joints[it].n_joints += 1);
        Some(this)
    }

    /// A new joint between pieces of these kinds.
    fn joint(&mut self, [before, behind]: [Option<usize>; 2]) -> usize {
        let of_behind = behind.map(|it| self.kinds[it].n_states()[0]);
        let n_states = of_behind.or_else(|| before.map(|it| self.kinds[it].n_states()[1]));
        let n_states: usize = n_states.expect("a piece lies on one side").iter().product();
        self.joints.push(Joint { n_joints: 0, potential: vec![0; n_states] });
        self.joints.len() - 1
    }

    fn add_to_part(&mut self, kind: usize, joints: [usize; 2]) {
        let is_same = |it: &Part| it.kind == kind && it.joints == joints;
        let part = self.parts.iter().position(is_same).unwrap_or_else(|| {
            self.parts.push(Part::new(kind, &self.kinds[kind], joints));
            self.parts.len() - 1
        });
        self.parts[part].n_pieces += 1;
        self.part_of.push(part);
    }

    /// Looks for states that cost less than the limit, as far as the work goes.
    pub(super) fn proved(mut self, limit: i64) -> Proved {
        let work = self.work_left;
        let mut proved = Proved { better: None, bound: i64::MIN };
        let mut listing: Option<Listing> = None;
        let (mut margin, mut judged) = (0, 0);
        for round in 1.. {
            let changes = self.visit(margin);
            let bound = self.bound();
            let gap = limit - bound;
            proved.bound = proved.bound.max(bound).min(limit);
            if proved.bound == limit || self.work_left == 0 {
                break;
            }
            margin = gap / (2 * self.pieces.len() as i64);
            if round == N_ROUNDS {
                self.split();
                judged = bound;
            } else if round % N_ROUNDS == 0 {
                let gain = bound - judged;
                let done = work - self.work_left;
                if gain < gap / SLOW {
                    let it = listing.get_or_insert(Listing::new(gap / AIM));
                    let is_due = it.due <= done || gain < gap / STUCK;
                    if is_due && self.list(it, done, limit, &mut proved) {
                        break;
                    }
                }
                judged = bound;
            }
            self.shift(&changes);
        }
        proved
    }

    /// Lists what costs little; whether that settles the matter.
    fn list(&mut self, listing: &mut Listing, done: u64, limit: i64, proved: &mut Proved) -> bool {
        let bound = self.bound();
        let slack = listing.slack.clamp(1, limit - bound);
        let share = (done / SHARE).min(self.work_left);
        let mut share_left = share;
        let found = self.settled(slack, &mut share_left);
        let spent = share - share_left;
        self.work_left -= spent;
        listing.due = done + 2 * spent;
        match found {
            Ok(Some((states, cost))) => {
                proved.bound = limit.min(bound + cost);
                proved.better = (bound + cost < limit).then_some(states);
                return true;
            }
            Ok(None) => {
                proved.bound = limit.min(bound + slack + 1).max(proved.bound);
                listing.slack = slack + (slack / listing.caution).max(1);
            }
            Err(TooMuch) => {
                listing.slack = slack - slack / CAUTION;
                listing.caution = CAUTION;
            }
        }
        proved.bound == limit
    }

    /// What all pieces cost at least.
    fn bound(&self) -> i64 {
        self.parts.iter().map(|it| it.n_pieces * (it.least + self.kinds[it.kind].constant)).sum()
    }

    /// For each part the tables of the joints before and behind, at the present potentials.
    fn tables_of_joints(&self) -> Vec<[Rc<[i64]>; 2]> {
        let of_part = |part: &Part| {
            let kind = &self.kinds[part.kind];
            let of_edge = |side: usize| kind.problem.edges[kind.joints[side]].table.iter();
            let potential = |side: usize| self.joints[part.joints[side]].potential.iter();
            let before = of_edge(0).zip(potential(0)).map(|(cost, it)| cost + it).collect();
            [before, of_edge(1).zip(potential(1)).map(|(cost, it)| cost - it).collect()]
        };
        self.parts.iter().map(of_part).collect()
    }

    /// Raises the bounds of all parts; gives for each joint how its potential should change.
    fn visit(&mut self, margin: i64) -> Vec<Change> {
        let mut changes: Vec<Vec<i64>> =
            self.joints.iter().map(|it| vec![0; it.potential.len()]).collect();
        let tables = self.tables_of_joints();
        for (part, tables) in self.parts.iter_mut().zip(&tables) {
            let kind = &self.kinds[part.kind];
            let (marginals, n_visited) = part.visit(kind, tables, margin);
            self.work_left = self.work_left.saturating_sub(n_visited * 2 * kind.work());
            let [before, behind] = part.joints;
            add(&mut changes[before], &marginals[0], -part.n_pieces);
            add(&mut changes[behind], &marginals[1], part.n_pieces);
        }
        let change = |(joint, mut costs): (&Joint, Vec<i64>)| {
            match costs.len() {
                // At the ends there is nobody to pay.
                1 => costs[0] = 0,
                // All joints change at once, and each piece has two: with a quarter of the difference no bound falls by that.
                _ => costs.iter_mut().for_each(|it| *it /= 4 * joint.n_joints),
            }
            Change::new(costs)
        };
        self.joints.iter().zip(changes).map(change).collect()
    }

    /// Changes potentials.
    fn shift(&mut self, changes: &[Change]) {
        for (joint, change) in self.joints.iter_mut().zip(changes) {
            add(&mut joint.potential, &change.costs, 1);
        }
        self.parts.iter_mut().for_each(|it| it.shift(changes));
    }

    /// Tells cases apart in all parts.
    fn split(&mut self) {
        for part in &mut self.parts {
            part.split(&self.kinds[part.kind]);
        }
    }

    /// The states of least cost, and what they cost more than the bound, if that is no more than the slack.
    fn settled(
        &mut self,
        slack: i64,
        work: &mut u64,
    ) -> Result<Option<(Vec<usize>, i64)>, TooMuch> {
        let of_joints = self.tables_of_joints();
        let mut tables = Vec::with_capacity(self.parts.len());
        for (part, of_joints) in self.parts.iter_mut().zip(&of_joints) {
            tables.push(part.table(&self.kinds[part.kind], of_joints, slack, work)?);
        }
        Ok(self.walked(&tables).filter(|(_, cost)| *cost <= slack))
    }

    /// The states of least cost among the rows of the tables, and what they cost more than the bound.
    fn walked(&self, tables: &[PartTable]) -> Option<(Vec<usize>, i64)> {
        // For each two states of a joint the cost of all before it.
        let mut costs: BTreeMap<usize, i64> = BTreeMap::from([(0, 0)]);
        // For each piece and each two states of the joint behind it the best row.
        let mut best: Vec<BTreeMap<usize, &(usize, Row)>> = Vec::with_capacity(self.pieces.len());
        for &part in &self.part_of {
            let mut next: BTreeMap<usize, (i64, &(usize, Row))> = BTreeMap::new();
            for of_case in &tables[part].rows {
                let row = of_case.1;
                let Some(before) = costs.get(&row.joints[0]) else { continue };
                let cost = before + row.cost - self.parts[part].least;
                let known = next.entry(row.joints[1]).or_insert((cost, of_case));
                if cost < known.0 {
                    *known = (cost, of_case);
                }
            }
            costs = next.iter().map(|(&joint, &(cost, _))| (joint, cost)).collect();
            best.push(next.into_iter().map(|(joint, (_, row))| (joint, row)).collect());
        }
        let cost = *costs.get(&0)?;
        let mut states = vec![0; self.n_variables];
        let mut behind = 0;
        for ((piece, &part), best) in self.pieces.iter().zip(&self.part_of).zip(&best).rev() {
            let row = best[&behind];
            let part_of = &self.parts[part];
            let of_piece = part_of.states(&self.kinds[part_of.kind], &tables[part], row);
            for (variable, state) in piece.variables.iter().zip(of_piece) {
                if let Some(variable) = variable {
                    states[*variable] = state;
                }
            }
            behind = row.1.joints[0];
        }
        Some((states, cost))
    }
}

fn add(sums: &mut [i64], others: &[i64], factor: i64) {
    let mut at = 0;
    while at < sums.len() {
        sums[at] += factor * others[at];
        at += 1;
    }
}
