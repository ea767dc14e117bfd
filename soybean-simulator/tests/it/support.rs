//! Small programs and clusters whose times can be computed by hand.

use soybean_plan::{
    AxisSet, Bucket, Buffer, Cluster, Collective, CollectiveKind, Combine, DType, Device, Entry,
    Halo, Instruction, Kernel, Level, Map, Measurements, Mesh, Placement, Program, ScalarProgram,
    Shape, Step, Tables, Tiling,
};

/// The groups, bytes per second and GPUs of each link, and latency of a level.
pub(crate) fn level(
    count: usize,
    link_bytes_per_second: f64,
    gpus_per_link: usize,
    latency_seconds: f64,
) -> Level {
    let name = format!("{count} groups").into();
    Level { name, count, link_bytes_per_second, gpus_per_link, latency_seconds }
}

/// Returns a cluster of GPUs with 1,000 operations and 1,000 bytes of memory traffic per second.
pub(crate) fn cluster(levels: &[Level]) -> Cluster {
    let device = Device {
        name: "abacus".into(),
        f32_flops: 1000.0,
        tf32_flops: 1000.0,
        bf16_flops: 1000.0,
        memory_bytes_per_second: 1000.0,
        memory_bytes: 1 << 20,
        launch_seconds: 0.0,
        efficiency: 1.0,
    };
    Cluster {
        name: "small".into(),
        levels: levels.to_vec().into(),
        device,
        measurements: Measurements::default(),
    }
}

/// A program under construction, in which buffers do not share memory.
pub(crate) struct Steps {
    mesh: Mesh,
    buffers: Vec<Buffer>,
    kernels: Vec<Kernel>,
    steps: Vec<Step>,
    bytes: u64,
}

impl Steps {
    pub(crate) fn new(n_ranks: usize) -> Self {
        let (buffers, kernels, steps) = (Vec::new(), Vec::new(), Vec::new());
        Self { mesh: Mesh::new(n_ranks), buffers, kernels, steps, bytes: 0 }
    }

    /// Adds a buffer of this many floats.
    pub(crate) fn buffer(&mut self, n_elements: usize) -> usize {
        let end = |it: &Buffer| it.offset + it.n_elements * it.dtype.bytes();
        let offset = self.buffers.last().map_or(0, end);
        self.buffers.push(Buffer { offset, n_elements, dtype: DType::F32 });
        self.buffers.len() - 1
    }

    fn step(&mut self, kernel: Kernel, input: usize, result: usize) {
        self.kernels.push(kernel);
        let kernel = self.kernels.len() - 1;
        self.steps.push(Step { kernel, inputs: vec![input], results: vec![result] });
    }

    /// Adds a copy of a buffer, with 8 bytes of memory traffic for each element.
    pub(crate) fn copy(mut self, input: usize, result: usize) -> Self {
        let extents = Shape::new(&[self.buffers[input].n_elements]);
        let program = ScalarProgram {
            instructions: vec![Instruction::Input(0)].into(),
            results: vec![0].into(),
        };
        let map = Map { extents, inputs: vec![extents.dense_strides()].into(), program };
        self.step(map.into(), input, result);
        self
    }

    /// Adds a collective of a vector along some axes. It is split along the others.
    pub(crate) fn collective(
        mut self,
        kind: CollectiveKind,
        axes: &[usize],
        input: usize,
        result: usize,
    ) -> Self {
        let axes: AxisSet = axes.iter().copied().collect();
        let (before, after) = match kind {
            CollectiveKind::AllGather => (Placement::Split(0), Placement::Replicated),
            CollectiveKind::AllToAll => (Placement::Split(0), Placement::Split(1)),
            CollectiveKind::AllReduce => (Placement::Partial, Placement::Replicated),
            CollectiveKind::ReduceScatter => (Placement::Partial, Placement::Split(0)),
            CollectiveKind::Slice => (Placement::Replicated, Placement::Split(0)),
            CollectiveKind::HaloExchange => (Placement::Split(0), Placement::Split(0)),
        };
        let halo = match kind {
            CollectiveKind::HaloExchange => Halo::NONE.with(0, [1, 1]),
            CollectiveKind::AllGather
            | CollectiveKind::AllToAll
            | CollectiveKind::AllReduce
            | CollectiveKind::ReduceScatter
            | CollectiveKind::Slice => Halo::NONE,
        };
        let tiling = |along: Placement| {
            let on = |axis| if axes.contains(axis) { along } else { Placement::Split(0) };
            Tiling::new(&(0..self.mesh.n_axes()).map(on).collect::<Vec<_>>())
        };
        let n_split = match before {
            Placement::Split(_) => self.mesh.n_ranks(),
            Placement::Replicated | Placement::Partial => {
                self.mesh.n_ranks() / self.mesh.group_size(axes)
            }
        };
        // An all-to-all splits the second dim.
        let shape = Shape::new(&[self.buffers[input].n_elements * n_split / 4, 4]);
        let (from, to, dtype, combine) = (tiling(before), tiling(after), DType::F32, Combine::Sum);
        let collective = Collective { kind, dtype, combine, axes, shape, from, to, halo };
        self.bytes += collective.bytes(&self.mesh);
        self.step(collective.into(), input, result);
        self
    }

    /// Joins the collectives so far, which are the only steps, in one bucket.
    pub(crate) fn in_one_bucket(mut self) -> Self {
        let steps = std::mem::take(&mut self.steps);
        let bucket = |it: &Step| self.kernels[it.kernel].transfer().unwrap().collectives.to_vec();
        let collectives = steps.iter().flat_map(bucket).collect();
        self.kernels.push(Bucket { collectives }.into());
        self.steps.push(Step {
            kernel: self.kernels.len() - 1,
            inputs: steps.iter().flat_map(|it| it.inputs.clone()).collect(),
            results: steps.iter().flat_map(|it| it.results.clone()).collect(),
        });
        self
    }

    /// Returns the program with these steps as its training step.
    pub(crate) fn program(self) -> Program {
        let tables = Tables {
            buffers: self.buffers.into(),
            entries: vec![Entry::only(0, 0, 0, 0).trained(0, self.bytes)].into(),
            ..Tables::new("steps", self.mesh)
        };
        let (kernels, train) = (self.kernels.into(), self.steps);
        Program {
            tables,
            kernels,
            train: vec![train],
            accumulate: Vec::new(),
            evaluate: vec![vec![]],
        }
    }
}
