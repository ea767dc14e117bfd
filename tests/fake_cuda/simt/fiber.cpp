//! Fibers on `__builtin_setjmp`, which takes a few instructions where `swapcontext` makes a
//! system call.
#include "fiber.h"
#include <sys/mman.h>
#include <ucontext.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
static const size_t STACK = 512 << 10;
// Before a call that does not return, the sanitizer clears what it knows of the whole stack. A
// switch needs no such thing, because the frames stay in use.
#define SWITCHES __attribute__((noinline, no_sanitize_address))
#else
static const size_t STACK = 128 << 10;
#define SWITCHES __attribute__((noinline))
static void __sanitizer_start_switch_fiber(void**, const void*, size_t) {}
static void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) {}
#define ASAN_UNPOISON_MEMORY_REGION(stack, size)
#endif
static const size_t GUARD = 16 << 10;

Fiber simt_fibers[MOST_THREADS];
Fiber* simt_current;

static void* runner[5];
static void (*fiber_body)();
static const void* runner_stack;
static size_t runner_stack_size;

[[noreturn]] SWITCHES static void jump(void** to) { __builtin_longjmp(to, 1); }

static void enter() {
    __sanitizer_finish_switch_fiber(nullptr, &runner_stack, &runner_stack_size);
    for (;;) {
        fiber_body();
        simt_current->state = State::Done;
        simt_give_way();
    }
}

SWITCHES void simt_give_way() {
    Fiber& self = *simt_current;
    __sanitizer_start_switch_fiber(&self.sanitizer, runner_stack, runner_stack_size);
    if (__builtin_setjmp(self.resume) == 0) {
        jump(runner);
    }
    __sanitizer_finish_switch_fiber(simt_current->sanitizer, &runner_stack, &runner_stack_size);
}

// Stacks begin at different page offsets. Otherwise they would compete for the same cache sets.
static size_t stagger(const Fiber& fiber) { return (size_t)(&fiber - simt_fibers) * 320 % 16384 / 64 * 64; }

[[noreturn]] SWITCHES static void switch_to(Fiber& fiber) {
    if (fiber.started) {
        jump(fiber.resume);
    }
    fiber.started = true;
    // Not on the stack: nobody returns to this frame, so the sanitizer would consider it in use.
    static ucontext_t start;
    getcontext(&start);
    start.uc_stack.ss_sp = fiber.stack;
    start.uc_stack.ss_size = STACK - stagger(fiber);
    start.uc_link = nullptr;
    makecontext(&start, enter, 0);
    setcontext(&start);
    __builtin_unreachable();
}

SWITCHES void simt_run_fiber(Fiber& fiber) {
    static void* sanitizer;
    simt_current = &fiber;
    __sanitizer_start_switch_fiber(&sanitizer, fiber.stack, STACK);
    if (__builtin_setjmp(runner) == 0) {
        switch_to(fiber);
    }
    __sanitizer_finish_switch_fiber(sanitizer, nullptr, nullptr);
}

static bool prepare(Fiber& fiber) {
    if (fiber.stack == nullptr) {
        void* memory = mmap(nullptr, GUARD + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            return false;
        }
        // A kernel that overflows its stack faults here, instead of writing to the next stack.
        mprotect(memory, GUARD, PROT_NONE);
        fiber.stack = (char*)memory + GUARD;
    }
    return true;
}

bool simt_prepare_fibers(unsigned count, void (*body)()) {
    fiber_body = body;
    for (unsigned i = 0; i < count; ++i) {
        if (!prepare(simt_fibers[i])) {
            return false;
        }
    }
    return true;
}

static void forget(Fiber& fiber) {
    if (fiber.started) {
        ASAN_UNPOISON_MEMORY_REGION(fiber.stack, STACK);
    }
    fiber.started = false;
}

void simt_forget_fibers() {
    for (Fiber& fiber : simt_fibers) {
        forget(fiber);
    }
}

// A process may load and unload many modules, each with its own stacks.
__attribute__((destructor)) static void release() {
    for (Fiber& fiber : simt_fibers) {
        if (fiber.stack != nullptr) {
            forget(fiber);
            munmap(fiber.stack - GUARD, GUARD + STACK);
        }
    }
}
