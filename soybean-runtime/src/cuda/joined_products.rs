//! Equal products as one call.
//!
//! Queries, keys and values are products of one activation with three weights, and the gradients of
//! these weights read one activation, too. cuBLASLt computes such products as a batch if the
//! buffers of each role lie at equal distances; the distance of an operand that all read is 0. So
//! products that share an operand are joined, and those whose results one step reads, such as the
//! parts of the activation's gradient. Values that lie at other distances get new places, if there
//! are any.

mod places;

use soybean_plan::{BufferId, Contraction, Kernel, MatrixStrides, Shape, Step, Strides, Tables};

use self::places::{Layout, Lives, Moves, Places};
use super::epilogue::{
    CanFuse, Epilogue, FusedProduct, FusedStep, JoinedProducts, Location, buffer,
};

/// The number of steps after a product among which another is looked for. Those of other layers are
/// farther away.
const WINDOW: usize = 16;

/// Joins equal products in the steps of all phases, which share the arena. Values with new places
/// may extend it up to this size. Returns the steps.
pub(crate) fn join_products(
    phases: Vec<Vec<FusedStep>>,
    kernels: &mut Vec<Kernel>,
    tables: &mut Tables,
    max_arena_bytes: usize,
    can: CanFuse<'_>,
) -> Vec<Vec<FusedStep>> {
    let places = Places::new(&phases, tables, max_arena_bytes);
    let mut joiner = Joiner { phases, kernels, places, can };
    for phase in 0..joiner.phases.len() {
        for relation in [Relation::Operand, Relation::Reader] {
            let mut at = 0;
            while at < joiner.phases[phase].len() {
                // The step that moved to this place is examined too.
                at += usize::from(!joiner.join_at(phase, at, relation));
            }
        }
    }
    joiner.phases
}

/// Why products are joined.
#[derive(Clone, Copy)]
enum Relation {
    /// They share an operand.
    Operand,
    /// A step reads their results.
    Reader,
}

struct Joiner<'a> {
    phases: Vec<Vec<FusedStep>>,
    kernels: &'a mut Vec<Kernel>,
    places: Places<'a>,
    can: CanFuse<'a>,
}

/// Products that one call can compute.
struct Join {
    members: Vec<usize>,
    /// The steps between them that must follow them.
    delayed: Vec<usize>,
    layout: Layout,
    contraction: Contraction,
    epilogue: Epilogue,
    products: Vec<FusedProduct>,
}

