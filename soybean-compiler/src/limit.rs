//! Plans under a memory limit: the cheapest plan whose program fits, or a diagnostic of what is
//! missing.
//!
//! The memory of a program is known once it is lowered. A lower bound follows from the tilings
//! alone, at each program point, as a sum over tensors and operators ([`program_points`]). With a
//! Lagrange multiplier on the bytes at each point, these summands are costs like all others, and
//! the search minimizes the Lagrangian. Column generation (Dantzig and Wolfe 1960) finds
//! multipliers: the restricted master problem ([`restricted_master`]) gives those of the best
//! mixture of the plans found so far, and each search with them adds a plan. Every plan found is
//! lowered, and the cheapest one that fits is taken.
//!
//! Whatever the multipliers are, the least Lagrangian less the price of the limit is a lower bound
//! for all plans of this network that fit. Plans with replicas that the network lacks are not
//! covered.

mod column_generation;
mod out_of_memory;
mod program_points;
mod restricted_master;

pub(crate) use column_generation::{checked, fitting};
pub(crate) use out_of_memory::OutOfMemory;
