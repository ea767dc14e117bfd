//! Choice between the variants of the generated kernel and cuDNN's plans by measurement.
#![expect(unsafe_code, reason = "kernels work on raw memory")]

use soybean_codegen as codegen;
use soybean_plan::{Attention, AttentionForm};

use super::{AttentionOperands, AttentionPlan};
use crate::{
    Error,
    cuda::{
        autotune::{Attempt, Autotuner},
        cudnn::handle::Cudnn,
        generated_operations::GeneratedOperations,
        kernels::KernelOperands,
        library_call::{Chosen, LibraryCall},
        source::{KernelCall, KernelRequests},
        stream::Stream,
    },
};

/// Returns the number of variants of the generated kernel that are measured. Masks that are inputs
/// decide how much a kernel skips, and measurements have none.
pub(crate) fn n_variants(
    attention: &Attention,
    requests: &KernelRequests<'_>,
    call: &KernelCall,
) -> usize {
    let KernelCall { inputs, results, .. } = call;
    let (kernel, precision) = (&requests.kernels[call.kernel], requests.precision);
    let has_masks = attention.is_part || attention.segments.is_some() || attention.bias.is_some();
    let call = codegen::Call { kernel, inputs, results, precision };
    if has_masks { 1 } else { codegen::n_variants(&call) }
}

/// Chooses the fastest variant or plan.
pub(crate) fn autotune(
    attention: &Attention,
    call: &KernelCall,
    plan: Option<(&Cudnn, AttentionPlan)>,
    tuner: &mut Autotuner<'_>,
    generated: &GeneratedOperations,
) -> Result<Chosen, Error> {
    let plans = plan.iter().flat_map(|it| &it.1.candidates);
    let workspace = plans.clone().map(|it| it.workspace_bytes).max().unwrap_or(0);
    let workspace = workspace.max(generated.most_workspace_bytes());
    let engines: Vec<i64> = plans.map(|it| it.engine).collect();
    let (n_variants, types) = (generated.n_variants(), (&call.inputs, &call.results));
    let kernel =
        format!("{attention:?} {types:?}, {n_variants} variants, cuDNN's engines {engines:?}");
    let run = |number: usize, stream: &Stream, blocks: &[u64]| {
        let Some((&workspace, tensors)) = blocks.split_last() else {
            return Ok(Attempt::Refused);
        };
        let (inputs, results) = tensors.split_at(call.inputs.len());
        let Some(number) = number.checked_sub(n_variants) else {
            let operands = KernelOperands::plain(inputs, results, workspace);
            // SAFETY: the blocks are as large as the tensors, and nothing else uses them.
            unsafe { generated.run_variant(number, stream, operands) }?;
            return Ok(Attempt::Queued);
        };
        let Some((cudnn, plan)) = &plan else { return Ok(Attempt::Refused) };
        cudnn.set_stream(stream)?;
        let operands = AttentionOperands { inputs, results };
        // SAFETY: as above.
        let queued = unsafe { plan.run_candidate(number, cudnn, operands, workspace) };
        Ok(queued.map_or(Attempt::Refused, |()| Attempt::Queued))
    };
    let blocks = || block_bytes(attention, call).into_iter().chain([workspace]).collect();
    let fastest = tuner.fastest(&kernel, n_variants + engines.len(), (blocks, &[]), run)?;
    Ok(match (fastest.checked_sub(n_variants), plan) {
        (Some(chosen), Some((_, plan))) => {
            let plan = AttentionPlan { chosen, ..plan };
            Chosen::Library(LibraryCall::Attention(Box::new(plan)))
        }
        _ => Chosen::Variant(fastest),
    })
}

/// Returns the bytes of the inputs and results of a call.
fn block_bytes(attention: &Attention, call: &KernelCall) -> Vec<usize> {
    let Attention { form, heads, group, queries, width, .. } = *attention;
    let of_heads = |lengths: Vec<usize>| lengths.into_iter().map(move |it| heads * it);
    let n_rows = heads * group * queries;
    let saved = (form != AttentionForm::Forward).then_some([n_rows * width, n_rows]);
    let inputs = of_heads(attention.input_lengths())
        .chain(attention.mask_lengths())
        .chain(saved.into_iter().flatten());
    let inputs = inputs.zip(&call.inputs).map(|(n, dtype)| n * dtype.bytes());
    let results = of_heads(attention.result_lengths());
    let results = results.zip(&call.results).map(|(n, dtype)| n * dtype.bytes());
    inputs.chain(results).collect()
}
