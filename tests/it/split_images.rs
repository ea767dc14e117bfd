//! Images that are too few for all devices are split along rows and columns: programs with halos
//! give the numbers of the interpreter, and move the bytes that their plans count.

use soybean_compiler::{Argument, SearchRequest, Strategy, Value};
use soybean_plan::{Collective, CollectiveKind, Kernel, Precision, Program};

use crate::random_models::{compare, finished, model::Model};

fn integers(numbers: &[usize]) -> Vec<Argument> {
    numbers.iter().map(|&it| Argument::Integer(i64::try_from(it).unwrap())).collect()
}

/// Placements along the axes of the mesh, and the number of parts of rows and of columns.
pub(crate) type Pin = (&'static str, [usize; 2]);

/// Returns a network of convolutions and poolings with strides 1 and 2, a dilation and two groups,
/// and its loss. Its tensors are pinned, as long as they can be split so.
pub(crate) fn network(batch: usize, sides: [usize; 2], pin: Option<Pin>) -> (Model, Value) {
    let mut model = Model::new(&[batch, 2, sides[0], sides[1]]);
    let mut add = |operator: &str, filter: Option<[usize; 4]>, settings: &[usize]| {
        let filter = filter.map(|it| model.parameter(&it));
        let arguments: Vec<Argument> = filter.into_iter().chain(integers(settings)).collect();
        model.apply(operator, &arguments);
        let shape = model.shape();
        let is_even = |it: &Pin| (0..2).all(|at| shape[at + 2].is_multiple_of(it.1[at]));
        if let Some((text, _)) = pin.filter(is_even) {
            model.apply("tiled", &[Argument::Text(text.to_owned())]);
        }
    };
    add("conv2d", Some([4, 2, 3, 3]), &[1, 1, 1, 1]);
    add("tanh", None, &[]);
    add("max_pool2d", None, &[3, 1, 1]);
    add("conv2d", Some([4, 2, 5, 5]), &[1, 2, 1, 2]);
    add("avg_pool2d", None, &[3, 2, 1]);
    add("conv2d", Some([6, 4, 3, 3]), &[1, 2, 2, 1]);
    add("sigmoid", None, &[]);
    add("max_pool2d", None, &[3, 2, 1]);
    add("conv2d", Some([4, 6, 3, 3]), &[1, 1, 1, 1]);
    let loss = model.loss();
    (model, loss)
}

/// Returns the number of exchanges of halos in a training step.
pub(crate) fn n_exchanges(program: &Program) -> usize {
    exchanges(program).count()
}

fn exchanges(program: &Program) -> impl Iterator<Item = &Collective> {
    let kernels = program.train[0].iter().map(|it| &program.kernels[it.kernel]);
    let collectives = kernels.filter_map(Kernel::transfer).flat_map(|it| it.collectives.iter());
    collectives.filter(|it| it.kind == CollectiveKind::HaloExchange)
}

/// Compares programs with the interpreter: with channels first, and last as in `tf32`, which is
/// `f32` on the CPU. Returns the number of exchanges of halos with channels first.
fn check(n_gpus: usize, batch: usize, sides: [usize; 2], pin: Option<Pin>) -> usize {
    let shape = [batch, 2, sides[0], sides[1]];
    let n_exchanges = [Precision::F32, Precision::Tf32].map(|precision| {
        let (model, loss) = network(batch, sides, pin);
        let search = SearchRequest::from(Strategy::Auto);
        let planned = finished(model, loss, n_gpus, search, precision).unwrap();
        let planned = planned.expect("images can be split over the devices");
        compare(&planned, &shape)
            .unwrap_or_else(|it| unreachable!("{n_gpus}, {sides:?}, {pin:?}, {precision}: {it}"));
        n_exchanges(&planned.compiled.program)
    });
    assert!(pin.is_none() || n_exchanges[1] > 0, "{n_gpus}, {sides:?}, {pin:?}");
    n_exchanges[0]
}

#[test]
fn pinned_images_are_split_along_rows_and_columns() {
    let mut n_all = 0;
    for (n_gpus, sides, pin) in [
        (2, [16, 6], ("P2", [2, 1])),
        (2, [4, 16], ("P3", [1, 2])),
        (3, [12, 8], ("P2", [3, 1])),
        (4, [16, 8], ("P2", [4, 1])),
        (8, [32, 4], ("P2", [8, 1])),
    ] {
        let n_exchanges = check(n_gpus, 1, sides, Some(pin));
        assert!(n_exchanges > 0, "{n_gpus}, {pin:?}");
        n_all += n_exchanges;
    }
    assert!(n_all >= 20, "{n_all}");
}

/// Columns of 30 have one digit of 2. So the second axis splits them into halves, while the first
/// one does so with rows.
#[test]
fn corners_come_from_neighbors_across_both_dims() {
    let (model, loss) = network(1, [32, 30], Some(("P2 P3", [2, 2])));
    let planned =
        finished(model, loss, 4, SearchRequest::from(Strategy::Auto), Precision::F32).unwrap();
    let planned = planned.expect("images can be split over the devices");
    compare(&planned, &[1, 2, 32, 30]).unwrap_or_else(|it| unreachable!("{it}"));
    let has_corners = |it: &Collective| it.halo.is_along(2) && it.halo.is_along(3);
    assert!(exchanges(&planned.compiled.program).any(has_corners));
}

#[test]
fn few_images_are_planned_with_halos() {
    let mut n_all = 0;
    for (n_gpus, batch, sides) in [
        (2, 1, [48, 32]),
        (4, 1, [48, 32]),
        (4, 2, [64, 16]),
        (6, 1, [48, 24]),
        (8, 1, [64, 16]),
        (8, 2, [32, 32]),
    ] {
        n_all += check(n_gpus, batch, sides, None);
    }
    assert!(n_all >= 20, "{n_all}");
}

/// Two layers exchange a halo each, and the gradient of the first one's result one more. Gradients
/// of filters use the borders that their layer has kept.
#[test]
fn dilated_sequences_and_volumes_exchange_each_halo_once() {
    type Case = (&'static str, &'static [usize], [&'static [usize]; 2], &'static [usize]);
    let cases: [Case; 2] = [
        ("conv1d", &[1, 2, 96], [&[4, 2, 3], &[4, 4, 3]], &[1, 4, 4, 1]),
        ("conv3d", &[1, 2, 4, 48, 6], [&[4, 2, 3, 3, 3], &[4, 4, 3, 3, 3]], &[1, 1, 1, 1]),
    ];
    for (n_gpus, (operator, shape, filters, settings)) in
        [2, 3, 4, 8].into_iter().flat_map(|n_gpus| cases.map(|it| (n_gpus, it)))
    {
        let mut model = Model::new(shape);
        for filter in filters {
            let filter = model.parameter(filter);
            model.apply(operator, &[vec![filter], integers(settings)].concat());
            model.apply("tanh", &[]);
        }
        let loss = model.loss();
        let search = SearchRequest::from(Strategy::Auto);
        let planned = finished(model, loss, n_gpus, search, Precision::F32).unwrap();
        let planned = planned.expect("sequences and volumes can be split over the devices");
        compare(&planned, shape).unwrap_or_else(|it| unreachable!("{operator}, {n_gpus}: {it}"));
        assert_eq!(n_exchanges(&planned.compiled.program), 3, "{operator}, {n_gpus}");
    }
}
