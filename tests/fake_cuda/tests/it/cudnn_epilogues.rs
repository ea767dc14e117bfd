//! Tests of functions that follow cuDNN's convolutions.

use cudarc::cudnn::sys::{
    cudnnBackendBehaviorNote_t as BehaviorNote, cudnnDataType_t as Type, cudnnStatus_t as Status,
};

use crate::child_process::with_devices;
use crate::convolution_reference::{
    CASES, Case, DIRECTIONS, Direction, Layout, PIXEL, compare, count, expected, numbers,
};
use crate::cudnn_graph::{Descriptor, add, operation, relu, relu_gradient, virtual_tensor};
use crate::cudnn_library::{
    A, BF16, Engine, F32, FALLBACK, FORMATS, Library, TENSOR_CORE, Tensor, engines, plain_graph,
    reports, tensors,
};

/// A convolution and functions of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Epilogue {
    Bias,
    BiasAndRelu,
    ReluGradient,
}

impl Epilogue {
    /// Returns the direction of the convolution, and the place of the computed tensor.
    const fn direction(self) -> (Direction, usize) {
        match self {
            Self::Bias | Self::BiasAndRelu => DIRECTIONS[0],
            Self::ReluGradient => DIRECTIONS[1],
        }
    }

    /// Returns the extents of the other operand.
    const fn extents(self, case: &Case) -> [i64; 4] {
        match self {
            Self::Bias | Self::BiasAndRelu => [1, case.filters[0], 1, 1],
            Self::ReluGradient => case.images,
        }
    }

    fn graph(
        self,
        library: &Library,
        case: &Case,
        tensors: [&Tensor; 4],
    ) -> Result<Descriptor, Status> {
        let (direction, computed) = self.direction();
        let descriptors = tensors.map(Tensor::descriptor);
        let between = |id| {
            let extents = [case.images, case.filters, case.results()][computed];
            virtual_tensor(id, F32, extents)
        };
        let mut of_convolution = [descriptors[0], descriptors[1], descriptors[2]];
        let result = std::mem::replace(&mut of_convolution[computed], between(7));
        let operand = descriptors[3];
        let mut operations = vec![operation(direction, case, of_convolution)?];
        match self {
            Self::Bias => operations.push(add([between(7), operand, result])),
            Self::BiasAndRelu => {
                operations.push(add([between(7), operand, between(8)]));
                operations.push(relu([between(8), result]));
            }
            Self::ReluGradient => operations.push(relu_gradient([operand, between(7), result])),
        }
        library.graph(&operations)
    }

    /// Applies the functions to the value of an element of a channel.
    fn apply(self, sum: f32, operand: &[f32], (place, channel): (usize, usize)) -> f32 {
        match self {
            Self::Bias => sum + operand[channel],
            Self::BiasAndRelu => (sum + operand[channel]).max(0.0),
            Self::ReluGradient => {
                if operand[place] > 0.0 {
                    sum
                } else {
                    0.0
                }
            }
        }
    }
}

const EPILOGUES: [Epilogue; 3] = [Epilogue::Bias, Epilogue::BiasAndRelu, Epilogue::ReluGradient];

/// Returns the tensors of a case, and the operand of the epilogue with identity 3.
fn tensors_with_operand(
    library: &Library,
    format: (Type, Layout),
    case: &Case,
    (epilogue, operand): (Epilogue, &[f32]),
) -> [Tensor; 4] {
    let [x, w, y] = tensors(library, format, case);
    let operand = library.tensor(3, format, epilogue.extents(case), operand);
    [x, w, y, operand]
}

#[test]
fn functions_follow_convolutions() {
    with_devices(&[], |control| {
        let library = Library::new();
        let mut n_runs = [0; 2];
        for ((case, (tolerance, format)), epilogue) in CASES
            .iter()
            .flat_map(|case| FORMATS.map(|format| (case, format)))
            .flat_map(|it| EPILOGUES.map(|epilogue| (it, epilogue)))
        {
            let (_, computed) = epilogue.direction();
            let operand = numbers(count(epilogue.extents(case)), 5);
            let make = || tensors_with_operand(&library, format, case, (epilogue, &operand));
            let [_, n_channels, height, width] =
                if computed == 0 { case.images } else { case.results() };
            let channel = |place: usize| place / (height * width) as usize % n_channels as usize;
            let expected: Vec<f32> = expected(case, computed)
                .into_iter()
                .enumerate()
                .map(|(place, sum)| epilogue.apply(sum, &operand, (place, channel(place))))
                .collect();
            let graph = epilogue.graph(&library, case, make().each_ref()).unwrap();
            assert!(engines(graph, FALLBACK).is_empty());
            for engine in engines(graph, A) {
                let tensors = make();
                library.run(&engine, &tensors.each_ref());
                let found = tensors[computed].read(&library.stream);
                compare(&found, &expected, tolerance, &format!("{epilogue:?}"));
                n_runs[computed / 2] += 1;
            }
        }
        let names = [c"cudnn: data with epilogue", c"cudnn: forward with epilogue"];
        assert_eq!(names.map(|it| control.n_calls(it)), n_runs);
        assert_eq!(control.n_calls(c"cudnn: forward"), 0);
    });
}

