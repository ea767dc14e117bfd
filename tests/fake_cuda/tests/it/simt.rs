//! Tests of kernels on the CPU: results of correct kernels, and detection of errors in others.

use std::env;
use std::ffi::c_void;
use std::process::Command;

use soybean_fake_cuda::{Module, Order, Sanitize, compile, has_compiler, sanitizer_library};

const KERNELS: &str = include_str!("kernels.cu");

const ORDERS: [Order; 5] =
    [Order::Forward, Order::Reverse, Order::Random(1), Order::Random(2), Order::Random(3)];

/// Returns the module of `kernels.cu`, or `None` without a compiler.
fn module() -> Option<Module> {
    if !has_compiler() {
        eprintln!("skipped: no C++ compiler");
        return None;
    }
    Some(Module::load(&compile(KERNELS, Sanitize::Nothing).unwrap()).unwrap())
}

fn pointer<T>(values: &mut [T]) -> *mut c_void {
    values.as_mut_ptr().cast()
}

/// Returns pseudo-random numbers in [-2, 2).
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from_bits(0x4000_0000 | state >> 9) * 2.0 - 6.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

fn assert_close(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    for (position, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            (found - expected).abs() <= tolerance,
            "element {position} is {found}, not {expected}"
        );
    }
}

#[test]
fn softmax_with_shuffles_and_barriers() {
    let Some(module) = module() else { return };
    let (rows, columns) = (5, 300);
    let mut x = numbers(rows * columns, 1);
    let expected: Vec<f32> = x
        .chunks(columns)
        .flat_map(|row| {
            let sum: f32 = row.iter().map(|x| x.exp()).sum();
            row.iter().map(move |x| x.exp() / sum)
        })
        .collect();
    for order in ORDERS {
        let mut y = vec![f32::NAN; rows * columns];
        // SAFETY: both matrices have the extents that the kernel expects.
        unsafe {
            module.launch(
                "softmax",
                [5, 1, 1],
                [128, 1, 1],
                0,
                &[pointer(&mut y), pointer(&mut x)],
                order,
            )
        }
        .unwrap();
        assert_close(&y, &expected, 1e-6);
    }
}

#[test]
fn kernels_may_use_functions_templates_and_structs() {
    let Some(module) = module() else { return };
    for order in ORDERS {
        let (mut x, mut y) = (vec![1.0_f32, 2.0, 3.0, 4.0], vec![f32::NAN; 4]);
        // SAFETY: four threads read and write four numbers.
        unsafe {
            module.launch(
                "pieces",
                [1; 3],
                [4, 1, 1],
                0,
                &[pointer(&mut y), pointer(&mut x)],
                order,
            )
        }
        .unwrap();
        assert_eq!(y, [7.0, 10.0, 13.0, 16.0], "{order:?}");
    }
}

/// Returns true if `kernel` reverses each of four rows of 64.
fn reverses(module: &Module, kernel: &str, shared_bytes: u32, order: Order) -> bool {
    let mut x = numbers(256, 2);
    let mut y = vec![f32::NAN; 256];
    // SAFETY: four blocks of 64 threads read and write 256 numbers.
    unsafe {
        module.launch(
            kernel,
            [4, 1, 1],
            [64, 1, 1],
            shared_bytes,
            &[pointer(&mut y), pointer(&mut x)],
            order,
        )
    }
    .unwrap();
    x.chunks(64).zip(y.chunks(64)).all(|(x, y)| x.iter().rev().eq(y))
}

#[test]
fn a_missing_barrier_gives_wrong_results() {
    let Some(module) = module() else { return };
    for order in ORDERS {
        assert!(reverses(&module, "reverse", 256, order), "{order:?}");
        assert!(!reverses(&module, "reverse_without_barrier", 0, order), "{order:?}");
    }
}

/// Returns the error of a kernel with one argument, in a block of 32 threads.
fn error_of(module: &Module, kernel: &str, order: Order) -> String {
    let mut y = vec![0.0_f32; 32];
    // SAFETY: the kernels write one number per thread.
    unsafe { module.launch(kernel, [1, 1, 1], [32, 1, 1], 0, &[pointer(&mut y)], order) }
        .unwrap_err()
}

#[test]
fn deadlocks_are_reported_with_their_line() {
    let Some(module) = module() else { return };
    let line =
        1 + KERNELS.lines().position(|line| line.contains("the line that is reported")).unwrap();
    for order in ORDERS {
        let divergent = error_of(&module, "divergent", order);
        assert!(
            divergent.starts_with(&format!("kernel divergent, line {line}: thread ")),
            "{divergent}"
        );
        assert!(divergent.contains("has returned"), "{divergent}");
        let two = error_of(&module, "two_barriers", order);
        assert!(two.contains("at this barrier, but thread"), "{two}");
        let lane = error_of(&module, "missing_lane", order);
        assert!(lane.contains("which never come"), "{lane}");
        let exported = error_of(&module, "exported_wrongly", order);
        assert!(exported.contains("exported as one that uses none"), "{exported}");
        // A launch after a failed one starts from a clean state.
        assert!(reverses(&module, "reverse", 256, order));
    }
}

