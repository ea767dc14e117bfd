//! How much arithmetic kernels do, by the definitions of what they compute. All are counts, so they say nothing of time.

use crate::{
    Attention, AttentionForm, Contraction, Convolution, Embedding, EmbeddingForm, Instruction,
    Kernel, Map, Pooling, ScalarProgram, WorkKind,
};

impl Kernel {
    /// The floating-point operations of the kernel; a multiplication and an addition are two, a function of a number is one.
    #[must_use]
    pub fn n_operations(&self) -> u64 {
        match self {
            Self::Contract(it) => contraction(it),
            Self::Map(it) => map(it),
            Self::Reduce(it) => map(&it.map) + it.map.extents.n_elements() as u64,
            Self::Convolve(it) => convolution(it),
            Self::Pool(it) => pooling(it),
            Self::Embed(it) => embedding(it),
            Self::Attend(it) => attention(it),
            Self::Permute(_) | Self::Pad(_) | Self::Concatenate(_) | Self::Communicate(_) => 0,
        }
    }

    /// With which units it computes.
    #[must_use]
    pub const fn work_kind(&self) -> WorkKind {
        match self {
            Self::Contract(_) | Self::Convolve(_) | Self::Attend(_) => WorkKind::Product,
            Self::Map(_)
            | Self::Reduce(_)
            | Self::Pool(_)
            | Self::Embed(_)
            | Self::Permute(_)
            | Self::Pad(_)
            | Self::Concatenate(_)
            | Self::Communicate(_) => WorkKind::Other,
        }
    }
}

fn product(extents: &[usize]) -> u64 {
    extents.iter().map(|&it| it as u64).product()
}

fn contraction(it: &Contraction) -> u64 {
    2 * product(&it.batch) * product(&[it.rows, it.columns, it.depth])
}

fn map(it: &Map) -> u64 {
    it.extents.n_elements() as u64 * arithmetic(&it.program)
}

/// The instructions that compute.
fn arithmetic(program: &ScalarProgram) -> u64 {
    let computes = |it: &&Instruction| match it {
        Instruction::Input(_) | Instruction::Scalar(_) | Instruction::Constant(_) => false,
        Instruction::Unary(..) | Instruction::Binary(..) | Instruction::Select(..) => true,
    };
    program.instructions.iter().filter(computes).count() as u64
}

/// All three forms visit the same products of a pixel and a filter element.
fn convolution(it: &Convolution) -> u64 {
    2 * product(&[it.batch, it.groups, it.channels, it.filters])
        * product(&it.result)
        * product(&it.window)
}

fn pooling(it: &Pooling) -> u64 {
    product(&[it.planes]) * product(&it.result) * product(&it.window)
}

fn embedding(it: &Embedding) -> u64 {
    match it.form {
        EmbeddingForm::Gather => 0,
        EmbeddingForm::ScatterAdd => product(&[it.n_indices, it.width]),
    }
}

/// The products of queries, keys and values, without the softmax between them. The gradient computes the scores anew; then follow one product for the
/// values, one for the scores, and two for queries and keys.
fn attention(it: &Attention) -> u64 {
    let (features, width) = (it.features as u64, it.width as u64);
    let per_pair = match it.form {
        AttentionForm::Forward => features + width,
        AttentionForm::Gradient => 3 * features + 2 * width,
    };
    2 * it.heads as u64 * n_pairs(it) * per_pair
}

/// The pairs of a query and a key that it sees.
fn n_pairs(it: &Attention) -> u64 {
    if !it.is_causal {
        return product(&[it.queries, it.keys]);
    }
    let (queries, keys) = (it.queries as u64, it.keys as u64);
    let growing = queries.min(keys);
    growing * (growing + 1) / 2 + (queries - growing) * keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attention(queries: usize, keys: usize) -> Attention {
        let form = AttentionForm::Forward;
        Attention {
            form,
            heads: 1,
            queries,
            keys,
            features: 1,
            width: 1,
            is_causal: true,
            scale: 1.0,
        }
    }

    #[test]
    fn a_query_of_causal_attention_sees_the_keys_up_to_its_own() {
        for (queries, keys) in [(1, 1), (3, 3), (2, 5), (5, 2)] {
            let seen: usize = (0..queries).map(|query| (query + 1).min(keys)).sum();
            assert_eq!(n_pairs(&attention(queries, keys)), seen as u64, "{queries} {keys}");
        }
    }
}
