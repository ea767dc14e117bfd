//! Interface between kernels and the launcher: the running thread, its waits, and the table of
//! kernels.
//!
//! No standard headers are included here: every model includes this file, and they would take
//! longer to compile than the kernels.
#pragma once

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
};

/// A kernel, as `SOYBEAN_EXPORT` describes it.
struct SimtKernel {
    const char* name;
    void (*function)();
    void (*call)(void (*function)(), void** arguments);
    unsigned arguments;
    int uses_barriers;
    /// End of its static shared memory within the section.
    char* shared_end;
};

/// Combines the records of a warp. `records[lane]` is null for lanes that do not take part.
typedef void (*SimtCombine)(void* const* records, unsigned line);

#define SIMT_HIDDEN __attribute__((visibility("hidden")))

extern "C" {
SIMT_HIDDEN extern uint3 simt_thread_index, simt_block_index;
SIMT_HIDDEN extern dim3 simt_block_size, simt_grid_size;
SIMT_HIDDEN extern unsigned simt_lane;
SIMT_HIDDEN extern char* simt_dynamic_shared;

/// Waits until every thread of the block waits here.
SIMT_HIDDEN void simt_barrier(int line);
/// Waits until every lane of `mask` has a record here, and applies `combine` to all records.
SIMT_HIDDEN void simt_collective(unsigned mask, int line, void* record, SimtCombine combine);
/// Returns the bits of lane `source`. A `source` that does not take part gives poison.
SIMT_HIDDEN unsigned long long simt_shuffle(unsigned mask, unsigned long long bits, int source, int line);
/// Returns the lanes of `mask` whose predicate is not 0.
SIMT_HIDDEN unsigned simt_ballot(unsigned mask, int predicate, int line);
/// Computes `d += a b` on fragments in the layout of
/// `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32`.
SIMT_HIDDEN void simt_mma_bf16(float* d, const unsigned* a, const unsigned* b, int line);
/// Computes `d += a b` on fragments in the layout of
/// `mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32`.
SIMT_HIDDEN void simt_mma_tf32(float* d, const unsigned* a, const unsigned* b, int line);
/// Loads four matrices as `ldmatrix.m8n8.x4`, with `.trans` if `transposed` is not 0. `row` is the
/// address of the lane.
SIMT_HIDDEN void simt_load_matrices(unsigned* words, const unsigned* row, int transposed, int line);
/// Begins a copy as `cp.async`, of `count` bytes or zeros. Until the thread waits, the destination
/// has poison.
SIMT_HIDDEN void simt_begin_copy(void* to, const void* from, unsigned count, int is_zero, int line);
/// Performs the copies that the thread has begun.
SIMT_HIDDEN void simt_wait_for_copies();
/// Aborts the launch with an error.
SIMT_HIDDEN void simt_trap(int line);
}
