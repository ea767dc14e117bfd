//! Tests of joined products against the same products in calls of their own.

use super::*;

const N_PRODUCTS: usize = 3;
/// Distances in elements between the right operands, the results and the biases: each call finds
/// them aligned.
const RIGHT: usize = 16 * 24 + 64;
const RESULT: usize = 6 * 24 + 48;
const BIAS: usize = 32;

/// Returns the bits of result and bias after some calls of the product, each with the number of
/// elements before the first of right operand, result and bias.
fn bits(
    contraction: &Contraction,
    (types, precision): ([DType; 3], Precision),
    epilogue: Epilogue,
    calls: &[[usize; 3]],
) -> Vec<u32> {
    let gpu = &gpus(1)[0];
    let (lt, stream) = (CublasLt::new(gpu).unwrap(), Stream::new(gpu, Priority::Normal).unwrap());
    let plan = MatmulPlan::new(&lt, contraction, types, precision, epilogue).unwrap();
    let plan = plan.expect("cuBLASLt has such products");
    let last = N_PRODUCTS - 1;
    let [left, right] = [
        HostTensor::new(types[0], 6 * 16, 1),
        HostTensor::new(types[1], last * RIGHT + 16 * 24, 2),
    ];
    let mut result = HostTensor::new(types[2], last * RESULT + 6 * 24, 3);
    let mut bias = HostTensor::new(types[2], last * BIAS + 24, 4);
    let [of_left, of_right, of_result, of_bias] =
        [&left, &right, &result, &bias].map(|it| it.upload(gpu));
    let workspace = DeviceMemory::zeroed(gpu, plan.workspace_bytes(), "the workspace").unwrap();
    for [at_right, at_result, at_bias] in calls {
        let operands = MatmulOperands {
            left: of_left.address(0),
            right: of_right.address(at_right * types[1].bytes()),
            result: of_result.address(at_result * types[2].bytes()),
            bias: of_bias.address(at_bias * types[2].bytes()),
            aux: 0,
        };
        // SAFETY: the allocations are as large as the contraction requires, and live until the
        // stream is done.
        unsafe { plan.run(&lt, &stream, operands, workspace.address(0)) }.unwrap();
    }
    stream.synchronize().unwrap();
    result.download(&of_result);
    bias.download(&of_bias);
    result.values.into_iter().chain(bias.values).map(f32::to_bits).collect()
}

#[test]
fn a_batch_has_the_bits_of_its_products() {
    let test = "cuda::matmul::tests::batches::a_batch_has_the_bits_of_its_products";
    on_virtual_gpus(test, &[], |_| {
        let one = Contraction { left: matrix(1, 6, &[]), ..plain(6, 16, 24) };
        let batch = Contraction {
            batch: Shape::new(&[N_PRODUCTS]),
            left: matrix(1, 6, &[0]),
            right: matrix(24, 1, &[RIGHT]),
            result: matrix(24, 1, &[RESULT]),
            ..one
        };
        let calls = [0, 1, 2].map(|it| [it * RIGHT, it * RESULT, it * BIAS]);
        for of in TYPES {
            let bias = Some(of.0[2]);
            assert_eq!(bits(&batch, of, PLAIN, &[[0; 3]]), bits(&one, of, PLAIN, &calls));
            for function in [Function::Identity, Function::Relu, Function::RightSums] {
                let alone = Epilogue::new(function, bias);
                let joined = Epilogue { bias_stride: BIAS, ..alone };
                let found = bits(&batch, of, joined, &[[0; 3]]);
                assert_eq!(found, bits(&one, of, alone, &calls), "{function:?} {of:?}");
            }
        }
    });
}

/// cuBLASLt would need a distance between the auxiliary buffers, too.
#[test]
fn a_batch_has_no_auxiliary_buffer() {
    on_virtual_gpus("cuda::matmul::tests::batches::a_batch_has_no_auxiliary_buffer", &[], |_| {
        let contraction = Contraction {
            batch: Shape::new(&[2]),
            left: matrix(16, 1, &[0]),
            right: matrix(24, 1, &[RIGHT]),
            result: matrix(24, 1, &[RESULT]),
            ..plain(6, 16, 24)
        };
        let epilogue = Epilogue::new(Function::GeluAux, None);
        let (types, precision) = TYPES[1];
        assert!(Case { contraction, types, precision, epilogue }.run(&[0; 2048]).is_none());
    });
}
