//! Results of collectives, from the inputs of all ranks.

use super::{ApiResult, NcclError};
use crate::element_type::{from_bf16, to_bf16};

/// `ncclDataType_t`. The last two cannot be reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NcclType {
    I32,
    F32,
    Bf16,
    Byte,
    Word,
}

/// `ncclRedOp_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reduction {
    Sum,
    Max,
    Min,
    Average,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CollectiveKind {
    AllReduce(Reduction),
    Reduce(Reduction, usize),
    ReduceScatter(Reduction),
    AllGather,
    Broadcast(usize),
}

/// A collective as a rank calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CollectiveCall {
    pub(super) kind: CollectiveKind,
    pub(super) dtype: NcclType,
    pub(super) count: usize,
}

impl NcclType {
    pub(super) fn new(number: u32) -> ApiResult<Self> {
        match number {
            0 | 1 => Ok(Self::Byte),
            2 => Ok(Self::I32),
            3 => Ok(Self::Word),
            7 => Ok(Self::F32),
            9 => Ok(Self::Bf16),
            _ => Err(NcclError::argument(c"such numbers are not known here")),
        }
    }

    pub(super) fn n_bytes(self) -> usize {
        match self {
            Self::I32 | Self::F32 | Self::Word => 4,
            Self::Bf16 => 2,
            Self::Byte => 1,
        }
    }

    pub(super) fn is_reducible(self) -> bool {
        matches!(self, Self::I32 | Self::F32 | Self::Bf16)
    }
}

impl Reduction {
    pub(super) fn new(number: u32) -> ApiResult<Self> {
        match number {
            0 => Ok(Self::Sum),
            2 => Ok(Self::Max),
            3 => Ok(Self::Min),
            4 => Ok(Self::Average),
            _ => Err(NcclError::argument(c"such a reduction is not known here")),
        }
    }

    /// Reduces the inputs of all ranks element by element.
    fn reduce(self, number: NcclType, inputs: &[Vec<u8>]) -> Vec<u8> {
        match number {
            NcclType::F32 => self.reduce_as(
                inputs,
                |bytes: [u8; 4]| f32::from_ne_bytes(bytes),
                |it| self.float(&it).to_ne_bytes(),
            ),
            NcclType::Bf16 => {
                let read = |bytes: [u8; 2]| from_bf16(u16::from_ne_bytes(bytes));
                self.reduce_as(inputs, read, |it| to_bf16(self.float(&it)).to_ne_bytes())
            }
            NcclType::I32 => self.reduce_as(
                inputs,
                |bytes: [u8; 4]| i32::from_ne_bytes(bytes),
                |it| self.integer(&it).to_ne_bytes(),
            ),
            // Rejected when it was called.
            NcclType::Byte | NcclType::Word => Vec::new(),
        }
    }

    fn reduce_as<T, const N: usize>(
        self,
        inputs: &[Vec<u8>],
        read: impl Fn([u8; N]) -> T,
        write: impl Fn(Vec<T>) -> [u8; N],
    ) -> Vec<u8> {
        let inputs: Vec<&[[u8; N]]> = inputs.iter().map(|input| input.as_chunks().0).collect();
        (0..inputs[0].len())
            .flat_map(|place| write(inputs.iter().map(|input| read(input[place])).collect()))
            .collect()
    }

    fn float(self, values: &[f32]) -> f32 {
        match self {
            Self::Sum => values.iter().sum(),
            Self::Max => values.iter().copied().fold(f32::NEG_INFINITY, f32::max),
            Self::Min => values.iter().copied().fold(f32::INFINITY, f32::min),
            Self::Average => values.iter().sum::<f32>() / values.len() as f32,
        }
    }

    fn integer(self, values: &[i32]) -> i32 {
        let sum = || values.iter().fold(0_i32, |sum, &value| sum.wrapping_add(value));
        match self {
            Self::Sum => sum(),
            Self::Max => values.iter().copied().max().unwrap_or(i32::MIN),
            Self::Min => values.iter().copied().min().unwrap_or(i32::MAX),
            Self::Average => sum() / i32::try_from(values.len()).unwrap_or(i32::MAX),
        }
    }
}

impl CollectiveKind {
    /// Returns the number of elements that a rank sends and receives for a count.
    pub(super) fn counts(self, count: usize, n_ranks: usize) -> (usize, usize) {
        match self {
            Self::AllReduce(_) | Self::Reduce(..) | Self::Broadcast(_) => (count, count),
            Self::ReduceScatter(_) => (count * n_ranks, count),
            Self::AllGather => (count, count * n_ranks),
        }
    }

    /// Returns the only rank that sends, if there is one.
    pub(super) fn sender(self) -> Option<usize> {
        if let Self::Broadcast(root) = self { Some(root) } else { None }
    }

    /// Returns the only rank that receives, if there is one.
    pub(super) fn receiver(self) -> Option<usize> {
        if let Self::Reduce(_, root) = self { Some(root) } else { None }
    }

    pub(super) fn reduces(self) -> bool {
        matches!(self, Self::AllReduce(_) | Self::Reduce(..) | Self::ReduceScatter(_))
    }

    /// Returns the result of each rank.
    pub(super) fn results(self, number: NcclType, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let n_ranks = inputs.len();
        match self {
            Self::AllReduce(reduction) | Self::Reduce(reduction, _) => {
                vec![reduction.reduce(number, inputs); n_ranks]
            }
            Self::ReduceScatter(reduction) => {
                let all = reduction.reduce(number, inputs);
                let n_bytes = all.len() / n_ranks;
                (0..n_ranks)
                    .map(|rank| all[rank * n_bytes..(rank + 1) * n_bytes].to_vec())
                    .collect()
            }
            Self::AllGather => vec![inputs.concat(); n_ranks],
            Self::Broadcast(root) => vec![inputs[root].clone(); n_ranks],
        }
    }
}
