//! The CPU as a device: each rank is one thread or a few, with its own arena.
#![expect(unsafe_code, reason = "ranks work on arenas that others may read between barriers")]

mod attention;
mod channels_last;
mod combiner;
mod concatenation;
mod contraction;
mod convolution;
mod custom;
mod embedding;
mod embedding_update;
mod few_columns;
mod indexing;
mod interpreter;
mod isa;
mod kernel;
mod loop_program;
mod map;
mod math;
mod microkernel;
mod pack;
mod padding;
mod parallel;
mod patches;
mod permutation;
mod pooling;
mod product;
#[cfg(test)]
mod random_data;
mod ranking;
mod ranks;
mod reduction;
mod region;
mod repeat;
mod row_fusion;
mod space;
mod upcast;
mod vector;
mod winograd;

use std::collections::BTreeMap;

use soybean_plan::{BufferId, DType, NextValue, Tables};

#[cfg(test)]
pub(crate) use self::random_data::Dice;
#[cfg(feature = "mpi")]
pub(crate) use self::ranks::Part;
pub(crate) use self::{combiner::Combiner, ranks::CpuRanks, region::Region};
use self::{
    isa::Isa,
    kernel::{Arguments, CpuKernel, Threads, prepare},
    product::Workspace,
    upcast::Upcast,
};
use crate::{
    Error, ErrorKind,
    arena::{Arena, Arenas},
    backend::{Download, Kernels, Upload},
    inspection::non_finite,
    model::AnyModel,
};

/// The capacity of the lists of regions, which is large enough that no step allocates.
const MAX_OPERANDS: usize = 256;

/// The arena and the kernels of one rank.
pub(crate) struct Cpu {
    arenas: Arenas,
    rank: usize,
    model: AnyModel,
    workspaces: Vec<Workspace>,
    /// The kernels of the model; none for collectives.
    kernels: Vec<Option<Box<dyn CpuKernel>>>,
    /// Scratch space of the kernel that runs.
    scratch: Vec<f32>,
    upcast: Upcast,
    next_values: BTreeMap<BufferId, NextValue>,
    /// The first tensor whose next value is not finite, since it was last taken.
    non_finite_state: Option<BufferId>,
    scalars: Vec<f32>,
    inputs: Vec<Region>,
    results: Vec<Region>,
    /// For each result the region with its elements before, if they stay where it is not finite.
    before: Vec<Option<Region>>,
}

impl Cpu {
    fn new(arenas: &Arenas, rank: usize, model: &AnyModel, n_threads: usize) -> Self {
        let (isa, tables) = (Isa::detect(), model.get().tables());
        let workspaces: Vec<Workspace> = (0..n_threads).map(|_| Workspace::new(isa)).collect();
        let threads = Threads { isa, workspaces: &workspaces };
        let kernels = model.get().kernels().iter().map(|it| prepare(it, &threads));
        let kernels: Vec<Option<Box<dyn CpuKernel>>> = kernels.collect();
        let n_scratch = kernels.iter().flatten().map(|it| it.n_scratch()).max().unwrap_or(0);
        Self {
            arenas: arenas.clone(),
            rank,
            model: model.clone(),
            kernels,
            scratch: vec![0.0; n_scratch],
            upcast: Upcast::new(MAX_OPERANDS),
            next_values: tables.next_values.iter().map(|it| (it.buffer, *it)).collect(),
            non_finite_state: None,
            workspaces,
            scalars: vec![0.0; tables.scalars.len()],
            inputs: Vec::with_capacity(MAX_OPERANDS),
            results: Vec::with_capacity(MAX_OPERANDS),
            before: Vec::with_capacity(MAX_OPERANDS),
        }
    }

    /// Sets the values of the run-time scalars of the program.
    pub(crate) fn set_scalars(&mut self, scalars: &[f32]) {
        self.scalars.copy_from_slice(scalars);
    }

    /// Returns the first parameter, buffer or state whose next value was not finite, and forgets
    /// it.
    pub(crate) const fn take_non_finite_state(&mut self) -> Option<BufferId> {
        self.non_finite_state.take()
    }

    /// Returns the one element of a buffer.
    pub(crate) fn number(&mut self, buffer: BufferId) -> Result<f32, Error> {
        let mut value = f32::NAN;
        let mut read =
            |words: &[u32]| value = words.first().map_or(f32::NAN, |it| f32::from_bits(*it));
        self.download(buffer, &mut read)?;
        Ok(value)
    }

    fn region(&self, buffer: BufferId) -> Result<Region, Error> {
        region(self.model.get().tables(), &self.arenas[self.rank], buffer)
    }

    fn set_regions(&mut self, inputs: &[BufferId], results: &[BufferId]) -> Result<(), Error> {
        self.inputs.clear();
        for input in inputs {
            let region = self.region(*input)?;
            self.inputs.push(region);
        }
        self.results.clear();
        for result in results {
            let region = self.region(*result)?;
            self.results.push(region);
        }
        Ok(())
    }

