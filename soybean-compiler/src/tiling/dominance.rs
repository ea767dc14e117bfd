//! Splits that another split makes needless: those of image dims beside that of the batch, for the most part.
//!
//! Dims and factors that operators tie together are one *loop* of the network. Say that every tensor and every operator that has loop H also has loop B,
//! once; that whatever an operator reads or makes along H it reads or makes along B as well; and that B can be split along all axes everywhere. Take any
//! plan, and split B wherever it splits H. Operands that lack H and have B may arrive split instead of replicated, results that lack H and have B come
//! out split instead of partial, equal tilings stay equal, and all else is as before: no conversion moves more. So some optimal plan splits H nowhere.
//! A loop that a user's pin splits is kept. Pinned tensors that split no loop in question are among what is as before.

use std::collections::BTreeSet;

use soybean_plan::AxisSet;

use super::problem::{Meaning, Problem};
use crate::{
    graph::{Graph, Value},
    operator::Rules,
    signature::factor_id,
};

/// For each variable, and each dim of its tensor or factor of its operator, whether any search need split it.
pub(super) fn worth_splitting(problem: &Problem<'_>) -> Vec<Vec<bool>> {
    let loops = loops(problem);
    let n_loops = loops.iter().flatten().max().map_or(0, |it| it + 1);
    let mut variables_of: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); n_loops];
    let mut can_split = vec![true; n_loops];
    let mut is_pinned = vec![false; n_loops];
    for (variable, loops) in loops.iter().enumerate() {
        for (at, &number) in loops.iter().enumerate() {
            variables_of[number].insert(variable);
            can_split[number] &= splits_along_all_axes(problem, variable, at);
            is_pinned[number] |= problem.pin(variable).is_some_and(|it| !it.axes_of(at).is_empty());
        }
    }
    let mut is_needless = vec![false; n_loops];
    for inner in 0..n_loops {
        let variables = &variables_of[inner];
        let Some(first) = variables.first() else { continue };
        let stands_in = |&outer: &usize| {
            let covers = |&it: &usize| is_covered(problem, it, &loops[it], inner, outer);
            outer != inner
                && can_split[outer]
                && !is_needless[outer]
                && variables.iter().all(covers)
        };
        is_needless[inner] = !is_pinned[inner] && loops[*first].iter().any(stands_in);
    }
    let worth = |(variable, loops): (usize, &Vec<usize>)| {
        let is_constant = is_constant(problem, variable);
        loops.iter().map(|&it| !is_constant && !is_needless[it]).collect()
    };
    loops.iter().enumerate().map(worth).collect()
}

/// For each variable the loop of each dim or factor.
fn loops(problem: &Problem<'_>) -> Vec<Vec<usize>> {
    let mut starts = Vec::with_capacity(problem.meanings.len());
    let mut parents: Vec<usize> = Vec::new();
    for variable in 0..problem.meanings.len() {
        let start = parents.len();
        starts.push(start);
        parents.extend(start..start + n_loops_of(problem, variable));
    }
    for pair in problem.pairs.iter().filter(|it| !is_constant(problem, it.tensor)) {
        for usage in pair.uses.iter().map(|&it| &problem.uses[it]) {
            let dims = problem.work(usage.work).signature.dims(usage.operand);
            for (dim, of_dim) in dims.iter().enumerate() {
                let Some(factor) = of_dim.factor else { continue };
                let one = root(&mut parents, starts[pair.tensor] + dim);
                let other = root(&mut parents, starts[pair.operator] + factor as usize);
                parents[one.max(other)] = one.min(other);
            }
        }
    }
    (0..problem.meanings.len())
        .map(|variable| {
            let start = starts[variable];
            let all = start..start + n_loops_of(problem, variable);
            all.map(|it| root(&mut parents, it)).collect()
        })
        .collect()
}

/// Whether a variable is the tiling of a tensor that every rank knows as a whole: it is best stored so, and read in any tiling at no cost.
fn is_constant(problem: &Problem<'_>, variable: usize) -> bool {
    match problem.meanings[variable] {
        Meaning::Tensor { value, .. } => is_known_everywhere(&problem.network.graph, value),
        Meaning::Operator { .. } => false,
    }
}

/// Whether an operator without factors computes a tensor: every rank computes all of it.
fn is_known_everywhere(graph: &Graph, value: Value) -> bool {
    graph
        .operator(value)
        .is_some_and(|operator| operator.signature(&graph.operand_shapes(value)).factors.is_empty())
}

/// The representative of a set; what leads to it is shortened on the way.
fn root(parents: &mut [usize], of: usize) -> usize {
    let mut at = of;
    while parents[at] != at {
        parents[at] = parents[parents[at]];
        at = parents[at];
    }
    at
}

fn n_loops_of(problem: &Problem<'_>, variable: usize) -> usize {
    match problem.meanings[variable] {
        Meaning::Tensor { space, .. } => problem.space(space).splits().rank(),
        Meaning::Operator { work, .. } => problem.work(work).signature.factors.len(),
    }
}

