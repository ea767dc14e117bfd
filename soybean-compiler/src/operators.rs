//! One file for each primitive operator, with all its rules.

pub mod by_phase;
pub mod contract;
pub mod convolve;
pub mod elementwise;
pub mod iota;
pub mod permute;
pub mod pool;
pub mod reduce;
pub mod reshape;
