//! Fused rows: the stages one after another, over all rows. Programs for the CPU have none; tests
//! compare the kernels of GPUs with this one.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use soybean_plan::{DType, Map, Reduction, RowFusion, RowStageForm, ScalarProgram, Shape, Strides};

use super::{
    kernel::{Arguments, CpuKernel, Prepare, Threads},
    map::MapKernel,
    reduction::ReductionKernel,
    region::Region,
};
use crate::{Error, ErrorKind};

/// A prepared [`RowFusion`].
pub(crate) struct RowFusionKernel {
    stages: Vec<Stage>,
    n_results: usize,
    /// The scratch space of the values of all stages, and of the largest stage.
    n_values: usize,
    n_own: usize,
    /// The inputs and the values of the stages.
    regions: Vec<Region>,
}

struct Stage {
    compute: StageKernel,
    n_values: usize,
    /// The kernel that copies the values to their result, if they are stored.
    store: Option<MapKernel>,
}

enum StageKernel {
    Map(Box<MapKernel>),
    Reduction(Box<ReductionKernel>),
}

impl Prepare for RowFusion {
    fn prepare(&self, threads: &Threads<'_>) -> Box<dyn CpuKernel> {
        let stages: Vec<Stage> =
            (0..self.stages.len()).map(|it| Stage::new(self, it, threads)).collect();
        let n_own = stages.iter().map(|it| it.compute.n_scratch()).max();
        Box::new(RowFusionKernel {
            n_results: self.stored().count(),
            n_values: stages.iter().map(|it| it.n_values).sum(),
            n_own: n_own.unwrap_or(0),
            regions: Vec::with_capacity(self.inputs.len() + stages.len()),
            stages,
        })
    }
}

impl Stage {
    fn new(fusion: &RowFusion, number: usize, threads: &Threads<'_>) -> Self {
        let stage = &fusion.stages[number];
        let before = (0..number).map(|it| fusion.stage_strides(it));
        let inputs: Vec<Strides> = fusion.inputs.iter().copied().chain(before).collect();
        let (isa, n_threads) = (threads.isa, threads.len());
        let rows = Shape::new(&fusion.extents[..fusion.n_row_dims]);
        let extents = if stage.form == RowStageForm::Row { rows } else { fusion.extents };
        let map = Map { extents, inputs: inputs.into(), program: stage.program.clone() };
        let n_values = fusion.n_values(number);
        let compute = match stage.form.combine() {
            None => StageKernel::Map(Box::new(MapKernel::new(&map, isa, n_threads))),
            Some(combine) => {
                let reduction = Reduction { map, combine, result: fusion.stage_strides(number) };
                let kernel = ReductionKernel::new(&reduction, isa, n_threads);
                StageKernel::Reduction(Box::new(kernel))
            }
        };
        let program = ScalarProgram::identity();
        let all = Shape::new(&[n_values]);
        let copy = Map { extents: all, inputs: vec![all.dense_strides()].into(), program };
        let store = stage.is_stored.then(|| MapKernel::new(&copy, isa, n_threads));
        Self { compute, n_values, store }
    }
}

impl StageKernel {
    fn n_scratch(&self) -> usize {
        match self {
            Self::Map(_) => 0,
            Self::Reduction(it) => it.n_scratch(),
        }
    }

    /// Runs the stage.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    unsafe fn run(
        &mut self,
        scratch: &mut [f32],
        inputs: &[Region],
        values: Region,
        scalars: &[f32],
    ) -> Result<(), Error> {
        match self {
            // SAFETY: required of the caller.
            Self::Map(it) => unsafe { it.run(inputs, &[values], scalars) },
            // SAFETY: as above.
            Self::Reduction(it) => unsafe { it.run(scratch, inputs, &values, scalars) },
        }
    }
}

impl CpuKernel for RowFusionKernel {
    fn n_scratch(&self) -> usize {
        self.n_values + self.n_own
    }

    fn supports_bf16(&self) -> bool {
        true
    }

    unsafe fn launch(&mut self, arguments: Arguments<'_>) -> Result<(), Error> {
        let Arguments { inputs, results, scalars, scratch, .. } = arguments;
        if results.len() != self.n_results {
            let (expected, found) = (self.n_results, results.len());
            let message = format!("expected {expected} results, found {found}");
            return Err(Error::new(ErrorKind::Program, message));
        }
        let (values, own) = scratch.split_at_mut(self.n_values);
        let base = Region { pointer: values.as_mut_ptr(), n_elements: 0, dtype: DType::F32 };
        self.regions.clear();
        self.regions.extend_from_slice(inputs);
        let mut start = 0;
        for stage in &mut self.stages {
            let all = Region { pointer: base.at(start), n_elements: stage.n_values, ..base };
            // SAFETY: required of the caller; the scratch space has room for the values.
            unsafe { stage.compute.run(own, &self.regions, all, scalars) }?;
            self.regions.push(all);
            start += stage.n_values;
        }
        // Results may share memory with inputs, so they are stored when all stages are done.
        let stages = self.stages.iter_mut().zip(&self.regions[inputs.len()..]);
        let stored = stages.filter_map(|(stage, values)| Some((stage.store.as_mut()?, *values)));
        for ((store, values), result) in stored.zip(results) {
            // SAFETY: required of the caller.
            unsafe { store.run(&[values], &[*result], scalars) }?;
        }
        Ok(())
    }
}
