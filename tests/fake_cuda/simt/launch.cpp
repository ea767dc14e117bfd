//! Runs the grid of a kernel block by block. Detects barriers that not all threads reach, and
//! poisons shared memory.
#include "fiber.h"
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum Order : int { Forward = 0, Reverse = 1, Random = 2 };

extern "C" {
uint3 simt_thread_index, simt_block_index;
dim3 simt_block_size, simt_grid_size;
unsigned simt_lane;
char* simt_dynamic_shared;

extern char __start_simt_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_simt_shared[] __attribute__((weak, visibility("hidden")));
extern SimtKernel* __start_simt_kernels[] __attribute__((weak, visibility("hidden")));
extern SimtKernel* __stop_simt_kernels[] __attribute__((weak, visibility("hidden")));
}

static const unsigned WARP = 32;
static const SimtKernel* kernel;
static void** kernel_arguments;
static unsigned n_threads;
static unsigned waiting_lanes[MOST_THREADS / WARP];
static unsigned permutation[MOST_THREADS];
static uint64_t random_state;
static char failure[256];
static bool in_fibers;
static void* plain_escape[5];

/// Records an error. A running thread then calls `leave`.
__attribute__((format(printf, 2, 3))) static void fail(int line, const char* format, ...) {
    int length = snprintf(failure, sizeof failure, "kernel %s, line %d: ", kernel->name, line);
    va_list values;
    va_start(values, format);
    vsnprintf(failure + length, sizeof failure - length, format, values);
    va_end(values);
}

static void leave() {
    if (in_fibers) {
        simt_give_way();
    } else {
        __builtin_longjmp(plain_escape, 1);
    }
}

static uint64_t random_number() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static unsigned number_of(const Fiber& fiber) { return (unsigned)(&fiber - simt_fibers); }

// Without the sanitizer: its red zones between the arrays are overwritten too.
__attribute__((no_sanitize("address"), noinline)) static void poison(char* begin, char* end) {
    for (volatile char* at = begin; at < end; ++at) {
        *at = (char)0xff;
    }
}

static char* shared_begin() {
    char* begin = __start_simt_shared;
    for (SimtKernel** other = __start_simt_kernels; other < __stop_simt_kernels; ++other) {
        char* end = (*other)->shared_end;
        begin = begin < end && end < kernel->shared_end ? end : begin;
    }
    return begin;
}

void simt_trap(int line) {
    fail(line, "the kernel trapped");
    leave();
}

/// A copy from global to shared memory that the thread has not waited for.
struct Copy {
    void* to;
    const void* from;
    unsigned count;
    int is_zero;
};
static const unsigned MOST_COPIES = 256;
static Copy copies[MOST_THREADS][MOST_COPIES];
static unsigned n_copies[MOST_THREADS];

void simt_begin_copy(void* to, const void* from, unsigned count, int is_zero, int line) {
    if (!in_fibers || n_copies[number_of(*simt_current)] == MOST_COPIES) {
        fail(line, "a copy to shared memory in a kernel without barriers, or too many of them at once");
        leave();
    }
    if ((uintptr_t)to % count != 0 || (uintptr_t)from % count != 0) {
        fail(line, "a copy of %u bytes whose addresses are no multiples of that", count);
        leave();
    }
    memset(to, 0xff, count);
    unsigned thread = number_of(*simt_current);
    copies[thread][n_copies[thread]++] = {to, from, count, is_zero};
}

void simt_wait_for_copies() {
    unsigned thread = number_of(*simt_current);
    for (unsigned i = 0; i < n_copies[thread]; ++i) {
        const Copy& copy = copies[thread][i];
        if (copy.is_zero) {
            memset(copy.to, 0, copy.count);
        } else {
            memcpy(copy.to, copy.from, copy.count);
        }
    }
    n_copies[thread] = 0;
}

void simt_barrier(int line) {
    if (!in_fibers) {
        fail(line, "a barrier, but the kernel is exported as one that uses none");
        leave();
    }
    simt_current->line = line;
    simt_current->state = State::AtBarrier;
    simt_give_way();
}

