//! The bytes of experts' plans by closed formulas, from the shapes of a network.
//!
//! Bytes are those of all ranks. Over `n` ranks, the all-gather or the reduce-scatter of a tensor
//! moves `n - 1` times its bytes, the all-reduce twice as many, and the all-to-all `(n - 1) / n`
//! times its bytes. Not counted are the scalars of losses, statistics of norms, and the gradient of
//! what a T5 decoder reads from its encoder, so real plans move slightly more.

use soybean_compiler::graph::Source;
use soybean_plan::Precision;
use soybean_zoo::{Entry, Landmarks, Model};

/// A plan of an expert.
#[derive(Clone, Debug)]
pub(crate) struct Formula {
    /// The kinds of parallelism: `TP2 x DP4`.
    pub(crate) name: String,
    pub(crate) bytes: f64,
    /// The parts into which it splits the batch.
    pub(crate) n_data: usize,
    /// The bytes of parameters, gradients and states of AdamW on each rank.
    state: f64,
}

/// The bytes that formulas are about.
struct Sizes {
    n_gpus: usize,
    /// The bytes of all parameters, as they are multiplied.
    weights: f64,
    /// The bytes of all gradients, which are reduced in `f32`.
    gradients: f64,
    /// The part of the parameters whose gradients need not move.
    local: f64,
    /// The bytes of all results of residual connections, and of the last of them.
    residuals: [f64; 2],
    switched: f64,
    gathered: f64,
}

/// Returns the plan with the fewest bytes that fits; `None` if the batch cannot be split.
///
/// Within a memory limit, parameters, gradients and optimizer states have to fit. Activations are
/// not counted, so the formula may promise more than an expert can keep.
pub(crate) fn best(entry: &Entry, model: &Model, n_gpus: usize) -> Option<Formula> {
    let sizes = Sizes::of(entry, model, n_gpus);
    let batch = model.builder.shape(model.output)[0];
    let fits = |it: &Formula| entry.memory.is_none_or(|memory| it.state <= memory as f64);
    let mut all: Vec<Formula> = (1..=n_gpus)
        .filter(|n| n_gpus.is_multiple_of(*n) && batch.is_multiple_of(n_gpus / n))
        .filter(|&n_tensor| n_tensor == 1 || is_tensor_parallel(model, n_tensor))
        .flat_map(|n_tensor| [sizes.replicated(n_tensor), sizes.sharded(n_tensor)])
        .collect();
    if sizes.local > 0.0 && batch.is_multiple_of(n_gpus) {
        all.push(sizes.switched());
    }
    all.into_iter().filter(fits).min_by(|a, b| a.bytes.total_cmp(&b.bytes))
}

/// Returns whether heads of attention, and with them all products of blocks, can be split.
/// Convolutions and routed experts are split otherwise.
fn is_tensor_parallel(model: &Model, n_parts: usize) -> bool {
    let Landmarks { residuals, n_heads, local, .. } = &model.landmarks;
    let is_text = residuals.iter().all(|&it| model.builder.shape(it).len() == 3);
    *n_heads > 0 && n_heads.is_multiple_of(n_parts) && is_text && local.is_empty()
}

impl Sizes {
    fn of(entry: &Entry, model: &Model, n_gpus: usize) -> Self {
        let element = match entry.precision {
            Precision::F32 | Precision::Tf32 => 4.0,
            Precision::Bf16 => 2.0,
        };
        let count = |it| model.builder.shape(it).iter().product::<usize>() as f64;
        let elements = |values: &[_]| values.iter().copied().map(count).sum::<f64>();
        let graph = model.builder.graph();
        let is_parameter = |it: &_| matches!(graph.node(*it).source, Source::Parameter(_));
        let parameters: f64 = graph.values().filter(is_parameter).map(count).sum();
        let Landmarks { residuals, local, switched, gathered, .. } = &model.landmarks;
        let last = residuals.last().map_or(0.0, |&it| count(it));
        Self {
            n_gpus,
            weights: element * parameters,
            gradients: 4.0 * parameters,
            local: elements(local) / parameters,
            residuals: [elements(residuals), last].map(|it| element * it),
            switched: element * elements(switched),
            gathered: element * elements(gathered),
        }
    }

    /// Tensor parallelism within groups of `n_tensor` ranks, and data parallelism between them.
    ///
    /// Each residual connection needs an all-reduce forward and one backward, thus four for each
    /// block of attention and a perceptron; the embedding and the head need one each. Source:
    /// Shoeybi et al. 2019 (Megatron-LM), section 3. A reduce-scatter of gradients and an
    /// all-gather of new weights move as much as the all-reduce of gradients if both are `f32`, and
    /// keep the optimizer's states in parts. Source: Rajbhandari et al. 2020 (ZeRO), section 7.
    fn replicated(&self, n_tensor: usize) -> Formula {
        let n_data = self.n_gpus / n_tensor;
        let (tensor, data) = (n_tensor as f64, n_data as f64);
        let [residuals, last] = self.residuals;
        let activations = 2.0 * 2.0 * (tensor - 1.0) * (residuals + last);
        // Both sides of a contrastive loss: features forward, their gradients backward.
        let features = 2.0 * (data - 1.0) * self.gathered;
        let state = (self.weights + self.gradients) / tensor + self.states() / self.n_gpus as f64;
        Formula {
            name: name(n_tensor, "DP", n_data),
            bytes: activations + features + (data - 1.0) * (self.gradients + self.weights),
            n_data,
            state,
        }
    }

    /// The same with weights in parts, which are gathered forward and backward. Source: Zhao et al.
    /// 2023 (FSDP), and ZeRO, stage 3: 3/2 of the bytes of data parallelism in `f32`.
    fn sharded(&self, n_tensor: usize) -> Formula {
        let it = self.replicated(n_tensor);
        Formula {
            name: name(n_tensor, "FSDP", it.n_data),
            bytes: it.bytes + (it.n_data as f64 - 1.0) * self.weights,
            state: (self.weights + self.gradients + self.states()) / self.n_gpus as f64,
            ..it
        }
    }

    /// Experts, or columns of tables, on single ranks: an all-to-all forward and one backward for
    /// each tensor that goes there or comes back. The rest is data-parallel. Sources: Lepikhin et
    /// al. 2021 (GShard), section 3; Naumov et al. 2019 (DLRM), section 4.
    fn switched(&self) -> Formula {
        let it = self.replicated(1);
        let others = self.n_gpus as f64 - 1.0;
        let moved = 2.0 * others / self.n_gpus as f64 * self.switched;
        let local = others * self.local * (self.gradients + self.weights);
        Formula { name: "all-to-all".to_owned(), bytes: it.bytes + moved - local, ..it }
    }

    /// The moments of AdamW, and weights in `f32` where products take others.
    fn states(&self) -> f64 {
        let masters = if self.weights < self.gradients { 1.0 } else { 0.0 };
        (2.0 + masters) * self.gradients
    }
}

fn name(n_tensor: usize, kind: &str, n_data: usize) -> String {
    match n_tensor {
        1 => format!("{kind}{n_data}"),
        _ => format!("TP{n_tensor} x {kind}{n_data}"),
    }
}
