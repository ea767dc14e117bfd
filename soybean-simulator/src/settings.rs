//! What is asked of a simulation.

/// What is simulated, and how ranks order it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Which steps of the program.
    pub phase: Phase,
    /// Whether collectives run beside kernels.
    pub lanes: Lanes,
    /// How data pass between ranks.
    pub transport: Transport,
}

/// Which steps of a program are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// What its plan is measured by: a training step, or in inference a prediction.
    #[default]
    Measured,
    /// An evaluation; in inference it is a prediction, too.
    Evaluate,
}

/// Whether collectives run beside kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lanes {
    /// Kernels and collectives each have a lane and wait for each other only where one needs what the other does, as the runtime does it on GPUs.
    #[default]
    Two,
    /// All run one after another, in the order of the program.
    One,
}

/// How data pass between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// Each rank reads what it needs from the others' memory.
    #[default]
    Direct,
    /// As NCCL does it: ranks of a group work in step, and pass what is gathered or combined round in a ring, in the order of their numbers.
    Rings,
}