    /// Sets what is before the results of a kernel. Returns true if they must be finite.
    fn set_before(&mut self, results: &[BufferId]) -> Result<bool, Error> {
        self.before.clear();
        for (number, result) in results.iter().enumerate() {
            let before = self.next_values.get(result).and_then(|it| it.before);
            let before = before.map(|it| self.region(it)).transpose()?;
            let result = self.results[number];
            let is_alike = |it: &Region| {
                it.n_elements == result.n_elements && [it.dtype, result.dtype] == [DType::F32; 2]
            };
            self.before.push(before.filter(is_alike));
        }
        Ok(results.iter().any(|it| self.next_values.contains_key(it)))
    }
}

/// Returns the region of a buffer in an arena.
pub(crate) fn region(tables: &Tables, arena: &Arena, buffer: BufferId) -> Result<Region, Error> {
    let Some(found) = tables.buffers.get(buffer) else {
        let n_buffers = tables.buffers.len();
        let message = format!("expected one of {n_buffers} buffers, found number {buffer}");
        return Err(Error::new(ErrorKind::Program, message));
    };
    Ok(Region { pointer: arena.pointer(found), n_elements: found.n_elements, dtype: found.dtype })
}

impl Upload for Cpu {
    fn upload(&mut self, buffer: BufferId, fill: &mut dyn FnMut(&mut [u32])) -> Result<(), Error> {
        let region = self.region(buffer)?;
        let words = |_: &[Region], results: &[Region]| {
            let (start, n_elements) = (results[0].pointer.cast(), results[0].n_elements);
            // SAFETY: as below; elements are 4 bytes here.
            fill(unsafe { std::slice::from_raw_parts_mut(start, n_elements) });
            Ok(())
        };
        // SAFETY: the buffer is in this rank's arena, which others read only within collectives, in
        // which this rank takes part.
        unsafe { self.upcast.run(&[], &[region], words) }
    }
}

impl Download for Cpu {
    fn download(&mut self, buffer: BufferId, read: &mut dyn FnMut(&[u32])) -> Result<(), Error> {
        let region = self.region(buffer)?;
        let words = |inputs: &[Region], _: &[Region]| {
            let (start, n_elements) = (inputs[0].pointer.cast(), inputs[0].n_elements);
            // SAFETY: as below; elements are 4 bytes here.
            read(unsafe { std::slice::from_raw_parts(start, n_elements) });
            Ok(())
        };
        // SAFETY: as in `upload`; only this rank writes to its arena.
        unsafe { self.upcast.run(&[region], &[], words) }
    }
}

impl Kernels for Cpu {
    fn run(
        &mut self,
        kernel: usize,
        inputs: &[BufferId],
        results: &[BufferId],
    ) -> Result<(), Error> {
        self.set_regions(inputs, results)?;
        let is_checked = self.set_before(results)?;
        let n_kernels = self.kernels.len();
        let found = self.kernels.get_mut(kernel).ok_or_else(|| {
            let message = format!("expected one of {n_kernels} kernels, found number {kernel}");
            Error::new(ErrorKind::Program, message)
        })?;
        let (scalars, workspaces) = (&self.scalars, &mut self.workspaces);
        let (scratch, before) = (&mut self.scratch, &self.before);
        let ran = match found {
            None => Err(Error::new(ErrorKind::Program, "expected a kernel, found a collective")),
            Some(found) => {
                let supports_bf16 = found.supports_bf16();
                let mut run = |inputs: &[Region], results: &[Region]| {
                    let arguments = Arguments { inputs, results, scalars, workspaces, scratch };
                    match is_checked {
                        // SAFETY: the regions are in this rank's arena, which others read only
                        // within collectives, in which this rank takes part.
                        true => unsafe { found.launch_checked(arguments, before) },
                        // SAFETY: as above.
                        false => unsafe { found.launch(arguments) }.map(|()| None),
                    }
                };
                match supports_bf16 {
                    true => run(&self.inputs, &self.results),
                    // SAFETY: as above; the results of kernels without `bf16` are apart from the
                    // inputs.
                    false => unsafe { self.upcast.run(&self.inputs, &self.results, run) },
                }
            }
        };
        let non_finite = ran.map_err(|error| {
            let kind = self.model.get().kernels()[kernel].kind();
            Error::new(error.kind(), format!("{kind} {kernel} on the CPU: {error}"))
        })?;
        if let Some(it) = non_finite.and_then(|it| self.next_values.get(&results[it])) {
            self.non_finite_state.get_or_insert(it.tensor);
        }
        Ok(())
    }

    fn non_finite(&mut self, buffer: BufferId) -> Result<Option<f32>, Error> {
        let dtype = self.model.get().tables().buffers.get(buffer).map(|it| it.dtype);
        if dtype == Some(DType::I32) {
            return Ok(None);
        }
        let mut found = None;
        self.download(buffer, &mut |words| {
            found = non_finite(words.iter().map(|it| f32::from_bits(*it)));
        })?;
        Ok(found)
    }
}
