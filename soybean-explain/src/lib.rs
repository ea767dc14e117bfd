//! Explanations of plans, made from what the compiler reports: pictures, and a page to explore.

pub mod page;
pub mod picture;
