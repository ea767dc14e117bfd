//! Tests of the CUDA text of every kernel against the CPU's kernels.
//!
//! The text that is compiled for GPUs runs on the CPU, thread by thread in several orders, and
//! again with all accesses checked. If NVRTC is found, it compiles all of it too.
#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod attention;
mod case;
mod concatenation;
mod contraction;
mod convolution;
mod device;
mod dice;
mod embedding;
mod embedding_update;
mod few_channels;
mod indexing;
mod large;
mod machine_code;
mod map;
mod movement;
mod nvrtc;
mod on_gpu;
mod operands;
mod padding;
mod permutation;
mod pooling;
mod program;
mod ranking;
mod reduction;
mod reference;
mod row_fusion;
mod score_function;

use std::{env, process::Command, thread};

use attention::Saving;
use case::Case;
use device::Unit;
use dice::Dice;
use soybean_fake_cuda::{Order, Sanitize, has_compiler, sanitizer_library};

/// Generates a random kernel of one kind.
type Kind = fn(&mut Dice) -> Case;

/// Every kind of kernel by name, with the number of cases in a full run.
const KINDS: &[(&str, usize, Kind)] = &[
    ("map", 48, map::case),
    ("map-of-special-numbers", 4, map::special_numbers),
    ("map-of-integers", 32, map::integers),
    ("map-of-arithmetic-of-integers", 24, map::arithmetic_of_integers),
    ("reduction", 64, reduction::case),
    ("reduction-of-integers", 32, reduction::of_integers),
    ("rows", 40, row_fusion::case),
    ("rows-of-networks", 24, row_fusion::of_networks),
    ("permutation", 32, permutation::case),
    ("padding", 32, padding::case),
    ("concatenation", 24, concatenation::case),
    ("pooling", 112, pooling::case),
    ("embedding", 24, embedding::case),
    ("embedding-update", 24, embedding_update::case),
    ("indexing", 32, indexing::case),
    ("ranking", 24, ranking::case),
    ("contraction", 40, contraction::case),
    ("contraction-of-many-tiles", 2, contraction::many_tiles),
    ("convolution", 32, convolution::case),
    ("convolution-of-few-channels", 32, few_channels::case),
    ("filters-of-few-channels", 32, convolution::filters_of_few_channels),
    ("attention", 32, attention::case),
    ("attention-of-usual-heads", 24, attention::usual_heads),
    ("attention-of-nothing", 8, attention::empty),
];

/// Returns all kernels of a kind.
fn cases(kind: (&str, usize, Kind)) -> Vec<Case> {
    some_cases(kind, 0, 1)
}

/// Returns every `step`-th kernel of a kind, from the one with number `first`. Kinds with fewer
/// kernels, which take long, give none.
fn some_cases((_, n, kind): (&str, usize, Kind), first: usize, step: usize) -> Vec<Case> {
    let numbers = (first..).step_by(step).take(n / step);
    numbers.map(|number| kind(&mut Dice(number as u64))).collect()
}

/// Runs cases in one text, each in several orders of threads, which must not matter, and compares
/// with the CPU.
fn check(name: &str, cases: &[Case], sanitize: Sanitize) {
    for (case, found) in cases.iter().zip(results(name, cases, sanitize)) {
        case.compare(&found, &reference::run(case))
            .unwrap_or_else(|it| panic!("{name}: {it}\n{case:?}"));
    }
}

/// Returns the results of cases in one text, which are the same in several orders of threads.
fn results(name: &str, cases: &[Case], sanitize: Sanitize) -> Vec<Vec<Vec<f32>>> {
    let unit = Unit::new(cases, sanitize);
    let of_case = |(number, case): (usize, &Case)| {
        let run = |order| {
            unit.run(number, case, order)
                .unwrap_or_else(|it| panic!("{name} {number}: {it}\n{case:?}"))
        };
        let found = run(Order::Forward);
        for order in [Order::Reverse, Order::Random(number as u64)] {
            let again = run(order);
            let bits =
                |all: &[Vec<f32>]| all.iter().flatten().map(|it| it.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&found), bits(&again), "{name} {number} in order {order:?}: {case:?}");
        }
        found
    };
    cases.iter().enumerate().map(of_case).collect()
}

#[test]
fn texts_compute_what_the_cpu_computes() {
    if !has_compiler() {
        return eprintln!("skipped: no C++ compiler");
    }
    for kind in KINDS {
        check(kind.0, &cases(*kind), Sanitize::Nothing);
    }
}