fn splits_along_all_axes(problem: &Problem<'_>, variable: usize, at: usize) -> bool {
    let axes: AxisSet = (0..problem.mesh.n_axes()).collect();
    match problem.meanings[variable] {
        Meaning::Tensor { space, .. } => problem.space(space).splits().may_split(at, axes),
        Meaning::Operator { work, .. } => {
            problem.work(work).signature.may_split(factor_id(at), &problem.mesh, axes)
        }
    }
}

/// Whether a variable that has the inner loop has the outer loop once, and an operator has it wherever it has the inner one.
fn is_covered(
    problem: &Problem<'_>,
    variable: usize,
    loops: &[usize],
    inner: usize,
    outer: usize,
) -> bool {
    let mut positions = (0..loops.len()).filter(|&it| loops[it] == outer);
    let (Some(position), None) = (positions.next(), positions.next()) else { return false };
    let Meaning::Operator { value, work } = problem.meanings[variable] else { return true };
    let signature = &problem.work(work).signature;
    let graph = &problem.network.graph;
    let operands = graph.operands(value).into_iter().enumerate();
    let varying =
        operands.filter(|(_, it)| !is_known_everywhere(graph, *it)).map(|(at, _)| Some(at));
    varying.chain([None]).all(|operand| {
        let dims = signature.dims(operand);
        let has = |wanted: &dyn Fn(usize) -> bool| {
            dims.iter().filter_map(|it| it.factor).any(|it| wanted(it as usize))
        };
        !has(&|it| loops[it] == inner) || has(&|it| it == position)
    })
}

#[cfg(test)]
mod tests {
    use soybean_plan::{DType, Init, Mesh};

    use super::*;
    use crate::{
        Argument, Builder, Network, Optimizer,
        tiling::solve::{WORK, solve},
    };

    fn call(builder: &mut Builder, operator: &str, operands: &[Argument]) -> Argument {
        builder.call(operator, operands).unwrap()
    }

    fn integers(numbers: &[i64]) -> impl Iterator<Item = Argument> {
        numbers.iter().copied().map(Argument::Integer)
    }

    /// A convolution with normalised channels, a pooling, and a dense layer over channels and places together.
    fn network(batch: usize, side: usize) -> Network {
        let mut it = Builder::new();
        let x = Argument::Tensor(it.input("x", DType::F32, &[batch, 2, side, side]));
        let w = Argument::Tensor(it.parameter("w", &[4, 2, 3, 3], Init::Constant(0.1)));
        let b = Argument::Tensor(it.parameter("b", &[4, 1, 1], Init::Constant(0.1)));
        let settings = [x, w].into_iter().chain(integers(&[1, 1, 1, 1])).collect::<Vec<_>>();
        let h = call(&mut it, "conv2d", &settings);
        let over = Argument::List(integers(&[0, 2, 3]).collect());
        let mean = call(&mut it, "mean", &[h.clone(), over]);
        let shape = Argument::List(integers(&[4, 1, 1]).collect());
        let mean = call(&mut it, "reshape", &[mean, shape]);
        let h = call(&mut it, "sub", &[h, mean]);
        let h = call(&mut it, "mul", &[h, b]);
        let pool = [h].into_iter().chain(integers(&[2, 2, 0])).collect::<Vec<_>>();
        let h = call(&mut it, "max_pool2d", &pool);
        let h = call(&mut it, "relu", &[h]);
        let h = call(&mut it, "flatten", &[h]);
        let Argument::Tensor(flat) = h else { unreachable!("flattening gives a tensor") };
        let n = it.shape(flat)[1];
        let w = Argument::Tensor(it.parameter("v", &[n, 8], Init::Constant(0.1)));
        let h = call(&mut it, "matmul", &[h, w]);
        let Argument::Tensor(loss) = call(&mut it, "mean", &[h, Argument::All]) else {
            unreachable!("means are tensors")
        };
        Network::new(it, loss, &[], &Optimizer::default()).unwrap()
    }

    #[test]
    fn needless_splits_are_in_no_better_plan() {
        let mut n_needless = 0;
        for (batch, side, n_ranks) in [
            (2, 4, 2),
            (4, 8, 4),
            (2, 8, 4),
            (6, 4, 4),
            (6, 12, 6),
            (3, 6, 6),
            (8, 16, 8),
            (4, 8, 8),
        ] {
            let network = network(batch, side);
            let problem = Problem::new(&network, Mesh::new(n_ranks));
            let everything: Vec<Vec<usize>> = problem.all_states();
            let kept = problem.states_worth_it();
            let least = |states: &[Vec<usize>]| {
                let found = solve(&problem.restricted(states), None, WORK);
                assert!(found.is_optimal);
                found.bound / super::super::problem::BYTE
            };
            assert_eq!(least(&everything), least(&kept), "{batch} {side} {n_ranks}");
            n_needless += problem.worth_splitting.iter().flatten().filter(|it| !**it).count();
        }
        assert!(n_needless > 0);
    }
}
