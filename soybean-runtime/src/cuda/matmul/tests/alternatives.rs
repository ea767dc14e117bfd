//! Tests of what is measured beside the usual product: copies of operands, and sums by a kernel.

use std::{env, fs, process};

use super::*;
use crate::cuda::{
    autotune::Choices,
    compile::Compiler,
    kernels::{GpuKernels, KernelOperands},
    peers::{NoPeers, Peers},
    source::{KernelCall, KernelRequests},
};

/// The gradient of a weight, whose operands lie across the depth.
fn gradient_of_weight() -> Contraction {
    Contraction { left: matrix(1, 6, &[]), ..plain(6, 16, 24) }
}

/// Three gradients of weights that share the left operand, as those of queries, keys and values.
fn three_gradients() -> Contraction {
    Contraction {
        batch: Shape::new(&[3]),
        left: matrix(1, 6, &[0]),
        right: matrix(24, 1, &[400]),
        result: matrix(24, 1, &[160]),
        ..plain(6, 16, 24)
    }
}

/// Bytes that suffice for all copies.
const ROOM: usize = MAX_WORKSPACE_BYTES + 8192;

/// Returns the choices for these kernels before any measurement.
fn choices() -> Choices {
    let peers: Arc<dyn Peers> = Arc::new(NoPeers);
    Choices::read("versions", "kernels", &peers).unwrap().unwrap()
}

/// Runs a test on virtual GPUs without choices of other tests.
fn on_untuned(test: &str, n_algorithms: &str, body: impl FnOnce()) {
    let folder = env::temp_dir().join(format!("soybean-{test}-{}", process::id()));
    let settings = [
        ("SOYBEAN_FAKE_ALGORITHMS", n_algorithms),
        ("SOYBEAN_CACHE_DIR", folder.to_str().unwrap()),
    ];
    let path = format!("cuda::matmul::tests::alternatives::{test}");
    on_virtual_gpus(&path, &settings, |machine| {
        body();
        assert_eq!(machine.n_complaints(), 0);
    });
    let _gone = fs::remove_dir_all(folder);
}

#[test]
fn transposed_copies_of_operands_change_no_result() {
    on_untuned("transposed_copies_of_operands_change_no_result", "2", || {
        let check = |contraction: Contraction, (types, precision), room: usize, n: usize| {
            let case = Case { contraction, types, precision, epilogue: PLAIN };
            let run = |number: usize| case.run_algorithm(number, room, &[]).map(|it| it.result);
            let results: Vec<Vec<f32>> = (0..).map_while(run).collect();
            assert_eq!(results.len(), n, "{contraction:?} {precision}");
            assert!(results.iter().all(|it| *it == results[0]), "{contraction:?}: {results:?}");
            case.check(&[], |_, _, element| element);
        };
        for contraction in [gradient_of_weight(), three_gradients()] {
            for (types, precision) in TYPES {
                // As it lies, with the first operand transposed, and with the second one.
                let n_variants = if precision == Precision::Tf32 { 3 } else { 1 };
                check(contraction, (types, precision), ROOM, 2 * n_variants);
            }
        }
        // One of the copies has 512 bytes, the other one 1536.
        check(gradient_of_weight(), TYPES[1], MAX_WORKSPACE_BYTES + 512, 4);
        check(gradient_of_weight(), TYPES[1], MAX_WORKSPACE_BYTES, 2);
        // One operand lies along the depth.
        check(plain(6, 16, 24), TYPES[1], ROOM, 2);
    });
}

/// Compiles the product, by the candidates that are chosen. Others are measured.
fn compiled(case: &Case, choices: &mut Choices) -> GpuKernels {
    let Case { contraction, types: [left, right, result], precision, epilogue } = *case;
    let kernels = [contraction.into()];
    let calls = [KernelCall {
        kernel: 0,
        inputs: vec![left, right],
        results: [Some(result), epilogue.bias].into_iter().flatten().collect(),
        epilogue,
        checked: Vec::new(),
    }];
    let requests = KernelRequests {
        kernels: &kernels,
        precision,
        calls: &calls,
        transfers: &[],
        max_workspace_bytes: ROOM,
    };
    GpuKernels::new(&gpus(1)[0], &mut Compiler::default(), &requests, Some(choices)).unwrap()
}

/// Compiles the product, which has been measured, by the candidate of this number.
fn compiled_by(case: &Case, number: usize) -> GpuKernels {
    let mut choices = choices();
    choices.replace(number);
    let kernels = compiled(case, &mut choices);
    // A number that no candidate has would be measured anew.
    assert!(choices.known_numbers().contains(&number));
    kernels
}

/// Returns the elements of the product, and the sums.
fn run(kernels: &GpuKernels, case: &Case) -> [Vec<f32>; 2] {
    let gpu = &gpus(1)[0];
    let stream = Stream::new(gpu, Priority::Normal).unwrap();
    let [left, right, mut result, _] = case.operands();
    let mut sums = HostTensor::new(case.types[2], 128, 5);
    let memories = [&left, &right, &result, &sums].map(|it| it.upload(gpu));
    let workspace = DeviceMemory::zeroed(gpu, kernels.workspace_bytes(), "the workspace").unwrap();
    workspace.write(0, &vec![0xff_u8; kernels.workspace_bytes()]).unwrap();
    let at = memories.each_ref().map(|it| it.address(0));
    let operands = KernelOperands::plain(&at[..2], &at[2..], workspace.address(0));
    // SAFETY: the allocations are as large as the contraction requires, and live until the stream
    // is done.
    unsafe { kernels.run(0, &stream, operands) }.unwrap();
    stream.synchronize().unwrap();
    result.download(&memories[2]);
    sums.download(&memories[3]);
    [result.values, sums.values]
}

#[test]
fn sums_by_a_kernel_are_those_of_the_library() {
    on_untuned("sums_by_a_kernel_are_those_of_the_library", "1", || {
        for (contraction, bias_stride) in [(gradient_of_weight(), 0), (three_gradients(), 32)] {
            for (types, precision) in TYPES {
                for function in [Function::LeftSums, Function::RightSums] {
                    let epilogue =
                        Epilogue { bias_stride, ..Epilogue::new(function, Some(types[2])) };
                    let case = Case { contraction, types, precision, epilogue };
                    // With sums in the call and without; the operands as they lie, and with a
                    // copy of either.
                    let n_variants = if precision == Precision::Tf32 { 6 } else { 2 };
                    let _measured = compiled(&case, &mut choices());
                    let all: Vec<[Vec<f32>; 2]> =
                        (0..n_variants).map(|it| run(&compiled_by(&case, it), &case)).collect();
                    for [result, sums] in &all {
                        assert_eq!(*result, all[0][0], "{case:?}");
                        let pairs = sums.iter().zip(&all[0][1]);
                        let error = pairs.map(|(one, other)| (one - other).abs());
                        let error = f64::from(error.fold(0.0, f32::max));
                        assert!(error <= case.tolerance(), "{case:?}: {sums:?}, {:?}", all[0][1]);
                    }
                }
            }
        }
    });
}

#[test]
fn each_precision_has_choices_of_its_own() {
    on_untuned("each_precision_has_choices_of_its_own", "3", || {
        let mut choices = choices();
        let mut keys = |precision: Precision| {
            let (contraction, types) = (plain(6, 16, 24), [DType::F32; 3]);
            let case = Case { contraction, types, precision, epilogue: PLAIN };
            let _measured = compiled(&case, &mut choices);
            choices.known_numbers().len()
        };
        assert_eq!([Precision::F32, Precision::Tf32, Precision::F32].map(&mut keys), [1, 2, 2]);
    });
}
