//! The compiler's tests, one module for each area.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

mod accumulation;
mod buckets;
mod channels_last;
mod choices;
mod conformance;
mod convnets;
mod documentation;
mod entries;
mod exhaustive;
mod fastest;
mod faults;
mod figures;
mod graph;
mod halos;
mod inference;
mod kept_halos;
mod linear_operators;
mod lowering;
mod memory;
mod negative_dims;
mod networks;
mod overlap;
mod padding;
mod partial_sums;
mod pins;
mod pipeline;
mod plannable;
mod planner;
mod pooled_masks;
mod precision;
mod ranges;
mod recipes;
mod recosted;
mod replicas;
mod report;
mod sequences;
mod sliding_windows;
mod sparse_updates;
mod time;
mod transposes;
