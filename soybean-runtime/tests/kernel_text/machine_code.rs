//! The machine code of kernels: no register is spilled. The loops of attention have few
//! instructions for each product of tensor cores.

mod few_channels;
mod pooling;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use soybean_plan::{Attention, AttentionForm, AttentionLayout, DType, Precision};

use crate::{
    case::{Case, Data},
    device, nvrtc,
};

/// A row of the table that `scripts/machine_code.py` prints.
#[derive(Debug)]
struct Row {
    name: String,
    n_registers: usize,
    n_stack_bytes: usize,
    n_spills: usize,
    /// None without products.
    per_product: Option<f64>,
    n_instructions: usize,
    /// The numbers of loads from and of stores to global memory, by their bits: `4x64,1x128`.
    loads: String,
    stores: String,
}

/// Returns attention of whole tiles, as of a large model in bf16.
fn case(form: AttentionForm, side: usize, is_causal: bool, layout: AttentionLayout) -> Case {
    let it = Attention {
        is_causal,
        pairs: 0,
        scale: 0.125,
        layout,
        saves_logarithms: true,
        ..Attention::new(form, 96, [1024; 2], [side; 2])
    };
    let nothing = |dtype| Data { dtype, numbers: Vec::new() };
    let inputs = it.input_lengths().into_iter().map(|_| nothing(DType::Bf16));
    let positions = it.has_positions().then(|| nothing(DType::I32));
    let saved = it.saved_inputs().map_or(&[][..], |_| &[DType::Bf16, DType::F32]);
    let inputs = inputs.chain(positions).chain(saved.iter().map(|it| nothing(*it))).collect();
    let mut results: Vec<(DType, usize)> =
        it.result_lengths().into_iter().map(|n| (DType::Bf16, 96 * n)).collect();
    if form == AttentionForm::Forward {
        results[1].0 = DType::F32;
    }
    Case { precision: Precision::Bf16, ..Case::new(it, inputs, results, 0.0) }
}

/// Returns nvdisasm: on the `PATH`, or beside the libraries of NVRTC as in NVIDIA's wheels.
fn disassembler() -> Option<PathBuf> {
    let folders = |name| env::var_os(name).map(|it| env::split_paths(&it).collect::<Vec<_>>());
    let beside = folders("SOYBEAN_CUDA_LIBS").into_iter().flatten().map(|it| it.join("../bin"));
    let all = folders("PATH").into_iter().flatten().chain(beside);
    all.map(|it| it.join("nvdisasm")).find(|it| it.is_file())
}

/// Returns the figures of the kernels in machine code.
fn rows(cubin: &[u8], name: &str, disassembler: &Path) -> Vec<Row> {
    let file = env::temp_dir().join(format!("soybean-{}-{name}.cubin", std::process::id()));
    fs::write(&file, cubin).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/machine_code.py");
    let output =
        Command::new("python3").arg(script).arg("--nvdisasm").arg(disassembler).arg(&file).output();
    fs::remove_file(&file).unwrap();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = String::from_utf8(output.stdout).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        Row {
            name: cells[0].to_owned(),
            n_registers: cells[1].parse().unwrap(),
            n_stack_bytes: cells[2].parse().unwrap(),
            n_spills: cells[3].parse().unwrap(),
            per_product: cells[7].parse().ok(),
            n_instructions: cells[9].parse().unwrap(),
            loads: cells[10].to_owned(),
            stores: cells[11].to_owned(),
        }
    };
    table.lines().skip(1).map(row).collect()
}

/// A100 and H100.
const USUAL: [&str; 2] = ["sm_80", "sm_90"];

/// Compiles a text for GPUs and checks the figures of its kernels; without the tools, does nothing.
fn check_figures(
    name: &str,
    text: &str,
    architectures: &[&str],
    check: impl Fn(&[Row], &str) + Sync,
) {
    let has_python = Command::new("python3").arg("--version").output().is_ok();
    let tools = (nvrtc::Compiler::find(), disassembler().filter(|_| has_python));
    let (Some(compiler), Some(disassembler)) = tools else {
        return eprintln!("skipped: no NVRTC, no nvdisasm, or no python3");
    };
    let check = |architecture| {
        let option = format!("--gpu-architecture={architecture}");
        let (_, cubin) = compiler.compile(text, &[option]).unwrap();
        check(&rows(&cubin, &format!("{name}-{architecture}"), &disassembler), architecture);
    };
    thread::scope(|scope| {
        for architecture in architectures {
            scope.spawn(|| check(architecture));
        }
    });
}

#[test]
fn attention_has_few_instructions_for_each_product() {
    let forms = [AttentionForm::Forward, AttentionForm::Gradient];
    // One head after another, and between products whose rows have 12 heads.
    let between = AttentionLayout { operands: [12; 4], results: [12; 3] };
    let mut cases = Vec::new();
    for (side, form) in [64, 128, 256].into_iter().flat_map(|it| forms.map(|form| (it, form))) {
        cases.push(case(form, side, false, AttentionLayout::HEADS_FIRST));
        cases.push(case(form, side, true, between));
    }
    check_figures("attention", &device::text(&cases), &USUAL, check);
}

#[test]
fn other_tiles_of_attention_fit_into_registers() {
    let mut cases = Vec::new();
    for (side, (form, n_variants)) in [64, 128].into_iter().flat_map(|side| {
        [(AttentionForm::Forward, 3), (AttentionForm::Gradient, 4)].map(|it| (side, it))
    }) {
        let of = |variant| {
            let case = case(form, side, true, AttentionLayout::HEADS_FIRST);
            Case { variant, ..case }
        };
        cases.extend((1..n_variants).map(of));
    }
    check_figures("variants", &device::text(&cases), &["sm_90"], |rows, architecture| {
        let with_products = rows.iter().filter(|it| it.per_product.is_some());
        assert_eq!(with_products.clone().count(), 2 * (2 + 3 * 3), "{rows:?}");
        for row in with_products {
            assert_eq!([row.n_stack_bytes, row.n_spills], [0; 2], "{architecture}: {row:?}");
        }
    });
}

/// Checks the figures of attention with three sizes of heads and two layouts.
fn check(rows: &[Row], architecture: &str) {
    // Gradients of large keys and values have a function each.
    let with_products = || rows.iter().filter(|it| it.per_product.is_some());
    assert_eq!(with_products().count(), 2 * (1 + 3 + 1 + 3 + 1 + 4), "{rows:?}");
    for row in with_products() {
        let what = format!("{architecture}: {row:?}");
        assert_eq!([row.n_stack_bytes, row.n_spills], [0; 2], "{what}");
        // Forward; the gradients have more products for each weight. Statistics need no tensor
        // cores.
        let most = if row.name.contains("gradients") { 4.5 } else { 5.5 };
        assert!(
            row.per_product.unwrap() <= most || row.name.contains("saved_statistics"),
            "{what}"
        );
    }
}
