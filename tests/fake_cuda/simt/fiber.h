//! The threads of a block, as fibers: each has a stack of its own and runs until it waits.
#pragma once
#include "../include/simt_state.h"

enum class State { Ready, AtBarrier, InWarp, Done };

struct Fiber {
    State state;
    uint3 index;
    /// Where it waits.
    int line;
    /// What it brings to the collective of its warp that it waits in.
    unsigned mask;
    void* record;
    SimtCombine combine;

    bool started;
    void* resume[5];
    char* stack;
    void* sanitizer;
};

/// The most threads that a block can have.
constexpr unsigned MOST_THREADS = 1024;

SIMT_HIDDEN extern Fiber simt_fibers[MOST_THREADS];
SIMT_HIDDEN extern Fiber* simt_current;

/// Makes stacks for that many fibers, each of which will run `body` each time it is made ready; false if memory lacks.
SIMT_HIDDEN bool simt_prepare_fibers(unsigned count, void (*body)());
/// Runs the fiber until it waits, is done or fails.
SIMT_HIDDEN void simt_run_fiber(Fiber& fiber);
/// Called within a fiber: gives way to who ran it. A fiber that is abandoned must be forgotten with `simt_forget_fibers`.
SIMT_HIDDEN void simt_give_way();
/// Lets the fibers begin anew, wherever they are.
SIMT_HIDDEN void simt_forget_fibers();
