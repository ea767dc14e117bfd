//! The primitive operators: one file each, with all rules of the operator.

pub mod accumulate;
pub mod addition;
pub mod attend;
pub mod combination;
pub mod concatenate;
pub mod contract;
pub mod convolve;
pub mod elementwise;
pub mod embed;
pub mod iota;
pub mod pad;
pub mod permute;
pub mod phase_select;
pub mod pool;
pub mod reduce;
pub mod replica;
pub mod reshape;
pub mod total;
mod window;