/// Runs the collective that the current lane has completed. Returns false if the lanes disagree.
static bool complete_collective(unsigned warp, unsigned participants) {
    void* records[WARP] = {};
    const Fiber& own = *simt_current;
    for (unsigned lane = 0; lane < WARP; ++lane) {
        if (participants >> lane & 1) {
            const Fiber& other = simt_fibers[warp * WARP + lane];
            if (other.mask != own.mask || other.combine != own.combine || other.line != own.line) {
                fail(own.line, "lanes of a warp wait for each other at different places (line %d too) or with different masks", other.line);
                return false;
            }
            records[lane] = other.record;
        }
    }
    if (own.combine) {
        own.combine(records, (unsigned)own.line);
    }
    return true;
}

void simt_collective(unsigned mask, int line, void* record, SimtCombine combine) {
    if (!in_fibers) {
        fail(line, "lanes of a warp meet, but the kernel is exported as one that uses no barriers");
        leave();
    }
    Fiber& own = *simt_current;
    unsigned warp = number_of(own) / WARP, lane = number_of(own) % WARP;
    unsigned lanes = n_threads - warp * WARP;
    unsigned participants = lanes < WARP ? mask & ((1u << lanes) - 1) : mask;
    if (!(mask >> lane & 1)) {
        fail(line, "lane %u is not in its own mask %#x", lane, mask);
        leave();
    }
    own.line = line, own.mask = mask, own.record = record, own.combine = combine;
    own.state = State::InWarp;
    waiting_lanes[warp] |= 1u << lane;
    if ((participants & ~waiting_lanes[warp]) == 0) {
        if (!complete_collective(warp, participants)) {
            leave();
        }
        waiting_lanes[warp] &= ~participants;
        for (unsigned i = 0; i < WARP; ++i) {
            if (participants >> i & 1) {
                simt_fibers[warp * WARP + i].state = State::Ready;
            }
        }
    } else {
        simt_give_way();
    }
}

/// Releases all threads if all wait at one barrier. Returns false if none can continue.
static bool release_barrier() {
    const Fiber& first = simt_fibers[0];
    for (unsigned i = 0; i < n_threads; ++i) {
        const Fiber& fiber = simt_fibers[i];
        if (fiber.state == State::InWarp) {
            fail(fiber.line, "thread %u waits for lanes %#x of its warp, which never come", i, fiber.mask);
            return false;
        }
        if (fiber.state != first.state || (fiber.state == State::AtBarrier && fiber.line != first.line)) {
            const Fiber& waiting = fiber.state == State::AtBarrier ? fiber : first;
            const Fiber& other = &waiting == &fiber ? first : fiber;
            if (other.state == State::Done) {
                fail(waiting.line, "thread %u waits at a barrier, but thread %u has returned", number_of(waiting), number_of(other));
            } else {
                fail(waiting.line, "thread %u waits at this barrier, but thread %u at that of line %d", number_of(waiting), number_of(other), other.line);
            }
            return false;
        }
    }
    for (unsigned i = 0; i < n_threads; ++i) {
        simt_fibers[i].state = State::Ready;
    }
    return true;
}

static void permute(Order order) {
    for (unsigned i = 0; i < n_threads; ++i) {
        permutation[i] = order == Reverse ? n_threads - 1 - i : i;
    }
    for (unsigned i = n_threads; order == Random && i > 1; --i) {
        unsigned other = (unsigned)(random_number() % i), moved = permutation[i - 1];
        permutation[i - 1] = permutation[other];
        permutation[other] = moved;
    }
}

static void become(unsigned thread) {
    simt_thread_index = simt_fibers[thread].index;
    simt_lane = thread % WARP;
}

static void call_kernel() { kernel->call(kernel->function, kernel_arguments); }

static bool run_block_in_fibers(Order order) {
    memset(waiting_lanes, 0, sizeof waiting_lanes);
    memset(n_copies, 0, sizeof n_copies);
    for (unsigned i = 0; i < n_threads; ++i) {
        simt_fibers[i].state = State::Ready;
    }
    for (unsigned done = 0; done < n_threads;) {
        bool progress = false;
        if (order == Random) {
            permute(order);
        }
        for (unsigned i = 0; i < n_threads; ++i) {
            Fiber& fiber = simt_fibers[permutation[i]];
            if (fiber.state == State::Ready) {
                become(permutation[i]);
                simt_run_fiber(fiber);
                if (failure[0]) {
                    return false;
                }
                done += fiber.state == State::Done;
                progress = true;
            }
        }
        if (!progress && !release_barrier()) {
            return false;
        }
    }
    return true;
}

