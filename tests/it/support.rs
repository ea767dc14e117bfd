//! Samples of operators, results as one tensor, and arrays as eager tensors.

pub(crate) mod arrays;
pub(crate) mod joined;
pub(crate) mod samples;