#[test]
fn launches_beyond_gpu_limits_are_rejected() {
    let Some(module) = module() else { return };
    let launch = |kernel, grid, block, arguments: &[_]| {
        // SAFETY: nothing runs.
        unsafe { module.launch(kernel, grid, block, 0, arguments, Order::Forward) }.unwrap_err()
    };
    let null = std::ptr::null_mut();
    assert_eq!(launch("none", [1; 3], [1; 3], &[]), "no kernel is named none");
    assert!(launch("divergent", [0, 1, 1], [1; 3], &[null]).contains("cannot be launched"));
    assert!(launch("divergent", [1; 3], [32, 33, 1], &[null]).contains("cannot be launched"));
    assert_eq!(
        launch("divergent", [1; 3], [1; 3], &[]),
        "kernel divergent: 0 arguments, but it takes 1"
    );
    assert_eq!(module.kernels().next(), Some("pieces"));
    assert_eq!(module.n_arguments("histogram"), Some(3));
}

#[test]
fn shared_memory_is_poisoned_before_each_block() {
    let Some(module) = module() else { return };
    for order in ORDERS {
        let mut y = vec![0_u32; 64];
        // SAFETY: four blocks write 16 words each.
        unsafe {
            module.launch("uninitialized", [4, 1, 1], [8, 1, 1], 32, &[pointer(&mut y)], order)
        }
        .unwrap();
        assert_eq!(y, [u32::MAX; 64], "{order:?}");
    }
    let bytes = module.static_shared_bytes("uninitialized").unwrap();
    assert!((32..96).contains(&bytes), "{bytes}");
    assert_eq!(module.static_shared_bytes("none"), None);
}

#[test]
fn atomics_have_no_races() {
    let Some(module) = module() else { return };
    let mut x: Vec<i32> = (0..1000).map(|i| i * 7 % 10).collect();
    for order in ORDERS {
        let (mut counts, mut largest) = (vec![0_u32; 10], vec![-1]);
        let arguments = [pointer(&mut counts), pointer(&mut largest), pointer(&mut x)];
        // SAFETY: the kernel reads 1000 numbers below 10.
        unsafe { module.launch("histogram", [4, 1, 1], [256, 1, 1], 0, &arguments, order) }
            .unwrap();
        assert_eq!((counts, largest), (vec![100; 10], vec![9]));
    }
}

#[test]
fn lanes_shuffle_and_vote() {
    let Some(module) = module() else { return };
    for order in ORDERS {
        let mut y = vec![-1; 48 * 8];
        // SAFETY: 48 threads write 8 numbers each.
        unsafe { module.launch("shuffles", [1, 1, 1], [48, 1, 1], 0, &[pointer(&mut y)], order) }
            .unwrap();
        for (thread, found) in y.chunks(8).enumerate() {
            let (lane, lanes) = (thread % 32, if thread < 32 { 32 } else { 16 });
            let ballot = (0..lanes)
                .filter(|lane| lane % 3 == 0)
                .fold(0_u32, |votes, lane| votes | 1 << lane);
            let expected = [
                3,
                if lane < 2 { lane } else { lane - 2 },
                if lane % 8 < 6 { lane + 2 } else { lane },
                lane ^ 4,
                ballot as usize,
                if lane < 8 { 70 } else { 90 },
                3,
                lane,
            ];
            let found: Vec<usize> =
                found.iter().map(|&it| usize::try_from(it as u32).unwrap()).collect();
            assert_eq!(found, expected, "thread {thread}, {order:?}");
        }
    }
}

/// Computes `c [16, 8] + a [16, depth] b [depth, 8]`.
fn product(a: &[f32], b: &[f32], c: &[f32], depth: usize) -> Vec<f32> {
    let at = |row: usize, column: usize| {
        c[row * 8 + column]
            + (0..depth).map(|k| a[row * depth + k] * b[k * 8 + column]).sum::<f32>()
    };
    (0..16 * 8).map(|i| at(i / 8, i % 8)).collect()
}

#[test]
fn warps_multiply_matrices() {
    let Some(module) = module() else { return };
    let c = numbers(16 * 8, 5);
    for order in ORDERS {
        let bits = |values: &[f32]| -> Vec<u16> {
            values.iter().map(|x| (x.to_bits() >> 16) as u16).collect()
        };
        let floats = |values: &[u16]| -> Vec<f32> {
            values.iter().map(|&x| f32::from_bits(u32::from(x) << 16)).collect()
        };
        let (mut a, mut b, mut d) =
            (bits(&numbers(16 * 16, 3)), bits(&numbers(16 * 8, 4)), c.clone());
        // SAFETY: the kernel expects these sizes.
        unsafe {
            module.launch(
                "product_bf16",
                [1; 3],
                [32, 1, 1],
                0,
                &[pointer(&mut d), pointer(&mut a), pointer(&mut b)],
                order,
            )
        }
        .unwrap();
        assert_close(&d, &product(&floats(&a), &floats(&b), &c, 16), 1e-5);

        let rounded = |values: &[f32]| -> Vec<f32> {
            values.iter().map(|x| f32::from_bits((x.to_bits() + 0x1000) & !0x1fff)).collect()
        };
        let (mut a, mut b, mut d) = (numbers(16 * 8, 6), numbers(8 * 8, 7), c.clone());
        // SAFETY: the kernel expects these sizes.
        unsafe {
            module.launch(
                "product_tf32",
                [1; 3],
                [32, 1, 1],
                0,
                &[pointer(&mut d), pointer(&mut a), pointer(&mut b)],
                order,
            )
        }
        .unwrap();
        assert_close(&d, &product(&rounded(&a), &rounded(&b), &c, 8), 1e-5);
    }
}

