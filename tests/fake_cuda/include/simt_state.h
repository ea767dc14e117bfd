//! What a kernel's text and the launcher share: the thread that runs, how it waits, and the table of kernels.
//!
//! No standard header is included here: each model's text includes this file, and such headers take longer to compile than the text.
#pragma once

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
};

/// One kernel of a text, as `SOYBEAN_EXPORT` describes it.
struct SimtKernel {
    const char* name;
    void (*function)();
    void (*call)(void (*function)(), void** arguments);
    unsigned arguments;
    int uses_barriers;
    /// Where its static shared memory ends within the section of shared memory.
    char* shared_end;
};

/// What the lanes of a warp do together once all have arrived: `records[lane]` is what the lane brought, null where it does not take part.
typedef void (*SimtCombine)(void* const* records, unsigned line);

#define SIMT_HIDDEN __attribute__((visibility("hidden")))

extern "C" {
SIMT_HIDDEN extern uint3 simt_thread_index, simt_block_index;
SIMT_HIDDEN extern dim3 simt_block_size, simt_grid_size;
SIMT_HIDDEN extern unsigned simt_lane;
SIMT_HIDDEN extern char* simt_dynamic_shared;

/// Waits until every thread of the block waits here.
SIMT_HIDDEN void simt_barrier(int line);
/// Waits until every lane of `mask` has brought its record, and lets `combine` work on them all.
SIMT_HIDDEN void simt_collective(unsigned mask, int line, void* record, SimtCombine combine);
/// The value that lane `source` brings, as bits; a `source` that takes no part gives poison.
SIMT_HIDDEN unsigned long long simt_shuffle(unsigned mask, unsigned long long bits, int source, int line);
/// The lanes of `mask` that bring something other than 0.
SIMT_HIDDEN unsigned simt_ballot(unsigned mask, int predicate, int line);
/// `d += a b` on fragments in the layout of `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32`.
SIMT_HIDDEN void simt_mma_bf16(float* d, const unsigned* a, const unsigned* b, int line);
/// `d += a b` on fragments in the layout of `mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32`.
SIMT_HIDDEN void simt_mma_tf32(float* d, const unsigned* a, const unsigned* b, int line);
/// Ends the launch with an error.
SIMT_HIDDEN void simt_trap(int line);
}
