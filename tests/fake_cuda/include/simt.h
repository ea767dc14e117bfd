//! Lets CUDA C compile with a C++ compiler, for the threads of `launch.cpp`. It is included before
//! unmodified source for NVRTC.
#pragma once
#define SOYBEAN_ON_CPU 1
#include "simt_state.h"

typedef __SIZE_TYPE__ size_t;

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __constant__ static
// All shared memory is in one section, where the launcher finds and poisons it.
#define __shared__ static __attribute__((section("simt_shared")))

#define threadIdx simt_thread_index
#define blockIdx simt_block_index
#define blockDim simt_block_size
#define gridDim simt_grid_size
#define warpSize 32

#define SIMT_VECTOR(name, element, bytes)                                                       \
    struct __attribute__((aligned(2 * bytes))) name##2 { element x, y; };                       \
    struct __attribute__((aligned(4 * bytes))) name##4 { element x, y, z, w; };                 \
    static inline name##2 make_##name##2(element x, element y) { return {x, y}; }               \
    static inline name##4 make_##name##4(element x, element y, element z, element w) { return {x, y, z, w}; }
SIMT_VECTOR(float, float, 4)
SIMT_VECTOR(int, int, 4)
SIMT_VECTOR(uint, unsigned, 4)
SIMT_VECTOR(ushort, unsigned short, 2)
#undef SIMT_VECTOR

#define SIMT_MATHS(name) extern "C" float name(float);
SIMT_MATHS(expf) SIMT_MATHS(exp2f) SIMT_MATHS(expm1f) SIMT_MATHS(logf) SIMT_MATHS(log2f) SIMT_MATHS(log10f) SIMT_MATHS(log1pf)
SIMT_MATHS(sqrtf) SIMT_MATHS(cbrtf) SIMT_MATHS(sinf) SIMT_MATHS(cosf) SIMT_MATHS(tanf) SIMT_MATHS(asinf) SIMT_MATHS(acosf) SIMT_MATHS(atanf)
SIMT_MATHS(sinhf) SIMT_MATHS(coshf) SIMT_MATHS(tanhf) SIMT_MATHS(asinhf) SIMT_MATHS(acoshf) SIMT_MATHS(atanhf) SIMT_MATHS(erff) SIMT_MATHS(erfcf)
SIMT_MATHS(fabsf) SIMT_MATHS(floorf) SIMT_MATHS(ceilf) SIMT_MATHS(roundf) SIMT_MATHS(rintf) SIMT_MATHS(truncf)
#undef SIMT_MATHS
extern "C" float fminf(float, float);
extern "C" float fmaxf(float, float);
extern "C" float fmodf(float, float);
extern "C" float powf(float, float);
extern "C" float atan2f(float, float);
extern "C" float copysignf(float, float);
extern "C" float fmaf(float, float, float);
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float __expf(float x) { return expf(x); }
static inline float __logf(float x) { return logf(x); }
static inline float __log2f(float x) { return log2f(x); }
static inline float __sinf(float x) { return sinf(x); }
static inline float __cosf(float x) { return cosf(x); }
static inline float __powf(float x, float y) { return powf(x, y); }
static inline float __frsqrt_rn(float x) { return rsqrtf(x); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)

template <class To, class From> static inline To simt_bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "bits are kept");
    To bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}
static inline unsigned __float_as_uint(float x) { return simt_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return simt_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return simt_bits<float>(x); }
static inline float __int_as_float(int x) { return simt_bits<float>(x); }
static inline int __float2int_rn(float x) { return (int)rintf(x); }
static inline unsigned __float2uint_rn(float x) { return (unsigned)rintf(x); }
static inline unsigned __float2uint_rz(float x) { return (unsigned)x; }
static inline int __float2int_rz(float x) { return (int)x; }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }

#define SIMT_EXTREMES(type)                                             \
    static inline type min(type a, type b) { return b < a ? b : a; }   \
    static inline type max(type a, type b) { return a < b ? b : a; }