#[test]
fn warps_load_matrices_by_rows_and_by_columns() {
    let Some(module) = module() else { return };
    // Element `column` of row `row` of a matrix.
    let element = |matrix: u32, row: u32, column: u32| matrix * 64 + row * 8 + column;
    let pair = |low: u32, high: u32| low | high << 16;
    let word = |at: u32| {
        let (matrix, row, word) = (at / 32, at / 4 % 8, at % 4);
        pair(element(matrix, row, 2 * word), element(matrix, row, 2 * word + 1))
    };
    for order in ORDERS {
        let mut x: Vec<u32> = (0..32 * 4).map(word).collect();
        let mut y = vec![0_u32; 32 * 8];
        let arguments = [pointer(&mut y), pointer(&mut x)];
        // SAFETY: the kernel expects these sizes.
        unsafe { module.launch("matrices", [1; 3], [32, 1, 1], 0, &arguments, order) }.unwrap();
        for (lane, found) in (0..).zip(y.chunks(8)) {
            let (row, at) = (lane / 4, lane % 4 * 2);
            let by_rows = (0..4).map(|it| pair(element(it, row, at), element(it, row, at + 1)));
            let by_columns = (0..4).map(|it| pair(element(it, at, row), element(it, at + 1, row)));
            assert_eq!(found, by_rows.chain(by_columns).collect::<Vec<_>>(), "lane {lane}");
        }
    }
}

#[test]
fn copies_to_shared_memory_arrive_when_their_thread_waits() {
    let Some(module) = module() else { return };
    for order in ORDERS {
        let (mut x, mut y) = (numbers(32 * 8, 8), vec![f32::NAN; 32 * 4]);
        let mut expected: Vec<f32> =
            x.chunks(8).flat_map(|it| [0, 1, 2, 3].map(|i| it[i] + it[4])).collect();
        expected[31 * 4..].fill(0.0);
        let arguments = [pointer(&mut y), pointer(&mut x)];
        // SAFETY: the kernel expects these sizes.
        unsafe { module.launch("copies", [1; 3], [32, 1, 1], 0, &arguments, order) }.unwrap();
        assert_eq!(y, expected);
        // SAFETY: as above.
        unsafe { module.launch("early", [1; 3], [32, 1, 1], 0, &arguments, order) }.unwrap();
        assert!(y[..32].iter().all(|it| it.is_nan()), "{y:?}");
    }
}

#[test]
fn compile_errors_name_source_lines() {
    if !has_compiler() {
        eprintln!("skipped: no C++ compiler");
        return;
    }
    let message =
        compile("__global__ void f(float* x) {\n    *x = undefined_name;\n}\n", Sanitize::Nothing)
            .unwrap_err();
    assert!(message.contains("kernels.cu:2:") && message.contains("undefined_name"), "{message}");
}

/// Runs in the child of the test below, with the sanitizers loaded.
#[test]
fn sanitized() {
    let Ok(kernel) = env::var("SOYBEAN_TEST_SANITIZED") else { return };
    let module = Module::load(&compile(KERNELS, Sanitize::AddressAndUndefined).unwrap()).unwrap();
    assert!(reverses(&module, "reverse", 256, Order::Random(1)));
    let mut y = vec![0.0_f32; 32];
    let blocks = if kernel == "beyond_the_end" { 2 } else { 1 };
    // SAFETY: the kernel is faulty, and the sanitizers must detect it.
    unsafe {
        module.launch(&kernel, [blocks, 1, 1], [32, 1, 1], 0, &[pointer(&mut y)], Order::Forward)
    }
    .unwrap();
}

#[test]
fn writes_out_of_bounds_are_detected() {
    let Some(library) = sanitizer_library().filter(|_| has_compiler()) else {
        eprintln!("skipped: no C++ compiler with sanitizers");
        return;
    };
    for (kernel, fault) in
        [("beyond_the_end", "heap-buffer-overflow"), ("beyond_shared", "index 32 out of bounds")]
    {
        let mut child = Command::new(env::current_exe().unwrap());
        child
            .args(["--exact", "simt::sanitized", "--nocapture"])
            .env("SOYBEAN_TEST_SANITIZED", kernel);
        child.env("LD_PRELOAD", &library).env("ASAN_OPTIONS", "detect_leaks=0");
        let output = child.output().unwrap();
        let report = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{kernel} was not found out");
        assert!(report.contains(fault) && report.contains("kernels.cu:"), "{report}");
    }
}
