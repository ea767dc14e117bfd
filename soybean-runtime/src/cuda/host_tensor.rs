//! Tensors of tests on the host and on GPUs.

use std::sync::Arc;

use soybean_plan::DType;

use super::{gpu::Gpu, libraries::installation, memory::DeviceMemory};

/// Opens the first `n` virtual GPUs.
pub(super) fn gpus(n: usize) -> Vec<Arc<Gpu>> {
    installation().gpus(0..n).unwrap()
}

/// Host values of a tensor, rounded to its device type.
pub(super) struct HostTensor {
    pub(super) dtype: DType,
    pub(super) values: Vec<f32>,
}

impl HostTensor {
    pub(super) fn new(dtype: DType, n: usize, seed: u64) -> Self {
        let values = numbers(n, seed).into_iter().map(|it| rounded(dtype, it)).collect();
        Self { dtype, values }
    }

    pub(super) fn upload(&self, gpu: &Arc<Gpu>) -> DeviceMemory {
        let memory =
            DeviceMemory::zeroed(gpu, self.values.len() * self.dtype.bytes(), "a tensor").unwrap();
        match self.dtype {
            DType::F32 => memory.write(0, &self.values),
            _ => memory.write(
                0,
                &self.values.iter().map(|it| (it.to_bits() >> 16) as u16).collect::<Vec<_>>(),
            ),
        }
        .unwrap();
        memory
    }

    pub(super) fn download(&mut self, memory: &DeviceMemory) {
        match self.dtype {
            DType::F32 => memory.read(0, &mut self.values).unwrap(),
            _ => {
                let mut halves = vec![0_u16; self.values.len()];
                memory.read(0, &mut halves).unwrap();
                let values = halves.into_iter().map(|it| f32::from_bits(u32::from(it) << 16));
                self.values = values.collect();
            }
        }
    }
}

/// Rounds to the element type, ties to even.
fn rounded(dtype: DType, value: f32) -> f32 {
    match dtype {
        DType::F32 | DType::I32 => value,
        DType::Bf16 => {
            let bits = value.to_bits();
            f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
        }
    }
}

/// Returns pseudo-random numbers from -1 to 1.
fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let word = |at: usize| soybean_plan::random::mixed(seed << 32 | at as u64) >> 40;
    (0..n).map(|at| word(at) as f32 / (1 << 23) as f32 - 1.0).collect()
}
