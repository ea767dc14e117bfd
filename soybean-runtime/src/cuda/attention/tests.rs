//! Tests of shapes, and of cuDNN's answers to our graph.

mod deviceless;

use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;
use soybean_plan::{Attention, AttentionForm, AttentionLayout, DType};

use super::{AttentionPlan, shape::AttentionShape};
use crate::cuda::{cudnn::handle::Cudnn, host_tensor::gpus};

/// Causal attention of 2 sequences with 4 heads of queries on 2 heads of keys. Rows of heads
/// alternate, as the products around attention write them.
const CAUSAL: Attention = Attention {
    form: AttentionForm::Forward,
    heads: 4,
    group: 2,
    queries: 96,
    keys: 96,
    features: 64,
    width: 64,
    is_causal: true,
    window: None,
    is_part: false,
    halo: None,
    segments: None,
    score: None,
    bias: None,
    pairs: 4 * 2 * 96 * 97 / 2,
    scale: 0.125,
    layout: AttentionLayout { operands: [4, 2, 2, 1], results: [4, 1, 1] },
    saves_logarithms: true,
};

fn strides(attention: &Attention) -> Option<[[usize; 4]; 4]> {
    AttentionShape::new(attention).map(|it| it.tensors.map(|it| it.strides))
}

#[test]
fn strides_follow_the_layout() {
    let AttentionShape { tensors, logarithms, is_causal } = AttentionShape::new(&CAUSAL).unwrap();
    assert!(is_causal);
    let logarithms = logarithms.unwrap();
    assert_eq!((logarithms.extents, logarithms.strides), ([2, 4, 96, 1], [4 * 96, 96, 1, 1]));
    assert_eq!(
        tensors.map(|it| it.extents),
        [[2, 4, 96, 64], [2, 2, 96, 64], [2, 2, 96, 64], [2, 4, 96, 64]]
    );
    let of_queries = [4 * 96 * 64, 64, 4 * 64, 1];
    let of_keys = [2 * 96 * 64, 64, 2 * 64, 1];
    assert_eq!(strides(&CAUSAL), Some([of_queries, of_keys, of_keys, of_queries]));
    // One head after another, except for the result.
    let layout = AttentionLayout { operands: [1; 4], results: [4, 1, 1] };
    let of_keys = [2 * 96 * 64, 96 * 64, 64, 1];
    assert_eq!(
        strides(&Attention { layout, ..CAUSAL }),
        Some([[4 * 96 * 64, 96 * 64, 64, 1], of_keys, of_keys, of_queries])
    );
    let layout = AttentionLayout::HEADS_FIRST;
    let tensors = AttentionShape::new(&Attention { layout, ..CAUSAL }).unwrap().tensors;
    assert_eq!(
        tensors.map(|it| it.extents),
        [[1, 8, 96, 64], [1, 4, 96, 64], [1, 4, 96, 64], [1, 8, 96, 64]]
    );
}

#[test]
fn only_plain_forward_forms_have_a_shape() {
    let others = [
        Attention { form: AttentionForm::Gradient, ..CAUSAL },
        Attention { window: Some(8), ..CAUSAL },
        Attention { segments: Some(2), ..CAUSAL },
        Attention { is_part: true, ..CAUSAL },
        Attention { keys: 0, ..CAUSAL },
        // Heads that alternate differently are no tensor of four dimensions.
        Attention {
            layout: AttentionLayout { operands: [4, 4, 2, 1], results: [4, 1, 1] },
            ..CAUSAL
        },
    ];
    assert!(others.iter().all(|it| AttentionShape::new(it).is_none()));
    let part = Attention { is_causal: false, is_part: true, ..CAUSAL };
    assert!(AttentionShape::new(&part).is_some());
}

/// Returns the engines of the candidates for these element types.
fn engines(attention: &Attention, dtype: DType, max_workspace_bytes: usize) -> Option<Vec<i64>> {
    let cudnn = Cudnn::new(&gpus(1)[0]).unwrap();
    let types = (&[dtype; 3][..], dtype);
    let plan = AttentionPlan::new(&cudnn, attention, types, max_workspace_bytes)?;
    Some(plan.candidates.iter().map(|it| it.engine).collect())
}

#[test]
fn engines_are_deterministic_and_within_the_workspace() {
    let test = "cuda::attention::tests::engines_are_deterministic_and_within_the_workspace";
    on_virtual_gpus(test, &[("SOYBEAN_FAKE_CUDNN", "92800")], |_| {
        assert_eq!(engines(&CAUSAL, DType::Bf16, 256), Some(vec![9, 8]));
        assert_eq!(engines(&CAUSAL, DType::Bf16, 255), Some(vec![8]));
        assert_eq!(engines(&CAUSAL, DType::F32, 256), None);
        let odd = Attention { features: 20, width: 20, ..CAUSAL };
        assert_eq!(engines(&odd, DType::Bf16, 256), None);
    });
}

#[test]
fn older_versions_of_cudnn_are_not_asked() {
    let test = "cuda::attention::tests::older_versions_of_cudnn_are_not_asked";
    on_virtual_gpus(test, &[("SOYBEAN_FAKE_CUDNN", "92000")], |machine| {
        assert_eq!(engines(&CAUSAL, DType::Bf16, 256), None);
        assert_eq!(machine.n_calls("cudnnBackendCreateDescriptor"), 0);
    });
}