SIMT_EXTREMES(int) SIMT_EXTREMES(unsigned) SIMT_EXTREMES(long) SIMT_EXTREMES(unsigned long) SIMT_EXTREMES(long long) SIMT_EXTREMES(unsigned long long)
#undef SIMT_EXTREMES
static inline unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
static inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
static inline unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
static inline unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
extern "C" int abs(int);
// Byte i of the result is the byte of both words whose number is the i-th digit of the selector.
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) result |= (unsigned)(both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return result;
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
template <class T> static inline T __ldg(const T* from) { return *from; }
template <class T> static inline T __ldcs(const T* from) { return *from; }
template <class T> static inline void __stcs(T* to, T value) { *to = value; }

// One thread runs at a time and switches only at barriers, so plain accesses are atomic.
template <class T> static inline T simt_add(T* at, T value) {
    T old = *at;
    *at = old + value;
    return old;
}
template <class T> static inline T simt_exchange(T* at, T value) {
    T old = *at;
    *at = value;
    return old;
}
template <class T> static inline T simt_exchange_if(T* at, T expected, T value) { return *at == expected ? simt_exchange(at, value) : *at; }
#define SIMT_ATOMICS(type)                                                                                                   \
    static inline type atomicAdd(type* at, type value) { return simt_add(at, value); }                                       \
    static inline type atomicExch(type* at, type value) { return simt_exchange(at, value); }
SIMT_ATOMICS(float) SIMT_ATOMICS(int) SIMT_ATOMICS(unsigned) SIMT_ATOMICS(unsigned long long)
#undef SIMT_ATOMICS
#define SIMT_ATOMICS(type)                                                                                                   \
    static inline type atomicMax(type* at, type value) { return simt_exchange(at, max(*at, value)); }                        \
    static inline type atomicMin(type* at, type value) { return simt_exchange(at, min(*at, value)); }                        \
    static inline type atomicCAS(type* at, type expected, type value) { return simt_exchange_if(at, expected, value); }
SIMT_ATOMICS(int) SIMT_ATOMICS(unsigned) SIMT_ATOMICS(unsigned long long)
#undef SIMT_ATOMICS

template <class T> static inline T simt_shuffle_value(unsigned mask, T value, int source, int line) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = simt_shuffle(mask, bits, source, line);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
// Lanes outside the segment of `width` lanes read themselves.
static inline int simt_segment(int width) { return (int)simt_lane & ~(width - 1); }
static inline int simt_within(int source, int width) { return (source & ~(width - 1)) == simt_segment(width) ? source : (int)simt_lane; }
template <class T> static inline T simt_shuffle_to(int line, unsigned mask, T value, int source, int width = 32) {
    return simt_shuffle_value(mask, value, simt_segment(width) + (source & (width - 1)), line);
}
template <class T> static inline T simt_shuffle_down(int line, unsigned mask, T value, unsigned delta, int width = 32) {
    return simt_shuffle_value(mask, value, simt_within((int)(simt_lane + delta), width), line);
}
template <class T> static inline T simt_shuffle_up(int line, unsigned mask, T value, unsigned delta, int width = 32) {
    return simt_shuffle_value(mask, value, simt_within((int)simt_lane - (int)delta, width), line);
}
template <class T> static inline T simt_shuffle_xor(int line, unsigned mask, T value, int lanes, int width = 32) {
    // A lane of a later segment cannot be read, but one of an earlier segment can.
    int source = (int)simt_lane ^ lanes;
    return simt_shuffle_value(mask, value, source < simt_segment(width) + width ? source : (int)simt_lane, line);
}
static inline void simt_warp_barrier(int line, unsigned mask = 0xffffffffu) { simt_collective(mask, line, nullptr, nullptr); }
#define __shfl_sync(...) simt_shuffle_to(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) simt_shuffle_down(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) simt_shuffle_up(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) simt_shuffle_xor(__LINE__, __VA_ARGS__)
#define __ballot_sync(mask, predicate) simt_ballot(mask, predicate, __LINE__)
#define __any_sync(mask, predicate) (simt_ballot(mask, predicate, __LINE__) != 0)
#define __all_sync(mask, predicate) (simt_ballot(mask, !(predicate), __LINE__) == 0)
#define __syncwarp(...) simt_warp_barrier(__LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __syncthreads() simt_barrier(__LINE__)
#define __threadfence()
#define __threadfence_block()
#define __trap() simt_trap(__LINE__)
#define soybean_mma_bf16(d, a, b) simt_mma_bf16(d, a, b, __LINE__)
#define soybean_mma_tf32(d, a, b) simt_mma_tf32(d, a, b, __LINE__)
#define soybean_load_matrices(words, row) simt_load_matrices(words, row, 0, __LINE__)
#define soybean_load_matrices_transposed(words, row) simt_load_matrices(words, row, 1, __LINE__)
static inline void soybean_load_shared(unsigned (&x)[1], const unsigned* from) { x[0] = from[0]; }
static inline void soybean_load_shared(unsigned (&x)[2], const unsigned* from) {
    uint2 words = *(const uint2*)from;
    x[0] = words.x, x[1] = words.y;
}
template <class T> static inline T soybean_opaque(T value) { return value; }
#define soybean_copy_16(to, from, is_zero) simt_begin_copy(to, from, 16, is_zero, __LINE__)
#define soybean_copy_4(to, from, is_zero) simt_begin_copy(to, from, 4, is_zero, __LINE__)
#define soybean_wait_for_copies() simt_wait_for_copies()
// Subnormal numbers are 0, as in `ex2.approx.ftz`.
static inline float simt_normal_or_zero(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }
static inline float soybean_exp2(float x) { return simt_normal_or_zero(exp2f(simt_normal_or_zero(x))); }

template <class T> struct SimtPointer;
template <class T> struct SimtPointer<T*> {
    static T* from(void* value) { return (T*)value; }
};
template <unsigned... I> struct SimtIndices {};
template <unsigned N, unsigned... I> struct SimtCount : SimtCount<N - 1, N - 1, I...> {};
template <unsigned... I> struct SimtCount<0, I...> {
    typedef SimtIndices<I...> Indices;
};
/// Calls a function with arguments `A`, all of them pointers.
template <class... A> struct SimtCaller {
    template <unsigned... I> static void with(void (*function)(), void** arguments, SimtIndices<I...>) {
        ((void (*)(A...))function)(SimtPointer<A>::from(arguments[I])...);
    }
    static void call(void (*function)(), void** arguments) { with(function, arguments, typename SimtCount<sizeof...(A)>::Indices()); }
};
template <class... A> static inline SimtKernel simt_kernel(const char* name, void (*function)(A...), int uses_barriers, char* shared_end) {
    return {name, (void (*)())function, SimtCaller<A...>::call, sizeof...(A), uses_barriers, shared_end};
}
// The marker ends the kernel's part of the section: flags keep definitions in source order.
#define SOYBEAN_EXPORT(kernel, uses_barriers)                                                                     \
    __attribute__((section("simt_shared"), used)) static char simt_end_of_##kernel = 0;                          \
    static SimtKernel simt_kernel_of_##kernel = simt_kernel(#kernel, kernel, uses_barriers, &simt_end_of_##kernel); \
    __attribute__((section("simt_kernels"), used)) static SimtKernel* simt_pointer_to_##kernel = &simt_kernel_of_##kernel;
#define SOYBEAN_SHARED(type, name) type* name = (type*)simt_dynamic_shared
