//! The real cuDNN's plans for our graph on an H100, which is described instead of present.

use soybean_plan::Attention;

use super::{
    super::{AttentionShape, FIRST_VERSION, operation::plans},
    CAUSAL,
};
use crate::cuda::{
    cudnn::described_gpu::{DescribedGpu, H100, kernel_names, show, with_cudnn},
    libraries::installation,
};

#[test]
fn cudnn_has_kernels_for_attention_on_an_h100() {
    let test = "cuda::attention::tests::deviceless::cudnn_has_kernels_for_attention_on_an_h100";
    with_cudnn(test, |folder| {
        let version = installation().cudnn().unwrap().version;
        assert!(version >= FIRST_VERSION, "{version:?}");
        let gpu = DescribedGpu::new(H100).unwrap();
        let layouts = [CAUSAL.layout, soybean_plan::AttentionLayout::HEADS_FIRST];
        for (features, layout) in
            [64, 128, 256].into_iter().flat_map(|it| layouts.map(|at| (it, at)))
        {
            for (is_causal, saves_logarithms) in
                [(true, true), (true, false), (false, true), (false, false)]
            {
                let attention = Attention {
                    features,
                    width: features,
                    is_causal,
                    layout,
                    saves_logarithms,
                    ..CAUSAL
                };
                let shape = AttentionShape::new(&attention).unwrap();
                let plans = plans(&shape, &format!("{attention:?}"), &gpu).unwrap();
                let names = kernel_names(folder);
                for (plan, name) in plans.iter().zip(&names) {
                    let (engine, n_bytes) = (plan.engine, plan.workspace_bytes);
                    show(&format!(
                        "head size {features}, causal {is_causal}, logarithms {saves_logarithms}, {layout:?}: engine {engine}, workspace {n_bytes}, {name}"
                    ));
                }
                assert_eq!(plans.len(), names.len());
                assert!(names.iter().any(|it| it.contains("sm90")), "{names:?}");
            }
        }
        // Rows of 40 bytes are not multiples of 16 bytes.
        let odd = Attention { features: 20, width: 20, ..CAUSAL };
        let plans = plans(&AttentionShape::new(&odd).unwrap(), "odd", &gpu);
        assert!(plans.map_or(0, |it| it.len()) == 0);
    });
}