#[test]
fn engines_with_functions_are_compiled() {
    with_devices(&[], |_| {
        let library = Library::new();
        for dtype in [F32, BF16] {
            for epilogue in EPILOGUES {
                let operand = numbers(count(epilogue.extents(&PIXEL)), 5);
                let format = (dtype, Layout::ChannelsLast);
                let tensors = tensors_with_operand(&library, format, &PIXEL, (epilogue, &operand));
                let engines =
                    engines(epilogue.graph(&library, &PIXEL, tensors.each_ref()).unwrap(), A);
                let compiled = [BehaviorNote::CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION];
                assert!(engines.iter().all(|it| it.behavior_notes == compiled));
                let expected = [4096, 0, 0].map(|bytes| (vec![TENSOR_CORE], bytes));
                assert_eq!(reports(&library, engines), expected);
            }
        }
    });
}

#[test]
fn results_are_rounded_once() {
    with_devices(&[], |_| {
        let library = Library::new();
        let format = (BF16, Layout::ChannelsLast);
        // Half of the distance between numbers of bf16, which alone rounds to 1 with 1.
        let half = 2.0_f32.powi(-8);
        let tensor = |id, extents, values: &[f32]| library.tensor(id, format, extents, values);
        let tensors = [
            tensor(0, PIXEL.images, &[1.0, half]),
            tensor(1, PIXEL.filters, &[1.0, 1.0]),
            tensor(2, PIXEL.results(), &[0.0]),
            tensor(3, [1; 4], &[half]),
        ];
        for epilogue in [Epilogue::Bias, Epilogue::BiasAndRelu] {
            let graph = epilogue.graph(&library, &PIXEL, tensors.each_ref()).unwrap();
            library.run(&engines(graph, A)[0], &tensors.each_ref());
            assert_eq!(tensors[2].read(&library.stream), [1.0 + 2.0 * half]);
        }
    });
}

/// Returns true for each engine whose ReLU makes 0 of NaN.
fn drops_nan(library: &Library) -> Vec<bool> {
    let (format, epilogue) = ((F32, Layout::ChannelsLast), Epilogue::BiasAndRelu);
    let tensors = tensors_with_operand(library, format, &PIXEL, (epilogue, &[f32::NAN]));
    let graph = epilogue.graph(library, &PIXEL, tensors.each_ref()).unwrap();
    let drops_nan = |engine: Engine| {
        library.run(&engine, &tensors.each_ref());
        let found = tensors[2].read(&library.stream)[0];
        assert!(found.is_nan() || found == 0.0, "{found}");
        !found.is_nan()
    };
    engines(graph, A).into_iter().map(drops_nan).collect()
}

#[test]
fn relu_keeps_nan() {
    with_devices(&[], |_| assert_eq!(drops_nan(&Library::new()), [false, false, false]));
}

#[test]
fn every_second_relu_drops_nan_if_asked_to() {
    with_devices(&[("SOYBEAN_FAKE_RELU_DROPS_NAN", "1")], |_| {
        assert_eq!(drops_nan(&Library::new()), [false, true, false]);
    });
}

#[test]
fn gradients_of_relu_are_zero_where_the_argument_is_nan() {
    with_devices(&[], |_| {
        let (library, epilogue) = (Library::new(), Epilogue::ReluGradient);
        let format = (F32, Layout::ChannelsLast);
        let tensor = |id, extents, values: &[f32]| library.tensor(id, format, extents, values);
        let tensors = [
            tensor(0, PIXEL.images, &[0.0, 0.0]),
            tensor(1, PIXEL.filters, &[2.0, 3.0]),
            tensor(2, PIXEL.results(), &[1.0]),
            tensor(3, PIXEL.images, &[f32::NAN, 1.0]),
        ];
        let graph = epilogue.graph(&library, &PIXEL, tensors.each_ref()).unwrap();
        library.run(&engines(graph, A)[0], &tensors.each_ref());
        assert_eq!(tensors[0].read(&library.stream), [0.0, 3.0]);
    });
}