#[test]
fn gradients_of_attention_follow_from_what_the_forward_computation_saves() {
    if !has_compiler() {
        return eprintln!("skipped: no C++ compiler");
    }
    let cases = (0..40).map(|it| attention::case(&mut Dice(it)));
    let cases = cases.chain((0..12).map(|it| attention::usual_heads(&mut Dice(it))));
    let savings: Vec<Saving> = cases.filter_map(Saving::new).collect();
    let forward: Vec<Case> = savings.iter().map(Saving::forward).collect();
    let saved = results("forward", &forward, Sanitize::Nothing);
    let gradients: Vec<Case> =
        savings.iter().zip(saved).map(|(it, saved)| it.gradient(saved)).collect();
    let found = results("gradients", &gradients, Sanitize::Nothing);
    assert!(found.len() > 30);
    for ((saving, case), found) in savings.iter().zip(&gradients).zip(found) {
        let expected = reference::run(&saving.apart);
        case.compare(&found, &expected).unwrap_or_else(|it| panic!("{it}\n{case:?}"));
    }
}

#[test]
fn the_cpu_computes_the_same_bits_on_any_number_of_threads() {
    let bits = |case: &Case, n_threads| {
        let results = reference::run_on(case, n_threads);
        results.iter().flatten().map(|it| it.to_bits()).collect::<Vec<_>>()
    };
    for case in (0..8).flat_map(|seed| large::cases(&mut Dice(seed))) {
        let expected = bits(&case, 1);
        for n_threads in [1, 2, 3, 5, 8] {
            let found = bits(&case, n_threads);
            let place = found.iter().zip(&expected).position(|(found, expected)| found != expected);
            assert_eq!(place, None, "{n_threads} threads: {case:?}");
            assert_eq!(found.len(), expected.len(), "{case:?}");
        }
    }
}

#[test]
fn movements_are_those_of_their_patterns() {
    if !has_compiler() {
        return eprintln!("skipped: no C++ compiler");
    }
    movement::check(Sanitize::Nothing, 200);
}

/// The environment variable that marks the process whose accesses are checked.
const IS_CHILD: &str = "SOYBEAN_KERNEL_TEXT_SANITIZED";

#[test]
fn texts_touch_their_own_memory_only() {
    if env::var_os(IS_CHILD).is_some() {
        for kind in KINDS {
            check(kind.0, &some_cases(*kind, 0, 4), Sanitize::AddressAndUndefined);
        }
        return movement::check(Sanitize::AddressAndUndefined, 40);
    }
    let Some(library) = sanitizer_library().filter(|_| has_compiler()) else {
        return eprintln!("skipped: no C++ compiler with an address sanitizer");
    };
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "texts_touch_their_own_memory_only", "--nocapture"]).env(IS_CHILD, "1");
    child.env("LD_PRELOAD", library).env("ASAN_OPTIONS", "detect_leaks=0");
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

/// A100, RTX 30, RTX 40 and L40, H100, B200, RTX 50.
const ARCHITECTURES: [&str; 6] = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"];

#[test]
fn texts_compile_for_gpus() {
    let Some(compiler) = nvrtc::Compiler::find() else {
        return eprintln!(
            "skipped: no NVRTC; name the folders of its libraries in SOYBEAN_CUDA_LIBS"
        );
    };
    let compiler = &compiler;
    thread::scope(|scope| {
        for (number, architecture) in ARCHITECTURES.into_iter().enumerate() {
            scope.spawn(move || compile_some(compiler, number, architecture));
        }
    });
}

/// Compiles kernels of all kinds for an architecture, other ones for each.
fn compile_some(compiler: &nvrtc::Compiler, number: usize, architecture: &str) {
    // Machine code that is optimized is tested in `machine_code`. This takes half the time.
    let options = [format!("--gpu-architecture={architecture}"), "--Ofast-compile=max".to_owned()];
    let check = |name: &str, text: &str| check_log(compiler.compile(text, &options), name);
    for kind in KINDS {
        check(kind.0, &device::text(&some_cases(*kind, number, 16)));
    }
    check("movement", &movement::text());
    check("beyond", &device::text(&map::beyond_32_bits()));
}

/// Checks that a text compiles without warnings.
fn check_log(compiled: Result<(String, Vec<u8>), String>, name: &str) {
    let (log, _) = compiled.unwrap_or_else(|log| panic!("{name}: {log}"));
    assert!(!log.contains("warning"), "{name}: {log}");
}

#[test]
fn texts_for_tensors_beyond_32_bits_have_wide_numbers() {
    let text = device::text(&map::beyond_32_bits());
    let kernels = text.split("extern \"C\"").skip(1);
    let is_wide = |it: &str| it.contains("unsigned long long");
    assert!(kernels.clone().count() >= 6 && kernels.clone().all(is_wide), "{text}");
    if has_compiler() {
        soybean_fake_cuda::compile(&text, Sanitize::Nothing).unwrap();
    }
}
