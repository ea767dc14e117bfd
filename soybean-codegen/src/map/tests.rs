use soybean_plan::{Binary, Instruction, Kernel, Precision, ScalarProgram, Shape, Strides};

use super::*;
use crate::Operation;

fn text(extents: &[usize], inputs: &[Strides], types: &[DType]) -> String {
    let instructions = vec![
        Instruction::Input(0),
        Instruction::Input(1),
        Instruction::Binary(Binary::Multiply, 0, 1),
    ];
    let program = ScalarProgram { instructions: instructions.into(), results: vec![2].into() };
    let map = Map { extents: Shape::new(extents), inputs: inputs.to_vec().into(), program };
    let kernel = Kernel::from(map);
    let precision = Precision::F32;
    let call = Call { kernel: &kernel, inputs: types, results: &types[..1], precision };
    crate::generate(&call, "k").map(|it| it.text).expect("all maps have a text")
}

#[test]
fn threads_read_stretches_where_rows_are_whole_ones() {
    let (dense, row) = (Strides::new(&[8, 1]), Strides::new(&[0, 1]));
    let expected = "\
extern \"C\" __global__ void __launch_bounds__(256) k_map(const float* in0, const float* __restrict__ in1, float* out0) {
  const unsigned first = ((unsigned)blockIdx.x * 256u + threadIdx.x) * 4u;
  if (first >= 48u) return;
  const unsigned c1 = first % 8u;
  const unsigned c1_rest = first / 8u;
  const unsigned c0 = c1_rest;
  float x0[4];
  soybean_load(in0 + first, x0);
  float x1[4];
  soybean_load(in1 + c1, x1);
  float y0[4];
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    const float r0 = x0[lane];
    const float r1 = x1[lane];
    const float r2 = r0 * r1;
    y0[lane] = r2;
  }
  soybean_store(out0 + first, y0);
}
SOYBEAN_EXPORT(k_map, 0)
";
    assert_eq!(text(&[6, 8], &[dense, row], &[DType::F32; 2]), expected);
}

// A parameter may be stored in place, with a rounded copy beside it. Its elements before are
// what it is, and the copy has the same numbers.
#[test]
fn checked_results_keep_the_elements_before() {
    let instructions = vec![
        Instruction::Input(0),
        Instruction::Input(1),
        Instruction::Binary(Binary::Subtract, 0, 1),
    ];
    let program =
        ScalarProgram { instructions: instructions.into(), results: vec![2, 1, 2].into() };
    let extents = Shape::new(&[8]);
    let dense = extents.dense_strides();
    let map = Map { extents, inputs: vec![dense; 2].into(), program };
    let kernel = Kernel::from(map.clone());
    let inputs = &[DType::F32; 2];
    let results = &[DType::F32, DType::F32, DType::Bf16];
    let call = Call { kernel: &kernel, inputs, results, precision: Precision::F32 };
    let text = |before, gaps| {
        let checked = [CheckedResult { result: 0, before, gaps }];
        generate_checked_map(&map, &call, &checked, "k").expect("all maps have a text")
    };
    let stored = text(Some(Address::Input(0)), Vec::new());
    let lines = "    y0[lane] = r2;
    if (!soybean_is_finite(r2)) {
      soybean_note(first_non_finite0, first + lane);
      y0[lane] = soybean_value(in0[first + lane]);
    }
    y1[lane] = r1;
    y2[lane] = y0[lane];
";
    assert!(stored.text.contains(lines), "{}", stored.text);
    let Operation::Launch(launch) = &stored.operations[0] else { panic!("expected a launch") };
    assert_eq!(launch.arguments.last(), Some(&Address::FirstNonFinite(0)));
    let joined = text(None, vec![3..4, 6..8]).text;
    assert!(joined.contains("static const unsigned gaps0[] = {3u, 4u, 6u, 8u};"), "{joined}");
    let lines = "      soybean_note(first_non_finite0, first + lane, gaps0);
    }
";
    assert!(joined.contains(lines), "{joined}");
}

#[test]
fn sixteen_bytes_are_four_numbers_or_eight() {
    let (dense, row) = (Strides::new(&[8, 1]), Strides::new(&[0, 1]));
    let has = |types: &[DType], part: &str| text(&[6, 8], &[dense, row], types).contains(part);
    assert!(has(&[DType::Bf16; 2], "threadIdx.x) * 8u"));
    assert!(has(&[DType::F32, DType::Bf16], "threadIdx.x) * 4u"));
    // All share a row, but only as whole vectors.
    assert!(has(&[DType::Bf16, DType::F32], "threadIdx.x) * 8u"));
    let short = Strides::new(&[12, 1]);
    let short = text(&[6, 12], &[short, row], &[DType::Bf16, DType::F32]);
    assert!(short.contains("threadIdx.x) * 4u"), "{short}");
    // Rows of 7 are not whole vectors, but a dense tensor is one contiguous range.
    let odd = text(&[6, 7], &[Strides::new(&[7, 1]), row], &[DType::F32; 2]);
    assert!(odd.contains("soybean_load(in0 + first, x0);") && odd.contains("in1[e1]"), "{odd}");
}