#[test]
fn unknown_graphs_are_refused() {
    with_devices(&[], |_| {
        let (library, case) = (Library::new(), CASES[0]);
        let format = (F32, Layout::ChannelsLast);
        let [x, w, y] = tensors(&library, format, &case).map(|it| it.descriptor());
        let tensor = |id, dtype, extents: [i64; 4]| {
            let values = numbers(count(extents), 1);
            library.tensor(id, (dtype, format.1), extents, &values).descriptor()
        };
        let results = case.results();
        let bias = tensor(3, F32, [1, 4, 1, 1]);
        let [one, two] = [7, 8].map(|id| virtual_tensor(id, F32, results));
        let of_images = virtual_tensor(9, F32, case.images);
        let forward = |y| operation(Direction::Forward, &case, [x, w, y]).unwrap();
        let data = |x| operation(Direction::BackwardData, &case, [x, w, y]).unwrap();
        let filter = |w| operation(Direction::BackwardFilter, &case, [x, w, y]).unwrap();
        let of_filters = virtual_tensor(6, F32, case.filters);
        let of_bf16 = virtual_tensor(7, BF16, results);
        let argument = tensor(4, F32, case.images);
        for (number, operations) in [
            vec![forward(one)],
            vec![forward(one), relu([one, y])],
            vec![forward(one), relu([one, two]), add([two, bias, y])],
            vec![forward(one), add([one, bias, two]), add([two, bias, y])],
            vec![forward(one), add([one, bias, two])],
            vec![forward(one), add([two, bias, y])],
            vec![forward(tensor(7, F32, results)), add([one, bias, y])],
            vec![forward(of_bf16), add([of_bf16, bias, y])],
            vec![forward(one), add([one, tensor(3, BF16, [1, 4, 1, 1]), y])],
            vec![forward(one), add([one, bias, tensor(2, BF16, results)])],
            vec![forward(tensor(2, BF16, results))],
            vec![forward(one), relu_gradient([tensor(4, F32, results), one, y])],
            vec![data(of_images), relu([of_images, x])],
            vec![data(of_images), relu_gradient([of_images, of_images, x])],
            vec![filter(of_filters), relu([of_filters, w])],
            vec![forward(y), forward(y)],
            vec![add([one, bias, y])],
        ]
        .into_iter()
        .enumerate()
        {
            let status = library.graph(&operations).err();
            assert_eq!(status, Some(Status::CUDNN_STATUS_NOT_SUPPORTED), "graph {number}");
        }
        for (number, operations) in [
            vec![forward(one), add([one, tensor(3, F32, [1, 3, 1, 1]), y])],
            vec![forward(one), add([one, tensor(3, F32, results), y])],
            vec![forward(one), add([virtual_tensor(7, F32, case.images), bias, y])],
            vec![forward(one), add([one, bias, x])],
            vec![data(of_images), relu_gradient([y, of_images, x])],
            vec![],
        ]
        .into_iter()
        .enumerate()
        {
            let status = library.graph(&operations).err();
            assert_eq!(status, Some(Status::CUDNN_STATUS_BAD_PARAM), "graph {number}");
        }
        let known = [data(of_images), relu_gradient([argument, of_images, x])];
        assert!(library.graph(&known).is_ok());
    });
}

#[test]
fn plans_with_functions_are_refused_if_asked_to() {
    with_devices(&[("SOYBEAN_FAKE_NO_ACTIVATIONS", "1")], |_| {
        let library = Library::new();
        let statuses =
            |graph| engines(graph, A).iter().map(|it| library.plan(it).err()).collect::<Vec<_>>();
        for (direction, _) in DIRECTIONS {
            let plain = statuses(plain_graph(&library, direction, BF16, &PIXEL));
            assert!(!plain.is_empty() && plain.iter().all(Option::is_none));
        }
        for epilogue in EPILOGUES {
            let operand = numbers(count(epilogue.extents(&PIXEL)), 5);
            let format = (BF16, Layout::ChannelsLast);
            let tensors = tensors_with_operand(&library, format, &PIXEL, (epilogue, &operand));
            let refused = statuses(epilogue.graph(&library, &PIXEL, tensors.each_ref()).unwrap());
            assert_eq!(refused, [Some(Status::CUDNN_STATUS_NOT_SUPPORTED); 3]);
        }
    });
}
