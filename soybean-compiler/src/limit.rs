//! Plans under a memory limit: the cheapest plan whose program fits, or what is missing.
//!
//! How much memory a program takes is known when it is lowered. What it takes at least follows from the tilings alone, at each of some moments, as a sum
//! of one share for each tensor and operator ([`moments`]). With a price on the bytes of each moment these shares become costs that the search
//! minimises like all others. DualPrices are raised where plans do not fit ([`restricted_master`]); each plan on the way is lowered, and the cheapest that really fits
//! is taken. Whatever the prices, the least total of moved and priced bytes, less the price of the limit, is a bound below all plans of this
//! network that fit; plans with working copies that it does not have are not among them.

mod column_generation;
mod out_of_memory;
mod program_points;
mod restricted_master;

pub(crate) use column_generation::{checked, fitting};
pub(crate) use out_of_memory::OutOfMemory;