impl Joiner<'_> {
    /// Joins the product at this step with as many later ones as possible. Returns whether there
    /// are any.
    fn join_at(&mut self, phase: usize, at: usize, relation: Relation) -> bool {
        let Some(first) = self.product(&self.phases[phase][at]) else { return false };
        let (mut members, mut largest, mut lives) = (vec![at], None, None);
        for other in at + 1..self.phases[phase].len() {
            if other > members[members.len() - 1] + WINDOW {
                break;
            }
            if self.are_related(&self.phases[phase], &first, other, relation) {
                let lives = lives.get_or_insert_with(|| self.places.lives(&self.phases[phase]));
                members.push(other);
                match self.join(phase, &members, lives) {
                    Some(it) => largest = Some(it),
                    None => members.truncate(members.len() - 1),
                }
            }
        }
        largest.map(|it| self.apply(phase, it)).is_some()
    }

    /// Returns the step as a product that may be one of a batch.
    fn product(&self, step: &FusedStep) -> Option<FusedProduct> {
        let product = match step {
            FusedStep::Plain(Step { kernel, inputs, results }) => {
                let (&[left, right], &[result]) = (&inputs[..], &results[..]) else { return None };
                let (kernel, inputs, epilogue) = (*kernel, [left, right], Epilogue::default());
                FusedProduct { kernel, inputs, result, epilogue, bias: None, aux: None }
            }
            FusedStep::Product(it) => it.clone(),
            FusedStep::Joined(_) | FusedStep::Round { .. } => return None,
        };
        let Kernel::Contract(contraction) = self.kernels.get(product.kernel)? else { return None };
        let is_in_buffers =
            product.aux.is_none() && !matches!(product.bias, Some(Location::Slot(_)));
        (is_in_buffers && contraction.batch.n_elements() == 1).then_some(product)
    }

    /// Returns whether a later step is a product of the same form, in this relation to the first.
    fn are_related(
        &self,
        steps: &[FusedStep],
        first: &FusedProduct,
        other: usize,
        relation: Relation,
    ) -> bool {
        let Some(product) = self.product(&steps[other]) else { return false };
        let readers = &steps[other + 1..steps.len().min(other + 1 + WINDOW)];
        self.is_alike(first, &product)
            && match relation {
                Relation::Operand => {
                    first.inputs.iter().zip(&product.inputs).any(|it| it.0 == it.1)
                }
                Relation::Reader => {
                    readers.iter().any(|step| self.reads_both(step, [first, &product]))
                }
            }
    }

    fn is_alike(&self, one: &FusedProduct, other: &FusedProduct) -> bool {
        let sizes = |it: &FusedProduct| {
            let buffers =
                [it.inputs[0], it.inputs[1], it.result].into_iter().chain(buffer(it.bias));
            buffers.map(|it| self.places.size(it)).collect::<Vec<_>>()
        };
        (one.kernel, one.epilogue) == (other.kernel, other.epilogue) && sizes(one) == sizes(other)
    }

    /// Returns whether a step computes with the results of both products.
    fn reads_both(&self, step: &FusedStep, products: [&FusedProduct; 2]) -> bool {
        let inputs = step.inputs();
        products.iter().all(|it| inputs.contains(&it.result)) && !self.is_exchange(step)
    }

    /// Returns whether a step exchanges data between ranks.
    fn is_exchange(&self, step: &FusedStep) -> bool {
        match step {
            FusedStep::Plain(it) => {
                matches!(self.kernels.get(it.kernel), Some(Kernel::Communicate(_)))
            }
            FusedStep::Product(_) | FusedStep::Joined(_) | FusedStep::Round { .. } => false,
        }
    }

    /// Returns the products at these steps as one call, if there are places for their buffers and
    /// the call is supported.
    fn join(&mut self, phase: usize, members: &[usize], lives: &Lives) -> Option<Join> {
        let products = members.iter().map(|it| self.product(&self.phases[phase][*it]));
        let mut products: Vec<FusedProduct> = products.collect::<Option<_>>()?;
        self.delayed(phase, members, |one, other| one == other)?;
        self.places.sort(&mut products, lives);
        let roles = roles(&products)?;
        let before = self.places.layout(&roles);
        for moves in [Moves::Needed, Moves::All] {
            let is_arranged = self.places.arrange(&roles, lives, moves);
            let overlap = |one: BufferId, other: BufferId| self.places.overlap(one, other);
            let delayed = is_arranged.then(|| self.delayed(phase, members, overlap)).flatten();
            let batch = delayed.as_ref().and_then(|_| self.batch(&products, &roles));
            let layout = self.places.layout(&roles);
            self.places.restore(&before);
            if let (Some(delayed), Some((contraction, epilogue))) = (delayed, batch) {
                let members = members.to_vec();
                return Some(Join { members, delayed, layout, contraction, epilogue, products });
            }
        }
        None
    }

    /// Returns the contraction and the epilogue of products whose buffers are in place, if the
    /// call is supported.
    fn batch(&self, products: &[FusedProduct], roles: &Roles) -> Option<(Contraction, Epilogue)> {
        let FusedProduct { kernel, inputs: [left, right], result, epilogue, .. } = products[0];
        let Kernel::Contract(one) = self.kernels[kernel] else { return None };
        let stride = |role: &[BufferId]| self.places.stride(role);
        let strides = |matrix: MatrixStrides, role: &[BufferId]| {
            Some(MatrixStrides { batch: Strides::new(&[stride(role)?]), ..matrix })
        };
        let contraction = Contraction {
            batch: Shape::new(&[products.len()]),
            left: strides(one.left, &roles.left)?,
            right: strides(one.right, &roles.right)?,
            result: strides(one.result, &roles.result)?,
            ..one
        };
        let bias_stride = if roles.bias.is_empty() { 0 } else { stride(&roles.bias)? };
        let epilogue = Epilogue { bias_stride, ..epilogue };
        let types = [left, right, result].map(|it| self.places.size(it).1);
        let is_supported = (self.can)(&contraction.into(), types, epilogue);
        is_supported.then_some((contraction, epilogue))
    }

    /// Returns the steps between products that must follow them, if all run where the last one
    /// does; buffers clash if they share memory. `None` if the products cannot run together, or an
    /// exchange would have to wait: it should run beside other work.
    fn delayed(
        &self,
        phase: usize,
        members: &[usize],
        clash: impl Fn(BufferId, BufferId) -> bool,
    ) -> Option<Vec<usize>> {
        let steps = &self.phases[phase];
        let clash = |one: &[BufferId], other: &[BufferId]| {
            one.iter().any(|one| other.iter().any(|other| clash(*one, *other)))
        };
        let must_follow = |later: &FusedStep, earlier: &FusedStep| {
            let (written, results) = (earlier.results(), later.results());
            clash(&written, &later.inputs())
                || clash(&written, &results)
                || clash(&earlier.inputs(), &results)
        };
        let (mut earlier, mut delayed): (Vec<&FusedStep>, Vec<usize>) = (Vec::new(), Vec::new());
        let end = members[members.len() - 1] + 1;
        for (at, step) in steps.iter().enumerate().take(end).skip(members[0]) {
            let follows = earlier.iter().any(|it| must_follow(step, it));
            let is_member = members.contains(&at);
            if follows && (is_member || step.uses_slots() || self.is_exchange(step)) {
                return None;
            }
            if is_member || follows {
                earlier.push(step);
            }
            if follows {
                delayed.push(at);
            }
        }
        Some(delayed)
    }

    /// Replaces the products by their batch.
    fn apply(&mut self, phase: usize, join: Join) {
        let Join { members, delayed, layout, contraction, epilogue, products } = join;
        self.places.fix(&layout);
        let kernel = Kernel::from(contraction).number_in(self.kernels);
        let joined = FusedStep::Joined(JoinedProducts { kernel, epilogue, products });
        let steps = &mut self.phases[phase];
        let following: Vec<FusedStep> = delayed.iter().map(|it| steps[*it].clone()).collect();
        let last = members[members.len() - 1];
        let rest = steps.split_off(last + 1);
        let mut at = 0..;
        steps.retain(|_| {
            at.next().is_none_or(|it| !members.contains(&it) && !delayed.contains(&it))
        });
        steps.extend([joined].into_iter().chain(following).chain(rest));
    }
}

/// The buffers of each role in products, in the order of the products: one that all share, or as
/// many as there are products.
struct Roles {
    left: Vec<BufferId>,
    right: Vec<BufferId>,
    result: Vec<BufferId>,
    /// Empty without a bias.
    bias: Vec<BufferId>,
}

impl Roles {
    fn all(&self) -> [&Vec<BufferId>; 4] {
        [&self.left, &self.right, &self.result, &self.bias]
    }
}

/// Returns the buffers of these products by their roles, if some share what others do not.
fn roles(products: &[FusedProduct]) -> Option<Roles> {
    let of = |role: fn(&FusedProduct) -> Option<BufferId>| {
        let buffers: Vec<BufferId> = products.iter().filter_map(role).collect();
        let mut distinct = buffers.clone();
        distinct.sort_unstable();
        distinct.dedup();
        (distinct.len() <= 1 || distinct.len() == products.len()).then_some(buffers)
    };
    let [left, right] = [of(|it| Some(it.inputs[0]))?, of(|it| Some(it.inputs[1]))?];
    Some(Roles { left, right, result: of(|it| Some(it.result))?, bias: of(|it| buffer(it.bias))? })
}

#[cfg(test)]
mod tests;
