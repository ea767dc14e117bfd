//! Tests of cuDNN's graph API on virtual devices against plain loops.

use std::ffi::c_void;
use std::slice::from_ref;

use cudarc::cudnn::sys;
use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendNumericalNote_t as Note,
    cudnnConvolutionMode_t as ConvolutionMode, cudnnStatus_t as Status,
};

use crate::child_process::with_devices;
use crate::convolution_reference::{
    CASES, Case, DIRECTIONS, Direction, Layout, PIXEL, compare, expected,
};
use crate::cudnn_graph::{Descriptor, convolution, convolution_descriptor, operation};
use crate::cudnn_library::{
    A, BF16, Engine, F32, FALLBACK, FORMATS, Library, TENSOR_CORE, engines, plain_graph, reports,
    tensors,
};

const NONDETERMINISTIC: Note = Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;

fn all_engines(graph: Descriptor) -> impl Iterator<Item = Engine> {
    [A, FALLBACK].into_iter().flat_map(move |mode| engines(graph, mode))
}

#[test]
fn convolutions_and_gradients_are_right() {
    with_devices(&[], |control| {
        let library = Library::new();
        let mut n_runs = [0; 3];
        for (case, (tolerance, format)) in
            CASES.iter().flat_map(|case| FORMATS.map(|format| (case, format)))
        {
            for (direction, computed) in DIRECTIONS {
                let descriptors = tensors(&library, format, case).map(|it| it.descriptor());
                let operation = operation(direction, case, descriptors).unwrap();
                for engine in all_engines(library.graph(&[operation]).unwrap()) {
                    let tensors = tensors(&library, format, case);
                    library.run(&engine, &tensors.each_ref());
                    let found = tensors[computed].read(&library.stream);
                    let what = format!("{direction:?} by engine {}", engine.index);
                    compare(&found, &expected(case, computed), tolerance, &what);
                    n_runs[computed] += 1;
                }
            }
        }
        let names = [c"cudnn: data", c"cudnn: filter", c"cudnn: forward"];
        assert_eq!(names.map(|it| control.n_calls(it)), n_runs);
    });
}

#[test]
fn engines_report_their_notes() {
    with_devices(&[], |_| {
        let library = Library::new();
        let find = |direction, dtype, mode| {
            let engines = engines(plain_graph(&library, direction, dtype, &CASES[0]), mode);
            assert!(engines.iter().all(|it| it.behavior_notes.is_empty()));
            reports(&library, engines)
        };
        // Winograd's transforms come first, and Fourier's last.
        let winograd = (vec![Note::CUDNN_NUMERICAL_NOTE_WINOGRAD], 4096);
        let fourier = (vec![Note::CUDNN_NUMERICAL_NOTE_FFT], 4096);
        let of_tensor_cores = (vec![TENSOR_CORE], 4096);
        let [of_atomics, of_parts] = [0, 4096].map(|bytes| (vec![NONDETERMINISTIC], bytes));
        for (direction, before, after) in [
            (Direction::Forward, vec![], vec![(vec![], 4096), (vec![], 0)]),
            (Direction::BackwardData, vec![of_atomics.clone()], vec![]),
            (Direction::BackwardFilter, vec![of_atomics, of_parts], vec![]),
        ] {
            let others = [&before[..], from_ref(&of_tensor_cores), &after].concat();
            assert_eq!(find(direction, BF16, A), others);
            assert_eq!(
                find(direction, F32, A),
                [from_ref(&winograd), &others[..], from_ref(&fourier)].concat()
            );
            let workspace = if direction == Direction::Forward { 0 } else { 4096 };
            for dtype in [F32, BF16] {
                assert_eq!(find(direction, dtype, FALLBACK), [(vec![], workspace)]);
            }
        }
    });
}

#[test]
fn engines_hide_that_they_round_if_asked_to() {
    with_devices(&[("SOYBEAN_FAKE_HIDES_ROUNDING", "1")], |_| {
        let library = Library::new();
        let graph = plain_graph(&library, Direction::BackwardFilter, F32, &CASES[0]);
        let notes = reports(&library, engines(graph, A)).into_iter().map(|it| it.0);
        assert!(notes.flatten().all(|it| it != TENSOR_CORE));
    });
}

