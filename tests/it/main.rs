//! Tests of the whole system, from a user's source to a training run, in one program.
//!
//! Tests that install virtual GPUs, kill a process or limit its files start this program again for
//! one test. `memory` and `no_allocation` are separate programs because they replace the global
//! allocator, and `processes` because it needs the feature `mpi`.

#![expect(clippy::unwrap_used, reason = "tests")]

pub mod accepted;
mod adapters;
mod bad_input;
mod book;
mod buckets;
mod channels_last;
mod checkpoints;
mod clusters;
mod code_bases;
mod command_line;
mod conditions;
mod conformance;
mod cuda;
mod cuda_attention;
mod cuda_bf16;
mod custom_operators;
mod determinism;
mod edges;
mod editors;
mod entries;
mod every_number;
mod example_networks;
mod examples;
mod experts;
mod flex_attention;
mod generated;
mod generation;
mod hugging_face;
mod inference;
mod integers;
mod kernels_of_examples;
mod launches;
mod layers;
mod long_attention;
mod masked_attention;
mod mistakes;
mod networks;
mod nn;
mod non_finite_values;
mod operators;
mod precision;
mod predictions;
mod pretrained;
mod random_models;
mod ranges;
mod reference;
mod runs;
mod rustc;
mod scalar_inputs;
mod scopes;
mod sliding_windows;
mod soundness;
mod sparse_updates;
mod split_images;
mod strategies;
mod support;
mod texts_in_rows;
mod training_and_evaluation;
mod transformer;
