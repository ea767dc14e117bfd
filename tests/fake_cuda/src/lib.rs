//! CUDA on virtual devices: what tests of the CUDA backend run on.