#[test]
fn engines_on_tensor_cores_round_to_tf32() {
    with_devices(&[], |_| {
        let library = Library::new();
        let format = (F32, Layout::ChannelsLast);
        // Half of the distance between numbers of tf32.
        let exact = 1.0 + 2.0_f32.powi(-11);
        let tensor = |id, extents, values: &[f32]| library.tensor(id, format, extents, values);
        for (direction, computed) in DIRECTIONS {
            let graph = plain_graph(&library, direction, F32, &PIXEL);
            let mut n_rounding = 0;
            for engine in all_engines(graph) {
                // The gradient of images has no images as operand.
                let of_y = if computed == 0 { exact } else { 1.0 };
                let tensors = [
                    tensor(0, PIXEL.images, &[exact, 0.0]),
                    tensor(1, PIXEL.filters, &[1.0, 1.0]),
                    tensor(2, PIXEL.results(), &[of_y]),
                ];
                library.run(&engine, &tensors.each_ref());
                let rounds = engine.numerical_notes.contains(&TENSOR_CORE);
                n_rounding += u32::from(rounds);
                let expected = if rounds { 1.0 + 2.0_f32.powi(-10) } else { exact };
                assert_eq!(tensors[computed].read(&library.stream)[0], expected, "{direction:?}");
            }
            assert_eq!(n_rounding, 1);
        }
    });
}

#[test]
fn unknown_convolutions_are_refused() {
    with_devices(&[], |_| {
        let (library, case) = (Library::new(), CASES[0]);
        let format = (F32, Layout::ChannelsLast);
        let descriptors = tensors(&library, format, &case).map(|it| it.descriptor());
        let wrong = Case { padding: 0, ..case };
        for (direction, _) in DIRECTIONS {
            let status = operation(direction, &wrong, descriptors).err();
            assert_eq!(status, Some(Status::CUDNN_STATUS_BAD_PARAM));
            let known = convolution_descriptor(&case).finalized().unwrap();
            for scales in [[2.0, 0.0], [1.0, 1.0]] {
                let status = convolution(direction, known, descriptors, scales).err();
                assert_eq!(status, Some(Status::CUDNN_STATUS_NOT_SUPPORTED));
            }
        }
        for unknown in [
            convolution_descriptor(&case)
                .with(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &[1_i64, 2]),
            convolution_descriptor(&case).with(
                Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE,
                &[ConvolutionMode::CUDNN_CONVOLUTION],
            ),
            convolution_descriptor(&case).with(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, &[BF16]),
        ] {
            assert_eq!(unknown.finalized().err(), Some(Status::CUDNN_STATUS_NOT_SUPPORTED));
        }
    });
}

#[test]
fn plans_check_their_memory() {
    with_devices(&[], |control| {
        let (library, case) = (Library::new(), CASES[0]);
        let tensors = tensors(&library, (F32, Layout::ChannelsLast), &case);
        let graph = plain_graph(&library, Direction::BackwardFilter, F32, &case);
        let plan = library.plan(&engines(graph, FALLBACK)[0]).unwrap();
        let all = tensors.each_ref().map(|it| (it.id, it.pointer()));
        let workspace = library.workspace_pointer();
        let bad = Status::CUDNN_STATUS_BAD_PARAM;
        let mut host = [0.0_f32; 64];
        let at_host: *mut c_void = host.as_mut_ptr().cast();
        for place in 0..3 {
            for wrong in [all[place].1.wrapping_byte_add(8), at_host, std::ptr::null_mut()] {
                let mut tensors = all;
                tensors[place].1 = wrong;
                assert_eq!(library.execute(plan, &tensors, workspace), bad);
            }
            let mut tensors = all.to_vec();
            tensors.remove(place);
            assert_eq!(library.execute(plan, &tensors, workspace), bad);
        }
        assert_eq!(library.execute(plan, &all, std::ptr::null_mut()), bad);
        assert_eq!(control.n_calls(c"cudnn: filter"), 0);
        assert_eq!(library.execute(plan, &all, workspace), Status::CUDNN_STATUS_SUCCESS);
        assert_eq!(control.n_calls(c"cudnn: filter"), 1);
        let poisoned = library.workspace();
        assert!(poisoned.iter().all(|it| *it == 0xff));
    });
}

/// Returns the status of the creation of a descriptor for attention, which cudarc does not know.
fn create_attention() -> Status {
    type Create = unsafe extern "C" fn(u32, *mut *mut c_void) -> Status;
    let mut made = std::ptr::null_mut();
    // SAFETY: the library was found.
    let library = unsafe { sys::culib() };
    // SAFETY: a type of the header, with an integer in place of an enum.
    let create = unsafe { library.get::<Create>(b"cudnnBackendCreateDescriptor") };
    // SAFETY: the result is a local variable.
    unsafe { create.unwrap()(41, &raw mut made) }
}

#[test]
fn attention_needs_a_newer_version() {
    with_devices(&[("SOYBEAN_FAKE_CUDNN", "92000")], |_| {
        assert_eq!(create_attention(), Status::CUDNN_STATUS_NOT_SUPPORTED);
    });
}

#[test]
fn newer_versions_have_attention() {
    with_devices(&[("SOYBEAN_FAKE_CUDNN", "92100")], |_| {
        assert_eq!(create_attention(), Status::CUDNN_STATUS_SUCCESS);
    });
}
