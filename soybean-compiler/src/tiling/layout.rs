//! Choices that are near others: permutations of one by blocks of axes, and what differs from one in a single block.

use std::collections::BTreeMap;

use soybean_plan::{AxisSet, Placement, Tiling};

use super::{
    forms::Repeating,
    problem::{Choice, Meaning, Problem},
};
use crate::signature::{Form, factor_id};

/// Where something lies along an axis: the dim or factor that is split there, or none.
type Place = Option<u8>;

/// The most layouts of one choice that are looked at.
const MOST: usize = 100;

impl Problem<'_> {
    /// The choices for a variable with as many axes of each class in each place as this one, where whole blocks of axes have the same place;
    /// not more than a hundred of them.
    pub(super) fn layouts(
        &self,
        variable: usize,
        like: &Choice,
        classes: &[AxisSet],
        blocks: &[AxisSet],
    ) -> Vec<Choice> {
        let places = like.places();
        let mut layouts = vec![vec![None; places.len()]];
        for class in classes {
            let mut left: BTreeMap<Place, usize> = BTreeMap::new();
            class.iter().for_each(|axis| *left.entry(places[axis]).or_default() += 1);
            let of_class: Vec<AxisSet> =
                blocks.iter().copied().filter(|it| it.0 & class.0 != 0).collect();
            let mut all = Vec::new();
            for layout in layouts {
                place(&of_class, &mut left.clone(), layout, &mut all);
            }
            layouts = all;
        }
        let choices = layouts.iter().map(|it| like.placed(it));
        choices.filter(|it| self.is_legal(variable, it)).take(MOST).collect()
    }

    /// This choice for a variable and those that differ from it in the place of one block.
    pub(super) fn near(&self, variable: usize, choice: &Choice, blocks: &[AxisSet]) -> Vec<Choice> {
        let (n_places, may_idle) = match self.meanings[variable] {
            Meaning::Tensor { kind, .. } => (self.kinds[kind].rank(), true),
            Meaning::Operator { work, .. } => {
                let work = &self.works[work];
                (work.signature.factors.len(), work.repeating == Repeating::Free)
            }
        };
        let options = (0..n_places).map(|it| Some(factor_id(it))).chain(may_idle.then_some(None));
        let options: Vec<Place> = options.collect();
        let places = choice.places();
        let mut near = vec![choice.clone()];
        for block in blocks {
            for &option in &options {
                let mut places = places.clone();
                block.iter().for_each(|axis| places[axis] = option);
                near.push(choice.placed(&places));
            }
        }
        near.retain(|it| it == choice || self.is_legal(variable, it));
        near
    }

    /// Whether each dim or factor can be split along the axes that split it.
    fn is_legal(&self, variable: usize, choice: &Choice) -> bool {
        match (self.meanings[variable], choice) {
            (Meaning::Tensor { kind, .. }, Choice::Tensor(tiling)) => {
                self.kinds[kind].are_legal(tiling)
            }
            (Meaning::Operator { work, .. }, Choice::Operator(form)) => {
                let work = &self.works[work];
                (0..work.signature.factors.len())
                    .map(factor_id)
                    .all(|factor| work.splittable.may_split(factor, form.axes_of(factor)))
            }
            _ => unreachable!("a choice is of the kind of its variable"),
        }
    }
}

/// All ways to give the blocks places of which there are so many left.
fn place(
    blocks: &[AxisSet],
    left: &mut BTreeMap<Place, usize>,
    layout: Vec<Place>,
    all: &mut Vec<Vec<Place>>,
) {
    let Some((block, others)) = blocks.split_first() else {
        all.push(layout);
        return;
    };
    let size = block.0.count_ones() as usize;
    let open: Vec<Place> = left.iter().filter(|it| *it.1 >= size).map(|it| *it.0).collect();
    for option in open {
        let mut layout = layout.clone();
        block.iter().for_each(|axis| layout[axis] = option);
        *left.entry(option).or_default() -= size;
        place(others, left, layout, all);
        *left.entry(option).or_default() += size;
    }
}

impl Choice {
    /// The place of each axis.
    pub(super) fn places(&self) -> Vec<Place> {
        match self {
            Self::Tensor(tiling) => {
                let place = |placement: &Placement| match placement {
                    Placement::Split(dim) => Some(*dim),
                    Placement::Replicated | Placement::Partial => None,
                };
                tiling.placements().iter().map(place).collect()
            }
            Self::Operator(form) => form.0.clone(),
        }
    }

    /// A choice of the same kind with these places.
    fn placed(&self, places: &[Place]) -> Self {
        match self {
            Self::Tensor(tiling) => {
                let idle = match tiling.partial_axes().is_empty() {
                    true => Placement::Replicated,
                    false => Placement::Partial,
                };
                let placement = |place: Place| place.map_or(idle, Placement::Split);
                let all = places.iter().enumerate();
                Self::Tensor(all.fold(*tiling, |tiling: Tiling, (axis, &place)| {
                    tiling.with(axis, placement(place))
                }))
            }
            Self::Operator(_) => Self::Operator(Form(places.to_vec())),
        }
    }
}
