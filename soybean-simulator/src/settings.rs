//! The settings of a simulation.

/// The settings of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The steps of the program to simulate.
    pub phase: Phase,
    /// The order of kernels and collectives.
    pub lanes: Lanes,
    /// The transport between ranks.
    pub transport: Transport,
}

/// The steps of a program to simulate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// A training step with its update, or in inference a prediction.
    #[default]
    Measured,
    /// A training step that only accumulates gradients, if several steps share an update.
    Accumulate,
    /// An evaluation, which is a prediction in inference.
    Evaluate(usize),
}

/// The order of kernels and collectives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lanes {
    /// Kernels and collectives have a lane each and wait for each other only if one needs the
    /// other's result, as on GPUs.
    #[default]
    Two,
    /// All run one after another in the order of the program.
    One,
}

/// The transport between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// Each rank reads from the others' memory.
    #[default]
    Direct,
    /// The rings of NCCL: the ranks of a group work in lockstep, and pass pieces to the next rank
    /// in the order of their numbers.
    Rings,
}
