//! One file for each primitive operator, with all its rules.

pub mod attend;
pub mod by_phase;
pub mod concatenate;
pub mod contract;
pub mod convolve;
pub mod elementwise;
pub mod embed;
pub mod iota;
pub mod pad;
pub mod permute;
pub mod pool;
pub mod reduce;
pub mod reshape;
pub mod share;
pub mod total;
