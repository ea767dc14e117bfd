//! The threads of a block as fibers. Each has its own stack and runs until it waits.
#pragma once
#include "../include/simt_state.h"

enum class State { Ready, AtBarrier, InWarp, Done };

struct Fiber {
    State state;
    uint3 index;
    /// The place where the thread waits.
    int line;
    /// Its record in the warp collective that it waits in.
    unsigned mask;
    void* record;
    SimtCombine combine;

    bool started;
    void* resume[5];
    char* stack;
    void* sanitizer;
};

/// Maximum number of threads per block.
constexpr unsigned MOST_THREADS = 1024;

SIMT_HIDDEN extern Fiber simt_fibers[MOST_THREADS];
SIMT_HIDDEN extern Fiber* simt_current;

/// Allocates stacks for `count` fibers, which will run `body` whenever they become ready. Returns
/// false if memory runs out.
SIMT_HIDDEN bool simt_prepare_fibers(unsigned count, void (*body)());
/// Runs the fiber until it waits, returns or fails.
SIMT_HIDDEN void simt_run_fiber(Fiber& fiber);
/// Switches from a fiber back to its caller. An abandoned fiber must be reset with
/// `simt_forget_fibers`.
SIMT_HIDDEN void simt_give_way();
/// Resets all fibers, wherever they are.
SIMT_HIDDEN void simt_forget_fibers();
