//! The pseudorandom generator behind seeds, streams and steps.

/// Returns the output of `SplitMix64` for a state, after one step.
///
/// It is a bijection of words in which each bit depends on all others. [`next_state`] gives the
/// state that follows. Source: Steele, Lea & Flood 2014.
#[must_use]
pub const fn mixed(state: u64) -> u64 {
    let word = next_state(state);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Returns the state of `SplitMix64` after one step.
#[must_use]
pub const fn next_state(state: u64) -> u64 {
    state.wrapping_add(0x9e37_79b9_7f4a_7c15)
}
