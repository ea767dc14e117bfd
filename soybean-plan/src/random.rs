//! The one generator of numbers that look random, of which seeds, streams and steps are made.

/// The output of `SplitMix64` for a state, after one step: a bijection of words in which each bit depends on all others. The states that follow are
/// [`next_state`] of one another. Source: Steele, Lea & Flood 2014.
#[must_use]
pub const fn mixed(state: u64) -> u64 {
    let word = next_state(state);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// The state of `SplitMix64` after one step.
#[must_use]
pub const fn next_state(state: u64) -> u64 {
    state.wrapping_add(0x9e37_79b9_7f4a_7c15)
}