__attribute__((noinline)) static void run_plain_threads() {
    for (unsigned i = 0; i < n_threads; ++i) {
        become(permutation[i]);
        call_kernel();
    }
}

__attribute__((noinline)) static bool run_block_plainly(Order order) {
    if (order == Random) {
        permute(order);
    }
    if (__builtin_setjmp(plain_escape) != 0) {
        return false;
    }
    run_plain_threads();
    return true;
}

static uint64_t common_divisor(uint64_t a, uint64_t b) { return b == 0 ? a : common_divisor(b, a % b); }

static void run_grid(Order order, unsigned shared_bytes) {
    uint64_t n_blocks = (uint64_t)simt_grid_size.x * simt_grid_size.y * simt_grid_size.z;
    uint64_t stride = 1, first = 0;
    if (order == Random) {
        // A step without a common divisor visits every block once.
        do {
            stride = 1 + random_number() % n_blocks;
        } while (common_divisor(stride, n_blocks) != 1);
        first = random_number() % n_blocks;
    }
    permute(order);
    char* begin = shared_begin();
    poison(__start_simt_shared, __stop_simt_shared);
    for (uint64_t i = 0; i < n_blocks; ++i) {
        uint64_t block = order == Reverse ? n_blocks - 1 - i : (first + (unsigned __int128)stride * i) % n_blocks;
        simt_block_index = {(unsigned)(block % simt_grid_size.x), (unsigned)(block / simt_grid_size.x % simt_grid_size.y),
                            (unsigned)(block / simt_grid_size.x / simt_grid_size.y)};
        poison(begin, kernel->shared_end);
        poison(simt_dynamic_shared, simt_dynamic_shared + shared_bytes);
        if (!(in_fibers ? run_block_in_fibers(order) : run_block_plainly(order))) {
            simt_forget_fibers();
            return;
        }
    }
}

/// Returns the number of kernels in this module.
extern "C" unsigned simt_kernels() { return (unsigned)(__stop_simt_kernels - __start_simt_kernels); }

/// Returns the kernel with this number.
extern "C" const SimtKernel* simt_kernel_at(unsigned number) { return __start_simt_kernels[number]; }

/// Returns the bytes of static shared memory of a kernel.
extern "C" size_t simt_static_shared(const SimtKernel* asked) {
    kernel = asked;
    return asked->shared_end - shared_begin();
}

/// Runs a kernel. Returns null, or an error that is valid until the next call.
extern "C" const char* simt_launch(const SimtKernel* launched, const unsigned* grid, const unsigned* block, unsigned shared_bytes, void** arguments,
                                   int order, uint64_t seed) {
    kernel = launched;
    kernel_arguments = arguments;
    failure[0] = 0;
    simt_grid_size = {grid[0], grid[1], grid[2]};
    simt_block_size = {block[0], block[1], block[2]};
    n_threads = block[0] * block[1] * block[2];
    in_fibers = launched->uses_barriers != 0;
    random_state = seed * 0x9e3779b97f4a7c15ull | 1;
    if (in_fibers && !simt_prepare_fibers(n_threads, call_kernel)) {
        fail(0, "no memory for the stacks of its threads");
        return failure;
    }
    for (unsigned i = 0; i < n_threads; ++i) {
        simt_fibers[i].index = {i % block[0], i / block[0] % block[1], i / (block[0] * block[1])};
    }
    simt_dynamic_shared = (char*)malloc(shared_bytes);
    if (shared_bytes != 0 && simt_dynamic_shared == nullptr) {
        fail(0, "no memory for its shared memory");
        return failure;
    }
    run_grid((Order)order, shared_bytes);
    free(simt_dynamic_shared);
    return failure[0] ? failure : nullptr;
}
